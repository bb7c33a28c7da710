"""Several holds of one task."""

from __future__ import annotations

from genlock.core import commands as c
from genlock.core.reasons import Status, Verdict
from genlock.core.task.hold import LONGEST_REASONS
from tests.core.world import World, key_of

T = key_of("T")


def test_a_hold_that_added_its_reason_is_an_act_that_is_done_once() -> None:
    world = World()
    world.add("T")
    world.ask(c.HoldTask(T, reason="legal"))
    budget = c.HoldTask(T, reason="budget", operation="op")
    assert world.ask(budget).outcome.verdict is Verdict.DONE
    world.ask(c.ReopenTask(T))
    again = world.decide(budget)
    assert (again.outcome.verdict, again.outcome.state, again.events) == (
        Verdict.DONE,
        Status.PENDING,
        (),
    )


def test_the_reasons_of_many_holds_have_an_end_and_the_last_is_whole() -> None:
    world = World()
    world.add("T")
    reasons = [f"{number}".ljust(1000, "x") for number in range(20)]
    for reason in reasons:
        assert world.ask(c.HoldTask(T, reason=reason)).outcome.verdict is Verdict.DONE
    hold = world.task("T").hold
    assert hold is not None
    assert len(hold.reason) <= LONGEST_REASONS
    assert hold.reason.startswith("0xxx")
    assert hold.reason.endswith(f"…; {reasons[-1]}")
