"""Options in a store's URL: Genlock's own are read here, and the driver reads the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from genlock.errors import BadArgument

_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}

T = TypeVar("T")


class Options:
    """The options of one URL."""

    def __init__(self, url: str, kind: str, names: Sequence[str]) -> None:
        """`names` are those of Genlock's own; `kind` is for messages. `BadArgument` if one of them
        is given twice."""
        self._kind = kind
        self._own: dict[str, str] = {}
        others: list[tuple[str, str]] = []
        if "#" in url:
            raise BadArgument(
                f"there is a # in a {kind} URL: in a password or a name it is written %23"
            )
        # Built by hand: the standard library would not reproduce the original address.
        address, _, query = url.partition("?")
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in names:
                others.append((name, value))
            elif name in self._own:
                raise BadArgument(f"{name} is given twice in a {kind} URL")
            else:
                self._own[name] = value
        self.rest = f"{address}?{urlencode(others, quote_via=quote)}" if others else address
        """The URL without Genlock's own options."""

    def get(self, name: str) -> str | None:
        """Returns an option's text; None if it is missing."""
        return self._own.get(name)

    def read(self, name: str, read: Callable[[str], T], default: T) -> T:
        """Returns an option parsed by `read`. The docstring of `read` is the part of the error
        message that describes a valid value."""
        if name not in self._own:
            return default
        try:
            return read(self._own[name])
        except (ValueError, KeyError):
            raise BadArgument(
                f"{self._own[name]!r} is no {name} in a {self._kind} URL: it is {read.__doc__}"
            ) from None


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
