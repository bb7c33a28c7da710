"""Each tool on a coordinator: what it does, what it answers, and how it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import genlock
from genlock.core.results import ClaimResult
from genlock.mcp import scripts
from genlock.mcp.answer import LONGEST, Answer, Caller
from genlock.mcp.protocol import Plan, Task
from genlock.mcp.tools import TOOLS
from genlock.testing.clock import ManualClock
from genlock.wire.operations import BY_CALL

PLAN = {
    "tracks": {
        "A": [
            {"id": "A-001-first", "title": "First", "description": "Write it."},
            {"id": "A-002-second", "title": "Second", "depends_on": ["A-001-first"]},
        ]
    }
}


class Bench:
    """A coordinator, and tools called on it for an agent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fleet = genlock.connect("memory://", clock=self.clock)
        self.fleet.import_plan(source=PLAN)

    def call(self, name: str, who: str = "ada", **arguments: Any) -> Answer:
        """A tool's answer to this agent."""
        return self.ask(TOOLS[name](**arguments), who)

    def ask(self, asked: Any, who: str = "ada", *, renewed: bool = True) -> Answer:
        caller = Caller(session=f"{who}-session", agent=who, project="default", renewed=renewed)
        answer = scripts.run(asked, caller, self._perform)
        assert len(answer.text) <= LONGEST
        return answer

    def other(self, task: str = "A-001-first") -> ClaimResult:
        """A claim by somebody else."""
        return self.fleet.claim_task(task_id=task, session_id="bob-session", agent_id="bob")

    def _perform(self, call: Any) -> Any:
        return getattr(self.fleet, BY_CALL[type(call)].name)(**scripts.keywords(call))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    with bench.fleet:
        yield bench


def reason(answer: Answer) -> object:
    """The reason of an answer; whether it is an error follows from the tools' contract."""
    return answer.facts["reason"]


def test_claim_grants_the_next_task_with_its_instructions(bench: Bench) -> None:
    answer = bench.call("claim")
    assert not answer.is_error
    assert (answer.facts["task"], answer.facts["generation"]) == ("A-001-first", 1)
    assert answer.text.startswith("GRANTED: A-001-first is yours at generation 1.")
    assert "Write it." in answer.text
    assert "submit(task='A-001-first', generation=1, result=…)" in answer.text


def test_claim_says_who_renews_the_lease(bench: Bench) -> None:
    assert "this server renews it" in bench.ask(TOOLS["claim"]()).text
    bench.fleet.release_claim(
        task_id="A-001-first", expected_generation=1, session_id="ada-session"
    )
    assert "call progress at least every 100 s" in bench.ask(TOOLS["claim"](), renewed=False).text


def test_claim_of_a_task_by_its_id(bench: Bench) -> None:
    assert reason(bench.call("claim", task="A-001-first")) == "GRANTED"


def test_a_repeated_claim_of_the_next_task_names_the_one_that_is_held_and_grants_no_other(
    bench: Bench,
) -> None:
    bench.fleet.add_tasks(tasks=["A-003-third"])
    bench.call("claim")
    answer = bench.call("claim")
    assert answer.is_error
    assert answer.facts == {"reason": "ALREADY_HELD", "task": "A-001-first", "generation": 1}
    assert [claim.task_id for claim in held_by(bench, "ada")] == ["A-001-first"]


def test_a_repeated_claim_by_id_is_an_error_that_names_the_generation(bench: Bench) -> None:
    bench.call("claim", task="A-001-first")
    answer = bench.call("claim", task="A-001-first")
    assert (answer.is_error, answer.facts["generation"]) == (True, 1)
    assert answer.text.startswith("ALREADY_HELD: you hold A-001-first at generation 1.")


def test_a_subagent_with_a_name_of_its_own_gets_a_task_of_its_own(bench: Bench) -> None:
    bench.fleet.add_tasks(tasks=["A-003-third"])
    first, second = bench.call("claim"), bench.call("claim", agent="helper")
    assert (first.facts["task"], second.facts["task"]) == ("A-001-first", "A-003-third")


def test_a_claim_of_another_project_does_not_keep_one_from_claiming_here(bench: Bench) -> None:
    bench.fleet.add_tasks(tasks=["elsewhere"], project_id="other")
    bench.fleet.claim_task(
        task_id="elsewhere", session_id="ada-session", agent_id="ada", project_id="other"
    )
    assert reason(bench.call("claim")) == "GRANTED"
    assert "elsewhere" not in bench.call("list", what="mine").text


