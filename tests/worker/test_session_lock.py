"""Session locks: one winner, stale ones, and the shell functions of the document beside ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from genlock.errors import BadArgument, StoreError
from genlock.worker.session_lock import SessionLocks

DEAD_PID = 2**22 - 7


@pytest.fixture
def locks(tmp_path: Path) -> SessionLocks:
    return SessionLocks(tmp_path / "locks")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def write(locks: SessionLocks, pid: object, written: str = "2026-01-01T00:00:00+00:00") -> Path:
    locks.folder.mkdir(exist_ok=True)
    file = locks.folder / "nightly.lock"
    file.write_text(f"{pid}\n{written}\ndefault\n")
    return file


def now() -> str:
    return subprocess.run(["date", "-Iseconds"], capture_output=True, text=True, check=True).stdout


def test_a_lock_has_pid_time_and_name_on_three_lines(locks: SessionLocks) -> None:
    assert locks.acquire("nightly")
    file = locks.folder / "nightly.lock"
    pid, written, name = file.read_text().splitlines()
    assert (pid, name) == (str(os.getpid()), "nightly")
    assert len(written) == len("2026-01-01T00:00:00+00:00")
    assert file.stat().st_mode & 0o777 == 0o600
    locks.release("nightly")
    assert not file.exists()


def test_a_lock_of_a_running_process_is_busy_and_is_not_removed_by_others(
    locks: SessionLocks, sleeper: subprocess.Popen[bytes]
) -> None:
    file = write(locks, sleeper.pid, now().strip())
    assert not locks.acquire("nightly")
    locks.release("nightly")
    assert file.read_text().startswith(f"{sleeper.pid}\n")
    fork = locks.acquire_fork("nightly")
    assert fork.startswith(f"nightly_fork_{os.getpid()}_")
    assert abs(int(fork.rpartition("_")[2]) - time.time()) < 10
    assert (locks.folder / f"{fork}.lock").exists()


def test_a_lock_of_a_dead_process_is_taken_over(locks: SessionLocks) -> None:
    write(locks, DEAD_PID, now().strip())
    assert locks.acquire("nightly")


def test_a_lock_whose_pid_another_process_has_by_now_is_taken_over(
    locks: SessionLocks, sleeper: subprocess.Popen[bytes]
) -> None:
    write(locks, sleeper.pid, "2026-01-01T00:00:00+00:00")
    assert locks.acquire("nightly")


@pytest.mark.parametrize("text", ["", "x\n", "-1\n", "\x00", "99999999999999\n"])
def test_a_lock_without_a_pid_is_no_lock(locks: SessionLocks, text: str) -> None:
    locks.folder.mkdir()
    (locks.folder / "nightly.lock").write_text(text)
    assert locks.acquire("nightly")


@pytest.mark.parametrize("name", ["", "../x", ".x", "-x", "a/b", "a\n", "x" * 101])
def test_a_name_that_is_no_file_s_name_is_refused(locks: SessionLocks, name: str) -> None:
    with pytest.raises(BadArgument, match="is no name of a session lock"):
        locks.acquire(name)


def test_a_lock_that_is_a_link_is_not_followed(locks: SessionLocks, tmp_path: Path) -> None:
    locks.folder.mkdir()
    target = tmp_path / "target"
    target.write_text("precious")
    (locks.folder / "nightly.lock").symlink_to(target)
    with pytest.raises(StoreError, match="cannot be read"):
        locks.acquire("nightly")
    assert target.read_text() == "precious"


_RACER = """
import sys, time
from pathlib import Path
from genlock.worker.session_lock import SessionLocks
locks = SessionLocks(Path(sys.argv[1]))
sys.stdin.readline()
print(locks.acquire("nightly"), flush=True)
sys.stdin.readline()
"""


def test_of_eight_processes_that_take_one_stale_lock_one_wins(locks: SessionLocks) -> None:
    write(locks, DEAD_PID, now().strip())
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(locks.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    try:
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda racer: racer.stdout.readline().strip(), racers))
    finally:
        for racer in racers:
            racer.communicate("end\n")
    assert sorted(won) == ["False"] * 7 + ["True"]


_CHECK = """
LOCK_DIR="$1"; lock_file="$LOCK_DIR/$2.lock"
if [[ -f "$lock_file" ]]; then
    lock_pid=$(head -1 "$lock_file" 2>/dev/null || echo "")
    if [[ -n "$lock_pid" ]] && ps -p "$lock_pid" >/dev/null 2>&1; then exit 1; fi
fi
"""
"""What a shell script does that looks whether a session is busy, as the document has it."""


def test_a_shell_script_sees_our_lock_as_busy(locks: SessionLocks) -> None:
    def is_busy() -> bool:
        done = subprocess.run(["bash", "-c", _CHECK, "bash", str(locks.folder), "nightly"])
        return done.returncode == 1

    assert locks.acquire("nightly")
    assert is_busy()
    locks.release("nightly")
    assert not is_busy()
