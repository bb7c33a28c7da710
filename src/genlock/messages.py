"""Messages: one sentence for every answer, event and error, and the commands to try next.

Every edge takes its texts from here: the command line as text and as JSON, problem documents over
HTTP, the status page, MCP and the reference. `describe` takes an answer or an error and returns a
`Message`; `describe_event` takes an event. A message begins in lower case, like every error of
Genlock, unless it begins with a task's id, and has no full stop at its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from genlock.core.model import NO_LEASE
from genlock.core.results import (
    ClaimResult,
    Explanation,
    OperatorResult,
    ProgressResult,
    PushVerdict,
    ReleaseResult,
    RenewalResult,
    ReviewResult,
    SpawnResult,
    SubmissionResult,
)
from genlock.errors import GenlockError

if TYPE_CHECKING:
    from msgspec import Struct

    from genlock.core.dashboard import HolderHealth
    from genlock.core.model import Claim, Holder, Overlap, SessionRecord
    from genlock.core.overview import ProjectProgress

Command: TypeAlias = tuple[str, ...]
"""A command line as its words: `("genlock", "show", "A-001")`."""
Outcome: TypeAlias = (
    ClaimResult
    | RenewalResult
    | ReleaseResult
    | ProgressResult
    | SubmissionResult
    | SpawnResult
    | ReviewResult
    | PushVerdict
    | OperatorResult
    | Explanation
)


class Message(NamedTuple):
    """A sentence, and the commands to type next."""

    text: str
    try_next: tuple[Command, ...] = ()


class Context(NamedTuple):
    """Facts that an answer does not contain and the edge knows."""

    task_id: str = ""
    """The task of an answer that does not name it."""
    generation: int | None = None
    """The generation that the caller showed."""
    options: Mapping[str, str] = {}
    """The options that the call was given: url, tenant, project, session and agent. The commands to
    try next repeat those that they take."""
    session: str = ""
    now: datetime | None = None
    """Times are shown relative to this one (`in 4m`); without it, they are absolute."""


NO_CONTEXT: Final = Context()


# Answers

SENTENCES: Final[dict[str, str]] = {
    # Claims
    "GRANTED": "{task} is claimed for you",
    "NOTHING_READY": "{detail}",
    "DENIED_COMPLETED": "{task} needs no more work",
    "DENIED_HELD": "{task} is on hold",
    "DENIED_ASSIGNED": "{task} is {detail}",
    "DENIED_ROLE": "{task} is for {roles}, and the claim states {role}",
    "DENIED_ACTIVE_CLAIM": "{task} is held by {holder}",
    "DENIED_BLOCKED": "{task} waits for {waits}",
    "DENIED_LIMIT": "the claim would be {detail}",
    # Renewals, releases and reports of progress
    "RENEWED": "the lease of {task} was renewed",
    "RELEASED": "{task} was released",
    "RECORDED": "the progress of {task} was recorded",
    "GENERATION_MISMATCH": "{task} has moved on to {generation}: this claim no longer counts",
    "ALREADY_EXPIRED": "the lease of {task} is over",
    # Submissions and other fenced acts
    "ACCEPTED": "the result of {task} is accepted",
    "CONVERGENCE_ESCALATED": "the result of {task} waits for a review: {causes}",
    "STALE_GENERATION": "{task} has moved on to {generation}: an earlier one no longer counts",
    "FUTURE_GENERATION": "{task} has not been at this generation",
    "TASK_ALREADY_COMPLETED": "{task} is completed or cancelled already",
    "NO_CLAIM": "nobody holds {task} at this generation",
    "SESSION_MISMATCH": "another session holds {task} at this generation",
    "CHILDREN_UNFINISHED": "{task} waits for {waits}",
    # Reviews
    "STALE_REVIEW": "{task} is not in review with this result",
    "FOUR_EYES": "{task} needs the approval of another user than its author: {users}",
    "APPROVED": "the result of {task} is approved, and the task is completed",
    "REJECTED": "the result of {task} is rejected, and the task is open again",
    "EVALUATED": "the evaluation of {task} was recorded",
    # Pushes to a git repository
    "UNKNOWN_TASK": "there is no task {task}",
    "FROZEN": "{task} was submitted, so its branch is frozen at {commit}",
    "CLAIM_OVERDUE": "the lease of {task} is over",
    "NOT_ACCEPTED": "this is not the commit of an accepted result of {task}",
    "ALLOWED": "the push for {task} is allowed",
}
"""The sentence for each reason of an answer. Fields in braces are filled in if known, else replaced
by a general phrase."""

_IN_GENERAL: Final = {
    "task": "the task",
    "holder": "another session or agent",
    "waits": "other tasks",
    "generation": "another generation",
    "causes": "a person or an evaluator decides",
    "users": "the policy is four_eyes",
    "commit": "the submitted commit",
}
_IN_GENERAL_OF: Final = {
    "NOTHING_READY": {"detail": "no task is ready for this agent"},
    "DENIED_ASSIGNED": {"detail": "reserved for another agent"},
    "DENIED_ROLE": {"roles": "other roles", "role": "none of them"},
    "DENIED_LIMIT": {"detail": "over a limit of the tenant"},
    "CHILDREN_UNFINISHED": {"waits": "its subtasks"},
    "STALE_GENERATION": {"generation": "a higher generation"},
}


REVIEW_CAUSES: Final[dict[str, str]] = {
    "OUTSIDE_ROLE": "the role of the claim may not converge the edge of this task",
    "HUMAN_REQUIRED": "a person has to look at it",
    "EVALUATORS": "not all evaluators of its edge have passed",
}
"""Why a result waits for a review."""


def review_causes(causes: Iterable[str]) -> str:
    """Returns why a result waits for a review, in one phrase."""
    return "; ".join(REVIEW_CAUSES[cause] for cause in causes)


def describe_overlaps(task: str, overlaps: Iterable[Overlap]) -> str:
    """Describes the work in progress that shares modules with a task, and what to do about it."""
    shared = ", ".join(f"{each.task_id} ({', '.join(each.modules)})" for each in overlaps)
    return f"{task} shares modules with work in flight: {shared}. Better one after the other"


def describe_feature(name: str, unfinished: int | None, finished: int) -> str:
    """Describes how near a feature is to completion; `unfinished` is None if there are too many to
    count."""
    left = "too many tasks to count are" if unfinished is None else _tasks_are(unfinished)
    return f"of its feature {name} {left} unfinished, {finished} finished"


def _tasks_are(number: int) -> str:
    return "1 task is" if number == 1 else f"{number} tasks are"


def sentence(reason: str, **known: str) -> str:
    """Returns the sentence for a reason, with the known details of the case."""
    found = {name: value for name, value in known.items() if value}
    return SENTENCES[reason].format_map(_IN_GENERAL | _IN_GENERAL_OF.get(reason, {}) | found)


def title(reason: str) -> str:
    """Returns the general meaning of a reason as a heading: `The task waits for other tasks`."""
    told = sentence(reason)
    return told[0].upper() + told[1:]


def describe(outcome: Outcome | GenlockError, context: Context = NO_CONTEXT) -> Message:
    """Describes an answer or an error, with the commands to try next."""
    match outcome:
        case ClaimResult():
            return _claim(outcome, context)
        case RenewalResult() | ReleaseResult() | ProgressResult():
            return _renewal(outcome, context)
        case SubmissionResult() | SpawnResult():
            return _submission(outcome, context)
        case ReviewResult():
            return _review(outcome, context)
        case PushVerdict():
            return _push(outcome, context)
        case OperatorResult():
            taken = outcome.superseded
            told = f"its claim was taken away: {holder(taken, context.now)}" if taken else ""
            return Message(told)
        case Explanation():
            return Message("; ".join(outcome.because), _completed(outcome.try_next, context))
        case GenlockError():
            return Message(outcome.message, _completed(outcome.try_next, context))


def holder(who: Holder, now: datetime | None = None) -> str:
    """Describes a holder in one phrase."""
    named = who.agent if who.agent == who.session else f"{who.agent} (session {who.session})"
    alive = "" if who.looks_alive else ", looks lost"
    if now is None:
        return f"{named}, {_lease(who.expires_at)}{alive}"
    ends = NO_LEASE if who.expires_at is None else f"lease ends {from_now(who.expires_at, now)}"
    return f"{named}, claimed {from_now(who.claimed_at, now)}, {ends}{alive}"


def _lease(expires_at: datetime | None) -> str:
    return NO_LEASE if expires_at is None else f"lease until {utc(expires_at)}"


def _claim(result: ClaimResult, context: Context) -> Message:
    task = result.task_id or context.task_id
    if result.claim is not None:
        claim = result.claim
        if not result.already_held:
            return Message(sentence("GRANTED", task=task))
        return Message(
            f"{claim.task_id} is held already, by this session ({claim.session_id}) and agent "
            f"({claim.agent_id}), at generation {claim.generation}. If another worker of this "
            "session is at work on it, leave it alone and claim another task. Give each worker a "
            "name of its own: GENLOCK_AGENT, or --agent",
            (command("next", context=context), command("show", claim.task_id, context=context)),
        )
    reason = result.reason.value
    told = sentence(
        reason,
        task=task,
        holder=holder(result.holder, context.now) if result.holder else "",
        waits=", ".join(result.waits_for),
        detail=result.detail,
        roles=_roles(result.roles),
        role=(f"the role {result.detail}" if result.detail else "no role"),
    )
    if result.detail and "{detail}" not in SENTENCES[reason] and reason != "DENIED_ROLE":
        told += f": {result.detail}"
    return Message(told, _after_denial(reason, task, context))


def _roles(names: Collection[str]) -> str:
    return f"the role{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _after_denial(reason: str, task: str, context: Context) -> tuple[Command, ...]:
    def to(verb: str, *words: str) -> Command:
        return command(verb, *words, context=context)

    match reason:
        case "NOTHING_READY":
            return (to("ready"), to("status"))
        case "DENIED_COMPLETED":
            return (to("show", task), to("next"))
        case "DENIED_LIMIT":
            return (to("explain", task), to("agents"))
        case "DENIED_ROLE":
            return (to("roles show"), to("next"))
        case _:
            return (to("explain", task), to("next"))


def _generation(number: int) -> str:
    return f"generation {number}"


def _was_never(given: int | None, current: int) -> bool:
    """Is this a generation at which no session can ever have held the task?"""
    return given is not None and (given > current or given == 0)


def _never_reached(task: str, current: int) -> str:
    """Describes a generation above the task's own, or 0."""
    return (
        f"{sentence('FUTURE_GENERATION', task=task)}; did you mean {current}?"
        if current
        else f"nobody has been granted {task or 'the task'} yet: claim it first"
    )


