"""The examples run as a newcomer runs them, and show what they promise."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.core.results import FeedEvent

EXAMPLES = Path(__file__).parent.parent / "examples"
FLEET = EXAMPLES / "scripted_fleet.py"


def run(script: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The example in a process of its own, its temporary files in `folder`."""
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=100, env=environment(folder), check=False
    )


def environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("GENLOCK_URL", "FORCE_COLOR", "TTY_COMPATIBLE")}
    return inherited | {"TMPDIR": str(folder)}


def test_the_first_steps_show_a_takeover_and_a_stale_result(tmp_path: Path) -> None:
    ran = run(EXAMPLES / "first_steps.py", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "ada holds A-001-core-framework at generation 1",
        "ben is told: DENIED_ACTIVE_CLAIM, ada holds it",
        "ben takes over A-001-core-framework at generation 2",
        "ben's result: ACCEPTED",
        "ada's result: STALE_GENERATION (1 < 2), kept: True",
        "ready now: B-001-schema",
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def ran(folder: Path) -> subprocess.CompletedProcess[str]:
    """One hurried run, which the tests below look at from several sides."""
    return run(FLEET, "--quick", "--keep", folder=folder)


class TestTheScriptedFleet:
    """Real processes, real accidents."""

    def test_every_promise_held(self, ran: subprocess.CompletedProcess[str]) -> None:
        assert ran.returncode == 0, ran.stdout + ran.stderr
        promises = ran.stdout[ran.stdout.index("Checked against every event") :].splitlines()[1:9]
        assert [line[:7] for line in promises] == ["  held "] * 8

    def test_the_killed_workers_task_was_taken_over_before_its_lease_ended(self, ran: subprocess.CompletedProcess[str]) -> None:
        killed = re.search(r"kill -9 (\w+), in the middle of A-002", ran.stdout)
        assert killed is not None
        gone = re.search(rf"{killed[1]} is found gone: A-002 is free, (\d+) s before its lease ends", ran.stdout)
        assert gone is not None
        assert int(gone[1]) > 0
        assert re.search(r"\w+ takes over A-002 at generation 2", ran.stdout)

    def test_the_zombie_came_back_and_was_refused_and_its_result_kept(self, ran: subprocess.CompletedProcess[str]) -> None:
        stopped = re.search(r"kill -STOP (\w+), in the middle of B-002", ran.stdout)
        assert stopped is not None
        assert f"{stopped[1]} submits B-002: STALE_GENERATION (1 < 2), result kept" in ran.stdout
        lineage = ran.stdout[ran.stdout.index("Lineage of B-002") : ran.stdout.index("Lineage of B-001")]
        assert re.search(rf"1 +sess-\d+ +{stopped[1]} .*EXPIRED", lineage)
        assert re.search(r"2 +sess-\d+ .*ACCEPTED", lineage)
        assert re.search(rf"└─ sess-\d+/{stopped[1]} submitted at \S+ → REJECTED \(gen 1 < current 2\), KEPT", lineage)

    def test_an_operator_adopted_a_refused_result(self, ran: subprocess.CompletedProcess[str]) -> None:
        assert "olga adopts the refused result of generation 1: B-001 is done" in ran.stdout
        assert re.search(r"Lineage of B-001[\s\S]*REJECTED \(gen 1 < current 2\), ADOPTED", ran.stdout)

    def test_a_split_task_completed_with_its_last_subtask(self, ran: subprocess.CompletedProcess[str]) -> None:
        assert re.search(r"splits F-001 into 3 subtasks \(fan-out-fan-in\)", ran.stdout)
        assert "all subtasks are done: F-001 completes, at generation 2" in ran.stdout

    def test_the_store_it_keeps_can_be_opened_again(self, ran: subprocess.CompletedProcess[str], folder: Path) -> None:
        kept = re.search(r"The store is kept: (\S+)", ran.stdout)
        assert kept is not None
        assert Path(kept[1]).is_relative_to(folder)
        with genlock.connect(f"sqlite://{kept[1]}") as fleet:
            assert {track: progress.completed for track, progress in fleet.track_progress().items()} == {"A": 3, "B": 3, "F": 4}

    def test_without_a_terminal_there_are_plain_lines(self, ran: subprocess.CompletedProcess[str]) -> None:
        assert "\x1b" not in ran.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_an_interrupted_fleet_leaves_no_worker_and_no_folder(tmp_path: Path) -> None:
    playing = subprocess.Popen([sys.executable, str(FLEET)], stdout=subprocess.PIPE, text=True, env=environment(tmp_path))
    assert playing.stdout is not None
    for line in playing.stdout:
        if "claims A-001" in line:
            break
    else:
        pytest.fail("no worker ever claimed anything")
    workers = children_of(playing.pid)
    assert len(workers) == 5
    playing.send_signal(signal.SIGINT)
    rest, _ = playing.communicate(timeout=60)
    assert "all workers are gone" in rest
    assert playing.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class TestTheReport:
    """The report can find fault: it is no list of compliments."""

    @pytest.fixture
    def report(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        return importlib.import_module("fleet.report")

    def test_it_notices_a_second_accepted_result(self, report: Any) -> None:
        feed = [happened("CLAIM_ACQUIRED", 1), happened("RESULT_ACCEPTED", 1), happened("RESULT_ACCEPTED", 1)]
        assert list(report._accepted_once(feed)) == ["t has 2 accepted results"]

    def test_it_notices_a_result_of_a_lower_generation(self, report: Any) -> None:
        feed = [happened("CLAIM_ACQUIRED", 2), happened("RESULT_ACCEPTED", 1)]
        assert list(report._accepted_once(feed)) == ["t took a result of generation 1, its highest is 2"]

    def test_it_notices_a_generation_granted_twice(self, report: Any) -> None:
        feed = [happened("CLAIM_ACQUIRED", 1), happened("CLAIM_ACQUIRED", 1)]
        assert list(report._granted_twice(feed)) == ["t granted generation 1 2 times"]

    def test_it_notices_a_generation_that_falls(self, report: Any) -> None:
        feed = [happened("CLAIM_ACQUIRED", 2), happened("LEASE_RENEWED", 1)]
        assert list(report._fallen(feed)) == ["t went from generation 2 to 1"]

    def test_it_notices_a_refused_result_that_cannot_be_read(self, report: Any) -> None:
        feed = [happened("RESULT_REJECTED", 1, agent_id="ada", digest="ab12")]
        with genlock.connect("memory://") as fleet:
            assert list(report._lost(fleet, feed)) == ["t: what ada submitted at generation 1 cannot be read any more"]


def happened(event_type: str, generation: int, **more: str) -> FeedEvent:
    event = {"event_type": event_type, "task_id": "t", "generation": generation, **more}
    return FeedEvent(position=1, cursor="", kind="task", id="t", event_type=event_type, event=event)
