"""Formats answers as texts for a model: short, bounded, and naming the next call.

Text by others (titles, instructions, results) is quoted unchanged, except for invisible characters,
which a person reviewing a conversation would not see.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from genlock.core.model import NO_LEASE
from genlock.mcp.answer import LONGEST
from genlock.messages import review_causes
from genlock.safe_text import safe_line, safe_text

if TYPE_CHECKING:
    from genlock.core.model import Holder
    from genlock.core.model import Task as Definition
    from genlock.core.overview import ProjectProgress
    from genlock.core.results import (
        AddResult,
        AgentInfo,
        BlockedTask,
        ClaimHistory,
        ClaimResult,
        Lineage,
        Progress,
        ReadyTask,
        ReleaseResult,
        RenewalResult,
        SpawnResult,
        SubmissionResult,
        TaskClaim,
        TaskProgress,
        TaskState,
    )

_TITLE: Final = 100
_REASON: Final = 300
_NAMES: Final = 20
_ATTEMPTS: Final = 5
_RESULT: Final = 3000
_FEEDBACK: Final = 4000


def bounded(text: str, longest: int = LONGEST, more: str = "") -> str:
    """Returns the text, truncated if it is too long; `more` says how to read the rest."""
    if len(text) <= longest:
        return text
    left = f"\n[cut: {len(text):,} characters in all{more}]"
    return text[: longest - len(left)] + left


def page(text: str, offset: int, how: str) -> str:
    """Returns a part of a long text, starting at this character."""
    rest = text[offset:]
    if not rest and offset:
        return f"There is nothing after character {len(text):,}."
    room = LONGEST - 200
    if len(rest) <= room:
        return rest
    at = offset + room
    return f"{rest[:room]}\n[cut at {at:,} of {len(text):,}; go on: {how.replace('…', str(at))}]"


# Claims


def granted(
    result: ClaimResult, claim: TaskClaim, earlier: Lineage | None, *, renewed: bool
) -> str:
    """A claim, with the task's instructions."""
    keeping = (
        "this server renews it while it runs"
        if renewed
        else f"call progress at least every {claim.lease_seconds / 3:.0f} s, or it runs out"
    )
    call = f"task={claim.task_id!r}, generation={claim.generation}"
    lease = (
        "It has no lease: it is yours until you give it back."
        if claim.expires_at is None
        else f"The lease lasts {claim.lease_seconds:g} s; {keeping}."
    )
    head = [
        f"GRANTED: {claim.task_id} is yours at generation {claim.generation}.",
        lease,
        f"When done: submit({call}, result=…). If you cannot do it: release({call}, failed=true).",
    ]
    if result.inputs_changed:
        head.append(f"Done again since the last attempt: {_names(result.inputs_changed)}.")
    if result.feedback is not None:
        said = safe_text(result.feedback.text)[:_FEEDBACK]
        head.append(f"A review rejected the result of generation {result.feedback.generation}:")
        head.append(said or "(no reason was given)")
    if earlier is not None:
        head += _attempts(earlier)
    if result.task is not None:
        head += ["", *_definition(result.task)]
    how = f"; all of it: show(task={claim.task_id!r})"
    return bounded("\n".join(head), more=how)


def denial(result: ClaimResult) -> str:
    """Why a claim was denied, and what to do instead."""
    task, reason = result.task_id, result.reason.value
    why = safe_line(result.detail)[:_REASON]
    match reason:
        case "DENIED_ACTIVE_CLAIM" if result.holder is not None:
            why = f"{task} is held by {_holder(result.holder)}"
        case "DENIED_BLOCKED":
            why = f"{task} waits for {_names(result.waits_for) or 'others'}"
        case "DENIED_COMPLETED":
            why = f"{task} needs no more work"
        case "DENIED_ROLE":
            why = f"{task} is for the roles {_names(result.roles)}; {why or 'no role'} is not one"
        case "DENIED_HELD":
            why = f"{task} is held back until a person reopens it: {why}"
        case _:
            why = f"{task}: {why}"
    return f'{reason}: {why}. Do not work on it. Claim another one: claim(task="next").'


