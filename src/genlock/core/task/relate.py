"""News of related tasks: dependencies met and reopened, children added and finished, fan-in.

A reaction never carries news itself: it says *look again*, and the news is read from the other
record, freshly loaded. So a reaction may be late, repeated or out of order, and a late one cannot
undo a reset that came in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from genlock.core import events as e
from genlock.core.commands import Caller, CheckRelated, Content
from genlock.core.decision import Decision
from genlock.core.facts import Facts, ObservedTask
from genlock.core.model import SYSTEM_SESSION, KnownState, TaskRecord
from genlock.core.policy import CancelledDependency
from genlock.core.reasons import FINISHED, ClaimState, ReleaseReason, SpawnMode, Status, Verdict
from genlock.core.task.completion import Submission, complete_or_escalate
from genlock.core.task.draft import TaskDraft, work_product_ref
from genlock.core.task.hold import hold

SYSTEM = Caller(SYSTEM_SESSION, SYSTEM_SESSION)
_OF_CHILDREN = frozenset({e.ChildAdded, e.ChildFinished, e.ChildReopened})


def decide_hear(record: TaskRecord | None, command: CheckRelated, facts: Facts) -> Decision:
    """Checks the other tasks and records the news. A task that does not exist (yet) gets none."""
    if record is None:
        return Decision(Verdict.UNCHANGED)
    draft = TaskDraft(record, command, facts)
    hear(draft, dict(command.others), reset=command.reset)
    return draft.decided(Verdict.DONE if draft.events else Verdict.UNCHANGED)


def hear(draft: TaskDraft, others: Mapping[str, int], *, reset: bool = False) -> None:
    """Records the news of these other tasks from the facts, one event for each kind of news.
    `others` has the version at which each one changed."""
    record = draft.task
    _catch_up_on_resets(draft, others)
    news: dict[type[e.TaskEvent], dict[str, KnownState]] = {}
    for other in others:
        seen = draft.facts.others.get(other)
        if seen is None:
            continue
        # A child may also be a dependency: a task may depend on its own child.
        for kind in (
            _dependency_news(draft.task, other, seen, reset),
            _child_news(draft.task, other, seen, reset),
        ):
            if kind is not None:
                news.setdefault(kind, {})[other] = KnownState(seen.version, seen.status)
    begun = record.claim is not None and record.claim.state is ClaimState.ACTIVE
    idle = record.state in (Status.PENDING, Status.BLOCKED, Status.BACKLOG) or (
        record.state is Status.HELD and not begun
    )
    for kind, heard in news.items():
        last = {"last": True} if kind in _OF_CHILDREN and _are_last(draft.task, heard) else {}
        draft.emit(kind, by=SYSTEM, others=heard, **last)
    if e.ChildIdTaken in news:
        _hold_for_lost_children(draft, record, news[e.ChildIdTaken])
    cancelled = news.get(e.DependencyCancelled)
    if cancelled and idle and draft.facts.policy.cancelled_dependency is CancelledDependency.HOLD:
        hold(draft, f"dependency {', '.join(cancelled)} was cancelled", by=SYSTEM)
    # Only news of a child completes a parent. A parent that was reset after its children finished
    # waits for a merging agent.
    if not news.keys().isdisjoint(_OF_CHILDREN):
        fan_in(draft)
    elif news:
        late_fan_in(draft)


def _hold_for_lost_children(
    draft: TaskDraft, before: TaskRecord, others: Mapping[str, KnownState]
) -> None:
    """Puts the task on hold: the holder that split it got the answer that the split was done, but a
    part is missing. A planner gets that from the answer of `add_tasks`."""
    lost = [
        child.id
        for child in before.spawning
        if child.id in others and child.spawned_from is not None
    ]
    if lost and draft.task.state not in (*FINISHED, Status.IN_REVIEW):
        hold(
            draft,
            f"subtask {', '.join(lost)} was not created, the id belongs to another task; add it "
            "under another id",
            by=SYSTEM,
        )


def _catch_up_on_resets(draft: TaskDraft, others: Mapping[str, int]) -> None:
    """Records tasks that were open in between, although each is done now and was done at the last
    news.

    Only a task that was reset can finish again. The process that reset it may have been killed
    before it notified any task, or there were more tasks to notify than one batch takes. Work that
    depends on the earlier result must learn of the reset, however late.
    """
    record = draft.task
    for kind, known in (
        (e.DependencyReopened, record.dependencies),
        (e.ChildReopened, record.children),
    ):
        missed = {
            other: KnownState(opened)
            for other, version in others.items()
            if (opened := _opened_at(known.get(other), draft.facts.others.get(other), version))
        }
        if missed:
            draft.emit(kind, by=SYSTEM, others=missed)


def _opened_at(known: KnownState | None, seen: ObservedTask | None, version: int) -> int:
    """Returns a version at which a task was open between the known version and the one seen, both
    finished; 0 if there is none.

    A task that was cancelled and is completed now, or the other way round, was reset in between,
    whether or not this is the news of that reset."""
    if known is None or seen is None or not known.finished or not _is_done(seen):
        return 0
    if known.version < version:
        return version - 1
    if known.version < seen.version and known.status is not seen.status:
        return seen.version - 1
    return 0


def _is_done(seen: ObservedTask | None) -> bool:
    return seen is not None and seen.status in FINISHED


def _dependency_news(
    record: TaskRecord, other: str, seen: ObservedTask, reset: bool
) -> type[e.TaskEvent] | None:
    """Returns the kind of news about a dependency, or None if there is none."""
    known = record.dependencies.get(other)
    finished = seen.status in FINISHED
    if known is None or seen.version <= known.version:
        return None
    if finished == known.finished and (seen.status is known.status if finished else not reset):
        return None
    if not finished:
        return e.DependencyReopened
    return e.DependencyCancelled if seen.status is Status.CANCELLED else e.DependencyMet


def _child_news(
    record: TaskRecord, other: str, seen: ObservedTask, reset: bool
) -> type[e.TaskEvent] | None:
    """Returns the kind of news about a child, or None if there is none."""
    known = record.children.get(other)
    finished = seen.status in FINISHED
    if seen.parent != record.task.id:
        # An unrelated task was created under this id before the announced or spawned child.
        return None if known is None else e.ChildIdTaken
    if known is None:
        # A finished parent gets the news too: if it is reset, it has to wait.
        return e.ChildFinished if finished else e.ChildAdded
    if seen.version <= known.version:
        return None
    if finished == known.finished:
        if known.version == 0:
            return e.ChildAdded
        return e.ChildReopened if reset and not finished else None
    return e.ChildFinished if finished else e.ChildReopened


def _are_last(record: TaskRecord, heard: Mapping[str, KnownState]) -> bool:
    """Is this the news that completes a fan-out, at once or as soon as nothing else prevents it?"""
    return (
        record.spawn_mode is SpawnMode.FAN_OUT_FAN_IN
        and record.state not in FINISHED
        and (record.claim is None or record.claim.state is not ClaimState.ACTIVE)
        and all(news.finished for news in {**record.children, **heard}.values())
    )


def fan_in(draft: TaskDraft) -> None:
    """Completes the parent after the last child of a fan-out, or sends its result to review. It
    grants the task to the coordinator's own session, which has no role, and submits the result at
    once."""
    record = draft.task
    ready = (
        record.spawn_mode is SpawnMode.FAN_OUT_FAN_IN
        and record.state in (Status.PENDING, Status.BACKLOG)
        and (record.claim is None or record.claim.state is not ClaimState.ACTIVE)
    )
    if not ready or _reopen_inputs(draft):
        return
    generation = draft.next_generation()
    grant(draft, SYSTEM, generation, lease_seconds=0.0)
    complete_or_escalate(
        draft,
        Submission(
            content=Content("", 0),
            reference=work_product_ref(draft.command.key, generation, draft.facts),
            by=SYSTEM,
            fan_in=True,
        ),
    )


def _reopen_inputs(draft: TaskDraft) -> bool:
    """Records that dependencies and children that counted as finished are open: their reset was
    committed, but this task was not notified."""
    found = False
    for kind, known in (
        (e.DependencyReopened, draft.task.dependencies),
        (e.ChildReopened, draft.task.children),
    ):
        reopened = {
            other: KnownState(seen.version, seen.status)
            for other, last in known.items()
            if last.finished
            and (seen := draft.facts.others.get(other)) is not None
            and not _is_done(seen)
            and seen.version > last.version
        }
        if reopened:
            draft.emit(kind, by=SYSTEM, others=reopened)
            found = True
    return found


def late_fan_in(draft: TaskDraft) -> None:
    """Completes a fan-out that something else prevented when the last child finished.

    Only if the task was not claimed since then: a task that was claimed or reset waits for a
    merging agent. `fan_in_due` may be missing because the children were done before the split, or
    because the news is older than the field. Then the generation decides: it must still be that of
    the split.
    """
    record = draft.task
    last = record.released
    if record.fan_in_due or (
        last is not None
        and last.reason is ReleaseReason.SPAWNED
        and last.generation == record.generation
    ):
        fan_in(draft)


def grant(draft: TaskDraft, by: Caller, generation: int, *, lease_seconds: float) -> None:
    """Grants the task in a name other than that of the command's caller."""
    record = draft.task
    previous = (
        record.claim.generation
        if record.claim
        else record.released.generation
        if record.released
        else 0
    )
    draft.emit(
        e.ClaimAcquired,
        generation=generation,
        by=by,
        claim_id=f"claim-{draft.facts.fresh}",
        previous_generation=previous,
        previous_state=previous_state(record),
        lease_duration_seconds=lease_seconds,
        expires_at=draft.at,
    )


def previous_state(record: TaskRecord) -> str:
    """Returns the state in which the previous claim ended (GC 8.2)."""
    if record.claim is not None:
        return record.claim.state
    if record.released is None:
        return "NO_CLAIM"
    return (
        ClaimState.SUPERSEDED
        if record.released.reason is ReleaseReason.SUPERSEDED
        else ClaimState.RELEASED
    )
