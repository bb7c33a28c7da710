"""The service's log: one line per request, and other events that an operator should know. JSON, or
colored text on a terminal.

The log contains only the fields named here: no headers, no bodies, no other arguments, and of a key
only its id. It also omits the message of an unexpected exception, which may repeat its input; the
place where it happened is enough to find it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from genlock.errors import BadArgument, GenlockError
from genlock.safe_text import safe_json, safe_line, safe_text
from genlock.service.request import HttpExchange
from genlock.wire.headers import AGENT_HEADER, SESSION_HEADER
from genlock.wire.operations import ROUTES

# A separate thread writes lines to stderr, so that no request waits for a terminal, a pipe or a
# disk.
#
# Lines that cannot be written in time are dropped, and a line says how many. The service must not
# stop because nothing reads its log.


MOST_WAITING: Final = 20_000
_AT_ONCE: Final = 500
_GATHER_SECONDS: Final = 0.05
_FLUSH_SECONDS: Final = 2.0


class Writer:
    """Takes lines as objects, and encodes and writes them in its thread."""

    def __init__(
        self, render: Callable[[Any], bytes], file: int = 2, most_waiting: int = MOST_WAITING
    ) -> None:
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
        """Adds a line. Never waits."""
        if len(self._waiting) >= self._most:
            self._dropped += 1
            return
        self._waiting.append(line)
        if self._idle:
            self._idle = False
            self._bell.set()

    def close(self) -> None:
        """Writes the remaining lines, as far as the reader of the log takes them."""
        self._closing.set()
        self._bell.set()
        self._thread.join(_FLUSH_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._bell.wait()
            self._bell.clear()
            self._write_all()
            # Gather lines for a moment: a thread that woke for each line would take the
            # interpreter from the event loop.
            self._closing.wait(_GATHER_SECONDS)
            self._idle = True
            if self._waiting:
                self._bell.set()
        self._write_all()

    def _write_all(self) -> None:
        while self._waiting:
            pieces = [
                self._render(self._waiting.popleft())
                for _ in range(min(_AT_ONCE, len(self._waiting)))
            ]
            if self._dropped:
                count, self._dropped = self._dropped, 0
                pieces.append(
                    self._render({"level": "warning", "event": "log lines dropped", "count": count})
                )
            self._write(b"".join(pieces))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            self._dropped += data.count(b"\n", len(data) - len(view))


LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_READS: Final = frozenset(route.name for route in ROUTES if route.repeatable) | {
    "batch_get_states",
    "diff_plan",
    "check_plan",
    "status_page",
}
_BESIDE_THE_POINT: Final = ("Unsupported upgrade request", "No supported WebSocket library")
"""uvicorn's warnings about requests for another protocol. They advise installing a package that is
not needed, and any client could fill the log with them."""
_LONGEST: Final = 128
_NOTHING: Final[dict[str, Any]] = {}
_NOWHERE: Final = (None, None)
_NAMED: Final = frozenset(
    {"session_id", "agent_id", "task_id", "generation", "expected_generation"}
)
_SESSION, _AGENT = SESSION_HEADER.encode(), AGENT_HEADER.encode()


class Line(msgspec.Struct, omit_defaults=True):
    """The log line of a request."""

    timestamp: float | str
    """Seconds at first; ISO 8601 when the line is written."""
    level: str
    event: str
    """The operation, or the path of a page."""
    request: str
    method: str
    status: int
    ms: float
    tenant: str | None = None
    project: str | None = None
    session: str | None = None
    agent: str | None = None
    task: str | None = None
    generation: int | None = None
    reason: str | None = None
    """The reason of a refusal, or the code of an error."""
    key: str | None = None
    client: str | None = None


class Log:
    """The service's log."""

    def __init__(
        self,
        *,
        level: str = "info",
        form: str | None = None,
        file: int = 2,
        terminal: bool | None = None,
    ) -> None:
        self._least = LEVELS[level]
        on_terminal = sys.stderr.isatty() if terminal is None else terminal
        readable = on_terminal if form is None else form == "text"
        self._writer = Writer(_text(colors=on_terminal) if readable else _json, file)
        self._now = time.time
        self._handler = _Foreign(self)

    def request(self, what: HttpExchange) -> None:
        """Logs a finished request."""
        level = _level_of(what)
        if LEVELS[level] >= self._least:
            self._writer.put(_line(what, level, self._now()))

    def fault(self, what: HttpExchange) -> None:
        """Logs a request that failed because of a fault in the service."""
        error = what.error
        if error is not None:
            self.event("error", "fault", request=what.request, operation=what.route, **told(error))

    def event(self, level: str, event: str, **fields: Any) -> None:
        """Logs any other event."""
        if LEVELS[level] >= self._least:
            self._writer.put({"timestamp": self._now(), "level": level, "event": event, **fields})

    def logger(self) -> Any:
        """A structlog logger that writes to this log."""
        import structlog

        def hand_over(_: Any, level: str, fields: Any) -> Any:
            event = str(fields.pop("event", ""))
            self.event(level if level in LEVELS else "error", event, **fields)
            raise structlog.DropEvent

        return structlog.wrap_logger(None, processors=[hand_over])

    def adopt(self, *names: str) -> None:
        """Redirects the loggers of these names to this log."""
        for name in names:
            theirs = logging.getLogger(name)
            theirs.addHandler(self._handler)
            theirs.propagate = False
            theirs.setLevel(logging.WARNING)

    def close(self) -> None:
        """Writes the remaining lines."""
        self._writer.close()


