"""Receives notifications of commits by other processes: the script of every commit publishes
one."""

from __future__ import annotations

import threading
from functools import partial

from genlock.stores.notifications import Listener, Notifications, marks_in
from genlock.stores.redis.connection import RedisConnection
from genlock.stores.redis.settings import Settings

GLANCE_SECONDS = 0.2
"""The interval at which the listener checks whether the store was closed."""


class RedisListener(Listener[RedisConnection]):
    """Subscribes to the channel of one store."""

    def __init__(self, settings: Settings, channel: str, notifications: Notifications) -> None:
        super().__init__(partial(RedisConnection, settings), notifications)
        self._channel = channel

    def _listen(self, connection: RedisConnection) -> None:
        connection.listen(self._channel)
        self.hears = True
        self._notifications.tell(None)  # a feed may have moved before the subscription took effect
        while self._is_wanted():
            message = connection.heard(GLANCE_SECONDS)
            if message is not None:
                self._notifications.tell(marks_in(message) or None)

    def close(self) -> None:
        """Ends the thread, after the notifications are closed."""
        with self._lock:  # so that this is not between its creation and its start
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * GLANCE_SECONDS)
