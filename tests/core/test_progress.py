"""Reports of progress: what is kept of them, how much, and for how long they count."""

from __future__ import annotations

from datetime import timedelta

import pytest

from genlock.core import commands as c
from genlock.core.history import claim_history
from genlock.core.keys import SESSION
from genlock.core.model import MOST_NOTES, Task, TaskRecord
from genlock.core.reasons import ReleaseReason
from genlock.core.results import TaskProgress
from genlock.core.task.progress import task_progress
from tests.core.world import START, World, by, key_of

T = key_of("T")


def a_world() -> World:
    """Task T, granted to s1 for a minute."""
    world = World()
    world.ask(c.AddTask(T, task=Task(id="T")))
    world.ask(c.ClaimTask(T, by("s1", "alice"), 60.0))
    return world


def record(world: World) -> TaskRecord:
    found = world.cell(T).record
    assert isinstance(found, TaskRecord)
    return found


def progress(world: World) -> TaskProgress:
    told = task_progress(record(world).progress)
    assert told is not None
    return told


def report(world: World, session: str = "s1", generation: int = 1, **more: object) -> str:
    command = c.ReportProgress(T, by(session), generation, **more)  # type: ignore[arg-type]
    return str(world.ask(command).outcome.reason)


def events(world: World) -> int:
    return world.cell(T).version


def test_a_report_is_in_the_record_with_who_and_when() -> None:
    world = a_world()
    world.pass_time(5)
    assert report(world, fraction=0.4, note="tests pass", cost={"usd": 0.12}) == "RECORDED"
    told = progress(world)
    at = START + timedelta(seconds=5)
    assert (told.generation, told.updated_at, told.fraction, told.cost) == (
        1,
        at,
        0.4,
        {"usd": 0.12},
    )
    (note,) = told.notes
    assert (note.text, note.agent, note.generation, note.fraction) == (
        "tests pass",
        "alice",
        1,
        0.4,
    )
    assert note.at == at


def test_the_worktree_of_a_generation_is_in_the_record_and_not_its_successors() -> None:
    world = a_world()
    assert report(world, worktree_path="/work/T.gen1") == "RECORDED"
    assert report(world, fraction=0.5) == "RECORDED"
    assert progress(world).worktree_path == "/work/T.gen1"
    before = events(world)
    assert report(world, worktree_path="/work/T.gen1") == "RECORDED"
    assert events(world) == before, "it said nothing new"
    world.ask(c.ForceRelease(T, take_over=True))
    world.ask(c.ClaimTask(T, by("s2", "bob"), 60.0))
    assert report(world, worktree_path="/work/zombie") == "GENERATION_MISMATCH"
    assert progress(world).worktree_path == "/work/T.gen1"
    assert report(world, "s2", record(world).generation, note="begun") == "RECORDED"
    assert progress(world).worktree_path == "", "a zombie may still be at work in the first one"


def test_a_worktree_that_is_gone_is_reported_as_gone() -> None:
    world = a_world()
    report(world, worktree_path="/work/T.gen1")
    assert report(world, worktree_path="") == "RECORDED"
    assert progress(world).worktree_path == ""


def test_a_report_of_a_stale_generation_changes_nothing() -> None:
    world = a_world()
    world.ask(c.ForceRelease(T, take_over=True))
    world.ask(c.ClaimTask(T, by("s2", "bob"), 60.0))
    before = record(world)
    assert report(world, fraction=1.0, note="a zombie writes") == "GENERATION_MISMATCH"
    assert report(world, "s1", 2, note="with the new number") == "SESSION_MISMATCH"
    assert record(world) == before


def test_a_report_after_the_lease_or_the_session_has_ended_is_refused() -> None:
    world = a_world()
    world.pass_time(61)
    assert report(world, note="late") == "ALREADY_EXPIRED"
    other = a_world()
    other.ask(c.EndSession(key_of("s1", SESSION), by("s1")))
    assert report(other, note="after the end") == "ALREADY_EXPIRED"


def test_a_report_extends_no_lease() -> None:
    world = a_world()
    claim = record(world).claim
    assert claim is not None
    world.pass_time(30)
    report(world, fraction=0.5)
    after = record(world).claim
    assert after == claim


