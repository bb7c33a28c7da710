"""The warden: a process between `genlock run` and its command, which ends the command in time even
if `genlock run` is killed or stopped.

It is forked first of all, so it has one thread and may fork safely. It waits for an order to start
the command. From then on it ends the command, with everything below it, when

- an order says so: the claim is lost, or a signal arrived;
- the pipe to `genlock run` closes, because `genlock run` was killed;
- the lease can no longer be trusted, because `genlock run` was stopped or starved. Both read that
  time from shared memory.

When the command has ended by itself, the warden ends the processes that it left behind, too. So the
coordinator learns of the end only after no process is left that could do harm.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from mmap import mmap
from struct import Struct
from typing import Any, Final, NoReturn

from genlock.worker import schedule
from genlock.worker.process_tree import become_subreaper, die_with_parent, kill_all, reap
from genlock.worker.readable import readable

GRACE_SECONDS: Final = 5.0
"""The time between SIGTERM to the command and SIGKILL to all its processes."""
LEAST_MARGIN_SECONDS: Final = 8.0
"""If less than this is left of a lost lease, there is no time for SIGTERM."""
_LEFT_BEHIND_SECONDS: Final = 0.5
_TICK_SECONDS: Final = 0.25
_FOREVER: Final = float("inf")
_SIGNALS_TO_RESET: Final = tuple(
    number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)
)


class SharedDeadline:
    """A time that two processes share. Create it before the fork."""

    _format = Struct("d")

    def __init__(self) -> None:
        self._memory = mmap(-1, self._format.size)
        self.set(_FOREVER)

    def set(self, at: float) -> None:
        """Writes the time, by `schedule.now`."""
        self._memory[:] = self._format.pack(at)

    def get(self) -> float:
        """Reads it."""
        found: float = self._format.unpack(self._memory[:])[0]
        return found


def serve(orders: int, reports: int, deadline: SharedDeadline) -> NoReturn:
    """The main function of the warden, in a process that has just been forked for it."""
    code = 1
    try:
        _Warden(orders, reports, deadline).run()
        code = 0
    finally:
        os._exit(code)


class _Warden:
    def __init__(self, orders: int, reports: int, deadline: SharedDeadline) -> None:
        self._orders, self._reports, self._deadline = orders, reports, deadline
        self._owner = os.getppid()
        self._owner_group = os.getpgrp()
        self._unread = b""
        self._leader = 0
        self._status: int | None = None
        self._terminal = -1
        self._kill_at = _FOREVER
        self._ended_why = ""
        self._stopped = False

    def run(self) -> None:
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        with suppress(OSError):
            os.setpgid(0, 0)  # Ctrl-C is for the command
        become_subreaper()
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        while self._status is None:
            self._wait(wake)
            self._notice_time()
            self._notice_children()
        self._finish()
        self._await_dismissal()

    def _wait(self, wake: int) -> None:
        at = min(self._deadline.get() if self._leader else _FOREVER, self._kill_at)
        seconds = min(max(at - schedule.now(), 0.0), _TICK_SECONDS)
        watched = [wake] if self._orders < 0 else [self._orders, wake]
        ready = readable(watched, seconds)
        if wake in ready:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
        if self._orders in ready:
            self._read_orders()

    def _read_orders(self) -> None:
        data = os.read(self._orders, 65536)
        if not data:
            os.close(self._orders)
            self._orders = -1
            if not self._leader:
                os._exit(0)  # there is nothing to do
            self._end("abandoned", 0.0)
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        what = order["do"]
        if what == "start":
            self._start(order)
        elif what == "signal":
            self._signal(order["number"])
        elif what == "end":
            self._end(order["why"], order["grace"])
        elif what == "continue":
            self._take_terminal()
            self._signal(signal.SIGCONT)

    def _start(self, order: dict[str, Any]) -> None:
        failed, failing = os.pipe()
        on_terminal = order["terminal"]
        self._terminal = 0 if on_terminal else -1
        pid = os.fork()
        if pid == 0:
            _become(order, failing)
        os.close(failing)
        if on_terminal:
            with suppress(OSError):
                os.setpgid(pid, pid)
        self._leader = pid
        self._take_terminal()
        error = b""
        while piece := os.read(failed, 4096):
            error += piece
        os.close(failed)
        self._report(started=pid, error=error.decode() or None)

    def _take_terminal(self) -> None:
        self._stopped = False
        if self._terminal >= 0:
            with suppress(OSError):
                os.tcsetpgrp(self._terminal, self._leader)

    def _give_terminal_back(self) -> None:
        if self._terminal >= 0:
            with suppress(OSError):
                os.tcsetpgrp(self._terminal, self._owner_group)

    def _signal(self, number: int) -> None:
        if self._leader:
            with suppress(ProcessLookupError):
                os.kill(self._leader, number)

    def _end(self, why: str, grace: float) -> None:
        if not self._leader or self._status is not None:
            return
        self._ended_why = self._ended_why or why
        if grace > 0:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
        self._kill_at = min(self._kill_at, schedule.now() + grace)

    def _notice_time(self) -> None:
        now = schedule.now()
        if self._leader and now >= self._deadline.get():
            self._deadline.set(_FOREVER)
            self._end("lost", 0.0)
        if now >= self._kill_at:
            self._kill_at = _FOREVER
            ended = kill_all(self._leader)
            self._status = ended.get(self._leader, signal.SIGKILL)

    def _notice_children(self) -> None:
        if not self._leader or self._status is not None:
            return
        if self._terminal >= 0 and not self._stopped:
            self._notice_stop()
        self._status = reap().get(self._leader)

    def _notice_stop(self) -> None:
        """Stops `genlock run`, too, after Ctrl-Z has stopped the command, so that the shell
        continues."""
        try:
            found = os.waitid(os.P_PID, self._leader, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is not None and found.si_code == os.CLD_STOPPED:
            self._stopped = True
            self._give_terminal_back()
            with suppress(ProcessLookupError):
                os.kill(self._owner, signal.SIGSTOP)

    def _finish(self) -> None:
        """Ends the processes that the finished command left behind, and reports the end."""
        until = time.monotonic() + _LEFT_BEHIND_SECONDS
        kill_all()
        self._give_terminal_back()
        assert self._status is not None
        self._report(
            ended=os.waitstatus_to_exitcode(self._status),
            why=self._ended_why,
            late=time.monotonic() > until,
        )

    def _await_dismissal(self) -> None:
        """Waits for dismissal. The claim names this process, so it must exist while the result is
        submitted. It no longer holds the ends of the command's pipes."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        while self._orders >= 0 and os.read(self._orders, 65536):
            pass

    def _report(self, **report: Any) -> None:
        with suppress(BrokenPipeError):
            os.write(self._reports, json.dumps(report).encode() + b"\n")


def _become(order: dict[str, Any], failing: int) -> NoReturn:
    """Becomes the command, in a process that was forked for it: with default handlers, an empty
    signal mask, a session or group of its own, and a death signal when the warden ends."""
    try:
        die_with_parent()
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS_TO_RESET:
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if order["terminal"]:
            os.setpgid(0, 0)
        else:
            os.setsid()
        if order["folder"]:
            os.chdir(order["folder"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(failing, f"{error.strerror}".encode())
    except BaseException as error:  # noqa: BLE001 - a forked process must not go on
        os.write(failing, f"{error}".encode())
    finally:
        sys.stderr = sys.stdout = None
        os._exit(127)
