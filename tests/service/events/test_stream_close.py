"""How streams end: by the client, by the service, by what happens to the store; and what is said
then."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import genlock
from genlock.errors import StoreUnavailable
from genlock.testing.concurrency import timed
from tests.service.events.streaming import Client, Event, Service, broken_off, streaming
from tests.service.events.test_streams import PATH, add

SMALL = 16 * 1024
LONG = "x" * 2000


def last_of(client: Client) -> Event:
    """Reads to the end of the stream."""
    *_, last = client.events()
    assert client.ended
    return last


# The client


def test_a_client_that_leaves_is_noticed_at_once(
    fleet: genlock.Coordinator, service: Service
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(service.port, PATH)) for _ in range(3)]
        for client in clients:
            client.block()
        assert (service.broker.clients, service.broker.clients_of("default")) == (3, 3)
    service.do(service.broker.idle())
    assert (service.broker.clients, service.broker.clients_of("default")) == (0, 0)


def fill(fleet: genlock.Coordinator, service: Service, count: int) -> None:
    """Writes so many large events, and returns when a client that reads has them all."""
    with Client(service.port, PATH) as quick:
        quick.block()
        for start in range(0, count, 50):
            add(fleet, *(f"A-{start + n:03}" for n in range(1, 51)), description=LONG)
            quick.take(50 + (start == 0))


def test_a_client_that_does_not_read_is_cut_off_and_resumes_without_a_gap(
    fleet: genlock.Coordinator,
) -> None:
    with streaming(
        fleet.engine, send_buffer=SMALL, queue_events=100, farewell_seconds=0.1
    ) as service:
        with Client(service.port, PATH, receive_buffer=SMALL) as slow:
            slow.block()
            fill(fleet, service, 400)
            service.do(service.broker.idle())
            got = broken_off(slow)
        assert 0 < len(got) < 401
        with Client(service.port, PATH, last=slow.last) as again:
            got += again.take(401 - len(got))
        assert [event.data["position"] for event in got] == list(range(1, 402))


def test_a_client_that_is_too_slow_is_told_so_and_how_to_resume(fleet: genlock.Coordinator) -> None:
    with streaming(
        fleet.engine, send_buffer=SMALL, queue_events=100, farewell_seconds=20
    ) as service:
        with Client(service.port, PATH, receive_buffer=SMALL) as slow:
            slow.block()
            fill(fleet, service, 400)
            *got, last = slow.events()
            assert slow.ended
        assert last.name == "genlock:too-slow"
        assert last.data["code"] == "TOO_SLOW"
        assert "Last-Event-ID" in last.data["reason"]
        assert last.data["after"] == slow.last == got[-1].id
        with Client(service.port, PATH, last=slow.last) as again:
            got += again.take(401 - len(got))
        assert [event.data["position"] for event in got] == list(range(1, 402))


def test_a_client_that_reads_nothing_of_what_it_asked_for_is_given_up_after_a_while(
    fleet: genlock.Coordinator,
) -> None:
    with streaming(fleet.engine, send_buffer=SMALL, send_seconds=0.2) as service:
        for start in range(0, 400, 50):
            add(fleet, *(f"A-{start + n:03}" for n in range(1, 51)), description=LONG)
        with Client(service.port, PATH + "?after=start", receive_buffer=SMALL) as silent:
            service.do(service.broker.idle())
            assert len(broken_off(silent)) < 401


# The service


def test_a_service_that_closes_ends_every_stream_with_a_hint_when_to_come_back(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001")
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(service.port, PATH)) for _ in range(20)]
        for client in clients:
            client.block()
        closed = timed(
            lambda: service.do(service.broker.close("the service restarts", retry_ms=1000))
        )
        for client in clients:
            last = last_of(client)
            assert last.name == "genlock:closing"
            assert last.data == {
                "reason": "the service restarts",
                "code": "CLOSING",
                "after": client.last,
            }
    # They are not to come back all at once.
    assert sorted(client.retry or 0 for client in clients) == [
        1000 + 50 * number for number in range(20)
    ]
    assert closed.ended - closed.began < 2_000_000_000
    with Client(service.port, PATH) as late:
        assert (late.status, late.body()["code"]) == (503, "CLOSED")


def test_a_client_that_does_not_read_does_not_hold_up_a_service_that_closes(
    fleet: genlock.Coordinator,
) -> None:
    with streaming(fleet.engine, send_buffer=SMALL, page_bytes=1 << 20) as service:
        for start in range(0, 400, 50):
            add(fleet, *(f"A-{start + n:03}" for n in range(1, 51)), description=LONG)
        with Client(service.port, PATH + "?after=start", receive_buffer=SMALL) as silent:
            closed = timed(lambda: service.do(service.broker.close()))
            assert service.broker.clients == 0
            assert closed.ended - closed.began < 3_000_000_000
            assert len(broken_off(silent)) < 401


def test_more_streams_than_there_may_be_are_refused(fleet: genlock.Coordinator) -> None:
    with (
        streaming(fleet.engine, most_streams=3, most_streams_per_tenant=2) as service,
        ExitStack() as stack,
    ):

        def come(path: str) -> Client:
            client = stack.enter_context(Client(service.port, path))
            if client.status == 200:
                client.block()
            return client

        assert [come("/one/p").status for _ in range(2)] == [200, 200]
        third = come("/one/p")
        assert (third.status, third.body()["code"]) == (429, "TOO_MANY_STREAMS")
        assert come("/two/p").status == 200
        fifth = come("/two/p")
        assert (fifth.status, fifth.body()["code"]) == (503, "SERVICE_FULL")


def test_a_stream_ends_soon_after_its_permission(fleet: genlock.Coordinator) -> None:
    with (
        streaming(fleet.engine, look_seconds=0.05) as service,
        Client(service.port, PATH) as client,
    ):
        client.block()
        assert service.asked.wait(20)
        service.allowed = False
        last = last_of(client)
        assert (last.name, last.data["code"]) == ("genlock:closing", "NOT_ALLOWED")


def test_what_cannot_be_asked_now_is_asked_again_and_the_stream_goes_on(
    fleet: genlock.Coordinator,
) -> None:
    with (
        streaming(fleet.engine, look_seconds=0.02, heartbeat_seconds=0.05) as service,
        Client(service.port, PATH) as client,
    ):
        client.block()
        service.trouble = StoreUnavailable("away")
        service.asked.clear()
        assert service.asked.wait(20)
        assert client.block() == ": beat"
        service.trouble = None
        service.allowed = False
        assert last_of(client).data["code"] == "NOT_ALLOWED"


def test_a_stream_does_not_go_on_where_its_permission_cannot_be_asked_at_all(
    fleet: genlock.Coordinator,
) -> None:
    with (
        streaming(fleet.engine, look_seconds=0.02) as service,
        Client(service.port, PATH) as client,
    ):
        client.block()
        service.trouble = RuntimeError("a fault in the question")
        assert last_of(client).name == "genlock:closing"
        assert service.complaints.pop() == "a chore of the streams has failed"


def test_a_tenant_that_outgrows_its_stream_is_told_so(fleet: genlock.Coordinator) -> None:
    add(fleet, "A-001", project="one")
    with streaming(fleet.engine, most_projects=1, look_seconds=0.05) as service:
        with Client(service.port, "/default") as client:
            client.block()
            add(fleet, "A-001", project="two")
            last = last_of(client)
            assert (last.name, last.data["code"]) == ("genlock:closing", "BAD_ARGUMENT")
            assert "at most 1 projects" in last.data["reason"]
        with Client(service.port, "/default", last=client.last) as again:
            assert again.status == 400


# The store


def test_a_cursor_that_is_lost_is_said_before_the_stream_begins(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001")
    cursor = fleet.read_events(tail=True).cursor
    fleet.engine.store.set_epoch(1)
    for path, last in ((PATH, cursor), (f"{PATH}?after={cursor}", "")):
        with Client(service.port, path, last=last) as client:
            assert (client.status, client.body()["code"]) == (410, "CURSOR_LOST")
    with Client(service.port, "/other/default", last=cursor) as client:
        assert client.status == 410


def test_a_cursor_that_is_lost_while_the_stream_runs_ends_it(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001")
    with Client(service.port, PATH) as client:
        client.block()
        fleet.engine.store.set_epoch(1)
        last = last_of(client)
        assert (last.name, last.data["code"], client.retry) == (
            "genlock:cursor-lost",
            "CURSOR_LOST",
            3000,
        )
        assert "epoch" in last.data["reason"]
    with Client(service.port, PATH) as client:
        client.block()
        fleet.hold_task(task_id="A-001", reason="x")
        assert "TASK_HELD" in [client.take(1)[0].name for _ in range(2)]


def test_a_coordinator_that_is_closed_ends_its_streams(
    fleet: genlock.Coordinator, service: Service
) -> None:
    with Client(service.port, PATH) as client:
        client.block()
        threading.Thread(target=fleet.close).start()
        last = last_of(client)
        assert (last.name, last.data["code"]) == ("genlock:closing", "CLOSED")
