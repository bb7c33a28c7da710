"""A proxy on the loopback that can lose an answer: the server has done what it was asked, and whoever asked never hears of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Hands on what comes, both ways. `lose` is a piece of a request: the answer to the next one that has it is lost."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 0)
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.lose: bytes | None = None
        self.lost = 0
        self._listen()

    def open(self) -> None:
        """Lets connections in again after `close`."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._listen()

    def close(self) -> None:
        """Cuts all connections, and lets none in."""
        for each in [self._listener, *self._sockets]:
            # Closing alone would not wake who waits for it.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server, suppress(OSError):
            self._sockets += [client, server]
            losing = threading.Event()
            threading.Thread(target=self._answer, args=(server, client, losing), daemon=True).start()
            while data := client.recv(65536):
                if self.lose is not None and self.lose in data:
                    self.lose = None
                    losing.set()
                server.sendall(data)

    def _answer(self, server: socket.socket, client: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if losing.is_set():
                    self.lost += 1
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def before(target: str) -> Iterator[Proxy]:
    """A proxy before a server."""
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