def already_held(held: Sequence[TaskClaim]) -> str:
    """Describes claims that the session and agent already hold."""
    claims = ", ".join(f"{claim.task_id} at generation {claim.generation}" for claim in held[:5])
    return (
        f"ALREADY_HELD: you hold {claims}. Finish it first: submit or release it; show has its "
        "instructions. If it is not you but another subagent that works on it, leave it alone and "
        "claim with an agent name of your own."
    )


def nothing_ready(
    standing: str, at_work: int, outlook: ProjectProgress | None, track: str | None
) -> str:
    """Why there is nothing to claim: whether to wait, to stop, or to call a person."""
    of_track = f" of track {safe_line(track)}" if track else ""
    first = outlook.first if outlook is not None else None
    match standing:
        case "empty":
            told = f"there are no tasks{of_track}. Stop, and tell the user"
        case "finished":
            told = f"every task{of_track} is finished. Stop: the work is done"
        case "at_work":
            number = at_work or (outlook.at_work if outlook is not None else 0)
            told = (
                f"others work on {number} task{'s' if number != 1 else ''}, and nothing else is "
                'ready. Ask again: claim(task="next", wait_seconds=45)'
            )
        case "waiting":
            told = (
                "what is left waits for other tasks or for its time. Ask again: "
                'claim(task="next", wait_seconds=45)'
            )
        case "reserved":
            told = f"what is ready is reserved for another agent, such as {first}. Stop"
        case _:
            told = (
                f"nobody is at work, and what is left does not open by itself. Stop, and tell the "
                f"user to look at {first}"
            )
    return f"NOTHING_READY: {told}."


# What is done under a claim


def accepted(task: str, result: SubmissionResult) -> str:
    """A result that was accepted, or waits for a review."""
    if result.review_causes:
        told = review_causes(result.review_causes)
        return (
            f"{result.reason}: the result of {task} waits for a review ({told}). Your part is "
            'done: do not submit it again. Next: claim(task="next", wait_seconds=45).'
        )
    return (
        f"ACCEPTED: {task} is completed, as {result.work_product_ref}. "
        'Next: claim(task="next", wait_seconds=45).'
    )


def released(task: str) -> str:
    """A claim that was released."""
    return f'RELEASED: {task} is not yours any more. Next: claim(task="next").'


def renewed(task: str, result: RenewalResult) -> str:
    """A lease that starts again."""
    until = f", until {_time(result.new_expiry)}" if result.new_expiry else ". It has no lease"
    told = f"RENEWED: {task} is still yours{until}."
    if result.inputs_changed:
        told += f" Done again since you began: {_names(result.inputs_changed)}; look at them."
    return told


def spawned(task: str, mode: str, children: Sequence[str]) -> str:
    """A task that was split."""
    after = (
        "is completed when they are"
        if mode == "fan-out-fan-in"
        else "can be claimed again when they are done"
    )
    return (
        f"SPAWNED: {task} is split into {_names(children)}. Your claim on it is over; {task} "
        f'{after}. Next: claim(task="next").'
    )


_FENCED: Final = {
    "STALE_GENERATION": (
        "{task} has moved on to generation {current}: another agent has it. Stop working on it"
    ),
    "GENERATION_MISMATCH": (
        "{task} is at generation {current}: your claim is lost. Stop working on it"
    ),
    "NO_CLAIM": "nobody holds {task} at generation {shown}: your claim is over. Stop working on it",
    "TASK_ALREADY_COMPLETED": "{task} is completed or cancelled already. Stop working on it",
    "SESSION_MISMATCH": (
        "another session holds {task} at generation {shown}. Stop working on it; a generation "
        "comes from your own claim"
    ),
    "ALREADY_EXPIRED": (
        "the lease of {task} is over, and nobody has taken over yet. If you are nearly done, "
        "submit now; else claim it again"
    ),
    "CHILDREN_UNFINISHED": (
        "{task} waits for its subtasks: {waits}. Submit again when they are finished"
    ),
    "FUTURE_GENERATION": (
        "{task} has not been at generation {shown}; it is at {current}. Use the generation that "
        "your own claim answered"
    ),
}


def refused(task: str, shown: int, result: ReleaseResult | RenewalResult) -> str:
    """Why a renewal or release was refused."""
    return _fenced(task, result.reason.value, shown, result.generation)


