"""`genlock work`: every outcome of an agent, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from genlock.worker.agents.agent_pool import AgentPool, PoolSettings
from tests.cli.console import COMMAND, run
from tests.cli.terminal import Terminal
from tests.eventually import eventually
from tests.service.process import serve
from tests.worker.agent_fleets import at_work, children, fake_environment, plan, state
from tests.worker.runs import is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper and /proc")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Coordinator]:
    """The store of `one`, as an operator sees it."""
    url = f"sqlite://{tmp_path}/plan.db"
    with genlock.connect(url, create=True, session_id="test", agent_id="test") as fleet:
        yield fleet


def one(fleet: Coordinator, place: Path, title: str) -> str:
    """A plan of one task for which the fake agent does this; its URL."""
    fleet.add_tasks(tasks=[{"id": "T", "title": title}])
    return f"sqlite://{place}/plan.db"


def only(fleet: Coordinator, place: Path, title: str, *arguments: object) -> dict[str, Any]:
    """What becomes of a single try of such a task."""
    with at_work(one(fleet, place, title), place, "--max-tasks", 1, *arguments) as work:
        assert work.end() == 0, work.errors()
        [ended] = work.ended()
        return ended


def times(place: Path, name: str) -> dict[str, float]:
    """When each task's agent left this mark."""
    lines = (place / name).read_text().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines}


def note_of(fleet: Coordinator) -> str:
    """What the last generation has left for the next."""
    return fleet.get_lineage(task_id="T").generations[-1].note


# The rows of the table of outcomes


def test_done_submits_the_result_with_how_it_came_about(fleet: Coordinator, tmp_path: Path) -> None:
    ended = only(fleet, tmp_path, "success")
    assert (ended["outcome"], ended["turns"], ended["cost_usd"]) == ("accepted", 3, 0.25)
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    data = dict(result.result_data)
    assert data["run"].pop("seconds") < 30
    assert data == {
        "result": "all done",
        "run": {"exit_status": 0, "cost_usd": 0.25, "turns": 3, "agent_session": "agent-session"},
    }
    assert fleet.get_lineage(task_id="T").generations[0].cost == {"usd": 0.25}
    log = Path(ended["log"])
    assert log == tmp_path / ".genlock/logs/T.gen1.jsonl"
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line.get("genlock") or line["type"] for line in lines] == [
        "started", "system", "assistant", "result", "ended",
    ]  # fmt: skip


def test_done_takes_the_result_from_the_file_first(fleet: Coordinator, tmp_path: Path) -> None:
    assert only(fleet, tmp_path, "file")["outcome"] == "accepted"
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    assert result.result_data["result"] == {"files": ["app.py"]}


def test_a_result_that_the_agent_has_submitted_itself_stands(
    fleet: Coordinator, tmp_path: Path
) -> None:
    ended = only(fleet, tmp_path, "submit")
    assert (ended["outcome"], ended["detail"]) == (
        "accepted",
        "the agent has submitted it itself",
    )
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    assert result.result_data == {"by": "the agent"}


@pytest.mark.parametrize(
    ("title", "detail"),
    [
        ("error", "the tests do not pass (exit status 0)"),
        ("exit 7", "segmentation fault in the compiler (exit status 7)"),
        ("silent", "it ended without a result"),
    ],
)
def test_failed_releases_with_the_error_and_counts_for_the_breaker(
    title: str, detail: str, fleet: Coordinator, tmp_path: Path
) -> None:
    ended = only(fleet, tmp_path, title)
    assert (ended["outcome"], ended["detail"]) == ("failed", detail)
    assert state(fleet) == ("PENDING", 1)
    assert note_of(fleet) == f"failed: {detail}"


