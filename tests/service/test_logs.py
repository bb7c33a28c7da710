"""The log: a line a request with what an operator needs, and never a key, a token, a header or a
body."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from genlock.errors import GenlockError
from genlock.service.auth.permissions import Grant
from genlock.service.logs import Log, Writer
from genlock.service.request import HttpExchange
from tests.logs import PLANTED
from tests.service.logscan import leaks
from tests.service.process import read_all, serve

TASKS = "/v1/default/default/tasks"
SECRETS = [
    "glk_k3f9a1_S3cretPartOfTheKey_9f2c",
    "Basic-dXNlcjpwYXNzd29yZA",
    PLANTED,
    "payload-of-many-bytes-51b2e8",
    "metadata-value-cc04d1-private",
    "description-of-a-task-8841fe",
    "query-value-61d0aa-in-the-url",
    "broken-json-0b77aa-in-a-body",
    "path-of-nothing-aa91c3-secret",
    "operation-id-5dd1e0-may-be-one",
    "cookie-value-3c9e11-of-a-browser",
]
KEY, BASIC, RESULT, PAYLOAD, META, TEXT, QUERY, BROKEN, PATH, OPERATION, COOKIE = SECRETS


class Pipe:
    """A log that is read back."""

    def __init__(self, **options: Any) -> None:
        self._out, self._in = os.pipe()
        self.log = Log(file=self._in, terminal=False, **options)

    def lines(self) -> list[dict[str, Any]]:
        """Everything, at the end."""
        return [json.loads(line) for line in self.text().splitlines()]

    def text(self) -> str:
        self.log.close()
        os.close(self._in)
        with os.fdopen(self._out, "rb") as file:
            return file.read().decode()


def exchange(route: str = "claim_task", status: int = 200, **changes: Any) -> HttpExchange:
    scope = {"method": "POST", "path": "/v1/x", "headers": [], "client": ("10.0.0.7", 1)}
    made = HttpExchange(scope, {}, "abc-1")
    made.route, made.status, made.place = route, status, ("acme", "web")
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_a_request_is_one_line_with_what_it_was_about() -> None:
    pipe = Pipe()
    arguments = {
        "session_id": "s-1",
        "agent_id": "ada",
        "task_id": "A-001",
        "expected_generation": 4,
        "result_data": RESULT,
    }
    pipe.log.request(
        exchange("renew_lease", arguments=arguments, grant=Grant(key_id="k3f9", name="ci"))
    )
    [line] = pipe.lines()
    assert line.pop("timestamp").endswith("Z")
    assert line.pop("ms") >= 0
    assert line == {
        "level": "info",
        "event": "renew_lease",
        "request": "abc-1",
        "method": "POST",
        "status": 200,
        "tenant": "acme",
        "project": "web",
        "session": "s-1",
        "agent": "ada",
        "task": "A-001",
        "generation": 4,
        "key": "k3f9",
        "client": "10.0.0.7",
    }


@pytest.mark.parametrize(
    ("route", "status", "level"),
    [
        ("claim_task", 200, "info"),
        ("claim_task", 409, "info"),
        ("ready", 200, "debug"),
        ("ready", 404, "info"),
        ("batch_get_states", 200, "debug"),
        ("status_page", 200, "debug"),
        ("sign_in", 303, "info"),
        ("", 200, "debug"),
        ("", 401, "info"),
        ("claim_task", 503, "warning"),
        ("ready", 500, "warning"),
    ],
)
def test_acts_and_refusals_are_told_reads_only_to_who_wants_everything(
    route: str, status: int, level: str
) -> None:
    for least in ("debug", "info", "warning", "error"):
        pipe = Pipe(level=least)
        pipe.log.request(exchange(route, status))
        shown = [line["level"] for line in pipe.lines()]
        order = ("debug", "info", "warning", "error")
        assert shown == ([level] if order.index(level) >= order.index(least) else [])


def test_a_fault_is_told_with_where_it_happened_and_without_what_it_says() -> None:
    def fails() -> None:
        raise ValueError(f"could not handle {RESULT}")

    pipe = Pipe()
    try:
        fails()
    except ValueError as error:
        pipe.log.fault(exchange(error=error))
    [line] = pipe.lines()
    assert (line["level"], line["event"], line["error"], line["request"]) == (
        "error",
        "fault",
        "ValueError",
        "abc-1",
    )
    assert "in fails" in line["traceback"]
    assert "message" not in line


def test_what_libraries_and_bound_loggers_log_lands_in_the_same_place() -> None:
    import logging

    pipe = Pipe()
    pipe.log.adopt("genlock-test")
    logging.getLogger("genlock-test").warning("said\nand %s", RESULT)
    logging.getLogger("genlock-test").info("not this")
    try:
        raise GenlockError("of our own words")
    except GenlockError:
        logging.getLogger("genlock-test").exception("failed")
    pipe.log.logger().bind(client="10.0.0.8").warning("slow reader", behind=7)
    first, second, third = pipe.lines()
    assert (first["level"], first["event"], first["library"]) == ("warning", "said", "genlock-test")
    assert (second["level"], second["message"]) == ("error", "of our own words")
    assert (third["event"], third["behind"], third["client"]) == ("slow reader", 7, "10.0.0.8")
    logging.getLogger("genlock-test").handlers.clear()


def test_who_asks_for_another_protocol_does_not_fill_the_log(tmp_path: Path) -> None:
    asks = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": "x",
        "sec-websocket-version": "13",
    }
    with serve(tmp_path, "--log-level", "info") as service:
        assert service.ask("GET", "/healthz", headers=asks)[0] == 200
        assert service.end() == 0
    assert [line["event"] for line in service.lines()] == ["started", "stopped"]


def test_for_people_it_is_readable() -> None:
    pipe = Pipe(form="text")
    pipe.log.request(exchange(arguments={"task_id": "A-001"}))
    text = pipe.text()
    assert "claim_task" in text
    assert "task=A-001" in text
    assert "{" not in text


def test_who_does_not_read_the_log_holds_up_nobody_and_is_told_what_was_dropped() -> None:
    out, into = os.pipe()
    rendered = threading.Semaphore(0)

    def render(line: Any) -> bytes:
        rendered.release()
        return msgspec.json.encode(line) + b" " * 5000 + b"\n"

    writer = Writer(render, into, most_waiting=50)
    for number in range(1000):
        writer.put(
            {"n": number}
        )  # the pipe takes 64 KiB, and nobody reads: this would stand still if it waited
    assert rendered.acquire(timeout=30)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(iter(lambda: os.read(out, 65536), b"")))
    reader.start()
    writer.close()
    os.close(into)
    reader.join(30)
    os.close(out)
    lines = [json.loads(line) for line in b"".join(found).splitlines()]
    dropped = sum(line["count"] for line in lines if line.get("event") == "log lines dropped")
    written = [line["n"] for line in lines if "n" in line]
    assert dropped > 0
    assert written == sorted(written)
    assert len(written) + dropped == 1000


def test_a_log_that_cannot_be_written_is_no_failure() -> None:
    out, into = os.pipe()
    os.close(out)
    writer = Writer(lambda line: b"line\n", into)
    writer.put(1)
    writer.close()
    os.close(into)


def test_nothing_secret_is_in_the_log_of_a_busy_service(tmp_path: Path) -> None:
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-api-key": KEY,
        "cookie": f"session={COOKIE}",
        "idempotency-key": OPERATION,
    }
    with serve(tmp_path, "--trust-local", "--log-level", "debug") as service:
        task = {"id": "t", "description": TEXT, "metadata": {"note": META}}
        asked = [
            ("POST", TASKS, {"tasks": [task]}),
            (
                "POST",
                f"{TASKS}/t/claim",
                {"agent_id": "ada", "session_id": "s-1", "metadata": {"note": META}},
            ),
            ("POST", f"{TASKS}/t/claim", {"agent_id": "bob", "session_id": "s-2"}),
            (
                "POST",
                f"{TASKS}/t/submit",
                {"generation": 9, "session_id": "s-1", "result_data": RESULT},
            ),
            (
                "POST",
                f"{TASKS}/t/submit",
                {"generation": 1, "session_id": "s-1", "result_data": PAYLOAD * 5000},
            ),
            ("GET", f"{TASKS}/t/result", None),
            ("GET", f"/v1/default/default/ready?limit={QUERY}", None),
            ("GET", f"/v1/default/default/ready?token={QUERY}", None),
            ("GET", f"/{PATH}", None),
            ("GET", f"/v1/{PATH}", None),
            ("POST", f"{TASKS}/t/claim", f'{{"agent_id": "{BROKEN}'.encode()),
            ("POST", f"{TASKS}/t/claim", {"agent_id": BROKEN * 50, "session_id": "s"}),
            ("POST", f"{TASKS}/t/claim", {"wrong_field": BROKEN}),
            ("DELETE", f"{TASKS}/t", None),
        ]
        statuses = [service.ask(method, path, body, headers)[0] for method, path, body in asked]
        assert 200 in statuses
        assert 409 in statuses
        assert 400 in statuses
        basic = service.connect()
        basic.sendall(
            f"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: {BASIC}\r\nbroken header "
            f"{KEY}\r\n\r\n".encode()
        )
        read_all(basic)
        assert service.end() == 0
    assert leaks(service.log, SECRETS) == []
    events = [line["event"] for line in service.lines()]
    assert len(events) >= len(asked), "every request has its line"
    granted = next(
        line for line in service.lines() if line["event"] == "claim_task" and line["status"] == 200
    )
    assert (granted["task"], granted["session"], granted["generation"], granted["reason"]) == (
        "t",
        "s-1",
        1,
        "GRANTED",
    )


def test_the_scan_finds_what_is_there_in_any_form() -> None:
    from base64 import b64encode
    from urllib.parse import quote

    secret = 'a "secret"/value'
    for form in (
        secret,
        json.dumps(secret),
        quote(secret, safe=""),
        secret.encode().hex(),
        b64encode(secret.encode()).decode(),
    ):
        assert leaks(f"x{form}y", [secret]) == [secret]
    assert leaks("nothing", [secret]) == []
