"""Work that must not be broken off in the middle, in a thread that is somebody else's.

Python runs the handlers of signals in the main thread, between any two steps of whatever is done there, and a handler may raise: that
of Ctrl-C does. So Ctrl-C is held back until the work is done, and takes effect then. Where other signals have handlers, nobody knows what
they do, and the work is left to a thread in which they do not run. So it is if there may be no room for it on the caller's stack.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from threading import get_ident, main_thread
from types import FrameType
from typing import Any, Final

_signals: Final[Any] = import_module("_signal")
"""What `signal` asks, without its search for names for the answers, which takes ten times as long."""
_handler_of: Final[Callable[[int], Any]] = _signals.getsignal

_INT: Final = int(signal.SIGINT)
OTHERS = tuple(map(int, signal.valid_signals() - {signal.SIGINT, signal.SIGKILL, signal.SIGSTOP}))
_FRAMES: Final = 200
"""How deep the work may call; a fourth of it is used."""


def uninterrupted(work: Callable[[], bool]) -> bool:
    """Does the work and says what it says; False, and nothing is done, where it might be broken off."""
    if _is_deep():
        return False
    if get_ident() != main_thread().ident:
        return work()
    if any(map(callable, map(_handler_of, OTHERS))):
        return False
    handler = _handler_of(_INT)
    if not callable(handler):
        return work()
    held_back: list[FrameType | None] = []
    _signals.signal(_INT, lambda number, frame: held_back.append(frame))
    try:
        return work()
    finally:
        _signals.signal(_INT, handler)
        if held_back:
            handler(_INT, held_back[-1])


def _is_deep() -> bool:
    try:
        sys._getframe(sys.getrecursionlimit() - _FRAMES)
    except ValueError:
        return False
    return True
