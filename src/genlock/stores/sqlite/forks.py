"""Forks: a child has copies of its parent's connections, and must neither use nor close them.

Closing one would checkpoint and remove the log under the parent's feet as soon as the parent's locks are gone. Python closes what it
frees, also when it ends, so a child gives every inherited connection one reference that nobody will ever take back.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Protocol

import apsw


class Inheritable(Protocol):
    """What has connections."""

    def abandon(self) -> Iterable[apsw.Connection]:
        """In the child: lets go of what can be let go of, and names the connections."""


_open: weakref.WeakSet[Inheritable] = weakref.WeakSet()


def remember(store: Inheritable) -> None:
    """From now on children leave this store's connections alone."""
    _open.add(store)


def _prepare() -> None:
    """In the parent, where importing is safe. Most programs never fork, and start faster without."""
    if _open:
        import ctypes  # noqa: F401


def _leave_alone() -> None:
    if not _open:
        return
    import ctypes

    for store in list(_open):
        for db in store.abandon():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    _open.clear()


os.register_at_fork(before=_prepare, after_in_child=_leave_alone)