def test_limit_reached_pauses_all_until_it_resets_and_counts_nothing(
    fleet: Coordinator, tmp_path: Path
) -> None:
    url = one(fleet, tmp_path, "rejected 4 then success")
    fleet.add_tasks(tasks=[{"id": "U", "title": "success", "depends_on": ["T"]}])
    with at_work(url, tmp_path, "--agents", 2, "--until-done") as work:
        assert work.end() == 0, work.errors()
    names = [(event["event"], event.get("outcome")) for event in work.events]
    assert names[:3] == [("claimed", None), ("ended", "limit_reached"), ("paused", None)]
    assert work.outcomes() == ["limit_reached", "accepted", "accepted"]
    paused = work.events[2]
    again = work.events[3]
    began, until, resumed = (
        datetime.fromisoformat(text) for text in (paused["at"], paused["until"], again["at"])
    )
    assert 0.5 < (until - began).total_seconds() < 6
    assert 0 <= (resumed - until).total_seconds() < 15
    first = fleet.get_lineage(task_id="T").generations[0]
    assert first.release_reason == "VOLUNTARY"


def test_limit_reached_without_a_time_pauses_for_about_30_seconds(
    fleet: Coordinator, tmp_path: Path
) -> None:
    with at_work(one(fleet, tmp_path, "limit"), tmp_path) as work:
        eventually(lambda: any(e["event"] == "paused" for e in work.events), "the pause")
        work.process.send_signal(signal.SIGINT)
        assert work.end() == 0
    paused = next(event for event in work.events if event["event"] == "paused")
    pause = datetime.fromisoformat(paused["until"]) - datetime.fromisoformat(paused["at"])
    assert 20 < pause.total_seconds() < 31
    assert state(fleet) == ("PENDING", 0)
    assert work.outcomes() == ["limit_reached"]


def test_not_allowed_stops_the_pool_and_says_what_to_do(fleet: Coordinator, tmp_path: Path) -> None:
    with at_work(one(fleet, tmp_path, "auth"), tmp_path) as work:
        assert work.end() == 4
    assert work.outcomes() == ["not_allowed"]
    reason, detail = work.reason()
    assert reason == "not_allowed"
    assert "Not logged in" in detail
    assert detail.endswith("start `claude` once and type /login, or set ANTHROPIC_API_KEY")
    assert state(fleet) == ("PENDING", 0)


@pytest.mark.parametrize(
    ("title", "option", "detail"),
    [
        ("max_turns", (), "it had used up its turns (exit status 1)"),
        ("turns", ("--max-turns", 5), "it had used up its turns"),
        ("idle", ("--timeout", 3), "its time was up"),
    ],
)
def test_cut_off_releases_and_tells_the_next_generation(
    title: str, option: tuple[object, ...], detail: str, fleet: Coordinator, tmp_path: Path
) -> None:
    url = one(fleet, tmp_path, f"{title} then success")
    with at_work(url, tmp_path, "--until-done", *option) as work:
        assert work.end() == 0, work.errors()
    assert work.outcomes() == ["cut_off", "accepted"]
    assert work.ended()[0]["detail"] == detail
    prompt = (tmp_path / "prompt.T.gen2").read_text()
    assert f"- generation 1: cut_off: {detail}" in prompt


def test_hung_after_its_result_is_ended_and_the_result_stands(
    fleet: Coordinator, tmp_path: Path
) -> None:
    assert only(fleet, tmp_path, "hang", "--linger", 1)["outcome"] == "accepted"
    assert not is_alive(int((tmp_path / "grandchild").read_text()))


def test_hung_without_a_word_is_ended_with_all_below_it(fleet: Coordinator, tmp_path: Path) -> None:
    ended = only(fleet, tmp_path, "idle", "--idle-timeout", 2)
    assert (ended["outcome"], ended["detail"]) == ("hung", "it wrote nothing for too long")
    assert not is_alive(int((tmp_path / "grandchild").read_text()))
    assert state(fleet) == ("PENDING", 1)


