"""The plain status page at `/status`: what is going on, for browsers without scripts, and for a
service whose dashboard is not built."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from genlock import __version__
from genlock.core.key_roles import EVERYWHERE
from genlock.reads.status import StatusReader
from genlock.service.auth.authenticate import came_by_ticket
from genlock.service.auth.permissions import Grant
from genlock.service.context import ServiceContext
from genlock.service.request import HttpExchange
from genlock.service.web.html import Html, Page, PageFrame, join, tag
from genlock.service.web.sign_in import SIGN_OUT
from genlock.service.web.status_html import fragment

_CACHE_SECONDS: Final = 1.0
_CACHE_TIMES: Final = 10.0
"""What took long to read is kept so many times as long: however large the store, the page takes a
tenth of a thread at most."""
_CALLERS_KEPT: Final = 64
STATUS: Final = "/status"
_UNBUILT: Final = tag(
    "p",
    "This is the plain page: the dashboard is not built here. In the folder of Genlock's sources, "
    "type ",
    tag("code", "make web"),
    " and start the service again.",
    _class="notice",
)


class StatusPage:
    """The page, and its moving part alone."""

    def __init__(self, running: ServiceContext, now: Callable[[], float] = time.monotonic) -> None:
        self._running, self._now = running, now
        self._began = now()
        self._shell = PageFrame("status.html", "status.js")
        self._status = StatusReader()
        self._looking = asyncio.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[float, Html]] = OrderedDict()
        """By what callers see, until when."""

    def routes(self) -> list[BaseRoute]:
        """Where it is found."""
        return [Page(STATUS, self.page, methods=["GET"], include_in_schema=False)]

    async def page(self, request: Request, *, dashboard: bool = True) -> Response:
        """The whole page, or with `?fragment=1` only what changes. Without a dashboard it says how
        to build that."""
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "status_page"
        live = await self._live(exchange.grant)
        grant = exchange.grant
        who = _signed_in(grant) if grant.key_id and came_by_ticket(exchange.headers) else None
        metrics = (
            tag("a", "metrics", href="/metrics") if grant.sees(EVERYWHERE, EVERYWHERE) else None
        )
        whole = (
            live
            if "fragment" in request.query_params
            else self._shell.around(
                live=live, who=who, metrics=metrics, notice=None if dashboard else _UNBUILT
            )
        )
        return Response(whole, headers=self._shell.headers, media_type="text/html")

    async def _live(self, grant: Grant) -> Html:
        sees = (grant.tenant, grant.projects)
        async with self._looking:
            kept = self._kept.get(sees)
            if kept is not None and self._now() < kept[0]:
                return kept[1]
            began = self._now()
            live = await asyncio.get_running_loop().run_in_executor(None, self._paint, grant)
            took = self._now() - began
            self._kept[sees] = (began + took + max(_CACHE_SECONDS, took * _CACHE_TIMES), live)
            self._kept.move_to_end(sees)
            if len(self._kept) > _CALLERS_KEPT:
                self._kept.popitem(last=False)
            return live

    def _paint(self, grant: Grant) -> Html:
        reader = self._running.coordinator.reader
        tenant = None if grant.tenant == EVERYWHERE else grant.tenant
        found = reader.retry(lambda: self._status.read(reader, tenant, grant.sees))
        uptime = self._now() - self._began
        return fragment(found, version=__version__, store=reader.store_kind, uptime_seconds=uptime)


def _signed_in(grant: Grant) -> Html:
    return join(
        tag("span", grant.name, title=f"key {grant.key_id}"),
        tag("form", tag("button", "sign out"), method="post", action=SIGN_OUT),
    )
