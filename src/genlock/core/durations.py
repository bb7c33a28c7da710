"""Lengths of time as people write them: `90s`, `5m`, `1h30m`, or a bare number."""

from __future__ import annotations

import re
from typing import Final

from genlock.errors import BadArgument

FORMS: Final = "90s, 5m, 1h30m or 2d"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_BARE = re.compile(_NUMBER)
_PART = re.compile(rf"({_NUMBER})([smhd])")
_WHOLE = re.compile(rf"(?:{_NUMBER}[smhd])+")


def read_duration(text: str, what: str = "", *, unit_seconds: int = 1) -> float:
    """A length of time in seconds; a bare number counts in units of so many seconds."""
    plain = text.strip().lower()
    if _BARE.fullmatch(plain):
        return float(plain) * unit_seconds
    if _WHOLE.fullmatch(plain):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(plain))
    bare = {1: "seconds", 3600: "hours"}[unit_seconds]
    told = f"{what} {text[:60]!r} is no length of time: write {bare}, or {FORMS}"
    raise BadArgument(told.lstrip())


def is_duration(text: str) -> bool:
    """Is this a length of time with its units?"""
    return _WHOLE.fullmatch(text.strip().lower()) is not None