def test_claim_lost_ends_the_agent_inside_the_margin_and_keeps_what_it_made(
    fleet: Coordinator, tmp_path: Path
) -> None:
    url = one(fleet, tmp_path, "stubborn then success")
    with at_work(url, tmp_path, "--lease", 20, "--max-tasks", 1) as work:
        work.until("stubborn")
        tree = children(work.process.pid)
        assert len(tree) >= 5
        fleet.force_release(task_id="T", take_over=True)
        taken = fleet.claim_task(task_id="T", lease_duration_seconds=60)
        assert taken.success
        assert work.end() == 0
    [ended] = work.ended()
    assert ended["outcome"] == "lost"
    assert ended["seconds"] < 14  # the keeper says so long before the lease is over
    assert [pid for pid in tree if is_alive(pid)] == []
    [kept] = fleet.get_lineage(task_id="T").refused
    assert kept.id == ended["refused_id"]
    assert kept.result_data["result"] == "half of it"
    assert state(fleet)[0] == "IN_PROGRESS"
    generation = fleet.get_task_state(task_id="T").generation
    fleet.release_claim(task_id="T", generation=generation, note="see the schema")
    with at_work(url, tmp_path, "--until-done") as work:
        assert work.end() == 0
    [prompt] = [
        path.read_text() for path in tmp_path.glob("prompt.T.gen*") if path.suffix != ".gen1"
    ]
    assert f"- generation {generation}: see the schema" in prompt
    assert f'- {kept.id}: {{"result": "half of it"' in prompt


def test_a_result_that_comes_too_late_is_refused_and_kept(
    fleet: Coordinator, tmp_path: Path
) -> None:
    ended = only(fleet, tmp_path, "superseded")
    assert ended["outcome"] == "refused"
    [kept] = fleet.get_lineage(task_id="T").refused
    assert (kept.id, kept.result_data["result"]) == (ended["refused_id"], "all done")


# What stops a fleet


def test_failures_in_a_row_stop_the_fleet(fleet: Coordinator, tmp_path: Path) -> None:
    with at_work(one(fleet, tmp_path, "exit 1"), tmp_path, "--max-failures", 2) as work:
        assert work.end() == 1
    assert work.outcomes() == ["failed", "failed"]
    assert work.reason()[0] == "max_failures"


def test_a_used_up_budget_stops_the_fleet(tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "success", "B": "success", "C": "success"})
    with at_work(url, tmp_path, "--max-cost", 0.3) as work:
        assert work.end() == 0
    assert work.outcomes().count("accepted") == 2
    assert work.reason() == ("max_cost", "0.50 USD of 0.30 are spent")
    assert work.events[-1]["cost_usd"] == 0.5


def test_ctrl_c_lets_agents_finish_and_takes_no_more_tasks(tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "slow 1.5", "B": "slow 1.5"})
    with at_work(url, tmp_path) as work:
        eventually(lambda: list(tmp_path.glob("slow.*")), "an agent at work")
        work.process.send_signal(signal.SIGINT)
        assert work.end() == 0
    assert work.outcomes() == ["accepted"]
    assert work.reason()[0] == "signal"


def test_ctrl_c_twice_ends_agents_and_gives_their_tasks_back(
    fleet: Coordinator, tmp_path: Path
) -> None:
    with at_work(one(fleet, tmp_path, "busy"), tmp_path) as work:
        work.until("grandchild")
        tree = children(work.process.pid)
        work.process.send_signal(signal.SIGINT)
        time.sleep(0.6)  # so that two are not one
        assert work.outcomes() == []
        work.process.send_signal(signal.SIGINT)
        assert work.end() == 130
    assert work.outcomes() == ["interrupted"]
    assert [pid for pid in tree if is_alive(pid)] == []
    assert state(fleet) == ("PENDING", 0)


def test_a_killed_fleet_leaves_no_agent_behind(fleet: Coordinator, tmp_path: Path) -> None:
    with at_work(one(fleet, tmp_path, "stubborn"), tmp_path) as work:
        work.until("stubborn")
        tree = children(work.process.pid)
        assert len(tree) >= 5
        work.process.kill()
        eventually(lambda: not [pid for pid in tree if is_alive(pid)], "the end of all")


