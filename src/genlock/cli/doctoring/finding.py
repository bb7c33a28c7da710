"""What a check has found."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

MOST_ITEMS = 20


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is broken."""
    TROUBLE = "trouble"


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    level: Level
    what: str
    means: str = ""
    try_next: tuple[str, ...] = ()
    """What to type."""
    items: tuple[str, ...] = ()
    """Each case, the first few."""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, what)


def note(check: str, what: str, means: str = "", try_next: Sequence[str] = (), items: Sequence[str] = ()) -> Finding:
    """Something to know."""
    return Finding(check, Level.NOTE, what, means, tuple(try_next), _first(items))


def trouble(check: str, what: str, means: str = "", try_next: Sequence[str] = (), items: Sequence[str] = ()) -> Finding:
    """Something is wrong."""
    return Finding(check, Level.TROUBLE, what, means, tuple(try_next), _first(items))


def _first(items: Sequence[str]) -> tuple[str, ...]:
    more = (f"and {len(items) - MOST_ITEMS:,} more",) if len(items) > MOST_ITEMS else ()
    return (*items[:MOST_ITEMS], *more)


def number(count: int, one: str, many: str) -> str:
    """1 task, 2 tasks."""
    return f"{count:,} {one if count == 1 else many}"
