"""What holds after any sequence of commands, whatever the clock does and in whatever order news
arrives.

The records are driven by decide, evolve and react alone (see world.py, which also compares every
record, to the byte, with the fold of its decoded events, and checks that event times never run
back).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import genlock
from genlock.core import codec, keys
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision
from genlock.core.facts import Facts, ObservedTask
from genlock.core.index import microseconds
from genlock.core.model import Record, SessionRecord, Task, TaskRecord
from genlock.core.policy import (
    CancelledDependency,
    Expired,
    Policy,
    TenantLimits,
    change_limits,
    change_policy,
)
from genlock.core.reasons import ClaimReason, ClaimState, ReleaseReason, SpawnMode, Status
from genlock.core.results import ClaimResult, SubmissionResult
from genlock.core.rules import evolve, index_of
from genlock.core.task.relate import SYSTEM
from genlock.engine.replay_check import check
from genlock.errors import BadArgument, GenlockError
from genlock.stores.memory import MemoryStore
from genlock.testing.clock import ManualClock
from tests.core.world import START, World, by, content, key_of

SESSIONS = ("s1", "s2", "sitzung-3-äöü-工")
HOLDER = "whoever holds the task"
AGENTS = ("alice", "bob")

MANY_TIMES: dict[str, Callable[[], None]] = {}


def holds_for(
    *strategies: st.SearchStrategy[Any], examples: int = 120
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """A property of whatever these strategies draw: looked at a few times at every change, and many
    times at night."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        MANY_TIMES[check.__name__] = settings(max_examples=examples * 40, deadline=None)(
            given(*strategies)(check)
        )
        return settings(max_examples=examples, deadline=None)(given(*strategies)(check))

    return decorate


# Steps: what may happen to one task


class Step(NamedTuple):
    """One thing that happens; who and which generation (relative to the present one) are ignored
    where they mean nothing."""

    verb: str
    session: str = "s1"
    agent: str = "alice"
    generation: int = 0
    value: Any = None


texts = st.text(max_size=8)
plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(texts, plain_json, max_size=3)
leases = st.sampled_from([1.0, 30.0, 60.5, 299.999999])
seconds = st.sampled_from(
    [
        0.0,
        0.000001,
        1.0,
        29.0,
        31.0,
        61.0,
        3600.0,
        5 * 3600.0,
        86400.0,
        -1.0,
        -29.0,
        -3600.0,
        -86400.0,
    ]
)
near = st.sampled_from([0, 0, 0, -1, 1])
results = st.one_of(st.sampled_from(["done", "other", {}, [], {"é": [1, 2.5, None]}]), plain_json)


def sequences(step: st.SearchStrategy[Any], most: int = 30) -> st.SearchStrategy[list[Any]]:
    """Lists of any length up to `most`; those of `st.lists` are short, and stories need some
    length."""
    return st.integers(1, most).flatmap(
        lambda length: st.lists(step, min_size=length, max_size=length)
    )