def test_claim_of_a_held_task_says_who_has_it(bench: Bench) -> None:
    bench.other()
    answer = bench.call("claim", task="A-001-first")
    assert (answer.is_error, reason(answer)) == (True, "DENIED_ACTIVE_CLAIM")
    assert "held by bob" in answer.text
    assert 'claim(task="next")' in answer.text


def test_claim_of_a_blocked_task_says_what_it_waits_for(bench: Bench) -> None:
    answer = bench.call("claim", task="A-002-second")
    assert (answer.is_error, reason(answer)) == (True, "DENIED_BLOCKED")
    assert "waits for A-001-first" in answer.text


def test_claim_of_a_task_on_hold_says_why(bench: Bench) -> None:
    bench.fleet.hold_task(task_id="A-001-first", reason="to be thought over")
    answer = bench.call("claim", task="A-001-first")
    assert reason(answer) == "DENIED_HELD"
    assert "to be thought over" in answer.text


@pytest.mark.parametrize(
    ("arrange", "standing", "told"),
    [
        ("other", "at_work", "wait_seconds=45"),
        ("finish", "finished", "Stop: the work is done"),
        ("hold", "stuck", "tell the user to look at A-001-first"),
        ("reserve", "reserved", "reserved for another agent"),
    ],
)
def test_where_nothing_is_ready_claim_says_whether_to_wait_or_to_stop(
    bench: Bench, arrange: str, standing: str, told: str
) -> None:
    match arrange:
        case "other":
            bench.other()
        case "finish":
            bench.fleet.cancel_task(task_id="A-001-first")
            bench.fleet.cancel_task(task_id="A-002-second")
        case "hold":
            bench.fleet.hold_task(task_id="A-001-first")
        case _:
            bench.fleet.assign_task(task_id="A-001-first", agent_id="bob")
    answer = bench.call("claim")
    assert answer.facts == {"reason": "NOTHING_READY", "standing": standing}
    assert not answer.is_error
    assert told in answer.text


def test_claim_of_an_unknown_task_is_an_error_with_its_name(bench: Bench) -> None:
    answer = bench.call("claim", task="A-009-nothing")
    assert (answer.is_error, reason(answer)) == (True, "TASK_NOT_FOUND")
    assert "A-009-nothing" in answer.text


def test_a_grant_tells_what_earlier_generations_left(bench: Bench) -> None:
    granted = bench.other()
    assert granted.claim is not None
    bench.fleet.release_claim(
        task_id="A-001-first", expected_generation=1, session_id="bob-session", reason="ERROR"
    )
    bench.fleet.submit_result(
        task_id="A-001-first", generation=1, session_id="bob-session", result_data="half of it"
    )
    answer = bench.call("claim")
    assert "Earlier attempt: generation 1 by bob, ERROR." in answer.text
    assert "half of it" in answer.text


def test_submit_completes_the_task_and_opens_the_next(bench: Bench) -> None:
    bench.call("claim")
    answer = bench.call("submit", task="A-001-first", generation=1, result={"files": ["a.py"]})
    assert (answer.is_error, reason(answer)) == (False, "ACCEPTED")
    assert bench.fleet.read_result(task_id="A-001-first") == {"files": ["a.py"]}
    assert bench.call("claim").facts["task"] == "A-002-second"


def test_a_repeated_submission_gets_the_same_answer(bench: Bench) -> None:
    bench.call("claim")
    said: dict[str, Any] = {"task": "A-001-first", "generation": 1, "result": "done"}
    assert bench.call("submit", **said) == bench.call("submit", **said)


def test_a_stale_submission_is_refused_and_kept(bench: Bench) -> None:
    bench.call("claim")
    bench.fleet.force_release(task_id="A-001-first", take_over=True)
    bench.other()
    answer = bench.call("submit", task="A-001-first", generation=1, result="late")
    assert (answer.is_error, reason(answer)) == (True, "STALE_GENERATION")
    assert "Stop working on it" in answer.text
    assert "Your result is kept as A-001-first/" in answer.text
    assert answer.text.endswith('Next: claim(task="next").')
    assert "adopt" not in answer.text
    (kept,) = bench.fleet.list_refused_results()
    assert kept.result_data == "late"


