"""Reads an agent's output continuously, so that an agent never blocks on its reader."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from typing import Any, Final

from genlock.worker.agents.catalog import AgentClient
from genlock.worker.agents.log import AgentLog
from genlock.worker.agents.transcript import TAIL_BYTES, Transcript
from genlock.worker.nursery import Streams

_PIECE: Final = 1 << 16
_MOST_PIECES: Final = 64
"""The most pieces read at a time, so that the agent's owner can do other work in between."""
_LONGEST_LINE: Final = 8 * 1024 * 1024


class AgentOutput:
    """The two streams of one agent, its log and its transcript."""

    def __init__(
        self, client: AgentClient, streams: Streams, log: AgentLog, seen: Transcript
    ) -> None:
        self._client = client
        self._names = {streams.stdout: "stdout", streams.stderr: "stderr"}
        self._unread = {streams.stdout: b"", streams.stderr: b""}
        self._log = log
        self._seen = seen

    @property
    def open(self) -> list[int]:
        """Returns the streams that have not ended."""
        return list(self._unread)

    def read(self, stream: int) -> None:
        """Reads the available output."""
        for _ in range(_MOST_PIECES):
            try:
                data = os.read(stream, _PIECE)
            except BlockingIOError:
                return
            if not data:
                self._end(stream)
                return
            self._take(stream, data)

    def close(self) -> None:
        """Reads the remaining output, without waiting for more."""
        for stream in self.open:
            self.read(stream)
        for stream in self.open:
            self._end(stream)

    def _end(self, stream: int) -> None:
        rest = self._unread.pop(stream)
        if rest:
            self._line(self._names[stream], rest)
        with suppress(OSError):
            os.close(stream)

    def _take(self, stream: int, data: bytes) -> None:
        name = self._names[stream]
        if name == "stdout":
            self._seen.output = (self._seen.output + data)[-TAIL_BYTES:]
        else:
            self._seen.errors = (self._seen.errors + data)[-TAIL_BYTES:]
        *lines, rest = (self._unread[stream] + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines.append(rest)
            rest = b""
        self._unread[stream] = rest
        for line in lines:
            self._line(name, line)

    def _line(self, name: str, line: bytes) -> None:
        if name == "stdout" and line[:1] in (b"{", b"["):
            try:
                event = _event(line)
            except (ValueError, RecursionError):
                pass
            else:
                self._log.write_json(line)
                self._understand(event)
                return
        self._log.write_text(name, line)
        if name == "stdout" and not self._client.says_its_end:
            self._seen.do(line[:400].decode(errors="replace"))

    def _understand(self, event: object) -> None:
        self._seen.last_json = event
        if not isinstance(event, dict):
            return
        try:
            self._client.read(event, self._seen)
        # A new version of an agent may use a different type of value anywhere.
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            self._log.note("not_understood", error=f"{type(error).__name__}: {error}")


def _event(line: bytes) -> Any:
    """Parses a line as JSON. Values that only Python accepts are made valid: a number that is not
    finite becomes null, and half a character a question mark. The result is submitted in this
    form."""
    event = json.loads(line, parse_constant=lambda _: None, parse_float=_number)
    if b"\\ud" in line or b"\\uD" in line:
        event = json.loads(json.dumps(event, ensure_ascii=False).encode(errors="replace"))
    return event


def _number(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
