"""A project hears of an epoch once, by an event; a counter leaves out 1,000 numbers once, for those
that may have been lost."""

from __future__ import annotations

from genlock.core import codec, keys
from genlock.core import commands as c
from genlock.core.events import EpochRaised
from genlock.core.model import CounterRecord, ProjectRecord
from tests.core.world import START, World, key_of

PROJECT = key_of("shop", keys.PROJECT)


def known(world: World) -> int:
    record = world.cell(PROJECT).record
    assert isinstance(record, ProjectRecord)
    return record.epoch


def next_generation(world: World) -> list[tuple[int, int]]:
    """What is written down of the epoch that the world is in: it, and the one before."""
    return [
        (event.epoch, event.previous)
        for event in world.ask(c.NoteEpoch(PROJECT)).events
        if isinstance(event, EpochRaised)
    ]


def test_a_later_epoch_is_written_down_once() -> None:
    world = World()
    world.ask(c.ChangeProject(PROJECT))
    world.epoch = 3
    assert next_generation(world) == [(3, 0)]
    assert next_generation(world) == []
    world.epoch = 7
    assert next_generation(world) == [(7, 3)]


def test_an_earlier_epoch_is_no_news() -> None:
    world = World(epoch=3)
    world.ask(c.ChangeProject(PROJECT))
    world.epoch = 2
    assert next_generation(world) == []
    assert known(world) == 3


def test_a_project_that_is_made_in_an_epoch_knows_it() -> None:
    world = World(epoch=3)
    world.ask(c.ChangeProject(PROJECT))
    assert known(world) == 3
    assert next_generation(world) == []


def test_a_change_of_policy_does_not_forget_the_epoch() -> None:
    world = World(epoch=3)
    world.ask(c.ChangeProject(PROJECT))
    world.ask(c.ChangeProject(PROJECT, policy={"grace_seconds": 5}))
    assert known(world) == 3


def test_a_project_that_is_not_there_is_not_made_by_it() -> None:
    world = World(epoch=3)
    assert next_generation(world) == []
    assert world.cell(PROJECT).record is None


# Counters


def taken(world: World, count: int = 1, prefix: str = "global") -> int:
    """The last of so many numbers."""
    last = world.ask(c.TakeIds(key_of(prefix, keys.COUNTER), prefix=prefix, count=count)).outcome
    assert isinstance(last, int)
    return last


def test_a_counter_skips_a_thousand_once_in_each_new_epoch() -> None:
    world = World()
    assert [taken(world), taken(world, 3), taken(world)] == [1, 4, 5]
    world.epoch = 1
    assert [taken(world), taken(world, 3), taken(world)] == [1_006, 1_009, 1_010]
    world.epoch = 9_000
    assert [taken(world, 2), taken(world)] == [2_012, 2_013]


def test_a_counter_that_is_not_there_in_a_later_epoch_may_have_been_lost_and_skips_too() -> None:
    world = World(epoch=3)
    assert [taken(world), taken(world)] == [1_001, 1_002]
    assert [taken(world, prefix="0001"), taken(world, prefix="0001")] == [1_001, 1_002]


def test_each_counter_skips_by_itself() -> None:
    world = World()
    assert [taken(world), taken(world, prefix="0001")] == [1, 1]
    world.epoch = 1
    assert [taken(world), taken(world, prefix="0001"), taken(world)] == [1_002, 1_002, 1_003]


def test_a_counter_of_a_later_epoch_than_the_store_s_does_not_skip() -> None:
    world = World(epoch=5)
    assert taken(world) == 1_001
    world.epoch = 2
    assert taken(world) == 1_002
    world.epoch = 5
    assert taken(world) == 1_003


def test_a_counter_that_was_written_before_counters_knew_epochs_is_read_and_skips_if_there_was_a_rise() -> (
    None
):
    body = b'1{"prefix":"global","value":7,"updated_at":"2026-01-04T06:00:00Z"}'
    record = codec.decode_record(keys.COUNTER, body)
    assert record == CounterRecord("global", 7, START, epoch=0)
    for epoch, expected in ((0, 8), (2, 1_008)):
        world = World(epoch=epoch)
        world.cell(key_of("global", keys.COUNTER)).record = record
        world.cell(key_of("global", keys.COUNTER)).folded = record
        assert taken(world) == expected
