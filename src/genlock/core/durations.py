"""Durations as people write them: `90s`, `5m`, `1h30m`, or a bare number."""

from __future__ import annotations

import math
import re
from typing import Any, Final, TypeAlias

from genlock.errors import BadArgument

Seconds: TypeAlias = float | str
"""A duration as callers give it: a number of seconds, or a text."""

FORMS: Final = "90s, 5m, 1h30m or 2d"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_BARE = re.compile(_NUMBER)
_PART = re.compile(rf"({_NUMBER})([smhd])")
_WHOLE = re.compile(rf"(?:{_NUMBER}[smhd])+")


def read_duration(text: str, what: str = "", *, unit_seconds: int = 1) -> float:
    """Reads a duration in seconds. A bare number counts in units of `unit_seconds`."""
    plain = text.strip().lower()
    if _BARE.fullmatch(plain):
        return float(plain) * unit_seconds
    if _WHOLE.fullmatch(plain):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(plain))
    bare = {1: "seconds", 3600: "hours"}[unit_seconds]
    told = f"{what} {text[:60]!r} is no length of time: write {bare}, or {FORMS}"
    raise BadArgument(told.lstrip())


def is_duration(text: str) -> bool:
    """Is this a duration with units?"""
    return _WHOLE.fullmatch(text.strip().lower()) is not None


def read_seconds(name: str, value: Any, least: float, most: float) -> float:
    """Reads a duration in seconds, from a number or a text, and checks its bounds."""
    seconds = read_duration(value, name) if isinstance(value, str) else value
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not math.isfinite(seconds)
        or not least <= seconds <= most
    ):
        raise BadArgument(
            f"{name} is a number from {least:g} to {most:g}, or a length of time as {FORMS}, not "
            f"{value!r:.60}"
        )
    # Always a float: a stored value must encode to the same bytes after it is read.
    return float(seconds)


def lease_bounds(asked: float | str, least: float, most: float | None) -> str:
    """Describes how long a lease may last, for the error about another length."""
    lower = f"at least {least:g} s" if least else "over 0 s"
    upper = "" if most is None else f" and at most {most:.0f} s"
    shown = f"{asked:g} s" if isinstance(asked, (int, float)) else repr(asked)
    return f"a lease lasts {lower}{upper}, not {shown:.60}"
