"""The limits of streams, and the reasons for which a stream is closed."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from genlock.errors import Busy, CursorLost, GenlockError, TooManyRequests

STREAMS: Final = 128
"""The default limit of streams per key. An unread stream takes at most 150 KB, unless no other
stream has its filters."""


class StreamSettings(Struct, frozen=True, kw_only=True):
    """The limits that an operator may set."""

    most_streams: int = 4000
    """Limit of streams of the whole service."""
    most_streams_per_tenant: int = 2000
    most_streams_per_caller: int = STREAMS
    """Limit of streams per key, or per address where there are no keys."""
    most_projects: int = 100
    """Limit of projects per stream. Its cursor names them all and must fit into a header."""
    queue_events: int = 1000
    """Events kept for a client that does not read. A client with more is disconnected, and resumes
    by its last id."""
    queue_bytes: int = 1 << 20
    page_bytes: int = 32 * 1024
    """Bytes read at once for a client that catches up, and kept until its socket has taken them.
    One event always fits."""
    send_buffer_bytes: int = 64 * 1024
    """The send buffer of a socket, which the system doubles."""
    heartbeat_seconds: float = 15.0
    retry_ms: int = 3000
    """The delay before a client reconnects after a lost connection."""
    send_seconds: float = 30.0
    """A stream is cut off if its socket takes nothing for this long."""
    farewell_seconds: float = 0.8
    """The time limit for the last event of a stream."""
    look_seconds: float = 1.0
    """The interval of permission checks and of the search for new projects of a tenant."""


class TooManyStreams(TooManyRequests):
    """The caller or its tenant has reached its limit of streams."""

    def __init__(self, whose: str, most: int, limit: str) -> None:
        super().__init__(
            f"{whose} has {most:,} event streams open, the most it may have ({limit}); close one, "
            "or come back later"
        )


class ServiceFull(Busy, TooManyStreams):
    """The service has reached its limit of streams."""


# Close reasons: how a stream ends, and what its last event says.


class Ending(Struct, frozen=True):
    """How a stream ends. Its last event is `genlock:<name>`; none is sent if `name` is empty."""

    name: str
    reason: str
    code: str = ""
    retry_ms: int | None = None
    at_once: bool = False
    """Drop queued events? The client gets them again when it resumes."""


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
    """The service shuts down or restarts."""
    return Ending("closing", reason, "CLOSING", retry_ms)


def failed(error: GenlockError) -> Ending:
    """The feed can no longer be followed."""
    if isinstance(error, CursorLost):
        return Ending(
            "cursor-lost",
            f"{error}; events may be missing: read again with after=start, or from now on without "
            "a cursor",
            error.code,
        )
    return Ending("closing", str(error), error.code)
