"""A loopback proxy between a store and its server, which a test may cut, or let fall silent, at a moment of its choice."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Passes bytes on in both directions, one thread a connection."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._answers = "passed on"
        self._unlucky: bytes | None = None
        self.swallowed = threading.Event()
        """Has an answer not been passed on?"""
        self.port = 0
        self.admit()

    def cut_at_the_next_answer(self) -> None:
        """The server gets the next statement, and does what it says; instead of its answer the connection breaks."""
        self.swallowed.clear()
        self._answers = "cut"

    def cut_at_the_answer_to(self, piece: bytes) -> None:
        """The same for the next request that has this in it, on whatever connection it comes."""
        self.swallowed.clear()
        self._unlucky = piece

    def swallow_answers(self) -> None:
        """The server gets every statement; its answers are lost, and the connections stay open."""
        self.swallowed.clear()
        self._answers = "swallowed"

    def pass_on(self) -> None:
        """As at first."""
        self._answers = "passed on"

    def cut(self) -> None:
        """Breaks all connections off."""
        with self._lock:
            sockets, self._open = self._open, []
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def admit(self) -> None:
        """Lets connections in, at first and again after `close`; the port stays the same."""
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self) -> None:
        """Breaks all connections off, and lets none in."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who waits for it
        self._listening.close()
        self.cut()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open += [near, far]
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        unlucky = False
        with near, far, selectors.DefaultSelector() as ready, suppress(OSError):
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(65536)
                    unlucky = unlucky or (source is near and self._is_unlucky(data))
                    if not data or (source is far and self._is_lost(unlucky)):
                        return
                    if not (source is far and self._answers == "swallowed"):
                        key.data.sendall(data)

    def _is_unlucky(self, request: bytes) -> bool:
        if self._unlucky is None or self._unlucky not in request:
            return False
        self._unlucky = None
        return True

    def _is_lost(self, unlucky: bool) -> bool:
        if self._answers == "passed on" and not unlucky:
            return False
        cut = self._answers == "cut"
        if cut:
            self._answers = "passed on"
        self.swallowed.set()
        return cut or unlucky


@contextmanager
def between(port: int) -> Iterator[Proxy]:
    """A proxy before the server on this port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
