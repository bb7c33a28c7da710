"""Splitting a task, and adopting a refused result: commands that change which session may finish
it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, require
from genlock.core.facts import Facts
from genlock.core.model import SYSTEM_SESSION, Task, TaskRecord
from genlock.core.policy import MAX_CHILDREN_BYTES, MAX_SPAWN_BYTES, Policy
from genlock.core.reasons import (
    FINISHED,
    RefusedState,
    ReleaseReason,
    SpawnMode,
    Status,
    SubmitReason,
)
from genlock.core.results import SpawnResult, SubmissionResult
from genlock.core.task.claims import (
    adopted_key,
    fence,
    look_at_children,
    unfinished_children,
    unknown,
)
from genlock.core.task.completion import (
    Submission,
    accepted,
    complete_or_escalate,
    escalated,
)
from genlock.core.task.draft import TaskDraft
from genlock.core.task.operate import (
    asked,
    check_not_held,
    check_size,
    is_repeated,
    noted,
    supersede,
    without_reservation,
)
from genlock.core.task.relate import fan_in, grant
from genlock.errors import BadArgument, NotAllowed, TaskExists


def decide_spawn(record: TaskRecord | None, command: c.SpawnSubtasks, facts: Facts) -> Decision:
    """Splits a task: one fenced change of the parent that carries its children's definitions. The
    children are created as reactions.

    Naming a child again adds nothing, but the rest of the request is done: the parent is released,
    or gets another mode.
    """
    record = require(record, unknown(command))
    repeated = spawned_before(record, command)
    if repeated is not None:
        return Decision(repeated)
    check_spawn(record, command.children, command.mode, command.keep, facts.policy)
    if command.generation is None:
        _check_free(record)
    else:
        reason = fence(record, command.by.session, command.generation)
        if reason is not None:
            return Decision(SpawnResult(False, reason, record.generation))
    _refuse_others(record, command.children, facts)
    new = _new(record, command.children)
    draft = TaskDraft(record, command, facts)
    if new or not command.keep or command.mode is not record.spawn_mode:
        draft.emit(
            e.SubtasksSpawned,
            children=new,
            mode=command.mode,
            keep=command.keep or command.generation is None,
            defines_mode=True,
            **asked(command),
        )
        # If all children are done already, no news of a last one will come.
        fan_in(draft)
    names = tuple(child.id for child in command.children)
    return draft.decided(SpawnResult(True, SubmitReason.ACCEPTED, draft.task.generation, names))


def spawned_before(record: TaskRecord, command: c.SpawnSubtasks) -> SpawnResult | None:
    """Returns the answer to a spawn that was done and whose answer was lost. Its subtasks were
    valid then and are not checked again."""
    repeated = is_repeated(record, command, e.SubtasksSpawned)
    last = record.released
    ended = (
        command.operation
        and last is not None
        and last.operation == command.operation
        and (last.session, last.generation, last.reason)
        == (command.by.session, command.generation, ReleaseReason.SPAWNED)
    )
    if not ended and not repeated:
        return None
    names = tuple(child.id for child in command.children)
    act = record.remembered(command.operation, command.by.session)
    return SpawnResult(
        True,
        SubmitReason.ACCEPTED,
        record.generation,
        _made(record, act.children if act else (), names),
    )


def _made(record: TaskRecord, children: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of the created children; `children` has the new ones. Names from a counter
    differ from those in the repeat."""
    fresh = [name for name in names if name not in record.children]
    if not children or not fresh:
        return names
    made = [name for name in children if name not in names]
    if len(made) != len(fresh):
        return children
    instead = dict(zip(fresh, made, strict=True))
    return tuple(instead.get(name, name) for name in names)


def check_spawn(
    record: TaskRecord, children: tuple[Task, ...], mode: SpawnMode, keep: bool, policy: Policy
) -> None:
    """Raises the faults of the subtasks that do not depend on the parent's holder."""
    if not children:
        raise BadArgument("spawn needs at least one subtask")
    if keep and mode is SpawnMode.FAN_OUT_FAN_IN:
        raise BadArgument("fan-out-fan-in completes the parent by itself: it cannot be kept")
    if record.task.depth + 1 > policy.spawn_depth:
        raise NotAllowed(
            f"subtasks of {record.task.id!r} would be at depth {record.task.depth + 1}; "
            f"spawn_depth is {policy.spawn_depth}"
        )
    for child in children:
        check_size(child)
    new = _new(record, children)
    size = len(msgspec.json.encode(record.spawning)) + len(msgspec.json.encode(new))
    if new and size > MAX_SPAWN_BYTES:
        raise BadArgument(
            f"the subtasks have {size:,} bytes, at most {MAX_SPAWN_BYTES:,} at once; spawn the "
            "rest in a second call"
        )
    lack = lacks_room(record.task.id, [*record.children, *(child.id for child in new)])
    if new and lack is not None:
        raise BadArgument(lack)


