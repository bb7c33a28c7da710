"""Finds and ends all processes below this one.

A process group is not enough. Agents start their tools in sessions of their own, and a daemon forks
twice to lose its parent. On Linux a *subreaper* becomes the parent of such orphans, so that every
process ever started below it can be found by walking /proc.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PAUSE_SECONDS: Final = 0.003
_LONGEST_SECONDS: Final = 10.0


def become_subreaper() -> bool:
    """Makes orphans below this process its children from now on. Returns False if the system cannot
    do that."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> bool:
    """Makes the system kill this process when the thread that forked it ends. For a process that
    has just been forked."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def descendants(pid: int, spare: Collection[int] = ()) -> list[int]:
    """Returns the processes below this one, including zombies, but without those in `spare` and the
    processes below them."""
    below: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdecimal():
            parent = _parent(name)
            if parent is not None:
                below.setdefault(parent, []).append(int(name))
    found, todo = [], [pid]
    while todo:
        children = [each for each in below.get(todo.pop(), []) if each not in spare]
        found += children
        todo += children
    return found


def _parent(name: str) -> int | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # The command's name is in brackets and may itself contain brackets and blanks.
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def reap() -> dict[int, int]:
    """Reaps every child that has ended. Returns their statuses."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def kill_all(leader: int | None = None, spare: Collection[int] = ()) -> dict[int, int]:
    """Kills and reaps every process below this one until none is left, except for those in `spare`
    and the processes below them. If processes cannot be listed, kills the leader's group."""
    ended: dict[int, int] = {}
    until = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < until:
        alive = descendants(os.getpid(), spare)
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if leader is not None and leader not in ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        ended |= reap()
        if not alive and (leader is None or leader in ended or sys.platform == "linux"):
            break
        time.sleep(_PAUSE_SECONDS)
    return ended
