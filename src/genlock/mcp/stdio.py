"""The server on stdin and stdout: `genlock mcp`, started by an agent's client for itself.

It must shut down cleanly in little time. Claude Code sends SIGINT, SIGTERM 0.1 s later and SIGKILL
0.4 s after that; others close stdin, and some do nothing at all. So on any of these it releases its
claims within `RELEASE_SECONDS` and exits by `os._exit`, even if its threads are still waiting. A
claim that could not be released is recognised as overdue, because the process is gone.

- stdout belongs to the protocol: its descriptor is moved, and prints go to stderr.
- One thread reads and never waits for a call. Each call has a thread of its own.
- A signal's handler only starts the thread that ends the process: the reader may be blocked in a
  write that the client does not read, and the interrupted code may hold a lock.
- A server whose parent has ended ends, too. Some clients leave their servers running.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn

from genlock.errors import GenlockError
from genlock.mcp import protocol
from genlock.mcp.answer import Answer, Caller
from genlock.threads import started

if TYPE_CHECKING:
    from genlock.mcp.connection import Connection, Prepared

RELEASE_SECONDS: Final = 0.25
_LONGEST_LINE: Final = 16 * 1024 * 1024
_MOST_CALLS: Final = 32
_LOOK_SECONDS: Final = 2.0
"""How often the server checks that its parent still exists."""
_PIECE: Final = 65536


class Lines:
    """Splits pieces of any size into lines. A line that is too long is dropped while it arrives."""

    def __init__(self, longest: int = _LONGEST_LINE) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yields the lines that end in this piece; None for each line that was too long."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._add(end)
            line = None if self._size > self._longest else b"".join(self._pieces)
            self._pieces, self._size = [], 0
            if line is None or line.strip():
                yield line
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            self._pieces = []
        else:
            self._pieces.append(piece)


class Server:
    """Serves one client until stdin ends, a signal comes or the parent is gone."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        identify: Callable[[protocol.Params, str], Caller],
    ) -> None:
        """`identify` returns the caller, from the request's metadata and the client's name."""
        self._connect, self._identify = connect, identify
        self._connection: Connection | None = None
        self._client = ""
        self._in, self._out = _take_streams()
        self._writing = threading.Lock()
        self._ending = threading.Lock()
        self._lock = threading.Lock()
        self._calls: dict[protocol.RequestId, threading.Event] = {}
        """The requests that the client waits for, each with the event that cancels it."""
        self._threads: list[threading.Thread] = []

    def serve(self) -> NoReturn:
        """Serves the client. Never returns: the process ends in this call."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: _thread.start_new_thread(self._end, ()))
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        parent = os.getppid()
        lines = Lines()
        poll = select.poll()
        poll.register(self._in, select.POLLIN)
        while os.getppid() == parent:
            if poll.poll(_LOOK_SECONDS * 1000):
                piece = os.read(self._in, _PIECE)
                if not piece:
                    break
                for line in lines.feed(piece):
                    self._take(line)
        self._end()
        while True:  # a signal arrived first, and its thread is about to end the process
            signal.pause()

    def _end(self) -> None:
        """Releases the claims and exits, in time. A second request to end, such as SIGTERM after
        SIGINT, does not shorten the release."""
        if not self._ending.acquire(blocking=False):
            return
        _thread.start_new_thread(_leave_after, (RELEASE_SECONDS,))
        with self._lock:
            for cancelled in self._calls.values():
                cancelled.set()
            connection = self._connection
            threads = list(self._threads)
        if connection is not None:
            connection.close(RELEASE_SECONDS)
        # A call that was waiting for a task may just have been granted a released one.
        for thread in threads:
            thread.join()
        os._exit(0)

    def _take(self, line: bytes | None) -> None:
        """Answers a line, or starts to."""
        if line is None:
            told = f"a message has at most {_LONGEST_LINE:,} bytes"
            self._send(protocol.failure(None, protocol.INVALID_REQUEST, told))
            return
        match protocol.handle(line):
            case protocol.Reply() as reply:
                self._send(reply)
            case protocol.Initialized(reply=reply, client=client):
                self._client = client
                self._send(reply)
            case protocol.Cancelled(id=number):
                with self._lock:
                    cancelled = self._calls.pop(number, None)
                if cancelled is not None:
                    cancelled.set()
            case protocol.Work() as work:
                self._begin(work)
            case None:
                pass

    def _begin(self, work: protocol.Work) -> None:
        number, cancelled = work.request.id, threading.Event()
        with self._lock:
            is_known = number in self._calls
            if not is_known and len(self._calls) < _MOST_CALLS:
                self._calls[number] = cancelled
                began = started(lambda: self._run(work, cancelled), f"genlock-call-{number}")
                if began is not None:
                    alive = [thread for thread in self._threads if thread.is_alive()]
                    self._threads = [*alive, began]
                    return
                del self._calls[number]
        if is_known:
            told = "a request of this id is not answered yet"
            self._send(protocol.failure(number, protocol.INVALID_REQUEST, told))
        else:
            busy = "BUSY: too many calls at once; repeat this one when others are answered."
            self._send(work.reply(Answer(busy, is_error=True, facts={"reason": "BUSY"})))

    def _run(self, work: protocol.Work, cancelled: threading.Event) -> None:
        """Runs one call, in a thread of its own."""
        from genlock.mcp.connection import Abandoned

        try:
            answer, give_back = self._answer(work, cancelled)
            if self._is_wanted(work):
                self._send(work.reply(answer))
            else:
                give_back()
        except Abandoned:
            self._is_wanted(work)
        # Without a reply the client would wait for ever. The cause is logged for a person.
        except Exception:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
            if self._is_wanted(work):
                self._send(work.failed())

    def _is_wanted(self, work: protocol.Work) -> bool:
        """Is the answer still wanted? Checked once, at the end: from here on the request counts as
        answered and cannot be cancelled."""
        with self._lock:
            return self._calls.pop(work.request.id, None) is not None

    def _answer(self, work: protocol.Work, cancelled: threading.Event) -> Prepared:
        from genlock.mcp.connection import Prepared
        from genlock.mcp.scripts import error_answer

        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
        request = work.request
        try:
            caller = self._identify(request.meta, request.client or self._client)
        except GenlockError as error:
            return Prepared(error_answer(error), lambda: None)
        return self._connection.answer(work.asked, caller, cancelled)

    def _send(self, reply: protocol.Reply) -> None:
        """Writes a line. If the client does not read it, the server is about to end anyway."""
        left = memoryview(reply.body + b"\n")
        with self._writing:
            try:
                while left:
                    left = left[os.write(self._out, left) :]
            except OSError:
                return


def _take_streams() -> tuple[int, int]:
    """Returns the protocol's descriptors. All other output goes to stderr, and children get an
    empty stdin."""
    taken, given = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return taken, given


def _leave_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(0)
