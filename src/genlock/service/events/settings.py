"""The limits of streams, and the reasons for which a stream is closed."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from genlock.errors import Busy, CursorLost, GenlockError, TooManyRequests

STREAMS: Final = 128
"""Streams of one key, unless set otherwise. One that is not read takes 150 KB at most, unless its
filters are like no other's."""


class StreamSettings(Struct, frozen=True, kw_only=True):
    """What an operator may set."""

    most_streams: int = 4000
    """Of the whole service."""
    most_streams_per_tenant: int = 2000
    most_streams_per_caller: int = STREAMS
    """Of one key, or of one address where there are no keys."""
    most_projects: int = 100
    """Of one stream. Its cursor names them all, and has to fit into a header."""
    queue_events: int = 1000
    """What is kept for a client that does not read; who has more waiting is dropped and resumes by
    its last id."""
    queue_bytes: int = 1 << 20
    page_bytes: int = 32 * 1024
    """What is read at once for a client that catches up, and kept until its socket has taken it.
    One event always fits."""
    send_buffer_bytes: int = 64 * 1024
    """Of the system's memory, for what a socket has taken and its client has not. The system
    doubles it."""
    heartbeat_seconds: float = 15.0
    retry_ms: int = 3000
    """When a client whose connection is lost is to come back."""
    send_seconds: float = 30.0
    """So long the socket may take nothing at all before its client is given up."""
    farewell_seconds: float = 0.8
    """So long the last words of a stream may take."""
    look_seconds: float = 1.0
    """How often it is asked whether a stream is still allowed, and whether its tenant has new
    projects."""


class TooManyStreams(TooManyRequests):
    """The caller or its tenant has as many streams as it may have."""

    def __init__(self, whose: str, most: int, limit: str) -> None:
        super().__init__(
            f"{whose} has {most:,} event streams open, the most it may have ({limit}); close one, "
            "or come back later"
        )


class ServiceFull(Busy, TooManyStreams):
    """The service has as many streams as it may have, whosoever they are."""


# Close reasons: how a stream ends, and what its client is told.


class Ending(Struct, frozen=True):
    """`name` is that of the last event, `genlock:<name>`; "" if nobody is there to read it."""

    name: str
    reason: str
    code: str = ""
    retry_ms: int | None = None
    at_once: bool = False
    """Is what waits for the client thrown away? It gets it again when it resumes."""


LEFT = Ending("", "the client has left", at_once=True)
TOO_SLOW = Ending(
    "too-slow",
    "more events were waiting than are kept for one client; connect again with the id of the last "
    "event that you have (Last-Event-ID or ?after=), and none is missed",
    "TOO_SLOW",
    at_once=True,
)
NOT_ALLOWED = Ending(
    "closing",
    "the key of this stream is no longer valid, or no longer allows it",
    "NOT_ALLOWED",
    at_once=True,
)


def closing(reason: str, retry_ms: int) -> Ending:
    """The service goes away for a while."""
    return Ending("closing", reason, "CLOSING", retry_ms)


def failed(error: GenlockError) -> Ending:
    """The feed cannot be followed."""
    if isinstance(error, CursorLost):
        return Ending(
            "cursor-lost",
            f"{error}; events may be missing: read again with after=start, or from now on without "
            "a cursor",
            error.code,
        )
    return Ending("closing", str(error), error.code)
