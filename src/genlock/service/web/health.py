"""Health checks. Alive: the service answers and its lanes run. Ready: the store answers, too, and
the service is not stopping."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from genlock import __version__
from genlock.errors import GenlockError
from genlock.service.context import ServiceContext

_STORE_SECONDS: Final = 2.0


class Health:
    """The health checks for a supervisor of services."""

    def __init__(self, running: ServiceContext) -> None:
        self._running = running

    async def healthz(self, _: Request) -> Response:
        """Is the service alive, or does it need a restart?"""
        if self._running.coordinator.reader.is_broken:
            return _said(
                503,
                {
                    "status": "broken",
                    "detail": "a thread that carries out operations has ended; restart the service",
                },
            )
        return _said(200, {"status": "ok", "version": __version__})

    async def readyz(self, _: Request) -> Response:
        """Is the service ready? If not, the answer says why."""
        if self._running.stopping.is_set():
            return _said(503, {"status": "stopping"})
        if self._running.coordinator.reader.is_broken:
            return _said(503, {"status": "broken"})
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await asyncio.to_thread(self._running.coordinator.reader.now)
        except (GenlockError, TimeoutError) as error:
            return _said(
                503,
                {
                    "status": "store unavailable",
                    "detail": str(error) or f"no answer within {_STORE_SECONDS:g} seconds",
                },
            )
        return _said(200, {"status": "ready"})


def _said(status: int, what: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(what), status, media_type="application/json")
