"""An open ear: a thread that waits for a stream, and how another one lets it go."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any


class Ear:
    """One watch. A thread that waits for bytes does not hear that its connection is closed; it does hear that the socket is shut down."""

    def __init__(self) -> None:
        self.stopped = False
        self._socket: socket.socket | None = None

    def open(self, response: Any) -> None:
        """It waits for this from now on."""
        self._socket = response.extensions["network_stream"].get_extra_info("socket")
        if self.stopped:
            self.stop()

    def stop(self) -> None:
        """It waits no longer."""
        self.stopped = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
