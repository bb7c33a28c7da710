"""Streams that nobody reads: how many one caller may have, and how little each of them costs."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import genlock
from genlock.service.compose import Choices
from tests.eventually import eventually
from tests.servers.service import Service, serving
from tests.service.events.streaming import Client
from tests.service.process import serve
from tests.service.usage import usage_of

PROJECT = "/v1/default/default/events/stream"
TENANT = "/v1/default/events/stream"
API = "/api/events"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path / 'genlock.db'}"


@pytest.fixture
def fleet(url: str) -> Iterator[genlock.Coordinator]:
    with genlock.connect(url, create=True, process=None) as fleet:
        fleet.add_tasks(tasks=["A-001"])
        yield fleet


# How many


def opened(stack: ExitStack, service: Service, path: str, key: str = "") -> Client:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    client = stack.enter_context(Client(service.port, path, headers=headers))
    if client.status == 200:
        client.block()
    return client


def test_a_key_has_so_many_streams_wherever_they_are_and_other_keys_have_their_own(
    url: str, fleet: genlock.Coordinator
) -> None:
    one, other = (fleet.create_key(name=name, role="observer") for name in ("one", "other"))
    with serving(url, choices=Choices(keys=True, streams=3)) as service, ExitStack() as stack:
        first, *_ = (opened(stack, service, path, one.text) for path in (PROJECT, TENANT, API))
        refused = opened(stack, service, PROJECT, one.text)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        said = refused.body()
        assert said["code"] == "TOO_MANY_STREAMS"
        assert said["detail"] == (
            f"key '{one.key.key_id}' has 3 event streams open, the most it may have (limit "
            "streams, set by genlock serve --streams); "
            "close one, or come back later"
        )
        assert opened(stack, service, API, one.text).body()["error"] == "TOO_MANY_STREAMS"
        assert opened(stack, service, PROJECT, other.text).status == 200
        first.close()

        def reopened() -> bool:
            again = opened(stack, service, PROJECT, one.text)
            if again.status == 429:
                again.close()
            return again.status == 200

        eventually(reopened, "the slot of the stream that was closed")


GET = b"GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
POST = b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000\r\n\r\n"


@pytest.mark.parametrize("when", ["with it", "behind its head"])
@pytest.mark.parametrize(
    "behind",
    [GET % b"/healthz", GET % b"/healthz" * 5_000, POST + b"x" * 99, b"G"],
    ids=["a request", "thousands", "a part of a body", "a part of a head"],
)
def test_a_stream_with_requests_behind_it_ends_when_its_client_closes(
    url: str, fleet: genlock.Coordinator, behind: bytes, when: str
) -> None:
    stream = GET % PROJECT.encode()
    with serving(url, choices=Choices(streams=1)) as service, ExitStack() as stack:
        with service.connect() as client:
            client.sendall(stream + behind if when == "with it" else stream)
            assert client.recv(12) == b"HTTP/1.1 200"
            if when == "behind its head":
                client.sendall(behind)
            refused = opened(stack, service, PROJECT)
            assert refused.status == 429

        def reopened() -> bool:
            again = opened(stack, service, PROJECT)
            if again.status == 429:
                again.close()
            return again.status == 200

        eventually(reopened, "the slot of the stream that was closed", seconds=5)


def test_a_client_that_sends_on_behind_its_stream_is_cut_off(
    url: str, fleet: genlock.Coordinator
) -> None:
    with serving(url) as service, service.connect() as client:
        client.sendall(GET % PROJECT.encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        with pytest.raises(ConnectionError):
            client.sendall(GET % b"/healthz" * 1_000_000)


def test_where_no_keys_are_asked_for_an_address_has_so_many_streams(
    url: str, fleet: genlock.Coordinator
) -> None:
    with serving(url, choices=Choices(streams=2)) as service, ExitStack() as stack:
        assert [opened(stack, service, path).status for path in (PROJECT, API, PROJECT)] == [
            200,
            200,
            429,
        ]
        refused = opened(stack, service, PROJECT).body()
        assert refused["detail"].startswith(
            "the address 127.0.0.1 has 2 event streams open, the most it may have (limit streams, "
        )


# What they cost


def unread(stack: ExitStack, port: int, count: int) -> None:
    """So many streams from the first event on, of which nothing is read but that they have
    begun."""
    for _ in range(count):
        client = stack.enter_context(closing(socket.socket()))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(("127.0.0.1", port))
        client.sendall(f"GET {PROJECT}?after=start HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    ("streams", "megabytes"), [(100, 120), pytest.param(1500, 350, marks=pytest.mark.slow)]
)
def test_streams_that_nobody_reads_take_little_memory_on_a_busy_feed(
    tmp_path: Path, streams: int, megabytes: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    with serve(tmp_path, "--trust-local", "--streams", "2000") as service, ExitStack() as stack:
        fleet = stack.enter_context(
            genlock.connect(f"sqlite://{tmp_path}/served.db", create=True, process=None)
        )
        for batch in range(100):
            fleet.add_tasks(tasks=[f"A-{batch:03}{number:02}" for number in range(40)])
            if batch == 20:
                unread(stack, service.port, streams)
        used = usage_of(service.process.pid).megabytes
        print(f"{streams:,} streams that nobody reads: {used:.0f} MB")
        assert used <= megabytes


def test_a_client_that_catches_up_on_events_of_any_size_misses_and_doubles_nothing(
    url: str, fleet: genlock.Coordinator
) -> None:
    for number in range(1, 8):
        task = f"B-{number:03}"
        fleet.add_tasks(tasks=[task])
        claim = fleet.claim_task(task_id=task, session_id="s1", agent_id="a1").claim
        assert claim is not None
        fleet.submit_result(
            task_id=task, session_id="s1", generation=claim.generation, result_data="x" * 20_000
        )
    fleet.add_tasks(tasks=[f"C-{number:03}" for number in range(1, 300)])
    with serving(url) as service, Client(service.port, f"{PROJECT}?after=start") as client:
        events = [client.take(1)[0] for _ in range(300)]
        # After all that was there comes what happens now.
        fleet.next_id()
        while events[-1].name != "IDS_TAKEN":
            events += client.take(1)
    assert [event.data["position"] for event in events] == list(range(1, len(events) + 1))
    assert sum(event.name == "RESULT_ACCEPTED" for event in events) == 7
