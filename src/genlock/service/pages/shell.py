"""What is around a page for people: its own style and script, and a policy that admits these and nothing else."""

from __future__ import annotations

import base64
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Final

from genlock.service.pages.markup import Part, text

HTML: Final = "text/html; charset=utf-8"
_COMMON: Final = "status.css"


class Shell:
    """A page's file, and the style and script that stand in it."""

    def __init__(self, page: str, script: str | None = None) -> None:
        css, js = _file(_COMMON), "" if script is None else _file(script)
        self._page = Template(Template(_file(page)).safe_substitute(css=css, js=js))
        may = f"script-src {_hash(js)}; connect-src 'self'; " if js else ""
        self.headers: Final = {
            "content-security-policy": f"default-src 'none'; style-src {_hash(css)}; {may}base-uri 'none'; form-action 'self'; "
            "frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            # To itself it has to say where a form comes from: one that another site has sent is refused by that.
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
