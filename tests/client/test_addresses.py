"""A client that knows several services of one store: it stays with one, and goes on to the next
when that does not answer."""

from __future__ import annotations

import time
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from genlock.client.addresses import Addresses
from genlock.errors import BadArgument, ServiceUnreachable
from tests.client.test_client import _answer, answering
from tests.servers.postgres import free_port
from tests.servers.proxy import between
from tests.servers.service import Service

STOPPING = _answer(
    "503 Service Unavailable",
    b'{"type":"closed","title":"Stopping","status":503,"detail":"stopping","code":"CLOSED"}',
    genlock_protocol="1",
    retry_after="30",
)


def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    "url",
    [
        "http://a,",
        "http://a,,http://b",
        "http://a,b",
        "http://a:1,sqlite:///x.db",
        "http://a,http://u:secret@b",
    ],
)
def test_each_address_of_several_must_be_one(url: str) -> None:
    with pytest.raises(BadArgument) as raised:
        genlock.connect(url)
    assert "secret" not in str(raised.value)


def test_it_stays_where_it_is_answered_and_begins_again_after_the_last() -> None:
    addresses = Addresses("http://a:1/, https://b:2/below/,http://a:1")
    assert (str(addresses), addresses.secure, addresses.near) == (
        "http://a:1, https://b:2/below",
        True,
        False,
    )
    addresses.answered("http://a:1", 200)
    assert addresses.current == "http://a:1"
    addresses.leave("https://b:2/below")
    assert addresses.current == "http://a:1", "it was not there"
    addresses.leave("http://a:1")
    addresses.leave("http://a:1")
    assert addresses.current == "https://b:2/below", "who is late moves nobody"
    addresses.answered("https://b:2/below", 503)
    assert addresses.current == "http://a:1"


def test_who_is_refused_goes_on_to_the_next_and_stays_there(
    service: Service, place: dict[str, Any]
) -> None:
    heard: list[bytes] = []
    with (
        answering(STOPPING, heard=heard) as stopping,
        genlock.connect(
            f"{nobody()},{stopping},{service.url}", session_id="s1", agent_id="a1", **place
        ) as fleet,
    ):
        began = time.monotonic()
        fleet.add_tasks(tasks=["T"])
        assert time.monotonic() - began < 20, (
            "that one asks us to come again in 30 seconds is no matter to the other"
        )
        for _ in range(3):
            assert fleet.claim_task(task_id="T").success
    assert len(heard) == 1


def test_a_lost_answer_is_asked_for_at_the_next_under_the_same_id(
    service: Service, place: dict[str, Any], fleet: Coordinator
) -> None:
    fleet.add_tasks(tasks=["T", "U"])
    with (
        between(service.port) as proxy,
        genlock.connect(
            f"http://127.0.0.1:{proxy.port},{service.url}", session_id="s2", agent_id="a2", **place
        ) as far,
    ):
        proxy.cut_at_the_next_answer()
        first = far.claim_next()
        assert proxy.lost == 1
    assert first.claim is not None
    assert [claim.task_id for claim in fleet.get_active_claims_for_session(session_id="s2")] == [
        first.claim.task_id
    ]


def test_a_watch_goes_on_at_the_next_without_a_gap(
    service: Service, place: dict[str, Any], fleet: Coordinator
) -> None:
    with (
        between(service.port) as proxy,
        genlock.connect(f"http://127.0.0.1:{proxy.port},{service.url}", **place) as far,
    ):
        events = far.watch(after=fleet.read_events(tail=True, limit=1).cursor, timeout_seconds=30)
        fleet.add_tasks(tasks=["t-0"])
        seen = [next(event.id for event in events if event.kind == "task")]
        proxy.close()
        fleet.add_tasks(tasks=["t-1"])
        seen.append(next(event.id for event in events if event.kind == "task"))
        assert seen == ["t-0", "t-1"]


def test_when_none_answers_all_are_named() -> None:
    one, other = nobody(), nobody()
    with (
        genlock.connect(f"{one},{other}", deadline_seconds=0.3) as fleet,
        pytest.raises(ServiceUnreachable) as raised,
    ):
        fleet.ready()
    assert f"no answer from {one}, {other} within" in str(raised.value)
