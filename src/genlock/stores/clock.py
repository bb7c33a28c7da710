"""The host's clock: the only place among the stores that asks for the time of day."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """`genlock.store.Clock` of this host."""

    def now(self) -> datetime:
        """The present instant, aware, UTC."""
        return datetime.now(UTC)
