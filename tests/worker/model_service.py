"""A stand-in for the services of the models that agents talk to, on loopback. It says the same to
every request: a sentence, or an error."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SAID = "The outline is written."
_ERRORS = {
    401: ("authentication_error", "Incorrect API key provided"),
    429: ("rate_limit_error", "This request would exceed your account's rate limit."),
}


def _anthropic(model: object) -> list[dict[str, Any]]:
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1},
    }  # fmt: skip
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SAID}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 8}},
        {"type": "message_stop"},
    ]


def _bash(model: object, command: str) -> list[dict[str, Any]]:
    """It wants this command to be run first."""
    start, _, _, stop, delta, end = _anthropic(model)
    tool = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    given = json.dumps({"command": command, "description": "commit"})
    return [
        start,
        {"type": "content_block_start", "index": 0, "content_block": tool},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": given},
        },
        stop,
        delta | {"delta": {"stop_reason": "tool_use", "stop_sequence": None}},
        end,
    ]


def _openai() -> list[dict[str, Any]]:
    content = [{"type": "output_text", "text": SAID}]
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    usage = {
        "input_tokens": 1, "input_tokens_details": None, "output_tokens": 1,
        "output_tokens_details": None, "total_tokens": 2,
    }  # fmt: skip
    return [
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
    ]


@contextmanager
def model_service(status: int = 200, command: str = "") -> Iterator[str]:
    """Its address. Any status but 200 is the answer to every request. With `command` it has that
    run by Claude Code first."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
            if status != 200:
                self._refuse()
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in self._answer(asked):
                lines = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                self.wfile.write(lines.encode())

        def _answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
            if self.path.endswith("/responses"):
                return _openai()
            if command and "tool_result" not in json.dumps(asked["messages"]):
                return _bash(asked["model"], command)
            return _anthropic(asked["model"])

        def _refuse(self) -> None:
            kind, message = _ERRORS[status]
            error = {"type": "error", "error": {"type": kind, "message": message}}
            data = json.dumps(error).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.send_header("x-should-retry", "false")
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="model-service")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
