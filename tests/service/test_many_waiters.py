"""A thousand agents that wait for work and a thousand clients of the events, at one service.

While nothing happens they cost next to nothing, and when something does each is told.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from pathlib import Path

import pytest

import genlock
from tests.processes.crew import Member
from tests.service import waiting
from tests.service.events.test_many_clients import CROWD
from tests.service.process import Service, make_store, serve
from tests.service.usage import usage_of

TASKS = 50
IDLE_SECONDS = 10.0
STREAM = "/v1/default/default/events/stream?type=CLAIM_ACQUIRED"


def read_calls(service: Service) -> float:
    """How often the store was asked, of what the service counts."""
    with urllib.request.urlopen(f"{service.url}metrics", timeout=30) as answer:
        text = answer.read().decode()
    return sum(
        map(
            float,
            re.findall(
                r"^genlock_(?:load|commit)_duration_seconds_count(?:\{[^}]*\})? (\S+)",
                text,
                re.MULTILINE,
            ),
        )
    )


@pytest.mark.slow
def test_a_thousand_who_wait_and_a_thousand_who_watch_cost_little_and_are_all_told(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path)
    with (
        genlock.connect(store, session_id="planner", agent_id="planner") as fleet,
        serve(tmp_path, "--trust-local", "--log-level", "warning", url=store) as service,
        Member(Path(waiting.__file__)) as waiters,
        Member(CROWD) as crowd,
    ):
        fleet.set_tenant(profile="enterprise", limits={"max_active_sessions": 5000})
        before = usage_of(service.process.pid)
        crowd.tell(port=service.port, path=STREAM, clients=1000, events=TASKS, times=False)
        crowd.expect(fact="there")
        waiters.tell(port=service.port, waiters=1000, tasks=TASKS)
        waiters.expect(fact="there")
        idle(service)  # until all have found nothing
        calls, idling = read_calls(service), usage_of(service.process.pid)
        idle(service)
        asked, used = read_calls(service) - calls, usage_of(service.process.pid)
        busy = (used.cpu_seconds - idling.cpu_seconds) / IDLE_SECONDS
        print(
            f"\n2,000 clients idle: {busy:.1%} of a core, {asked / IDLE_SECONDS:.1f} loads and "
            "commits a second"
        )
        print(f"memory: {before.megabytes:.0f} MB, with all of them {used.megabytes:.0f}")
        late = []
        for number in range(TASKS):
            began = time.monotonic()
            fleet.add_tasks(tasks=[f"t{number}"])
            granted = waiters.expect(fact="granted", task=f"t{number}")
            late.append((granted["at"] - began) * 1000)
            crowd.expect(fact="got")
        late.sort()
        print(
            f"added to granted: median {late[TASKS // 2]:.1f} ms, p95 "
            f"{late[int(TASKS * 0.95)]:.1f} ms"
        )
        assert sorted(waiters.expect(fact="finished")["granted"]) == sorted(
            f"t{number}" for number in range(TASKS)
        )
        assert crowd.expect(fact="finished")["got"] == [TASKS] * 1000
        assert busy < 0.1
        assert used.megabytes - before.megabytes < 200
        assert service.end() == 0


def idle(service: Service) -> None:
    """Lets time pass in which nothing is asked; what it costs is what is measured."""
    assert not threading.Event().wait(IDLE_SECONDS)
    assert service.process.poll() is None
