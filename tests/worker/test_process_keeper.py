"""`keeper="process"`: renewals come from a helper process, whatever this process is at."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.errors import BadArgument, Closed
from genlock.worker import ClaimLost, Loss, NotGranted
from genlock.worker.fleet import KeeperKind
from genlock.worker.process_keeper import ProcessKeeper, Slots, SlotState
from tests.eventually import eventually
from tests.worker.runs import is_alive, store

SECOND = 1_000_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    return store(tmp_path, "T", "U")


@pytest.fixture
def fleet(url: str) -> Iterator[genlock.Coordinator]:
    with genlock.connect(url) as fleet:
        yield fleet


def helper_of(fleet: Any) -> int:
    keeper = fleet._keeper("process")
    assert isinstance(keeper, ProcessKeeper)
    assert keeper._helper is not None
    return keeper._helper._process.pid


def hold_the_interpreter(microseconds: int) -> None:
    """In C, as a long regular expression does: no other thread runs meanwhile."""
    ctypes.PyDLL(None).usleep(microseconds)


@pytest.mark.parametrize(("keeper", "lost"), [("process", False), ("thread", True)])
def test_a_c_function_that_holds_the_interpreter_for_longer_than_the_lease(
    keeper: KeeperKind, lost: bool, fleet: genlock.Coordinator
) -> None:
    """Row 10: no spurious loss. A keeper thread cannot help it, which shows that the test is one."""
    with fleet.claim("T", lease_seconds=2.0, keeper=keeper) as work:
        hold_the_interpreter(5 * SECOND)
        assert work.is_lost is lost
        if not lost:
            work.check()
            assert work.submit("fine").accepted


def test_nobody_is_granted_the_task_meanwhile(url: str, fleet: genlock.Coordinator) -> None:
    """Row 11: there is no second holder while the lease is renewed."""
    program = (
        "import genlock, sys, time\n"
        "until = time.monotonic() + 4\n"
        "with genlock.connect(sys.argv[1], process=None) as other:\n"
        "    while time.monotonic() < until:\n"
        "        assert not other.claim_task(task_id='T', session_id='o', agent_id='o').success\n"
        "        time.sleep(0.05)\n"
    )
    with fleet.claim("T", lease_seconds=2.0, keeper="process"):
        other = subprocess.Popen([sys.executable, "-c", program, url])
        hold_the_interpreter(5 * SECOND)
        assert other.wait(30) == 0


def test_a_claim_taken_away_is_lost(url: str, fleet: genlock.Coordinator) -> None:
    with fleet.claim("T", lease_seconds=1.0, keeper="process") as work:
        with genlock.connect(url, session_id="op") as operator:
            operator.force_release(task_id="T", take_over=True)
        assert work.lost.wait(10)
        with pytest.raises(ClaimLost) as told:
            work.check()
        assert told.value.reason is Loss.TAKEN


def test_a_helper_that_is_killed_is_started_again_and_reaped(fleet: genlock.Coordinator) -> None:
    """Row 15."""
    with fleet.claim("T", lease_seconds=5.0, keeper="process") as work:
        first = helper_of(fleet)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: _is_another(fleet, first), "another helper")
        sent = work._kept.sent
        eventually(lambda: work._kept.sent > sent, "a renewal by it")
        assert not Path(f"/proc/{first}").exists()
        assert work.submit("fine").accepted


def _is_another(fleet: Any, first: int) -> bool:
    helper = fleet._keeper("process")._helper
    return helper is not None and helper._process.pid != first


def test_a_helper_that_cannot_be_started_denies_the_claim_its_keeper(
    fleet: genlock.Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/does/not/exist")
    with (
        pytest.raises(Closed, match="could not be started"),
        fleet.claim("T", keeper="process"),
    ):
        pass
    state = fleet.get_task_state(task_id="T")
    assert (state.state, state.claim) == ("PENDING", None)  # given back


def test_a_store_that_another_process_cannot_open_is_named() -> None:
    with genlock.connect("memory://") as fleet:
        fleet.add_tasks(tasks=["T"])
        with (
            pytest.raises(BadArgument, match="needs a connection that another process can open"),
            fleet.claim("T", keeper="process"),
        ):
            pass


OWNER = """
import os, sys, time, genlock
fleet = genlock.connect(sys.argv[1], session_id="owner", agent_id="owner", process=None)
with fleet.claim("T", lease_seconds=1.0, keeper="process") as work:
    print(fleet._keeper("process")._helper._process.pid, flush=True)
    if "fork" in sys.argv:
        child = os.fork()
        if child == 0:
            time.sleep(600)                # it has the helper's socket, too
        print(child, flush=True)
    if "wait" in sys.argv:
        sys.stdin.readline()
        print(work.is_lost, flush=True)
    time.sleep(600)
