"""A server that is away, or has no room: calls wait for it until their deadline, then say what to
do; nobody need be restarted.

The first part runs on every server of the catalog, the second is about PostgreSQL.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

import genlock
from genlock.engine.replay_check import check
from genlock.errors import GenlockError, StoreUnavailable
from genlock.stores.postgres import PostgresStore
from genlock.testing.concurrency import PATIENCE
from tests.engine.gated_store import GatedStore, later
from tests.eventually import eventually
from tests.servers import pgbouncer
from tests.servers.postgres import Postgres, running
from tests.servers.proxy import between
from tests.servers.stores import Server

AGENTS = 8
LAST = "the-last"
ATTEMPTS_A_SECOND = 30
"""So often one coordinator may knock at the door of a server that is away: four threads, each twice
a second, and more at first."""


class Load:
    """Agents that add, claim and complete tasks of their own, one after the other, until they are
    told to stop."""

    def __init__(self, fleet: genlock.Coordinator) -> None:
        self._fleet = fleet
        self._enough = threading.Event()
        self.completed: Counter[str] = Counter()
        self.errors: list[GenlockError] = []
        self.last = [0.0] * AGENTS
        """When each had its last answer."""
        self._threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(AGENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        session = f"s{number}"
        turn = 0
        while not self._enough.is_set():
            turn += 1
            task = f"task-{number}-{turn}"
            try:
                self._fleet.add_tasks(tasks=[task])
                claim = self._fleet.claim_task(
                    task_id=task, session_id=session, agent_id=session
                ).claim
                assert claim is not None
                if self._fleet.submit_result(
                    task_id=task, generation=claim.generation, session_id=session, result_data=task
                ).accepted:
                    self.completed[task] += 1
            except GenlockError as error:
                self.errors.append(error)
                return
            self.last[number] = time.monotonic()

    def wait_for_all(self) -> None:
        """Returns when every agent has completed one more task from now on."""
        now = time.monotonic()
        eventually(lambda: self.errors or min(self.last) > now, "a task more from every agent")

    def end(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()


def accepted(fleet: genlock.Coordinator) -> Counter[str]:
    """Whose results were accepted, as one hears who follows the feed from its beginning to the last
    task."""
    heard: Counter[str] = Counter()
    for event in fleet.watch(after=fleet.read_events(limit=1).events[0].cursor):
        if event.event_type == "RESULT_ACCEPTED":
            heard[event.id] += 1
        if (event.event_type, event.id) == ("TASK_ADDED", LAST):
            break
    return heard


@pytest.mark.parametrize("away_seconds", [3.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_a_server_that_is_away_for_a_while_is_waited_for_and_nobody_is_restarted(
    server: Server, tmp_path: Path, away_seconds: float
) -> None:
    with (
        between(server.port) as patient_way,
        between(server.port) as hasty_way,
        ExitStack() as stack,
    ):
        patient, hasty = (
            stack.enter_context(
                genlock.connect(
                    server.store_url(tmp_path, way.port),
                    create=True,
                    session_id="s",
                    agent_id="a",
                    deadline_seconds=deadline,
                )
            )
            for way, deadline in ((patient_way, away_seconds + 30), (hasty_way, 0.5))
        )
        hasty.add_tasks(tasks=["hasty"])
        seen = later(lambda: accepted(patient))
        load = Load(patient)
        load.wait_for_all()
        server.kill()
        gone = time.monotonic()
        with pytest.raises(StoreUnavailable, match="call again when it is back, or wait longer"):
            hasty.claim_task(task_id="hasty")
        with pytest.raises(StoreUnavailable, match="call again when it is back, or wait longer"):
            hasty.get_task_state(task_id="hasty")
        # Nothing happens that one could wait for: the server is to be away for exactly so long.
        time.sleep(max(0.0, gone + away_seconds - time.monotonic()))
        back = time.monotonic()
        assert max(load.last) < back - away_seconds / 2, (
            "somebody was answered while the server was away"
        )
        server.start()
        load.wait_for_all()
        load.end()
        assert load.errors == []
        patient.add_tasks(tasks=[LAST])
        assert seen.result(PATIENCE) == load.completed, (
            "a watcher missed something, or saw it twice"
        )
        for way in (patient_way, hasty_way):
            knocks = Counter(int(at - gone) for at in way.asked if gone < at < back)
            assert max(knocks.values()) <= ATTEMPTS_A_SECOND, knocks
        assert sum(gone < at < back for at in patient_way.asked) >= away_seconds / 2, (
            "it was hardly looked for"
        )
        assert hasty.claim_task(task_id="hasty").claim.generation == 1  # type: ignore[union-attr]
        states = patient.batch_get_states(task_ids=list(load.completed))
        assert {(state.state, state.generation) for state in states.values()} == {("COMPLETED", 1)}
        assert {
            name: state.result.result_data for name, state in states.items() if state.result
        } == {name: name for name in load.completed}
        assert check(patient.engine.store) == []


# PostgreSQL


@pytest.fixture(scope="module")
def strict() -> Iterator[Postgres]:
    """A server with few seats, and with a password for everybody but its owner."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        rules = Path(folder) / "hba"
        rules.write_text(
            "host all genlock 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        with running(
            hba_file=str(rules),
            max_connections="12",
            superuser_reserved_connections="1",
            max_wal_senders="0",
        ) as server:
            with psycopg.connect(server.address, autocommit=True) as owner:
                owner.execute(
                    "CREATE ROLE bob LOGIN PASSWORD 'right'; GRANT CREATE ON DATABASE postgres TO "
                    "bob"
                )
            yield server


