"""Watching the folders of a layout, so that an edit is noticed when it is made.

inotify tells the names that were written to, moved or removed, and a layout knows whose task each
of them is. It says nothing of what other machines write, and nothing where there is no inotify.
Whoever waits therefore looks at all files now and then, too.
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
"""Written and closed, moved away, moved to, made, removed."""
_FOLDER_ITSELF = 0x400 | 0x800
_ONLY_FOLDERS_NO_LINKS = 0x1000000 | 0x2000000
_MASK = _CHANGES | _FOLDER_ITSELF | _ONLY_FOLDERS_NO_LINKS
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_MOST_LEFT = 500
_AT_ONCE = 65536
SETTLE_SECONDS = 0.02
"""From the first event to the answer: a tool that writes a file makes several."""


class FolderWatch:
    """Watches the folders of one layout. One thread waits; another that comes meanwhile learns
    nothing."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._stop = Stop()
        self._waiting = threading.Lock()
        self._fd: int | None = None
        self._add: AddWatch | None = None
        self._folders: dict[int, tuple[str, str]] = {}
        """By the number of a watch: the folder, and the task that it belongs to."""
        self._left = 0
        """How many of them went elsewhere. The kernel goes on watching these."""
        self._has_new_folder = False

    def wait(self, seconds: float) -> set[str] | None:
        """The tasks whose files were written to, as soon as there are any; none if there were none
        for so long. None if some may have been missed."""
        end = time.monotonic() + seconds
        if not self._waiting.acquire(timeout=seconds):
            return set()
        try:
            return self._wait(end)
        finally:
            self._waiting.release()

    def close(self) -> None:
        """Wakes the thread that waits; nobody waits from now on."""
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
        """Of the events and of the end; None where there are no events."""
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
        """Watches folders that are new. A task's own folder is as good as an event; False if there
        are others, in which anything may have been written before."""
        assert self._add is not None
        self._has_new_folder = False
        known = {folder for folder, _ in self._folders.values()}
        complete = True
        for folder, task in self._layout.watched():
            if folder in known:
                continue
            number = self._add(folder, _MASK)
            if number < 0:
                continue  # gone again, or this user has no more watches
            self._folders[number] = folder, task
            if task:
                found.add(task)
            else:
                complete = False
        return complete

    def _read(self, found: set[str]) -> bool:
        """Takes the events that are there; False if some were lost, or it is time to begin
        again."""
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
