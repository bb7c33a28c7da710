"""Coordinators that are dropped without being closed: they release their threads and files all the
same.

The garbage collector may drop the last reference, in any thread and at any point: in a lane, or
while the thread holds a lock that ending an engine needs (one of ours, of the store or of
`threading`). So the engine is ended in another thread.
"""

from __future__ import annotations

import os
import time
import weakref
from _thread import LockType, allocate_lock, start_new_thread
from threading import Thread

from genlock.engine.engine import Engine

_WAITED_SECONDS = 30.0

_releasing: set[tuple[int, LockType]] = set()
"""For every engine that is being ended: its process id, and a lock that is held until the end."""


def release_when_dropped(owner: object, engine: Engine) -> weakref.finalize[[Engine], object]:
    """Arranges that the engine ends when its owner is garbage collected, unless the finalizer is
    detached."""
    released = weakref.finalize(owner, _release, engine)
    released.atexit = False  # coordinators alive at exit are closed, and waited for
    return released


def wait_for_releases() -> None:
    """Waits for the engines that are being ended in this process; those of a parent before a fork
    are left to the parent."""
    until = time.monotonic() + _WAITED_SECONDS
    for pid, ended in list(_releasing):
        if pid == os.getpid():
            ended.acquire(timeout=max(0.0, until - time.monotonic()))


def _release(engine: Engine) -> None:
    """Starts the end of the engine. Never blocks, and takes no lock that another thread could
    hold."""
    if engine.pid != os.getpid():
        return
    ended = allocate_lock()
    ended.acquire()
    _releasing.add((engine.pid, ended))
    try:
        # `Thread.start` takes a global lock, which this thread may already hold.
        start_new_thread(_release_beside, (engine, ended))
    except RuntimeError:  # the interpreter is shutting down, and releases everything itself
        _releasing.discard((engine.pid, ended))


def _release_beside(engine: Engine, ended: LockType) -> None:
    """Ends the engine in a thread that `threading` lists, if one can still be started."""
    try:
        Thread(target=_end, args=(engine, ended), name="genlock-release", daemon=True).start()
    except RuntimeError:
        _end(engine, ended)


def _end(engine: Engine, ended: LockType) -> None:
    try:
        engine.release()
    finally:
        _releasing.discard((engine.pid, ended))
        ended.release()
