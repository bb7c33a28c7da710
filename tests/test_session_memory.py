"""What a session's memory costs: it is read from the session's first event on."""

from __future__ import annotations

from pathlib import Path

import genlock
from genlock.store import EventPage, EventQuery
from genlock.stores.memory import MemoryStore


class CountingStore(MemoryStore):
    """Counts the events of feeds that it hands out."""

    read = 0

    def read_events(self, query: EventQuery) -> EventPage:
        page = super().read_events(query)
        if query.record is None:
            self.read += len(page.events)
        return page


def test_a_sessions_memory_reads_nothing_of_the_time_before_the_session() -> None:
    store = CountingStore()
    with genlock.connect(store, session_id="early", agent_id="a") as fleet:
        fleet.add_tasks(tasks=[f"t{number}" for number in range(6_000)])
        fleet.claim_task(task_id="t0")
        fleet.claim_task(task_id="t1", session_id="late", agent_id="b")
        fleet.submit_result(task_id="t1", generation=1, session_id="late")
        store.read = 0

        memory = fleet.get_session_memory(session_id="late")

        assert store.read < 2_100
        assert [(entry.event, entry.task_id) for entry in memory.task_log] == [
            ("CLAIM_ACQUIRED", "t1"),
            ("RESULT_SUBMITTED", "t1"),
        ]


def test_a_session_that_ends_and_comes_back_by_another_claim_remembers_its_first(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with genlock.connect(url, session_id="s", agent_id="a", create=True) as fleet:
        fleet.add_tasks(tasks=["one", "two", *(f"t{number}" for number in range(3_000))])
        fleet.claim_task(task_id="one")
        fleet.add_tasks(tasks=[f"u{number}" for number in range(3_000)])
        fleet.claim_task(task_id="two")
        assert [entry.task_id for entry in fleet.get_session_memory().task_log] == ["one", "two"]
