"""Lines on their way to stderr: written by a thread of their own, so that no request waits for a terminal, a pipe or a disk.

What cannot be written in time is dropped, and a line says how many were: a service that stands still because nobody reads its log
helps nobody.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

MOST_WAITING: Final = 20_000
_AT_ONCE: Final = 500
_GATHER_SECONDS: Final = 0.05
_FLUSH_SECONDS: Final = 2.0


class Writer:
    """Takes lines as they are, has them made into bytes in its thread, and writes them."""

    def __init__(self, render: Callable[[Any], bytes], file: int = 2, most_waiting: int = MOST_WAITING) -> None:
        self._render = render
        self._file = file
        self._most = most_waiting
        self._waiting: deque[Any] = deque()
        self._dropped = 0
        self._idle = True
        self._bell = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="genlock-log", daemon=True)
        self._thread.start()

    def put(self, line: Any) -> None:
        """One more line. Never waits."""
        if len(self._waiting) >= self._most:
            self._dropped += 1
            return
        self._waiting.append(line)
        if self._idle:
            self._idle = False
            self._bell.set()

    def close(self) -> None:
        """Writes what is left, if whoever reads it lets us."""
        self._closing.set()
        self._bell.set()
        self._thread.join(_FLUSH_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._bell.wait()
            self._bell.clear()
            self._write_all()
            # Lines are gathered for a moment: a thread that woke for each would take the interpreter from those who answer.
            self._closing.wait(_GATHER_SECONDS)
            self._idle = True
            if self._waiting:
                self._bell.set()
        self._write_all()

    def _write_all(self) -> None:
        while self._waiting:
            pieces = [self._render(self._waiting.popleft()) for _ in range(min(_AT_ONCE, len(self._waiting)))]
            if self._dropped:
                count, self._dropped = self._dropped, 0
                pieces.append(self._render({"level": "warning", "event": "log lines dropped", "count": count}))
            self._write(b"".join(pieces))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            self._dropped += data.count(b"\n", len(data) - len(view))
