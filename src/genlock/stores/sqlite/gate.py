"""The gate: a lock file that lets one writer at a time into its transaction, in turn.

SQLite's own lock keeps writers apart, but whoever meets it sleeps and tries again, so that among many some starve. The kernel queues
those who wait for an flock. The gate is for fairness only: where the file cannot be locked, writers go in without it.

The kernel's queue knows no time limit. So if the gate is shut, a thread of its own, the porter, stands in the queue and does the work
when his turn comes, while the caller waits for as long as he has patience. That the porter does the work himself matters: were he to
wake the caller first, the gate would be shut during one more change of threads, and among 16 processes that took a third of the speed.
"""

from __future__ import annotations

import fcntl
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from genlock.errors import StoreUnavailable
from genlock.threads import started

R = TypeVar("R")


class Turn(Generic[R]):
    """Work that is done once by the porter, unless it is called off before."""

    def __init__(self, work: Callable[[], R]) -> None:
        self._work = work
        self._untouched = threading.Lock()
        self._finished = threading.Lock()
        self._finished.acquire()
        self._error: BaseException | None = None
        self._result: list[R] = []

    def take(self) -> None:
        """By the porter, inside the gate."""
        if self._untouched.acquire(blocking=False):
            try:
                self._result.append(self._work())
            except BaseException as error:  # noqa: BLE001 - raised again where the work was ordered
                self._error = error
        self._finished.release()

    def await_(self, seconds: float) -> bool:
        """By the caller: was the work done? If not, it never will be. An interrupt calls it off too, or waits for its end."""
        done = False
        try:
            done = self._finished.acquire(timeout=seconds)
        finally:
            if not done and not self._untouched.acquire(blocking=False):
                done = self._finished.acquire()
        return done

    @property
    def result(self) -> R:
        """What the work gave, or its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]


class Gate:
    """The gate of one handle. Callers come one at a time: the writer's lock sees to that."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._file = file
        self._seconds = seconds
        self._fd: int | None = None
        self._opened = False
        self._pid = b"%-10d\n" % os.getpid()
        self._turns: queue.SimpleQueue[Turn[Any] | None] = queue.SimpleQueue()
        self._porter: threading.Thread | None = None
        self._outstanding = 0
        self._count = threading.Lock()

    def pass_through(self, work: Callable[[], R]) -> R:
        """Does the work inside the gate; `StoreUnavailable` if others are inside for too long."""
        if not self._opened:  # not before it is needed: whoever only reads leaves no file behind
            self._fd, self._opened = _open(self._file), True
        fd = self._fd
        if fd is None:
            return work()
        # While the porter is in the queue nobody else may touch the lock: it is the same for both.
        if self._outstanding or not _lock_at_once(fd):
            return self._queue(fd, work)
        try:
            self._sign(fd)
            return work()
        finally:
            _unlock(fd)

    def _sign(self, fd: int) -> None:
        with suppress(OSError):  # a file that can only be read locks as well; it just does not say who has it
            if os.pread(fd, len(self._pid), 0) != self._pid:  # to look is cheaper than to write, and mostly we were the last
                os.pwrite(fd, self._pid, 0)

    def _queue(self, fd: int, work: Callable[[], R]) -> R:
        if self._porter is None:
            self._porter = started(partial(self._stand, fd), "genlock-gate")
            if self._porter is None:
                raise StoreUnavailable(f"others are at {self._file}, and no thread can be started to wait for them; nothing was written")
        turn = Turn(work)
        with self._count:
            self._outstanding += 1
        self._turns.put(turn)
        if not turn.await_(self._seconds):
            raise StoreUnavailable(f"waited {self._seconds:g} s for {self._file}, which {_holder(self._file)}; nothing was written")
        return turn.result

    def _stand(self, fd: int) -> None:
        """The porter's life."""
        while (turn := self._turns.get()) is not None:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            self._sign(fd)
            try:
                turn.take()
            finally:
                _unlock(fd)
            with self._count:
                self._outstanding -= 1
        os.close(fd)

    def close(self) -> None:
        """Gives the file up; if there is a porter, he does it, after the turns that nobody waits for any more."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        if self._porter is None:
            os.close(fd)
        else:
            self._turns.put(None)

    def close_inherited(self) -> None:
        """In a forked child: drops the inherited descriptor, or the gate would stay shut if the parent died inside."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _open(file: Path) -> int | None:
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            return os.open(file, flags | os.O_CLOEXEC, 0o666)
        except OSError:
            continue
    return None


def _lock_at_once(fd: int) -> bool:
    """Is the gate ours (or beyond locking)?"""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _unlock(fd: int) -> None:
    with suppress(OSError):  # where it could not be locked
        fcntl.flock(fd, fcntl.LOCK_UN)


def _holder(file: Path) -> str:
    """Who has the gate, and in which state the process is."""
    try:
        pid = int(file.read_bytes())
    except (OSError, ValueError):
        return "someone has locked"
    state = state_of(pid)
    if state is None:
        return f"process {pid} has locked (it cannot be seen from here: it may be in another container)"
    if state in "Tt":
        return f"process {pid} has locked and is stopped: continue it (kill -CONT {pid}) or end it"
    return f"process {pid} has locked (its state is {state})"


def state_of(pid: int) -> str | None:
    """The letter of the process's state, as ps shows it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name of the command stands in brackets and may contain anything; the state follows the last one.
    return status[status.rindex(b")") + 2 :][:1].decode()
