"""Watches the folders of a layout, so that an edit is noticed at once.

inotify reports the names that were written to, moved or removed, and the layout maps each name to a
task. It reports no writes by other machines, and some systems have no inotify. Waiters therefore
also scan all files from time to time.
"""

from __future__ import annotations

import os
import select
import struct
import threading
import time

from genlock.stores.file_watch import AddWatch, Stop, inotify
from genlock.stores.folder.layout import Layout

_EVENT = struct.Struct("iIII")
_CHANGES = 0x8 | 0x40 | 0x80 | 0x100 | 0x200
"""Written and closed, moved from, moved to, created, deleted."""
_FOLDER_ITSELF = 0x400 | 0x800
_ONLY_FOLDERS_NO_LINKS = 0x1000000 | 0x2000000
_MASK = _CHANGES | _FOLDER_ITSELF | _ONLY_FOLDERS_NO_LINKS
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_MOST_LEFT = 500
_AT_ONCE = 65536
SETTLE_SECONDS = 0.02
"""The delay from the first event to the answer, since a tool that writes a file causes several."""


class FolderWatch:
    """Watches the folders of one layout. Only one thread at a time gets the events; a second one
    waits for its turn, and may time out."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._stop = Stop()
        self._waiting = threading.Lock()
        self._fd: int | None = None
        self._add: AddWatch | None = None
        self._folders: dict[int, tuple[str, str]] = {}
        """By watch number: the folder, and the task that it belongs to."""
        self._left = 0
        """How many of the watched folders were moved or removed. The kernel still watches the moved
        ones."""
        self._has_new_folder = False

    def wait(self, seconds: float) -> set[str] | None:
        """Waits until task files are written to, and returns the tasks; an empty set after
        `seconds`. None if some writes may have been missed."""
        end = time.monotonic() + seconds
        if not self._waiting.acquire(timeout=seconds):
            return set()
        try:
            return self._wait(end)
        finally:
            self._waiting.release()

    def close(self) -> None:
        """Wakes the waiting thread and ends the watch."""
        self._stop.give()
        if self._waiting.acquire(timeout=1):
            self._forget()
            self._waiting.release()

    def _wait(self, end: float) -> set[str] | None:
        poll = self._poll()
        if poll is None:
            self._stop.wait(end - time.monotonic())
            return set()
        found: set[str] = set()
        if not self._follow(found):
            return None
        if found:
            end = min(end, time.monotonic() + SETTLE_SECONDS)
        while not self._stop.given:
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return found
            was_empty = not found
            if not self._read(found):
                self._forget()
                return None
            if self._has_new_folder and not self._follow(found):
                return None
            if found and was_empty:
                end = min(end, time.monotonic() + SETTLE_SECONDS)
        return set()

    def _poll(self) -> select.poll | None:
        """A poll for events and for the end of the watch; None if there is no inotify."""
        if self._fd is None:
            opened = inotify()
            if opened is None:
                return None
            self._fd, self._add = opened
        poll = select.poll()
        try:
            poll.register(self._stop, select.POLLIN)
        except OSError:
            return None
        poll.register(self._fd, select.POLLIN)
        return poll

    def _follow(self, found: set[str]) -> bool:
        """Watches new folders. A new folder of a single task counts as an event for that task.
        Returns False if there are other new folders, in which files may have been written
        before."""
        assert self._add is not None
        self._has_new_folder = False
        known = {folder for folder, _ in self._folders.values()}
        complete = True
        for folder, task in self._layout.watched():
            if folder in known:
                continue
            number = self._add(folder, _MASK)
            if number < 0:
                continue  # deleted again, or the user's limit of watches is reached
            self._folders[number] = folder, task
            if task:
                found.add(task)
            else:
                complete = False
        return complete

    def _read(self, found: set[str]) -> bool:
        """Reads the pending events. Returns False if some were lost, or if the watches should be
        set up again."""
        assert self._fd is not None
        try:
            data = os.read(self._fd, _AT_ONCE)
        except BlockingIOError:
            return True
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
            at += _EVENT.size + length
            if mask & _OVERFLOW:
                return False
            folder, task = self._folders.get(number, ("", ""))
            self._has_new_folder = self._has_new_folder or bool(mask & _IS_FOLDER)
            if task:
                found.add(task)
                if mask & (_IGNORED | _FOLDER_ITSELF):
                    del self._folders[number]
                    self._left += 1
            elif mask & (_IGNORED | _FOLDER_ITSELF):
                return False
            elif folder and (named := self._layout.task_of(folder, name)):
                found.add(named)
        return self._left < _MOST_LEFT

    def _forget(self) -> None:
        fd, self._fd = self._fd, None
        self._folders.clear()
        self._left = 0
        if fd is not None:
            os.close(fd)
