"""The log of one generation: the agent's whole output, as JSON lines.

The agent's own JSON lines are logged unchanged. Any other line, and Genlock's own notes, is an
object with the key `genlock`, so that `jq` can read the whole log.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from genlock.private_files import FILE_MODE

MOST_BYTES: Final = 64 * 1024 * 1024
"""Beyond this size only Genlock's own lines are written."""


class AgentLog:
    """A log that only the user can read. A full disk ends the log, but not the work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, FILE_MODE)
        self._written = 0

    def write_json(self, line: bytes) -> None:
        """Logs a line that is JSON, without its line end."""
        if self._written <= MOST_BYTES:
            self._write(line + b"\n")

    def write_text(self, stream: str, line: bytes) -> None:
        """Logs any other line."""
        if self._written <= MOST_BYTES:
            self.note(stream, text=line.decode(errors="replace"))

    def note(self, what: str, **more: Any) -> None:
        """Logs a line of Genlock's own."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._write(json.dumps({"genlock": what, "at": at, **more}, default=str).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        try:
            os.write(self._file, data)
        except OSError:
            self._written = MOST_BYTES + 1

    def close(self) -> None:
        """Closes the log."""
        os.close(self._file)
