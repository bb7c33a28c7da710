"""Commands that want more than to do their task: what `genlock run` reads as their result, and what
is left of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from tests.eventually import eventually
from tests.worker.agent_fleets import at_work, plan
from tests.worker.runs import is_alive, running, store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper and /proc")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return store(tmp_path)


@pytest.fixture
def fleet(url: str) -> Iterator[Coordinator]:
    with genlock.connect(url, session_id="test", agent_id="test") as fleet:
        yield fleet


def result_of(fleet: Coordinator) -> object:
    return fleet.read_result(task_id="T")


@pytest.mark.parametrize("link", ["ln -s", "ln -s -f"])
def test_a_result_that_is_a_link_is_not_followed(
    link: str, url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    """The command may be confined to fewer files than we are."""
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    script = f'{link} "{secret}" "$GENLOCK_RESULT"'
    with running(url, tmp_path, "T", "--", "sh", "-c", script) as run:
        assert run.end() == 0
    assert result_of(fleet) == {"exit_status": 0}


def test_a_result_that_is_too_large_outlives_the_run_as_a_file(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary)}
    script = 'truncate -s 300M "$GENLOCK_RESULT"'
    with running(url, tmp_path, "T", "--", "sh", "-c", script, env=env) as run:
        assert run.end() == 0
    told = result_of(fleet)
    assert isinstance(told, dict)
    (kept,) = temporary.iterdir()
    assert told == {"exit_status": 0, "result_file": str(kept), "truncated": True}
    assert (kept.stat().st_size, kept.stat().st_mode & 0o777) == (300 * 1024 * 1024, 0o600)


def test_a_result_that_is_larger_than_the_tenant_may_have_is_kept_as_a_file(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    fleet.set_tenant(limits={"max_result_size_bytes": 1000})
    script = 'head -c 5000 /dev/zero | tr "\\0" x > "$GENLOCK_RESULT"'
    with running(url, tmp_path, "T", "--", "sh", "-c", script) as run:
        assert run.end() == 0
    told = result_of(fleet)
    assert isinstance(told, dict)
    kept = Path(told.pop("result_file"))
    assert (told, kept.read_text()) == ({"exit_status": 0, "truncated": True}, "x" * 5000)
    kept.unlink()


@pytest.mark.parametrize("text", ['{"loss": NaN}', "[-Infinity]", '"\\ud800"', "[" * 100_000])
def test_a_result_that_is_no_json_to_others_is_text(
    text: str, url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    (tmp_path / "made").write_text(text)
    script = 'cp made "$GENLOCK_RESULT"'
    with running(url, tmp_path, "T", "--", "sh", "-c", script) as run:
        assert run.end() == 0
    assert result_of(fleet) == text


STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
place = sys.argv[1]
os.closerange(0, 3)
open(place + "/leader", "w").write(str(os.getpid()))
until = time.monotonic() + 60
while time.monotonic() < until:              # forks on while it is being killed
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        open(place + f"/daemon-{os.getpid()}", "w").close()
        time.sleep(600)
    time.sleep(0.005)
"""


def test_nothing_is_left_of_a_command_that_ignores_signals_and_forks_while_it_is_killed(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    (tmp_path / "pids").mkdir()
    command = (sys.executable, "-S", "-c", STUBBORN, tmp_path / "pids")
    with running(url, tmp_path, "T", "--", *command) as run:
        leader = tmp_path / "pids" / "leader"
        pid = int(eventually(lambda: leader.exists() and leader.read_text(), "the command"))
        run.process.send_signal(signal.SIGTERM)
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 128 + 9
        assert fleet.get_task_state(task_id="T").claim is None
        left = [name for name in os.listdir(tmp_path / "pids") if name.startswith("daemon-")]
        assert len(left) > 1
        assert not [name for name in left if is_alive(int(name.partition("-")[2]))]
        assert not is_alive(pid)


# What agents of `genlock work` say and leave


@pytest.mark.parametrize(
    ("what", "result"),
    [
        ("nonsense", {"told": "? done", "loss": None}),
        ("linked", "all done"),
    ],
)
def test_what_an_agent_says_is_made_json_and_its_link_is_not_followed(
    what: str, result: object, tmp_path: Path
) -> None:
    url = plan(tmp_path, {"T": what})
    with at_work(url, tmp_path, "--max-tasks", 1) as work:
        assert work.end() == 0, work.errors()
    with genlock.connect(url) as fleet:
        told = result_of(fleet)
    assert isinstance(told, dict)
    assert told["result"] == result


def test_a_large_result_of_an_agent_outlives_its_run_as_a_file(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    url = plan(tmp_path, {"T": "large"})
    with at_work(url, tmp_path, "--max-tasks", 1, env={"TMPDIR": str(temporary)}) as work:
        assert work.end() == 0, work.errors()
    with genlock.connect(url) as fleet:
        told = result_of(fleet)
    assert isinstance(told, dict)
    (kept,) = temporary.glob("genlock-result-*")
    assert told["result"] == {"exit_status": 0, "result_file": str(kept), "truncated": True}
    assert kept.stat().st_size == 20 * 1024 * 1024


def test_an_agent_whose_products_are_nonsense_does_not_stop_the_fleet(tmp_path: Path) -> None:
    url = plan(tmp_path, {"T": "products then success"})
    with at_work(url, tmp_path, "--max-tasks", 2) as run:
        assert run.end() == 0, run.errors()
    assert sorted(run.outcomes()) == ["accepted", "failed"]
    (failed,) = [ended for ended in run.ended() if ended["outcome"] == "failed"]
    assert "is not as product put writes it" in failed["detail"]
    assert Path(failed["result_file"]).read_text() == '"much work"'
    with genlock.connect(url) as fleet:
        assert fleet.get_lineage(task_id="T").generations[0].note.startswith("failed: ")
