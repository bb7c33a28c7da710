"""A submission has a short way for tasks that were never split; it is the same result."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from genlock.core import codec
from genlock.core import commands as c
from genlock.core.model import KnownState
from genlock.core.reasons import Status
from genlock.core.rules import decide
from tests.core.world import World, by, content, key_of

T = key_of("T")
PAYLOAD = c.Content("ab" * 32, 100_000, payload=True, payload_id="cd" * 16)
ASKED = {
    "plain": c.SubmitResult(T, by("s1"), 1, content({"a": 1})),
    "by another agent": c.SubmitResult(T, by("s1", "other"), 1, content({"a": 1})),
    "with a reference and an operation": c.SubmitResult(
        T, by("s1", "a1"), 1, replace(content([]), reference="ref"), "op"
    ),
    "large": c.SubmitResult(T, by("s1", "a1"), 1, PAYLOAD),
}


@pytest.mark.parametrize("steps_back", [0, 60])
@pytest.mark.parametrize("name", ASKED)
def test_the_result_of_a_task_with_finished_children_and_without_any_is_the_same_to_the_byte(
    name: str, steps_back: int
) -> None:
    world = World()
    world.add("T")
    assert world.ask(c.ClaimTask(T, by("s1", "a1"))).outcome.success
    record, command = world.task("T"), ASKED[name]
    facts = replace(world.facts(command), now=world.now - timedelta(seconds=steps_back))
    parent = replace(record, children={"T::1": KnownState(3, Status.COMPLETED)})
    short, long = decide(record, command, facts), decide(parent, command, facts)
    assert short.outcome == long.outcome
    assert short.outcome.accepted
    assert [codec.encode_event(event, 3, b"") for event in short.events] == [
        codec.encode_event(event, 3, b"") for event in long.events
    ]
    assert codec.encode_record(short.record) == codec.encode_record(
        replace(long.record, children={})
    )
    assert (short.followups, long.followups) == ((), ())