def steps(*verbs: str) -> st.SearchStrategy[Step]:
    """Steps with one of these verbs."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "claim": st.tuples(leases, metadata, st.sampled_from(["", "op-1", "op-2"])),
        "renew": st.none() | leases,
        "release": st.sampled_from([ReleaseReason.VOLUNTARY, ReleaseReason.ERROR]),
        "submit": results,
        "assign": st.tuples(st.sampled_from(AGENTS), st.sampled_from([None, 0.5])),
        "later": seconds,
        "edit": st.one_of(
            st.fixed_dictionaries({"title": texts}),
            st.fixed_dictionaries({"not_before": st.none() | seconds}),
            st.fixed_dictionaries({"metadata": metadata}),
        ),
    }
    sessions = st.sampled_from((*SESSIONS, HOLDER, HOLDER, HOLDER))
    made = [
        st.builds(
            Step,
            st.just(verb),
            sessions,
            st.sampled_from(AGENTS),
            near,
            values.get(verb, st.none()),
        )
        for verb in verbs
    ]
    return st.one_of(made)


ALONE = (
    *("claim", "claim", "renew", "release", "submit", "later", "later"),
    *(
        "adopt",
        "adopt by operator",
        "unlock",
        "assign",
        "reset",
        "cancel",
        "hold",
        "reopen",
        "check",
        "edit",
    ),
    *("end", "vanish", "epoch", "reload"),
)
alone = sequences(steps(*ALONE))
policies = st.builds(
    Policy,
    expired=st.sampled_from(Expired),
    grace_seconds=st.sampled_from([0.0, 10.5, 60.0]),
    claim_ttl_seconds=st.sampled_from([None, 0.0, 100.0]),
    stale_threshold_seconds=st.sampled_from([20.0, 1800.0]),
    breaker_threshold=st.sampled_from([0, 2, 5]),
)
limits = st.sampled_from(
    [
        TenantLimits(),
        TenantLimits(max_generations_per_task=2),
        TenantLimits(max_lease_duration_seconds=60.0),
    ]
)


def who(world: World, step: Step, name: str = "T") -> str:
    claim = world.task(name).claim
    return step.session if step.session != HOLDER else claim.session if claim is not None else "s1"


def command_of(world: World, step: Step, name: str = "T") -> c.Command | None:
    """The command that a step stands for, or None if it is one of the world's own doings."""
    key, caller = key_of(name), by(who(world, step, name), step.agent)
    generation = world.task(name).generation + step.generation
    by_force = step.generation == 0
    adopt = c.AdoptResult(
        key, caller, f"{name}/1/s9/abc", generation, content("found"), "wp", 1, "s9"
    )
    match step.verb:
        case "claim":
            lease, data, operation = step.value
            return c.ClaimTask(key, caller, lease, operation, "coder", data)
        case "renew":
            return c.RenewLease(key, caller, generation, step.value)
        case "release":
            return c.ReleaseClaim(key, caller, generation, step.value)
        case "submit":
            return c.SubmitResult(key, caller, generation, content(step.value))
        case "adopt":
            return adopt
        case "adopt by operator":
            return replace(adopt, by=by("", ""), generation=None, take_over=by_force)
        case "assign":
            agent, hours = step.value
            return c.AssignTask(key, by("", ""), agent, hours, take_over=by_force)
        case "edit":
            changes = dict(step.value)
            if changes.get("not_before") is not None:
                changes["not_before"] = world.now + timedelta(seconds=changes["not_before"])
            return c.EditTask(key, by("", ""), changes)
        case "unlock" | "reset" | "cancel":
            return _BY_FORCE[step.verb](key, take_over=by_force)
        case "hold" | "reopen" | "check":
            return _PLAIN[step.verb](key)
        case _:
            return None


_BY_FORCE: dict[str, Callable[..., c.Command]] = {
    "unlock": c.ForceRelease,
    "reset": c.ResetTask,
    "cancel": c.CancelTask,
}
_PLAIN: dict[str, type[c.Command]] = {
    "hold": c.HoldTask,
    "reopen": c.ReopenTask,
    "check": c.CheckDue,
}


def take(world: World, step: Step, name: str = "T") -> Decision | None:
    """One step; None if it was refused as a mistake, or is none of a task."""
    command = command_of(world, step, name)
    if command is None:
        _do_to_world(world, step, who(world, step, name))
        return None
    try:
        return world.ask(command)
    except GenlockError:
        return None


def _do_to_world(world: World, step: Step, name: str) -> None:
    session = key_of(name, keys.SESSION)
    match step.verb:
        case "later":
            world.pass_time(step.value)
        case "end":
            if isinstance(world.cell(session).record, SessionRecord):
                world.ask(c.EndSession(session, by(name)))
        case "vanish":
            world.gone.add(name)
        case "epoch":
            world.epoch += 1
        case "reload":
            world.reload()
        case _:
            raise AssertionError(step.verb)


# Frozen
def a_world(policy: Policy = Policy(), limits: TenantLimits = TenantLimits()) -> World:  # noqa: B008
    # The refused result that some steps adopt.
    world = World(policy=policy, limits=limits)
    world.ask(
        c.KeepRefused(
            key_of("T/1/s9/abc", keys.REFUSED),
            by("s9", "zoe"),
            "T",
            1,
            2,
            "STALE_GENERATION",
            content("found"),
            "wp",
        )
    )
    return world


class Rights:
    """Who was granted what, told from the events."""

    def __init__(self) -> None:
        self.granted: dict[int, str] = {}
        self.generation = 0

    def follow(self, happened: tuple[e.Event, ...]) -> None:
        for event in happened:
            assert event.generation >= self.generation, "a generation went down"
            self.generation = event.generation
            if isinstance(event, e.ClaimAcquired):
                assert event.generation not in self.granted, (
                    f"generation {event.generation} was granted twice"
                )
                self.granted[event.generation] = event.session_id
            if isinstance(event, e.ResultAccepted):
                assert event.generation == max(self.granted), (
                    "a result counted below the highest generation"
                )
                assert event.session_id == self.granted[event.generation], (
                    "a result counted for a session that had no right"
                )


