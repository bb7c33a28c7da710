"""The agents' processes: started, killed, replaced, and sent home. None is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import count

NAMES = ("ada", "bob", "cleo", "dora", "erik", "fay", "gus", "hana", "ivo", "jun")
_PATIENCE_SECONDS = 3.0


class Crew:
    """Agents by name."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._names = [NAMES[n] if n < len(NAMES) else f"agent-{n + 1}" for n in range(size)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = count(1)
        self._home = False

    def start(self) -> None:
        """Starts whoever is not at work."""
        for name in self._names:
            process = self._processes.get(name)
            if not self._home and (process is None or process.poll() is not None):
                self._close_stdin(name)
                self._processes[name] = self._started(name)

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        session = f"dev-{os.getpid()}-{next(self._numbers)}"
        options = ["--url", self._url, "--agent", name, "--session", session, "--user", "dev"]
        out = None if os.environ.get("GENLOCK_DEBUG") else subprocess.DEVNULL
        # In a session of its own: Ctrl-C is for us, and we send them home. Its input ends with us, however we end.
        return subprocess.Popen(
            [sys.executable, "-m", "genlock.cli.dev.agent", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=out,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """kill -9, in the middle of its work."""
        process = self._processes.get(name)
        if process is not None:
            process.kill()
            process.wait()

    def send_home(self) -> None:
        """All end: in order if they can, and otherwise at once."""
        self._home = True
        for name in self._processes:
            self._close_stdin(name)
        end = time.monotonic() + _PATIENCE_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _close_stdin(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None and process.stdin is not None:
            process.stdin.close()