def refused_submission(task: str, shown: int, result: SubmissionResult | SpawnResult) -> str:
    """Why a submission was refused, and what happened to it."""
    waits = getattr(result, "waits_for", ())
    told = _fenced(task, result.reason.value, shown, result.current_generation, waits)
    kept = getattr(result, "refused_id", None)
    if not kept:
        return told
    # Other sessions decide whether it is adopted: its own may not.
    next_one = ' Next: claim(task="next").' if "Stop working" in told else ""
    return f"{told} Your result is kept as {kept}.{next_one}"


def _fenced(task: str, reason: str, shown: int, current: int, waits: Sequence[str] = ()) -> str:
    told = (
        f"nobody has been granted {task} yet: claim it first"
        if reason == "FUTURE_GENERATION" and not current
        else _FENCED[reason].format(task=task, shown=shown, current=current, waits=_names(waits))
    )
    return f"{reason}: {told}."


def added(result: AddResult) -> str:
    """A task that was added, or existed already."""
    what = "is in the plan" if result.verdict.value == "DONE" else "was in the plan already"
    return f"{result.verdict}: {result.task_id} {what}; its state is {result.state}."


# Tasks


def task(state: TaskState, earlier: Lineage | None, data: Any) -> str:
    """A task in full. It may be long: show a page of it."""
    definition = state.task
    lines = [f"{definition.id}: {state.state}, generation {state.generation}"]
    if state.holder is not None:
        lines.append(f"Held by {_holder(state.holder)}.")
    if state.hold_reason:
        lines.append(f"Held back: {safe_line(state.hold_reason)[:_REASON]}.")
    if state.unmet_dependencies:
        lines.append(f"Waits for: {_names(state.unmet_dependencies)}.")
    if state.unfinished_children:
        lines.append(f"Unfinished subtasks: {_names(state.unfinished_children)}.")
    if state.progress is not None:
        lines += _progress(state.progress)
    if state.inputs_changed:
        lines.append(f"Done again since the work began: {_names(state.inputs_changed)}.")
    if earlier is not None:
        lines += _attempts(earlier)
    lines += ["", *_definition(definition)]
    if state.result is not None:
        result = state.result
        lines += ["", f"Result of generation {result.generation}, {result.work_product_ref}:"]
        if result.reference:
            lines.append(f"Reference: {safe_line(result.reference)}")
        lines.append(
            f"[{result.size:,} bytes; too large to be shown here]"
            if result.payload
            else bounded(_plain(data), _RESULT)
        )
    return "\n".join(lines)


def _progress(progress: TaskProgress) -> list[str]:
    """The progress of the work, and the last notes."""
    far = [f"{progress.fraction:.0%} done"] if progress.fraction is not None else []
    far += [f"{amount:g} {safe_line(unit)}" for unit, amount in progress.cost.items()]
    lines = [f"Progress of generation {progress.generation}: {', '.join(far)}."] if far else []
    lines += [
        f"Note of generation {note.generation}: {safe_line(note.text)[:_REASON]}"
        for note in progress.notes[-_ATTEMPTS:]
    ]
    return lines


def _definition(task: Definition) -> list[str]:
    facts = [f"priority {task.priority}"]
    facts += [f"track {task.track}"] if task.track else []
    facts += [f"estimate {task.estimate_seconds:g} s"] if task.estimate_seconds else []
    facts += [f"part of {task.parent}"] if task.parent else []
    facts += [f"tags {_names(task.tags)}"] if task.tags else []
    lines = [f"# {safe_line(task.title) or task.id}", f"({', '.join(facts)})"]
    if task.depends_on:
        first = task.depends_on[0]
        lines.append(f"Builds on {_names(task.depends_on)}; show(task={first!r}) has its result.")
    if task.description:
        lines += ["", safe_text(task.description)]
    return lines


def _attempts(earlier: Lineage) -> list[str]:
    """The outcomes of the last few earlier generations."""
    ended = [one for one in earlier.generations if one.released_at is not None]
    lines = [f"Earlier attempt: {_attempt(one)}." for one in ended[-_ATTEMPTS:]]
    lines += [
        f"Refused result {result.id} of generation {result.generation} by "
        f"{safe_line(result.agent_id)}: {bounded(_plain(result.result_data), _REASON)}"
        for result in earlier.refused[-2:]
    ]
    return lines


