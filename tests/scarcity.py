"""Machines that have no more of something."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch, named: str = "genlock-") -> Iterator[set[str]]:
    """As if the machine had no more threads for us, or for those whose names begin so; the names of those that were wanted."""
    start, refused = threading.Thread.start, set[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(named):
            refused.add(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield refused
