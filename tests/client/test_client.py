"""The remote client as its callers see it: the coordinator's own methods, answers and errors,
wherever the coordinator is."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

import genlock
import genlock.aio
from genlock import AsyncCoordinator, Coordinator
from genlock.client.addresses import Addresses
from genlock.client.call import Deadline
from genlock.client.coordinator import AsyncRemoteCoordinator, RemoteCoordinator
from genlock.client.replies import AnswerLost
from genlock.client.requests import request_of
from genlock.client.transport import Transport, lost
from genlock.core.model import Identity, Process
from genlock.engine.processes import identify
from genlock.errors import (
    BadArgument,
    Busy,
    Closed,
    GenlockError,
    KeyRefused,
    NotAllowed,
    OutcomeUnknown,
    PlanInvalid,
    RoleRefused,
    RouteNotFound,
    ServiceError,
    ServiceMismatch,
    ServiceUnreachable,
    StoreUnavailable,
    TaskNotFound,
    TooManyRequests,
)
from genlock.plans import PlanFile
from genlock.service.compose import Choices
from genlock.wire.operations import ROUTES, ClaimTask
from tests.servers.proxy import Proxy
from tests.servers.service import Service, serving

METHODS = [*(route.name for route in ROUTES), "watch"]


# The same methods


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("own", "remote"),
    [(Coordinator, RemoteCoordinator), (AsyncCoordinator, AsyncRemoteCoordinator)],
)
def test_a_method_takes_what_the_coordinator_s_takes(own: type, remote: type, name: str) -> None:
    assert _parameters(getattr(remote, name)) == _parameters(getattr(own, name))
    assert getattr(remote, name).__doc__
    assert getattr(remote, name).__name__ == name


def _parameters(method: Callable[..., Any]) -> dict[str, tuple[object, object]]:
    found = inspect.signature(method).parameters.values()
    return {each.name: (each.kind, each.default) for each in found if each.name != "self"}


WORKER_METHODS = {"claim", "next_task", "work", "worker"}


@pytest.mark.parametrize("remote", [RemoteCoordinator, AsyncRemoteCoordinator])
def test_there_is_a_method_for_every_route_and_nothing_else(remote: type) -> None:
    assert {name for name in dir(remote) if not name.startswith("_")} == {
        *METHODS,
        *WORKER_METHODS,
        "close",
        "engine",
        "identity",
        "product_access",
    }


@pytest.mark.parametrize("session", [".", "..", "a.b", "José García", 'a "b" \\c', "100%"])
def test_a_session_is_found_by_its_name_whatever_an_address_makes_of_it(
    session: str, fleet: Coordinator
) -> None:
    fleet.register_session(session_id=session)
    fleet.heartbeat_session(session_id=session)
    assert fleet.get_session_memory(session_id=session).session_id == session
    assert fleet.end_session(session_id=session).session_id == session


def test_what_no_operation_takes_is_a_type_error_here_too(fleet: Coordinator) -> None:
    with pytest.raises(TypeError):
        fleet.claim_task(task_id="T", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        fleet.claim_task()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        fleet.claim_task("T")  # type: ignore[call-arg]


def test_there_is_no_engine_on_this_side(fleet: Coordinator) -> None:
    with pytest.raises(NotAllowed, match="goes through the service at http://"):
        _ = fleet.engine


# The same answers


def test_embedded_and_remote_give_equal_answers(service: Service, place: dict[str, Any]) -> None:
    """One store, looked at from both sides."""
    with genlock.connect(
        service.url, session_id="s1", agent_id="alice", user_id="ada", **place
    ) as remote:
        remote.import_plan(
            source={"tasks": [{"id": "A-001-x"}, {"id": "A-002-y", "depends_on": ["A-001-x"]}]}
        )
        remote.claim_task(task_id="A-001-x", metadata={"model": "x"})
        remote.force_release(task_id="A-001-x", take_over=True)
        remote.submit_result(task_id="A-001-x", generation=1, result_data={"late": True})
        remote.register_session(agent_type="test")
        looks: list[tuple[str, dict[str, Any]]] = [
            ("get_task_state", {"task_id": "A-001-x"}),
            ("batch_get_states", {"task_ids": ("A-001-x", "A-009-no")}),
            ("get_claim_history", {"task_id": "A-001-x"}),
            ("get_lineage", {"task_id": "A-001-x"}),
            ("get_active_claims_for_session", {"session_id": "s1"}),
            ("ready", {"tracks": {"A"}}),
            ("ready", {"agent_id": "alice", "limit": 1}),
            ("blocked", {}),
            ("explain", {"task_id": "A-002-y", "agent_id": "bob", "session_id": "s2"}),
            ("list_refused_results", {"include_settled": True}),
            ("track_progress", {}),
            ("get_plan", {}),
            ("get_graph", {"around": "A-001-x", "depth": 1}),
            ("get_policy", {}),
            ("preview_reset", {"task_id": "A-001-x"}),
            ("list_sessions", {}),
            ("list_agents", {}),
            ("read_events", {"limit": 5}),
            ("read_events", {"task_id": "A-001-x"}),
            ("diff_plan", {"source": "tasks:\n  - id: B-001-z\n"}),
            ("check_plan", {"source": [PlanFile("plan.yaml", b"tasks:\n  - id: B-001-z\n")]}),
        ]
        for name, keywords in looks:
            here = service.do(_ask(service, name, keywords | place))
            assert getattr(remote, name)(**keywords) == here, name


async def _ask(service: Service, name: str, keywords: dict[str, Any]) -> Any:
    if name == "get_active_claims_for_session":
        keywords = {"session_id": "s1"}
    return await getattr(service.coordinator, name)(**keywords)


def test_a_result_comes_back_as_it_was_given(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["T"])
    fleet.claim_task(task_id="T")
    data = {"a": [1, 2.5, None, True], "ü": {"nested": ["x" * 100_000]}, "n": 2**60}
    assert fleet.submit_result(task_id="T", generation=1, result_data=data).accepted
    assert fleet.read_result(task_id="T") == data


@pytest.mark.parametrize("data", [{1, 2}, b"bytes", float("nan"), object(), {"x": "\ud800"}])
def test_what_is_no_json_is_refused_before_anything_is_sent(
    fleet: Coordinator, data: object
) -> None:
    with pytest.raises(BadArgument, match="result_data cannot be written as JSON"):
        fleet.submit_result(task_id="T", generation=1, result_data=data)


def test_whatever_can_be_gone_through_is_a_list(fleet: Coordinator) -> None:
    assert len(fleet.add_tasks(tasks=(name for name in ("T", "U")))) == 2
    assert set(fleet.batch_claim(task_ids={"T", "U"})) == {"T", "U"}


def test_what_is_looked_for_in_many_tracks_is_found_and_in_more_than_can_be_sent_is_refused_before_it_is(
    service: Service,
) -> None:
    """Whoever speaks may have the longest names there are: what is sent of them is part of the same
    head."""
    names = ["".join(letters) for letters in itertools.product("ABCDEFGHIJ", repeat=3)]
    longest: dict[str, Any] = {
        "session_id": "日" * 128,
        "agent_id": "語" * 128,
        "user_id": "本" * 128,
    }
    with genlock.connect(service.url, project_id="tracks", **longest) as fleet:
        fleet.add_tasks(tasks=["AAA-001-x"])
        assert [each.task.id for each in fleet.ready(tracks=names[:500])] == ["AAA-001-x"]
        with pytest.raises(BadArgument, match="tracks is too long"):
            fleet.ready(tracks=names)


def test_a_batch_has_the_error_of_each(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["T"])
    answers = fleet.batch_claim(task_ids=["T", "nope"])
    assert not isinstance(answers["T"], GenlockError)
    assert answers["T"].success
    assert isinstance(answers["nope"], TaskNotFound)


def test_the_faults_of_a_plan_arrive_with_their_places(fleet: Coordinator) -> None:
    with pytest.raises(PlanInvalid) as raised:
        fleet.import_plan(
            source=[PlanFile("plan.yaml", b"tasks:\n  - id: A-001-x\n    depends_on: [A-009-no]\n")]
        )
    assert "plan.yaml:3" in str(raised.value)


def test_progress_is_told_when_all_is_written(fleet: Coordinator) -> None:
    told: list[tuple[int, int]] = []
    fleet.import_plan(
        source={"tasks": [{"id": "T"}, {"id": "U"}]},
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(2, 2)]


# Who speaks


def test_a_missing_session_or_agent_is_said_as_everywhere_before_anything_is_sent() -> None:
    fleet = genlock.connect("http://127.0.0.1:1", deadline_seconds=0)
    embedded = genlock.connect("memory://")
    calls: list[Callable[[Coordinator], object]] = [
        lambda f: f.claim_task(task_id="T"),
        lambda f: f.claim_next(),
        lambda f: f.renew_lease(task_id="T", expected_generation=1),
        lambda f: f.heartbeat_session(),
        lambda f: f.get_active_claims_for_session(),
        lambda f: f.claim_task(task_id="no/id", session_id="s1", agent_id="a"),
        lambda f: f.get_task_state(task_id=7),  # type: ignore[arg-type]
        lambda f: f.ready(tenant_id="a b"),
        lambda f: f.register_session(session_id="s1", pid=0),
        lambda f: f.register_session(session_id="s1", process="me"),  # type: ignore[arg-type]
    ]
    for call in calls:
        assert _error(call, fleet) == _error(call, embedded)
    embedded.close()


def test_a_missing_agent_is_refused_by_the_service_which_knows_the_policy(
    service: Service, place: dict[str, Any]
) -> None:
    def claim(fleet: Coordinator) -> object:
        return fleet.claim_task(task_id="T", session_id="s1")

    embedded = genlock.connect("memory://")
    with genlock.connect(service.url, **place) as fleet:
        assert _error(claim, fleet) == _error(claim, embedded)
    embedded.close()


def _error(call: Callable[[Coordinator], object], fleet: Coordinator) -> str:
    with pytest.raises(BadArgument) as raised:
        call(fleet)
    return str(raised.value)


def test_who_speaks_is_known_at_the_other_end(service: Service, place: dict[str, Any]) -> None:
    with genlock.connect(
        service.url,
        session_id="sitzung ü/1".replace("/", "-"),
        agent_id="älice",
        user_id="ada %41",
        **place,
    ) as fleet:
        fleet.add_tasks(tasks=["T"])
        claim = fleet.claim_task(task_id="T").claim
        assert claim is not None
        assert (claim.session_id, claim.agent_id) == ("sitzung ü-1", "älice")
        event = next(
            each for each in fleet.read_events().events if each.event_type == "CLAIM_ACQUIRED"
        ).event
        assert event["actor"]["user_id"] == "ada %41"
        assert event["actor"]["host"] == os.uname().nodename
        assert event["actor"]["client_ip"] == "127.0.0.1"
        (session,) = fleet.list_sessions()
        assert session.pid == os.getpid()
        assert fleet.heartbeat_session().session_id == "sitzung ü-1"


def test_a_pid_is_looked_up_on_the_caller_s_machine(fleet: Coordinator) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        info = fleet.register_session(pid=child.pid)
        assert (info.pid, info.process_gone) == (child.pid, False)
    with pytest.raises(
        BadArgument, match=f"process {child.pid} does not exist or cannot be seen from here"
    ):
        fleet.register_session(pid=child.pid)
    elsewhere = Process("elsewhere", "boot", 7, 7)
    assert fleet.register_session(session_id="s9", process=elsewhere).host == "elsewhere"


def test_dates_are_taken_where_the_coordinator_takes_them(fleet: Coordinator) -> None:
    day, instant = date(2126, 1, 31), datetime(2126, 1, 31, 9, tzinfo=UTC)
    dated = {"not_before": instant, "metadata": {"due": [day, instant]}, "seen": day}
    tasks: list[Any] = [{"id": "T", **dated}]
    with genlock.connect("memory://", session_id="s", agent_id="a") as embedded:
        for one in (embedded, fleet):
            one.add_tasks(tasks=tasks)
            one.import_plan(source={"tracks": {"A": [{"id": "A-001-x", **dated}]}})
            one.edit_task(task_id="T", changes={"metadata": {"due": day}})
            assert (
                one.create_key(name="ci", role="agent", expires_at=instant).key.expires_at
                == instant
            )
        assert fleet.get_plan().tasks == embedded.get_plan().tasks


def test_a_forked_child_has_connections_and_an_identity_of_its_own(
    service: Service, place: dict[str, Any]
) -> None:
    with genlock.connect(service.url, session_id="s1", agent_id="alice", **place) as fleet:
        fleet.add_tasks(tasks=["T", "U"])
        fleet.claim_task(task_id="T")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                claimed = fleet.claim_task(task_id="U", session_id="s2")
                own = identify()
                status = (
                    0
                    if claimed.success and own is not None and fleet.identity.process == own
                    else 2
                )
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert fleet.get_task_state(task_id="U").state == "IN_PROGRESS"
        (session,) = [each for each in fleet.list_sessions() if each.session_id == "s2"]
        assert session.pid == child


class _Looked(int):
    """The pid of a link before a fork; says when somebody looks at it."""

    seen = threading.Semaphore(0)

    def __ne__(self, other: object) -> bool:
        self.seen.release()
        return int(self) != other

    __hash__ = int.__hash__


def test_threads_whose_first_calls_after_a_fork_come_together_start_the_link_once(
    service: Service, place: dict[str, Any]
) -> None:
    with genlock.connect(service.url, session_id="s1", agent_id="alice", **place) as fleet:
        fleet.add_tasks(tasks=["T"])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = _starts_in_a_child(cast(RemoteCoordinator, fleet)._link)
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def _starts_in_a_child(link: Transport) -> int:
    """0 if two threads that found the parent's link have started it once."""
    started: list[int] = []
    go_on = threading.Event()
    really = link.identify

    def identify_slowly() -> Any:
        started.append(1)
        go_on.wait(10)
        return really()

    link.identify = identify_slowly
    link._pid = _Looked(link._pid)
    threads = [threading.Thread(target=lambda: link.identity) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        _Looked.seen.acquire()
    go_on.set()
    for thread in threads:
        thread.join()
    return 0 if len(started) == 1 else 2


def test_what_is_closed_is_closed(service: Service) -> None:
    fleet = genlock.connect(service.url)
    fleet.ready()
    fleet.close()
    fleet.close()
    with pytest.raises(Closed):
        fleet.ready()
    with pytest.raises(Closed):
        next(fleet.watch())


def test_the_asynchronous_face_does_the_same(service: Service, place: dict[str, Any]) -> None:
    async def main() -> None:
        async with genlock.aio.connect(
            service.url, session_id="s1", agent_id="alice", **place
        ) as fleet:
            await fleet.add_tasks(tasks=[f"t-{number}" for number in range(20)])
            claims = await asyncio.gather(*(fleet.claim_next() for _ in range(20)))
            assert {claim.task_id for claim in claims} == {f"t-{number}" for number in range(20)}
            start = (await fleet.read_events(limit=1)).cursor
            told = [
                event.event_type async for event in fleet.watch(after=start, timeout_seconds=0.1)
            ]
            assert told.count("CLAIM_ACQUIRED") == 20
        with pytest.raises(Closed):
            await fleet.ready()

    asyncio.run(main())


def test_whoever_has_one_loop_after_the_other_or_two_at_once_has_no_more_connections_than_loops(
    proxy: Proxy,
) -> None:
    fleet = genlock.aio.connect(f"http://127.0.0.1:{proxy.port}", project_id="loops")
    for _ in range(3):
        asyncio.run(_asked_twice(fleet))
    assert len(proxy.asked) == 3
    assert fleet._link._clients == {}, "each was closed with its loop"  # type: ignore[attr-defined]

    with asyncio.Runner() as one, asyncio.Runner() as other:
        for _ in range(3):
            one.run(_asked_twice(fleet))
            other.run(_asked_twice(fleet))
        assert len(proxy.asked) == 5
    asyncio.run(fleet.close())


async def _asked_twice(fleet: AsyncCoordinator) -> None:
    for _ in range(2):
        assert await fleet.ready() == ()


def test_many_threads_share_a_connection(fleet: Coordinator) -> None:
    """All of them are inside at once: each waits for the others before it claims."""
    fleet.add_tasks(tasks=[f"t-{number}" for number in range(16)])
    gate = threading.Barrier(16)
    granted: list[str | None] = []

    def work(number: int) -> None:
        gate.wait(30)
        granted.append(fleet.claim_next(session_id=f"s-{number}").task_id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(map(str, granted)) == sorted(f"t-{number}" for number in range(16))


# A long wait


def test_a_waiting_claim_is_served_when_something_becomes_ready(
    fleet: Coordinator, place: dict[str, Any], service: Service
) -> None:
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(fleet.claim_next(wait_seconds=60)))
    waiter.start()
    with genlock.connect(service.url, **place) as planner:
        planner.add_tasks(tasks=["T"])
    waiter.join(30)
    assert found[0].task_id == "T"


def test_a_wait_in_pieces_is_one_claim_and_ends_in_time(
    fleet: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    from genlock.client import call as asking

    monkeypatch.setattr(asking, "PIECE_SECONDS", 0.1)
    began = time.monotonic()
    assert fleet.claim_next(wait_seconds=0.5).reason == "NOTHING_READY"
    assert 0.5 <= time.monotonic() - began < 10


# What does not answer, or is something else


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://", "a service's address is http://host:8420"),
        ("http://host:port", "no address of a service"),
        ("http://ada:secret@host", "no user or password"),
        ("http://host/?tenant=x", r"no \? and no #"),
        ("https://ho st", "a service's address is"),
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_secrets(
    url: str, complaint: str
) -> None:
    with pytest.raises(BadArgument, match=complaint) as raised:
        genlock.connect(url)
    assert "secret" not in str(raised.value)


def test_what_is_the_service_s_business_is_refused() -> None:
    with pytest.raises(BadArgument, match="monitor"):
        genlock.connect("http://127.0.0.1:1", monitor=True)
    with pytest.raises(BadArgument, match="api_key is a key"):
        genlock.connect("http://127.0.0.1:1", api_key="se cret")
    with pytest.raises(BadArgument, match="needs the store itself"):
        genlock.open_store("http://127.0.0.1:1")


def test_nobody_there_is_said_with_the_address_and_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with (
        genlock.connect(url, deadline_seconds=0.2, session_id="s", agent_id="a") as fleet,
        pytest.raises(ServiceUnreachable) as raised,
    ):
        fleet.claim_task(task_id="T")
    assert url in str(raised.value)
    assert "refused" in str(raised.value)
    assert str(raised.value).endswith("Nothing was changed")


@contextmanager
def answering(*answers: bytes, heard: list[bytes] | None = None) -> Iterator[str]:
    """Something that gives these answers, one a connection and the last for ever, whatever it is
    asked; and keeps what that was."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        given = 0
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            with near:
                asked = near.recv(65536)
                if heard is not None:
                    heard.append(asked)
                near.sendall(answers[min(given, len(answers) - 1)])
                given += 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


def _answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return (
        f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n{head}\r\n"
    ).encode() + body


READY = _answer("200 OK", b"[]", genlock_protocol="1")


def test_what_is_no_genlock_is_named() -> None:
    page = _answer("200 OK", b"<html>Welcome to nginx!</html>", server="nginx/1.29")
    with (
        answering(page) as url,
        genlock.connect(url) as fleet,
        pytest.raises(ServiceError) as raised,
    ):
        fleet.ready()
    for piece in (url, "status 200", "server nginx/1.29", "Welcome to nginx!", "check the address"):
        assert piece in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "step"),
    [
        (
            _answer(
                "301 Moved Permanently",
                b"<html>",
                location="https://genlock.example.org/below/v1/default/default/ready",
            ),
            "is not followed: give https://genlock.example.org/below as the address",
        ),
        (
            _answer("302 Found", location="/login"),
            "it sends on to '/login', and is not followed: give that as the address",
        ),
        (
            _answer("413 Request Entity Too Large", b"<html>"),
            "a proxy before the service takes no body of this size",
        ),
        (
            _answer("400 Bad Request", b"<html>The plain HTTP request was sent to HTTPS port"),
            "it wants TLS: write https://127.0.0.1:",
        ),
        (_answer("400 Bad Request", b"<html>"), "check the address and its port"),
    ],
    ids=["to https", "to a page", "too large", "wants TLS", "other"],
)
def test_what_stands_before_a_service_is_told_apart_by_what_to_do(answer: bytes, step: str) -> None:
    with (
        answering(answer) as url,
        genlock.connect(url) as fleet,
        pytest.raises(ServiceError) as raised,
    ):
        fleet.ready()
    assert step in str(raised.value)


@pytest.mark.parametrize("path", ["/genlock", "/v1", "/v1/default/default"])
def test_a_path_that_is_too_much_in_the_address_is_named(service: Service, path: str) -> None:
    with (
        genlock.connect(service.url + path) as fleet,
        pytest.raises(RouteNotFound, match=f"take {path} out of the address"),
    ):
        fleet.ready()


def test_who_is_cut_off_reads_whole_sentences() -> None:
    """The reason comes with a full stop of its own."""
    with (
        answering(b"") as url,
        genlock.connect(url, deadline_seconds=0.1) as fleet,
        pytest.raises(ServiceUnreachable) as raised,
    ):
        fleet.ready()
    assert ".." not in str(raised.value)


def test_a_service_of_another_language_is_told_apart_with_what_to_renew() -> None:
    newer = _answer("200 OK", b"[]", genlock_protocol="2")
    with (
        answering(newer) as url,
        genlock.connect(url) as fleet,
        pytest.raises(ServiceMismatch, match="newer genlock for the client"),
    ):
        fleet.ready()
    older = _answer("200 OK", b"[]", genlock_protocol="0")
    with (
        answering(older) as url,
        genlock.connect(url) as fleet,
        pytest.raises(ServiceMismatch, match="newer genlock for the service"),
    ):
        fleet.ready()


def test_a_client_of_another_language_is_told_so_by_the_service(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genlock.client import transport

    monkeypatch.setattr(transport, "PROTOCOL", 2)
    with (
        genlock.connect(service.url) as fleet,
        pytest.raises(ServiceMismatch, match="the client speaks protocol '2'"),
    ):
        fleet.ready()


def test_an_answer_that_cannot_be_understood_is_a_mismatch() -> None:
    other = _answer("200 OK", b'{"all": "is different"}', genlock_protocol="1")
    with (
        answering(other) as url,
        genlock.connect(url) as fleet,
        pytest.raises(ServiceMismatch, match="give both the same version"),
    ):
        fleet.ready()


@pytest.mark.parametrize(
    "passing",
    [
        _answer("502 Bad Gateway", b"<html>"),
        _answer("503 Service Unavailable", b"", retry_after="0"),
        _answer("504 Gateway Timeout"),
        _answer("429 Too Many Requests", b"slower", retry_after="0"),
        b"",
        b"HTTP/1.1 200 OK\r\ngenlock-protocol: 1\r\ncontent-length: 100\r\n\r\n[",
    ],
    ids=["502", "503", "504", "429", "cut", "cut in the body"],
)
def test_what_passes_is_asked_again(passing: bytes) -> None:
    with answering(passing, passing, READY) as url, genlock.connect(url) as fleet:
        assert fleet.ready() == ()


def test_what_does_not_pass_is_said_at_the_deadline() -> None:
    with (
        answering(_answer("503 Service Unavailable", b"", retry_after="0")) as url,
        genlock.connect(url, deadline_seconds=0.2) as fleet,
        pytest.raises(ServiceUnreachable, match="answered 503, which is not Genlock's own"),
    ):
        fleet.ready()


def _passing(code: str) -> bytes:
    body = (
        f'{{"type":"urn:genlock:t","title":"t","status":503,"detail":"others kept changing '
        f'it","code":"{code}"}}'
    )
    return _answer("503 Service Unavailable", body.encode(), genlock_protocol="1", retry_after="0")


def test_busy_is_busy_after_the_deadline() -> None:
    busy = _passing("BUSY")
    with (
        answering(busy) as url,
        genlock.connect(url, deadline_seconds=0.1) as fleet,
        pytest.raises(Busy, match="others kept"),
    ):
        fleet.ready()
    with (
        answering(busy) as url,
        genlock.connect(url, deadline_seconds=0.1) as fleet,
        pytest.raises(Busy, match=r"changing it$"),
    ):
        fleet.claim_task(task_id="T", agent_id="a", session_id="s")


@pytest.mark.parametrize("code", ["BUSY", "STORE_UNAVAILABLE", "TOO_MANY_REQUESTS"])
def test_of_an_answer_that_was_lost_nothing_is_said_by_what_the_last_attempt_met(code: str) -> None:
    """The first attempt was cut off and may have been done; the later ones say of themselves that
    they were not."""
    unknown = (
        r"others kept changing it\. It may have been done: to repeat it safely, pass operation_id="
    )
    undone = (Busy, StoreUnavailable, TooManyRequests)
    with (
        answering(b"", _passing(code)) as url,
        genlock.connect(url, deadline_seconds=0.2, session_id="s", agent_id="a") as fleet,
        pytest.raises(OutcomeUnknown, match=unknown),
    ):
        fleet.claim_task(task_id="T")
    with (
        answering(_passing(code)) as url,
        genlock.connect(url, deadline_seconds=0.2, session_id="s", agent_id="a") as fleet,
        pytest.raises(undone) as raised,
    ):
        fleet.claim_task(task_id="T")
    assert "may have been done" not in str(raised.value)


# Keys and certificates


def test_a_service_with_keys_lets_in_who_has_one() -> None:
    with serving("memory://", choices=Choices(keys=True)) as service:
        made = service.do(service.coordinator.create_key(name="ci", role="agent"))
        with (
            genlock.connect(service.url) as nobody,
            pytest.raises(KeyRefused, match="a key is needed"),
        ):
            nobody.ready()
        with genlock.connect(
            service.url, api_key=made.text, session_id="s1", agent_id="alice"
        ) as fleet:
            assert fleet.ready() == ()
            assert list(fleet.watch(timeout_seconds=0)) == []
            with pytest.raises(RoleRefused, match="needs the role operator"):
                fleet.add_tasks(tasks=["T"])


def test_a_ca_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    with (
        genlock.connect("https://127.0.0.1:1", ca_file=str(tmp_path / "ca.pem")) as fleet,
        pytest.raises(BadArgument, match="ca_file"),
    ):
        fleet.ready()


def test_a_service_without_tls_that_is_asked_with_it_says_so_at_once(service: Service) -> None:
    """Not after the deadline: no attempt would end otherwise."""
    url = service.url.replace("http", "https")
    with (
        genlock.connect(url, deadline_seconds=600, session_id="s", agent_id="a") as fleet,
        pytest.raises(ServiceUnreachable) as raised,
    ):
        fleet.claim_task(task_id="T")
    assert "has no TLS: write http:// in place of https://" in str(raised.value)
    assert str(raised.value).endswith(". Nothing was changed")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "certificate verify failed: self-signed certificate",
            "connect(ca_file=…), or SSL_CERT_FILE",
        ),
        (
            "certificate verify failed: Hostname mismatch, certificate is not valid for 'a'.",
            "give an address with the name that stands in it",
        ),
        (
            "certificate verify failed: IP address mismatch, certificate is not valid for '::1'.",
            "give one with the name that stands in it",
        ),
    ],
)
def test_of_a_certificate_that_is_not_taken_it_is_said_what_to_change(
    said: str, remedy: str
) -> None:
    found = lost(httpx2.ConnectError(f"[SSL: CERTIFICATE_VERIFY_FAILED] {said} (_ssl.c:1006)"))
    assert found.remedy is not None
    assert remedy in found.remedy
    request = request_of(
        Identity(session_id="s", agent_id="a"), ClaimTask(task_id="T", operation_id="op-1")
    )
    patience = Deadline(Addresses("https://one,https://two"), 600)
    patience.pause(request, AnswerLost("cut off", sent=True))
    with pytest.raises(
        ServiceUnreachable,
        match="It may have been done: to repeat it safely, pass operation_id='op-1'",
    ):
        patience.pause(request, found)