def test_a_stopped_fleet_has_its_agents_ended_when_the_lease_is_over(
    fleet: Coordinator, tmp_path: Path
) -> None:
    with at_work(one(fleet, tmp_path, "stubborn"), tmp_path, "--lease", 2) as work:
        work.until("stubborn")
        agent = int((tmp_path / "grandchild").read_text())
        work.process.send_signal(signal.SIGSTOP)
        eventually(lambda: not is_alive(agent), "the agent's end", seconds=10)
        work.process.send_signal(signal.SIGCONT)
        eventually(work.ended, "the report")
    assert work.outcomes()[0] == "lost"


def test_a_killed_warden_leaves_nothing_behind_before_the_task_is_released(
    fleet: Coordinator, tmp_path: Path
) -> None:
    with at_work(one(fleet, tmp_path, "stubborn"), tmp_path, "--max-tasks", 1) as work:
        work.until("stubborn")
        [nursery] = [pid for pid in children(work.process.pid) if _parent(pid) == work.process.pid]
        [warden] = [pid for pid in children(nursery) if _parent(pid) == nursery]
        tree = children(warden)
        assert len(tree) >= 3
        os.kill(warden, signal.SIGKILL)
        eventually(work.ended, "the report")
        assert [pid for pid in tree if is_alive(pid)] == []
        assert work.end() == 0
    assert work.outcomes() == ["failed"]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_until_done_ends_although_a_task_is_left_that_no_agent_may_do(tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "success"})
    with genlock.connect(url) as fleet:
        fleet.add_tasks(
            tasks=[
                {"id": "H", "title": "success"},
                {"id": "B", "title": "success", "depends_on": ["H"]},
                {"id": "C", "title": "success", "depends_on": ["A"]},
                {"id": "O", "title": "success"},
            ]
        )
        fleet.assign_task(task_id="O", agent_id="olga")
        fleet.hold_task(task_id="H", reason="to be signed")
    with at_work(url, tmp_path, "--agents", 2, "--until-done") as work:
        assert work.end() == 0, work.errors()
    assert sorted(event["task_id"] for event in work.ended()) == ["A", "C"]
    assert work.reason()[0] == "done"


def test_a_fleet_survives_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "slow 2", "B": "success"})
    with serve(tmp_path, "--port", "0", url=url) as service:
        address, port = service.url, str(service.port)
        with at_work(address, tmp_path, "--until-done") as work:
            work.until("slow.A")
            assert service.end(signal.SIGKILL) == -signal.SIGKILL
            with serve(tmp_path, "--port", port, url=url):
                assert work.end() == 0, work.errors()
    assert work.outcomes() == ["accepted", "accepted"]


# Side by side


def test_agents_start_one_after_the_other(tmp_path: Path) -> None:
    url = plan(tmp_path, dict.fromkeys("ABC", "slow 2"), parallelizable=True)
    with at_work(url, tmp_path, "--agents", 3, "--until-done") as work:
        assert work.end() == 0, work.errors()
    logs = [Path(event["log"]).read_text().splitlines() for event in work.ended()]
    starts = sorted(datetime.fromisoformat(json.loads(lines[0])["at"]) for lines in logs)
    assert (starts[-1] - starts[0]).total_seconds() > 0.35  # twice 0.2 s or more


def test_tasks_that_are_not_parallelizable_share_no_workspace_at_a_time(tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "slow 1.5", "B": "slow 1.5"})
    with genlock.connect(url) as fleet:
        fleet.add_tasks(tasks=[{"id": "P", "title": "slow 3", "parallelizable": True}])
    with at_work(url, tmp_path, "--agents", 3, "--until-done") as work:
        assert work.end() == 0, work.errors()
    began, ended = times(tmp_path, "began"), times(tmp_path, "ended")
    assert began["B"] > ended["A"] or began["A"] > ended["B"]
    assert began["P"] < max(ended["A"], ended["B"])
    assert ended["P"] > min(began["A"], began["B"])


def test_each_agent_is_a_session_of_its_own(tmp_path: Path) -> None:
    url = plan(tmp_path, dict.fromkeys("AB", "slow 2"), parallelizable=True)
    with at_work(url, tmp_path, "--agents", 2, "--until-done") as work:
        assert work.end() == 0, work.errors()
    with genlock.connect(url) as fleet:
        claims = [fleet.get_lineage(task_id=task).generations[0] for task in "AB"]
    assert len({claim.session_id for claim in claims}) == 2
    assert len({claim.agent_id for claim in claims}) == 2


