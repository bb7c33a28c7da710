"""Features: whatever becomes of their tasks, and however late they hear of it, they know what is
left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genlock.core import commands as c
from genlock.core.facts import Facts, ObservedTask
from genlock.core.keys import FEATURE
from genlock.core.model import FeatureRecord, KnownState, Task
from genlock.core.policy import Order, Policy
from genlock.core.reasons import FINISHED, Status, Verdict
from genlock.core.records.feature import FEATURES, MOST_TASKS
from genlock.core.rules import decide, index_of
from tests.core.world import START, World, by, key_of

AUTH = key_of("AUTH", FEATURE)


def a_world(order: Order = Order.CLOSEST_TO_DONE) -> World:
    return World(policy=Policy(order=order))


def feature(world: World) -> FeatureRecord:
    record = world.cell(AUTH).record
    assert isinstance(record, FeatureRecord)
    return record


def left(world: World) -> tuple[list[str], list[str]]:
    """Its unfinished and its finished tasks."""
    return sorted(feature(world).unfinished), sorted(feature(world).finished)


def act(world: World, verb: str, name: str) -> None:
    """One thing that may happen to a task; nothing if it cannot happen now."""
    if name not in world.tasks:
        world.add(name, feature="AUTH", edge=name)
        return
    state = world.task(name).state
    match verb:
        case "finish" if state in (Status.PENDING, Status.BACKLOG):
            world.finish(name)
        case "claim":
            world.claim(name)
        case "cancel" if state not in FINISHED:
            world.ask(c.CancelTask(key_of(name), by("", "op"), take_over=True))
        case "reset":
            world.ask(c.ResetTask(key_of(name), by("", "op"), take_over=True))
        case "hold" if state not in FINISHED:
            world.ask(c.HoldTask(key_of(name), by("", "op")))
        case "reorder":
            world.ask(c.ReorderTask(key_of(name), order=Order.TRACK))
            world.ask(c.ReorderTask(key_of(name), order=Order.CLOSEST_TO_DONE))
        case _:
            pass


VERBS = st.sampled_from(["add", "finish", "claim", "cancel", "reset", "hold", "reorder"])
NAMES = st.sampled_from(["a", "b", "c"])
ACTS = st.lists(st.tuples(VERBS, NAMES, st.integers(0, 9), st.integers(0, 3)), max_size=25)


@settings(max_examples=100)
@given(ACTS, st.randoms(use_true_random=False))
def test_reactions_that_come_late_twice_or_in_another_order_leave_the_same_count(
    acts: list[tuple[str, str, int, int]], chance: Any
) -> None:
    """Each is decided once at least, on the tasks as they were when it began or at any time later.
    None is decided on fresh tasks after all the others: that would mend everything."""
    world = a_world()
    under_way: list[tuple[c.CountTasks, Facts | None]] = []
    heard: list[tuple[c.CountTasks, Facts]] = []
    for verb, name, deliver, repeat in acts:
        act(world, verb, name)
        for reaction in world.undelivered:
            if isinstance(reaction.command, c.CountTasks):
                facts = world.facts(reaction.command) if chance.random() < 0.5 else None
                under_way.append((reaction.command, facts))
        world.undelivered.clear()
        for _ in range(min(deliver, len(under_way))):
            command, known = under_way.pop(chance.randrange(len(under_way)))
            heard.append((command, known or world.facts(command)))
            decide_on(world, *heard[-1])
        for command, facts in heard[-repeat:] if repeat else ():
            decide_on(world, command, facts)
    chance.shuffle(under_way)
    for command, known in under_way:
        heard.append((command, known or world.facts(command)))
        decide_on(world, *heard[-1])
    chance.shuffle(heard)
    for command, facts in heard:
        decide_on(world, command, facts)
    if not world.tasks:
        return
    unfinished = {name for name, task in world.tasks.items() if task.state not in FINISHED}
    assert left(world) == (sorted(unfinished), sorted(world.tasks.keys() - unfinished))
    assert (index_of(feature(world)).pool == FEATURES) is bool(unfinished)


def decide_on(world: World, command: c.CountTasks, facts: Facts) -> None:
    """The feature as it is now is told of tasks as they were then."""
    cell = world.cell(command.key)
    decision = decide(cell.record, command, facts)
    for event in decision.events:
        world._append(command.key, cell, event)
    if decision.events:
        cell.record = decision.record


@pytest.mark.parametrize(
    ("before", "between", "after", "expected"),
    [
        ((), "finish", "reset", (["a"], [])),
        (("finish",), "reset", "finish", ([], ["a"])),
    ],
)
def test_news_from_in_between_changes_nothing_once_the_feature_has_heard_of_what_came_after(
    before: tuple[str, ...], between: str, after: str, expected: tuple[list[str], list[str]]
) -> None:
    world = a_world()
    for verb in ("add", *before):
        act(world, verb, "a")
    world.settle()
    act(world, between, "a")
    (late,) = [
        reaction.command
        for reaction in world.undelivered
        if isinstance(reaction.command, c.CountTasks)
    ]
    world.undelivered.clear()
    facts = world.facts(late)
    act(world, after, "a")
    world.settle()
    decision = world.decide(late, facts)
    assert (decision.outcome, decision.events) == (Verdict.UNCHANGED, ())
    assert left(world) == expected


def test_a_feature_is_ordered_by_what_is_left_then_by_what_is_done_then_by_name() -> None:
    world = a_world()
    for name in ("AUTH", "PAY", "LOG", "NET"):
        for edge in ("x", "y", "z"):
            world.add(f"{name}:{edge}", feature=name)
    world.add("NET:w", feature="NET")
    world.finish("PAY:x")
    world.finish("NET:w")
    world.finish("NET:x")
    world.settle()
    records = [world.cell(key_of(name, FEATURE)).record for name in ("AUTH", "PAY", "LOG", "NET")]
    orders = sorted(index_of(record).order or "" for record in records if record is not None)
    assert orders == ["00029997NET", "00029998PAY", "00039999AUTH", "00039999LOG"]


def test_only_the_order_closest_to_done_counts_features() -> None:
    world = a_world(Order.TRACK)
    world.add("a", feature="AUTH")
    world.add("b", feature="AUTH")
    world.finish("b")
    world.settle()
    assert world.cell(AUTH).record is None
    for name in ("a", "b"):
        world.ask(c.ReorderTask(key_of(name), order=Order.CLOSEST_TO_DONE))
    world.settle()
    assert left(world) == (["a"], ["b"])


def test_a_task_that_is_of_no_feature_or_of_another_is_not_counted() -> None:
    world = a_world()
    world.add("a")
    world.add("b", feature="PAY")
    world.settle()
    count = c.CountTasks(AUTH, others=(("a", 1), ("b", 1), ("c", 1)))
    assert world.ask(count).outcome is Verdict.UNCHANGED
    assert world.cell(AUTH).record is None


class Large:
    """A feature with as many tasks as one likes, by what is seen of each."""

    def __init__(self) -> None:
        self.record: FeatureRecord | None = None

    def hear(self, status: Status, version: int, *numbers: int) -> FeatureRecord:
        seen = {
            f"t{n}": ObservedTask(version, status, None, Task(id=f"t{n}", feature="AUTH"))
            for n in numbers
        }
        command = c.CountTasks(AUTH, others=tuple((name, version) for name in seen))
        self.record = decide(self.record, command, Facts(now=START, others=seen)).record or (
            self.record
        )
        assert self.record is not None
        return self.record


def test_of_more_tasks_than_it_can_know_a_feature_forgets_finished_ones_and_counts_them_on() -> (
    None
):
    large = Large()
    large.hear(Status.COMPLETED, 2, *range(10))
    record = large.hear(Status.PENDING, 1, *range(10, MOST_TASKS + 4))
    assert (len(record.unfinished), len(record.finished)) == (994, 6)
    assert (record.forgotten, record.done, record.crowded) == (4, 10, False)
    assert list(record.finished) == ["t4", "t5", "t6", "t7", "t8", "t9"]
    # Heard once more, a forgotten one is not counted twice; open again, it is known again.
    assert large.hear(Status.COMPLETED, 2, 0) == record
    again = large.hear(Status.PENDING, 3, 0)
    assert again.unfinished["t0"] == 3
    assert len(again.unfinished) + len(again.finished) == MOST_TASKS


def test_a_feature_with_too_many_unfinished_tasks_comes_last_and_is_never_taken_for_finished() -> (
    None
):
    large = Large()
    record = large.hear(Status.PENDING, 1, *range(MOST_TASKS + 1))
    assert (len(record.unfinished), record.crowded) == (MOST_TASKS, True)
    assert index_of(record).order == "99999999AUTH"
    record = large.hear(Status.COMPLETED, 2, *range(MOST_TASKS + 1))
    assert not record.unfinished
    assert index_of(record).pool == FEATURES
    assert index_of(record).order == "99998999AUTH"


def test_a_finished_feature_is_in_no_pool() -> None:
    large = Large()
    large.hear(Status.PENDING, 1, 1, 2)
    record = large.hear(Status.CANCELLED, 2, 1, 2)
    assert (index_of(record).pool, index_of(record).state) == (None, "FINISHED")
    assert record.finished == {"t1": 2, "t2": 2}
    assert KnownState(2, Status.CANCELLED).finished