def _you(context: Context) -> str:
    return f", and you are {context.session}" if context.session else ""


def _renewal(result: RenewalResult | ReleaseResult | ProgressResult, context: Context) -> Message:
    """Describes the answer to a renewal, a release or a report of progress."""
    task, reason, current = context.task_id, result.reason.value, result.generation
    told = sentence(reason, task=task, generation=_generation(current))
    if result.success:
        return Message(told)
    look = _look(task, current, context)
    if reason == "GENERATION_MISMATCH" and _was_never(context.generation, current):
        return Message(_never_reached(task, current), (look,))
    if reason == "SESSION_MISMATCH":
        return Message(told + _you(context), (command("agents", context=context),))
    if reason == "ALREADY_EXPIRED":
        return Message(
            f"{told}. Its result still counts until somebody takes over: submit it, or claim "
            "the task again",
            (command("claim", task, context=context), look),
        )
    return Message(told, (command("next", context=context), look))


def _look(task: str, current: int, context: Context) -> Command:
    """Returns the command that shows how a task came to its current state."""
    return command("history" if current else "claim", task, context=context)


def _submission(result: SubmissionResult | SpawnResult, context: Context) -> Message:
    """Describes the answer to a submission, an adoption or a spawn. It never suggests adopting a
    refused result: that is not for its submitter to decide."""
    task, reason, current = context.task_id, result.reason.value, result.current_generation
    waits = getattr(result, "waits_for", ())
    never = reason == "FUTURE_GENERATION" or (
        reason == "STALE_GENERATION" and _was_never(context.generation, current)
    )
    told = (
        _never_reached(task, current)
        if never
        else sentence(reason, task=task, generation=_generation(current), waits=", ".join(waits))
    )
    if reason == "ACCEPTED":
        return Message(told)
    if reason == "CONVERGENCE_ESCALATED":
        causes = getattr(result, "review_causes", ())
        told = sentence(reason, task=task, causes=review_causes(causes))
        return Message(
            f"{told}. Your part is done: ask for the next task",
            (command("next", context=context), command("review show", task, context=context)),
        )
    if reason == "SESSION_MISMATCH":
        told += _you(context)
    kept = getattr(result, "refused_id", None)
    stop = "" if told.endswith("?") else "."
    kept = f"{stop} The result is kept as {kept}" if kept else ""
    look = command("show" if current else "claim", task, context=context)
    match reason:
        case "CHILDREN_UNFINISHED":
            return Message(f"{told}{kept}. Submit again when they are finished", (look,))
        case _ if never:
            return Message(f"{told}{kept}", (look,))
        case _:
            return Message(
                f"{told}{kept}. Stop working on this task, and ask for the next one",
                (command("next", context=context), _look(task, current, context)),
            )