@pytest.mark.parametrize("given", ["bob", "bob:wrong", "nobody:right"])
def test_wrong_credentials_are_said_and_not_shown(strict: Postgres, given: str) -> None:
    name, _, password = given.partition(":")
    with pytest.raises(StoreUnavailable) as raised:
        genlock.open_store(strict.url().replace("genlock@", f"{given}@"), create=True)
    said = str(raised.value)
    assert (
        f'password authentication failed for user "{name}"' in said
        or "no password supplied" in said
    )
    assert not password or password not in said
    assert "user:password@" in said


def test_with_the_right_password_one_gets_in(strict: Postgres) -> None:
    with genlock.connect(
        strict.url().replace("genlock@", "bob:right@"), create=True, session_id="s", agent_id="a"
    ) as fleet:
        fleet.add_tasks(tasks=["T"])
        assert fleet.claim_task(task_id="T").success


def test_a_server_without_room_is_waited_for_and_said(strict: Postgres) -> None:
    """All connections that it takes are in use, for as long as the test says."""
    url = strict.url().replace("genlock@", "bob:right@")
    with ExitStack() as seats:
        fleet = seats.enter_context(
            genlock.connect(
                url, create=True, session_id="s", agent_id="a", deadline_seconds=PATIENCE
            )
        )
        hasty = seats.enter_context(
            genlock.connect(url, create=True, session_id="h", agent_id="h", deadline_seconds=0.3)
        )
        fleet.add_tasks(tasks=["T", "U"])
        taken = take_all_seats(strict, seats)
        waiting = later(lambda: fleet.claim_task(task_id="T"))
        with pytest.raises(
            StoreUnavailable,
            match=r"(too many clients|remaining connection slots).*max_connections",
        ):
            genlock.open_store(url, create=True)
        with pytest.raises(StoreUnavailable, match="call again when it is back"):
            hasty.claim_task(task_id="U")
        assert not waiting.done()
        for seat in taken:
            seat.close()
        assert waiting.result(PATIENCE).success
        assert hasty.claim_task(task_id="U").success


def take_all_seats(
    server: Postgres, seats: ExitStack
) -> list[psycopg.Connection[tuple[object, ...]]]:
    """Takes so many connections that none is left for bob, whose own are broken off."""
    taken = [seats.enter_context(psycopg.connect(server.address, autocommit=True))]
    refused = 0

    def all_taken() -> bool:
        # Two refusals in a row: the first may be due to a connection of bob that is still ending.
        nonlocal refused
        try:
            taken.append(seats.enter_context(psycopg.connect(server.address)))
            refused = 0
        except psycopg.OperationalError:
            left = taken[0].execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE usename = 'bob'"
            )
            refused = refused + 1 if left.fetchone() == (0,) else 0
        return refused == 2

    eventually(all_taken, "bob's connections to end", seconds=PATIENCE)
    return taken


