"""The document as a page: plain HTML that fetches nothing from elsewhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from genlock.service.openapi.fields import Schema
from genlock.wire.headers import IDENTITY_HEADERS

_STYLE: Final = (files(__package__) / "page.css").read_text(encoding="utf-8")
_SCRIPT: Final = (files(__package__) / "page.js").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(sha256(text.encode()).digest()).decode()


POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_hash(_STYLE)}'; script-src "
    f"'sha256-{_hash(_SCRIPT)}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy: only what is on the page itself."""

_HERE: Final = "http://localhost:8420"
"""The page's script replaces this by the page's own address."""

_PLACES: Final = {"tenant": "default", "project": "default"}


def page(document: dict[str, Any]) -> str:
    """The page of this document."""
    return "".join(_parts(document))


def _parts(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1">'
    )
    yield (
        f"<title>{escape(info['title'])} over "
        f"HTTP</title><style>{_STYLE}</style></head><body><main>"
    )
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
    yield "".join(f"<p>{_words(paragraph)}</p>" for paragraph in info["description"].split("\n\n"))
    groups = _groups(document)
    yield '<p><a href="openapi.json">openapi.json</a>'
    yield "".join(f' · <a href="#{escape(name)}">{escape(name)}</a>' for name in groups) + "</p>"
    for name, operations in groups.items():
        yield f'<h2 id="{escape(name)}">{escape(name)}</h2>'
        for path, method, operation in operations:
            yield from _operation(document, path, method, operation)
    yield f"</main><script>{_SCRIPT}</script></body></html>\n"


def _groups(document: dict[str, Any]) -> dict[str, list[tuple[str, str, Schema]]]:
    groups: dict[str, list[tuple[str, str, Schema]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups[operation["tags"][0]].append((path, method.upper(), operation))
    return groups


def _operation(
    document: dict[str, Any], path: str, method: str, operation: Schema
) -> Iterator[str]:
    role = operation.get("x-genlock-role")
    yield f'<details id="{escape(operation["operationId"])}"><summary><b>{method}</b>'
    yield f"<code>{_breakable(path)}</code>"
    yield f'<i class="role">{escape(role)}</i>' if role else ""
    yield f"<span>{_words(operation['summary'])}</span></summary>"
    yield f"<p>{_words(operation.get('description', ''))}</p>"
    line = _breakable(curl(document, path, method, operation))
    yield (
        f'<div class="curl"><button type="button">copy</button><pre><code>{line}</code></pre></div>'
    )
    parameters = [
        each for each in _parameters(document, operation) if each["name"] not in IDENTITY_HEADERS
    ]
    yield _table(
        "Path, query and headers",
        [(f"{each['name']} ({each['in']})", _told(each, each["schema"])) for each in parameters],
    )
    if "requestBody" in operation:
        body = _resolve(document, operation["requestBody"]["content"]["application/json"]["schema"])
        fields = body["properties"].items()
        yield _table(
            "Body", [(_starred(name, body), _told(field, field)) for name, field in fields]
        )
    yield _table(
        "Answers",
        [
            (status, _answer(_resolve(document, each)))
            for status, each in operation["responses"].items()
        ],
    )
    yield "</details>"


def _breakable(text: str) -> str:
    """Marks where a narrow page may break a path or URL: before a slash, not within a word."""
    words = escape(text).split(" ")
    return " ".join(
        re.sub(r"(?<=[\w}])/", "<wbr>/", word) if word.startswith(("/", _HERE)) else word
        for word in words
    )


def _parameters(document: dict[str, Any], operation: Schema) -> list[Schema]:
    return [_resolve(document, each) for each in operation.get("parameters", [])]


def _starred(name: str, body: Schema) -> str:
    return f"{name} *" if name in body["required"] else name


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{told}</td></tr>" for name, told in rows
    )
    return f"<h3>{title}</h3><table><tbody>{lines}</tbody></table>" if rows else ""


def _answer(response: Schema) -> str:
    lines = "".join(
        f"<p>{_words(line.removeprefix('- '))}</p>" for line in response["description"].split("\n")
    )
    for content in response.get("content", {}).values():
        lines += f"<p><code>{escape(shape(content['schema']))}</code></p>"
        if "example" in content:
            lines += f"<pre><code>{escape(json.dumps(content['example'], indent=1))}</code></pre>"
    return lines


def _told(what: Schema, schema: Schema) -> str:
    words = f"<p>{_words(what['description'])}</p>" if "description" in what else ""
    return f"{words}<p><code>{escape(shape(schema))}</code></p>"


def shape(schema: Schema) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(shape(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {shape(schema.get('items') or {})}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {shape(schema['additionalProperties'])}"
    return f"{kind}{_bounds(schema)}"


def _bounds(schema: Schema) -> str:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("maxLength"))
    bounds = (
        f", {least} to {most:,}"
        if least is not None and most is not None
        else f", at most {most:,} characters"
        if most
        else ""
    )
    return bounds + (
        f", else {json.dumps(schema['default'])}" if schema.get("default") is not None else ""
    )


def curl(document: dict[str, Any], path: str, method: str, operation: Schema) -> str:
    """A curl command for this operation, to paste into a shell."""
    parameters = _parameters(document, operation)
    names = {each["name"]: each.get("example", "…") for each in parameters}
    url = _HERE + path.format(**names | _PLACES)
    line = f"curl -s {url}" if method == "GET" else f"curl -s -X {method} {url}"
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"].get("example", {})
        line += f" -H 'content-type: application/json' -d '{json.dumps(example)}'"
    return line


def _resolve(document: dict[str, Any], what: Schema) -> Schema:
    found: Any = what
    while "$ref" in found:
        at: Any = document
        for part in found["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        found = at
    return dict(found)


def _words(text: str) -> str:
    """Turns text with `code`, **strong** and *stressed* into safe HTML."""
    safe = escape(text)
    for mark, tag in (("`", "code"), ("**", "b"), ("*", "i")):
        pieces = safe.split(mark)
        if len(pieces) % 2:
            safe = "".join(
                piece if at % 2 == 0 else f"<{tag}>{piece}</{tag}>"
                for at, piece in enumerate(pieces)
            )
    return safe


# The document and its page over HTTP. They contain no data, so they need no key.


_CACHING: Final = {"cache-control": "no-cache"}


class Manual:
    """Serves /openapi.json and /docs, made on the first request."""

    def __init__(self, *, keys: bool, extra: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._keys, self._extra = keys, extra
        self._made: dict[str, tuple[bytes, str]] = {}

    async def openapi(self, request: Request) -> Response:
        """The document."""
        return self._said(request, "openapi", "application/json", {})

    async def docs(self, request: Request) -> Response:
        """The page."""
        return self._said(request, "docs", "text/html", {"content-security-policy": POLICY})

    def _said(self, request: Request, name: str, kind: str, more: dict[str, str]) -> Response:
        body, tag = self._made.get(name) or self._make(name)
        headers = {**_CACHING, "etag": tag, **more}
        known = [
            one.strip().removeprefix("W/")
            for one in request.headers.get("if-none-match", "").split(",")
        ]
        if tag in known or "*" in known:  # a proxy that compresses turns it into a weak tag
            return Response(None, 304, headers)
        return Response(body, 200, headers, media_type=kind)

    def _make(self, name: str) -> tuple[bytes, str]:
        # Built on demand: most services are never asked for their document.
        from genlock.service.openapi.document import document

        found = document(keys=self._keys, extra=self._extra)
        body = msgspec.json.encode(found) if name == "openapi" else page(found).encode()
        self._made[name] = body, f'"{sha256(body).hexdigest()[:32]}"'
        return self._made[name]