def _check_free(record: TaskRecord) -> None:
    """Checks that a planner may split the task: it must have no holder. Only the holder may split a
    claimed task."""
    claim = record.claim
    if claim is not None:
        raise NotAllowed(
            f"task {record.task.id!r} is held by {claim.agent} (session {claim.session}) at "
            f"generation {claim.generation}: only its holder may split it, with that generation. "
            "Wait until it is free, or release it first"
        )
    if record.state in FINISHED or record.state is Status.IN_REVIEW:
        raise NotAllowed(
            f"task {record.task.id!r} is {record.state}; reset it first, then split it"
        )


def _new(record: TaskRecord, children: tuple[Task, ...]) -> tuple[Task, ...]:
    return tuple(child for child in children if child.id not in record.children)


def _refuse_others(record: TaskRecord, children: tuple[Task, ...], facts: Facts) -> None:
    """Refuses a subtask whose name is taken, because it would not be created. Only a child of the
    parent with the same definition may be named again."""
    spawning = {child.id: child for child in record.spawning}
    for child in children:
        seen = facts.others.get(child.id)
        known = seen.task if seen is not None else spawning.get(child.id)
        if child.id not in record.children and seen is not None:
            raise NotAllowed(f"task {child.id!r} exists already; give the subtask another id")
        if known is not None and _as_given(known) != _as_given(child):
            raise TaskExists(
                f"subtask {child.id!r} exists already, with another definition; edit it, or give "
                "this one another id"
            )


def _as_given(child: Task) -> Task:
    """Returns the part of a subtask's definition that its caller states. A plan may have added the
    subtask, and it may be reserved."""
    return replace(without_reservation(child), depth=0, spawned_from=None)


def decide_announce(
    record: TaskRecord | None, command: c.AnnounceChildren, facts: Facts
) -> Decision:
    """Makes an existing parent wait for its new children before they are created. The answer names
    those that are new to it."""
    record = require(record, unknown(command))
    announced = {child.id: child for child in record.spawning}
    for child in command.children:
        known = announced.get(child.id)
        if (
            known is not None
            and child.id not in facts.others
            and _as_given(known) != _as_given(child)
        ):
            raise TaskExists(
                f"task {child.id!r} is being added already, with another definition; give this one "
                "another id"
            )
    new = tuple(
        child
        for child in command.children
        if child.id not in record.children and child.id not in facts.others
    )
    draft = TaskDraft(record, command, facts)
    if new:
        backlog = tuple(child.id for child in new if child.id in command.backlog)
        draft.emit(e.ChildrenAnnounced, children=new, backlog=backlog)
    return draft.decided(
        tuple(child.id for child in command.children if child.id not in facts.others)
    )


