"""Pools and order: which tasks the same workers may take, and which of them comes first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core import commands as c
from genlock.core.model import TaskRecord
from genlock.core.policy import Order, Policy
from genlock.core.routing import Pool, order_of, parse_pool, pool_of
from genlock.core.rules import index_of
from tests.core.world import World, by, key_of


def record(name: str = "x", order: Order = Order.TRACK, **fields: Any) -> TaskRecord:
    world = World(policy=Policy(order=order))
    world.pass_time(fields.pop("added_at", 0))
    world.add(name, **fields)
    return world.task(name)


def sorted_by_order(*records: TaskRecord) -> list[str]:
    return [task.task.id for task in sorted(records, key=lambda task: order_of(task).encode())]


def test_a_pool_names_track_edge_roles_assignee_and_whether_it_is_the_backlog() -> None:
    assert pool_of(record()) == "////"
    assert (
        pool_of(record(track="A", edge="design", roles=("coder", "tester"), assigned_to="alice"))
        == "A/design/coder,tester/alice/"
    )
    assert pool_of(record(track="A", backlog=True)) == "A////backlog"


@given(
    st.sampled_from(["", "A", "BC"]),
    st.sampled_from(["", "design_code"]),
    st.lists(st.sampled_from(["coder", "full stack", "tester-2"]), max_size=2, unique=True),
    st.sampled_from(["", "alice", "böb, the 2nd: (x)"]),
    st.booleans(),
)
def test_a_pool_reads_back_as_its_parts(
    track: str, edge: str, roles: list[str], assignee: str, backlog: bool
) -> None:
    made = record(
        track=track or None,
        edge=edge or None,
        roles=tuple(roles),
        assigned_to=assignee or None,
        backlog=backlog,
    )
    assert parse_pool(pool_of(made)) == Pool(
        track, edge, ",".join(roles), assignee, "backlog" if backlog else ""
    )


@pytest.mark.parametrize(
    ("pool", "agent", "tracks", "backlog", "suits"),
    [
        ("A////", "alice", None, False, True),
        ("A////", "alice", {"A", "B"}, False, True),
        ("A////", "alice", {"B"}, False, False),
        ("////", "alice", {"B"}, False, False),
        ("A///alice/", "alice", None, False, True),
        ("A///alice/", "bob", None, False, False),
        ("A////backlog", "alice", None, False, False),
        ("A////backlog", "alice", None, True, True),
    ],
)
def test_a_pool_suits_whoever_may_take_its_tasks(
    pool: str, agent: str, tracks: set[str] | None, backlog: bool, suits: bool
) -> None:
    assert parse_pool(pool).suits(agent=agent, tracks=tracks, backlog=backlog) is suits


def test_in_a_track_priority_comes_first_and_then_the_sequence() -> None:
    low = record("A-001-a", track="A", sequence=1, priority="low")
    first, second, last = (record(f"A-{n:03d}-x", track="A", sequence=n) for n in (2, 10, 999))
    urgent = record("A-998-z", track="A", sequence=998, priority="critical")
    high = record("A-997-z", track="A", sequence=997, priority="high")
    numberless = record("slug")
    assert sorted_by_order(numberless, last, low, second, first, high, urgent) == [
        "A-998-z",
        "A-997-z",
        "A-002-x",
        "A-010-x",
        "A-999-x",
        "slug",
        "A-001-a",
    ]


def test_tasks_without_a_number_come_in_the_order_in_which_they_were_added() -> None:
    assert sorted_by_order(
        record("b", added_at=2), record("c", added_at=1), record("a", added_at=3)
    ) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("parent", "mark"), [("A-001-x", "::"), ("x", "::"), ("0001", "_t"), ("0001_t1", ".")]
)
def test_subtasks_come_by_their_numbers(parent: str, mark: str) -> None:
    sequence = 1 if parent.startswith("A") else None
    names = [f"{parent}{mark}{number}" for number in (1, 2, 9, 10, 11, 99, 100)]
    assert sorted_by_order(*(record(name, sequence=sequence) for name in reversed(names))) == names


def test_leaf_first_takes_the_childless_then_the_deepest_then_the_latest() -> None:
    world = World(policy=Policy(order=Order.LEAF_FIRST))
    world.add("0001")
    world.add("0001_t1", parent="0001", depth=1)
    world.add("0001_t2", parent="0001", depth=1)
    world.add("0001_t10", parent="0001", depth=1)
    world.add("0001_t1.1", parent="0001_t1", depth=2)
    world.add("0002")
    world.add("A000")
    world.add("AA00")
    world.settle()
    assert sorted_by_order(*world.tasks.values()) == [
        "0001_t1.1",
        "0001_t10",
        "0001_t2",
        "AA00",
        "A000",
        "0002",
        "0001_t1",
        "0001",
    ]


def test_a_task_that_gets_a_child_moves_behind_the_leaves() -> None:
    world = World(policy=Policy(order=Order.LEAF_FIRST))
    world.add("0001_t1", parent=None, depth=1)
    before = order_of(world.task("0001_t1"))
    world.add("0001_t1.1", parent="0001_t1", depth=2)
    world.settle()
    assert order_of(world.task("0001_t1")) > before


def test_the_strategy_is_kept_with_the_task_and_changed_by_reordering() -> None:
    world = World()
    world.add("0001", sequence=None)
    by_track = order_of(world.task("0001"))
    world.ask(c.ReorderTask(key_of("0001"), order=Order.LEAF_FIRST))
    assert order_of(world.task("0001")) != by_track
    world.ask(c.ReorderTask(key_of("0001"), order=Order.TRACK))
    assert order_of(world.task("0001")) == by_track


def test_closest_to_done_puts_tasks_of_features_first_and_each_kind_in_track_order() -> None:
    order = Order.CLOSEST_TO_DONE
    made = [
        record("B-001-late", order, track="B", sequence=1, priority="low"),
        record("A-002-x", order, track="A", sequence=2),
        record("AUTH:test", order, feature="AUTH", edge="test", added_at=2),
        record("PAY:code", order, feature="PAY", edge="code", added_at=1),
        record("A-003-x", order, track="A", sequence=3, feature="PAY"),
    ]
    assert sorted_by_order(*made) == ["A-003-x", "PAY:code", "AUTH:test", "A-002-x", "B-001-late"]


@pytest.mark.parametrize(
    ("order", "expected"), [(Order.CLOSEST_TO_DONE, ("+a", "@AUTH")), (Order.TRACK, ("+a",))]
)
def test_while_it_is_offered_a_task_is_found_by_its_feature(
    order: Order, expected: tuple[str, ...]
) -> None:
    world = World(policy=Policy(order=order))
    world.add("a")
    world.add("AUTH:code", feature="AUTH", depends_on=("a",))
    world.settle()
    assert index_of(world.task("AUTH:code")).waits_on == ("a",)
    world.finish("a")
    world.settle()
    assert index_of(world.task("AUTH:code")).waits_on == expected
    world.claim("AUTH:code")
    assert index_of(world.task("AUTH:code")).waits_on == ("+a",)


@given(st.integers(1, 10**15 - 1), st.integers(1, 10**15 - 1), st.sampled_from(list(Order)))
def test_orders_compare_as_bytes_as_their_numbers_do(one: int, other: int, order: Order) -> None:
    made = [record(f"x::{number}", order=order, added_at=0) for number in (one, other)]
    if one != other:
        assert (order_of(made[0]) < order_of(made[1])) == (
            one > other if order is Order.LEAF_FIRST else one < other
        )
    assert all(order_of(each).isascii() for each in made)


@pytest.mark.parametrize("verb", ["claim", "hold", "cancel", "finish"])
def test_only_what_could_be_claimed_is_in_a_pool(verb: str) -> None:
    world = World()
    world.add("x")
    assert index_of(world.task("x")).pool == "////"
    match verb:
        case "claim":
            world.claim("x")
        case "hold":
            world.ask(c.HoldTask(key_of("x")))
        case "cancel":
            world.ask(c.CancelTask(key_of("x")))
        case _:
            world.finish("x")
    index = index_of(world.task("x"))
    assert (index.pool, index.order) == (None, None)


def test_the_index_finds_dependents_by_what_blocks_them_and_by_what_no_longer_does() -> None:
    world = World()
    world.add("a")
    world.add("b")
    world.add("x", depends_on=("a", "b"), parent="b")
    world.finish("a")
    world.settle()
    index = index_of(world.task("x"))
    assert index.waits_on == ("+a", "b")
    assert (index.state, index.parent, index.session) == ("BLOCKED", "b", None)


def test_the_index_names_the_session_only_while_its_claim_is_live() -> None:
    world = World()
    world.add("x")
    world.claim("x", lease=30.0)
    assert index_of(world.task("x")).session == "s1"
    world.now += timedelta(seconds=30)
    world.ask(c.CheckDue(key_of("x"), by("s2")))
    assert index_of(world.task("x")).session is None