def test_a_report_that_says_nothing_new_writes_nothing() -> None:
    world = a_world()
    report(world, fraction=0.5, note="half", cost={"usd": 1.0})
    written = events(world)
    assert report(world, fraction=0.5, note="half", cost={"usd": 1.0}) == "RECORDED"
    assert report(world, fraction=0.5) == "RECORDED"
    assert report(world) == "RECORDED"
    assert events(world) == written


def test_the_same_note_again_takes_the_place_of_the_one_before() -> None:
    world = a_world()
    report(world, fraction=0.1, note="compiling")
    world.pass_time(10)
    report(world, fraction=0.2, note="compiling")
    assert [(note.text, note.fraction) for note in progress(world).notes] == [("compiling", 0.2)]


def test_figures_without_a_note_add_no_line() -> None:
    world = a_world()
    report(world, note="begun")
    for step in range(1, 10):
        report(world, fraction=step / 10)
    assert (progress(world).fraction, len(progress(world).notes)) == (0.9, 1)


def test_only_the_last_twenty_notes_are_kept() -> None:
    world = a_world()
    for number in range(25):
        report(world, note=f"step {number}")
    texts = [note.text for note in progress(world).notes]
    assert (MOST_NOTES, texts) == (20, [f"step {number}" for number in range(5, 25)])


def test_costs_of_a_generation_replace_each_other_and_those_of_all_are_added() -> None:
    world = a_world()
    report(world, cost={"usd": 0.5, "tokens": 100.0})
    report(world, cost={"usd": 0.75})
    assert progress(world).cost == {"usd": 0.75, "tokens": 100.0}
    world.ask(c.ReleaseClaim(T, by("s1"), 1))
    world.ask(c.ClaimTask(T, by("s2", "bob"), 60.0))
    report(world, "s2", 2, cost={"usd": 0.1})
    world.ask(c.ReleaseClaim(T, by("s2"), 2))
    world.ask(c.ClaimTask(T, by("s3", "eve"), 60.0))
    report(world, "s3", 3, cost={"usd": 0.25})
    assert progress(world).cost == {"usd": pytest.approx(1.1), "tokens": 100.0}


def test_a_new_generation_begins_without_a_fraction_and_keeps_the_notes() -> None:
    world = a_world()
    report(world, fraction=0.9, note="nearly there")
    world.ask(c.ReleaseClaim(T, by("s1"), 1))
    world.ask(c.ClaimTask(T, by("s2", "bob"), 60.0))
    report(world, "s2", 2, note="begun again")
    assert progress(world).fraction is None
    assert [(note.generation, note.text) for note in progress(world).notes] == [
        (1, "nearly there"),
        (2, "begun again"),
    ]


def test_a_release_leaves_a_note_for_the_next_holder() -> None:
    world = a_world()
    released = c.ReleaseClaim(
        T, by("s1"), 1, ReleaseReason.ERROR, "op-1", "ValueError: no such file"
    )
    assert world.ask(released).outcome.success
    assert world.ask(released).outcome.success  # its repeat leaves no second one
    assert [note.text for note in progress(world).notes] == ["ValueError: no such file"]


def test_a_refused_release_leaves_no_note() -> None:
    world = a_world()
    assert not world.ask(c.ReleaseClaim(T, by("s2"), 1, note="from a stranger")).outcome.success
    assert record(world).progress is None


def test_the_history_has_the_last_report_of_each_generation() -> None:
    world = a_world()
    report(world, fraction=0.3, note="one", cost={"usd": 1.0})
    report(world, fraction=0.6, note="two")
    world.ask(c.ReleaseClaim(T, by("s1"), 1, ReleaseReason.ERROR, note="it broke"))
    world.ask(c.ClaimTask(T, by("s2", "bob"), 60.0))
    told = [
        (entry.generation, entry.fraction, entry.note, entry.cost)
        for entry in claim_history(record(world), world.cell(T).events, frozenset())
    ]
    assert told == [(1, 0.6, "it broke", {"usd": 1.0}), (2, None, "", {})]


def test_a_grant_says_which_attempt_it_is() -> None:
    world = World()
    world.ask(c.AddTask(T, task=Task(id="T")))
    attempts = []
    for session in ("s1", "s2"):
        granted = world.ask(c.ClaimTask(T, by(session, "a"), 60.0)).outcome
        attempts.append(granted.attempt)
        world.ask(c.ReleaseClaim(T, by(session), granted.claim.generation))
    assert attempts == [1, 2]
