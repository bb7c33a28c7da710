"""Machines that have no more of something."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch, named: str = "genlock-") -> Iterator[set[str]]:
    """As if the machine had no more threads for us, or for those whose names begin so; the names of
    those that were wanted."""
    start, refused = threading.Thread.start, set[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(named):
            refused.add(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield refused


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    """As if the machine let this process open so many files more, and none beyond."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    held: list[int] = []
    while not held or held[-1] < highest:
        held.append(os.dup(0))  # the gaps between those that are open
    os.close(held.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)
