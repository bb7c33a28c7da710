"""What is sent to the service to harm it: it stays up, says what is wrong, and answers the others
meanwhile."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

import genlock
from genlock.service.compose import Choices
from genlock.service.http.protocol import Bounds, Protocol
from genlock.service.limits import HOLD_SECONDS
from genlock.wire.headers import PROTOCOL, PROTOCOL_HEADER
from tests.eventually import eventually
from tests.servers.service import PATIENCE_SECONDS, Hosted, Service, serving
from tests.service.process import ask, read_all

HOST = b"host: localhost\r\n"
TICK_SECONDS = 0.001
"""The event loop counts in these: a timer may ring up to one earlier than the clock of the test
says."""
CLAIM = (
    b"POST /v1/default/default/tasks/t/claim HTTP/1.1\r\n"
    + HOST
    + b"content-type: application/json\r\n"
)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One for all: that it answers the next test is part of every test before."""
    with serving(bounds=Bounds(2000, head_seconds=0.5, body_idle_seconds=0.5)) as running:
        yield running


@pytest.fixture(autouse=True)
def still_answers(service: Service) -> Iterator[None]:
    yield
    assert (
        told(service, b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n")[0] == 200
    )


def told(service: Hosted, sent: bytes) -> tuple[int, bytes]:
    """The status and body of what is answered to these bytes, after which the other side closes."""
    with service.connect() as connection:
        connection.sendall(sent)
        answer = read_all(connection)
    return int(answer.split(b" ", 2)[1]) if answer else 0, answer.partition(b"\r\n\r\n")[2]


class Others(threading.Thread):
    """Somebody who goes on working; `times` says how that went."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", service.port, timeout=PATIENCE_SECONDS
        )
        self._over = threading.Event()
        self.answered = threading.Semaphore(0)
        self.times: list[float] = []
        self.statuses: set[int] = set()

    def run(self) -> None:
        while not self._over.is_set():
            began = time.perf_counter()
            self.statuses.add(ask(self._connection, "GET", "/v1/default/default/policy")[0])
            self.times.append(time.perf_counter() - began)
            self.answered.release()
        self._connection.close()

    def stop(self) -> None:
        self._over.set()
        self.join(PATIENCE_SECONDS)


@contextmanager
def others(service: Service) -> Iterator[Others]:
    working = Others(service)
    working.start()
    try:
        assert working.answered.acquire(timeout=PATIENCE_SECONDS)
        yield working
    finally:
        working.stop()
    assert working.statuses == {200}


def test_heads_that_drip_in_are_cut_off_and_others_are_answered_meanwhile(service: Service) -> None:
    with ExitStack() as stack, others(service) as working:
        slow = [stack.enter_context(service.connect()) for _ in range(300)]
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: ")
        before = len(working.times)
        assert [read_all(connection) for connection in slow] == [b""] * 300
        assert len(working.times) - before > 5, "the others were answered while those were held"
        assert sorted(working.times)[len(working.times) // 2] < 1


def test_a_head_of_many_small_pieces_does_not_get_more_time(service: Service) -> None:
    with service.connect() as connection:
        began = time.monotonic()
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        pieces = 0
        try:
            while time.monotonic() - began < PATIENCE_SECONDS:
                connection.sendall(b"x-drip: y\r\n")
                pieces += 1
                connection.settimeout(0.05)
                try:
                    if connection.recv(100) == b"":
                        break
                except TimeoutError:
                    continue
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert pieces > 2
        assert time.monotonic() - began < PATIENCE_SECONDS


def test_who_says_nothing_at_all_is_sent_away(service: Service) -> None:
    with service.connect() as silent:
        assert read_all(silent) == b""


def test_a_body_that_does_not_come_is_not_waited_for(service: Service) -> None:
    rests = [
        b"content-length: 50\r\n\r\n",
        b"content-length: 50\r\n\r\n{",
        b"transfer-encoding: chunked\r\n\r\n5\r\n{",
    ]
    with ExitStack() as stack:
        waiting = [stack.enter_context(service.connect()) for _ in rests]
        for connection, rest in zip(waiting, rests, strict=True):
            connection.sendall(CLAIM + rest)
        assert [read_all(connection) for connection in waiting] == [b""] * len(rests)


@pytest.mark.parametrize("pieces", [1, 7], ids=["at once", "in pieces"])
def test_a_head_that_is_too_large_is_431(service: Service, pieces: int) -> None:
    sent = b"GET /healthz HTTP/1.1\r\n" + HOST + b"x-large: " + b"x" * 20_000 + b"\r\n\r\n"
    with service.connect() as connection:
        step = len(sent) // pieces + 1
        for at in range(0, len(sent), step):
            connection.sendall(sent[at : at + step])
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "HEAD_TOO_LARGE"


def test_a_line_that_never_ends_is_431(service: Service) -> None:
    assert told(service, b"GET /" + b"a" * 20_000)[0] == 431


def test_a_head_as_large_as_it_may_be_is_read(service: Service) -> None:
    sent = (
        b"GET /healthz HTTP/1.1\r\n"
        + HOST
        + b"connection: close\r\nx-large: "
        + b"x" * 16_000
        + b"\r\n\r\n"
    )
    assert told(service, sent)[0] == 200


def test_a_body_that_is_too_large_is_413_before_it_is_read(service: Service) -> None:
    status, body = told(service, CLAIM + b"content-length: 9999999999\r\n\r\n" + b"x" * 1000)
    assert (status, json.loads(body)["code"]) == (413, "OVER_LIMIT")


def test_a_body_that_grows_too_large_in_chunks_is_413(service: Service) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with service.connect() as connection:
        connection.sendall(CLAIM + b"transfer-encoding: chunked\r\n\r\n")
        try:
            for _ in range(64):
                connection.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "rest",
    [
        b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"transfer-encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n",
        b"transfer-encoding: chunked\r\n\r\n-5\r\n",
        b"content-length: -1\r\n\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: gzip\r\n\r\n",
        b"bad header\r\n\r\n",
        b"x: a\0b\r\n\r\n",
        b"x : y\r\n\r\n",
    ],
)
def test_a_body_or_header_that_is_broken_is_400(service: Service, rest: bytes) -> None:
    status, body = told(service, CLAIM + rest)
    assert (status, json.loads(body)["code"]) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    "line",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"hello there\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
    ],
)
def test_what_is_no_http_is_400(service: Service, line: bytes) -> None:
    assert told(service, line + b"\r\n")[0] == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"/v1/default/default/tasks/%00", 400),
        (b"/v1/default/default/tasks/%ff%fe", 400),
        (b"/v1/default/default/tasks/%zz", 400),
        (b"/v1/default/default/tasks/%", 400),
        (b"/v1/%2e%2e/default/tasks/t", 400),
        (b"/v1/default/default/tasks/..%2f..%2fetc", 404),
        (b"/v1/default/default/ready?limit=%ff", 400),
        (b"/v1/default/default/ready?limit=%00", 400),
        (b"//v1//default", 404),
        (b"/%00", 404),
        (b"/" + b"a/" * 3000, 404),
    ],
)
def test_garbage_in_a_path_is_refused_as_what_it_is(
    service: Service, path: bytes, status: int
) -> None:
    answered, body = told(
        service, b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"
    )
    assert answered == status
    assert json.loads(body)["status"] == status


def test_bytes_that_are_no_utf8_in_path_and_body_are_400(service: Service) -> None:
    assert told(service, b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n")[0] == 400
    status, body = told(
        service, CLAIM + b'connection: close\r\ncontent-length: 16\r\n\r\n{"agent_id":"\xff"}'
    )
    assert (status, json.loads(body)["code"]) == (400, "BAD_ARGUMENT")


def test_pipelined_requests_are_answered_in_order(service: Service) -> None:
    one = b"GET /healthz HTTP/1.1\r\n" + HOST + b"x-request-id: n%d\r\n\r\n"
    last = b"GET /readyz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"
    with service.connect() as connection:
        connection.sendall(b"".join(one % n for n in range(500)) + last)
        answers = read_all(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == 501
    assert answers.endswith(b'{"status":"ready"}')


def test_good_requests_before_garbage_are_answered_as_what_they_are(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(
            b"GET /readyz HTTP/1.1\r\n" + HOST + b"\r\n" + b"\x00\x01garbage\r\n\r\n"
        )
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'{"status":"ready"}' in answer


def test_http_1_0_and_the_absolute_form_are_understood(service: Service) -> None:
    assert told(service, b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n")[0] == 200
    assert told(service, b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 421
    assert (
        told(
            service,
            b"GET http://localhost/healthz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n",
        )[0]
        == 200
    )


@pytest.mark.parametrize(
    "path", [b"/v1/default/default/events/stream?after=start", b"/api/events?after=start"]
)
def test_a_stream_for_a_client_of_http_1_0_ends_with_its_connection_and_has_no_chunks(
    service: Service, path: bytes
) -> None:
    with service.connect() as connection, connection.makefile("rb") as read:
        connection.sendall(b"GET " + path + b" HTTP/1.0\r\n" + HOST + b"\r\n")
        head = b"".join(iter(read.readline, b"\r\n")).lower()
        assert head.startswith(b"http/1.1 200 ")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert read.readline().startswith(b"retry: ")


def test_two_hosts_are_one_too_many(service: Service) -> None:
    for second in (b"host: localhost\r\n", b"Host: elsewhere\r\n"):
        status, body = told(
            service, b"GET /healthz HTTP/1.1\r\n" + HOST + second + b"connection: close\r\n\r\n"
        )
        assert (status, json.loads(body)["code"]) == (400, "BAD_ARGUMENT")


def test_what_is_no_path_and_an_upgrade_are_no_trouble(service: Service) -> None:
    assert told(service, b"OPTIONS * HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n")[0] in (
        400,
        404,
    )
    assert told(service, b"CONNECT localhost:1 HTTP/1.1\r\n" + HOST + b"\r\n")[0] in (0, 400)
    upgrade = (
        b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: "
        b"x\r\nsec-websocket-version: 13\r\n\r\n"
    )
    with service.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + upgrade)
        assert connection.recv(20).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize(
    "length", [b"content-length: %d\r\n", b"transfer-encoding: chunked\r\nx-length: %d\r\n"]
)
def test_the_body_of_a_request_that_asks_for_another_protocol_is_no_request(
    service: Service, protocol: bytes, length: bytes
) -> None:
    hidden = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
    # Of two headers connection the parser heeds both.
    head = (
        CLAIM
        + b"connection: upgrade\r\nconnection: keep-alive\r\nupgrade: "
        + protocol
        + b"\r\n"
        + length % len(hidden)
        + b"\r\n"
    )
    for sent in ([head + hidden], [head, hidden]):
        with service.connect() as connection:
            answer = b""
            for piece in sent:
                with suppress(ConnectionError):
                    connection.sendall(piece)
                    answer += connection.recv(65536)
            with suppress(ConnectionError):
                answer += read_all(connection)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 3, "in its head, and in the detail and the message"
        assert b"in Java: HttpClient.Version.HTTP_1_1" in answer
        assert b"connection: close" in answer


def test_a_request_without_a_body_may_ask_for_another_protocol_in_vain(service: Service) -> None:
    asks = (
        b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: "
        b"AAMAAABk\r\ncontent-length: 0\r\n\r\n"
    )
    with service.connect() as connection:
        for _ in range(3):
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + asks)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("pieces", [1, 2])
def test_what_comes_behind_a_body_is_no_header(service: Service, pieces: int) -> None:
    head = CLAIM + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    rest = b'12\r\n{"agent_id":"amy"}\r\n0\r\ngenlock-session: amy\r\n\r\n'
    with service.connect() as connection:
        for piece in [head + rest] if pieces == 1 else [head, rest]:
            connection.sendall(piece)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"session" in answer


def test_a_client_that_asks_and_does_not_read_holds_up_nobody(service: Service) -> None:
    with ExitStack() as stack, others(service) as working:
        deaf = [stack.enter_context(service.connect()) for _ in range(50)]
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.sendall(
                (b"GET /v1/default/default/policy HTTP/1.1\r\n" + HOST + b"\r\n") * 50
            )
        for _ in range(20):
            assert working.answered.acquire(timeout=PATIENCE_SECONDS)


def test_connections_over_the_limit_are_answered_503_and_the_others_go_on() -> None:
    with serving(bounds=Bounds(5)) as small, ExitStack() as stack:
        first = [
            http.client.HTTPConnection("127.0.0.1", small.port, timeout=PATIENCE_SECONDS)
            for _ in range(5)
        ]
        for connection in first:
            stack.callback(connection.close)
            assert ask(connection, "GET", "/healthz")[0] == 200
        status, body = told(small, b"GET /v1/default/default/policy HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (status, json.loads(body)["code"]) == (503, "TOO_MANY_CONNECTIONS")
        status, body = told(small, b"GET /api/status HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (status, json.loads(body)["error"]) == (503, "TOO_MANY_CONNECTIONS")
        assert [ask(connection, "GET", "/healthz")[0] for connection in first] == [200] * 5
        first[0].close()
        asked = b"GET /v1/default/default/policy HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"
        eventually(lambda: told(small, asked)[0] == 200, "a connection to be let in again")


def protocol_of(service: Hosted, sent: bytes) -> tuple[int, str | None]:
    """The status of what is answered, and the protocol that it says it speaks."""
    with service.connect() as connection:
        connection.sendall(sent)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.headers[PROTOCOL_HEADER]


def test_also_who_is_turned_away_is_told_which_protocol_is_spoken(service: Service) -> None:
    request, spoken = (
        b"GET /v1/default/default/policy HTTP/1.1\r\n" + HOST,
        f"{PROTOCOL} genlock/{genlock.__version__}",
    )
    assert protocol_of(service, request + b"\r\n") == (200, spoken)
    assert protocol_of(service, request + b"x-large: " + b"x" * 20_000 + b"\r\n\r\n") == (
        431,
        spoken,
    )
    assert protocol_of(service, b"GET /" + b"a" * 20_000) == (431, spoken)
    assert protocol_of(service, b"nonsense\r\n\r\n") == (400, spoken)
    with serving(bounds=Bounds(1)) as small, small.connect():
        assert protocol_of(small, request + b"\r\n") == (503, spoken)
        assert protocol_of(small, b"GET /api/status HTTP/1.1\r\n" + HOST + b"\r\n") == (503, spoken)


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz"])
def test_a_service_that_is_full_still_says_how_it_is(path: bytes) -> None:
    with serving(bounds=Bounds(2)) as small, ExitStack() as stack:
        for _ in range(2):
            connection = http.client.HTTPConnection(
                "127.0.0.1", small.port, timeout=PATIENCE_SECONDS
            )
            stack.callback(connection.close)
            assert ask(connection, "GET", "/v1/default/default/policy")[0] == 200
        # It ends after the answer, although its client has not asked for that: its place is for the
        # next one who wants to know.
        assert told(small, b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")[0] == 200


def test_requests_that_pile_up_on_a_connection_are_parsed_only_when_it_is_their_turn(
    service: Service,
) -> None:
    one = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
    last = b"GET /healthz HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"
    answered, piled = 0, 0
    with service.connect() as connection:
        sending = threading.Thread(
            target=connection.sendall, args=(one * 8_000 + last,), daemon=True
        )
        sending.start()
        while data := connection.recv(65536):
            answered += data.count(b"HTTP/1.1 200")
            piled = max(
                [
                    piled,
                    *(
                        len(each.pipeline)  # type: ignore[union-attr]
                        for each in list(service._server.server_state.connections)
                    ),
                ]
            )
        sending.join(PATIENCE_SECONDS)
    assert answered + 5 > 8_000, "a word may have been cut in two by reading"
    assert 1 < piled <= 16 * 1024 // len(one) + 1


def test_who_is_over_the_rate_waits_for_the_refusal_and_holds_up_nobody() -> None:
    with serving(choices=Choices(requests_a_second=2)) as service:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_SECONDS)
        statuses, times = [], []
        for _ in range(8):
            began = time.perf_counter()
            statuses.append(ask(connection, "GET", "/v1/default/default/policy")[0])
            times.append(time.perf_counter() - began)
        connection.close()
    refused = [took for status, took in zip(statuses, times, strict=True) if status == 429]
    assert statuses[:4] == [200] * 4
    assert refused
    assert min(refused) >= HOLD_SECONDS - TICK_SECONDS


def test_a_wrong_key_counts_as_many_and_a_good_one_of_the_same_address_is_not_held_up() -> None:
    with serving(choices=Choices(keys=True, requests_a_second=10)) as service:
        good = service.do(service.coordinator.create_key(name="good", role="admin")).text
        statuses = [
            service.http.get(
                "/v1/default/default/policy", headers={"authorization": "Bearer glk_wrong"}
            ).status_code
            for _ in range(3)
        ]
        assert statuses == [401, 401, 429], "two seconds' worth of ten a second are two of these"
        assert (
            service.http.get(
                "/v1/default/default/policy", headers={"authorization": f"Bearer {good}"}
            ).status_code
            == 200
        )


def test_who_leaves_while_its_refusal_is_held_back_is_forgotten_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("genlock.service.limits.HOLD_SECONDS", 3600.0)
    with serving(choices=Choices(requests_a_second=1)) as service:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_SECONDS)
        assert [ask(connection, "GET", "/v1/default/default/policy")[0] for _ in range(2)] == [
            200,
            200,
        ]
        under_way = service._server.server_state.tasks
        connection.request("GET", "/v1/default/default/policy")
        eventually(lambda: under_way, "the work to begin")
        connection.close()
        eventually(lambda: not under_way, "the end of work for a client that has left")


def test_what_clients_ask_who_have_left_meanwhile_is_not_begun() -> None:
    here, gate = threading.Event(), threading.Event()
    begun: list[str] = []

    def stand_still() -> None:
        here.set()
        assert gate.wait(PATIENCE_SECONDS)

    async def app(scope: Any, _: Any, send: Any) -> None:
        begun.append(scope["path"])
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body"})

    with Hosted(app) as service:
        service.loop.call_soon_threadsafe(stand_still)
        assert here.wait(PATIENCE_SECONDS)
        for _ in range(20):
            with service.connect() as connection:
                connection.sendall(b"GET /gone HTTP/1.1\r\n" + HOST + b"\r\n")
        gate.set()
        assert (
            told(service, b"GET /here HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n")[0] == 200
        )
    assert begun == ["/here"]


def test_a_connection_that_has_gone_leaves_nothing_to_the_collector() -> None:
    policy = b"GET /v1/default/default/policy HTTP/1.1\r\n" + HOST

    def is_left() -> bool:
        return any(
            isinstance(each, Protocol) and type(each).bounds is bounds for each in gc.get_objects()
        )

    with serving() as service:
        bounds = service._bounds
        gc.disable()
        try:
            for _ in range(3):
                told(service, policy + b"connection: close\r\n\r\n")
                told(service, b"GET nonsense\r\n\r\n")
                for many in (1, 6):
                    with service.connect() as connection:
                        connection.sendall((policy + b"\r\n") * many)
            eventually(lambda: not is_left(), "nothing of it to be left")
        finally:
            gc.enable()


def test_what_comes_after_a_refusal_is_not_read_for_long(service: Service) -> None:
    sent = 0
    with service.connect() as connection:
        connection.sendall(CLAIM + b"content-length: 9999999999\r\n\r\n")
        assert connection.recv(20).startswith(b"HTTP/1.1 413")
        try:
            while sent < 1_000_000_000:
                sent += connection.send(b"x" * 65536)
        except OSError:
            pass
    assert sent < 50_000_000, "it was read on and on"
