"""What a plan has to say of the backlog, and what not."""

from __future__ import annotations

from genlock.core import codec
from genlock.core import commands as c
from genlock.core.reasons import Status, Verdict
from tests.core.world import World, key_of

T = key_of("T")
SHELVE, OPEN = c.EditTask(T, backlog=True), c.EditTask(T, backlog=False)


def test_a_plan_puts_nothing_into_the_backlog_that_somebody_has_begun_meanwhile() -> None:
    world = World()
    world.add("T")
    assert world.decide(SHELVE).outcome.state is Status.BACKLOG
    world.claim("T")
    assert world.decide(SHELVE).outcome.verdict is Verdict.UNCHANGED
    world.ask(c.ForceRelease(T, take_over=True))
    assert world.decide(SHELVE).outcome.verdict is Verdict.UNCHANGED


def test_a_plan_opens_what_is_in_the_backlog_and_lifts_no_hold() -> None:
    world = World()
    world.add("T", backlog=True)
    assert world.decide(OPEN).outcome.state is Status.PENDING
    world.ask(c.HoldTask(T))
    assert world.ask(OPEN).outcome.state is Status.HELD
    assert world.ask(c.ReopenTask(T)).outcome.state is Status.PENDING


def test_a_plan_leaves_alone_where_what_is_over_once_was() -> None:
    world = World()
    world.add("T", backlog=True)
    world.ask(c.CancelTask(T))
    assert world.decide(OPEN).outcome.verdict is Verdict.UNCHANGED


def test_an_edit_that_says_nothing_of_the_backlog_leaves_it_alone_and_writes_nothing_of_it() -> (
    None
):
    world = World()
    world.add("T", backlog=True)
    edited = world.ask(c.EditTask(T, changes={"title": "t"}))
    assert edited.outcome.state is Status.BACKLOG
    assert b'"backlog"' not in codec.encode_event(edited.events[-1], 2, b"").body
