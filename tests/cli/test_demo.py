"""The demo: real processes, real accidents, and a report that can find fault."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.cli.sample_fleet import demo as examine
from genlock.core.results import FeedEvent
from tests.cli.console import COMMAND, Ran, environment, run
from tests.cli.terminal import shown

PROMISES = [
    "all that was scripted has happened",
    "every task is completed",
    "each completed task has one accepted result, of its highest generation",
    "no generation was granted twice",
    "generations only rise",
    "nothing refused was lost",
    "replaying the events gives the records",
    "every worker that was not killed ended in order",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def ran(folder: Path) -> Ran:
    """One hurried run off a terminal, which the tests below look at from several sides."""
    return run("demo", "--quick", "--keep", env={"TMPDIR": str(folder)}, timeout=100)


class TestOffATerminal:
    def test_every_promise_held(self, ran: Ran) -> None:
        assert ran.code == 0, ran.err
        assert ran.json()["held"] is True
        assert ran.json()["invariants"] == [
            {"promise": promise, "faults": []} for promise in PROMISES
        ]

    def test_the_answer_is_json_and_the_story_is_told_beside_it(self, ran: Ran) -> None:
        assert list(ran.json()) == ["held", "invariants", "lineages", "seconds", "store"]
        assert "five workers set out" in ran.err
        assert "\x1b" not in ran.err + ran.out

    def test_the_killed_workers_task_was_taken_over_before_its_lease_ended(self, ran: Ran) -> None:
        killed = re.search(r"kill -9 (\w+), in the middle of A-002", ran.err)
        assert killed is not None
        gone = re.search(
            rf"{killed[1]} is found gone: A-002 is free, (\d+) s before its lease ends", ran.err
        )
        assert gone is not None
        assert int(gone[1]) > 0
        assert re.search(r"\w+ takes over A-002 at generation 2", ran.err)

    def test_the_zombie_came_back_and_was_refused_and_its_result_kept(self, ran: Ran) -> None:
        stopped = re.search(r"kill -STOP (\w+), in the middle of B-002", ran.err)
        assert stopped is not None
        assert f"{stopped[1]} submits B-002: STALE_GENERATION (1 < 2), result kept" in ran.err
        zombie = ran.json()["lineages"][0]
        assert [
            (entry["generation"], entry["release_reason"], entry["result_accepted"])
            for entry in zombie["generations"]
        ] == [
            (1, "EXPIRED", False),
            (2, "COMPLETED", True),
        ]
        assert [
            (result["agent_id"], result["generation"], result["state"])
            for result in zombie["refused"]
        ] == [(stopped[1], 1, "KEPT")]

    def test_an_operator_adopted_a_refused_result(self, ran: Ran) -> None:
        assert "olga adopts the refused result of generation 1: B-001 is done" in ran.err
        assert [result["state"] for result in ran.json()["lineages"][1]["refused"]] == ["ADOPTED"]

    def test_a_split_task_completed_with_its_last_subtask(self, ran: Ran) -> None:
        assert re.search(r"splits F-001 into 3 subtasks \(fan-out-fan-in\)", ran.err)
        assert "all subtasks are done: F-001 completes, at generation 2" in ran.err

    def test_the_store_it_keeps_can_be_opened_again(self, ran: Ran, folder: Path) -> None:
        url = ran.json()["store"]
        assert Path(url.removeprefix("sqlite://")).is_relative_to(folder)
        with genlock.connect(url, create=True) as fleet:
            assert {
                track: progress.completed for track, progress in fleet.track_progress().items()
            } == {"A": 3, "B": 3, "F": 4}
        assert run("doctor", "--url", url).code == 0


def test_on_a_terminal_it_moves_and_nothing_is_wider_than_it(tmp_path: Path) -> None:
    code, lines = shown(
        "demo", "--quick", cwd=tmp_path, env={"TMPDIR": str(tmp_path), "NO_COLOR": "1"}
    )
    assert code == 0, lines
    text = "\n".join(lines)
    assert "\x1b[1A" in text  # the picture is drawn over itself
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rpartition("\r")[2] for line in lines]
    assert max(map(len, plain)) <= 80
    assert [line[:7] for line in plain if line.startswith("  held ")] == ["  held "] * 8
    assert any(line.startswith("Lineage of B-002-entity-models") for line in plain)
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_without_room_for_the_picture_gets_lines(tmp_path: Path) -> None:
    code, lines = shown("demo", "--quick", cwd=tmp_path, columns=60, env={"TMPDIR": str(tmp_path)})
    assert code == 0, lines
    assert any("kill -9" in line for line in lines)
    assert "\x1b[1A" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("tampering", "promise"),
    [
        (
            "UPDATE record SET state = 'HELD' WHERE name = 'A-001-core-framework'",
            "replaying the events gives the records",
        ),
        ("DELETE FROM record WHERE kind = 'refused'", "every event can be read"),
    ],
)
def test_a_run_that_was_tampered_with_exits_with_1_and_names_the_broken_promise(
    tmp_path: Path, tampering: str, promise: str
) -> None:
    program = f"""if True:
        import apsw
        from genlock.cli.sample_fleet import demo as play
        from genlock.cli.main import main
        honest = play.examine
        def tampered(fleet, states):
            db = apsw.Connection(str(fleet.engine.store._path))
            db.set_busy_timeout(5000)
            db.execute({tampering!r})
            return honest(fleet, states)
        play.examine = tampered
        main(["demo", "--quick", "--json"])
    """
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment({"TMPDIR": str(tmp_path)}),
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["held"] is False
    assert promise in [finding["promise"] for finding in answer["invariants"] if finding["faults"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_worker_and_no_folder(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"TMPDIR": str(tmp_path)}),
    ) as playing:
        assert playing.stderr is not None
        for line in playing.stderr:
            if "claims A-001" in line:
                break
        else:
            pytest.fail("no worker ever claimed anything")
        (store,) = tmp_path.glob("genlock-demo-*/genlock.db")
        with genlock.connect(f"sqlite://{store}", create=True) as fleet:
            pids = [
                session.pid for session in fleet.list_sessions() if session.agent_type == "demo"
            ]
        playing.send_signal(number)
        out, err = playing.communicate(timeout=60)
    assert (playing.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "genlock: broken off"
    assert list(tmp_path.iterdir()) == []
    assert pids
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class TestTheReport:
    """It can find fault: it is no list of compliments."""

    def test_it_notices_a_second_accepted_result(self) -> None:
        feed = [
            happened("CLAIM_ACQUIRED", 1),
            happened("RESULT_ACCEPTED", 1),
            happened("RESULT_ACCEPTED", 1),
        ]
        assert list(examine._accepted_once(feed)) == ["t has 2 accepted results"]

    def test_it_notices_a_result_of_a_lower_generation(self) -> None:
        feed = [happened("CLAIM_ACQUIRED", 2), happened("RESULT_ACCEPTED", 1)]
        assert list(examine._accepted_once(feed)) == [
            "t took a result of generation 1, its highest is 2"
        ]

    def test_it_notices_a_generation_granted_twice(self) -> None:
        feed = [happened("CLAIM_ACQUIRED", 1), happened("CLAIM_ACQUIRED", 1)]
        assert list(examine._granted_twice(feed)) == ["t granted generation 1 2 times"]

    def test_it_notices_a_generation_that_falls(self) -> None:
        feed = [happened("CLAIM_ACQUIRED", 2), happened("LEASE_RENEWED", 1)]
        assert list(examine._fallen(feed)) == ["t went from generation 2 to 1"]

    def test_it_notices_a_refused_result_that_cannot_be_read(self) -> None:
        feed = [happened("RESULT_REJECTED", 1, agent_id="ada", digest="ab12")]
        with genlock.connect("memory://") as fleet:
            assert list(examine._lost(fleet, feed)) == [
                "t: what ada submitted at generation 1 cannot be read any more"
            ]


def happened(event_type: str, generation: int, **more: str) -> FeedEvent:
    event: dict[str, Any] = {
        "event_type": event_type,
        "task_id": "t",
        "generation": generation,
        **more,
    }
    return FeedEvent(position=1, cursor="", kind="task", id="t", event_type=event_type, event=event)
