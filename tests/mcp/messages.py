"""Messages of both eras of the protocol, and what the dispatcher makes of them."""

from __future__ import annotations

import json
from typing import Any

from genlock.mcp import protocol

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1"},
}
ERAS = ["legacy", "modern"]


def message(method: str, era: str = "legacy", number: Any = 1, **params: Any) -> bytes:
    """A request of this era."""
    if era == "modern":
        params["_meta"] = params.get("_meta", {}) | ENVELOPE
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def handled(data: bytes) -> Any:
    """What the dispatcher makes of a message, with a reply decoded."""
    found = protocol.handle(data)
    if isinstance(found, protocol.Initialized):
        found = found.reply
    return json.loads(found.body) if isinstance(found, protocol.Reply) else found


def result(method: str, era: str = "legacy", **params: Any) -> Any:
    """The result of a request that succeeds."""
    return handled(message(method, era, **params))["result"]


def error(data: bytes) -> tuple[Any, int]:
    """The id and code of the error that answers a message."""
    reply = handled(data)
    return reply["id"], reply["error"]["code"]
