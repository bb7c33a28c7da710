"""The plain status page at `/`: what is going on, for whoever opens the address in a browser."""

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
from genlock.core.access import EVERYWHERE
from genlock.service.access.door import came_by_ticket
from genlock.service.access.grant import Grant
from genlock.service.exchange import Exchange
from genlock.service.pages.drawing import fragment
from genlock.service.pages.markup import Html, join, tag
from genlock.service.pages.picture import Painter
from genlock.service.pages.route import Page
from genlock.service.pages.shell import Shell
from genlock.service.pages.sign_in import SIGN_OUT
from genlock.service.running import Running
from genlock.store import Store

_CACHE_SECONDS: Final = 1.0
_CACHE_TIMES: Final = 10.0
"""What took long to read is kept so many times as long: however large the store, the page takes a tenth of a thread at most."""
_CALLERS_KEPT: Final = 64


class StatusPage:
    """The page, and its moving part alone."""

    def __init__(self, running: Running, now: Callable[[], float] = time.monotonic) -> None:
        self._running, self._now = running, now
        self._began = now()
        self._shell = Shell("status.html", "status.js")
        self._painter = Painter()
        self._looking = asyncio.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[float, Html]] = OrderedDict()
        """By what callers see, until when."""

    def routes(self) -> list[BaseRoute]:
        """Where it is found."""
        return [Page("/", self.page, methods=["GET"], include_in_schema=False)]

    async def page(self, request: Request) -> Response:
        """The whole page, or with `?fragment=1` only what changes."""
        exchange: Exchange = request.scope["genlock"]
        exchange.route = "status_page"
        live = await self._live(exchange.grant)
        grant = exchange.grant
        who = _signed_in(grant) if grant.key_id and came_by_ticket(exchange.headers) else None
        metrics = tag("a", "metrics", href="/metrics") if grant.sees(EVERYWHERE, EVERYWHERE) else None
        whole = live if "fragment" in request.query_params else self._shell.around(live=live, who=who, metrics=metrics)
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
        engine = self._running.coordinator.engine
        picture = engine.read(lambda: self._painter.paint(engine, grant))
        uptime = self._now() - self._began
        return fragment(picture, version=__version__, store=kind_of(engine.store), uptime_seconds=uptime)


def _signed_in(grant: Grant) -> Html:
    return join(
        tag("span", grant.name, title=f"key {grant.key_id}"), tag("form", tag("button", "sign out"), method="post", action=SIGN_OUT)
    )


def kind_of(store: Store) -> str:
    """The store's kind in one word; never its URL, which may hold a password."""
    module = type(store).__module__.split(".")
    return module[2] if module[:2] == ["genlock", "stores"] else type(store).__name__
