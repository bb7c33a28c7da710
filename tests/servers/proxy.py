"""A loopback proxy between a store and its server, which a test may cut, let fall silent or slow
down, at a moment of its choice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MOST = 1 << 20


class _Connection:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.silent = False
        """Is nothing passed on any more, in either direction?"""
        self.unlucky = False
        """Is it to be cut at the next answer?"""
        self.held: list[bytes] = []
        """What is held up on its way to the server."""
        self.answered = threading.Event()
        """Has the server said anything to that?"""
        self._passing = 2
        self._lock = threading.Lock()

    def cut(self) -> None:
        # What is held up is still to arrive.
        for end in (self.near,) if self.held else (self.near, self.far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """One direction is done. The other ends by it, and the last one closes both: not while
        somebody still reads."""
        self.held = []
        self.cut()
        with self._lock:
            self._passing -= 1
            if self._passing == 0:
                self.near.close()
                self.far.close()


class Proxy:
    """Passes bytes on in both directions, one thread each."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._open: list[_Connection] = []
        self._lock = threading.Lock()
        self._answers = "passed on"
        self._every = 0
        self._seen = 0
        self._delay = 0.0
        self._swallows_all = False
        self._unlucky: bytes | None = None
        self._unhurried: bytes | None = None
        self._let_through = threading.Event()
        self.held_up = threading.Event()
        """Is a request held up?"""
        self.swallowed = threading.Event()
        """Has an answer not been passed on?"""
        self.lost = 0
        """So many answers were not passed on."""
        self.asked: list[float] = []
        """When somebody asked for a connection, on the monotonic clock."""
        self.port = 0
        self.admit()

    def cut_at_the_next_answer(self) -> None:
        """The server gets the next statement, and does what it says; instead of its answer the
        connection breaks."""
        self._now("cut")

    def cut_every(self, answers: int) -> None:
        """Of so many answers one is lost, and its connection with it. 0: no longer."""
        self._seen, self._every = 0, answers

    def cut_at_the_answer_to(self, piece: bytes) -> None:
        """The same for the next request that has this in it, on whatever connection it comes."""
        self.swallowed.clear()
        self._unlucky = piece

    def hold_up(self, piece: bytes) -> None:
        """The next request that has this in it is held up on its way. Once its client is cut off,
        `let_through` brings it to the server."""
        self.held_up.clear()
        self._let_through.clear()
        self._unhurried = piece

    def let_through(self) -> None:
        """What was held up arrives, late."""
        self._unhurried = None
        self._let_through.set()

    def swallow_answers(self) -> None:
        """The server gets every statement; its answers are lost, and the connections stay open."""
        self._now("swallowed")

    def fall_silent(self) -> None:
        """Nothing is passed on any more on the connections that are open now. They stay open, and
        new ones work."""
        with self._lock:
            for each in self._open:
                each.silent = True

    def black_hole(self) -> None:
        """Nothing is passed on any more, also on connections that are still to come. All of them
        stay open."""
        self._swallows_all = True
        self.fall_silent()

    def delay(self, milliseconds: float) -> None:
        """So long everything takes in each direction."""
        self._delay = milliseconds / 1000

    def pass_on(self) -> None:
        """As at first; what fell silent stays so."""
        self._now("passed on")
        self._every, self._delay = 0, 0.0
        self._swallows_all = False

    def lead_to(self, port: int) -> None:
        """From now on this is the way to another server: what leads to the first is broken off."""
        self._target = ("127.0.0.1", port)
        self.cut()

    def lead_new_ones_to(self, port: int) -> None:
        """The same for connections that are still to come: those that are open stay, as where a
        name has moved on."""
        self._target = ("127.0.0.1", port)

    def cut(self) -> None:
        """Breaks all connections off."""
        with self._lock:
            connections, self._open = self._open, []
        for each in connections:
            each.cut()

    def admit(self) -> None:
        """Lets connections in, at first and again after `close`; the port stays the same."""
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self) -> None:
        """Breaks all connections off, and lets none in."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        self.cut()

    def _now(self, answers: str) -> None:
        self.swallowed.clear()
        self._answers = answers

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            self.asked.append(time.monotonic())
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()  # as the server itself would have done
                continue
            connection = _Connection(near, far)
            connection.silent = self._swallows_all
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.append(connection)
            threading.Thread(target=self._pass, args=(connection, near, far), daemon=True).start()
            threading.Thread(target=self._pass, args=(connection, far, near), daemon=True).start()

    def _pass(self, connection: _Connection, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_MOST):
                if source is connection.near and self._is_unlucky(data):
                    connection.unlucky = True
                if source is connection.near and (connection.held or self._is_unhurried(data)):
                    connection.held.append(data)
                    self.held_up.set()
                    continue
                if source is connection.far and (
                    connection.held or self._is_lost(connection.unlucky)
                ):
                    break
                if self._delay:
                    time.sleep(self._delay)
                if not connection.silent and not (
                    source is connection.far and self._answers == "swallowed"
                ):
                    sink.sendall(data)
        if source is connection.near and connection.held:
            self._deliver(connection)
        connection.answered.set()
        connection.end()

    def _deliver(self, connection: _Connection) -> None:
        """Brings what was held up to the server. Its connection stays until the server has said
        something to it, or has ended it."""
        self._let_through.wait()
        with suppress(OSError):
            connection.far.sendall(b"".join(connection.held))
            connection.answered.wait()

    def _is_unhurried(self, request: bytes) -> bool:
        """Is this the request that is to be held up?"""
        with self._lock:
            if self._unhurried is None or self._unhurried not in request:
                return False
            self._unhurried = None
            return True

    def _is_unlucky(self, request: bytes) -> bool:
        """Is this the request whose answer is to be lost?"""
        with self._lock:
            if self._unlucky is None or self._unlucky not in request:
                return False
            self._unlucky = None
            return True

    def _is_lost(self, unlucky: bool) -> bool:
        """Is this answer to be lost together with its connection?"""
        with self._lock:
            self._seen += 1
            answers = "cut" if unlucky else self._answers
            if answers == "passed on":
                if not self._every or self._seen % self._every:
                    return False
                answers = "cut"
            elif answers != "swallowed" and not unlucky:
                self._answers = "passed on"
            self.lost += 1
        self.swallowed.set()
        return answers == "cut"


@contextmanager
def between(port: int) -> Iterator[Proxy]:
    """A proxy before the server on this port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
        proxy.let_through()
