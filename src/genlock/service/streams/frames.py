"""Server-sent events as bytes, by the WHATWG's grammar: fields on lines of their own, an empty line behind each event."""

from __future__ import annotations

from typing import Any

from genlock.core.codec import encode_json

BEAT = b": beat\n\n"
"""A comment: keeps the connection open through proxies, and shows both sides that it is."""


def retry_line(milliseconds: int) -> bytes:
    """When to come back if the connection is lost."""
    return b"retry: %d\n" % milliseconds


def id_line(cursor: str) -> bytes:
    """Where to go on behind this event."""
    return b"id: %s\n" % cursor.encode()


def event_lines(event: str, data: bytes) -> bytes:
    """The rest of an event. Without a name it is a `message`. JSON has no bare line ends, so the data is one line."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data) if event else b"data: %s\n\n" % data


def mark(cursor: str) -> bytes:
    """An id without data: nothing is shown to the client's program, but it resumes from here."""
    return id_line(cursor) + b"\n"


def notice(name: str, **data: Any) -> bytes:
    """What the stream says of itself, as `genlock:<name>`. It has no id: nothing is to be skipped for it."""
    return event_lines(f"genlock:{name}", encode_json(data))
