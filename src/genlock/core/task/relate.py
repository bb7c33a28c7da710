"""What a task hears of others: dependencies met and reopened, children added and finished, fan-in.

A reaction never brings news itself: it says *look again*, and the news is read from the other
record, freshly loaded. So a reaction may be late, repeated or out of order, and a late one cannot
reopen what was reset meanwhile.
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
    """Looks at the others and writes what is new. A task that does not exist (yet) hears
    nothing."""
    if record is None:
        return Decision(Verdict.UNCHANGED)
    draft = TaskDraft(record, command, facts)
    hear(draft, dict(command.others), reset=command.reset)
    return draft.decided(Verdict.DONE if draft.events else Verdict.UNCHANGED)


def hear(draft: TaskDraft, others: Mapping[str, int], *, reset: bool = False) -> None:
    """Folds in what the facts say of these others, one event for each kind of news; `others` says
    of each at which version it moved."""
    record = draft.task
    _catch_up_on_resets(draft, others)
    news: dict[type[e.TaskEvent], dict[str, KnownState]] = {}
    for other in others:
        seen = draft.facts.others.get(other)
        if seen is None:
            continue
        # One may be both: a task that depends on its own child.
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
    # Only news of a child completes a parent: one that was reset after its children finished waits
    # for a merging agent.
    if not news.keys().isdisjoint(_OF_CHILDREN):
        fan_in(draft)
    elif news:
        late_fan_in(draft)


def _hold_for_lost_children(
    draft: TaskDraft, before: TaskRecord, others: Mapping[str, KnownState]
) -> None:
    """The holder who split the task was told that it was done; a part of it is missing. A planner's
    `add_tasks` says so itself."""
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
    """Folds in that some were open in between, although each is done, as it was when it was last
    heard of.

    Only what was reset can come to its end again. Whoever reset it may have been killed before
    anyone was told, or there were more to tell than are told at once; but work that rests on what
    it was before is to know of that, however late.
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
    """A version at which something was open between what was known of it and what is seen, both
    finished; 0 if there is none.

    What was cancelled and is completed now, or the other way round, was reset in between, whether
    or not this is news of the reset."""
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
    """What kind of news this is of a dependency, or None if it is none."""
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
    """What kind of news this is of a child, or None if it is none."""
    known = record.children.get(other)
    finished = seen.status in FINISHED
    if seen.parent != record.task.id:
        # Somebody else created a task of this id before the announced or spawned child could be.
        return None if known is None else e.ChildIdTaken
    if known is None:
        # A parent that is finished hears of it too: should it be reset, it has to wait.
        return e.ChildFinished if finished else e.ChildAdded
    if seen.version <= known.version:
        return None
    if finished == known.finished:
        if known.version == 0:
            return e.ChildAdded
        return e.ChildReopened if reset and not finished else None
    return e.ChildFinished if finished else e.ChildReopened


def _are_last(record: TaskRecord, heard: Mapping[str, KnownState]) -> bool:
    """Is this the news that completes a fan-out, at once or as soon as nothing else keeps it
    back?"""
    return (
        record.spawn_mode is SpawnMode.FAN_OUT_FAN_IN
        and record.state not in FINISHED
        and (record.claim is None or record.claim.state is not ClaimState.ACTIVE)
        and all(news.finished for news in {**record.children, **heard}.values())
    )


def fan_in(draft: TaskDraft) -> None:
    """The last child of a fan-out completes the parent, or has it reviewed: a grant to the
    coordinator's own session, which has no role, and its result at once."""
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
    """Writes that dependencies and children which counted as finished are not: their reset was
    committed, and nobody has told this task."""
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
    """For a parent that something else held back when its last child finished.

    Only if nobody has taken it up since then: one that was, or was reset, waits for a merging
    agent. Where that was not noted, because the children were done when it was split, or the news
    is from before it was, the generation tells: it is still that of the split.
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
    """A grant in someone else's name than the command's caller."""
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
    """GC 8.2: in which state the claim before this one ended."""
    if record.claim is not None:
        return record.claim.state
    if record.released is None:
        return "NO_CLAIM"
    return (
        ClaimState.SUPERSEDED
        if record.released.reason is ReleaseReason.SUPERSEDED
        else ClaimState.RELEASED
    )