@holds_for(alone, policies, limits)
def test_generations_only_rise_and_are_granted_once_and_results_count_only_at_the_highest_for_its_holder(
    played: list[Step], policy: Policy, limit: TenantLimits
) -> None:
    world, rights = a_world(policy, limit), Rights()
    world.add("T")
    for step in played:
        before = world.task("T").generation
        decision = take(world, step)
        after = world.task("T").generation
        assert after >= before
        if decision is not None:
            rights.follow(decision.events)
            assert after == before or after > world.epoch * 1_000_000
        note(f"{step.verb}: {world.task('T').state}")


@holds_for(alone, policies, limits)
def test_at_any_moment_at_most_one_session_at_one_generation_could_have_its_result_accepted(
    played: list[Step], policy: Policy, limit: TenantLimits
) -> None:
    world = a_world(policy, limit)
    world.add("T")
    for step in played:
        take(world, step)
        writers = [
            (session, generation)
            for session in (*SESSIONS, "", "s9")
            for generation in {world.task("T").generation + near for near in range(-3, 4)}
            if accepted_anew(world, session, generation)
        ]
        assert len(writers) <= 1
        if writers:
            claim = world.task("T").claim
            assert claim is not None
            assert writers == [(claim.session, world.task("T").generation)]


def accepted_anew(world: World, session: str, generation: int) -> bool:
    command = c.SubmitResult(
        key_of("T"), by(session), generation, content({"what": "nobody has submitted before"})
    )
    return bool(world.decide(command).outcome.accepted)


@holds_for(alone, policies, limits)
def test_a_live_claim_is_denied_to_everyone_else(
    played: list[Step], policy: Policy, limit: TenantLimits
) -> None:
    world = a_world(policy, limit)
    world.add("T")
    for step in played:
        take(world, step)
        claim = world.task("T").claim
        if claim is None or claim.expires_at is None:
            continue
        if not lives(
            world, claim.session, claim.expires_at, claim.grace_seconds, claim.lease_seconds
        ):
            continue
        if claim.state is ClaimState.EXPIRED:
            continue  # once written down as lapsed it stays so, whatever the clock does
        answers = {
            world.decide(c.ClaimTask(key_of("T"), by(session, agent), 30.0)).outcome.reason
            for session in ("fresh", claim.session)
            for agent in (*AGENTS, "carol")
            if (session, agent) != (claim.session, claim.agent) and not ended(world, session)
        }
        assert answers <= {
            ClaimReason.DENIED_ACTIVE_CLAIM,
            ClaimReason.DENIED_HELD,
            ClaimReason.DENIED_ASSIGNED,
        }


def lives(world: World, session: str, expires_at: datetime, grace: float, lease: float) -> bool:
    """The design's words: now < expires_at (+ grace), no stepped clock, the session has not ended,
    its process is not gone."""
    left = (expires_at - world.now).total_seconds()
    stepped = left > lease + max(lease / 10, 5)
    return (
        left + grace > 0 and not stepped and not ended(world, session) and session not in world.gone
    )


def ended(world: World, session: str) -> bool:
    record = world.cell(key_of(session, keys.SESSION)).record
    return isinstance(record, SessionRecord) and record.ended_at is not None


@holds_for(
    alone,
    policies,
    st.fixed_dictionaries(
        {"title": texts, "tags": st.lists(texts).map(tuple), "metadata": metadata}
    ),
)
def test_the_decoded_events_fold_to_the_record_to_the_byte(
    played: list[Step], policy: Policy, fields: dict[str, Any]
) -> None:
    world = a_world(policy)
    world.add("T", description="ü" * 3000, **fields)
    for step in played:
        take(world, step)
    take(world, Step("submit", generation=0, value="x" * 30_000))
    for key, cell in world.cells.items():
        folded, digest = None, b""
        for version, happened in enumerate(cell.events, 1):
            sealed = codec.encode_event(happened, version, digest)
            envelope = codec.decode_event(sealed.body)
            assert (envelope.version, envelope.previous) == (version, digest.hex())
            assert codec.encode_event(envelope.event, version, digest) == sealed
            folded, digest = evolve(key.kind, folded, envelope.event), sealed.digest
        if cell.record is not None:
            assert folded is not None
            assert codec.encode_record(folded) == codec.encode_record(cell.record)
            assert index_of(folded) == index_of(cell.record)