class _Foreign(logging.Handler):
    """Log records of libraries: the message, cut to a maximum, and where an exception happened."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage().partition("\n")[0][:_LONGEST]
        if said.startswith(_BESIDE_THE_POINT):
            return
        error = record.exc_info[1] if record.exc_info else None
        level = record.levelname.lower()
        self._log.event(
            level if level in LEVELS else "error",
            said,
            library=record.name,
            **(told(error) if error is not None else {}),
        )


def told(error: BaseException) -> dict[str, Any]:
    """An exception as fields: its type, where it happened, and its message only if that is ours or
    the system's. Other messages may contain input."""
    frames = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
    words = str(error)[:500] if isinstance(error, (GenlockError, OSError)) else None
    return {"error": type(error).__name__, "traceback": frames} | (
        {"message": words} if words else {}
    )


def _level_of(what: HttpExchange) -> str:
    """Writes and refusals have level info; reads have level debug."""
    if what.status >= 500:
        return "warning"
    if what.status >= 400:
        return "info"
    return "info" if what.route and what.route not in _READS else "debug"


def _line(what: HttpExchange, level: str, now: float) -> Line:
    result, error, headers, arguments = (
        what.result,
        what.error,
        what.headers,
        what.arguments or _NOTHING,
    )
    if error is not None:
        # Invalid names are not logged, because they may be anything.
        arguments, headers = _checked(arguments, error), {}
    get = arguments.get
    claim = getattr(result, "claim", None)
    tenant, project = what.place or _NOWHERE
    return Line(
        now,
        level,
        what.route
        or (
            what.scope["path"][:_LONGEST]
            if "endpoint" in what.scope
            else "nothing here"
            if what.status == 404
            else "refused"
        ),
        what.request,
        what.scope["method"],
        what.status,
        int((time.perf_counter() - what.started) * 100_000) / 100,
        tenant,
        project,
        get("session_id") or _header(headers, _SESSION),
        get("agent_id") or _header(headers, _AGENT),
        get("task_id") if claim is None else claim.task_id,
        get("generation") or get("expected_generation") if claim is None else claim.generation,
        getattr(result, "reason", None) if error is None else _name_of(error),
        what.grant.key_id or None,
        what.client or None,
    )


def _header(headers: dict[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def _checked(arguments: dict[str, Any], error: BaseException) -> dict[str, Any]:
    if isinstance(error, BadArgument):
        return {}
    return {
        name: value[:_LONGEST] if isinstance(value, str) else value
        for name, value in arguments.items()
        if name in _NAMED
    }


def _name_of(error: BaseException) -> str:
    return error.code if isinstance(error, GenlockError) else type(error).__name__


_encoder = msgspec.json.Encoder()


class _Stamps:
    """Formats timestamps, and caches the text of the current second."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def __call__(self, seconds: float) -> str:
        whole = int(seconds)
        if whole != self._second:
            self._second, self._text = (
                whole,
                datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S."),
            )
        return f"{self._text}{int((seconds - whole) * 1000):03d}Z"


_stamp = _Stamps()


def _stamped(line: Any) -> Any:
    """Formats the timestamp of a line. Called in the writing thread only."""
    if isinstance(line, Line):
        line.timestamp = _stamp(line.timestamp)  # type: ignore[arg-type]
        return line
    return line | {"timestamp": _stamp(line.get("timestamp", time.time()))}


def _json(line: Any) -> bytes:
    try:
        return safe_json(_encoder.encode(_stamped(line))) + b"\n"
    except (TypeError, UnicodeEncodeError):
        return (
            _encoder.encode({"level": "warning", "event": "a log line could not be written"})
            + b"\n"
        )


def _text(*, colors: bool) -> Any:
    """The renderer of lines for people."""
    import structlog

    show = structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=14)

    def render(line: Any) -> bytes:
        fields: dict[str, Any] = msgspec.to_builtins(_stamped(line))
        fields["timestamp"] = fields["timestamp"][11:23]
        trace = str(fields.pop("traceback", ""))
        filled = {
            name: safe_line(value) if isinstance(value, str) else value
            for name, value in fields.items()
            if value not in (None, "")
        }
        shown = str(show(None, "", filled))
        return (shown + "\n" + safe_text(trace)).encode(errors="backslashreplace")

    return render
