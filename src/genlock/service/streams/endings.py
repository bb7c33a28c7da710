"""How a stream ends, and what its client is told."""

from __future__ import annotations

from msgspec import Struct

from genlock.errors import CursorLost, GenlockError


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
    "more events were waiting than are kept for one client; connect again with the id of the last event that you have "
    "(Last-Event-ID or ?after=), and none is missed",
    "TOO_SLOW",
    at_once=True,
)
NOT_ALLOWED = Ending("closing", "the key of this stream is no longer valid, or no longer allows it", "NOT_ALLOWED", at_once=True)


def closing(reason: str, retry_ms: int) -> Ending:
    """The service goes away for a while."""
    return Ending("closing", reason, "CLOSING", retry_ms)


def failed(error: GenlockError) -> Ending:
    """The feed cannot be followed."""
    if isinstance(error, CursorLost):
        return Ending(
            "cursor-lost", f"{error}; events may be missing: read again with after=start, or from now on without a cursor", error.code
        )
    return Ending("closing", str(error), error.code)