def _push(verdict: PushVerdict, context: Context) -> Message:
    """Describes the verdict on a push to a git repository, for the agent that pushes."""
    task, reason = verdict.task_id, verdict.reason.value
    told = sentence(
        reason,
        task=task,
        generation=_generation(verdict.current_generation),
        commit=verdict.commit[:12],
    )
    history = command("history", task, context=context)
    to_next = command("next", context=context)
    match reason:
        case "ALLOWED":
            return Message(told)
        case "UNKNOWN_TASK":
            return Message(told, (command("ready", context=context),))
        case "FUTURE_GENERATION":
            return Message(_never_reached(task, verdict.current_generation), (history,))
        case "CLAIM_OVERDUE":
            again = command("claim", task, context=context)
            return Message(f"{told}. Claim it again, and push to its new branch", (again,))
        case "NOT_ACCEPTED":
            named = verdict.commit[:12]
            accepted = f": that is {named}" if named else ""
            return Message(
                f"{told}{accepted}. Submit the commit with --ref git:COMMIT, and push it here when "
                "its result is accepted",
                (command("show", task, context=context),),
            )
        case _:
            held = f" It is held by {verdict.held_by}." if verdict.held_by else ""
            return Message(
                f"{told}.{held} Stop working on this task, and ask for the next one",
                (to_next, history),
            )


