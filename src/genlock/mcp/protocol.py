"""The Model Context Protocol, as a pure function: a message in; a reply, or work to do, out.

There are two eras of the protocol. Until 2025-11-25 a client begins with `initialize`. From
2026-07-28 on there is no handshake: a client may ask `server/discover`, and every request carries
its version and capabilities in `_meta`. Each message shows its own era, so there is no state
between messages, and one dispatcher serves any number of connections.

Not supported, because nothing in Genlock needs them: subscriptions, sampling, elicitation,
completion, logging. They get the answer "method not found", which every client accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from genlock import __version__
from genlock.mcp import guide
from genlock.mcp.answer import Answer
from genlock.mcp.tools import TOOLS, Tool, listed
from genlock.safe_text import safe_json
from genlock.typed_json import convert

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
FACTS_KEY: Final = "genlock/facts"

PLAN_URI: Final = "genlock://plan"
TASK_URI: Final = "genlock://task/"

_CAPABILITIES: Final[dict[str, Any]] = {"tools": {}, "resources": {}, "prompts": {}}
_SERVER: Final = {"name": "genlock", "title": "Genlock", "version": __version__}
_LIST_MILLISECONDS: Final = 3_600_000
"""How long a client may cache a list: ours never change while a server runs."""

Params: TypeAlias = Mapping[str, Any]
RequestId: TypeAlias = int | str


class Refusal(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Reply(Struct, frozen=True):
    """A message to send. `code` is that of a JSON-RPC error, else None."""

    body: bytes
    code: int | None = None


class Plan(Struct, frozen=True):
    """The resource that shows the plan at a glance."""


class Task(Struct, frozen=True):
    """The resource that shows one task."""

    id: str


class Request(Struct, frozen=True, kw_only=True):
    """A well-formed request."""

    id: RequestId
    method: str
    params: Params
    is_modern: bool

    @property
    def meta(self) -> Params:
        """The client's metadata besides the arguments."""
        return _mapping(self.params, "_meta")

    @property
    def client(self) -> str:
        """The client's name, if the request contains it; a handshake contains it once."""
        where = self.meta.get(CLIENT_KEY) if self.is_modern else self.params.get("clientInfo")
        name = where.get("name") if isinstance(where, Mapping) else None
        return name if isinstance(name, str) else ""


class Work(Struct, frozen=True):
    """A request that needs the coordinator: a tool with its arguments, or a resource."""

    request: Request
    asked: Tool | Plan | Task

    def reply(self, answer: Answer) -> Reply:
        """Returns the reply that contains the answer."""
        if isinstance(self.asked, Tool):
            return _tool_reply(self.request, answer)
        if answer.is_error:
            return failure(self.request.id, INVALID_PARAMS, answer.text)
        uri = self.request.params["uri"]
        content = [{"uri": uri, "mimeType": "text/plain", "text": answer.text}]
        return _reply(self.request, {"contents": content}, keep_milliseconds=0)

    def failed(self) -> Reply:
        """Returns the reply for an internal error."""
        return failure(self.request.id, INTERNAL_ERROR, "something went wrong in the server")


class Cancelled(Struct, frozen=True):
    """The client no longer waits for this request."""

    id: RequestId


class Initialized(Struct, frozen=True):
    """The reply to a handshake, and the name of the client that began it."""

    reply: Reply
    client: str


Handled: TypeAlias = Reply | Work | Cancelled | Initialized | None


def handle(data: bytes, check: Callable[[Request], None] | None = None) -> Handled:
    """Returns the reply or the work for a message; None for a notification that needs neither.

    `check` raises a Refusal if a condition of the transport is not met.
    """
    number: RequestId | None = None
    try:
        message = _decode(data)
        number = _id_of(message)
        method, params = _call_of(message)
        if "id" not in message:
            return _notified(method, params)
        if number is None:
            raise Refusal(INVALID_REQUEST, "the id of a request is a text or a whole number")
        request = Request(
            id=number, method=method, params=params, is_modern=_is_modern(method, params)
        )
        if check is not None:
            check(request)
        if request.is_modern:
            check_envelope(request)
        return _answer(request)
    except Refusal as refusal:
        return failure(number, refusal.code, refusal.message, refusal.data)


