"""How many streams there may be, how much is kept for each, and how long each is waited for."""

from __future__ import annotations

from msgspec import Struct

from genlock.errors import Busy, TooManyRequests


class StreamSettings(Struct, frozen=True, kw_only=True):
    """What an operator may set."""

    most_streams: int = 4000
    """Of the whole service."""
    most_streams_per_tenant: int = 2000
    most_projects: int = 100
    """Of one stream. Its cursor names them all, and has to fit into a header."""
    queue_events: int = 1000
    """What is kept for a client that does not read; who has more waiting is dropped and resumes by its last id."""
    queue_bytes: int = 1 << 20
    heartbeat_seconds: float = 15.0
    retry_ms: int = 3000
    """When a client whose connection is lost is to come back."""
    send_seconds: float = 30.0
    """So long the socket may take nothing at all before its client is given up."""
    farewell_seconds: float = 0.8
    """So long the last words of a stream may take."""
    look_seconds: float = 1.0
    """How often it is asked whether a stream is still allowed, and whether its tenant has new projects."""


class TooManyStreams(TooManyRequests):
    """The tenant has as many streams as it may have."""

    def __init__(self, whose: str, most: int, limit: str) -> None:
        super().__init__(f"{whose} has {most:,} streams open, which is all it may have ({limit}); close one, or come back later")


class ServiceFull(Busy, TooManyStreams):
    """The service has as many streams as it may have, whosoever they are."""
