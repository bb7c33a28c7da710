"""Requests that wait for a task: a key that ends meanwhile gets none, and nobody takes all connections by waiting."""

from __future__ import annotations

import threading
from typing import Any

from genlock.core.results import NewKey
from genlock.service.building import Choices
from genlock.testing.clock import ManualClock
from tests.servers.service import PATIENCE_SECONDS, Service, serving

PLACE = "/v1/default/default"
KEYS = Choices(keys=True)


class Poll(threading.Thread):
    """Waits for a task by one key; `answer` is what it was told."""

    def __init__(self, service: Service, key: str | None, session: str) -> None:
        super().__init__(daemon=True)
        self._service, self._key, self._session = service, key, session
        self.answer: tuple[int, Any] = (0, None)
        self.start()

    def run(self) -> None:
        headers = {} if self._key is None else {"authorization": f"Bearer {self._key}"}
        body = {"agent_id": "a", "session_id": self._session, "wait_seconds": 3600}
        with self._service.client() as client:
            answer = client.post(f"{PLACE}/claim-next", json=body, headers=headers)
        self.answer = answer.status_code, answer.json()

    def told(self) -> tuple[int, Any]:
        self.join(PATIENCE_SECONDS)
        return self.answer


def until_waiting(service: Service, number: int) -> None:
    """Returns when so many wait with the engine."""
    pause = threading.Event()
    engine = service.coordinator.engine
    assert any(sum(waiters for _, waiters in engine.depths().values()) == number or pause.wait(0.01) for _ in range(1000))


def make_key(service: Service, **more: Any) -> NewKey:
    return service.do(service.coordinator.create_key(name="ci", role="agent", **more))


def state(service: Service, task: str) -> str:
    return str(service.do(service.coordinator.get_task_state(task_id=task)).state)


def test_who_waits_by_a_key_that_is_revoked_is_told_so_and_gets_no_task() -> None:
    with serving(choices=KEYS) as service:
        kept, revoked = make_key(service), make_key(service)
        polls = [Poll(service, revoked.text, "s1"), Poll(service, revoked.text, "s2")]
        until_waiting(service, 2)
        other = Poll(service, kept.text, "s3")
        until_waiting(service, 3)
        service.do(service.coordinator.revoke_key(key_id=revoked.key.key_id))
        for poll in polls:
            status, said = poll.told()
            assert (status, said["code"]) == (401, "KEY_REFUSED")
        until_waiting(service, 1)
        service.do(service.coordinator.add_tasks(tasks=["t"]))
        assert other.told()[1]["task_id"] == "t", "of two keys the other one waits on"


def test_who_waits_by_a_key_that_expires_is_told_so() -> None:
    clock = ManualClock()
    with serving(clock=clock, choices=KEYS) as service:
        key = make_key(service, expires_at=clock.now().replace(year=clock.now().year + 1))
        poll = Poll(service, key.text, "s1")
        until_waiting(service, 1)
        clock.advance(2 * 366 * 86400)
        status, said = poll.told()
        assert (status, said["code"]) == (401, "KEY_REFUSED")
        service.do(service.coordinator.add_tasks(tasks=["t"]))
        assert state(service, "t") == "PENDING"


def test_who_waits_for_a_session_that_gets_a_key_of_its_own_waits_no_longer() -> None:
    with serving(choices=KEYS) as service:
        poll = Poll(service, make_key(service).text, "s1")
        until_waiting(service, 1)
        make_key(service, session_id="s1")
        status, said = poll.told()
        assert (status, said["code"]) == (403, "ROLE_REFUSED")


def test_a_tenant_s_waiting_requests_may_take_half_of_the_connections() -> None:
    with serving(choices=Choices(connections=4)) as service:
        polls = [Poll(service, None, f"s{number}") for number in range(2)]
        until_waiting(service, 2)
        status, said = Poll(service, None, "one-more").told()
        assert (status, said["code"]) == (429, "TOO_MANY_REQUESTS")
        assert "limit tenant_waiting" in said["detail"]
        asked = {"agent_id": "a", "session_id": "s", "wait_seconds": 0}
        assert service.http.post(f"{PLACE}/claim-next", json=asked).status_code == 200, "who does not wait is answered"
        service.do(service.coordinator.add_tasks(tasks=["t0", "t1"]))
        assert [poll.told()[0] for poll in polls] == [200, 200]
        service.do(service.coordinator.add_tasks(tasks=["t2"]))
        assert Poll(service, None, "again").told()[1]["task_id"] == "t2", "who has left is not counted"
