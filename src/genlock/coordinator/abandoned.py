"""Coordinators that are dropped without being closed: they give back their threads and files all
the same.

Whoever drops the last reference may be the garbage collector, in any thread and in the middle of
anything: in a lane, or where a lock is held that ending an engine needs, one of ours, of the store
or of `threading`. So it is ended beside whoever that is.
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
"""Of every engine that is being ended: in which process, and a lock that is held until it is."""


def release_when_dropped(owner: object, engine: Engine) -> weakref.finalize[[Engine], object]:
    """From now on the engine ends when nobody refers to its owner any more, unless this is
    detached."""
    released = weakref.finalize(owner, _release, engine)
    released.atexit = False  # who is there until then is closed, and waited for
    return released


def wait_for_releases() -> None:
    """Lets those come to their end that are under way; what a parent was about when it forked is
    its own."""
    until = time.monotonic() + _WAITED_SECONDS
    for pid, ended in list(_releasing):
        if pid == os.getpid():
            ended.acquire(timeout=max(0.0, until - time.monotonic()))


def _release(engine: Engine) -> None:
    """Waits for nothing, and takes no lock that anybody else could have."""
    if engine.pid != os.getpid():
        return
    ended = allocate_lock()
    ended.acquire()
    _releasing.add((engine.pid, ended))
    try:
        # `Thread.start` takes a lock of all threads, which may be the one that is held here.
        start_new_thread(_release_beside, (engine, ended))
    except RuntimeError:  # the interpreter ends, and takes with it all that there is to give back
        _releasing.discard((engine.pid, ended))


def _release_beside(engine: Engine, ended: LockType) -> None:
    """In a thread that is listed like others, as long as there can be new ones."""
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
