"""The events of a service as they come: none is missed, none comes twice, whatever breaks on the
way."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from genlock.core.results import FeedEvent
from genlock.errors import BadArgument, Closed, CursorLost, ServiceUnreachable
from tests.client.test_client import answering
from tests.servers.proxy import Proxy, between
from tests.servers.service import Service


def test_what_is_there_comes_first_and_then_what_happens(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["T"])
    start = fleet.read_events(limit=1).cursor
    events = fleet.watch(after=start, timeout_seconds=30)
    assert _until(events, "TASK_ADDED")[-1].id == "T"

    fleet.claim_task(task_id="T")

    assert _until(events, "CLAIM_ACQUIRED")[-1].id == "T"


def test_it_ends_when_it_stays_quiet(fleet: Coordinator) -> None:
    assert list(fleet.watch(timeout_seconds=0.2)) == []
    assert list(fleet.watch(timeout_seconds=0)) == []


def test_from_now_on_is_from_the_first_look(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["T"])
    assert [event.id for event in fleet.watch(timeout_seconds=0.2)] == []


@pytest.mark.parametrize(
    "keywords", [{"timeout_seconds": -1}, {"timeout_seconds": "1"}, {"project_id": "a b"}]
)
def test_bad_arguments_are_bad_arguments(fleet: Coordinator, keywords: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        next(fleet.watch(**keywords))


def test_a_cursor_of_another_store_is_lost(fleet: Coordinator, place: dict[str, Any]) -> None:
    with genlock.connect("memory://", **place) as other:
        other.add_tasks(tasks=["T"])
        cursor = other.read_events().cursor
    with pytest.raises(CursorLost):
        next(fleet.watch(after=cursor))


def test_a_broken_connection_makes_no_gap_and_no_double(
    service: Service, fleet: Coordinator, place: dict[str, Any]
) -> None:
    names = [f"t-{number:02}" for number in range(12)]
    with between(service.port) as proxy, _far(proxy, place) as far:
        events = far.watch(timeout_seconds=30)
        seen: list[str] = []
        begun = threading.Event()

        def read() -> None:
            for event in events:
                begun.set()
                seen.append(event.id)
                if event.id == names[-1]:
                    return

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        # Whatever was there before the reader's first look does not count: it is given something
        # until it has seen a thing.
        for attempt in range(1000):
            fleet.add_tasks(tasks=[f"first-{attempt}"])
            if begun.wait(0.05):
                break
        for name in names:
            proxy.cut()
            fleet.add_tasks(tasks=[name])
        reader.join(60)
        assert [name for name in seen if name in names] == names
        assert len(set(seen)) == len(seen)


def test_a_service_that_is_away_is_said_after_the_deadline(
    service: Service, place: dict[str, Any]
) -> None:
    with between(service.port) as proxy, _far(proxy, place, deadline_seconds=0.3) as far:
        events = far.watch()
        far.add_tasks(tasks=["T"])
        reader = threading.Thread(target=proxy.close)
        reader.start()
        reader.join(30)
        with pytest.raises(ServiceUnreachable):
            list(events)


def test_a_stream_that_is_cut_off_now_and_then_is_followed_however_quiet_it_is(
    service: Service, place: dict[str, Any]
) -> None:
    """What stands between client and service ends a stream after a while. Each one was open for
    longer than an attempt may take."""
    names: list[str] = []
    with between(service.port) as proxy, _far(proxy, place, deadline_seconds=0.2) as far:

        def read() -> None:
            names.append(_until(far.watch(timeout_seconds=60), "TASK_ADDED")[-1].id)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        for _ in range(5):
            reader.join(1.3)
            proxy.cut()
        assert reader.is_alive(), "it has given up on a service that is there"
        with genlock.connect(service.url, **place) as fleet:
            fleet.add_tasks(tasks=["T"])
        reader.join(30)
    assert names == ["T"]


def test_whoever_watches_takes_no_thread_from_others(
    service: Service, fleet: Coordinator, place: dict[str, Any]
) -> None:
    """By name, so that an address has to be looked up: that takes a thread too."""
    many = min(32, (os.cpu_count() or 1) + 4) + 1
    fleet.add_tasks(tasks=["T"])
    start = fleet.read_events(limit=1).cursor

    async def main() -> None:
        async with genlock.aio.connect(
            service.url.replace("127.0.0.1", "localhost"), **place
        ) as far:
            watches = [far.watch(after=start) for _ in range(many)]
            for watch in watches:
                assert (await anext(watch)).id == "T"
            watching = [asyncio.ensure_future(anext(watch)) for watch in watches]
            assert len(await asyncio.ensure_future(far.ready())) == 1
        assert {type(each) for each in await asyncio.gather(*watching, return_exceptions=True)} == {
            Closed
        }

    asyncio.run(asyncio.wait_for(main(), 30))


def _far(proxy: Proxy, place: dict[str, Any], **options: Any) -> Coordinator:
    return genlock.connect(
        f"http://127.0.0.1:{proxy.port}",
        session_id="s1",
        agent_id="alice",
        **({"deadline_seconds": 20} | options),
        **place,
    )


def _until(events: Iterator[FeedEvent], kind: str) -> list[FeedEvent]:
    found = []
    for event in events:
        found.append(event)
        if event.event_type == kind:
            return found
    raise AssertionError(f"no {kind} came, but {[event.event_type for event in found]}")


def test_a_watch_that_is_cancelled_or_closed_lets_its_thread_go() -> None:
    """The stream is open and silent: without a word from us its thread would wait for a sign of
    life."""
    head = (
        b"HTTP/1.1 200 OK\r\ngenlock-protocol: 1\r\ncontent-type: "
        b"text/event-stream\r\ncontent-length: 1000\r\n\r\n: hello\n\n"
    )

    async def main(url: str, opened: threading.Event, *, cancel: bool) -> None:
        async with genlock.aio.connect(url) as fleet:
            events = fleet.watch()
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.get_running_loop().run_in_executor(None, opened.wait, 30)
            if cancel:
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    await waiting
                await events.aclose()  # type: ignore[attr-defined]
        if not cancel:
            with pytest.raises(Closed):
                await waiting

    for cancel in (True, False):
        with silent(head) as (url, opened):
            asyncio.run(main(url, opened, cancel=cancel))
            for thread in threading.enumerate():
                if thread.name.startswith("genlock-watch"):
                    thread.join(30)
                    assert not thread.is_alive()


@contextmanager
def silent(head: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Answers two pages, then begins a stream and says nothing more."""
    listening = socket.create_server(("127.0.0.1", 0))
    opened, over = threading.Event(), threading.Event()

    def serve() -> None:
        for answer in (_page(), _page()):
            near, _ = listening.accept()
            with near:
                near.recv(65536)
                near.sendall(answer)
        near, _ = listening.accept()
        with near:
            near.recv(65536)
            near.sendall(head)
            opened.set()
            over.wait(60)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", opened
        over.set()
        thread.join(10)


