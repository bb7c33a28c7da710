"""What a task remembers of the last acts with an operation id."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from genlock.core import codec
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.keys import REFUSED
from genlock.core.model import Task, TaskRecord
from genlock.core.reasons import SpawnMode, Status, Verdict
from genlock.core.rules import evolve
from genlock.core.task.operate import EARLIER_ACTS
from genlock.errors import OperationMismatch
from tests.core.world import World, by, content, key_of

T = key_of("T")
ASKED: dict[str, tuple[c.Command, c.Command]] = {
    "edit": (
        c.EditTask(T, changes={"title": "t"}, operation="op"),
        c.EditTask(T, changes={"title": "u"}, operation="op"),
    ),
    "assign": (
        c.AssignTask(T, agent="a", hours=1.0, operation="op", take_over=True),
        c.AssignTask(T, agent="a", hours=5.0, operation="op", take_over=True),
    ),
    "cancel": (
        c.CancelTask(T, reason="x", operation="op", take_over=True),
        c.CancelTask(T, reason="y", operation="op", take_over=True),
    ),
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


ACTS: dict[str, c.Command] = {
    **{name: command for name, (command, _) in ASKED.items()},
    "force a release": c.ForceRelease(T, operation="op", take_over=True),
    "reset": c.ResetTask(T, operation="op", take_over=True),
    "reopen": c.ReopenTask(T, operation="op"),
}
"""Each of which would do something if it were decided anew."""


def begun(name: str) -> World:
    """A task that alice has, held if it is to be reopened."""
    world = World()
    world.add("T")
    world.claim("T")
    if name == "reopen":
        world.ask(c.HoldTask(T))
    return world


def others(world: World, number: int) -> None:
    """So many acts of others, each with an id."""
    for turn in range(number):
        edit = c.EditTask(
            T, by("s2"), changes={"description": f"{turn}"}, operation=f"other {turn}"
        )
        assert world.ask(edit).outcome.verdict is Verdict.DONE


@pytest.mark.parametrize("name", ACTS)
def test_an_act_that_is_repeated_after_acts_of_others_is_not_done_once_more(name: str) -> None:
    world = begun(name)
    assert world.ask(ACTS[name]).outcome.verdict is Verdict.DONE
    others(world, EARLIER_ACTS)
    world.reload()
    if world.task("T").state is Status.PENDING:
        world.claim("T", "s3", "carol" if name != "assign" else "a")
    before = world.task("T")
    again = world.decide(ACTS[name])
    assert (again.outcome.verdict, again.events) == (Verdict.DONE, ())
    assert again.outcome.state is before.state
    with pytest.raises(OperationMismatch):
        world.decide(c.HoldTask(T, reason="z", operation="op"))


TAKING = ("assign", "cancel", "force a release", "reset")


@pytest.mark.parametrize("name", TAKING)
def test_an_act_that_is_repeated_is_answered_with_whose_claim_it_took(name: str) -> None:
    world = begun(name)
    first = world.ask(ACTS[name]).outcome
    assert first.superseded is not None
    assert (first.superseded.agent, first.superseded.session, first.superseded.looks_alive) == (
        "alice",
        "s1",
        True,
    )
    assert world.decide(ACTS[name]).outcome == first
    others(world, EARLIER_ACTS)
    world.reload()
    if world.task("T").state is Status.PENDING:
        world.claim("T", "s3", "carol" if name != "assign" else "a")
    assert world.decide(ACTS[name]).outcome.superseded == first.superseded


@pytest.mark.parametrize("name", ["assign", "cancel", "reset"])
def test_an_act_that_took_nobody_s_claim_names_nobody_when_it_is_repeated(name: str) -> None:
    world = World()
    world.add("T")
    world.ask(ACTS[name])
    world.claim("T", agent="a")
    assert world.decide(ACTS[name]).outcome.superseded is None
    assert b'"superseded"' not in codec.encode_record(world.task("T"))


@pytest.mark.parametrize("name", TAKING)
def test_an_act_from_before_it_was_noted_whose_claim_it_took_folds_to_the_record_that_was_written_then(
    name: str,
) -> None:
    world = begun(name)
    world.ask(ACTS[name])
    record: TaskRecord | None = None
    for event in world.cell(T).events:
        old = replace(event, superseded=None) if isinstance(event, e.RightTaken) else event
        assert b'"superseded"' not in codec.encode_event(old, 1, b"").body
        record = evolve(
            "task", record, codec.decode_event(codec.encode_event(old, 1, b"").body).event
        )  # type: ignore[assignment]
    assert record is not None
    assert b'"superseded"' not in codec.encode_record(record)
    world.cell(T).record = record
    again = world.decide(ACTS[name])
    assert (again.outcome.verdict, again.outcome.superseded, again.events) == (
        Verdict.DONE,
        None,
        (),
    )


def test_whose_claim_was_taken_is_noted_only_where_somebody_could_ask_again() -> None:
    world = begun("reset")
    event = world.ask(c.ResetTask(T, take_over=True)).events[-1]
    assert isinstance(event, e.TaskReset)
    assert event.superseded is None


def test_how_many_acts_are_remembered_has_an_end() -> None:
    world = begun("reset")
    world.ask(ACTS["reset"])
    others(world, EARLIER_ACTS + 1)
    assert len(world.task("T").acts) == EARLIER_ACTS
    assert [type(event).__name__ for event in world.decide(ACTS["reset"]).events] == ["TaskReset"]


def test_an_act_without_an_id_makes_nothing_forgotten_and_none_is_noted_of_a_claim() -> None:
    world = World()
    world.add("T")
    world.claim("T")
    assert b"act" not in codec.encode_record(world.task("T"))
    world.ask(ACTS["reset"])
    for turn in range(2 * EARLIER_ACTS):
        world.ask(c.EditTask(T, changes={"title": f"{turn}"}))
    assert world.decide(ACTS["reset"]).events == ()
    assert b'"acts"' not in codec.encode_record(world.task("T"))


def test_a_spawn_that_is_repeated_after_acts_of_others_names_the_children_that_it_made() -> None:
    def spawn(*names: str) -> c.SpawnSubtasks:
        children = tuple(Task(id=name, parent="T", depth=1, spawned_from="T") for name in names)
        return c.SpawnSubtasks(T, by("s1"), 1, children, SpawnMode.PARALLEL, True, "op")

    world = begun("spawn")
    assert world.ask(spawn("T::1", "T::2")).outcome.children == ("T::1", "T::2")
    others(world, 3)
    # Its repeat has other names by now: the counter has moved on.
    again = world.decide(spawn("T::3", "T::4"))
    assert (again.outcome.children, again.events) == (("T::1", "T::2"), ())


@pytest.mark.parametrize("operator", [by(""), by("s7", "olga")])
def test_an_adoption_by_an_operator_that_is_repeated_after_a_reset_is_not_done_once_more(
    operator: c.Caller,
) -> None:
    world = begun("adopt")
    world.ask(c.ForceRelease(T, take_over=True))
    name = world.submit("T", "s1", 1).outcome.refused_id
    adopt = c.AdoptResult(
        T, operator, name, None, content("done"), "wp", 1, "s1", "op", take_over=True
    )
    assert world.ask(adopt).outcome.accepted
    world.settle()
    assert world.decide(adopt).events == ()
    world.ask(c.ResetTask(T, operation="other", take_over=True))
    world.reload()
    world.claim("T", "s2", "bob")
    again = world.decide(adopt)
    assert (again.outcome.accepted, again.events, again.followups) == (True, (), ())
    # Under another id it is another act.
    assert (
        world.decide(replace(adopt, operation="op 2")).events[-1].generation
        == world.task("T").generation + 1
    )


def test_a_submission_is_not_remembered_as_an_act() -> None:
    world = begun("submit")
    assert world.ask(c.SubmitResult(T, by("s1"), 1, content("done"), "op")).outcome.accepted
    assert world.task("T").act is None


def test_an_adoption_that_is_repeated_is_accepted_although_the_refused_result_was_discarded_meanwhile() -> (
    None
):
    world = begun("adopt")
    world.ask(c.ForceRelease(T, take_over=True))
    name = world.submit("T", "s1", 1).outcome.refused_id
    adopt = c.AdoptResult(T, by(""), name, None, content("done"), "wp", 1, "s1")
    late = world.decide(c.DiscardRefused(key_of(name, REFUSED)))
    assert world.ask(adopt).outcome.accepted
    # It was decided before the adoption, and is written after it.
    world.cell(key_of(name, REFUSED)).record = late.record
    assert world.decide(adopt).outcome.accepted


def test_events_from_before_more_than_one_act_was_remembered_fold_to_the_record_that_was_written_then() -> (
    None
):
    world = begun("hold")
    for number, command in enumerate((ACTS["hold"], ACTS["reopen"], ACTS["reset"])):
        world.ask(replace(command, operation=f"op {number}"))
    record: TaskRecord | None = None
    for event in world.cell(T).events:
        old = replace(event, remembers=0) if hasattr(event, "remembers") else event
        record = evolve(
            "task", record, codec.decode_event(codec.encode_event(old, 1, b"").body).event
        )  # type: ignore[assignment]
    assert record is not None
    assert record.act is not None
    assert (record.act.operation, record.acts) == ("op 2", ())
    assert b'"acts"' not in codec.encode_record(record)
    # And the next act remembers the one that was.
    world.cell(T).record = world.cell(T).folded = record
    world.ask(replace(ACTS["hold"], operation="op 3"))
    assert [act.operation for act in world.task("T").acts] == ["op 2"]