def decide_adopt(record: TaskRecord | None, command: c.AdoptResult, facts: Facts) -> Decision:
    """Adopts a refused result. For the holder it is a submission at the holder's generation; an
    operator supersedes the claim first.

    The session whose result was refused may adopt as the holder, but not as an operator: it would
    overrule its own refusal. The generation distinguishes a holder's repeat from a second adoption,
    whatever happened in between. An operator's repeat is recognised like that of any other
    command."""
    record = require(record, unknown(command))
    repeated = _adopted_before(record, command)
    if repeated is not None:
        return repeated
    by = command.by
    if command.generation is None:
        by = by if by.session else c.Caller(SYSTEM_SESSION, by.agent or SYSTEM_SESSION, by.actor)
    if facts.refused is not None and facts.refused.state is RefusedState.DISCARDED:
        raise NotAllowed(f"refused result {command.refused!r} was discarded")
    draft = TaskDraft(record, command, facts)
    if record.children:
        look_at_children(draft)
        record = draft.task
    if command.generation is None:
        if command.by.session and command.by.session == command.from_session:
            raise NotAllowed(_own_refusal(record, command))
        if record.state in (Status.COMPLETED, Status.CANCELLED):
            raise NotAllowed(
                f"task {record.task.id!r} is {record.state}; reset it first, then adopt"
            )
        if record.state is Status.IN_REVIEW:
            raise NotAllowed(
                f"task {record.task.id!r} is IN_REVIEW; reject its result first, then adopt"
            )
        check_not_held(draft, command)
        reason = SubmitReason.CHILDREN_UNFINISHED if unfinished_children(record) else None
    else:
        reason = fence(record, command.by.session, command.generation)
        if reason is None and unfinished_children(record):
            reason = SubmitReason.CHILDREN_UNFINISHED
    if reason is not None:
        return draft.decided(
            SubmissionResult(
                False, reason, record.generation, waits_for=unfinished_children(record)
            )
        )
    if command.generation is None:
        if record.claim is not None:
            supersede(draft, "adopt")
        grant(draft, by, draft.next_generation(), lease_seconds=0.0)
    claim = draft.task.claim
    assert claim is not None
    repeatable = noted(command) if command.generation is None else {"operation": command.operation}
    submission = Submission(
        content=command.content,
        reference=command.work_product_ref,
        by=by,
        agent=by.agent or claim.agent,
        role=claim.role,
        adopted=(command.from_generation, command.from_session),
        **repeatable,
    )
    return draft.decided(complete_or_escalate(draft, submission))


_ESCALATED = str(e.ConvergenceEscalated.__struct_config__.tag)


def _adopted_before(record: TaskRecord, command: c.AdoptResult) -> Decision | None:
    """Returns the answer to an adoption that was done and whose answer was lost. The digest and the
    author identify it better than an operation id could: the same adoption again is a repeat."""
    review, result = record.review, record.result
    asked = (command.content.digest, command.from_session)
    if review is not None and (review.result.digest, review.result.adopted_session) == asked:
        return Decision(escalated(record.generation, review))
    if (
        record.state is Status.COMPLETED
        and result is not None
        and (result.digest, result.adopted_session) == asked
        and result.adopted_generation is not None
    ):
        return Decision(
            accepted(record.generation, result.work_product_ref),
            followups=(c.MarkAdopted(adopted_key(command.key, result), command.by),),
        )
    act = record.remembered(command.operation, command.by.session)
    if act is not None and act.what == f"{_ESCALATED} {command.content.digest}":
        return Decision(
            SubmissionResult(
                True,
                SubmitReason.CONVERGENCE_ESCALATED,
                record.generation,
                work_product_ref=command.work_product_ref,
            )
        )
    if command.generation is None and is_repeated(
        record, command, e.ResultAccepted, command.content.digest
    ):
        return Decision(accepted(record.generation, command.work_product_ref))
    return None


def _own_refusal(record: TaskRecord, command: c.AdoptResult) -> str:
    """Explains why the session whose result was refused cannot adopt it as an operator."""
    session = command.from_session
    if record.claim is not None and record.claim.session == session:
        return (
            f"session {session!r} holds task {record.task.id!r}: it adopts its result as the "
            "holder, with the generation of its claim"
        )
    return (
        f"result {command.refused!r} was refused to this very session, {session!r}, which does not "
        f"hold task {record.task.id!r}: "
        "it cannot adopt it. The result is kept; stop working on this task, and ask for the next "
        "one"
    )


# Room: how much of a task's record its children may take.
#
# A parent keeps a note of each child, and while it is under way or done also the name of each child
# that was reset. A record too large for the store could never be written again, and the parent
# would neither open nor be renewed. So too many children are refused when they are added. Besides
# its children a record has room for the largest definition, with the news of its dependencies, and
# for either the largest result or the definitions of subtasks that are not created yet.


_NOTE = len('"":{"version":1000000,"status":"COMPLETED"},"",')
"""The bytes kept for a child besides its id, which may occur twice."""


def lacks_room(parent: str, children: Iterable[str]) -> str | None:
    """Returns the fault if this task cannot have all these children; None if it can."""
    size = sum(2 * len(name) + _NOTE for name in children)
    if size <= MAX_CHILDREN_BYTES:
        return None
    return (
        f"the subtasks of {parent!r} could take {size:,} bytes in its record, at most "
        f"{MAX_CHILDREN_BYTES:,} are kept there; "
        "put a task between, or give them shorter ids"
    )