@holds_for(alone, policies)
def test_every_refused_result_with_content_is_kept_exactly_once(
    played: list[Step], policy: Policy
) -> None:
    world = a_world(policy)
    world.add("T")
    refusals: dict[str, tuple[int, str, str]] = {}
    for step in played:
        world.followups.clear()
        session = who(world, step)
        decision = take(world, step)
        kept = [followups for followups in world.followups if isinstance(followups, c.KeepRefused)]
        if decision is None or step.verb != "submit":
            assert not kept
            continue
        outcome = decision.outcome
        assert isinstance(outcome, SubmissionResult)
        submitted = content(step.value)
        if outcome.accepted or submitted.empty:
            assert not kept
            assert not outcome.work_lost
            assert not outcome.kept
            continue
        (keep,) = kept
        assert (outcome.work_lost, outcome.kept, outcome.refused_id) == (True, True, keep.key.id)
        assert keep.content == submitted
        assert (keep.by.session, keep.reason) == (session, outcome.reason)
        refusals.setdefault(keep.key.id, (keep.generation, session, submitted.digest))
        refused = world.cell(keep.key).record
        assert refused is not None
        assert refusals[keep.key.id] == (refused.generation, refused.session, refused.digest)  # type: ignore[union-attr]
    assert len(refusals) == len(set(refusals.values()))


# The index: what can be found without looking into a record


def would_be_granted(world: World, name: str) -> bool:
    """Would anyone who may have the task be granted it now?"""
    assignee = world.task(name).task.assigned_to
    outcome = world.decide(
        c.ClaimTask(key_of(name), by("fresh", assignee or "anyone"), 30.0)
    ).outcome
    assert isinstance(outcome, ClaimResult)
    return outcome.success


@holds_for(alone, policies)
def test_a_task_is_offered_exactly_while_it_could_be_granted_or_falls_due(
    played: list[Step], policy: Policy
) -> None:
    world = a_world(policy)
    world.add("T")
    for step in played:
        take(world, step)
        index = index_of(world.task("T"))
        assert (index.pool is None) == (index.order is None)
        if index.pool is not None:
            assert would_be_granted(world, "T")
        elif would_be_granted(world, "T"):
            claim = world.task("T").claim
            lost = (
                claim is not None
                and claim.state is ClaimState.ACTIVE
                and index.session == claim.session
            )
            due = index.due_at is not None and index.due_at <= microseconds(world.now)
            # What is neither offered nor due is found among the claims: its holder is gone, or the
            # clock has stepped back.
            assert due or lost


@holds_for(alone, policies)
def test_due_at_is_the_first_instant_at_which_time_alone_changes_the_answer(
    played: list[Step], policy: Policy
) -> None:
    world = a_world(policy)
    world.add("T")
    for step in played:
        take(world, step)
        check_due_at(world)


def check_due_at(world: World) -> None:
    record = world.task("T")
    due_at = index_of(record).due_at
    if due_at is None:
        note(f"never due: {record.state}")
        assert not brought_by_time(world, world.now + timedelta(days=1000))
        return
    due = world.now + timedelta(microseconds=due_at - microseconds(world.now))
    note(f"due: {record.state}")
    assert brought_by_time(world, due)
    if due > record.updated_at:
        assert not brought_by_time(world, due - timedelta(microseconds=1))


def brought_by_time(world: World, now: datetime) -> list[str]:
    """What a check at this instant would write, but for the stale mark: that is for show and
    changes no answer."""
    command = c.CheckDue(key_of("T"), SYSTEM)
    facts = replace(world.facts(command), now=now, holder=None, holder_gone=False)
    return [
        type(event).__name__
        for event in world.decide(command, facts).events
        if not isinstance(event, e.ClaimStale)
    ]


def test_a_reservation_in_the_backlog_falls_due_too() -> None:
    # With offer_backlog others are to be offered it once the reservation is over, and claim_next
    # finds that by due_at alone.
    world = World(policy=Policy(offer_backlog=True))
    world.add("T", backlog=True, assigned_to="alice")
    assert index_of(world.task("T")).due_at == microseconds(world.now + timedelta(hours=4))


# Several tasks, and news of one for another

GRAPH = ("A", "B", "C", "D")
RELATED = (
    *(
        "claim",
        "submit",
        "release",
        "later",
        "unlock",
        "reset",
        "cancel",
        "hold",
        "reopen",
        "check",
        "reload",
    ),
    *("finish", "finish", "finish", "spawn", "spawn", "depend"),
    *("deliver", "deliver", "deliver twice", "deliver last", "settle", "settle"),
)


class Move(NamedTuple):
    """A step of one of several tasks."""

    step: Step
    name: int
    more: Any = None


