"""One connection, seen from below: what it makes of pieces, when it closes, and what is handed over
without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from genlock.service.http.cycle import Cycle
from genlock.service.http.protocol import Bounds, Protocol, protocol_with

KEEP_ALIVE_SECONDS = 100
GET = b"GET /a%20b?c=d HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
ANSWER = (200, b"content-length: 2\r\n", b"ok")

App = Callable[[Any, Any, Any], Awaitable[None]]


class Loop(asyncio.SelectorEventLoop):
    """Its clock can be put ahead."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Wire(asyncio.Transport):
    """What is written, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


def in_loop(test: Callable[[Loop], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Loop)
        runner.run(test(loop))  # type: ignore[arg-type]


def connected(app: App, loop: Loop) -> tuple[Protocol, Wire]:
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_SECONDS
    )
    config.load()
    protocol = protocol_with(Bounds(10))(
        config=config, server_state=ServerState(), app_state={}, _loop=loop
    )
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def rounds(loop: Loop, seconds: float = 0.0) -> None:
    """Puts the clock ahead, and lets the loop go round until all that is due is done."""
    loop.ahead += seconds
    for _ in range(6):
        await asyncio.sleep(0)


async def answering(_: Any, __: Any, send: Any) -> None:
    assert send.__self__.write(*ANSWER)


def test_a_quiet_connection_is_closed_when_its_time_is_up() -> None:
    async def test(loop: Loop) -> None:
        protocol, wire = connected(answering, loop)
        protocol.data_received(GET)
        await rounds(loop)
        assert wire.written.endswith(b"ok")
        await rounds(loop, KEEP_ALIVE_SECONDS - 1)
        assert not wire.is_closed
        await rounds(loop, 2)
        assert wire.is_closed

    in_loop(test)


def test_one_that_was_used_meanwhile_has_as_long_again() -> None:
    async def test(loop: Loop) -> None:
        protocol, wire = connected(answering, loop)
        protocol.data_received(GET)
        await rounds(loop)
        await rounds(loop, KEEP_ALIVE_SECONDS - 1)
        protocol.data_received(GET)
        await rounds(loop)
        assert wire.written.count(b"ok") == 2
        await rounds(loop, KEEP_ALIVE_SECONDS - 1)
        assert not wire.is_closed
        await rounds(loop, 2)
        assert wire.is_closed

    in_loop(test)


def test_one_that_waits_for_its_answer_stays_open_and_is_closed_when_it_has_been_quiet_after_it() -> (
    None
):
    async def test(loop: Loop) -> None:
        may_answer = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["query_string"] == b"slow":
                await may_answer.wait()
            await answering(scope, receive, send)

        protocol, wire = connected(app, loop)
        protocol.data_received(GET)
        await rounds(loop)
        protocol.data_received(GET.replace(b"c=d", b"slow"))
        await rounds(loop, 3 * KEEP_ALIVE_SECONDS)
        assert not wire.is_closed
        may_answer.set()
        await rounds(loop)
        assert wire.written.count(b"ok") == 2
        await rounds(loop, KEEP_ALIVE_SECONDS - 1)
        assert not wire.is_closed
        await rounds(loop, 2)
        assert wire.is_closed

    in_loop(test)


def test_a_connection_that_has_gone_has_no_timer_left() -> None:
    async def test(loop: Loop) -> None:
        for error in (None, ConnectionResetError()):
            protocol, _ = connected(answering, loop)
            protocol.data_received(GET)
            await rounds(loop)
            assert protocol.timeout_keep_alive_task is not None
            protocol.connection_lost(error)
            assert protocol.timeout_keep_alive_task is None

    in_loop(test)


@pytest.mark.parametrize(
    ("first", "is_kept"),
    [
        ("HTTP/1.1\r\n", True),
        ("HTTP/1.1\r\nConnection: keep-alive\r\n", True),
        ("HTTP/1.1\r\nConnection: close\r\n", False),
        ("HTTP/1.0\r\n", False),
        ("HTTP/1.0\r\nConnection: keep-alive\r\n", False),
        ("HTTP/1.0\r\nProxy-Connection: keep-alive\r\n", False),
    ],
)
def test_a_request_is_of_the_version_that_it_says_whatever_it_says_of_its_connection(
    first: str, is_kept: bool
) -> None:
    async def test(loop: Loop) -> None:
        seen: list[str] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["http_version"])
            await answering(scope, receive, send)

        protocol, wire = connected(app, loop)
        protocol.data_received(f"GET / {first}host: localhost\r\n\r\n".encode())
        await rounds(loop)
        assert seen == [first[5:8]]
        assert wire.is_closed is not is_kept

    in_loop(test)


def test_one_task_sees_to_all_requests_of_a_connection_and_ends_with_it() -> None:
    async def test(loop: Loop) -> None:
        seen: set[asyncio.Task[Any] | None] = set()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.add(asyncio.current_task())
            if len(wire.written) > 1000:
                raise OSError("a fault of ours")
            await answering(scope, receive, send)

        protocol, wire = connected(app, loop)
        while b"500" not in wire.written:
            protocol.data_received(GET)
            await rounds(loop)
        (task,) = seen
        assert wire.written.count(b"200 OK") > 10
        assert protocol.tasks == {task}
        protocol.connection_lost(None)
        await rounds(loop)
        assert task is not None
        assert task.done()
        assert not protocol.tasks

    in_loop(test)


def test_a_request_waits_until_all_is_done_for_the_one_before_it() -> None:
    async def test(loop: Loop) -> None:
        may_end = asyncio.Event()
        begun: list[str] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            begun.append(scope["path"])
            await answering(scope, receive, send)
            if scope["path"] == "/first":
                await may_end.wait()

        protocol, wire = connected(app, loop)
        protocol.data_received(GET.replace(b"/a%20b", b"/first"))
        await rounds(loop)
        protocol.data_received(GET)
        await rounds(loop)
        assert begun == ["/first"]
        may_end.set()
        await rounds(loop)
        assert begun == ["/first", "/a b"]
        assert wire.written.count(b"ok") == 2

    in_loop(test)


@pytest.mark.parametrize("target", [b"/a%20b?c=d", b"http://localhost/a%20b?c=d", b"/a%20b?c=d#e"])
def test_path_and_query_are_told_apart_in_every_form(target: bytes) -> None:
    async def test(loop: Loop) -> None:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(
                (
                    scope["method"],
                    scope["path"],
                    scope["raw_path"],
                    scope["query_string"],
                    scope["http_version"],
                )
            )
            await answering(scope, receive, send)

        protocol, _ = connected(app, loop)
        protocol.data_received(GET.replace(b"/a%20b?c=d", target))
        await rounds(loop)
        assert seen == [("GET", "/a b", b"/a%20b", b"c=d", "1.1")]

    in_loop(test)


def test_a_body_is_handed_over_when_it_is_whole_however_many_pieces_it_came_in() -> None:
    async def test(loop: Loop) -> None:
        came: asyncio.Queue[Cycle] = asyncio.Queue()
        may_answer = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await came.put(send.__self__)
            await may_answer.wait()
            await answering(scope, receive, send)

        protocol, wire = connected(app, loop)
        protocol.data_received(POST + b"one")
        cycle = await came.get()
        assert cycle.take_body() is None
        protocol.data_received(b"two")
        assert cycle.take_body() is None
        protocol.data_received(b"six")
        assert cycle.take_body() == b"onetwosix"
        # What comes next for whoever goes on listening is the end.
        listening = asyncio.ensure_future(cycle.receive())
        await rounds(loop)
        assert not listening.done()
        may_answer.set()
        assert (await listening)["type"] == "http.disconnect"
        assert wire.written.endswith(b"ok")

    in_loop(test)


def test_whoever_waits_to_be_told_to_send_its_body_is_told() -> None:
    async def test(loop: Loop) -> None:
        came: asyncio.Queue[Cycle] = asyncio.Queue()
        bodies: list[bytes] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await came.put(send.__self__)
            bodies.append((await receive())["body"])
            await answering(scope, receive, send)

        protocol, wire = connected(app, loop)
        protocol.data_received(POST.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"))
        cycle = await came.get()
        assert cycle.take_body() is None
        await rounds(loop)
        assert wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        protocol.data_received(b"onetwosix")
        await rounds(loop)
        assert bodies == [b"onetwosix"]
        assert wire.written.endswith(b"ok")

    in_loop(test)


def test_an_answer_waits_for_a_client_that_does_not_read_and_is_written_to_nobody_who_has_gone() -> (
    None
):
    async def test(loop: Loop) -> None:
        came: asyncio.Queue[Cycle] = asyncio.Queue()

        async def app(_: Any, __: Any, send: Any) -> None:
            await came.put(send.__self__)
            status, head, body = ANSWER
            await send(
                {"type": "genlock.response.whole", "status": status, "head": head, "body": body}
            )

        protocol, wire = connected(app, loop)
        protocol.pause_writing()
        protocol.data_received(GET)
        cycle = await came.get()
        assert not cycle.write(*ANSWER)
        await rounds(loop)
        assert wire.written == b""
        protocol.resume_writing()
        await rounds(loop)
        assert wire.written.endswith(b"ok")

        protocol, wire = connected(app, loop)
        protocol.pause_writing()
        protocol.data_received(GET)
        cycle = await came.get()
        protocol.connection_lost(ConnectionResetError())
        await rounds(loop)
        assert not cycle.write(*ANSWER)
        assert wire.written == b""

    in_loop(test)


def test_a_head_asked_for_alone_has_no_body() -> None:
    async def test(loop: Loop) -> None:
        protocol, wire = connected(answering, loop)
        protocol.data_received(GET.replace(b"GET", b"HEAD"))
        await rounds(loop)
        assert wire.written == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"

    in_loop(test)


def test_what_follows_a_request_that_closes_the_connection_is_not_begun() -> None:
    async def test(loop: Loop) -> None:
        begun: list[str] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            begun.append(scope["path"])
            await answering(scope, receive, send)

        protocol, wire = connected(app, loop)
        last = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        protocol.data_received(last + b"x-pad: ".join([GET, b"\r\n"]) * 1000)
        await rounds(loop)
        assert wire.is_closed
        assert begun == ["/a b"]

    in_loop(test)
