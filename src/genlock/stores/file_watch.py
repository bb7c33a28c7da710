"""Detects writes to files by inotify, since other processes send no notifications.

`Stop` ends the waiting. `WatchedFile` and `FileWatch` watch one file. A store that watches whole
folders uses `inotify` directly.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_IN_MODIFY = 0x2
_NAP_SECONDS = 0.02
_BLIND_SECONDS = 0.25
"""The pause between polls where nothing can wake the waiter."""


class Stop:
    """A signal that is given once and stays. Any number of threads may wait for it."""

    def __init__(self) -> None:
        self.given = False
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        """Created for the first waiter, since most stores never have one. Closed with the object: a
        waiter may be about to poll it."""

    def give(self) -> None:
        """Wakes all waiters, now and later."""
        with self._lock:
            self.given = True
            if self._pipe is not None:
                os.write(self._pipe[1], b"!")

    def wait(self, seconds: float) -> None:
        """Sleeps for `seconds`, or until the signal is given. Used where there is no descriptor to
        poll."""
        end = time.monotonic() + seconds
        while not self.given and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_SECONDS))

    def fileno(self) -> int:
        """A descriptor that becomes readable when the signal is given."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                if self.given:
                    os.write(self._pipe[1], b"!")
            return self._pipe[0]

    def __del__(self) -> None:
        for fd in self._pipe or ():
            os.close(fd)


class WatchedFile:
    """Watches one file. `works` tells whether that is possible; otherwise no write is noticed."""

    _fd: int | None = None

    def __init__(self, file: Path, stop: Stop) -> None:
        self._signal = stop
        self._stop = select.poll()
        self._either = select.poll()
        self._polls = _register(stop, self._stop, self._either)
        self._fd = _watch(file) if self._polls else None
        self.works = self._fd is not None
        if self._fd is not None:
            self._either.register(self._fd, select.POLLIN)

    def close(self) -> None:
        """Stops watching."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    @property
    def stopped(self) -> bool:
        """Has the signal been given? From then on nothing here sleeps."""
        return self._signal.given

    def await_write(self, seconds: float) -> bool:
        """Sleeps until the file is written to, or for `seconds`. Returns whether it was written
        to."""
        if not self._polls:
            self._signal.wait(min(seconds, _BLIND_SECONDS))
            return False
        return any(fd == self._fd for fd, _ in self._either.poll(seconds * 1000))

    def sleep(self, seconds: float) -> None:
        """Sleeps for `seconds` even if the file is written to, and discards those writes."""
        if self._polls:
            self._stop.poll(seconds * 1000)
        else:
            self._signal.wait(seconds)
        self.forget()

    def forget(self) -> None:
        """Discards earlier writes: from now on only new ones count."""
        if self._fd is not None:
            try:
                while os.read(self._fd, 4096):
                    pass
            except BlockingIOError:
                pass


class FileWatch:
    """Lends watches of one file to any number of threads. It keeps them open, because closing one
    takes the kernel 10 ms."""

    def __init__(self, file: Path, stop: Stop) -> None:
        self._file = file
        self._stop = stop
        self._idle: list[WatchedFile] = []

    @contextmanager
    def lent(self) -> Iterator[WatchedFile]:
        """Lends a watch of the file for the block."""
        try:
            watch = self._idle.pop()
        except IndexError:
            watch = WatchedFile(self._file, self._stop)
        try:
            watch.forget()
            yield watch
        finally:
            if watch.works:
                self._idle.append(watch)
            else:
                watch.close()  # a descriptor may be free next time
            if self._stop.given:
                self.close()

    def close(self) -> None:
        """Closes the idle watches. `stop` has been given, so the lent ones are closed when they
        come back."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()


def _register(stop: Stop, *polls: select.poll) -> bool:
    """Can the signal be polled? That needs a free descriptor."""
    try:
        for poll in polls:
            poll.register(stop, select.POLLIN)
    except OSError:
        return False
    return True


def _watch(file: Path) -> int | None:
    """A descriptor that becomes readable when the file is written to."""
    opened = inotify()
    if opened is None:
        return None
    fd, add = opened
    if add(file, _IN_MODIFY) < 0:
        os.close(fd)
        return None
    return fd


AddWatch = Callable[[str | Path, int], int]
"""Watches a path for the events of a mask. Returns the watch's number, negative on failure."""


def inotify() -> tuple[int, AddWatch] | None:
    """Returns a descriptor that delivers the events of all its watches, and a function that adds a
    watch. None if there is no inotify, or the user's limit is reached."""
    try:
        import ctypes  # imported late: few programs ever wait

        library = ctypes.CDLL(None)
        fd: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        add_watch = library.inotify_add_watch
    except (OSError, AttributeError, ImportError):
        return None
    if fd < 0:
        return None

    def add(path: str | Path, mask: int) -> int:
        number: int = add_watch(fd, os.fsencode(path), mask)
        return number

    return fd, add
