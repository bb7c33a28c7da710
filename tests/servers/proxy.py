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
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._closed = False
        self._answers = "passed on"
        self.swallowed = threading.Event()
        """Has an answer not been passed on?"""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at_the_next_answer(self) -> None:
        """The server gets the next statement, and does what it says; instead of its answer the connection breaks."""
        self.swallowed.clear()
        self._answers = "cut"

    def swallow_answers(self) -> None:
        """The server gets every statement; its answers are lost, and the connections stay open."""
        self.swallowed.clear()
        self._answers = "swallowed"

    def pass_on(self) -> None:
        """As at first."""
        self._answers = "passed on"

    def lead_to(self, port: int) -> None:
        """From now on this is the way to another server: what leads to the first is broken off."""
        self._target = ("127.0.0.1", port)
        self.cut()

    def cut(self) -> None:
        """Breaks all connections off."""
        with self._lock:
            sockets, self._open = self._open, []
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):  # whoever is in accept would take one more
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(self._target)
            except OSError:
                continue
            with self._lock:
                self._open += [near, far]
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as ready, suppress(OSError):
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in ready.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(65536)
                    if not data or (source is far and self._is_lost()):
                        return
                    if not (source is far and self._answers == "swallowed"):
                        key.data.sendall(data)

    def _is_lost(self) -> bool:
        if self._answers == "passed on":
            return False
        cut = self._answers == "cut"
        if cut:
            self._answers = "passed on"
        self.swallowed.set()
        return cut


@contextmanager
def between(port: int) -> Iterator[Proxy]:
    """A proxy before the server on this port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
