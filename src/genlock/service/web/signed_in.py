"""`/sign-in/who`: who a browser is signed in as, and whether it may act. `/sign-in/stay` renews a
sign-in to act; a page asks for it while a person is there."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from genlock.core.key_roles import Role
from genlock.errors import KeyRefused
from genlock.service.auth.acting_sign_ins import Acting, ActingSignIns, acting_tickets_of
from genlock.service.auth.authenticate import ACTING_OVER, came_by_ticket
from genlock.service.request import HttpExchange
from genlock.service.web.html import Page
from genlock.service.web.sign_in import acting_cookie

WHO: Final = "/sign-in/who"
STAY: Final = "/sign-in/stay"
_NO_STORE: Final = {"cache-control": "no-store"}


class Who(Struct, frozen=True):
    """The answer of `/sign-in/who`."""

    name: str
    role: str
    tenant: str
    projects: str
    acts: bool
    """Does a request of this page that acts get through, if it sends the proof?"""
    acts_for_seconds: int | None = None
    """None: as long as it likes, since nothing is asked of anyone here."""


class SignedIn:
    """Answers who is signed in. `tickets` is None where a service asks for no keys."""

    def __init__(self, tickets: ActingSignIns | None) -> None:
        self._tickets = tickets

    def routes(self) -> list[BaseRoute]:
        """Where it is found."""
        who = Page(WHO, self._who, include_in_schema=False)
        if self._tickets is None:
            return [who]
        return [who, Page(STAY, self._stay, methods=["POST"], include_in_schema=False)]

    async def _who(self, request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "sign_in_who"
        grant = exchange.grant
        acting = await self._acting(exchange.headers)
        by_ticket = self._tickets is not None and came_by_ticket(exchange.headers)
        who = Who(
            grant.name,
            (Role.OPERATOR if acting is not None else grant.role).value,
            grant.tenant,
            grant.projects,
            acting is not None if by_ticket else grant.role.covers(Role.OPERATOR),
            None if acting is None else acting.seconds,
        )
        body = msgspec.json.encode(who)
        return Response(body, headers=_NO_STORE, media_type="application/json")

    async def _stay(self, request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "sign_in_stay"
        acting = await self._acting(exchange.headers)
        if acting is None:
            raise KeyRefused(ACTING_OVER)
        return Response(
            None, 204, _NO_STORE | {"set-cookie": acting_cookie(acting.renewed, request)}
        )

    async def _acting(self, headers: dict[bytes, bytes]) -> Acting | None:
        if self._tickets is not None:
            for ticket in acting_tickets_of(headers):
                acting = await self._tickets.find(ticket)
                if acting is not None:
                    return acting
        return None
