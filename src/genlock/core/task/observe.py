"""The effects of another tool's changes to a task's files. The rules, in the order in which they
apply.

1. A new file is a new task. The state of the work in its file counts like a change (4 to 7).
2. If a file is gone, the task is put on hold for a person, and a present holder keeps its claim.
   When the file is back, that hold is lifted.
3. A change of state, assignee or lock supersedes the claim, live or overdue: the generation rises.
   Exceptions: a holder's own change of its own lock or state, and a lock that was removed after its
   claim was overdue.
4. A live lock is a claim of session `<tool>:<worker>`, at a generation never granted before and
   with the lease of its file. The same lock with another time is a renewal; a lock that is gone is
   a release.
5. `done` completes the task with a result that names the tool; in the name of the foreign holder,
   if there is one. If results are reviewed, so is this one, and `done` approves none. `cancelled`
   cancels the task. A finished task that is open again counts as reset.
6. A state in which the task must not be claimed (someday, ready_for_review, or `active` without an
   assignee) puts it on hold. A state that opens it again lifts every hold.
7. A new assignee reserves the task for that agent; an empty assignee ends the reservation.
8. The rest of the definition is edited, and supersedes no claim.

An observation is always an event of its own, so that the store knows which files were taken into
account.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from genlock.core import codec
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision
from genlock.core.definition import define_task
from genlock.core.facts import Facts
from genlock.core.model import Claim, Task, TaskRecord
from genlock.core.observation import FileLock, Observation, Sighting
from genlock.core.policy import Ids
from genlock.core.reasons import FINISHED, ClaimState, ReleaseReason, Status, Verdict
from genlock.core.task.completion import Submission, complete_or_escalate
from genlock.core.task.draft import TaskDraft, work_product_ref
from genlock.core.task.due import catch_up
from genlock.core.task.hold import hold
from genlock.core.task.operate import FIXED_FIELDS, add_task, change_definition, supersede
from genlock.core.task.relate import previous_state
from genlock.core.task.review import end_review

GONE = "its file was deleted"
_NOT_TO_BE_HELD = frozenset({*FINISHED, Status.IN_REVIEW})


def decide_observe(record: TaskRecord | None, command: c.ObserveTask, facts: Facts) -> Decision:
    """Applies all rules. Without an observation there is nothing to do: another command has taken
    it into account."""
    seen = facts.observation
    if seen is None or seen.now.fault or (record is None and seen.now.gone):
        return Decision(Verdict.UNCHANGED)
    draft = TaskDraft(record, command, facts)
    if record is None:
        _add(draft, seen)
        was = Sighting(seen.now.state, seen.now.means, fields=seen.now.fields)
    else:
        catch_up(draft)
        was = seen.was or _implied(draft.task, seen.now)
        draft.emit(e.ExternalChange, source=seen.source, changes=_changes(was, seen.now))
    if seen.now.gone:
        if draft.task.state not in _NOT_TO_BE_HELD:
            hold(draft, GONE)
        return draft.decided(Verdict.DONE)
    _take_right(draft, was, seen)
    _lift_gone(draft, was)
    if was.lock != seen.now.lock:
        _follow_lock(draft, seen)
    _follow_state(draft, was, seen, is_new=record is None)
    _follow_assignee(draft, was, seen.now)
    _follow_definition(draft, was, seen.now)
    return draft.decided(Verdict.DONE)


def foreign_session(source: str, worker: str) -> str:
    """Returns the session that stands for a worker of another tool."""
    return f"{source}:{worker}"


def _implied(record: TaskRecord, now: Sighting) -> Sighting:
    """Returns the content that the file would have had if it had existed."""
    state = record.state
    means = Status.PENDING if state is Status.BLOCKED else state
    word = now.state if means is now.means else str(means)
    return Sighting(word, means, record.task.assigned_to or "", fields=now.fields)


def _changes(was: Sighting, now: Sighting) -> dict[str, list[str]]:
    """Returns the changes by field: the old value and the new one."""
    found: dict[str, list[str]] = {}
    if was.gone is not now.gone:
        found["file"] = ["deleted", "present"] if was.gone else ["present", "deleted"]
    for name, old, new in (
        ("state", was.state, now.state),
        ("assigned_to", was.assignee, now.assignee),
        ("lock", _shown(was.lock), _shown(now.lock)),
    ):
        if old != new and not now.gone:
            found[name] = [old, new]
    for name in sorted({*was.fields, *now.fields}):
        pair = was.fields.get(name), now.fields.get(name)
        if pair[0] != pair[1] and not now.gone:
            found[name] = [_text(pair[0]), _text(pair[1])]
    return found


def _shown(lock: FileLock | None) -> str:
    return "" if lock is None else f"{lock.worker} until {lock.until.isoformat(timespec='seconds')}"


def _text(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else _json(value)
    return text[:200]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# 1. A new file


def _add(draft: TaskDraft, seen: Observation) -> None:
    now, facts = seen.now, draft.facts
    definition = define_task(now.fields, hierarchical=facts.policy.ids is Ids.HIERARCHICAL)
    task = definition.task
    if now.assignee and now.means not in FINISHED and _live(now.lock, facts.now) is None:
        task = replace(task, assigned_to=now.assignee)
    add_task(draft, task, backlog=now.means is Status.BACKLOG)


# 2. A file that is back


def _lift_gone(draft: TaskDraft, was: Sighting) -> None:
    held = draft.task.hold
    if was.gone and draft.task.state is Status.HELD and held is not None and held.reason == GONE:
        draft.emit(e.TaskReopened, backlog=draft.task.backlog)


# 3. The claim


def _take_right(draft: TaskDraft, was: Sighting, seen: Observation) -> None:
    claim, now = draft.task.claim, seen.now
    if claim is None:
        return
    changed = {
        "state": was.state != now.state,
        "assigned_to": was.assignee != now.assignee,
        "lock": was.lock != now.lock,
    }
    if not any(changed.values()):
        return
    only_lock = changed["lock"] and not changed["state"] and not changed["assigned_to"]
    if claim.state is not ClaimState.ACTIVE and only_lock and now.lock is None:
        return
    if _is_of(claim, seen.source):
        worker = None if now.lock is None else foreign_session(seen.source, now.lock.worker)
        if worker in (None, claim.session):
            return
    supersede(draft, seen.source)


def _is_of(claim: Claim, source: str) -> bool:
    return claim.session.startswith(foreign_session(source, ""))


# 4. The lock


def _live(lock: FileLock | None, now: datetime) -> FileLock | None:
    return lock if lock is not None and now < lock.until else None


def _follow_lock(draft: TaskDraft, seen: Observation) -> None:
    claim, lock = draft.task.claim, _live(seen.now.lock, draft.facts.now)
    if draft.task.state in _NOT_TO_BE_HELD:
        return
    is_foreign = claim is not None and _is_of(claim, seen.source)
    if lock is None:
        ends = seen.now.lock is None and is_foreign and seen.now.means is not Status.COMPLETED
        if claim is not None and ends:
            draft.emit(
                e.ClaimReleased,
                by=c.Caller(claim.session, claim.agent),
                release_reason=ReleaseReason.VOLUNTARY,
            )
        return
    by = c.Caller(foreign_session(seen.source, lock.worker), lock.worker)
    seconds = max(0.0, (lock.until - lock.since).total_seconds())
    if claim is not None and claim.session == by.session and claim.state is ClaimState.ACTIVE:
        if claim.expires_at != lock.until:
            draft.emit(e.LeaseRenewed, by=by, expires_at=lock.until, lease_duration_seconds=seconds)
        return
    _grant(draft, by, lock.until, seconds)


def _grant(draft: TaskDraft, by: c.Caller, until: datetime, seconds: float) -> None:
    """Grants the task to a worker of the other tool, which has already taken it. A hold stays."""
    record = draft.task
    last = record.claim or record.released
    held = record.hold if record.state is Status.HELD else None
    draft.emit(
        e.ClaimAcquired,
        generation=draft.next_generation(),
        by=by,
        claim_id=f"claim-{draft.facts.fresh}",
        previous_generation=last.generation if last else 0,
        previous_state=previous_state(record),
        lease_duration_seconds=seconds,
        expires_at=until,
    )
    if held is not None:
        draft.emit(e.TaskHeld, reason=held.reason, until=held.until)


# 5 and 6. The state


def _follow_state(draft: TaskDraft, was: Sighting, seen: Observation, *, is_new: bool) -> None:
    now = seen.now
    if was.state == now.state and not is_new:
        return
    if now.means in FINISHED:
        _finish(draft, seen, is_new=is_new)
        return
    if draft.task.state in FINISHED:
        draft.emit(
            e.TaskReset,
            generation=draft.next_generation(),
            previous_state=draft.task.state,
        )
    _open(draft, seen, is_new=is_new)


def _finish(draft: TaskDraft, seen: Observation, *, is_new: bool) -> None:
    state, means = draft.task.state, seen.now.means
    if state is means or (state is Status.IN_REVIEW and means is Status.COMPLETED):
        return  # a change to a file never approves a result
    end_review(draft, f"the task was cancelled in its file, by {seen.source}")
    if state in FINISHED:
        draft.emit(e.TaskReset, generation=draft.next_generation(), previous_state=state)
    if means is Status.CANCELLED:
        draft.emit(
            e.TaskCancelled,
            generation=draft.next_generation(),
            previous_state=draft.task.state,
            reason=f"cancelled in its file, by {seen.source}",
        )
        return
    claim = draft.task.claim
    if claim is not None and claim.state is ClaimState.ACTIVE:
        by = c.Caller(claim.session, claim.agent)  # a foreign holder: ours was fenced before
    else:
        by = c.Caller(seen.source, seen.source)
        _grant(draft, by, draft.at, 0.0)
    complete_or_escalate(
        draft,
        Submission(
            content=external_content(seen.source),
            reference=work_product_ref(draft.command.key, draft.task.generation, draft.facts),
            by=by,
            agent=by.agent,
            finished_elsewhere=is_new,
        ),
    )


def external_content(source: str) -> c.Content:
    """Returns the result of a task that another tool completed. It only states that."""
    data = msgspec.json.encode({"external": source})
    return c.Content(codec.digest_of(data).hex(), len(data), msgspec.Raw(data))


def _open(draft: TaskDraft, seen: Observation, *, is_new: bool) -> None:
    """Applies the state of a task that is not finished."""
    now = seen.now
    if now.means is Status.IN_REVIEW and draft.task.state is Status.IN_REVIEW:
        return
    end_review(draft, f"the task was opened again in its file, by {seen.source}")
    record = draft.task
    reason = _reason_to_hold(draft, now)
    if reason:
        hold(draft, f"{reason} in its file")
        return
    if record.state is Status.HELD and not is_new:
        draft.emit(e.TaskReopened, backlog=record.backlog)
    backlog = now.means is Status.BACKLOG
    if now.means in (Status.BACKLOG, Status.PENDING) and draft.task.backlog is not backlog:
        change_definition(draft, draft.task.task, (), backlog=backlog)


def _reason_to_hold(draft: TaskDraft, now: Sighting) -> str:
    if now.means in (Status.HELD, Status.IN_REVIEW):
        return now.state
    claim = draft.task.claim
    at_work = claim is not None and claim.state is ClaimState.ACTIVE
    if now.means is Status.IN_PROGRESS and not at_work and not now.assignee:
        return f"{now.state}, without an assignee,"
    return ""


# 7. The assignee


def _follow_assignee(draft: TaskDraft, was: Sighting, now: Sighting) -> None:
    record = draft.task
    if was.assignee == now.assignee or record.state in FINISHED:
        return
    if record.claim is not None and record.claim.state is ClaimState.ACTIVE:
        return
    if now.assignee and record.task.assigned_to != now.assignee:
        hours = record.task.lock_timeout_hours
        if hours is None:
            hours = draft.facts.policy.lock_timeout_hours
        draft.emit(
            e.TaskAssigned,
            assigned_to=now.assignee,
            assigned_until=draft.facts.now + timedelta(hours=hours),
        )
    elif not now.assignee and record.task.assigned_to is not None:
        draft.emit(e.AssignmentLapsed, assigned_to=record.task.assigned_to)


# 8. The definition


def _follow_definition(draft: TaskDraft, was: Sighting, now: Sighting) -> None:
    names = {*was.fields, *now.fields} - FIXED_FIELDS
    changed = {name for name in names if was.fields.get(name) != now.fields.get(name)}
    if not changed:
        return
    hierarchical = draft.facts.policy.ids is Ids.HIERARCHICAL
    given = define_task(now.fields, hierarchical=hierarchical).task
    task = draft.task.task
    news: dict[str, Any] = {
        name: getattr(given, name)
        for name in sorted(changed & _DEFINED)
        if getattr(given, name) != getattr(task, name)
    }
    if news:
        change_definition(draft, replace(task, **news), tuple(news))


_DEFINED = frozenset(Task.__struct_fields__)
