"""Noticing that a file is written to, by whatever process: inotify, where there is one."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_IN_MODIFY = 0x2


class Stop:
    """A signal that is given once and stays. Any number of threads may wait for it."""

    def __init__(self) -> None:
        self.given = False
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        """Only made when someone waits, since most never do. Given up with the object: who waits may be about to look at it."""

    def give(self) -> None:
        """Wakes all who wait, now and later."""
        with self._lock:
            self.given = True
            if self._pipe is not None:
                os.write(self._pipe[1], b"!")

    def fileno(self) -> int:
        """What becomes readable when the signal is given."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                if self.given:
                    os.write(self._pipe[1], b"!")
            return self._pipe[0]

    def __del__(self) -> None:
        for fd in self._pipe or ():
            os.close(fd)


class Notice:
    """Watches one file. Where that is impossible nothing is ever noticed: `works` says so."""

    def __init__(self, file: Path, stop: Stop) -> None:
        self._fd = _watch(file)
        self.works = self._fd is not None
        self._signal = stop
        self._stop = select.poll()
        self._either = select.poll()
        self._stop.register(stop, select.POLLIN)
        self._either.register(stop, select.POLLIN)
        if self._fd is not None:
            self._either.register(self._fd, select.POLLIN)

    def close(self) -> None:
        """Gives it up."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    @property
    def stopped(self) -> bool:
        """Has the signal been given? Then nothing here sleeps any more."""
        return self._signal.given

    def watch(self, seconds: float) -> bool:
        """Sleeps until the file is touched, or so long: was it touched?"""
        return any(fd == self._fd for fd, _ in self._either.poll(seconds * 1000))

    def sleep(self, seconds: float) -> None:
        """Sleeps so long whatever happens to the file, and forgets what has."""
        self._stop.poll(seconds * 1000)
        self.forget()

    def forget(self) -> None:
        """Only what is written from now on counts."""
        if self._fd is not None:
            try:
                while os.read(self._fd, 4096):
                    pass
            except BlockingIOError:
                pass


class Notices:
    """Notices of one file for any number of threads. They are kept: to give one up takes the kernel ten milliseconds."""

    def __init__(self, file: Path, stop: Stop) -> None:
        self._file = file
        self._stop = stop
        self._idle: list[Notice] = []

    @contextmanager
    def lent(self) -> Iterator[Notice]:
        """A notice of what is written while the block lasts."""
        try:
            notice = self._idle.pop()
        except IndexError:
            notice = Notice(self._file, self._stop)
        try:
            notice.forget()
            yield notice
        finally:
            self._idle.append(notice)
            if self._stop.given:
                self.close()

    def close(self) -> None:
        """Gives up what is idle now; the rest follows when it comes back, as `stop` has been given."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()


def _watch(file: Path) -> int | None:
    """A descriptor that becomes readable when the file is written to."""
    import ctypes  # here, as few programs ever wait

    try:
        library = ctypes.CDLL(None)
        fd: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd >= 0 and library.inotify_add_watch(fd, os.fsencode(file), _IN_MODIFY) < 0:
            os.close(fd)
            return None
    except (OSError, AttributeError):
        return None
    return fd if fd >= 0 else None
