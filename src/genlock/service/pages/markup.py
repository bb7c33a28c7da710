"""HTML that cannot be forgotten to be escaped: whatever is not marked as HTML is text."""

from __future__ import annotations

from html import escape
from typing import TypeAlias


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Part: TypeAlias = "str | int | Html | None"


def text(part: Part) -> Html:
    """A part as HTML: as it is if it is HTML, escaped if not, nothing if it is None."""
    if isinstance(part, Html):
        return part
    return Html("" if part is None else escape(str(part)))


def join(*parts: Part) -> Html:
    """Parts one after the other."""
    return Html("".join(map(text, parts)))


def tag(name: str, *parts: Part, **attributes: str | int | float | None) -> Html:
    """An element. `_class` and the like are attributes whose names are words of Python; None leaves one out."""
    given = "".join(f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items() if value is not None)
    return Html(f"<{name}{given}>{join(*parts)}</{name}>")
