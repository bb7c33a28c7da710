"""SC's stream of events: the project's that /api acts on, by SC's four types."""

from __future__ import annotations

from starlette.routing import Route

from genlock.errors import GenlockError
from genlock.service.access.door import Door
from genlock.service.compat.endpoint import refusal
from genlock.service.compat.routes import EVENTS, PREFIX
from genlock.service.exchange import Exchange, Receive, Scope, Send, send_answer
from genlock.service.streams import Hub
from genlock.service.streams.mount import Stream
from genlock.service.streams.shapes import SC


class Events:
    """The stream as everywhere, and what is refused before it begins in SC's shape."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["genlock"]
        try:
            await self._stream(scope, receive, send)
        except GenlockError as error:
            if exchange.status:
                raise
            exchange.error = error
            await send_answer(send, refusal(error), exchange)


def events_route(hub: Hub, door: Door, tenant_id: str, project_id: str) -> Route:
    """Where it is found."""
    stream = Stream(hub, door, SC, (tenant_id, project_id))
    return Route(f"{PREFIX}/{EVENTS}", Events(stream), include_in_schema=False)
