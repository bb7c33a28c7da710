"""Waiting for a feed to move.

`PRAGMA data_version` tells whether anything was committed. To ask every few milliseconds takes 1 %
of a core and more. So a waiter watches the log with inotify, and asks in the moments after a write
to it. (At the write itself it is too early: a commit can be read once it is synced.) Without
inotify the waiter asks more often.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from genlock.retry import Backoff
from genlock.stores.cursors import CursorPosition, decode_cursor
from genlock.stores.sqlite.connections import QUERIES
from genlock.stores.sqlite.reads import feed_state

_IN_MODIFY = 0x2
_NAP_SECONDS = 0.02
_BLIND_SECONDS = 0.25
"""The pause between looks where nothing can wake the waiter."""


class Stop:
    """A signal that is given once and stays. Any number of threads may wait for it."""

    def __init__(self) -> None:
        self.given = False
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        """Made for the first waiter, since most stores never have one. Closed with the object: a
        waiter may be about to poll it."""

    def give(self) -> None:
        """Wakes all waiters, now and later."""
        with self._lock:
            self.given = True
            if self._pipe is not None:
                os.write(self._pipe[1], b"!")

    def wait(self, seconds: float) -> None:
        """Sleeps so long, or until the signal is given, where there is no descriptor to poll."""
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
    """Watches one file. `works` says whether that is possible; otherwise it notices nothing."""

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
        """Has the signal been given? Then nothing here sleeps any more."""
        return self._signal.given

    def await_write(self, seconds: float) -> bool:
        """Sleeps until the file is written to, or so long. Was it written to?"""
        if not self._polls:
            self._signal.wait(min(seconds, _BLIND_SECONDS))
            return False
        return any(fd == self._fd for fd, _ in self._either.poll(seconds * 1000))

    def sleep(self, seconds: float) -> None:
        """Sleeps so long even if the file is written to, and forgets those writes."""
        if self._polls:
            self._stop.poll(seconds * 1000)
        else:
            self._signal.wait(seconds)
        self.forget()

    def forget(self) -> None:
        """From now on only new writes count."""
        if self._fd is not None:
            try:
                while os.read(self._fd, 4096):
                    pass
            except BlockingIOError:
                pass


class FileWatch:
    """Lends watches of one file to any number of threads. It keeps them: to close one takes the
    kernel 10 ms."""

    def __init__(self, file: Path, stop: Stop) -> None:
        self._file = file
        self._stop = stop
        self._idle: list[WatchedFile] = []

    @contextmanager
    def lent(self) -> Iterator[WatchedFile]:
        """A watch of the file for the block."""
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
                watch.close()  # perhaps there will be a descriptor next time
            if self._stop.given:
                self.close()

    def close(self) -> None:
        """Closes the idle watches. As `stop` was given, the others follow when they come back."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()


def _register(stop: Stop, *polls: select.poll) -> bool:
    """Can the signal be polled? Not without a free descriptor."""
    try:
        for poll in polls:
            poll.register(stop, select.POLLIN)
    except OSError:
        return False
    return True


def _watch(file: Path) -> int | None:
    """A descriptor that becomes readable when the file is written to."""
    try:
        import ctypes  # few programs ever wait

        library = ctypes.CDLL(None)
        fd: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd >= 0 and library.inotify_add_watch(fd, os.fsencode(file), _IN_MODIFY) < 0:
            os.close(fd)
            return None
    except (OSError, AttributeError, ImportError):
        return None
    return fd if fd >= 0 else None


SOON = 0.002
"""Seconds from a write to the log to the first look, and between looks while others keep
writing."""
LATER = 0.25
"""Seconds between looks when nothing is written: only in case a notice is lost."""
LOOKS = Backoff(SOON, LATER, jitter=0)
BLIND = 0.01
"""Seconds between looks where writes cannot be noticed."""

_DATA_VERSION = QUERIES["data_version"]


def wait(
    db: apsw.Connection,
    watch: WatchedFile,
    projects: Sequence[tuple[str, str]],
    after: Sequence[str],
    timeout: float,
) -> None:
    """Returns when one of the feeds is no longer where its cursor is, after `timeout` seconds, or
    when told to stop."""
    deadline = time.monotonic() + timeout
    places = [
        (tenant, project, decode_cursor(cursor))
        for (tenant, project), cursor in zip(projects, after, strict=True)
    ]
    while True:
        # The version first: a commit between the two is then seen as a change.
        version = db.execute(_DATA_VERSION).get
        if any(_has_moved(db, *place) for place in places):
            return
        if not _await_change(db, version, watch, deadline):
            return


def _await_change(db: apsw.Connection, version: int, watch: WatchedFile, deadline: float) -> bool:
    """Was anything committed since that version? If not, the time is up or the store is closed.

    The first pauses are short even without a write: an earlier write may just become readable. Then
    they double.
    """
    quiet = 1
    while not watch.stopped and (left := deadline - time.monotonic()) > 0:
        pause = LOOKS.pause(quiet) if watch.works else BLIND
        if watch.await_write(min(pause, left)):
            quiet = 1
            watch.sleep(min(SOON, left))
        else:
            quiet += 1
        if db.execute(_DATA_VERSION).get != version:
            return True
    return False


def _has_moved(db: apsw.Connection, tenant: str, project: str, place: CursorPosition) -> bool:
    """True for a lost cursor, too: reading will say so."""
    state, _ = feed_state(db, tenant, project)
    return (place.birth, place.epoch, place.feed, place.position) != (
        state.birth,
        state.epoch,
        state.feed,
        state.head,
    )