moves = sequences(
    st.builds(
        Move,
        steps(*(verb for verb in RELATED if verb in ALONE))
        | st.sampled_from([Step(verb) for verb in RELATED if verb not in ALONE]),
        st.integers(0, 6),
        st.tuples(
            st.sampled_from(SpawnMode),
            st.booleans(),
            st.integers(1, 2),
            st.sets(st.sampled_from(GRAPH)),
        ),
    )
)
cancelled = st.sampled_from(CancelledDependency).map(
    lambda choice: Policy(cancelled_dependency=choice)
)


def graph(policy: Policy) -> World:
    """B waits for A, C for A and B, D for nothing; C is a child of D."""
    world = World(policy=policy)
    world.add("A")
    world.add("B", depends_on=("A",))
    world.add("D")
    world.add("C", depends_on=("A", "B"), parent="D", depth=1)
    return world


def move(world: World, moved: Move) -> None:
    """One move; what it asks of others waits until it is delivered."""
    names = list(world.tasks)
    name = names[moved.name % len(names)]
    record = world.task(name)
    try:
        match moved.step.verb:
            case "finish":
                if world.claim(name, "s9", record.task.assigned_to or "zoe").outcome.success:
                    world.submit(name, "s9", world.task(name).generation)
            case "spawn":
                spawn(world, name, moved.more)
            case "depend":
                others = tuple(sorted(other for other in moved.more[3] if other < name))
                world.ask(c.EditTask(key_of(name), changes={"depends_on": others}))
            case "deliver" | "deliver twice" | "deliver last" if world.undelivered:
                if moved.step.verb == "deliver twice":
                    world.undelivered.insert(1, world.undelivered[0])
                world.deliver(-1 if moved.step.verb == "deliver last" else 0)
            case "deliver" | "deliver twice" | "deliver last":
                pass
            case "settle":
                world.settle()
            case _:
                take(world, moved.step, name)
    except GenlockError:
        pass


def spawn(world: World, name: str, more: tuple[SpawnMode, bool, int, set[str]]) -> None:
    mode, keep, count, _ = more
    world.claim(name, "s9", "zoe")
    record = world.task(name)
    first = len(record.children) + 1
    children: list[Task] = []
    for number in range(first, first + count):
        before = (children[-1].id,) if children and mode is SpawnMode.SEQUENTIAL else ()
        children.append(
            Task(
                id=f"{name}::{number}",
                parent=name,
                depth=record.task.depth + 1,
                depends_on=before,
                spawned_from=name,
            )
        )
    world.ask(
        c.SpawnSubtasks(
            key_of(name), by("s9", "zoe"), record.generation, tuple(children), mode, keep
        )
    )


@holds_for(moves, cancelled)
def test_what_a_task_has_heard_of_another_is_what_that_one_is_however_late_the_news(
    moved: list[Move], policy: Policy
) -> None:
    world = graph(policy)
    for each in moved:
        before = world.tasks
        news = tuple(
            addressee for reaction in world.undelivered for addressee in world.addressed(reaction)
        )
        move(world, each)
        for command in news:
            if isinstance(command, c.CheckRelated) and each.step.verb.startswith(
                ("deliver", "settle")
            ):
                check_hearing(world, before, command)


def check_hearing(world: World, before: dict[str, TaskRecord], command: c.CheckRelated) -> None:
    """Asking again brings nothing that is not so, opens nothing that was reset, and leaves alone
    what is done or under way."""
    name = command.key.id
    was = world.tasks.get(name)
    if was is None:
        return
    decision = world.decide(command)
    record = decision.record or was
    for other, _ in command.others:
        seen = world.seen(other)
        heard = record.dependencies.get(other) or record.children.get(other)
        if seen is not None and heard is not None:
            assert heard.finished == (seen.status in (Status.COMPLETED, Status.CANCELLED))
    if was.state in (Status.COMPLETED, Status.CANCELLED):
        assert record.state is was.state
        assert record.generation == was.generation
    if was.claim is not None and was.claim.state is ClaimState.ACTIVE:
        assert (record.state, record.claim, record.generation) == (
            was.state,
            was.claim,
            was.generation,
        )


@holds_for(moves, cancelled, st.randoms(use_true_random=False))
def test_news_in_any_order_ends_in_the_same_state(
    moved: list[Move], policy: Policy, random: Any
) -> None:
    world = graph(policy)
    for each in moved:
        move(world, each)
    ends = []
    for shuffled in (False, True, True):
        other = copy.deepcopy(world)
        if shuffled:
            # Repeated as well: whoever settles tells everything again.
            other.undelivered += other.undelivered
            random.shuffle(other.undelivered)
            while other.undelivered:
                other.deliver(random.randrange(len(other.undelivered)))
        else:
            other.settle()
        ends.append({name: outline(record) for name, record in other.tasks.items()})
        check_all_told(other)
    assert ends[0] == ends[1] == ends[2]


