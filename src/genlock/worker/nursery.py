"""The nursery: a process that forks a warden for each agent of `genlock work`.

A program with threads must not fork. So the nursery is forked first, while there is one thread, and
asked for a warden whenever an agent is to be started. It receives the ends of the pipes that the
agent and the warden write to. It supervises its wardens: it ends the processes that a killed warden
leaves behind, and when its owner is gone, it ends with all of them.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

from genlock.worker.process_tree import become_subreaper, kill_all, reap
from genlock.worker.readable import readable
from genlock.worker.warded import WardedCommand
from genlock.worker.warden import SharedDeadline, serve

_SLOT: Final = struct.Struct("!I")
_SETTLE: Final = _SLOT.pack(0xFFFFFFFF)
_PASSED: Final = 5
"""The descriptors passed: orders, reports, stdin, stdout and stderr."""
_LAST_SECONDS: Final = 5.0


class Streams(NamedTuple):
    """The output of a command. Both streams can be read, and do not block."""

    stdout: int
    stderr: int


class Nursery:
    """A nursery. Create it in the main thread, before any other thread starts. Its methods may be
    called from any thread."""

    def __init__(self, size: int) -> None:
        self._deadlines = [SharedDeadline() for _ in range(size)]
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            _serve(theirs, self._deadlines)
        theirs.close()

    def warden(self, slot: int, stdin: int) -> tuple[WardedCommand, Streams]:
        """A new warden for this slot, whose last one has ended. Its command reads from `stdin`.
        Raises OSError if the nursery is gone."""
        orders_read, orders = os.pipe()
        reports, reports_write = os.pipe()
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        for each in (out, err):
            os.set_blocking(each, False)
        deadline = self._deadlines[slot]
        deadline.set(float("inf"))
        given = [orders_read, reports_write, stdin, out_write, err_write]
        command = WardedCommand(orders, reports, deadline)
        try:
            with self._lock:
                socket.send_fds(self._ours, [_SLOT.pack(slot)], given)
        except OSError:
            command.close()
            for each in (out, err):
                os.close(each)
            raise
        finally:
            for each in (orders_read, reports_write, out_write, err_write):
                os.close(each)
        return command, Streams(out, err)

    def settle(self) -> None:
        """Waits until no process of a killed warden is left."""
        with suppress(OSError), self._lock:
            self._ours.sendall(_SETTLE)
            self._ours.recv(_SLOT.size)

    def close(self) -> None:
        """Ends the nursery, with all remaining wardens and all processes below them."""
        self._ours.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _serve(asked: socket.socket, deadlines: list[SharedDeadline]) -> NoReturn:
    """The main function of the nursery, in a process that has just been forked for it."""
    code = 1
    try:
        _Nursery(asked, deadlines).run()
        code = 0
    finally:
        os._exit(code)


class _Nursery:
    def __init__(self, asked: socket.socket, deadlines: list[SharedDeadline]) -> None:
        self._asked = asked
        self._deadlines = deadlines
        self._wardens: set[int] = set()

    def run(self) -> None:
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        with suppress(OSError):
            os.setpgid(0, 0)  # Ctrl-C is for the owner
        become_subreaper()
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        goes_on = True
        while goes_on:
            ready = readable([self._asked.fileno(), wake])
            if wake in ready:
                with suppress(BlockingIOError):
                    os.read(wake, 4096)
                self._bury()
            if self._asked.fileno() in ready:
                goes_on = self._start()
        self._end()

    def _start(self) -> bool:
        """Forks a warden. Returns False if the owner is gone."""
        message, given, _, _ = socket.recv_fds(self._asked, _SLOT.size, _PASSED)
        if message == _SETTLE:
            self._wardens -= reap().keys()
            self._wardens -= kill_all(spare=self._wardens).keys()
            self._asked.sendall(_SETTLE)
            return True
        if len(message) < _SLOT.size or len(given) < _PASSED:
            return False
        deadline = self._deadlines[_SLOT.unpack(message)[0]]
        pid = os.fork()
        if pid == 0:
            self._become_warden(given, deadline)
        self._wardens.add(pid)
        for each in given:
            os.close(each)
        return True

    def _become_warden(self, given: list[int], deadline: SharedDeadline) -> NoReturn:
        try:
            self._asked.close()
            signal.set_wakeup_fd(-1)
            orders, reports, *streams = given
            for number, each in enumerate(streams):
                os.dup2(each, number)
                os.close(each)
            for each in (orders, reports):
                os.set_inheritable(each, False)
        except BaseException:  # noqa: BLE001 - a forked process must not go on
            os._exit(1)
        serve(orders, reports, deadline)

    def _bury(self) -> None:
        """Reaps wardens that have ended. The processes below a killed warden are our children by
        now."""
        ended = reap()
        self._wardens -= ended.keys()
        if any(ended.values()):
            self._wardens -= kill_all(spare=self._wardens).keys()

    def _end(self) -> None:
        """Ends the nursery, because its owner is gone. The wardens have detected that, too."""
        until = time.monotonic() + _LAST_SECONDS
        while self._wardens and time.monotonic() < until:
            self._wardens -= reap().keys()
            time.sleep(0.01)
        kill_all()
