"""Server-sent events, read line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Message(NamedTuple):
    """One event of a stream; a mere sign of life has no data and is called ""."""

    event: str = ""
    data: str = ""
    id: str = ""
    retry_milliseconds: int | None = None


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The events in these lines. A comment is a sign of life, and is passed on as one: whoever waits looks at the clock."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(":"):
            yield Message()
        elif line:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        elif fields:
            yield _message(fields)
            fields = {}


def _message(fields: dict[str, list[str]]) -> Message:
    retry = fields.get("retry", [""])[-1]
    return Message(
        fields.get("event", ["message" if "data" in fields else ""])[-1],
        "\n".join(fields.get("data", [])),
        fields.get("id", [""])[-1],
        int(retry) if retry.isascii() and retry.isdigit() else None,
    )