# What an agent is given


def test_output_without_end_does_not_block_an_agent(fleet: Coordinator, tmp_path: Path) -> None:
    assert only(fleet, tmp_path, "flood")["outcome"] == "accepted"


def test_any_command_gets_the_fields_and_its_last_json_line_is_the_result(
    fleet: Coordinator, tmp_path: Path
) -> None:
    program = (
        'printf "%s\\n" "$0 $1 $2" "$(cat)" >&2; head -1 "$3" >&2; echo text; echo \'{{"n": 1}}\';'
        " echo bye"
    )
    url = one(fleet, tmp_path, "anything")
    command = f"sh -c {json.dumps(program)} {{task}} {{generation}} '{{{{x}}}}' {{prompt_file}}"
    with at_work(url, tmp_path, "--max-tasks", 1, agent=("--command", command)) as work:
        assert work.end() == 0, work.errors()
    [ended] = work.ended()
    assert ended["outcome"] == "accepted", ended
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    assert result.result_data["result"] == {"n": 1}
    lines = [json.loads(line) for line in Path(ended["log"]).read_text().splitlines()]
    said = {line["text"] for line in lines if line.get("genlock") == "stderr"}
    assert {"T 1 {x}", "", "# anything"} <= said


def test_a_shell_reads_the_command_with_every_field_quoted(
    fleet: Coordinator, tmp_path: Path
) -> None:
    fleet.add_tasks(tasks=[{"id": "T", "title": "$(touch injected)'; touch injected"}])
    url = f"sqlite://{tmp_path}/plan.db"
    command = 'printf "%s" {prompt} | head -1 > "$GENLOCK_RESULT"'
    with at_work(url, tmp_path, "--max-tasks", 1, "--shell", agent=("--command", command)) as work:
        assert work.end() == 0, work.errors()
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    assert result.result_data["result"] == "# $(touch injected)'; touch injected\n"
    assert not (tmp_path / "injected").exists()


def test_a_prompt_that_is_too_long_for_an_argument_is_refused(
    fleet: Coordinator, tmp_path: Path
) -> None:
    url = one(fleet, tmp_path, "success")
    (tmp_path / "long.md").write_text("x" * 131_072)
    options = ("--instructions", "long.md")
    with at_work(url, tmp_path, *options, agent=("--command", "echo {prompt}")) as work:
        assert work.end() == 1
    reason, detail = work.reason()
    assert reason == "not_started"
    assert "use {prompt_file} in place of {prompt}" in detail
    assert state(fleet) == ("PENDING", 0)
    with at_work(url, tmp_path, "--max-tasks", 1, *options) as work:
        assert work.end() == 0
    assert (tmp_path / "prompt.T.gen2").read_text().endswith("x\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "which agent?"),
        (("--command", "echo {promt}"), "there is no field {promt}"),
        (("--command", "echo {"), "write {{ for the character itself"),
        (("--command", "echo 'x"), "cannot be split"),
        (("--command", "no-such-program-here"), "is not installed, or not on your PATH"),
        (("--command", "echo {branch}"), "give --worktree, too"),
        (("--command", "echo", "--copy", ".env"), "--copy is for worktrees"),
        (("--command", "echo", "--worktree"), "in no git repository"),
        (("--command", "echo", "--timeout", "soon"), "is no length of time"),
        (("--command", "echo", "--agents", "0"), "0 is not in the range"),
    ],
)
def test_a_call_that_cannot_be_is_refused_before_anything_is_claimed(
    words: tuple[str, ...], told: str, fleet: Coordinator, tmp_path: Path
) -> None:
    url = one(fleet, tmp_path, "success")
    ran = run("work", *words, cwd=tmp_path, env={"GENLOCK_URL": url})
    assert ran.code == 2
    assert told in ran.err
    assert fleet.get_task_state(task_id="T").generation == 0


