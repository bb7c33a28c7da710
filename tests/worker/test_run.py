"""`genlock run`: a command under a claim, with real processes and signals. The numbers are those of
the complaints that other wrappers have got, as docs/how-to/use-with-any-command.md lists them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from genlock.worker.result_file import save_file
from genlock.worker.warded import WardedCommand
from genlock.worker.warden import SharedDeadline
from tests.eventually import eventually
from tests.servers.proxy import between
from tests.servers.service import serving
from tests.service.process import serve
from tests.worker.runs import MEMBERS, TREE, events, is_alive, running, store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper and /proc")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return store(tmp_path, "T", "U")


@pytest.fixture
def fleet(url: str) -> Iterator[Coordinator]:
    with genlock.connect(url, session_id="test", agent_id="test") as fleet:
        yield fleet


def tree(place: Path) -> list[str]:
    return [sys.executable, "-c", TREE, str(place)]


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def all_gone(pids: dict[str, int]) -> None:
    assert {name: pid for name, pid in pids.items() if is_alive(pid)} == {}


def until_claimed(fleet: Coordinator, task: str = "T") -> int:
    def generation() -> int | None:
        state = fleet.get_task_state(task_id=task)
        return state.generation if state.claim is not None else None

    return int(eventually(generation, "the claim") or 0)


# What it does


def test_the_result_is_what_the_command_wrote(url: str, fleet: Coordinator, tmp_path: Path) -> None:
    script = 'echo "$GENLOCK_TASK $GENLOCK_GENERATION"; echo \'{"n": 1}\' > "$GENLOCK_RESULT"'
    with running(url, tmp_path, "T", "--", *shell(script)) as run:
        assert run.end() == 0
        assert run.process.stdout is not None
        assert run.process.stdout.read() == "T 1\n"
    state = fleet.get_task_state(task_id="T")
    assert state.result is not None
    assert (state.state, state.result.result_data) == ("COMPLETED", {"n": 1})
    assert (run.status["outcome"], run.status["exit_code"]) == ("accepted", 0)
    assert (run.status["task_id"], run.status["generation"]) == ("T", 1)


def test_what_is_no_regular_file_is_not_saved(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "result")
    assert save_file(tmp_path / "result") == ""


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("true", {"exit_status": 0}),
        ('printf "plain text" > "$GENLOCK_RESULT"', "plain text"),
        ('mkfifo "$GENLOCK_RESULT"', {"exit_status": 0}),  # reading it would never end
    ],
)
def test_a_result_is_json_or_text_or_the_exit_status(
    script: str, result: object, url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    with running(url, tmp_path, "--next", "--", *shell(script)) as run:
        assert run.end() == 0
    told = fleet.get_task_state(task_id="T").result
    assert told is not None
    assert told.result_data == result


def test_the_exit_code_of_a_failure_is_the_commands_and_the_error_is_left_for_the_next(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    with running(url, tmp_path, "T", "--", *shell("exit 7")) as run:
        assert run.end() == 7
    state = fleet.get_task_state(task_id="T")
    assert (state.state, state.failures) == ("PENDING", 1)
    with running(url, tmp_path, "T", "--", *shell('cat "$GENLOCK_PROMPT_FILE"')) as run:
        assert run.end() == 0
        assert run.process.stdout is not None
        assert "- generation 1: exit status 7" in run.process.stdout.read()


def test_two_reports_of_the_warden_that_come_at_once_are_both_read() -> None:
    """A command may end before its start was read, as `true` does. The warden stays after that, so
    nothing more comes."""
    (unread, orders), (reports, told) = os.pipe(), os.pipe()
    command = WardedCommand(orders, reports, SharedDeadline())
    os.write(told, b'{"started": 1}\n{"ended": 0}\n')
    assert command.read_report() == {"started": 1}
    assert command.sleep([reports], 0.0) == [reports]
    assert command.read_report() == {"ended": 0}
    assert command.sleep([reports], 0.0) == []
    command.close()
    for each in (unread, told):
        os.close(each)


def test_a_command_that_a_signal_ended_has_128_more(url: str, tmp_path: Path) -> None:
    with running(url, tmp_path, "T", "--", *shell("kill -9 $$")) as run:
        assert run.end() == 128 + 9
    assert run.status["detail"] == "killed by SIGKILL"


def test_a_denied_claim_starts_nothing(url: str, fleet: Coordinator, tmp_path: Path) -> None:
    fleet.claim_task(task_id="T")
    for options, code in (([], 5), (["--conflict-exit-code", 75], 75)):
        with running(url, tmp_path, *options, "T", "--", "touch", tmp_path / "started") as run:
            assert run.end() == code
        assert run.status["reason"] == "DENIED_ACTIVE_CLAIM"
    assert not (tmp_path / "started").exists()


def test_a_task_that_the_session_holds_already_is_a_conflict(url: str, tmp_path: Path) -> None:
    who = {"GENLOCK_AGENT": "a"}
    with genlock.connect(url, session_id="s", agent_id="a", process=None) as fleet:
        fleet.claim_task(task_id="T")
    with running(url, tmp_path, "--session", "s", "T", "--", "true", env=who) as run:
        assert run.end() == 5
    assert run.status["reason"] == "ALREADY_HELD"


def test_nothing_ready_is_3_and_a_command_that_cannot_be_started_127(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    with running(url, tmp_path, "--track", "Z", "--", "true") as run:
        assert run.end() == 3
    with running(url, tmp_path, "T", "--", "/does/not/exist") as run:
        assert run.end() == 127
    state = fleet.get_task_state(task_id="T")
    assert (state.state, state.failures) == ("PENDING", 0)


def test_an_unreachable_coordinator_is_122(tmp_path: Path) -> None:
    with running("http://127.0.0.1:1", tmp_path, "--patience", 0, "T", "--", "true") as run:
        assert run.end() == 122
    assert run.status["outcome"] == "unreachable"


def test_the_command_gets_default_handlers_and_an_empty_mask(url: str, tmp_path: Path) -> None:
    """Row 16."""
    program = (
        "import pathlib, signal\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "text = pathlib.Path('/proc/self/status').read_text()\n"
        "ignored = int(text.partition('SigIgn:')[2].split()[0], 16)\n"
        "ignored &= (1 << 31) - 1\n"  # above are real-time signals, two of them the C library's own
        "assert not ignored & ~(1 << 12 | 1 << 24), hex(ignored)\n"  # what Python itself ignores
    )
    with running(url, tmp_path, "T", "--", sys.executable, "-c", program) as run:
        assert run.end() == 0, run.process.stderr and run.process.stderr.read()


def test_the_command_gets_no_secret_of_ours(url: str, tmp_path: Path) -> None:
    with running(url, tmp_path, "T", "--", "env") as run:
        assert run.end() == 0
        assert run.process.stdout is not None
        told = run.process.stdout.read()
    assert "GENLOCK_TOKEN" not in told
    names = {line.partition("=")[0] for line in told.splitlines() if line.startswith("GENLOCK_")}
    assert names >= {
        "GENLOCK_URL",
        "GENLOCK_PROJECT",
        "GENLOCK_SESSION",
        "GENLOCK_AGENT",
        "GENLOCK_TASK",
        "GENLOCK_GENERATION",
        "GENLOCK_RESULT",
        "GENLOCK_PROMPT_FILE",
    }


def test_a_command_that_submits_by_itself_is_left_to_end(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    submit = f"{sys.executable} -m genlock.cli submit --text mine; sleep 3.5; touch ended"
    with running(url, tmp_path, "--lease", 3, "T", "--", *shell(submit)) as run:
        assert run.end() == 0
    assert (tmp_path / "ended").exists()
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    assert (result.result_data, run.status["outcome"]) == ("mine", "accepted")


# Row 1: child, grandchild, setsid child and double fork


def test_the_whole_tree_is_gone_before_the_claim_is_released(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    """Rows 1 and 2: SIGTERM to the wrapper."""
    with running(url, tmp_path, "T", "--", *tree(tmp_path)) as run:
        pids = run.pids()
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM
        all_gone(pids)
    state = fleet.get_task_state(task_id="T")
    assert (state.claim, state.failures) == (None, 0)
    assert run.status["outcome"] == "interrupted"


def test_what_a_command_leaves_behind_is_ended_with_it(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    script = tmp_path / "tree.py"
    script.write_text(TREE)
    wait = "".join(f"while ! test -s {name}; do sleep 0.05; done; " for name in MEMBERS)
    leave = f"{sys.executable} {script} {tmp_path} & {wait}"
    with running(url, tmp_path, "T", "--", *shell(leave)) as run:
        pids = run.pids()
        assert run.end() == 0
        all_gone(pids)
    assert fleet.get_task_state(task_id="T").state == "COMPLETED"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGINT, signal.SIGUSR1])
def test_every_signal_that_can_be_caught_reaches_the_command(
    number: signal.Signals, url: str, tmp_path: Path
) -> None:
    """Row 2."""
    with running(url, tmp_path, "T", "--", *shell("touch up; exec sleep 600")) as run:
        eventually((tmp_path / "up").exists, "the command")
        run.process.send_signal(number)
        assert run.end() == 128 + number


def test_a_killed_wrapper_takes_the_whole_tree_along(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    """Row 2: SIGKILL, which nobody can catch. The warden hears of it by its pipe, and is the
    process of the claim: nobody is granted the task before the tree is gone."""
    with running(url, tmp_path, "T", "--", *tree(tmp_path)) as run:
        pids = run.pids()
        (warden,) = map(int, _children(run.process.pid))
        os.kill(warden, signal.SIGSTOP)  # it takes its time
        run.process.kill()
        run.process.wait(60)
        assert fleet.claim_task(task_id="T").reason == "DENIED_ACTIVE_CLAIM"
        os.kill(warden, signal.SIGCONT)
        eventually(lambda: fleet.claim_task(task_id="T").success, "a takeover")
        all_gone(pids)


def test_the_second_interrupt_kills(url: str, tmp_path: Path) -> None:
    stubborn = "trap 'touch heard' INT; touch up; while :; do sleep 0.1; done"
    with running(url, tmp_path, "T", "--", *shell(stubborn)) as run:
        eventually((tmp_path / "up").exists, "the command")
        run.process.send_signal(signal.SIGINT)
        eventually((tmp_path / "heard").exists, "the first one")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 128 + signal.SIGKILL


# Rows 3 and 7: a lost claim


def test_a_command_whose_claim_is_taken_away_is_ended(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    """Rows 3 and 7: the exit code says so."""
    with running(url, tmp_path, "--lease", 1, "T", "--", *tree(tmp_path)) as run:
        pids = run.pids()
        fleet.force_release(task_id="T", take_over=True)
        assert run.end() == 120
        all_gone(pids)
    assert (run.status["outcome"], run.status["reason"]) == ("lost", "taken")


def test_a_stopped_wrapper_does_not_keep_the_command_alive_beyond_the_lease(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    """SIGSTOP of the wrapper past its lease: the warden ends the command before the coordinator
    lets go. SIGCONT: the wrapper hands in what there is, which is refused and kept."""
    script = 'echo draft > "$GENLOCK_RESULT"; echo $$ > pid; touch up; exec sleep 600'
    with running(url, tmp_path, "--lease", 2, "T", "--", *shell(script)) as run:
        eventually((tmp_path / "up").exists, "the command")
        pid = int((tmp_path / "pid").read_text())
        run.process.send_signal(signal.SIGSTOP)
        eventually(lambda: fleet.claim_task(task_id="T").success, "somebody to take over")
        assert not is_alive(pid)  # gone before the coordinator let go
        run.process.send_signal(signal.SIGCONT)
        assert run.end() == 120
    (refused,) = fleet.list_refused_results(task_id="T")
    assert (refused.result_data, refused.generation) == ("draft\n", 1)
    assert run.status["refused_id"] == refused.id
    assert fleet.get_task_state(task_id="T").generation == 2


def test_a_result_that_came_too_late_is_refused_and_kept(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    """The command ends by itself, while the wrapper is stopped."""
    script = 'echo late > "$GENLOCK_RESULT"; touch up; while ! test -e go; do sleep 0.02; done'
    with running(url, tmp_path, "--lease", 60, "T", "--", *shell(script)) as run:
        eventually((tmp_path / "up").exists, "the command")
        run.process.send_signal(signal.SIGSTOP)
        fleet.force_release(task_id="T", take_over=True)
        (tmp_path / "go").touch()
        run.process.send_signal(signal.SIGCONT)
        assert run.end() == 121
    (refused,) = fleet.list_refused_results(task_id="T")
    assert (refused.result_data, run.status["refused_id"]) == ("late\n", refused.id)


def test_a_black_holed_network_ends_the_command_before_the_coordinator_lets_go(
    tmp_path: Path,
) -> None:
    """Row 3."""
    with (
        serving(store(tmp_path, "T")) as service,
        between(service.port) as proxy,
        genlock.connect(service.url, session_id="op", agent_id="op") as fleet,
    ):
        far = f"http://127.0.0.1:{proxy.port}"
        with running(far, tmp_path, "--lease", 3, "T", "--", *tree(tmp_path)) as run:
            pids = run.pids()
            proxy.black_hole()
            eventually(lambda: fleet.claim_task(task_id="T").success, "somebody to take over")
            all_gone(pids)
            proxy.pass_on()
            proxy.cut()
            assert run.end() == 120


# Rows 4 and 5: signals before the command runs


def test_a_wait_for_a_task_ends_with_a_signal(url: str, fleet: Coordinator, tmp_path: Path) -> None:
    """Row 5: nobody is deaf while waiting."""
    arguments = ["--track", "Z", "--wait", 600, "--", "touch", tmp_path / "started"]
    for number in (signal.SIGINT, signal.SIGTERM):
        with running(url, tmp_path, *arguments) as run:
            eventually(partial(_children, run.process.pid), "the warden")
            began = time.monotonic()
            run.process.send_signal(number)
            assert run.end() == 128 + number
            assert time.monotonic() - began < 20
    assert not (tmp_path / "started").exists()
    fleet.add_tasks(tasks=[{"id": "Z-1", "track": "Z"}])
    assert fleet.get_task_state(task_id="Z-1").claim is None


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_signal_between_claim_and_start_leaves_no_claim_behind(
    url: str, fleet: Coordinator, tmp_path: Path
) -> None:
    """Row 4: at whatever moment the signal comes, nothing runs without a claim, and nothing is
    claimed without a command."""
    for delay in (0.0, 0.1, 0.2, 0.3, 0.4):
        with running(url, tmp_path, "T", "--", *shell("exec sleep 600")) as run:
            eventually(partial(_children, run.process.pid), "the warden")
            until = time.monotonic() + delay
            eventually(partial(_is_past, until), "the moment")
            run.process.send_signal(signal.SIGTERM)
            assert run.end() == 128 + signal.SIGTERM
        assert fleet.claim_task(task_id="T").success
        fleet.force_release(task_id="T", take_over=True)


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


# The coordinator goes away


def test_a_run_survives_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    """Also one that takes longer than a call of the client tries."""
    url = store(tmp_path, "T")
    work = shell("touch up; while ! test -e go; do sleep 0.05; done")
    with serve(tmp_path, url=url) as first:
        port = first.port
        with running(first.url, tmp_path, "--lease", 20, "T", "--", *work) as run:
            eventually((tmp_path / "up").exists, "the command")
            first.end()
            (tmp_path / "go").touch()  # the command ends while there is no coordinator
            time.sleep(7)  # longer than one call of the client tries
            with serve(tmp_path, "--port", str(port), url=url):
                assert run.end() == 0, run.process.stderr and run.process.stderr.read()
    with genlock.connect(url) as fleet:
        assert fleet.get_task_state(task_id="T").state == "COMPLETED"
        assert events(fleet).count("CLAIM_ACQUIRED") == 1
