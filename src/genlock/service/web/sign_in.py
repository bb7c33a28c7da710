"""The page that asks for a key, and what it is posted to. A key is in the body of that one request,
and nowhere else.

On loopback a link signs in without a key: /sign-in?code=…, which `genlock serve` prints, and
`genlock link` after it. The code is good once and for a minute; the browser is sent on at once, so
that it is in no history, and no log has queries.

A sign-in looks. With an operator's key, or by a link, it may also act for a while: then the address
that the browser is sent on to ends in `#act=PROOF`. Browsers send no server what is behind a `#`.
The page keeps the proof and removes it from the address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from genlock.errors import BadArgument, KeyRefused, KindRefused, RoleRefused
from genlock.service.auth.acting_sign_ins import COOKIE as ACTING_COOKIE
from genlock.service.auth.acting_sign_ins import IDLE_SECONDS, ActingSignIns, NewSignIn
from genlock.service.auth.authenticate import NOT_GOOD, brings_key
from genlock.service.auth.browser_sessions import (
    CODE_SECONDS,
    LIFE_SECONDS,
    BrowserSessions,
    LocalToken,
    cookie,
    tickets_of,
)
from genlock.service.auth.permissions import OPEN, Grant
from genlock.service.context import ServiceContext
from genlock.service.limits import WRONG_KEY_COUNTS
from genlock.service.request import Answer, HttpExchange, asides, count, read_body
from genlock.service.web.html import HTML, Html, Page, PageFrame, join, tag, text

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
NEW_LINK: Final = "/sign-in/link"
_FORM: Final = b"application/x-www-form-urlencoded"
_MOST_BYTES: Final = 8 * 1024
_LONGEST_NEXT: Final = 2000


class SignInPage:
    """Signs browsers in and out."""

    def __init__(
        self,
        running: ServiceContext,
        sign_ins: BrowserSessions,
        acting: ActingSignIns,
        token: LocalToken | None = None,
    ) -> None:
        self._running, self._sign_ins, self._token = running, sign_ins, token
        self._acting = acting
        self._shell = PageFrame("sign_in.html")

    def routes(self) -> list[BaseRoute]:
        """Where it is found."""
        return [
            Page(SIGN_IN, self._page, methods=["GET", "POST"], include_in_schema=False),
            Page(SIGN_OUT, self._leave, methods=["POST"], include_in_schema=False),
            *(
                []
                if self._token is None
                else [Page(NEW_LINK, self._new_link, methods=["POST"], include_in_schema=False)]
            ),
        ]

    def instead_of(self, error: KeyRefused, exchange: HttpExchange) -> Answer | None:
        """The page for who was refused by the key, if that is somebody with a browser who wants to
        look at something."""
        scope = exchange.scope
        if scope["method"] != "GET" or b"text/html" not in exchange.headers.get(b"accept", b""):
            return None
        query: bytes = scope["query_string"]
        # Who comes for the first time has done nothing wrong.
        told = error if brings_key(exchange.headers) else None
        return self._asked(scope["path"] + ("?" + query.decode("latin-1") if query else ""), told)

    async def _page(self, request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "sign_in"
        if request.method == "GET" and self._token is not None and "code" in request.query_params:
            return await self._by_code(request, exchange, self._token)
        if request.method != "POST":
            ahead = request.query_params.get("next", "/")
            return _response(self._asked(ahead, None, 200))
        given = await _form(request, exchange.headers)
        ahead = given.get("next", "/")
        key = given.get("key", "").strip()
        try:
            ticket, exchange.grant = await self._ticket(key)
        except KeyRefused as error:
            await count(self._running.rates, exchange.client, request.receive, WRONG_KEY_COUNTS)
            exchange.error = error
            return _response(self._asked(ahead, error))
        acts = await self._acting.begin(key) if "act" in given else None
        if "act" in given and acts is None:
            role = exchange.grant.role.value
            exchange.error = refused = KeyRefused(
                f"this key is an {role}'s, and may only look; to act takes an operator's key"
            )
            return _response(self._asked(ahead, refused))
        return _signed_in(request, _own(ahead), ticket, acts)

    async def _by_code(
        self, request: Request, exchange: HttpExchange, token: LocalToken
    ) -> Response:
        """Signs in by a link. Who follows it twice, as browsers that look ahead do, has the ticket
        by then."""
        if token.redeem(request.query_params["code"]):
            ticket = self._sign_ins.begin_local()
            return _signed_in(request, "/", ticket, self._acting.begin_local())
        for ticket in tickets_of(exchange.headers):
            if await self._sign_ins.find(ticket) is not None:
                return _moved("/")
        await count(self._running.rates, exchange.client, request.receive, WRONG_KEY_COUNTS)
        exchange.error = error = KeyRefused(
            f"this link was used, or is older than {CODE_SECONDS:g} seconds; for a new one, type: "
            f"genlock link --url {request.base_url}"
        )
        return _response(self._asked("/", error))

    async def _new_link(self, request: Request) -> Response:
        """A new link, for who has the token."""
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "sign_in_link"
        if exchange.grant != OPEN or self._token is None:
            raise RoleRefused(
                "a link is for the user who started the service, by its token; with a key, open "
                "/sign-in and enter the key"
            )
        link = msgspec.json.encode(
            {"link": link_of(self._token), "expires_in_seconds": CODE_SECONDS}
        )
        return Response(link, headers={"cache-control": "no-store"}, media_type="application/json")

    async def _leave(self, request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        exchange.route = "sign_out"
        return _moved("/", _cookie("", request), acting_cookie("", request))

    async def _ticket(self, text: str) -> tuple[str, Grant]:
        try:
            begun = await self._sign_ins.begin(text)
        except BadArgument as error:  # it says what is wrong with the key, and nothing of it
            raise KeyRefused(str(error)) from None
        if begun is None:
            raise KeyRefused(NOT_GOOD)
        return begun

    def _asked(self, ahead: str, error: KeyRefused | None, status: int = 401) -> Answer:
        said = None if error is None else tag("p", f"{error}", _class="wrong", role="alert")
        body = self._shell.around(
            said=said,
            next=_own(ahead),
            hours=LIFE_SECONDS // 3600,
            minutes=IDLE_SECONDS // 60,
            how=_how(local=self._token is not None),
        )
        more = tuple((name.encode(), value.encode()) for name, value in self._shell.headers.items())
        return Answer(status, body.encode(), HTML.encode(), more + asides(status))


def link_of(token: LocalToken) -> str:
    """The path of a new link that signs a browser in."""
    return f"{SIGN_IN}?code={token.make_code()}"


def _how(*, local: bool) -> Html:
    """How one comes by a sign-in without a key."""
    make = tag("code", "genlock keys create NAME --role observer")
    if not local:
        return join(text("Have no key? Where the store is, "), make, text(" makes one."))
    return join(
        text("If you started this service, you need no key: "),
        tag("code", "genlock link"),
        text(" prints a link that signs you in. For everyone else, "),
        make,
        text(" makes a key where the store is."),
    )


async def _form(request: Request, headers: dict[bytes, bytes]) -> dict[str, str]:
    kind = headers.get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != _FORM:
        raise KindRefused(f"a sign-in is a form; send it with content-type: {_FORM.decode()}")
    body = await read_body(request.receive, headers, _MOST_BYTES)
    try:
        return dict(
            parse_qsl(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=10, errors="strict"
            )
        )
    except ValueError:  # what it says may repeat what was sent
        raise BadArgument(
            "the form cannot be read: it is percent-encoded UTF-8, with at most 10 fields"
        ) from None


def _own(path: str) -> str:
    """A path of this service, or `/`: nobody is sent to another site from here."""
    plain = (
        path.isascii() and path.isprintable() and "\\" not in path and len(path) <= _LONGEST_NEXT
    )
    return (
        path
        if plain
        and path.startswith("/")
        and not path.startswith("//")
        and not path.startswith((SIGN_IN, SIGN_OUT))
        else "/"
    )


def _signed_in(request: Request, ahead: str, ticket: str, acts: NewSignIn | None) -> Response:
    """Sends the browser on, signed in to look, and to act if it may."""
    looks = _cookie(ticket, request)
    if acts is None:
        return _moved(ahead, looks)
    path = ahead.partition("#")[0]
    return _moved(f"{path}#act={acts.proof}", looks, acting_cookie(acts.text, request))


def _cookie(ticket: str, request: Request) -> str:
    return cookie(ticket, encrypted=request.url.scheme == "https", port=_port(request))


def acting_cookie(ticket: str, request: Request) -> str:
    """The header that has a browser keep an acting ticket; an empty one is forgotten."""
    return cookie(
        ticket,
        encrypted=request.url.scheme == "https",
        port=_port(request),
        name=ACTING_COOKIE,
        life=IDLE_SECONDS,
    )


def _port(request: Request) -> int | None:
    try:
        return request.url.port
    except ValueError:  # the header names one that there cannot be
        return None


def _moved(where: str, *cookies: str) -> Response:
    headers = {"location": where, "cache-control": "no-store", "referrer-policy": "no-referrer"}
    response = Response(None, 303, headers)
    for kept in cookies:
        response.headers.append("set-cookie", kept)
    return response


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    set_header: Callable[[str, str], None] = response.headers.__setitem__
    set_header("content-type", answer.kind.decode())
    for name, value in answer.more:
        set_header(name.decode(), value.decode())
    return response