def test_no_coordinator_is_122(tmp_path: Path) -> None:
    with at_work("http://127.0.0.1:1", tmp_path, "--patience", 0) as work:
        assert work.end() == 122


# Worktrees


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    (folder / ".gitignore").write_text(".env\n.genlock\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    (folder / ".env").write_text("PORT=1")
    return folder


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_worktree_goes_when_its_task_is_over_and_stays_with_uncommitted_work(
    repository: Path, tmp_path: Path
) -> None:
    url = plan(tmp_path, {"A": "commit", "B": "success", "C": "dirty"})
    options = ("--worktree", "--agents", 3, "--copy", ".env", "--setup", "test -e .env && touch s")
    with at_work(url, tmp_path, *options, "--max-tasks", 3, folder=repository) as work:
        assert work.end() == 0, work.errors()
    ended = {event["task_id"]: event for event in work.ended()}
    assert {task: event["outcome"] for task, event in ended.items()} == {
        "A": "accepted",
        "B": "accepted",
        "C": "failed",
    }
    trees = repository / ".genlock" / "worktrees"
    assert sorted(path.name for path in trees.iterdir()) == ["B.gen1", "C.gen1"]
    assert ended["A"]["kept"] == "the branch genlock/A/gen1"
    assert ended["B"]["kept"].startswith("the branch genlock/B/gen1, with uncommitted changes, in")
    assert ended["A"]["commit"] == git(repository, "rev-parse", "genlock/A/gen1")
    assert ended["C"]["kept"].startswith("the branch genlock/C/gen1, with uncommitted changes, in")
    with genlock.connect(url) as fleet:
        result = fleet.get_task_state(task_id="A").result
        assert result is not None
        assert result.reference == ended["A"]["commit"]
        assert "work left in the branch genlock/C/gen1" in (
            fleet.get_lineage(task_id="C").generations[0].note
        )
    assert "on the branch genlock/A/gen1" in (tmp_path / "prompt.A.gen1").read_text()
    git(repository, "merge", "--quiet", "genlock/A/gen1")
    git(trees / "B.gen1", "clean", "-fdq")
    with at_work(
        url, tmp_path, *options, "--track", "Z", "--until-done", folder=repository
    ) as work:
        eventually(lambda: not (trees / "B.gen1").exists(), "the clean worktree's end")
        eventually(
            lambda: git(repository, "branch", "--list", "genlock/*") == "+ genlock/C/gen1",
            "the merged branch's end",
        )
    assert (trees / "C.gen1" / "dirty.txt").exists()


def test_a_turn_that_is_given_back_is_taken_by_another_agent_before_the_fleet_stops() -> None:
    """One of two slots has the last turn and may find nothing: until it is granted a task, the
    other one waits for the turn."""
    told: list[str] = []
    with genlock.connect("memory://", session_id="s", agent_id="a") as fleet:
        settings = PoolSettings(("s1", "s2"), ("a1", "a2"), max_tasks=1)
        unused: Any = None
        pool = AgentPool(fleet, unused, unused, settings, lambda name, _: told.append(name))
        assert pool._take_turn(0)
        with ThreadPoolExecutor(1) as other:
            waiting = other.submit(pool._take_turn, 1)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            pool._give_turn_back(0)
            assert waiting.result(timeout=20)
        pool._asking.clear()  # it is granted a task
        assert not pool._take_turn(0)
    assert told == ["stopping"]
    assert pool.ending is not None
    assert pool.ending.reason == "max_tasks"


def test_an_empty_worktree_is_removed(repository: Path, tmp_path: Path) -> None:
    url = plan(tmp_path, {"B": "success"})
    with at_work(url, tmp_path, "--worktree", "--until-done", folder=repository) as work:
        assert work.end() == 0, work.errors()
    assert list((repository / ".genlock" / "worktrees").iterdir()) == []
    assert git(repository, "branch", "--list", "genlock/*") == ""


def test_a_task_can_ask_for_a_worktree(repository: Path, tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "commit"}, isolation="worktree")
    with at_work(url, tmp_path, "--until-done", folder=repository) as work:
        assert work.end() == 0, work.errors()
    assert git(repository, "branch", "--list", "genlock/*") == "genlock/A/gen1"