@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
def test_a_commit_that_takes_too_long_is_tried_again_and_done_once(
    postgres: Postgres, limit: str
) -> None:
    url = postgres.url()
    with genlock.connect(url, create=True) as other, psycopg.connect(postgres.address) as rival:
        other.add_tasks(tasks=["T"])
        store = GatedStore(PostgresStore(f"{url}&{limit}=0.2"))
        with genlock.connect(
            store, session_id="s", agent_id="a", deadline_seconds=PATIENCE
        ) as fleet:
            schema = url.partition("schema=")[2]
            rival.execute(f"SELECT 1 FROM {schema}.record FOR UPDATE")
            waiting = later(lambda: fleet.claim_task(task_id="T"))
            eventually(
                lambda: sum(commit.answers is None for commit in store.commits) >= 2,
                "two commits that are refused",
            )
            rival.rollback()
            assert waiting.result(PATIENCE).success
            assert [event.event_type for event in other.read_events(task_id="T").events] == [
                "TASK_ADDED",
                "CLAIM_ACQUIRED",
            ]


def test_a_commit_that_waits_in_the_server_when_its_connection_breaks_is_done_later_and_told_as_done(
    postgres: Postgres,
) -> None:
    """The server does not stop because the client is gone. The second try stands in the queue
    behind the first."""
    url = postgres.url()
    schema = url.partition("schema=")[2]
    with between(postgres.port) as proxy, ExitStack() as stack:
        rival, owner = (
            stack.enter_context(psycopg.connect(postgres.address, autocommit=each))
            for each in (False, True)
        )
        other = stack.enter_context(genlock.connect(url, create=True))
        way = url.replace(f":{postgres.port}/", f":{proxy.port}/")
        fleet = stack.enter_context(
            genlock.connect(
                f"{way}&application_name={schema}",
                create=True,
                session_id="s",
                agent_id="a",
                deadline_seconds=PATIENCE,
            )
        )
        other.add_tasks(tasks=["T"])
        assert fleet.claim_task(task_id="T").success
        rival.execute(f"SELECT 1 FROM {schema}.record FOR UPDATE")
        released = later(lambda: fleet.release_claim(task_id="T", expected_generation=1))
        for queue in (1, 2):
            wait_for_queue(owner, schema, queue)
            if queue == 1:
                proxy.cut()
        rival.rollback()
        assert released.result(PATIENCE).reason == "RELEASED"
        assert [event.event_type for event in other.read_events(task_id="T").events] == [
            "TASK_ADDED",
            "CLAIM_ACQUIRED",
            "CLAIM_RELEASED",
        ]


def wait_for_queue(
    owner: psycopg.Connection[tuple[object, ...]], application: str, length: int
) -> None:
    """Returns when so many of its connections wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND "
        "wait_event_type = 'Lock'"
    )
    eventually(
        lambda: owner.execute(query, [application]).fetchone() == (length,),
        f"{length} connections that wait for a lock",
    )


@pytest.mark.slow
def test_through_a_transaction_pooler_a_fleet_works_and_is_woken(postgres: Postgres) -> None:
    url = postgres.url()
    with pgbouncer.pooling(postgres) as port:
        pooled = f"{url.replace(f':{postgres.port}/', f':{port}/')}&pooled=on"
        listening = f"{pooled}&listen_url={postgres.address}"
        with (
            genlock.connect(pooled, create=True, deadline_seconds=30) as fleet,
            genlock.connect(listening, session_id="w", agent_id="w") as waiter,
        ):
            woken = later(lambda: waiter.claim_next(wait_seconds=PATIENCE, tracks="Z"))
            load = Load(fleet)
            load.wait_for_all()
            load.wait_for_all()
            fleet.add_tasks(tasks=["Z-001-last"])
            assert woken.result(PATIENCE).task_id == "Z-001-last"
            load.end()
            assert load.errors == []
            assert check(fleet.engine.store) == []