def outline(record: TaskRecord) -> tuple[Any, ...]:
    """What of a task must not depend on the order in which it was told."""
    heard = {name: news.finished for name, news in (record.dependencies | record.children).items()}
    accepted = record.result.generation if record.result else None
    return (
        record.state,
        record.generation,
        record.granted,
        heard,
        set(record.inputs_changed),
        accepted,
        record.claim is None,
    )


def check_all_told(world: World) -> None:
    """Once all news has arrived every task knows how its dependencies and children stand, and is in
    the state that follows."""
    tasks = world.tasks
    for record in tasks.values():
        for name, heard in (record.dependencies | record.children).items():
            assert heard.finished == (
                name in tasks and tasks[name].state in (Status.COMPLETED, Status.CANCELLED)
            ), name
        waits = any(
            not heard.finished for heard in (record.dependencies | record.children).values()
        )
        if record.state in (Status.PENDING, Status.BACKLOG):
            assert not waits
        if record.state is Status.BLOCKED:
            assert waits or record.early


def test_a_dependency_that_is_missing_never_counts_as_met() -> None:
    world = World()
    world.add("T", depends_on=("ghost",))
    world.settle()
    world.pass_time(1_000_000)
    world.ask(c.CheckDue(key_of("T"), SYSTEM))
    assert world.claim("T").outcome.reason == "DENIED_BLOCKED"
    world.add("ghost")
    world.finish("ghost")
    world.settle()
    assert world.claim("T").outcome.success


def test_a_task_that_waits_for_its_own_child_hears_of_it_as_dependency_and_as_child() -> None:
    world = World()
    world.add("T")
    world.add("T::1", parent="T", depth=1)
    world.settle()
    world.ask(c.EditTask(key_of("T"), changes={"depends_on": ("T::1",)}))
    world.settle()
    world.finish("T::1")
    world.settle()
    assert world.task("T").state is Status.PENDING
    world.ask(c.ResetTask(key_of("T::1")))
    world.settle()
    assert world.task("T").state is Status.BLOCKED


@holds_for(moves, cancelled)
def test_a_task_is_never_granted_to_anyone_while_it_knows_of_something_unfinished(
    moved: list[Move], policy: Policy
) -> None:
    world = graph(policy)
    for each in moved:
        move(world, each)
        for name, record in world.tasks.items():
            claim = c.ClaimTask(
                key_of(name), by("fresh", record.task.assigned_to or "anyone"), 30.0
            )
            decision = world.decide(claim)
            if (
                any(isinstance(happened, e.ClaimAcquired) for happened in decision.events)
                and decision.outcome.success
            ):
                after: TaskRecord = decision.record
                assert all(
                    heard.finished for heard in (after.dependencies | after.children).values()
                )
                assert not after.spawning
            offered = index_of(record).pool is not None
            assert not (
                offered
                and any(
                    not heard.finished for heard in (record.dependencies | record.children).values()
                )
            )


@holds_for(moves, cancelled)
def test_told_and_wants_name_all_that_a_decision_rests_on(
    moved: list[Move], policy: Policy
) -> None:
    world = graph(policy)
    for each in moved:
        move(world, each)
        for name in list(world.tasks):
            for command in (
                c.ClaimTask(key_of(name), by("s1", "alice"), 30.0),
                c.CheckDue(key_of(name), SYSTEM),
            ):
                facts = world.facts(command)
                fuller = replace(facts, others={**facts.others, **all_unmet(world, name)})
                assert judged(world, command, facts) == judged(world, command, fuller)


def test_a_claim_that_ends_an_overdue_one_looks_at_the_dependencies_itself() -> None:
    # T was under way when D was reset; D is done again, but the news was cut off; then T's holder
    # lets its lease run out.
    world = World()
    world.add("D")
    world.add("T", depends_on=("D",))
    world.finish("D")
    world.settle()
    world.claim("T", lease=30.0)
    world.ask(c.ResetTask(key_of("D")))
    world.settle()
    world.finish("D")
    world.undelivered.clear()
    world.pass_time(31)
    assert world.claim("T", "s2", "bob").outcome.reason is ClaimReason.GRANTED


def test_a_claim_that_ends_a_hold_looks_at_the_dependencies_itself() -> None:
    world = World(policy=Policy(expired=Expired.HUMAN, claim_ttl_seconds=100.0))
    world.add("D")
    world.add("T", depends_on=("D",))
    world.finish("D")
    world.settle()
    world.claim("T", lease=30.0)
    world.ask(c.ResetTask(key_of("D")))
    world.settle()
    world.pass_time(31)
    world.ask(c.CheckDue(key_of("T")))
    assert world.task("T").state is Status.HELD
    world.finish("D")
    world.undelivered.clear()
    world.pass_time(100)
    assert world.claim("T", "s2", "bob").outcome.reason is ClaimReason.GRANTED


