"""A command under a claim, as `genlock run` sees it: start it, hear signals, and end it in time."""

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
"""After these the command has a few seconds to end."""
_TWICE: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""The second one of these ends the command at once."""


class Command(WardedCommand):
    """One command, and the warden that starts and ends it. To be made in the main thread, while
    there is no other. From then on until `dismiss` signals are noted, and none is lost."""

    def __init__(self) -> None:
        deadline = SharedDeadline()
        orders_read, orders = os.pipe()
        reports, reports_write = os.pipe()
        super().__init__(orders, reports, deadline)
        self._heard: list[int] = []
        self._seen: list[int] = []
        self._before = {number: signal.signal(number, self._hear) for number in FORWARDED}
        self._old_wakeup = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        become_subreaper()  # should the warden be killed, its children come here
        self.warden = os.fork()
        """The process that ends last."""
        if self.warden == 0:
            for each in (orders, reports, self._wake, self._woken):
                os.close(each)
            serve(orders_read, reports_write, deadline)
        os.close(orders_read)
        os.close(reports_write)

    def _hear(self, number: int, frame: object) -> None:
        self._heard.append(number)

    def sleep_until(self, done: Callable[[], bool]) -> int | None:
        """Sleeps until `done`, or until a signal that asks for the end; that signal's number."""
        while not done():
            self.sleep([], 1.0)
            ending = [number for number in self._heard if number in (*ENDING, signal.SIGINT)]
            if ending:
                return ending[0]
        return None

    def launch(self, argv: Sequence[str], env: Mapping[str, str], *, folder: str = "") -> str:
        """Starts the command, in our place if we are in the foreground of a terminal; why it could
        not be started, or nothing."""
        return self.start(argv, env, folder=folder, terminal=_on_terminal())

    def wait(self, lost: Callable[[], bool]) -> Ended:
        """Waits for the end. Forwards signals, and ends the command when the claim is `lost`."""
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
        """The warden ends, and with it whatever still runs; signals mean what they did before."""
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
            # First things first: is there still time?
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
        """Did a signal come that asks for the end?"""
        return any(number in (*ENDING, signal.SIGINT, signal.SIGQUIT) for number in self._seen)


def _on_terminal() -> bool:
    """Are we in the foreground of a terminal? Then the command takes our place there."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False