def failure(number: RequestId | None, code: int, message: str, data: Any = None) -> Reply:
    """Returns a JSON-RPC error."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return Reply(_encode({"jsonrpc": "2.0", "id": number, "error": error}), code)


def _decode(data: bytes) -> dict[str, Any]:
    try:
        message = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(PARSE_ERROR, f"this is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise Refusal(INVALID_REQUEST, "a message is one JSON object; batches are not taken")
    return message


def _id_of(message: Params) -> RequestId | None:
    number = message.get("id")
    return number if isinstance(number, (int, str)) and not isinstance(number, bool) else None


def _call_of(message: Params) -> tuple[str, Params]:
    method, params = message.get("method"), message.get("params", {})
    if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise Refusal(INVALID_REQUEST, 'a message has "jsonrpc": "2.0" and a "method"')
    if not isinstance(params, dict):
        raise Refusal(INVALID_PARAMS, "params is an object")
    return method, params


def _is_modern(method: str, params: Params) -> bool:
    return method == "server/discover" or VERSION_KEY in _mapping(params, "_meta")


def check_envelope(request: Request) -> None:
    """Checks that a modern request names its version and its client's capabilities."""
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in request.meta]
    if missing:
        raise Refusal(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version = request.meta[VERSION_KEY]
    if not isinstance(version, str):
        raise Refusal(INVALID_PARAMS, f"{VERSION_KEY} is a text")
    if version not in MODERN_VERSIONS:
        known = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise Refusal(UNSUPPORTED_VERSION, "this protocol version is not supported", known)


def _notified(method: str, params: Params) -> Cancelled | None:
    number = _id_of({"id": params.get("requestId")})
    return Cancelled(number) if method == "notifications/cancelled" and number is not None else None


def _answer(request: Request) -> Handled:
    match request.method:
        case "initialize":
            return Initialized(_reply(request, _initialized(request.params)), request.client)
        case "server/discover":
            return _reply(request, _discovered(), _LIST_MILLISECONDS)
        case "ping" if not request.is_modern:
            return _reply(request, {})
        case "tools/list":
            return _reply(request, {"tools": listed()}, _LIST_MILLISECONDS)
        case "tools/call":
            return _call(request)
        case "resources/list":
            return _reply(request, {"resources": [_PLAN]}, _LIST_MILLISECONDS)
        case "resources/templates/list":
            return _reply(request, {"resourceTemplates": [_TASK]}, _LIST_MILLISECONDS)
        case "resources/read":
            return Work(request, _resource(request.params.get("uri")))
        case "prompts/list":
            return _reply(request, {"prompts": [_PROMPT]}, _LIST_MILLISECONDS)
        case "prompts/get":
            return _reply(request, _prompt(request.params))
        case method:
            raise Refusal(METHOD_NOT_FOUND, f"there is no method {method[:60]!r}")


def _initialized(params: Params) -> dict[str, Any]:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": _CAPABILITIES,
        "serverInfo": _SERVER,
        "instructions": guide.INSTRUCTIONS,
    }


def _discovered() -> dict[str, Any]:
    return {
        "supportedVersions": MODERN_VERSIONS,
        "capabilities": _CAPABILITIES,
        "instructions": guide.INSTRUCTIONS,
    }


def _call(request: Request) -> Handled:
    """Returns the work of a tool call. Wrong arguments are an error of the tool: models see those,
    and rarely errors of the protocol."""
    name, arguments = request.params.get("name"), request.params.get("arguments")
    tool = TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        known = ", ".join(TOOLS)
        raise Refusal(INVALID_PARAMS, f"there is no tool {str(name)[:60]!r}; the tools are {known}")
    if arguments is not None and not isinstance(arguments, dict):
        raise Refusal(INVALID_PARAMS, "arguments is an object")
    try:
        return Work(request, convert(arguments or {}, tool, strict=False))
    except msgspec.ValidationError as error:
        told = f"BAD_ARGUMENT: {error}. {name} takes {', '.join(tool.__struct_fields__)}."
        return _tool_reply(request, Answer(told, is_error=True, facts={"reason": "BAD_ARGUMENT"}))


def _tool_reply(request: Request, answer: Answer) -> Reply:
    meta = {"_meta": {FACTS_KEY: answer.facts}} if answer.facts else {}
    content = [{"type": "text", "text": answer.text}]
    return _reply(request, {"content": content, "isError": answer.is_error, **meta})


def _resource(uri: object) -> Plan | Task:
    if uri == PLAN_URI:
        return Plan()
    if isinstance(uri, str) and uri.startswith(TASK_URI) and len(uri) > len(TASK_URI):
        return Task(uri.removeprefix(TASK_URI))
    told = f"there is no resource {str(uri)[:100]!r}; there are {PLAN_URI} and {TASK_URI}ID"
    raise Refusal(INVALID_PARAMS, told, {"uri": str(uri)[:200]})


def _prompt(params: Params) -> dict[str, Any]:
    name, given = params.get("name"), _mapping(params, "arguments")
    if name != _PROMPT["name"]:
        raise Refusal(INVALID_PARAMS, f"there is no prompt {str(name)[:60]!r}, but work")
    text = guide.work_prompt(str(given.get("track", ""))[:60])
    return {
        "description": _PROMPT["description"],
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


_PLAN: Final = {
    "uri": PLAN_URI,
    "name": "plan",
    "description": "The plan at a glance: how far it is, who works on what, what is ready.",
    "mimeType": "text/plain",
}
_TASK: Final = {
    "uriTemplate": f"{TASK_URI}{{id}}",
    "name": "task",
    "description": "A task: instructions, state, attempts, result.",
    "mimeType": "text/plain",
}
_PROMPT: Final[dict[str, Any]] = {
    "name": "work",
    "description": "Work on the plan: claim a task, do it, submit the result, take the next.",
    "arguments": [{"name": "track", "description": "Only tasks of this track.", "required": False}],
}


def _reply(request: Request, result: dict[str, Any], keep_milliseconds: int | None = None) -> Reply:
    if request.is_modern:
        meta = {**result.get("_meta", {}), SERVER_KEY: _SERVER}
        kept = {"ttlMs": keep_milliseconds, "cacheScope": "private"}
        result = {
            "resultType": "complete",
            **result,
            **({} if keep_milliseconds is None else kept),
            "_meta": meta,
        }
    return Reply(_encode({"jsonrpc": "2.0", "id": request.id, "result": result}))


def _encode(message: dict[str, Any]) -> bytes:
    return safe_json(msgspec.json.encode(message))


def _mapping(params: Params, name: str) -> Params:
    found = params.get(name)
    return found if isinstance(found, dict) else {}
