"""What answers mean, in words for a terminal, and what to type next. The rules themselves are the core's."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from genlock.core.results import ClaimResult, Explanation, Holder, OperatorResult, SubmissionResult, TaskState


CLAIMING: Final = ("next", "claim", "explain")
"""Verbs whose answer depends on who asks."""
ON_A_CLAIM: Final = ("renew", "submit", "release", "spawn")
"""Those that only the session may use which holds the claim."""

Command: TypeAlias = Callable[..., str]
"""How a verb and its words become a command line: `command`, or an App's, which says where to look as its own call did."""


def command(verb: str, *words: object) -> str:
    """A command line to be typed, quoted for a shell."""
    return " ".join(["genlock", verb, *(quote(str(word)) for word in words)])


def without_password(url: str) -> str:
    """A URL that may be shown."""
    import re
    from urllib.parse import urlsplit, urlunsplit

    try:
        parts = urlsplit(url)
    except ValueError:  # what it is nobody can say, and so neither where a password stands in it
        return f"{url.partition('://')[0]}://…"
    who, at, host = parts.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    query = re.sub(r"(?:(?<=^)|(?<=&))(password|listen_url)=[^&]*", r"\1=…", parts.query)
    hidden = parts._replace(netloc=f"{user}{':…' if colon else ''}{at}{host}", query=query)
    return url if hidden == parts else urlunsplit(hidden)


def settle(command: Command, verb: str, task: str, refused_id: str) -> str:
    """The command that adopts or discards a refused result; the task stands in its name already, and is not typed twice."""
    return command(verb, task, refused_id.removeprefix(f"{task}/"))


def who(holder: Holder) -> str:
    """A holder in one phrase."""
    from genlock.cli.tables import from_now

    alive = "" if holder.looks_alive else ", looks lost"
    named = holder.agent if holder.agent == holder.session else f"{holder.agent} (session {holder.session})"
    return f"{named}, claimed {from_now(holder.claimed_at)}, lease ends {from_now(holder.expires_at)}{alive}"


def denial(result: ClaimResult) -> str:
    """Why a claim was denied."""
    task = result.task_id
    match result.reason.value:
        case "DENIED_ACTIVE_CLAIM" if result.holder is not None:
            return f"{task} is held by {who(result.holder)}"
        case "DENIED_BLOCKED":
            return f"{task} waits for {', '.join(result.waits_for) or 'others'}"
        case "DENIED_HELD":
            return f"{task} is held back: {result.detail}"
        case "NOTHING_READY":
            return result.detail
        case _:
            return f"{task}: {result.detail}"


_NEVER_GRANTED = "nobody has been granted {task} yet: claim it first"
_NOT_YET = "{task} has not been at that generation; it is at {current}"
_ANOTHER_SESSION = "another session holds {task} at that generation, and you are {session}"
_SUBMISSIONS = {
    "STALE_GENERATION": "the right to {task} has moved on: it is at generation {current}",
    "FUTURE_GENERATION": _NOT_YET,
    "TASK_ALREADY_COMPLETED": "{task} is completed or cancelled already",
    "NO_CLAIM": "nobody holds {task} at that generation any more",
    "SESSION_MISMATCH": _ANOTHER_SESSION,
    "CHILDREN_UNFINISHED": "{task} waits for its subtasks: {waits}",
}


def refusal(task: str, reason: str, current: int, waits: tuple[str, ...] = (), *, session: str) -> str:
    """Why a submission, or another fenced act, of this session was refused."""
    text = _NEVER_GRANTED if reason == "FUTURE_GENERATION" and not current else _SUBMISSIONS[reason]
    return text.format(task=task, current=current, waits=", ".join(waits), session=session)


_CLAIM_REFUSALS = {
    "GENERATION_MISMATCH": "{task} is at generation {current}: the claim is lost",
    "NO_CLAIM": "nobody holds {task} at that generation",
    "SESSION_MISMATCH": _ANOTHER_SESSION,
    "ALREADY_EXPIRED": "the lease of {task} is over; what is done may still be submitted, or claim it anew",
}


def claim_refusal(task: str, reason: str, shown: int, current: int, *, session: str) -> str:
    """Why a renewal or a release was refused that showed this generation."""
    ahead = reason == "GENERATION_MISMATCH" and shown > current
    text = (_NOT_YET if current else _NEVER_GRANTED) if ahead else _CLAIM_REFUSALS[reason]
    return text.format(task=task, current=current, session=session)


def after_refusal(command: Command, task: str, reason: str, current: int, look: str = "history") -> str:
    """What to type after a refused renewal or release, or a refused submission of nothing; `look` is the verb that shows the task."""
    if reason == "SESSION_MISMATCH":
        return command("agents")
    return command(look if current else "claim", task)


def after_submission(command: Command, task: str, result: SubmissionResult, *, finished: bool) -> tuple[str, ...]:
    """What to type after a refused submission."""
    if result.refused_id is None:
        return (after_refusal(command, task, result.reason, result.current_generation, "show"),)
    return (*adoption(command, task, result.refused_id, finished=finished), settle(command, "discard", task, result.refused_id))


def adoption(command: Command, task: str, refused_id: str, *, finished: bool) -> tuple[str, ...]:
    """What makes a refused result count; a task that is finished has to be reset first."""
    return (*((command("reset", task),) if finished else ()), settle(command, "adopt", task, refused_id))


def is_finished(state: TaskState | None) -> bool:
    """Completed or cancelled."""
    from genlock.core.reasons import FINISHED

    return state is not None and state.state in FINISHED


def operated(result: OperatorResult, *, done: str, unchanged: str) -> list[str]:
    """What an operator's act did."""
    lines = [done if result.verdict.value == "DONE" else unchanged]
    if result.superseded is not None:
        lines.append(f"its claim was taken away: {who(result.superseded)}")
    return lines


def to_type(command: Command, explanation: Explanation, *, dependencies: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The commands that would change what `explain` found; `dependencies` are those of the cycle's first task."""
    task = explanation.task_id
    if explanation.own_generation is not None:
        return tuple(command(verb, task, "-g", explanation.own_generation) for verb in ("renew", "submit", "release"))
    match explanation.reason.value:
        case "GRANTED":
            reopen = (command("reopen", task),) if explanation.state.value == "BACKLOG" else ()
            return (*reopen, command("claim", task))
        case "DENIED_COMPLETED":
            return (command("show", task), command("reset", task))
        case "DENIED_HELD":
            return (command("reopen", task),)
        case "DENIED_ASSIGNED":
            return (command("assign", task, "AGENT"),)
        case "DENIED_ACTIVE_CLAIM":
            return (command("events", "--follow", "--task", task), command("unlock", task, "--force"))
        case "DENIED_LIMIT":
            return (command("claim", task), command("agents"))
        case "DENIED_BLOCKED" if explanation.cycle:
            first, second = explanation.cycle[:2]
            kept = [word for other in dependencies if other != second for word in ("--depends-on", other)]
            return (command("edit", first, *(kept or ["--no-depends-on"])),)
        case _:
            # "not before …" is no task's id.
            others = [other for other in explanation.waits_for if " " not in other]
            early = (command("edit", task, "--set", "not_before=null"),) if len(others) < len(explanation.waits_for) else ()
            ready = [root.task_id for root in explanation.roots if root.state is not None and root.state.value == "PENDING"][:3]
            return (
                *(command("claim", other) for other in ready),
                *(command("explain", other) for other in others[:3] if other not in ready),
                *early,
            )
