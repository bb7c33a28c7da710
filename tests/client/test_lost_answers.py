"""An answer is lost on its way: the client asks again under the same operation id, and the act is
done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import genlock
from genlock import Coordinator
from genlock.client.addresses import Addresses
from genlock.client.call import Deadline
from genlock.client.replies import AnswerLost
from genlock.client.requests import request_of
from genlock.core.model import Identity
from genlock.errors import ServiceUnreachable
from genlock.wire.operations import ROUTES, ClaimNext, Ready
from tests.logs import PLANTED
from tests.servers.proxy import Proxy, between
from tests.servers.service import Service

Act = Callable[[Coordinator], Any]


def _held(fleet: Coordinator) -> None:
    fleet.claim_task(task_id="T")


def _done(fleet: Coordinator) -> None:
    _held(fleet)
    fleet.submit_result(task_id="T", generation=1, result_data={"n": PLANTED})


def _on_hold(fleet: Coordinator) -> None:
    fleet.hold_task(task_id="T")


def _refused(fleet: Coordinator) -> None:
    _held(fleet)
    fleet.force_release(task_id="T", take_over=True)
    fleet.submit_result(task_id="T", generation=1, result_data={"late": PLANTED})


def _nothing(fleet: Coordinator) -> None:
    pass


def _generation(answer: Any) -> int:
    return int(answer.claim.generation)


def _discard(fleet: Coordinator) -> None:
    fleet.discard_result(
        task_id="T", refused_id=fleet.list_refused_results(include_settled=True)[0].id
    )


def _adopt(fleet: Coordinator) -> Any:
    (refused,) = fleet.list_refused_results(include_settled=True)
    return fleet.adopt_result(task_id="T", refused_id=refused.id, session_id="olga", take_over=True)


class Case(NamedTuple):
    """What comes before, which request's answer is lost, the act and what it answers, and the event
    that there must be one more of."""

    before: Act
    path: str
    act: Act
    answer: Any
    event: str | None


ACTS = {
    "claim_task": Case(
        _nothing,
        "/tasks/T/claim",
        lambda f: _generation(f.claim_task(task_id="T")),
        1,
        "CLAIM_ACQUIRED",
    ),
    "claim_next": Case(
        _nothing, "/claim-next", lambda f: _generation(f.claim_next()), 1, "CLAIM_ACQUIRED"
    ),
    "batch_claim": Case(
        _nothing,
        "/batch/claim",
        lambda f: _generation(f.batch_claim(task_ids=["T"])["T"]),
        1,
        "CLAIM_ACQUIRED",
    ),
    "release_claim": Case(
        _held,
        "/release",
        lambda f: f.release_claim(task_id="T", expected_generation=1).reason,
        "RELEASED",
        "CLAIM_RELEASED",
    ),
    "submit_result": Case(
        _held,
        "/submit",
        lambda f: f.submit_result(task_id="T", generation=1, result_data=[1]).reason,
        "ACCEPTED",
        "RESULT_ACCEPTED",
    ),
    "spawn_subtasks": Case(
        _held,
        "/spawn",
        lambda f: (
            f.spawn_subtasks(task_id="T", generation=1, subtasks=["one", "two"], keep=True).children
        ),
        ("T::1", "T::2"),
        "SUBTASKS_SPAWNED",
    ),
    "edit_task": Case(
        _nothing,
        "/tasks/T",
        lambda f: f.edit_task(task_id="T", changes={"title": "new"}).changed,
        ("title",),
        "TASK_EDITED",
    ),
    "reset_task": Case(
        _done, "/reset", lambda f: f.reset_task(task_id="T").generation, 2, "TASK_RESET"
    ),
    "cancel_task": Case(
        _nothing, "/cancel", lambda f: f.cancel_task(task_id="T").verdict, "DONE", "TASK_CANCELLED"
    ),
    "assign_task": Case(
        _held,
        "/assign",
        lambda f: f.assign_task(task_id="T", agent_id="bob", take_over=True).generation,
        2,
        "TASK_ASSIGNED",
    ),
    "force_release": Case(
        _held,
        "/force-release",
        lambda f: f.force_release(task_id="T", take_over=True).verdict,
        "DONE",
        "CLAIM_SUPERSEDED",
    ),
    "hold_task": Case(
        _nothing, "/hold", lambda f: f.hold_task(task_id="T").verdict, "DONE", "TASK_HELD"
    ),
    "batch_act": Case(
        _nothing,
        "/batch/act",
        lambda f: f.batch_act(act="hold", task_ids=["T"], reason="x", dry_run=False).done,
        1,
        "TASK_HELD",
    ),
    "reopen_task": Case(
        _on_hold, "/reopen", lambda f: f.reopen_task(task_id="T").verdict, "DONE", "TASK_REOPENED"
    ),
    "adopt_result": Case(
        _refused, "/adopt", lambda f: _adopt(f).reason, "ACCEPTED", "RESULT_ACCEPTED"
    ),
}

SAFE = {
    "renew_lease": Case(
        _held,
        "/renew",
        lambda f: f.renew_lease(task_id="T", expected_generation=1).reason,
        "RENEWED",
        None,
    ),
    "batch_submit": Case(
        _held,
        "/batch/submit",
        lambda f: list(f.batch_submit(results=[{"task_id": "T", "generation": 1}])),
        ["T"],
        "RESULT_ACCEPTED",
    ),
    "add_tasks": Case(
        _nothing, "/tasks", lambda f: f.add_tasks(tasks=["U"])[0].state, "PENDING", "TASK_ADDED"
    ),
    "import_plan": Case(
        _nothing,
        "/plan",
        lambda f: f.import_plan(source={"tasks": [{"id": "V"}]}).gone,
        ("T",),
        "TASK_ADDED",
    ),
    "register_session": Case(
        _nothing, "/sessions", lambda f: f.register_session().active, True, "SESSION_REGISTERED"
    ),
    "end_session": Case(_held, "/end", lambda f: f.end_session().session_id, "s1", "SESSION_ENDED"),
    "discard_result": Case(_refused, "/discard", _discard, None, "RESULT_DISCARDED"),
    "set_policy": Case(
        _nothing,
        "/policy",
        lambda f: f.set_policy(policy={"breaker_threshold": 3}).policy["breaker_threshold"],
        3,
        "PROJECT_CHANGED",
    ),
}
"""What may be repeated without an id: the second time changes nothing, or nothing more."""


def test_every_call_that_takes_an_operation_id_is_here() -> None:
    assert {
        route.name for route in ROUTES if "operation_id" in route.call.__struct_fields__
    } == set(ACTS)


@pytest.mark.parametrize("name", [*ACTS, *SAFE])
def test_a_lost_answer_is_neither_a_lost_nor_a_doubled_act(
    name: str, fleet: Coordinator, far: Coordinator, proxy: Proxy
) -> None:
    case = (ACTS | SAFE)[name]
    fleet.add_tasks(tasks=["T"])
    case.before(fleet)
    so_far = _told(fleet).count(case.event)
    proxy.cut_at_the_answer_to(case.path.encode())

    answer = case.act(far)

    assert proxy.swallowed.is_set()
    assert answer == case.answer
    assert case.event is None or _told(fleet).count(case.event) == so_far + 1


def _told(fleet: Coordinator) -> list[str | None]:
    return [each.event_type for each in fleet.read_events(limit=1000).events]


@pytest.mark.parametrize("name", ["reset_task", "assign_task", "force_release"])
def test_whoever_was_granted_the_task_meanwhile_keeps_it(
    name: str, fleet: Coordinator, far: Coordinator, proxy: Proxy
) -> None:
    """The act is done and its answer lost; before it is repeated somebody claims. What was done is
    not done to them."""
    fleet.add_tasks(tasks=["T"])
    ACTS[name].before(fleet)
    operation = {"operation_id": "op-1"}
    method = getattr(far, name)
    keywords = {"task_id": "T", "take_over": True} | (
        {"agent_id": "bob"} if name == "assign_task" else {}
    )
    first = method(**keywords, **operation)
    granted = fleet.claim_task(task_id="T", agent_id="bob", session_id="s2")
    assert granted.claim is not None

    again = method(**keywords, **operation)

    assert again.generation == first.generation == granted.claim.generation
    assert fleet.get_task_state(task_id="T").claim == granted.claim


def test_a_release_is_answered_alike_also_if_whoever_waited_has_the_task_by_now(
    fleet: Coordinator, far: Coordinator
) -> None:
    fleet.add_tasks(tasks=["T"])
    fleet.claim_task(task_id="T")
    first = far.release_claim(task_id="T", expected_generation=1, operation_id="op-1")
    granted = fleet.claim_task(task_id="T", agent_id="bob", session_id="s2")

    again = far.release_claim(task_id="T", expected_generation=1, operation_id="op-1")

    assert first.success
    assert again == first
    assert fleet.get_task_state(task_id="T").claim == granted.claim


def test_an_answer_that_never_comes_is_asked_for_again_on_another_connection(
    fleet: Coordinator, proxy: Proxy, place: dict[str, Any]
) -> None:
    """The connection stays open and silent, as when something in between has forgotten it."""
    fleet.add_tasks(tasks=["T"])
    with genlock.connect(
        f"http://127.0.0.1:{proxy.port}",
        session_id="s1",
        agent_id="alice",
        deadline_seconds=2,
        **place,
    ) as far:
        far.ready()
        proxy.fall_silent()

        claimed = far.claim_task(task_id="T")

    assert claimed.success
    assert len(proxy.asked) == 2
    assert _told(fleet).count("CLAIM_ACQUIRED") == 1


def test_each_piece_of_a_long_wait_has_its_own_patience_also_after_a_connection_broke() -> None:
    """One that silently dies is noticed soon, however long it may wait in all: what is ready
    meanwhile is not to lie there."""
    request = request_of(Identity(session_id="s1", agent_id="alice"), ClaimNext(wait_seconds=30))
    patience = Deadline(Addresses("http://127.0.0.1:8420"), deadline_seconds=5, wait_seconds=3600)
    assert patience.read_seconds(request, 30) < 35

    patience.pause(request, AnswerLost("cut off", sent=True))

    assert 30 < patience.read_seconds(request, 30) <= 35


def test_how_long_there_was_no_answer_is_said_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes through many records is waited for longer than the deadline, once."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    patience = Deadline(Addresses("http://127.0.0.1:8420"), deadline_seconds=5)
    now += 120.2
    with pytest.raises(ServiceUnreachable, match="within 120 seconds"):
        patience.pause(request_of(Identity(), Ready()), AnswerLost("silent", sent=True))


def test_after_the_deadline_it_is_said_that_it_may_have_been_done_and_how_to_repeat_it(
    service: Service, place: dict[str, Any]
) -> None:
    with (
        between(service.port) as proxy,
        genlock.connect(
            f"http://127.0.0.1:{proxy.port}",
            session_id="s1",
            agent_id="alice",
            deadline_seconds=0.2,
            **place,
        ) as far,
        genlock.connect(service.url, session_id="s1", agent_id="alice", **place) as fleet,
    ):
        fleet.add_tasks(tasks=["T"])
        proxy.swallow_answers()
        with pytest.raises(ServiceUnreachable) as raised:
            far.claim_task(task_id="T")
        assert "It may have been done" in str(raised.value)
        operation = str(raised.value).rpartition("operation_id=")[2].strip("'")
        proxy.pass_on()
        proxy.cut()
        first = fleet.get_task_state(task_id="T").claim

        repeated = far.claim_task(task_id="T", operation_id=operation)

        assert repeated.claim == first


def test_a_key_whose_answer_was_lost_is_not_made_twice_and_it_is_said_what_to_do(
    far: Coordinator, fleet: Coordinator, proxy: Proxy
) -> None:
    """Its secret is nowhere else than in the answer: nobody can give it a second time."""
    before = len(fleet.list_keys(tenant_id="*"))
    proxy.cut_at_the_answer_to(b"/keys")

    with pytest.raises(ServiceUnreachable, match="revoke the one whose text you did not get"):
        far.create_key(name="ci", role="agent")

    assert len(fleet.list_keys(tenant_id="*")) == before + 1