def all_unmet(world: World, name: str) -> dict[str, ObservedTask]:
    """How everything stands that the task believes unfinished, and everything that has nothing to
    do with it."""
    record = world.task(name)
    known = record.dependencies | record.children
    return {
        other: seen
        for other, task in world.tasks.items()
        if (seen := world.seen(other)) is not None
        and (not known[other].finished if other in known else task.task.parent != name)
    }


def judged(world: World, command: c.Command, facts: Facts) -> Any:
    try:
        decision = world.decide(command, facts)
    except GenlockError as error:
        return type(error)
    return decision.outcome, decision.events


# The other records


other_commands = st.lists(
    st.one_of(
        st.builds(
            lambda data, kind: c.RegisterSession(key_of("s", keys.SESSION), by("s"), kind, data),
            metadata,
            texts,
        ),
        st.builds(
            lambda data: c.HeartbeatSession(key_of("s", keys.SESSION), by("s"), data), metadata
        ),
        st.just(c.EndSession(key_of("s", keys.SESSION), by("s"))),
        st.builds(
            lambda n: c.TakeIds(key_of("n", keys.COUNTER), prefix="n", count=n),
            st.integers(0, 2**40),
        ),
        st.builds(
            lambda policy, tracks: c.ChangeProject(
                key_of("shop", keys.PROJECT), policy=policy, tracks=tracks
            ),
            st.dictionaries(
                st.sampled_from(Policy.__struct_fields__),
                st.integers(-1, 100) | st.floats() | texts,
                max_size=2,
            ),
            st.none() | st.dictionaries(texts, texts, max_size=2),
        ),
        st.builds(
            lambda profile, most: c.ChangeTenant(
                key_of("acme", keys.TENANT), profile=profile, limits=most
            ),
            st.sampled_from([None, "local", "default", "enterprise"]),
            st.dictionaries(
                st.sampled_from(TenantLimits.__struct_fields__),
                st.none() | st.integers(0, 100) | st.floats(0, 1e6),
                max_size=2,
            ),
        ),
        st.builds(
            lambda cursor, seen: c.MoveSettled(
                key_of("settled", keys.SETTLED), cursor=cursor, seen=seen
            ),
            texts,
            texts,
        ),
        st.builds(
            lambda reason, count, now: c.NoteDenials(
                key_of("h", keys.ACCESS), denials=(c.Denial("T", "s", "a", reason, count, now),)
            ),
            texts,
            st.integers(1, 9),
            st.datetimes(timezones=st.timezones()),
        ),
        seconds,
    ),
    max_size=20,
)


@holds_for(other_commands)
def test_every_other_record_too_is_the_fold_of_its_decoded_events(
    commands: list[c.Command | float],
) -> None:
    world = World()
    for command in commands:
        if isinstance(command, float):
            world.pass_time(command)
            continue
        before = codec_of(world.cell(command.key).record)
        try:
            world.ask(command)  # compares, to the byte
        except GenlockError:
            assert codec_of(world.cell(command.key).record) == before
    world.reload()


def codec_of(record: Record | None) -> bytes:
    return b"" if record is None else codec.encode_record(record)


LONGEST = {
    "grace_seconds": 3_155_760_000.0,
    "claim_ttl_seconds": 3_155_760_000.0,
    "stale_threshold_seconds": 3_155_760_000.0,
    "lock_timeout_hours": 876_600.0,
}
"""A hundred years: the longest that a policy may name."""


IN_2126 = {
    ("grace_seconds", Expired.GRACE): ["claimed 2126-01-05 06:01", "overdue 2126-01-05 06:01"],
    ("claim_ttl_seconds", Expired.HUMAN): ["overdue 2126-01-05 06:01"],
    ("lock_timeout_hours", Expired.TAKEOVER): ["assigned 2126-01-05 06:01"],
    ("lock_timeout_hours", Expired.GRACE): ["assigned 2126-01-05 06:01"],
}
"""The steps at which such a policy puts something off by a hundred years. The stale threshold is
only compared with a silence and puts nothing off. With `human` the hold ends long before the
reservation does."""