def test_a_setup_command_that_fails_is_a_failure(repository: Path, tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "success"})
    options = ("--worktree", "--setup", "echo no network >&2; false", "--max-tasks", 1)
    with at_work(url, tmp_path, *options, folder=repository) as work:
        assert work.end() == 0, work.errors()
    [ended] = work.ended()
    assert (ended["outcome"], ended["detail"]) == (
        "failed",
        "the setup command failed: echo no network >&2; false",
    )


def test_worktrees_let_tasks_run_side_by_side(repository: Path, tmp_path: Path) -> None:
    url = plan(tmp_path, dict.fromkeys("AB", "slow 3"))
    options = ("--worktree", "--agents", 2, "--until-done")
    with at_work(url, tmp_path, *options, folder=repository) as work:
        assert work.end() == 0, work.errors()
    began, ended = times(tmp_path, "began"), times(tmp_path, "ended")
    assert max(began.values()) < min(ended.values())


# What is seen


def test_a_terminal_shows_a_live_table_that_obeys_nothing_in_it(tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "hostile"})
    env: dict[str, str | None] = {**fake_environment(tmp_path, url), "TERM": "xterm-256color"}
    words = ("work", "--agents", 2, "--agent", "claude", "--until-done")
    with Terminal(*words, cwd=tmp_path, columns=100, env=env) as terminal:
        terminal.wait_for("waits for a task")
        terminal.wait_for("rm -rf")
        terminal.wait_for("accepted  A, generation 1")
        assert terminal.end() == 0
    assert "\x1b]0;owned" not in terminal.shown
    assert "\x1b[2J" not in terminal.shown
    assert "1 accepted · 3 turns · $0.25" in terminal.shown


def test_a_fleet_whose_output_nobody_reads_lets_its_agents_finish(tmp_path: Path) -> None:
    url = plan(tmp_path, {"A": "slow 1", "B": "slow 1"})
    with subprocess.Popen(
        [*COMMAND, "work", "--agent", "claude"],
        cwd=tmp_path,
        env=fake_environment(tmp_path, url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "claimed"
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
    with genlock.connect(url) as fleet:
        states = sorted(str(fleet.get_task_state(task_id=task).state) for task in "AB")
    assert states == ["COMPLETED", "PENDING"]


def test_quiet_says_why_it_failed(fleet: Coordinator, tmp_path: Path) -> None:
    with at_work(one(fleet, tmp_path, "auth"), tmp_path, "-q") as work:
        assert work.end() == 4
    assert work.errors().startswith("genlock: The agents are not allowed to work: Not logged in")


def test_quiet_prints_the_tasks_that_were_done(fleet: Coordinator, tmp_path: Path) -> None:
    with at_work(one(fleet, tmp_path, "success"), tmp_path, "--until-done", "-q") as work:
        assert work.end() == 0
    assert (tmp_path / "events").read_text() == "T\n"


def test_the_end_of_an_agents_session_leaves_the_claim_it_works_under(
    fleet: Coordinator, tmp_path: Path
) -> None:
    url = one(fleet, tmp_path, "success")
    claim = fleet.claim_task(task_id="T").claim
    assert claim is not None
    env = {"GENLOCK_URL": url, "GENLOCK_SESSION": "test"}
    given = {"GENLOCK_TASK": "T", "GENLOCK_GENERATION": str(claim.generation)}
    for event in ("Stop", "SessionEnd"):
        told = json.dumps({"hook_event_name": event, "session_id": "other"})
        assert run("hook", "claude", cwd=tmp_path, env=env | given, input=told).code == 0
    assert fleet.get_task_state(task_id="T").claim == claim
    told = json.dumps({"hook_event_name": "Stop", "session_id": "other"})
    assert run("hook", "claude", cwd=tmp_path, env=env, input=told).code == 2
