"""A project hears of an epoch once, by an event."""

from __future__ import annotations

from genlock.core import commands as c
from genlock.core import keys
from genlock.core.events import EpochRaised
from genlock.core.model import ProjectRecord
from tests.core.world import World, key_of

PROJECT = key_of("shop", keys.PROJECT)


def known(world: World) -> int:
    record = world.cell(PROJECT).record
    assert isinstance(record, ProjectRecord)
    return record.epoch


def raised(world: World) -> list[tuple[int, int]]:
    """What is written down of the epoch that the world is in: it, and the one before."""
    return [(event.epoch, event.previous) for event in world.ask(c.NoteEpoch(PROJECT)).events if isinstance(event, EpochRaised)]


def test_a_later_epoch_is_written_down_once() -> None:
    world = World()
    world.ask(c.ChangeProject(PROJECT))
    world.epoch = 3
    assert raised(world) == [(3, 0)]
    assert raised(world) == []
    world.epoch = 7
    assert raised(world) == [(7, 3)]


def test_an_earlier_epoch_is_no_news() -> None:
    world = World(epoch=3)
    world.ask(c.ChangeProject(PROJECT))
    world.epoch = 2
    assert raised(world) == []
    assert known(world) == 3


def test_a_project_that_is_made_in_an_epoch_knows_it() -> None:
    world = World(epoch=3)
    world.ask(c.ChangeProject(PROJECT))
    assert known(world) == 3
    assert raised(world) == []


def test_a_change_of_policy_does_not_forget_the_epoch() -> None:
    world = World(epoch=3)
    world.ask(c.ChangeProject(PROJECT))
    world.ask(c.ChangeProject(PROJECT, policy={"grace_seconds": 5}))
    assert known(world) == 3


def test_a_project_that_is_not_there_is_not_made_by_it() -> None:
    world = World(epoch=3)
    assert raised(world) == []
    assert world.cell(PROJECT).record is None