def _review(result: ReviewResult, context: Context) -> Message:
    """Describes the answer to an approval, a rejection or an evaluation."""
    task, reason = result.task_id, result.reason.value
    users = f"{result.author or 'a user who is not known'} is the author's user"
    told = sentence(reason, task=task, waits=", ".join(result.waits_for), users=users)
    look = command("review show", task, context=context)
    match reason:
        case "STALE_REVIEW" if result.state.value == "IN_REVIEW":
            return Message(f"{told}: another one waits there now. Look at that one", (look,))
        case "STALE_REVIEW":
            known = f"{told}: it is {result.state}, at {_generation(result.generation)}"
            history = command("history", task, context=context)
            return Message(known, (command("review list", context=context), history))
        case "APPROVED" if result.reviewer:
            return Message(f"{told} (by {result.reviewer})")
        case "REJECTED" if result.refused_id:
            return Message(f"{told}. The work is kept as {result.refused_id}")
        case "EVALUATED" if result.state.value == "COMPLETED":
            return Message(f"{told}. It was the last one that was missing: the task is completed")
        case "EVALUATED" if result.missing_evaluators:
            return Message(f"{told}. Not passed yet: {', '.join(result.missing_evaluators)}")
        case "FOUR_EYES" | "CHILDREN_UNFINISHED":
            return Message(told, (look,))
        case _:
            return Message(told)


# Why a task is not ready