def test_a_submission_without_a_claim_says_to_claim_first(bench: Bench) -> None:
    answer = bench.call("submit", task="A-001-first", generation=1, result="x")
    assert reason(answer) == "FUTURE_GENERATION"
    assert "claim it first" in answer.text


def test_a_submission_with_another_sessions_generation_is_refused(bench: Bench) -> None:
    bench.other()
    answer = bench.call("submit", task="A-001-first", generation=1, result="x")
    assert (answer.is_error, reason(answer)) == (True, "SESSION_MISMATCH")


def test_release_gives_the_task_back_and_may_be_repeated(bench: Bench) -> None:
    bench.call("claim")
    said: dict[str, Any] = {"task": "A-001-first", "generation": 1, "failed": True}
    answer = bench.call("release", **said)
    assert (answer.is_error, reason(answer)) == (False, "RELEASED")
    assert bench.call("release", **said) == answer
    assert bench.fleet.get_task_state(task_id="A-001-first").failures == 1


def test_release_of_a_lost_claim_is_refused(bench: Bench) -> None:
    bench.other()
    answer = bench.call("release", task="A-001-first", generation=1)
    assert (answer.is_error, reason(answer)) == (True, "SESSION_MISMATCH")


def test_progress_renews_the_lease(bench: Bench) -> None:
    bench.call("claim")
    before = held_by(bench, "ada")[0].expires_at
    bench.clock.advance(100)
    answer = bench.call("progress", task="A-001-first", generation=1)
    assert (answer.is_error, reason(answer)) == (False, "RENEWED")
    assert (held_by(bench, "ada")[0].expires_at - before).total_seconds() == 100


def test_progress_is_seen_by_others_and_by_whoever_takes_over(bench: Bench) -> None:
    bench.call("claim")
    bench.call("progress", task="A-001-first", generation=1, fraction=0.4, note="tests pass")
    shown = bench.call("show", task="A-001-first").text
    assert "Progress of generation 1: 40% done." in shown
    assert "Note of generation 1: tests pass" in shown
    bench.call("release", task="A-001-first", generation=1, note="no network")
    assert (
        "generation 1 by ada, VOLUNTARY, 40% done, who noted: no network"
        in bench.call("claim").text
    )


def test_progress_under_a_lost_claim_says_to_stop(bench: Bench) -> None:
    bench.call("claim")
    bench.fleet.force_release(task_id="A-001-first", take_over=True)
    bench.other()
    answer = bench.call("progress", task="A-001-first", generation=1)
    assert (answer.is_error, reason(answer)) == (True, "GENERATION_MISMATCH")
    assert "Stop working on it" in answer.text


def test_progress_after_the_lease_says_that_the_result_may_still_count(bench: Bench) -> None:
    bench.call("claim")
    bench.clock.advance(10_000)
    answer = bench.call("progress", task="A-001-first", generation=1)
    assert (answer.is_error, reason(answer)) == (True, "ALREADY_EXPIRED")
    assert "submit now" in answer.text


def test_spawn_splits_a_task_and_may_be_repeated(bench: Bench) -> None:
    bench.call("claim")
    said: dict[str, Any] = {"task": "A-001-first", "generation": 1, "subtasks": ["one", "two"]}
    answer = bench.call("spawn", **said)
    assert not answer.is_error
    assert len(answer.facts["children"]) == 2
    assert bench.call("spawn", **said) == answer
    assert bench.fleet.get_task_state(task_id="A-001-first").unfinished_children == tuple(
        answer.facts["children"]
    )


def test_spawn_without_the_claim_is_refused(bench: Bench) -> None:
    bench.other()
    answer = bench.call("spawn", task="A-001-first", generation=1, subtasks=["one"])
    assert (answer.is_error, reason(answer)) == (True, "SESSION_MISMATCH")


def test_add_makes_a_task_once(bench: Bench) -> None:
    said: dict[str, Any] = {"id": "A-003-third", "title": "Third", "depends_on": ["A-002-second"]}
    assert bench.call("add", **said).facts == {"reason": "DONE", "state": "BLOCKED"}
    assert bench.call("add", **said).facts == {"reason": "UNCHANGED", "state": "BLOCKED"}


