"""The document and its page over HTTP. They say nothing of anyone's work, so no key is needed to read them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

_CACHING: Final = {"cache-control": "no-cache"}


class Manual:
    """/openapi.json and /docs, made when they are first asked for."""

    def __init__(self, *, keys: bool, extra: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._keys, self._extra = keys, extra
        self._made: dict[str, tuple[bytes, str]] = {}

    async def openapi(self, request: Request) -> Response:
        """The document."""
        return self._said(request, "openapi", "application/json", {})

    async def docs(self, request: Request) -> Response:
        """The page."""
        from genlock.service.openapi.page import POLICY

        return self._said(request, "docs", "text/html", {"content-security-policy": POLICY})

    def _said(self, request: Request, name: str, kind: str, more: dict[str, str]) -> Response:
        body, tag = self._made.get(name) or self._make(name)
        headers = {**_CACHING, "etag": tag, **more}
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if tag in known or "*" in known:  # whoever packs it on the way calls it a weak one
            return Response(None, 304, headers)
        return Response(body, 200, headers, media_type=kind)

    def _make(self, name: str) -> tuple[bytes, str]:
        # Whoever serves claims and is never asked for its manual need not read it.
        from genlock.service.openapi.document import document
        from genlock.service.openapi.page import page

        found = document(keys=self._keys, extra=self._extra)
        body = msgspec.json.encode(found) if name == "openapi" else page(found).encode()
        self._made[name] = body, f'"{sha256(body).hexdigest()[:32]}"'
        return self._made[name]