def changes(found: Explanation, depends_on: Collection[str] = ()) -> tuple[Command, ...]:
    """Returns the commands that would change what `explain` found. `depends_on` are the
    dependencies of the first task of a cycle."""
    task = found.task_id
    if found.own_generation is not None:
        own = found.own_generation
        return tuple(command(verb, task, "-g", own) for verb in ("renew", "submit", "release"))
    match found.reason.value:
        case "GRANTED":
            reopen = (command("reopen", task),) if found.state.value == "BACKLOG" else ()
            return (*reopen, command("claim", task))
        case "DENIED_COMPLETED":
            return (command("show", task), command("reset", task))
        case "DENIED_HELD" if found.state.value == "IN_REVIEW":
            return (command("review show", task),)
        case "DENIED_HELD":
            return (command("reopen", task),)
        case "DENIED_ROLE":
            return (command("claim", task, "--role", "ROLE"), command("roles show"))
        case "DENIED_ASSIGNED":
            return (command("assign", task, "AGENT"),)
        case "DENIED_ACTIVE_CLAIM":
            follow = command("events", "--follow", "--task", task)
            return (follow, command("unlock", task, "--force"))
        case "DENIED_LIMIT":
            return (command("claim", task), command("agents"))
        case "DENIED_BLOCKED" if found.cycle:
            return (command("edit", found.cycle[0], *_without(found.cycle[1], depends_on)),)
        case "DENIED_BLOCKED":
            return tuple(_openings(found))
        case _:
            return ()


def _openings(found: Explanation) -> Iterator[Command]:
    """Yields the commands that help to open a blocked task."""
    # "not before …" is a time and not a task's id.
    others = [other for other in found.waits_for if " " not in other]
    ready = [
        root.task_id
        for root in found.roots
        if root.state is not None and root.state.value == "PENDING"
    ][:3]
    for other in ready:
        yield command("claim", other)
    for other in others[:3]:
        if other not in ready:
            yield command("explain", other)
    if len(others) < len(found.waits_for):
        yield command("edit", found.task_id, "--set", "not_before=null")


def _without(removed: str, dependencies: Iterable[str]) -> list[str]:
    """Returns the options of `edit` that keep all but one of these dependencies."""
    kept = [word for other in dependencies if other != removed for word in ("--depends-on", other)]
    return kept or ["--no-depends-on"]


# Where nothing is ready

PATIENCE_SECONDS: Final = 300
"""The time to wait for a task that messages suggest to a worker."""


def describe_unfinished(counts: Mapping[str, int]) -> str:
    """Why a request for a next task found none, by the states of unfinished tasks."""
    if not counts:
        return "no task is ready that suits this agent; the project has no unfinished task"
    states = ", ".join(f"{number:,} {_state(state)}" for state, number in counts.items())
    return f"no task is ready that suits this agent; unfinished: {states}"


def _state(name: str) -> str:
    return name.replace("_", " ").lower()


def describe_progress(
    found: ProjectProgress,
    project: str,
    tracks: Collection[str] = (),
    *,
    wait: bool = False,
    context: Context = NO_CONTEXT,
) -> Message:
    """Why nothing is ready; with `wait`, for a worker that could wait for a task."""
    states = ", ".join(f"{number:,} {_state(state)}" for state, number in found.states.items())
    every = f"of track {' or '.join(tracks)} " if tracks else ""

    def to(verb: str, *words: object) -> tuple[Command, ...]:
        return (command(verb, *words, context=context),)

    match found.standing.value:
        case "empty":
            return (
                Message(f"there is no task {every}".rstrip(), to("graph"))
                if tracks
                else Message(f"project {project} has no tasks", to("plan import", "FILE"))
            )
        case "finished":
            return Message(f"every task {every}is finished", to("status"))
        case "at_work":
            only = [word for track in tracks for word in ("--track", track)]
            number = found.at_work
            return Message(
                f"{number:,} {'task is' if number == 1 else 'tasks are'} at work, and no other "
                "can be claimed now",
                to("next", "--wait", PATIENCE_SECONDS, *only) if wait else to("status"),
            )
        case "reserved":
            told = f"what is ready is reserved for another agent: {found.first}"
        case "waiting":
            told = f"what is left waits for other tasks or for its time: {states}"
        case _:
            told = f"nobody is at work, and what is left does not open by itself: {states}"
    return Message(told, to("explain", found.first))


