"""Splitting a task: which subtasks are made, which are refused, and what room there is for them in
the parent's record."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from genlock.core import codec
from genlock.core import commands as c
from genlock.core.decision import Decision
from genlock.core.ids import LONGEST_ID
from genlock.core.model import (
    Act,
    Claim,
    Hold,
    Holder,
    KnownState,
    Released,
    Result,
    Task,
    TaskRecord,
)
from genlock.core.policy import (
    MAX_DEFINITION_BYTES,
    MAX_DEPENDENCIES,
    MAX_INLINE_RESULT_BYTES,
    MAX_SPAWN_BYTES,
)
from genlock.core.reasons import ClaimState, ReleaseReason, SpawnMode, Status
from genlock.core.task.hold import LONGEST_REASONS
from genlock.core.task.operate import EARLIER_ACTS
from genlock.core.task.spawn import lacks_room
from genlock.errors import BadArgument, NotAllowed, TaskExists
from genlock.store import Limits
from tests.core.world import START, World, by, key_of


def child(name: str, parent: str = "P", **fields: Any) -> Task:
    return Task(id=name, parent=parent, depth=1, spawned_from=parent, **fields)


def spawn(
    world: World,
    *children: Task,
    mode: SpawnMode = SpawnMode.PARALLEL,
    keep: bool = True,
    operation: str = "",
) -> Decision:
    generation = world.task("P").generation
    return world.ask(
        c.SpawnSubtasks(key_of("P"), by("s1", "alice"), generation, children, mode, keep, operation)
    )


@pytest.fixture
def world() -> World:
    world = World()
    world.add("P")
    world.claim("P")
    return world


@pytest.mark.parametrize("made", [False, True])
def test_a_child_named_again_is_refused_if_it_is_defined_otherwise_whether_or_not_it_was_made_yet(
    world: World, made: bool
) -> None:
    spawn(world, child("x", title="one"))
    if made:
        world.settle()
    before = world.task("P")
    with pytest.raises(TaskExists, match="subtask 'x' exists already, with another definition"):
        spawn(world, child("y"), child("x", title="another"))
    assert world.task("P") == before
    again = spawn(world, child("x", title="one"))
    assert (again.outcome.success, again.outcome.children, again.events) == (True, ("x",), ())


def test_a_child_that_a_plan_brought_or_that_is_reserved_is_still_the_same(world: World) -> None:
    world.add("P::1", parent="P", depth=1, assigned_to="bob")
    world.settle()
    again = spawn(world, child("P::1"))
    assert (again.outcome.success, [type(event).__name__ for event in again.events]) == (
        True,
        ["SubtasksSpawned"],
    )
    assert spawn(world, child("P::1")).events == ()


def test_a_task_that_is_nobody_s_child_or_another_s_is_refused(world: World) -> None:
    world.add("x")
    with pytest.raises(NotAllowed, match="task 'x' exists already; give the subtask another id"):
        spawn(world, child("x"))


def test_whoever_may_not_write_is_told_so_before_anything_is_said_of_names(world: World) -> None:
    world.add("x")
    answer = world.ask(c.SpawnSubtasks(key_of("P"), by("s2"), 1, (child("x"),))).outcome
    assert (answer.success, answer.reason) == (False, "SESSION_MISMATCH")


def test_another_mode_is_taken_although_no_child_is_new(world: World) -> None:
    spawn(world, child("x"))
    spawn(world, child("x"), mode=SpawnMode.SEQUENTIAL)
    assert world.task("P").spawn_mode is SpawnMode.SEQUENTIAL
    assert world.task("P").claim is not None
    spawn(world, child("x"), mode=SpawnMode.FAN_OUT_FAN_IN, keep=False)
    parent = world.task("P")
    assert (parent.spawn_mode, parent.claim, parent.state) == (
        SpawnMode.FAN_OUT_FAN_IN,
        None,
        Status.BLOCKED,
    )
    assert parent.released == Released(1, "s1", ReleaseReason.SPAWNED)


@pytest.mark.parametrize("keep", [False, True])
def test_a_repeat_is_answered_alike_however_much_is_still_to_be_made(
    world: World, keep: bool
) -> None:
    large = [child(f"x{n}", description="d" * 10_000) for n in range(4)]
    first = spawn(world, *large, keep=keep, operation="op")
    again = spawn(world, *large, keep=keep, operation="op")
    assert (again.outcome, again.events) == (first.outcome, ())
    # Not so if it is another act.
    if keep:
        with pytest.raises(BadArgument, match="spawn the rest in a second call"):
            spawn(world, *(child(f"y{n}", description="d" * 10_000) for n in range(4)))


def test_a_repeat_names_the_children_as_they_were_made_and_those_that_were_there_too(
    world: World,
) -> None:
    spawn(world, child("x"))
    first = spawn(world, child("y"), child("P::1"), child("x"), child("P::2"), operation="op")
    # Whoever repeats it has been given other numbers.
    again = spawn(world, child("y"), child("P::3"), child("x"), child("P::4"), operation="op")
    assert first.outcome.children == again.outcome.children == ("y", "P::1", "x", "P::2")
    assert again.events == ()


# Room


def test_a_parent_never_gets_more_children_than_its_record_can_hold_to_the_end(
    world: World,
) -> None:
    made: list[str] = []
    refused = ""
    while not refused:
        names = [f"{'c' * 118}-{len(made) + n:04d}" for n in range(40)]
        try:
            spawn(world, *map(child, names))
        except BadArgument as error:
            refused = str(error)
        else:
            world.settle()
            made += names
    assert refused.startswith("the subtasks of 'P' could take ")
    assert "at most 65,536" in refused
    assert len(made) > 100
    for name in made:
        world.finish(name)
    world.settle()
    for name in made:
        world.ask(c.ResetTask(key_of(name), take_over=True))
    world.settle()
    parent = world.task("P")
    assert set(parent.inputs_changed) == set(made)
    assert len(codec.encode_record(parent)) + MAX_INLINE_RESULT_BYTES < Limits().body_bytes / 2


def test_about_a_thousand_children_of_common_names_have_room() -> None:
    assert lacks_room("A-001-x", [f"A-001-x::{n}" for n in range(900)]) is None
    assert lacks_room("A-001-x", [f"A-001-x::{n}" for n in range(1100)]) is not None


@pytest.mark.parametrize("length", [10, 60, LONGEST_ID])
def test_the_largest_record_that_can_come_about_is_one_that_stores_take(length: int) -> None:
    """With all that is large at once: definition, dependencies, children, all of them open again,
    and a result or subtasks to be made."""
    names = [f"{n:06d}".ljust(length, "x") for n in range(2000)]
    others = names[: min(MAX_DEPENDENCIES, MAX_DEFINITION_BYTES // (length + 3) - 2)]
    children: list[str] = []
    while lacks_room("P", [*children, names[len(children)]]) is None:
        children.append(names[len(children)])
    task = Task(id="P".ljust(length, "x"), depends_on=tuple(others))
    task = replace(
        task, description="d" * (MAX_DEFINITION_BYTES - len(msgspec.json.encode(task)) - 20)
    )
    heard = KnownState(1_000_000, Status.COMPLETED)
    waiting: list[Task] = []
    while len(
        msgspec.json.encode([*waiting, child(names[len(waiting)])])
    ) <= MAX_SPAWN_BYTES and len(waiting) < len(children):
        waiting.append(child(names[len(waiting)]))
    session = agent = "s" * 200
    metadata = {"m": "m" * 4000}
    claim = Claim(
        "claim-" + "0" * 32,
        session,
        agent,
        10**9,
        START,
        START,
        START,
        60.0,
        60.0,
        ClaimState.ACTIVE,
        metadata=metadata,
    )
    loser = Holder(agent, session, "u" * 200, START, START, True)
    under_way = TaskRecord(
        task=task,
        state=Status.IN_PROGRESS,
        created_at=START,
        updated_at=START,
        claim=claim,
        dependencies=dict.fromkeys(others, heard),
        children=dict.fromkeys(children, heard),
        spawning=tuple(waiting),
        hold=Hold("🔒" * LONGEST_REASONS, START),
        inputs_changed=(*others, *children),
        act=Act("o" * 200, session, "SUBTASKS_SPAWNED", tuple(each.id for each in waiting)),
        # Every child is of one spawn.
        acts=tuple(
            Act(
                "o" * 200,
                session,
                "SUBTASKS_SPAWNED",
                tuple(children[at::EARLIER_ACTS]),
                "a" * 16,
                loser,
            )
            for at in range(EARLIER_ACTS)
        ),
    )
    data = b'"' + b"r" * MAX_INLINE_RESULT_BYTES + b'"'
    result = Result(
        "r" * 40, 10**9, session, agent, "w" * 512, "d" * 64, len(data), START, data=Raw(data)
    )
    done = replace(under_way, state=Status.COMPLETED, claim=None, spawning=(), result=result)
    assert len(codec.encode_record(under_way)) < Limits().body_bytes
    assert len(codec.encode_record(done)) < Limits().body_bytes
