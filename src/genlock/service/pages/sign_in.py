"""The page that asks for a key, and what it is posted to. A key is in the body of that one request, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from genlock.errors import BadArgument, KeyRefused, KindRefused
from genlock.service.access.door import NOT_GOOD, brings_key
from genlock.service.access.grant import Grant
from genlock.service.access.sign_ins import LIFE_SECONDS, SignIns, cookie
from genlock.service.counting import count
from genlock.service.exchange import Answer, Exchange, asides, read_body
from genlock.service.limits import WRONG_KEY_COUNTS
from genlock.service.pages.markup import tag
from genlock.service.pages.route import Page
from genlock.service.pages.shell import HTML, Shell
from genlock.service.running import Running

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
_FORM: Final = b"application/x-www-form-urlencoded"
_MOST_BYTES: Final = 8 * 1024
_LONGEST_NEXT: Final = 2000


class SignInPage:
    """Signs browsers in and out."""

    def __init__(self, running: Running, sign_ins: SignIns) -> None:
        self._running, self._sign_ins = running, sign_ins
        self._shell = Shell("sign_in.html")

    def routes(self) -> list[BaseRoute]:
        """Where it is found."""
        return [
            Page(SIGN_IN, self._page, methods=["GET", "POST"], include_in_schema=False),
            Page(SIGN_OUT, self._leave, methods=["POST"], include_in_schema=False),
        ]

    def instead_of(self, error: KeyRefused, exchange: Exchange) -> Answer | None:
        """The page for who was refused by the key, if that is somebody with a browser who wants to look at something."""
        scope = exchange.scope
        if scope["method"] != "GET" or b"text/html" not in exchange.headers.get(b"accept", b""):
            return None
        query: bytes = scope["query_string"]
        # Who comes for the first time has done nothing wrong.
        told = error if brings_key(exchange.headers) else None
        return self._asked(scope["path"] + ("?" + query.decode("latin-1") if query else ""), told)

    async def _page(self, request: Request) -> Response:
        exchange: Exchange = request.scope["genlock"]
        exchange.route = "sign_in"
        if request.method != "POST":
            return _response(self._asked("/", None, 200))
        given = await _form(request, exchange.headers)
        ahead = given.get("next", "/")
        try:
            ticket, exchange.grant = await self._ticket(given.get("key", "").strip())
        except KeyRefused as error:
            await count(self._running.rates, exchange.client, request.receive, WRONG_KEY_COUNTS)
            exchange.error = error
            return _response(self._asked(ahead, error))
        return _moved(_own(ahead), cookie(ticket, encrypted=request.url.scheme == "https"))

    async def _leave(self, request: Request) -> Response:
        exchange: Exchange = request.scope["genlock"]
        exchange.route = "sign_out"
        return _moved("/", cookie("", encrypted=request.url.scheme == "https"))

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
        body = self._shell.around(said=said, next=_own(ahead), hours=LIFE_SECONDS // 3600)
        more = tuple((name.encode(), value.encode()) for name, value in self._shell.headers.items())
        return Answer(status, body.encode(), HTML.encode(), more + asides(status))


async def _form(request: Request, headers: dict[bytes, bytes]) -> dict[str, str]:
    kind = headers.get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != _FORM:
        raise KindRefused(f"a sign-in is a form; send it with content-type: {_FORM.decode()}")
    body = await read_body(request.receive, headers, _MOST_BYTES)
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=10, errors="strict"))
    except ValueError:  # what it says may repeat what was sent
        raise BadArgument("the form cannot be read: it is percent-encoded UTF-8, with at most 10 fields") from None


def _own(path: str) -> str:
    """A path of this service, or `/`: nobody is sent to another site from here."""
    plain = path.isascii() and path.isprintable() and "\\" not in path and len(path) <= _LONGEST_NEXT
    return path if plain and path.startswith("/") and not path.startswith("//") and not path.startswith((SIGN_IN, SIGN_OUT)) else "/"


def _moved(where: str, keep: str) -> Response:
    return Response(None, 303, {"location": where, "set-cookie": keep, "cache-control": "no-store"})


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    set_header: Callable[[str, str], None] = response.headers.__setitem__
    set_header("content-type", answer.kind.decode())
    for name, value in answer.more:
        set_header(name.decode(), value.decode())
    return response
