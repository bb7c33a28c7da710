"""The command on a terminal of a given size: a real pseudo-terminal, and what was written to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.console import COMMAND, environment

PATIENCE = 60


class Terminal:
    """A call whose stdin, stdout and stderr are one terminal."""

    def __init__(
        self,
        *args: object,
        cwd: Path,
        columns: int = 80,
        env: Mapping[str, str | None] | None = None,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, args)],
            cwd=cwd,
            env=environment({"TERM": "xterm-256color", **(env or {})}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._watchdog = threading.Timer(PATIENCE, self.process.kill)
        self._watchdog.start()
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Reads on until this has been shown."""
        while text not in self.shown:
            if not self._read():
                raise AssertionError(f"{text!r} was never shown, but:\n{self.shown}")

    def press(self, text: str) -> None:
        """What someone at the keyboard types."""
        with contextlib.suppress(OSError):
            # It may have ended already.
            os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        """Reads to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait()

    def lines(self) -> list[str]:
        """What was shown, line by line."""
        return self.shown.replace("\r\n", "\n").splitlines()

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 65536)
        except OSError:
            # Linux says so when the last process has closed the other side.
            return False
        self.shown += data.decode()
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def shown(
    *args: object, cwd: Path, columns: int = 80, env: Mapping[str, str | None] | None = None
) -> tuple[int, list[str]]:
    """The exit code and the lines of a call on a terminal."""
    with Terminal(*args, cwd=cwd, columns=columns, env=env) as terminal:
        code = terminal.end()
        return code, terminal.lines()
