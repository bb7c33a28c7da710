"""Streams of live events over real sockets: what is sent, to whom, and where one resumes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import msgspec
import pytest

import genlock
from genlock.errors import StoreCorrupt
from genlock.service.events import broker
from genlock.testing.clock import ManualClock
from tests.hostile_text import HOSTILE
from tests.service.events.streaming import Client, Service, streaming

PATH = "/default/default"


def add(
    fleet: genlock.Coordinator, *ids: str, project: str = "default", description: str = ""
) -> None:
    fleet.add_tasks(
        tasks=[{"id": id, "description": description} for id in ids], project_id=project
    )


def claim(fleet: genlock.Coordinator, task: str, session: str = "s1", lease: float = 300) -> int:
    claim = fleet.claim_task(task_id=task, session_id=session, lease_duration_seconds=lease).claim
    assert claim is not None
    return claim.generation


# What is sent


def test_an_event_is_sent_as_the_feed_has_it_with_its_cursor_for_an_id(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001")
    before = fleet.read_events(tail=True).cursor
    with Client(service.port, PATH) as client:
        assert client.status == 200
        assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert client.headers["cache-control"] == "no-store, no-transform"
        assert client.block() == f"retry: 3000\nid: {before}"
        fleet.hold_task(task_id="A-001", reason="two\nlines")
        (held,) = fleet.read_events(after=before).events
        assert client.block() == (
            f"id: {held.cursor}\n"
            "event: TASK_HELD\n"
            f'data: {{"position":3,"cursor":"{held.cursor}","kind":"task","id":"A-001","event_type":"TASK_HELD","event":'
            '{"event_type":"TASK_HELD","reason":"two\\nlines","timestamp":"2026-01-04T06:00:00Z","tenant_id":"default",'
            f'"project_id":"default","task_id":"A-001","session_id":"s1","agent_id":"a1","actor":{{"host":"{held.event["actor"]["host"]}"}}}}}}'
        )


def test_the_shape_of_the_session_documents_has_their_four_types(
    fleet: genlock.Coordinator, service: Service, clock: ManualClock
) -> None:
    add(fleet, "A-001", "A-002", "A-003", "A-004")
    with (
        Client(service.port, PATH + "?shape=sc") as client,
        subprocess.Popen(["sleep", "600"]) as victim,
    ):
        client.block()
        fleet.submit_result(
            task_id="A-001", generation=claim(fleet, "A-001"), result_data={"ok": True}
        )
        fleet.release_claim(
            task_id="A-002", expected_generation=claim(fleet, "A-002"), reason="ERROR"
        )
        claim(fleet, "A-003", lease=30)
        clock.advance(31)
        claim(fleet, "A-003", "s2")
        fleet.register_session(session_id="s3", pid=victim.pid)
        claim(fleet, "A-004", "s3")
        victim.kill()
        victim.wait()
        claim(fleet, "A-004", "s4")
        lines = [(client.block() or "").split("\n") for _ in range(10)]
    assert all(len(block) == 2 and block[0].startswith("id: ") for block in lines)
    assert [block[1] for block in lines] == [
        'data: {"type":"task:claimed","data":{"taskId":"A-001","sessionId":"s1"}}',
        'data: {"type":"task:released","data":{"taskId":"A-001","reason":"completed"}}',
        'data: {"type":"task:claimed","data":{"taskId":"A-002","sessionId":"s1"}}',
        'data: {"type":"task:released","data":{"taskId":"A-002","reason":"error"}}',
        'data: {"type":"task:claimed","data":{"taskId":"A-003","sessionId":"s1"}}',
        'data: {"type":"task:claim-expired","data":{"taskId":"A-003","sessionId":"s1"}}',
        'data: {"type":"task:claimed","data":{"taskId":"A-003","sessionId":"s2"}}',
        'data: {"type":"task:claimed","data":{"taskId":"A-004","sessionId":"s3"}}',
        'data: {"type":"task:claim-orphaned","data":{"taskId":"A-004","reason":"session_dead"}}',
        'data: {"type":"task:claimed","data":{"taskId":"A-004","sessionId":"s4"}}',
    ]


def test_the_session_documents_shape_tells_every_end_of_a_claim(
    fleet: genlock.Coordinator, service: Service
) -> None:
    """Unlock, assign, cancel, reset and spawn, too; and nothing where nobody had a claim."""
    tasks = [f"A-00{number}" for number in range(1, 8)]
    add(fleet, *tasks)
    fleet.edit_task(task_id="A-007", changes={"human_required": True})
    with Client(service.port, PATH + "?shape=sc") as client:
        client.block()
        for task in tasks[:6]:
            claim(fleet, task)
        fleet.force_release(task_id="A-001", take_over=True)
        fleet.assign_task(task_id="A-002", agent_id="a9", take_over=True)
        fleet.cancel_task(task_id="A-003", take_over=True)
        fleet.reset_task(task_id="A-004", take_over=True)
        fleet.spawn_subtasks(task_id="A-005", generation=1, session_id="s1", subtasks=["part"])
        fleet.release_claim(
            task_id="A-006", generation=1, session_id="s1", reason="ERROR: no compiler"
        )
        fleet.cancel_task(task_id="A-007")
        fleet.reset_task(task_id="A-006")
        claim(fleet, "A-006", "s2")
        blocks = [(client.block() or "").split("\n") for _ in range(13)]
        fleet.reset_task(task_id="A-007")
        fleet.submit_result(
            task_id="A-007", generation=claim(fleet, "A-007"), session_id="s1", result_data=1
        )
        assert [event.data for event in client.take(2)] == [
            {"type": "task:claimed", "data": {"taskId": "A-007", "sessionId": "s1"}},
            {"type": "task:released", "data": {"taskId": "A-007", "reason": "in_review"}},
        ]
    assert [block[1] for block in blocks][6:] == [
        'data: {"type":"task:released","data":{"taskId":"A-001","reason":"unlock"}}',
        'data: {"type":"task:released","data":{"taskId":"A-002","reason":"assign"}}',
        'data: {"type":"task:released","data":{"taskId":"A-003","reason":"cancel"}}',
        'data: {"type":"task:released","data":{"taskId":"A-004","reason":"reset"}}',
        'data: {"type":"task:released","data":{"taskId":"A-005","reason":"spawned"}}',
        (
            'data: {"type":"task:released","data":{"taskId":"A-006",'
            '"reason":"ERROR: no compiler","canonicalReason":"error"}}'
        ),
        'data: {"type":"task:claimed","data":{"taskId":"A-006","sessionId":"s2"}}',
    ]


def rows_of(client: Client, number: int) -> list[dict[str, Any]]:
    """The messages of a stream of rows."""
    found = []
    for _ in range(number):
        cursor, data = (client.block() or "").split("\n")
        assert cursor.startswith("id: ")
        found.append(json.loads(data.removeprefix("data: ")))
        assert found[-1]["event"]["cursor"] == cursor.removeprefix("id: ")
    return found


def test_the_shape_of_rows_has_each_event_and_the_row_of_its_task(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001", "A-002")
    before = fleet.list_tasks().cursor
    with Client(service.port, f"{PATH}?shape=row&after={before}") as client:
        client.block()
        generation = claim(fleet, "A-001")
        claimed, *_ = [
            message
            for message in rows_of(client, 2)
            if message["event"]["event_type"] == "CLAIM_ACQUIRED"
        ]
        fleet.submit_result(task_id="A-001", generation=generation, result_data="x" * 1000)
        (accepted,) = rows_of(client, 1)
        fleet.hold_task(task_id="A-002", reason=HOSTILE)
        (held,) = rows_of(client, 1)
        fleet.set_policy(policy={"breaker_threshold": 3})
        (changed,) = rows_of(client, 1)
    assert (claimed["row"]["id"], claimed["row"]["state"]) == ("A-001", "IN_PROGRESS")
    assert claimed["row"]["holder"]["agent_id"] == "a1"
    assert accepted["row"]["state"] == "COMPLETED"
    assert accepted["event"]["event"]["size"] == 1002
    assert "result_data" not in accepted["event"]["event"]
    assert held["row"]["hold_reason"] == HOSTILE
    assert (changed["event"]["event_type"], changed["row"]) == ("PROJECT_CHANGED", None)


def test_a_snapshot_and_the_rows_since_are_what_a_fresh_snapshot_has(
    fleet: genlock.Coordinator, service: Service
) -> None:
    names = [f"A-{number:03}" for number in range(1, 9)]
    add(fleet, *names)
    page = fleet.list_tasks()
    known = {row.id: json.loads(msgspec.json.encode(row)) for row in page.tasks}
    for name in names[:6]:
        generation = claim(fleet, name)
        if name != "A-001":
            fleet.submit_result(task_id=name, generation=generation)
    fleet.hold_task(task_id="A-007", reason="why")
    add(fleet, "A-009")
    fleet.force_release(task_id="A-001", take_over=True)
    assert not fleet.submit_result(task_id="A-001", generation=1, result_data="late").accepted
    end = fleet.read_events(tail=True).cursor

    with Client(service.port, f"{PATH}?shape=row&after={page.cursor}") as client:
        client.block()
        reached = ""
        while reached != end:
            (message,) = rows_of(client, 1)
            reached = message["event"]["cursor"]
            if message["row"] is not None:
                known[message["row"]["id"]] = message["row"]
    fresh = fleet.list_tasks()
    assert known == {row.id: json.loads(msgspec.json.encode(row)) for row in fresh.tasks}
    assert known["A-001"]["refused_results"] == 1


def test_what_a_session_says_of_itself_is_told_with_each_task_that_it_holds(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001", "A-002")
    claim(fleet, "A-001")
    claim(fleet, "A-002")
    before = fleet.list_tasks().cursor
    with Client(service.port, f"{PATH}?shape=row&after={before}") as client:
        client.block()
        fleet.heartbeat_session(session_id="s1", metadata={"score": 92})
        messages = rows_of(client, 2)
    assert {message["event"]["event_type"] for message in messages} == {"SESSION_HEARTBEAT"}
    rows = {message["row"]["id"]: message["row"] for message in messages}
    assert {name: row["progress"]["score"] for name, row in rows.items()} == {
        "A-001": 92,
        "A-002": 92,
    }
    fresh = {row.id: json.loads(msgspec.json.encode(row)) for row in fleet.list_tasks().tasks}
    assert rows == fresh


def test_rows_that_cannot_be_read_end_the_stream_and_lose_no_event(
    fleet: genlock.Coordinator, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(fleet, "A-001")
    before = fleet.list_tasks().cursor

    def fail(*_: object) -> None:
        raise StoreCorrupt("the record is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(broker, "task_rows", fail)
        with Client(service.port, f"{PATH}?shape=row&after={before}") as client:
            client.block()
            fleet.hold_task(task_id="A-001", reason="why")
            last = client.block() or ""
    assert "event: genlock:closing" in last
    assert "the record is damaged" in last
    assert f'"after":"{before}"' in last
    with Client(service.port, f"{PATH}?shape=row&after={before}") as client:
        client.block()
        assert rows_of(client, 1)[0]["row"]["state"] == "HELD"


def test_the_shape_of_the_feature_and_edge_document_has_its_names(
    fleet: genlock.Coordinator, service: Service, clock: ManualClock
) -> None:
    edge = "AUTH-LOGIN:design_code"
    add(fleet, edge, "A-002", "A-003", "A-004")
    with Client(service.port, PATH + "?shape=ddb") as client:
        client.block()
        fleet.claim_task(
            task_id=edge,
            session_id="s1",
            agent_id="sf-exec",
            agent_role="tdd_engineer",
            lease_duration_seconds=3000,
        )
        denied = fleet.claim_task(task_id=edge, session_id="s2", agent_id="cicd")
        assert denied.reason == "DENIED_ACTIVE_CLAIM"
        rejected = client.take(2)[1].data
        claim(fleet, "A-002")
        fleet.release_claim(task_id="A-002", generation=1, session_id="s1", reason="timeout")
        claim(fleet, "A-003", lease=30)
        clock.advance(1900)
        fleet.sweep()
        fleet.submit_result(
            task_id=edge, generation=1, session_id="s1", agent_id="sf-exec", work_product_ref="s3"
        )
        told = [event.data for event in client.take(6)]
    assert rejected["type"] == "claim_rejected"
    assert {
        name: rejected["data"][name]
        for name in ("feature", "edge", "agent_id", "held_by", "held_by_session", "reason")
    } == {
        "feature": "AUTH-LOGIN",
        "edge": "design_code",
        "agent_id": "cicd",
        "held_by": "sf-exec",
        "held_by_session": "s1",
        "reason": "DENIED_ACTIVE_CLAIM",
    }
    by_type: dict[str, list[dict[str, object]]] = {}
    for one in told:
        by_type.setdefault(one["type"], []).append(one["data"])
    assert {name: len(found) for name, found in by_type.items()} == {
        "edge_started": 2,
        "edge_released": 1,
        "claim_expired": 2,
        "edge_converged": 1,
    }
    assert by_type["edge_released"][0]["reason"] == "timeout"
    assert {
        (one["task_id"], one["agent_id"], one["reason"]) for one in by_type["claim_expired"]
    } == {
        (edge, "sf-exec", "stale"),
        ("A-003", "a1", "expired"),
    }
    assert by_type["claim_expired"][0]["last_active"] == "2026-01-04T06:00:00Z"
    converged = by_type["edge_converged"][0]
    assert str(converged.pop("work_product_ref")).startswith("wp-AUTH-LOGIN")
    assert converged == {
        "project_id": "default",
        "task_id": edge,
        "feature": "AUTH-LOGIN",
        "edge": "design_code",
        "agent_id": "sf-exec",
        "session_id": "s1",
        "generation": 1,
        "timestamp": "2026-01-04T06:31:40Z",
        "reference": "s3",
    }


def test_a_quiet_stream_has_a_heartbeat_and_what_was_not_for_its_client_is_not_read_again(
    fleet: genlock.Coordinator,
) -> None:
    add(fleet, "A-001", "A-002")
    with (
        streaming(fleet.engine, heartbeat_seconds=0.05) as service,
        Client(service.port, PATH + "?task=A-001") as client,
    ):
        client.block()
        assert client.block() == ": beat"
        fleet.hold_task(task_id="A-002", reason="not for this client")
        while (block := client.block()) == ": beat":
            pass
        assert block == f"id: {fleet.read_events(tail=True).cursor}"
        assert client.block() == ": beat"


# From where on


def test_a_client_without_a_cursor_gets_what_comes_from_now_on(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001")
    with Client(service.port, PATH) as client:
        fleet.hold_task(task_id="A-001", reason="x")
        assert client.take(1)[0].name == "TASK_HELD"


def test_a_client_may_begin_with_the_first_kept_event(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001")
    with Client(service.port, PATH + "?after=start") as client:
        assert [event.name for event in client.take(2)] == ["PROJECT_CHANGED", "TASK_ADDED"]
        fleet.hold_task(task_id="A-001", reason="x")
        assert client.take(1)[0].name == "TASK_HELD"


@pytest.mark.parametrize("how", ["header", "address"])
def test_a_client_that_comes_back_goes_on_behind_the_last_event_it_has(
    fleet: genlock.Coordinator, service: Service, how: str
) -> None:
    add(fleet, *(f"A-{n:03}" for n in range(1, 251)))
    with Client(service.port, PATH + "?after=start") as client:
        first = client.take(120)
    again = (
        Client(service.port, PATH, last=client.last)
        if how == "header"
        else Client(service.port, f"{PATH}?after={client.last}")
    )
    with again:
        rest = again.take(131)
        fleet.hold_task(task_id="A-001", reason="x")
        assert again.take(1)[0].name == "TASK_HELD"
    assert [event.data["position"] for event in first + rest] == list(range(1, 252))


def test_the_header_goes_before_the_address_as_a_browser_repeats_its_address(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001", "A-002")
    with Client(service.port, PATH + "?after=start") as client:
        client.take(2)
    with Client(service.port, PATH + "?after=start", last=client.last) as again:
        assert again.take(1)[0].data["id"] == "A-002"


def test_a_client_that_lost_its_connection_before_the_first_event_misses_none(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001")
    with Client(service.port, PATH) as client:
        client.block()
    fleet.hold_task(task_id="A-001", reason="x")
    with Client(service.port, PATH, last=client.last) as again:
        assert again.take(1)[0].name == "TASK_HELD"


# Which


def test_filters_let_pass_what_suits_each_of_them(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001", "A-002", "A-003")
    with (
        Client(service.port, PATH + "?task=A-001&task=A-002") as by_task,
        Client(service.port, PATH + "?session=s2") as by_session,
        Client(service.port, PATH + "?type=CLAIM_ACQUIRED&type=task:released") as by_type,
        Client(service.port, PATH + "?type=CLAIM_ACQUIRED&session=s2&task=A-003") as by_all,
    ):
        fleet.release_claim(task_id="A-001", expected_generation=claim(fleet, "A-001"))
        claim(fleet, "A-002", "s2")
        claim(fleet, "A-003", "s2")
        assert [(e.data["id"], e.name) for e in by_task.take(3)] == [
            ("A-001", "CLAIM_ACQUIRED"),
            ("A-001", "CLAIM_RELEASED"),
            ("A-002", "CLAIM_ACQUIRED"),
        ]
        assert [e.data["id"] for e in by_session.take(3)] == ["A-002", "s2", "A-003"]
        assert [(e.data["id"], e.name) for e in by_type.take(4)] == [
            ("A-001", "CLAIM_ACQUIRED"),
            ("A-001", "CLAIM_RELEASED"),
            ("A-002", "CLAIM_ACQUIRED"),
            ("A-003", "CLAIM_ACQUIRED"),
        ]
        assert [e.data["id"] for e in by_all.take(1)] == ["A-003"]


def test_what_can_never_be_met_is_refused_and_says_what_to_type(service: Service) -> None:
    refusals = {
        "?type=CLAIM_AQUIRED": (
            "there are no events of type 'CLAIM_AQUIRED'; did you mean CLAIM_ACQUIRED?"
        ),
        "?task=a%20b": "character 2 is ' '",
        "?session=a/b": "character 2 is '/' (a slash)",
        "?shape=xml": "shape is one of genlock, sc, ddb, row, not 'xml'",
        "?after=nonsense": "'nonsense' is no cursor; one is given with every event",
    }
    for query, wanted in refusals.items():
        with Client(service.port, PATH + query) as client:
            body = client.body()
            assert (client.status, body["code"]) == (400, "BAD_ARGUMENT")
            assert wanted in body["detail"]


# Several projects


def test_a_stream_over_several_projects_resumes_in_all_of_them(
    fleet: genlock.Coordinator, service: Service
) -> None:
    for project in ("one", "two", "three"):
        add(fleet, "A-001", project=project)
    with Client(service.port, "/default/one,two?after=start") as client:
        seen = {
            (event.data["event"]["project_id"], event.data["position"]) for event in client.take(3)
        }
    add(fleet, "A-002", project="two")
    add(fleet, "A-002", project="three")
    with Client(service.port, "/default/one,two", last=client.last) as again:
        rest = {
            (event.data["event"]["project_id"], event.data["position"]) for event in again.take(2)
        }
        add(fleet, "A-002", project="one")
        assert again.take(1)[0].data["position"] == 3
    assert not seen & rest
    assert seen | rest == {("one", 1), ("one", 2), ("two", 1), ("two", 2), ("two", 3)}


def test_a_tenant_s_stream_has_its_visible_projects_and_those_that_come(
    fleet: genlock.Coordinator,
) -> None:
    add(fleet, "A-001", project="one")
    with streaming(fleet.engine, look_seconds=0.05) as service:
        service.visible = lambda project: project != "secret"
        with Client(service.port, "/default") as client:
            add(fleet, "A-001", project="secret")
            add(fleet, "A-001", project="new")
            assert [event.data["event"]["project_id"] for event in client.take(2)] == ["new", "new"]
        # What is made while nobody looks is new to who comes back.
        add(fleet, "A-001", project="newer")
        with Client(service.port, "/default", last=client.last) as again:
            assert [event.data["event"]["project_id"] for event in again.take(2)] == [
                "newer",
                "newer",
            ]
            add(fleet, "A-002", project="one")
            assert again.take(1)[0].data["event"]["project_id"] == "one"


def test_the_cursor_of_several_projects_is_no_cursor_of_one_nor_the_other_way_round(
    fleet: genlock.Coordinator, service: Service
) -> None:
    add(fleet, "A-001", project="one")
    with (
        Client(service.port, "/default/one,two?after=start") as several,
        Client(service.port, "/default/one?after=start") as single,
    ):
        several.take(1)
        single.take(1)
    for path, last in (
        ("/default/one", several.last),
        ("/default/one,two", single.last),
        ("/default/one,two", several.last[:-9]),
    ):
        with Client(service.port, path, last=last) as client:
            assert (client.status, client.body()["code"]) == (400, "BAD_ARGUMENT")


def test_more_projects_than_one_stream_may_have_are_refused(fleet: genlock.Coordinator) -> None:
    with (
        streaming(fleet.engine, most_projects=2) as service,
        Client(service.port, "/default/a,b,c") as client,
    ):
        assert "at most 2 projects" in client.body()["detail"]