def test_add_under_an_id_that_is_taken_is_refused(bench: Bench) -> None:
    answer = bench.call("add", id="A-001-first", title="Another")
    assert (answer.is_error, reason(answer)) == (True, "TASK_EXISTS")


def test_show_tells_the_instructions_the_state_and_the_result(bench: Bench) -> None:
    bench.call("claim")
    assert "Held by ada" in bench.call("show", task="A-001-first").text
    bench.call("submit", task="A-001-first", generation=1, result={"files": ["a.py"]})
    text = bench.call("show", task="A-001-first").text
    assert "A-001-first: COMPLETED, generation 1" in text
    assert "Write it." in text
    assert '"a.py"' in text
    assert "Waits for" not in text
    assert "Builds on A-001-first" in bench.call("show", task="A-002-second").text


def test_show_of_an_unknown_task_is_an_error(bench: Bench) -> None:
    assert reason(bench.call("show", task="nothing")) == "TASK_NOT_FOUND"
    answer = bench.ask(Task("nothing"))
    assert answer.is_error


def test_a_long_description_is_read_in_parts_and_nothing_of_it_is_lost(bench: Bench) -> None:
    words = " ".join(f"word{number}" for number in range(1700))
    bench.fleet.add_tasks(tasks=[{"id": "long", "description": words}])
    shown, offset = "", 0
    while True:
        text = bench.call("show", task="long", offset=offset).text
        part, cut, how = text.partition("\n[cut at ")
        shown += part
        if not cut:
            break
        offset = int(how.partition("offset=")[2].rstrip(")]"))
    assert words in shown
    assert "[cut: " in bench.call("claim", task="long").text


def test_lists_are_bounded_and_say_how_to_go_on(bench: Bench) -> None:
    title = "x" * 90
    tasks: list[dict[str, Any]] = [
        {"id": f"B-{number:03}-task", "title": title, "depends_on": ["A-001-first"] * (number % 2)}
        for number in range(1, 400)
    ]
    bench.fleet.add_tasks(tasks=tasks)
    ready = bench.call("list").text
    assert ready.startswith("Ready to be claimed, in order:\n- A-001-first First (medium)")
    assert ready.endswith("[and more]")
    seen: list[str] = []
    after: str | None = None
    while True:
        text = bench.call("list", what="blocked", after=after).text
        seen += [line.split()[1] for line in text.splitlines() if line.startswith("- ")]
        if "Go on: " not in text:
            break
        after = text.rpartition("after='")[2].rstrip("')")
    assert seen == ["A-002-second", *(f"B-{number:03}-task" for number in range(1, 400, 2))]
    bench.ask(Plan())


def test_list_of_claims_and_of_agents(bench: Bench) -> None:
    assert bench.call("list", what="mine").text.startswith("You hold no task.")
    assert bench.call("list", what="working").text == "Nobody is at work."
    bench.call("claim")
    assert "A-001-first, generation 1, agent ada, ACTIVE" in bench.call("list", what="mine").text
    assert "ada (" in bench.call("list", what="working").text


def test_the_plan_resource_shows_tracks_agents_and_what_is_ready(bench: Bench) -> None:
    bench.call("claim")
    text = bench.ask(Plan()).text
    assert "- A: 0 done, 1 at work, 0 ready, 1 blocked, 0 other" in text
    assert "- A-002-second Second waits for A-001-first" in text
    assert "Nothing is ready." in text


def test_an_empty_plan_says_so() -> None:
    with genlock.connect("memory://") as fleet:
        bench = object.__new__(Bench)
        bench.fleet = fleet
        assert bench.ask(Plan()).text == "The plan has no tasks yet."
        answer = bench.call("claim")
        assert answer.facts["standing"] == "empty"
        assert "there are no tasks. Stop" in answer.text


def test_foreign_text_cannot_hide_anything(bench: Bench) -> None:
    bench.fleet.add_tasks(tasks=[{"id": "evil", "title": "a\u202eb", "description": "\U000e0041"}])
    text = bench.call("claim", task="evil").text
    assert "\u202e" not in text
    assert "\U000e0041" not in text


def held_by(bench: Bench, who: str) -> Any:
    return bench.fleet.get_active_claims_for_session(session_id=f"{who}-session")
