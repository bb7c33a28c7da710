"""A command under a claim, for `genlock run`: starts it, handles signals, and ends it in time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from genlock.worker import schedule
from genlock.worker.process_tree import become_subreaper, kill_all
from genlock.worker.warded import Ended, WardedCommand
from genlock.worker.warden import GRACE_SECONDS, SharedDeadline, serve

FORWARDED: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
    if hasattr(signal, name)
)
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGHUP})
"""After one of these signals the command has a few seconds to end."""
_TWICE: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""A second one of these signals ends the command at once."""


class Command(WardedCommand):
    """One command, and the warden that starts and ends it. Create it in the main thread, before any
    other thread starts. From then until `dismiss` it records signals, and none is lost."""

    def __init__(self) -> None:
        deadline = SharedDeadline()
        orders_read, orders = os.pipe()
        reports, reports_write = os.pipe()
        super().__init__(orders, reports, deadline)
        self._heard: list[int] = []
        self._seen: list[int] = []
        self._before = {number: signal.signal(number, self._hear) for number in FORWARDED}
        self._old_wakeup = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        become_subreaper()  # if the warden is killed, its children become ours
        self.warden = os.fork()
        """The warden's process, which ends last."""
        if self.warden == 0:
            for each in (orders, reports, self._wake, self._woken):
                os.close(each)
            serve(orders_read, reports_write, deadline)
        os.close(orders_read)
        os.close(reports_write)

    def _hear(self, number: int, frame: object) -> None:
        self._heard.append(number)

    def sleep_until(self, done: Callable[[], bool]) -> int | None:
        """Sleeps until `done`, or until a signal asks for the end. Returns that signal's number."""
        while not done():
            self.sleep([], 1.0)
            ending = [number for number in self._heard if number in (*ENDING, signal.SIGINT)]
            if ending:
                return ending[0]
        return None

    def launch(self, argv: Sequence[str], env: Mapping[str, str], *, folder: str = "") -> str:
        """Starts the command, in the foreground of the terminal if we are there. Returns why it
        could not be started, or an empty text."""
        return self.start(argv, env, folder=folder, terminal=_on_terminal())

    def wait(self, lost: Callable[[], bool]) -> Ended:
        """Waits for the command's end. Forwards signals, and ends the command when the claim is
        `lost`."""
        ended_for_loss = False
        while True:
            for number in self._new_signals():
                self._forward(number)
            if not ended_for_loss and lost():
                ended_for_loss = True
                self.end("lost", self.grace_for_loss())
            if self.sleep([self.reports], 1.0):
                report = self.read_report()
                if report is None:  # the warden was killed
                    kill_all()
                    return Ended(-signal.SIGKILL, "lost" if ended_for_loss else "")
                if "ended" in report:
                    return Ended(report["ended"], report["why"])

    def dismiss(self) -> None:
        """Ends the warden with all remaining processes below it, and restores the signal
        handlers."""
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.close()
        with suppress(ChildProcessError):
            os.waitpid(self.warden, 0)

    def _new_signals(self) -> list[int]:
        numbers, self._heard[:] = list(self._heard), []
        return numbers

    def _forward(self, number: int) -> None:
        if number == signal.SIGCONT:
            # Check first whether there is still time.
            if schedule.now() < self.deadline.get():
                self.order(do="continue")
            return
        again = number in self._seen and number in _TWICE
        self._seen.append(number)
        if again:
            self.end("signal", 0.0)
            return
        self.order(do="signal", number=int(number))
        if number in ENDING:
            self.end("signal", GRACE_SECONDS)

    @property
    def interrupted(self) -> bool:
        """Has a signal asked for the end?"""
        return any(number in (*ENDING, signal.SIGINT, signal.SIGQUIT) for number in self._seen)


def _on_terminal() -> bool:
    """Are we in the foreground of a terminal? Then the command takes our place there."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False