"""


def owner(url: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, url, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def number_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("forks", [False, True])
def test_the_helper_ends_with_its_owner(forks: bool, url: str, fleet: genlock.Coordinator) -> None:
    """Row 6: a lease is not renewed when its user has gone."""
    with owner(url, *(["fork"] if forks else [])) as process:
        pids = [number_of(process) for _ in range(2 if forks else 1)]
        process.kill()
        process.wait(30)
        eventually(lambda: sum(map(is_alive, pids)) == int(forks), "the helper to end", seconds=10)
        eventually(lambda: _is_granted(fleet), "the task to be granted", seconds=10)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _is_granted(fleet: genlock.Coordinator) -> bool:
    try:
        with fleet.claim("T") as work:
            return work.submit().accepted
    except NotGranted:
        return False


def test_the_claim_of_a_stopped_owner_runs_out(url: str, fleet: genlock.Coordinator) -> None:
    with owner(url, "wait") as process:
        helper = number_of(process)
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: _is_granted(fleet), "the task to be granted", seconds=10)
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "True\n"
        process.kill()
        process.wait(30)
        eventually(lambda: not is_alive(helper), "the helper to end", seconds=10)


def test_a_closed_fleet_leaves_no_helper_behind(url: str) -> None:
    fleet = genlock.connect(url)
    with fleet.claim("T", keeper="process") as work:
        helper = helper_of(fleet)
        assert work.submit("fine").accepted
    fleet.close()
    assert not Path(f"/proc/{helper}").exists()


def test_a_service_is_renewed_at_in_the_same_way(tmp_path: Path, url: str) -> None:
    from tests.service.process import serve

    with (
        serve(tmp_path, url=url) as service,
        genlock.connect(service.url) as fleet,
        fleet.claim("T", lease_seconds=2.0, keeper="process") as work,
    ):
        hold_the_interpreter(3 * SECOND)
        assert work.submit("fine").accepted


def test_the_session_stays_that_of_the_owners_process(fleet: genlock.Coordinator) -> None:
    """So its claims are overdue as soon as it is gone."""
    with fleet.claim("T", lease_seconds=2.0, keeper="process") as work:
        first = work._kept.sent
        eventually(lambda: work._kept.sent > first, "a renewal")
        (session,) = fleet.list_sessions()
    assert session.pid == os.getpid()


def test_many_claims_one_after_the_other_share_one_helper(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=[f"N-{n}" for n in range(20)])
    helpers = set()
    for n in range(20):
        with fleet.claim(f"N-{n}", keeper="process") as work:
            helpers.add(helper_of(fleet))
            assert work.submit(n).accepted
    assert len(helpers) == 1


def test_a_slot_is_free_again_only_when_the_helper_has_said_so(tmp_path: Path) -> None:
    with (tmp_path / "slots").open("w+b") as file:
        file.truncate(Slots.SIZE)
        slots = Slots(file.fileno())
        slots.write(0, SlotState(7, 1.0, 0.5, 2.0))
        assert slots.free() == 1
        assert slots.read(0) == SlotState(7, 1.0, 0.5, 2.0)
        slots.write(0, SlotState(0))
        assert slots.free() == 0


def test_a_program_with_more_than_1024_open_files_has_a_helper_too(
    fleet: genlock.Coordinator,
) -> None:
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(limit, 2048), hard), hard))
    held = [os.dup(0) for _ in range(1100)]
    try:
        with fleet.claim("T", lease_seconds=2.0, keeper="process") as work:
            first = work._kept.sent
            eventually(lambda: work._kept.sent > first, "a renewal")
            assert work.submit("done").accepted
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
