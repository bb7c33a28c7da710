"""HTML with escaping by default: everything that is not marked as HTML is text.

Characters that change the direction of text are spelled out, so that a title cannot rearrange the
line around it.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Final, TypeAlias

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from genlock.safe_text import safe_text
from genlock.service.request import refused_method


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Part: TypeAlias = "str | int | Html | None"


def text(part: Part) -> Html:
    """A part as HTML: as it is if it is HTML, escaped if not, nothing if it is None."""
    if isinstance(part, Html):
        return part
    return Html("" if part is None else escape(safe_text(part)))


def join(*parts: Part) -> Html:
    """Parts one after the other."""
    return Html("".join(map(text, parts)))


def tag(name: str, *parts: Part, **attributes: str | int | float | None) -> Html:
    """An element. `_class` and the like are attributes whose names are words of Python; None leaves
    one out."""
    named = {
        key.strip("_").replace("_", "-"): str(value)
        for key, value in attributes.items()
        if value is not None
    }
    given = "".join(f' {key}="{escape(safe_text(value))}"' for key, value in named.items())
    return Html(f"<{name}{given}>{join(*parts)}</{name}>")


# A page is a path of the service that is no operation.


class Page(Route):
    """A route of Starlette's, with our refusals."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """MethodRefused instead of a line of text."""
        if self.methods and scope["method"] not in self.methods:
            raise refused_method(scope["method"], self.methods)
        await super().handle(scope, receive, send)


# The frame of a page: its own style and script, and a policy that admits nothing else.


HTML: Final = "text/html; charset=utf-8"
_COMMON: Final = "status.css"


class PageFrame:
    """A page's file, and the style and script that stand in it."""

    def __init__(self, page: str, script: str | None = None) -> None:
        css, js = _file(_COMMON), "" if script is None else _file(script)
        self._page = Template(Template(_file(page)).safe_substitute(css=css, js=js))
        may = f"script-src {_hash(js)}; connect-src 'self'; " if js else ""
        self.headers: Final = {
            "content-security-policy": f"default-src 'none'; style-src {_hash(css)}; {may}base-uri "
            "'none'; form-action 'self'; "
            "frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            # To itself it has to say where a form comes from: one that another site has sent is
            # refused by that.
            "referrer-policy": "same-origin",
            "cache-control": "no-store",
        }

    def around(self, **parts: Part) -> str:
        """The page with what changes in it."""
        return self._page.substitute({name: text(part) for name, part in parts.items()})


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
