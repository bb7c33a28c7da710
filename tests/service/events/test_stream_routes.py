"""The streams as routes of the whole service: paths, keys, problems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Router

import genlock
from genlock.coordinator import AsyncCoordinator
from genlock.core.key_roles import Role
from genlock.service.app import App
from genlock.service.auth.permissions import Grant
from genlock.service.context import ServiceContext
from genlock.service.events import EventBroker, StreamSettings
from genlock.service.events.routes import stream_routes
from tests.logs import watch
from tests.servers.service import Service, authenticator
from tests.service.events.streaming import Client


class Whole(Service):
    """The service with nothing but its operations and its streams. The keys are what a test
    says."""

    def __init__(self, url: str) -> None:
        super().__init__(url, app=self._app)
        self.keys = {
            "all": Grant("k1", "ann", "acme", "*", Role.OBSERVER),
            "some": Grant("k2", "bob", "acme", "web-*", Role.OBSERVER),
            "other": Grant("k3", "eve", "other", "*", Role.ADMIN),
        }

    def _app(self, coordinator: AsyncCoordinator) -> App:
        running, entrance = ServiceContext(coordinator), authenticator(self.keys, None)
        self.broker = EventBroker(coordinator.reader, StreamSettings(look_seconds=0.05))
        running.on_stop.append(self.broker.close)
        return App(running, entrance, Router(stream_routes(self.broker, entrance)), watch)


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Whole]:
    with Whole(f"sqlite://{tmp_path / 'genlock.db'}") as whole:
        yield whole


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[genlock.Coordinator]:
    """Another process, as far as the service can tell."""
    with genlock.connect(
        f"sqlite://{tmp_path / 'genlock.db'}", create=True, tenant_id="acme"
    ) as writer:
        yield writer


def get(whole: Whole, path: str, key: str, **more: Any) -> Client:
    return Client(whole.port, path, headers={"authorization": f"Bearer {key}"}, **more)


def test_a_project_s_stream_is_served_with_its_key(
    whole: Whole, writer: genlock.Coordinator
) -> None:
    with get(whole, "/v1/acme/web-1/events/stream?type=TASK_ADDED", "some") as client:
        assert client.status == 200
        writer.add_tasks(tasks=["A-001"], project_id="web-1")
        assert client.take(1)[0].data["id"] == "A-001"


def test_a_tenant_s_stream_has_what_its_key_sees(whole: Whole, writer: genlock.Coordinator) -> None:
    for project in ("web-1", "db", "web-2"):
        writer.add_tasks(tasks=["A-001"], project_id=project)
    with get(whole, "/v1/acme/events/stream?after=start&type=TASK_ADDED", "some") as client:
        assert {event.data["event"]["project_id"] for event in client.take(2)} == {"web-1", "web-2"}
    with get(
        whole, "/v1/acme/events/stream?after=start&type=TASK_ADDED&project=db&project=web-2", "all"
    ) as client:
        assert {event.data["event"]["project_id"] for event in client.take(2)} == {"db", "web-2"}


@pytest.mark.parametrize(
    ("path", "key", "status", "code"),
    [
        ("/v1/acme/web-1/events/stream", "wrong", 401, "KEY_REFUSED"),
        ("/v1/acme/web-1/events/stream", "other", 404, "ROUTE_NOT_FOUND"),
        ("/v1/acme/db/events/stream", "some", 404, "ROUTE_NOT_FOUND"),
        ("/v1/acme/events/stream", "other", 404, "ROUTE_NOT_FOUND"),
        ("/v1/acme/events/stream?project=db", "some", 404, "ROUTE_NOT_FOUND"),
        ("/v1/acme/web-1/events/stream?project=web-2", "all", 400, "BAD_ARGUMENT"),
        ("/v1/acme/web-1/events/stream?since=now", "all", 400, "BAD_ARGUMENT"),
        ("/v1/acme/web-1/events/stream?after=a&after=b", "all", 400, "BAD_ARGUMENT"),
        ("/v1/acme/web-1/events/stream?type=%ff", "all", 400, "BAD_ARGUMENT"),
        ("/v1/acme/web-1/events/stream?after=nonsense", "all", 400, "BAD_ARGUMENT"),
        ("/v1/a%20b/events/stream", "all", 400, "BAD_ARGUMENT"),
    ],
)
def test_what_is_refused_is_a_problem_like_any_other(
    whole: Whole, path: str, key: str, status: int, code: str
) -> None:
    with get(whole, path, key) as client:
        assert (client.status, client.headers["content-type"]) == (
            status,
            "application/problem+json",
        )
        assert client.body()["code"] == code


def test_a_cursor_that_is_lost_is_gone(whole: Whole, writer: genlock.Coordinator) -> None:
    writer.add_tasks(tasks=["A-001"], project_id="web-1")
    cursor = writer.read_events(tail=True, project_id="web-1").cursor
    with get(whole, "/v1/acme/web-2/events/stream", "all", last=cursor) as client:
        assert (client.status, client.body()["code"]) == (410, "CURSOR_LOST")


@pytest.mark.parametrize(
    "later", [None, Grant("k2", "bob", "acme", "db", Role.OBSERVER)], ids=["revoked", "narrowed"]
)
def test_a_key_that_is_revoked_or_narrowed_ends_its_streams_and_no_others(
    whole: Whole, writer: genlock.Coordinator, later: Grant | None
) -> None:
    path = "/v1/acme/web-1/events/stream"
    with (
        get(whole, path, "some") as first,
        get(whole, path, "some") as second,
        get(whole, path, "all") as other,
    ):
        for client in (first, second, other):
            client.block()
        if later is None:
            del whole.keys["some"]
        else:
            whole.keys["some"] = later
        for client in (first, second):
            last = client.take(1)[0]
            assert (last.name, last.data["code"]) == ("genlock:closing", "NOT_ALLOWED")
        writer.add_tasks(tasks=["A-001"], project_id="web-1")
        assert other.take(2)[1].name == "TASK_ADDED"