# Commands

_CLAIMING: Final = frozenset({"next", "claim", "explain"})
"""Commands whose answer depends on the session and agent of the caller."""
_OF_A_SESSION: Final = frozenset({"renew", "submit", "release", "spawn", "adopt"})
"""Commands that only the session that holds the claim may use."""
_WITHOUT_STORE: Final = frozenset(
    {"login", "logout", "trust", "config", "completion", "version", "demo", "dev", "help", "--help"}
)
_WITHOUT_PROJECT: Final = frozenset({"init", "db", "backup", "restore", "copy", "serve", "link"})
_WITHOUT_TENANT_PROJECT: Final = frozenset({"tenant", "keys"})


def command(verb: str, *words: object, context: Context = NO_CONTEXT) -> Command:
    """Returns a command line with the same store and project as the call before it and, where it
    matters, the same session and agent."""
    return complete(("genlock", *verb.split(), *map(str, words)), context)


def complete(words: Command, context: Context) -> Command:
    """Adds the options of the call to a command, as far as it takes them and has none of its
    own."""
    if words[:1] != ("genlock",) or len(words) < 2:
        return words
    verb = words[1]
    names = [] if verb in _WITHOUT_STORE else ["url"]
    if names and verb not in _WITHOUT_PROJECT:
        names += ["tenant"] if verb in _WITHOUT_TENANT_PROJECT else ["tenant", "project"]
    if verb in _CLAIMING:
        names += ["session", "agent"]
    elif verb in _OF_A_SESSION:
        names.append("session")
    given = [(f"--{name}", context.options.get(name)) for name in names]
    added = [word for name, value in given if value and name not in words for word in (name, value)]
    return (*words, *added)


def _completed(commands: Iterable[Command], context: Context) -> tuple[Command, ...]:
    return tuple(complete(words, context) for words in commands)


def typed(words: Iterable[str]) -> str:
    """Returns a command as typed in a shell."""
    from shlex import quote

    return " ".join(map(quote, words))


# Holders, and tasks that need a person


def _end(claim: Claim) -> str:
    return "" if claim.expires_at is None else utc(claim.expires_at)


def describe_holder(
    health: HolderHealth,
    claim: Claim,
    session: SessionRecord | None,
    heard: datetime | None = None,
    *,
    stepped: bool = False,
    for_person: bool = False,
) -> str:
    """Describes why a claim is a cause for concern; empty if it is none."""
    match health:
        case "STALE":
            expected = span(claim.lease_seconds * 0.4)
            return f"no renewal since {utc(claim.renewed_at)}; one is due every {expected}"
        case "OVERDUE" if stepped:
            return f"its lease ends at {_end(claim)}, too far ahead: the clock stepped"
        case "OVERDUE":
            what = "a person decides" if for_person else "the next claim takes the task over"
            return f"its lease ended at {_end(claim)}; {what}"
        case "SILENT":
            since = utc(heard or claim.renewed_at)
            return f"session {claim.session} has not been heard of since {since}"
        case "ENDED":
            ended = session.ended_at if session is not None else None
            return f"session {claim.session} ended" + (f" at {utc(ended)}" if ended else "")
        case "GONE":
            process = session.process if session is not None else None
            return f"process {process.pid} on {process.host} is gone" if process else "it is gone"
        case _:
            return ""


def describe_refusal(reason: str, task: str, current: int) -> str:
    """Describes why a result was refused."""
    if reason == "REVIEW_REJECTED":
        return f"a review rejected this result of {task}"
    return sentence(reason, task=task, generation=_generation(current))


_NEEDS: Final = {
    "HELD": "held: {why}",
    "WAITS_FOR_PERSON": "it waits for {why}",
    "IN_REVIEW": "its result waits for a review: {why}",
    "CYCLE": "these wait for each other: {why}",
}
_NEEDS_IN_GENERAL: Final = {
    "HELD": "held",
    "IN_REVIEW": "its result waits for a review",
    "IN_BACKLOG": "in the backlog, and others wait for it",
}


