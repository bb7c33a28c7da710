"""Waits for descriptors with poll, which has no limit on their numbers: `select` raises ValueError
from 1024 on, and an agent's program may have that many files open."""

from __future__ import annotations

import select
from collections.abc import Sequence


def readable(descriptors: Sequence[int], seconds: float | None = None) -> list[int]:
    """Waits until one of the descriptors can be read or has been closed at its other end, at most
    this long. Returns those that can."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    ready = poll.poll(None if seconds is None else seconds * 1000)
    return [each for each, _ in ready]
