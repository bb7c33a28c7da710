"""A command that a warden starts and ends, from its owner's side: pipes and a shared deadline."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from genlock.worker.readable import readable
from genlock.worker.warden import GRACE_SECONDS, LEAST_MARGIN_SECONDS, SharedDeadline

_WARDEN_GONE: Final = "the process that starts it has ended"


class Ended(NamedTuple):
    """How the command ended."""

    code: int
    """Its exit code, or minus the number of the signal that ended it."""
    why: str
    """Why it was ended, such as `lost` or `signal`; empty if it ended by itself."""

    @property
    def exit_code(self) -> int:
        """The exit code in a shell's convention."""
        return self.code if self.code >= 0 else 128 - self.code

    @property
    def told(self) -> str:
        """A description of the end."""
        if self.code >= 0:
            return f"exit status {self.code}"
        return f"killed by {signal.Signals(-self.code).name}"


class WardedCommand:
    """One command of one warden."""

    margin = 0.0
    """How much of a lease is left when it stops being trusted."""

    def __init__(self, orders: int, reports: int, deadline: SharedDeadline) -> None:
        self.deadline = deadline
        """Until when the command may run without another renewal."""
        self.reports = reports
        """Readable when the warden has something to report."""
        self._orders = orders
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._unread = b""

    def wake(self) -> None:
        """Ends the sleep of the owner, from any thread."""
        with suppress(OSError):
            os.write(self._woken, b"\0")

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        folder: str = "",
        terminal: bool = False,
    ) -> str:
        """Starts the command. Returns why it could not be started, or an empty text."""
        self.order(do="start", argv=list(argv), env=dict(env), folder=folder, terminal=terminal)
        report = self.read_report()
        return str(report.get("error") or "") if report else _WARDEN_GONE

    def end(self, why: str, grace: float) -> None:
        """Ends the command: sends SIGTERM, and after `grace` seconds SIGKILL to all of its
        processes."""
        self.order(do="end", why=why, grace=grace)

    def grace_for_loss(self) -> float:
        """How long the command may take to end when its claim is lost: all of it must fit into the
        rest of the lease."""
        return GRACE_SECONDS if self.margin >= LEAST_MARGIN_SECONDS else 0.0

    def order(self, **order: Any) -> None:
        """Sends the warden an order."""
        data = json.dumps(order).encode() + b"\n"
        with suppress(OSError):
            while data:
                data = data[os.write(self._orders, data) :]

    def read_report(self) -> dict[str, Any] | None:
        """Returns the warden's report; None if it has ended."""
        while b"\n" not in self._unread:
            data = os.read(self.reports, 65536)
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        report: dict[str, Any] = json.loads(line)
        return report

    def sleep(self, watched: Sequence[int], seconds: float) -> list[int]:
        """Sleeps until one of these descriptors can be read, or until `wake`. Returns the readable
        ones."""
        if self.reports in watched and b"\n" in self._unread:
            return [self.reports]  # two came at once
        ready = readable([*watched, self._wake], seconds)
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)
        return [each for each in watched if each in ready]

    def close(self) -> None:
        """Closes the pipes to the warden. If it still has a command, it ends that."""
        for each in (self._orders, self.reports, self._wake, self._woken):
            with suppress(OSError):
                os.close(each)