@pytest.mark.parametrize("expired", Expired)
@pytest.mark.parametrize(("name", "longest"), LONGEST.items())
def test_longest_accepted_policy_stays_within_the_calendar(
    name: str, longest: float, expired: Expired
) -> None:
    world = World(policy=change_policy(Policy(), {"expired": expired, name: longest}))
    far: list[str] = []

    def look(step: str) -> None:
        micros = index_of(world.task("T")).due_at
        due = START + timedelta(microseconds=micros - microseconds(START)) if micros else START
        if due.year > 2026:
            far.append(f"{step} {due:%Y-%m-%d %H:%M}")

    world.add("T")
    world.claim("T")
    look("claimed")
    world.pass_time(61)
    world.ask(c.CheckDue(key_of("T")))
    look("overdue")
    world.ask(c.AssignTask(key_of("T"), agent="bob", take_over=True))
    look("assigned")
    assert far == IN_2126.get((name, expired), [])


@pytest.mark.parametrize(("name", "longest"), LONGEST.items())
@pytest.mark.parametrize("beyond", [1, 1e8, 1e11, 1e14])
def test_policy_longer_than_a_hundred_years_is_refused(
    name: str, longest: float, beyond: float
) -> None:
    with pytest.raises(BadArgument, match=f"policy {name}: .* out of range"):
        change_policy(Policy(), {name: longest + beyond})


def test_a_limit_that_would_lead_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(BadArgument, match="min_lease_duration_seconds"):
        change_limits(TenantLimits(), {"min_lease_duration_seconds": 1e12})
    longest = change_limits(TenantLimits(), {"min_lease_duration_seconds": 3_155_760_000})
    world = World()
    world.add("T")
    world.claim("T")
    world.limits = longest
    assert world.ask(c.RenewLease(key_of("T"), by("s1"), 1)).outcome.success


def test_metadata_nested_as_deep_as_may_be_is_taken_or_refused_and_the_coordinator_lives_on() -> (
    None
):
    store = MemoryStore(clock=ManualClock())
    answers: list[str] = []

    def claim() -> None:
        with genlock.connect(
            store.handle(clock=ManualClock()), session_id="s1", agent_id="alice"
        ) as fleet:
            fleet.add_tasks(tasks=["T"])
            nested: list[Any] = []
            for depth in range(1, 1100):
                nested = [nested]
                if depth < 900:
                    continue
                try:
                    fleet.claim_task(task_id="T", metadata={"x": nested}, agent_id="alice")
                    fleet.force_release(task_id="T", take_over=True)
                    answers.append(fleet.get_task_state(task_id="T").state)
                except GenlockError as error:
                    answers.append(type(error).__name__)

    # In a thread of its own: how deep is too deep depends on how deep one stands already.
    thread = threading.Thread(target=claim)
    thread.start()
    thread.join(60)
    assert set(answers) <= {Status.PENDING, "BadArgument"}
    assert answers[-1] == "BadArgument"
    assert check(store) == []


def test_whole_numbers_where_fractions_are_expected_are_kept_as_what_they_read_back_as() -> None:
    store = MemoryStore(clock=ManualClock())
    with genlock.connect(
        store.handle(clock=ManualClock()), session_id="s1", agent_id="alice"
    ) as fleet:
        fleet.set_policy(
            policy={
                "expired": "grace",
                "grace_seconds": 5,
                "claim_ttl_seconds": 7,
                "lock_timeout_hours": 2,
            }
        )
        fleet.set_policy(
            limits={
                "min_lease_duration_seconds": 2,
                "max_lease_duration_seconds": 900,
                "claim_history_retention_days": 3,
            }
        )
        fleet.add_tasks(
            tasks=[
                {
                    "id": "a",
                    "lease_seconds": 60,
                    "estimate_seconds": 90,
                    "lock_timeout_hours": 1,
                    "assigned_to": "alice",
                }
            ]
        )
        fleet.add_tasks(tasks=["b"])
        claim = fleet.claim_next(lease_duration_seconds=30).claim
        assert claim is not None
        fleet.renew_lease(task_id=claim.task_id, expected_generation=1, lease_duration_seconds=1)
        fleet.edit_task(
            task_id="b",
            changes={"lease_seconds": 40, "estimate_seconds": 1, "lock_timeout_hours": 3},
        )
        fleet.assign_task(task_id="b", agent_id="bob", hours=1)
        fleet.claim_task(
            task_id="b", agent_id="bob", lease_duration_seconds=20, metadata={"n": 1, "f": 1.0}
        )
        fleet.submit_result(task_id="b", generation=1, result_data={"n": 1, "f": 1.0})
    assert check(store) == []
    store.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MANY_TIMES)
def test_this_property_holds_many_times_over(name: str) -> None:
    MANY_TIMES[name]()
