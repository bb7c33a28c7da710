"""The dashboard: the files that `make web` builds, and the projects to choose from.

The page holds no data and no rule. It asks the service for everything, as any client does, so its
files are the same for everybody. They are not in the repository. Without them the status page
stands in for the dashboard, and says how to build it.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from genlock import __version__
from genlock.core.key_roles import EVERYWHERE
from genlock.reads.status import projects_seen
from genlock.service.auth.permissions import Grant
from genlock.service.context import ServiceContext
from genlock.service.request import HttpExchange
from genlock.service.web.html import HTML, Page
from genlock.service.web.status import StatusPage

BUILT: Final = "built"
FAVICONS: Final = ("/favicon.ico", "/favicon.svg")
PROJECTS: Final = "/projects"

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; font-src 'self'; worker-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_PAGE_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_ASSET_HEADERS: Final = {
    # Their names have a hash of their content in them.
    "cache-control": "private, max-age=31536000, immutable",
    "x-content-type-options": "nosniff",
    "vary": "accept-encoding",
}
_KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FAVICON: Final = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" '
    b'rx="7" fill="#1d5fd1"/><path d="M22 11.5A7.5 7.5 0 1 0 23.5 16H17" fill="none" '
    b'stroke="#fff" stroke-width="3.4" stroke-linecap="round" stroke-linejoin="round"/></svg>'
)
_NO_STORE: Final = {"cache-control": "no-store"}
_MOST_PROJECTS: Final = 500


class SeenProject(Struct, frozen=True):
    """A project that the caller may see."""

    tenant_id: str
    project_id: str


class Projects(Struct, frozen=True):
    """The projects that the caller may see, and the service."""

    version: str
    store: str
    whole_store: bool
    """May the caller see the whole store, and so its metrics?"""
    projects: list[SeenProject]
    more: bool


class Dashboard:
    """Serves the page and its files, or the status page in their place."""

    def __init__(
        self, running: ServiceContext, status: StatusPage, built: Traversable | None = None
    ) -> None:
        folder = files(__package__).joinpath(BUILT) if built is None else built
        self._running, self._status = running, status
        index = folder.joinpath("index.html")
        self._index = index.read_text("utf-8") if index.is_file() else None
        self._assets = {} if self._index is None else _read(folder.joinpath("assets").iterdir())

    def routes(self) -> list[BaseRoute]:
        """The routes of the dashboard. Each of its pages belongs to a project."""
        named = {
            "/": self._page,
            "/p/{path:path}": self._page,
            "/assets/{name}": self._asset,
            PROJECTS: self._projects,
            **dict.fromkeys(FAVICONS, self._favicon),
        }
        return [
            *(
                Page(path, answer, methods=["GET"], include_in_schema=False)
                for path, answer in named.items()
            ),
            *self._status.routes(),
        ]

    async def _page(self, request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "dashboard"
        if self._index is None:
            return await self._status.page(request, dashboard=False)
        return Response(self._index, headers=_PAGE_HEADERS, media_type=HTML)

    async def _asset(self, request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "dashboard_file"
        found = self._assets.get(request.path_params["name"])
        if found is None:
            return Response("this file is of another version; load the page again", 404)
        plain, packed, kind = found
        headers = dict(_ASSET_HEADERS)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, headers=headers | {"content-encoding": "gzip"}, media_type=kind)
        return Response(plain, headers=headers, media_type=kind)

    async def _favicon(self, request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "dashboard_file"
        headers = {"cache-control": "public, max-age=86400", "x-content-type-options": "nosniff"}
        return Response(_FAVICON, headers=headers, media_type=_KINDS["svg"])

    async def _projects(self, request: Request) -> Response:
        """The projects that the caller may see. No operation answers that: it is about no
        project."""
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "dashboard_projects"
        told = await asyncio.to_thread(self._seen_by, exchange.grant)
        body = msgspec.json.encode(told)
        return Response(body, headers=_NO_STORE, media_type="application/json")

    def _seen_by(self, grant: Grant) -> Projects:
        reader = self._running.coordinator.reader
        tenant = None if grant.tenant == EVERYWHERE else grant.tenant
        found = reader.retry(
            lambda: list(islice(projects_seen(reader, tenant, grant.sees), _MOST_PROJECTS + 1))
        )
        return Projects(
            version=__version__,
            store=reader.store_kind,
            whole_store=grant.sees(EVERYWHERE, EVERYWHERE),
            projects=[SeenProject(*scope) for scope, _ in found[:_MOST_PROJECTS]],
            more=len(found) > _MOST_PROJECTS,
        )


def _read(folder: Iterable[Traversable]) -> dict[str, tuple[bytes, bytes, str]]:
    """Each file with its compressed form and content type."""
    return {
        file.name: (body, gzip.compress(body, 9, mtime=0), _KINDS[kind])
        for file in folder
        if (kind := file.name.rpartition(".")[2]) in _KINDS
        for body in [file.read_bytes()]
    }
