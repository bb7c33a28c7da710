"""Many clients of one project: each gets everything, soon, and together they cost little more than
one."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

import genlock
from tests.processes.crew import Member
from tests.service.events.streaming import streaming

CROWD = Path(__file__).with_name("crowd.py")
PATH = "/default/default?type=IDS_TAKEN"


@pytest.mark.parametrize("clients", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_however_many_the_clients_all_get_all_events(
    fleet: genlock.Coordinator, clients: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    with streaming(fleet.engine) as service, Member(CROWD) as crowd:
        crowd.tell(
            port=service.port, path="/default/default", clients=clients, events=51, times=False
        )
        crowd.expect(fact="there")
        assert service.broker.clients == clients
        began, used = time.monotonic(), time.process_time()
        for _ in range(50):
            fleet.next_id()
        for _ in range(51):  # that the project exists is one too
            crowd.expect(fact="got")
        took, used = time.monotonic() - began, time.process_time() - used
        assert crowd.expect(fact="finished")["got"] == [51] * clients
        service.do(service.broker.idle())
    print(
        f"51 events to {clients:,} clients: {took:.2f} s, of which the service worked {used:.2f} s"
    )


def test_an_event_reaches_a_hundred_clients_soon_after_its_commit(
    fleet: genlock.Coordinator,
) -> None:
    late: list[float] = []
    with streaming(fleet.engine) as service, Member(CROWD) as crowd:
        fleet.next_id()
        crowd.tell(port=service.port, path=PATH, clients=100, events=40, times=True)
        crowd.expect(fact="there")
        for _ in range(40):
            began = time.monotonic_ns()
            fleet.next_id()
            late += [(got - began) / 1e6 for got in crowd.expect(fact="got")["times"]]
    late.sort()
    middle, most = late[len(late) // 2], late[len(late) * 95 // 100]
    print(
        f"from before the commit to each of 100 clients: median {middle:.1f} ms, p95 {most:.1f} "
        f"ms, longest {late[-1]:.1f} ms"
    )
    assert most < 2000
