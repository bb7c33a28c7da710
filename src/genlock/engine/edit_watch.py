"""The edit watcher: one thread that waits for edits of task files and turns them into events.

It runs in a store whose files other tools edit, while callers wait for a task or for events. It
starts with the first caller and ends when there have been none for a while. Every edit becomes an
ordinary event, which wakes waiters and readers like a commit.

The store reports which files were written, as far as it can. Edits that it cannot notice, such as
those of another machine on a network drive, are found by a scan of all files every few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from genlock.core.commands import ObserveTask
from genlock.core.keys import Key, project_key
from genlock.core.task.relate import SYSTEM
from genlock.engine.jobs import Recover, Request
from genlock.errors import Closed, GenlockError
from genlock.store import ObservesFiles
from genlock.threads import started

Place = tuple[str, str]

SCAN_SECONDS = 3.0
"""The shortest pause between two scans of all files."""
SCAN_SHARE = 50
"""The pause after a scan, as a multiple of its duration: scans take 2 % of a core."""
_LINGER_SECONDS = 5.0
_WAIT_SECONDS = 1.0
_AFTER_ERROR_SECONDS = 0.5
_AT_ONCE = 128


class EditWatch:
    """Watches the task files of a store."""

    def __init__(self, store: ObservesFiles, ask: Callable[[Sequence[Request]], object]) -> None:
        """`ask` carries out requests and returns when they are done."""
        self._store = store
        self._ask = ask
        self._lock = threading.Lock()
        self._until: dict[Place, float] = {}
        self._scan_at = 0.0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def watch(self, places: Iterable[Place]) -> None:
        """Observes edits of these projects from now on, until a few seconds after the last call."""
        until = time.monotonic() + _LINGER_SECONDS
        with self._lock:
            if self._thread is not None and not self._thread.is_alive():
                self._until.clear()  # it died, so edits may have been missed
            for place in places:
                if place not in self._until:
                    self._scan_at = 0.0
                self._until[place] = until
            alive = self._thread is not None and self._thread.is_alive()
            if not alive and not self._closing.is_set():
                # If no thread can be started, a caller that finds no task still scans all files.
                self._thread = started(self._run, "genlock-edits")

    def close(self) -> None:
        """Ends the thread soon."""
        with self._lock:
            self._closing.set()

    def join(self) -> None:
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2)

    def _run(self) -> None:
        while places := self._watched():
            try:
                keys = self._store.await_edits(_WAIT_SECONDS)
                if keys is None or time.monotonic() >= self._scan_at:
                    self._look_at_all(places)
                else:
                    self._observe(keys)
            except Closed:
                return
            except GenlockError:
                self._closing.wait(_AFTER_ERROR_SECONDS)

    def _watched(self) -> list[Place]:
        with self._lock:
            now = time.monotonic()
            self._until = {place: until for place, until in self._until.items() if until > now}
            if self._closing.is_set() or not self._until:
                self._thread = None
                return []
            return list(self._until)

    def _look_at_all(self, places: Iterable[Place]) -> None:
        began = time.monotonic()
        self._scan_at = began + SCAN_SECONDS
        for place in places:
            self._ask([Recover(project_key(*place), files_only=True)])
        now = time.monotonic()
        self._scan_at = max(self._scan_at, now + SCAN_SHARE * (now - began))

    def _observe(self, keys: Sequence[Key]) -> None:
        for start in range(0, len(keys), _AT_ONCE):
            self._ask([ObserveTask(key, SYSTEM) for key in keys[start : start + _AT_ONCE]])
