"""What a task remembers of the last act with an operation id."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from genlock.core import codec
from genlock.core import commands as c
from genlock.core.reasons import Verdict
from genlock.errors import OperationMismatch
from tests.core.world import World, by, key_of

T = key_of("T")
ASKED: dict[str, tuple[c.Command, c.Command]] = {
    "edit": (c.EditTask(T, changes={"title": "t"}, operation="op"), c.EditTask(T, changes={"title": "u"}, operation="op")),
    "assign": (c.AssignTask(T, agent="a", hours=1.0, operation="op"), c.AssignTask(T, agent="a", hours=5.0, operation="op")),
    "cancel": (c.CancelTask(T, reason="x", operation="op"), c.CancelTask(T, reason="y", operation="op")),
    "hold": (c.HoldTask(T, reason="x", operation="op"), c.HoldTask(T, reason="y", operation="op")),
}


def remembering(command: c.Command) -> World:
    world = World()
    world.add("T")
    assert world.ask(command).outcome.verdict is Verdict.DONE
    return world


@pytest.mark.parametrize("name", ASKED)
def test_an_id_is_one_act_with_one_set_of_arguments(name: str) -> None:
    command, other = ASKED[name]
    world = remembering(command)
    world.reload()
    again = world.decide(command)
    assert (again.outcome.verdict, again.events) == (Verdict.DONE, ())
    with pytest.raises(OperationMismatch, match="with other arguments"):
        world.decide(other)


@pytest.mark.parametrize("name", ASKED)
def test_an_act_from_before_arguments_were_noted_is_answered_as_it_was_then(name: str) -> None:
    command, other = ASKED[name]
    world = remembering(command)
    record = world.task("T")
    assert record.act is not None
    world.cell(T).record = replace(record, act=replace(record.act, arguments=""))
    assert b"arguments" not in codec.encode_record(world.task("T"))
    assert world.decide(command).outcome.verdict is Verdict.DONE
    assert world.decide(other).outcome.verdict is Verdict.DONE


def test_the_order_in_which_fields_are_given_is_no_argument() -> None:
    one = c.EditTask(T, by("s1"), changes={"title": "t", "priority": "high"}, operation="op")
    other = c.EditTask(T, by("s1"), changes={"priority": "high", "title": "t"}, operation="op")
    assert remembering(one).decide(other).outcome.verdict is Verdict.DONE