def _attempt(one: ClaimHistory) -> str:
    ending = one.release_reason.value if one.release_reason is not None else "over"
    far = f", {one.fraction:.0%} done" if one.fraction is not None else ""
    note = f", who noted: {safe_line(one.note)[:_REASON]}" if one.note else ""
    return f"generation {one.generation} by {safe_line(one.agent_id)}, {ending}{far}{note}"


# Lists


def ready(found: Sequence[ReadyTask], *, is_cut: bool) -> str:
    """The tasks that can be claimed, in order of priority."""
    lines = (f"{_line(one.task)} ({one.task.priority})" for one in found)
    return _listed("Ready to be claimed, in order", lines, len(found), is_cut=is_cut)


def blocked(found: Sequence[BlockedTask], *, is_cut: bool) -> str:
    """The blocked tasks, and what they wait for."""
    if not found:
        return "Nothing is blocked."
    lines = [f"{_line(one.task)} waits for {_names(one.blocked_by, 5)}" for one in found]
    text = _listed("Blocked", lines, len(found), is_cut=is_cut)
    shown = text.count("\n- ")
    if is_cut or shown < len(found):
        last = found[shown - 1].task.id
        text += f'\nGo on: list(what="blocked", after={last!r})'
    return text


def own_claims(claims: Sequence[TaskClaim]) -> str:
    """The claims of the calling session."""
    if not claims:
        return 'You hold no task. Claim one: claim(task="next").'
    lines = (
        f"{claim.task_id}, generation {claim.generation}, agent {safe_line(claim.agent_id)}, "
        f"{claim.state}, {_lease(claim.expires_at)}"
        for claim in claims
    )
    return _listed("You hold", lines, len(claims), is_cut=False)


def working(agents: Sequence[AgentInfo]) -> str:
    """The agents and the tasks they work on."""
    if not agents:
        return "Nobody is at work."
    lines = (f"{safe_line(one.agent_id)} ({one.status}): {_names(one.tasks, 5)}" for one in agents)
    return _listed("At work", lines, len(agents), is_cut=False)


def plan(
    progress: dict[str, Progress],
    agents: Sequence[AgentInfo],
    ready_tasks: Sequence[ReadyTask],
    blocked_tasks: Sequence[BlockedTask],
) -> str:
    """The plan at a glance."""
    if not progress:
        return "The plan has no tasks yet."
    tracks = (
        f"{safe_line(track) or 'no track'}: {one.completed} done, {one.in_progress} at work, "
        f"{one.pending} ready, {one.blocked} blocked, {one.other} other"
        for track, one in sorted(progress.items())
    )
    quarter = LONGEST // 4
    parts = [
        _listed("Tracks", tracks, len(progress), is_cut=False, longest=quarter),
        bounded(working(agents), quarter),
        bounded(ready(ready_tasks, is_cut=False), quarter) if ready_tasks else "Nothing is ready.",
        bounded(blocked(blocked_tasks, is_cut=False), quarter),
    ]
    return "\n\n".join(parts)


def _listed(
    title: str, lines: Iterable[str], number: int, *, is_cut: bool, longest: int = LONGEST - 300
) -> str:
    """A list that is truncated at the size limit, and then says so."""
    text = f"{title}:"
    shown = 0
    for line in lines:
        if len(text) + len(line) + 3 > longest:
            break
        text += f"\n- {line}"
        shown += 1
    if shown < number or is_cut:
        more = "more" if is_cut else f"{number - shown:,} more"
        text += f"\n[and {more}]"
    return text


def _line(task: Definition) -> str:
    title = safe_line(task.title) or safe_line(task.description.partition("\n")[0])
    return f"{task.id} {title[:_TITLE]}".rstrip()


def _names(names: Sequence[str], most: int = _NAMES) -> str:
    shown = ", ".join(safe_line(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def _holder(holder: Holder) -> str:
    alive = "" if holder.looks_alive else ", which looks lost"
    return f"{safe_line(holder.agent)}{alive}, {_lease(holder.expires_at)}"


def _lease(expires_at: datetime | None) -> str:
    return NO_LEASE if expires_at is None else f"lease until {_time(expires_at)}"


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%H:%M:%S} UTC"


def _plain(data: Any) -> str:
    """A result as text."""
    if isinstance(data, str):
        return safe_text(data)
    return safe_text(json.dumps(data, ensure_ascii=False, indent=1, default=str))
