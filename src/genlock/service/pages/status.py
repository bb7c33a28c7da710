"""The plain status page at `/`: what is going on, for whoever opens the address in a browser."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from genlock import __version__
from genlock.service.access.grant import Grant
from genlock.service.exchange import Exchange
from genlock.service.pages.drawing import fragment
from genlock.service.pages.markup import Html
from genlock.service.pages.picture import Painter
from genlock.service.pages.route import Page
from genlock.service.running import Running
from genlock.store import Store

_CACHE_SECONDS: Final = 1.0
_CACHE_TIMES: Final = 10.0
"""What took long to read is kept so many times as long: however large the store, the page takes a tenth of a thread at most."""
_CALLERS_KEPT: Final = 64


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


class _Shell:
    """The part of the page that does not change, and the policy that admits its own style and script and nothing else."""

    def __init__(self) -> None:
        css, js = _file("status.css"), _file("status.js")
        self._before, self._after = Template(_file("status.html")).substitute(css=css, js=js, live="\0").split("\0")
        policy = f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(js)}; connect-src 'self'"
        self.headers = {
            "content-security-policy": f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
        }

    def around(self, live: Html) -> str:
        return self._before + live + self._after


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


class StatusPage:
    """The page, and its moving part alone."""

    def __init__(self, running: Running, now: Callable[[], float] = time.monotonic) -> None:
        self._running, self._now = running, now
        self._began = now()
        self._shell = _Shell()
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
        whole = live if "fragment" in request.query_params else self._shell.around(live)
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


def kind_of(store: Store) -> str:
    """The store's kind in one word; never its URL, which may hold a password."""
    module = type(store).__module__.split(".")
    return module[2] if module[:2] == ["genlock", "stores"] else type(store).__name__
