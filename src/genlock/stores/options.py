"""Options in a URL: each is read by a function whose docstring says what it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from genlock.errors import BadArgument

_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}

T = TypeVar("T")


def read_option(given: dict[str, str], name: str, read: Callable[[str], T], default: T, what: str) -> T:
    """The option of this name; `BadArgument` if it cannot be meant. `what` names the URL."""
    if name not in given:
        return default
    try:
        return read(given[name])
    except (ValueError, KeyError):
        raise BadArgument(f"{given[name]!r} is no {name} in a {what} URL: it is {read.__doc__}") from None


def switch(text: str) -> bool:
    """on or off"""
    return _SWITCH[text.lower()]


def positive(text: str) -> int:
    """a number from 1 to 1000"""
    if not 1 <= int(text) <= 1000:
        raise ValueError
    return int(text)


def seconds(text: str) -> float:
    """a number of seconds, more than 0"""
    if not 0 < float(text) <= 3600:
        raise ValueError
    return float(text)