# Streams as they are written: what the service says of itself.


def _page(*ids: str, cursor: str = "c0") -> bytes:
    events = ",".join(_event(name) for name in ids)
    return _json(f'{{"events":[{events}],"cursor":"{ids[-1] if ids else cursor}","more":false}}')


def _event(name: str) -> str:
    return f'{{"position":1,"cursor":"{name}","kind":"task","id":"{name}","event_type":"TASK_ADDED","event":{{}}}}'


def _json(body: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nconnection: close\r\ngenlock-protocol: 1\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


def _stream(*messages: str) -> bytes:
    body = "".join(f"{message}\n\n" for message in messages)
    return f"HTTP/1.1 200 OK\r\nconnection: close\r\ngenlock-protocol: 1\r\ncontent-type: text/event-stream\r\n\r\n{body}".encode()


def _sent(name: str) -> str:
    return f"id: {name}\nevent: TASK_ADDED\ndata: {_event(name)}"


def test_a_stream_is_read_with_its_signs_of_life() -> None:
    stream = _stream(
        ": hello",
        _sent("c1"),
        ": still here",
        _sent("c2"),
        'event: genlock:closing\nretry: 1\ndata: {"detail":"stopping"}',
    )
    with (
        answering(_page(), _page(), stream, _page("c3"), _stream()) as url,
        genlock.connect(url) as fleet,
    ):
        events = fleet.watch(timeout_seconds=20)
        assert [next(events).id for _ in range(3)] == ["c1", "c2", "c3"]


def test_who_was_too_slow_goes_on_behind_the_last_event() -> None:
    streams = [
        _stream(_sent("c1"), "event: genlock:too-slow\ndata: {}"),
        _page(),
        _stream(_sent("c2")),
    ]
    with answering(_page(), _page(), *streams) as url, genlock.connect(url) as fleet:
        events = fleet.watch(timeout_seconds=20)
        assert [next(events).id for _ in range(2)] == ["c1", "c2"]


def test_a_lost_cursor_is_raised_with_what_the_service_says() -> None:
    stream = _stream('event: genlock:cursor-lost\ndata: {"detail":"older than what is kept"}')
    with (
        answering(_page(), _page(), stream) as url,
        genlock.connect(url) as fleet,
        pytest.raises(CursorLost, match="older than what is kept"),
    ):
        next(fleet.watch())