def describe_need(kind: str, why: str) -> str:
    """Describes why a task needs a person. `why` contains the known details."""
    if not why:
        return _NEEDS_IN_GENERAL.get(kind, "")
    return _NEEDS.get(kind, "{why}").format(why=why)


# Events

EVENTS: Final[dict[str, str]] = {
    "TASK_ADDED": "{task} was added",
    "TASK_EDITED": "{task} was edited: {changed}",
    "TASK_REORDERED": "{task} has another place in the order",
    "TASK_DUE": "{task} may begin: its time has come",
    "CLAIM_ACQUIRED": "{by} claimed {task} at generation {generation}",
    "LEASE_RENEWED": "{by} renewed the lease of {task}",
    "PROGRESS_REPORTED": "{by} reported progress on {task}{share}{noted}",
    "CLAIM_RELEASED": "{by} released {task} ({release_reason}{said})",
    "CLAIM_EXPIRED": "the lease of {holder} on {task} ran out",
    "CLAIM_ORPHANED": "{holder} is gone and left {task} behind",
    "CLAIM_STALE": "{holder} has been silent on {task} for long",
    "EXTERNAL_CHANGE": "{source} changed the files of {task}: {changes}",
    "CLAIM_SUPERSEDED": "{task} was taken from {holder} ({superseded_by})",
    "TASK_ASSIGNED": "{task} was reserved for {assigned_to}",
    "ASSIGNMENT_LAPSED": "the reservation of {task} for {assigned_to} ended",
    "RESULT_ACCEPTED": "{author} completed {task} at generation {generation}{approved}",
    "CONVERGENCE_ESCALATED": "the result of {by} for {task} waits for a review{causes}",
    "EVALUATION_REPORTED": "evaluator {evaluator} of {task} {verdict}{noted}",
    "REVIEW_REJECTED": "{reviewer} rejected the result of {author_agent_id} for {task}{said}",
    "TASK_RESET": "{task} was reset, to be done again",
    "TASK_CANCELLED": "{task} was cancelled{because}",
    "TASK_HELD": "{task} was put on hold{because}",
    "TASK_REOPENED": "{task} was reopened",
    "DEPENDENCY_MET": "{task} waits no longer for {others}: completed",
    "DEPENDENCY_CANCELLED": "{task} waits no longer for {others}: cancelled",
    "DEPENDENCY_REOPENED": "{task} waits again for {others}",
    "CHILD_ADDED": "{task} waits for its subtasks {others}",
    "CHILD_FINISHED": "{task} waits no longer for its subtasks {others}",
    "CHILD_REOPENED": "{task} waits again for its subtasks {others}",
    "CHILD_ID_TAKEN": "{task} has no subtasks {others}: those ids belong to other tasks",
    "CHILDREN_ANNOUNCED": "{task} waits for new subtasks: {children}",
    "SUBTASKS_SPAWNED": "{by} split {task} into {children}",
    "RESULT_REJECTED": (
        "a result of {by} for {task} at generation {submitted_generation} was refused "
        "({rejection_reason}) and kept"
    ),
    "RESULT_ADOPTED": "a refused result became the result of {task}",
    "RESULT_DISCARDED": "a refused result of {task} was discarded",
    "PROMOTION_REQUESTED": "the products of {task} at generation {generation} are to be promoted",
    "PROMOTION_FAILED": (
        "the products of {task} at generation {generation} were not promoted: {reason}"
    ),
    "PROMOTION_COMPLETED": "the products of {task} at generation {generation} were promoted",
    "SESSION_REGISTERED": "session {session_id} began",
    "SESSION_HEARTBEAT": "session {session_id} showed that it is alive",
    "SESSION_ENDED": "session {session_id} ended",
    "IDS_TAKEN": "{count} ids with {prefix} were taken, up to {value}",
    "PROJECT_CHANGED": "the project's policy or tracks were set",
    "EPOCH_RAISED": "the epoch rose from {previous} to {epoch}",
    "TENANT_CHANGED": "the limits of tenant {tenant} were set",
    "CLAIM_DENIED": "{by} was denied {task}{times} ({reason}{held_by})",
    "SETTLED": "reactions are done up to here",
    "FEATURE_COUNTED": "feature {feature} was counted again: {others}",
    "KEY_CREATED": "key {name} was created",
    "KEY_ROTATED": "key {key_id} was rotated",
    "KEY_REVOKED": "key {key_id} was revoked",
}
"""Every event by its name."""


def describe_event(event: Struct | Mapping[str, Any]) -> str:
    """Describes an event in one sentence, whether it is the core's or from a page of the feed. An
    event of a newer version is described by its name alone."""
    fields = _fields(event)
    form = EVENTS.get(fields["event_type"])
    if form is None:
        named = _words(fields["event_type"])
        return f"{fields['task_id']}: {named}" if fields.get("task_id") else named
    return form.format_map(_Blanks(fields))


def _fields(event: Struct | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(event, Mapping):
        return dict(event)
    fields: dict[str, Any] = {name: getattr(event, name) for name in event.__struct_fields__}
    return fields | {"event_type": event.__struct_config__.tag}


class _Blanks(dict[str, Any]):
    """The fields of an event, formatted for its sentence."""

    def __getitem__(self, name: str) -> object:
        value = self.get(name, "")
        match name:
            case "task":
                return self.get("task_id") or "a task"
            case "by":
                return self.get("agent_id") or self.get("session_id") or "an operator"
            case "holder":
                return self.get("holder_agent_id") or "nobody"
            case "held_by":
                who = self.get("holder_agent_id")
                return f" of {who}" if who else ""
            case "reviewer":
                return _user_of(self) or self["by"]
            case "author":
                return self.get("author_agent_id") or self["by"]
            case "approved":
                return f", approved by {self['reviewer']}" if self.get("author_agent_id") else ""
            case "causes":
                told = review_causes(value or ())
                return f": {told}" if told else ""
            case "verdict":
                return "passed" if self.get("passed") else "did not pass"
            case "said":
                said = self.get("stated_reason") or self.get("feedback")
                return f": {said}" if said else ""
            case "because":
                return f": {self['reason_given']}" if self["reason_given"] else ""
            case "reason_given":
                return self.get("reason", "")
            case "share":
                share = self.get("fraction")
                return "" if share is None else f", {share:.0%} done"
            case "noted":
                return f": {self['note']}" if self.get("note") else ""
            case "times":
                return f" {self['count']} times" if self.get("count", 1) > 1 else ""
            case "others" | "changed":
                return ", ".join(value)
            case "changes":
                return "; ".join(
                    f"{name} {old or 'nothing'} → {new or 'nothing'}"
                    for name, (old, new) in value.items()
                )
            case "children":
                return _children(value)
            case "release_reason" | "rejection_reason" | "reason":
                return _words(str(value).removeprefix("DENIED_"))
            case _:
                return value


def _user_of(event: Mapping[str, Any]) -> str:
    actor = event.get("actor")
    user = actor.get("user_id") if isinstance(actor, Mapping) else getattr(actor, "user_id", "")
    return user or ""


def _children(tasks: Collection[Any]) -> str:
    """Lists the ids of new subtasks, or of those that a task had before."""
    named = [child["id"] if isinstance(child, Mapping) else child.id for child in tasks]
    return ", ".join(named) or "the subtasks that it has"


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


# Times

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def span(seconds: float) -> str:
    """Formats a duration in at most two units: 45s, 4m 30s, 2h 5m, 3d 4h."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    for unit, name, smaller, below in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "m"),
        (_MINUTE, "m", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit}{name}" + (f" {rest}{below}" if rest else "")
    raise AssertionError(whole)


def from_now(when: datetime, now: datetime) -> str:
    """Formats a time relative to now: `in 4m 30s`, or `12s ago`."""
    seconds = (when - now).total_seconds()
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def utc(when: datetime) -> str:
    """Formats a time as `2026-01-04T06:05:00Z`."""
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")
