"""What a store on a server owes besides the contract: connections that break, many who come at
once, forks, and a server that crashes.

A store's own module inherits `ServedStore` and has the fixtures `url`, of a store of the test's
own; `store`, which is open on it; and `proxy`, before the same server.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

import genlock
from genlock.errors import OutcomeUnknown, StoreError, StoreReadOnly, StoreUnavailable
from genlock.store import Change, Committed, EventQuery, Store
from genlock.stores.round_trips import PendingCall
from genlock.testing.concurrency import PATIENCE, together
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually
from tests.resource_limits import no_threads
from tests.servers.proxy import Proxy


def through(proxy: Proxy, url: str) -> str:
    """The same URL by way of the proxy."""
    return re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{proxy.port}", url, count=1)


def commit_once_back(store: Store, change: Change) -> None:
    """Commits once the store is back."""

    def commit_now() -> bool:
        commit(store, change)
        return True

    eventually(commit_now, "the store to come back", retry_on=(StoreUnavailable,))


def lose_nothing_in_a_crash(
    store: Store,
    crash: Callable[[], object],
    start: Callable[[], object],
    again: Callable[[Store, Change], None] = commit_once_back,
) -> None:
    """Writes until the server crashes, starts it again, and looks: what was acknowledged is there,
    and nothing that was never sent.

    `again` commits once the store is back.
    """
    assert store.limits.durable
    acknowledged: list[Change] = []
    unknown: list[Change] = []
    down = threading.Event()

    def write() -> None:
        number = 0
        while not down.is_set():
            change = make_change(make_key(f"A-{number:05}"))
            number += 1
            try:
                acknowledged.extend(
                    change for answer in store.commit([change]) if isinstance(answer, Committed)
                )
            except OutcomeUnknown:
                unknown.append(change)
            except StoreUnavailable:
                continue

    writer = threading.Thread(target=write)
    writer.start()
    eventually(lambda: len(acknowledged) >= 50, "fifty acknowledged commits")
    crash()
    down.set()
    writer.join()
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        store.commit([make_change(make_key("while it is down"))])
    start()
    again(store, make_change(make_key("after")))
    kept = {event.key for event in read_feed(store)}
    assert {change.key for change in acknowledged} <= kept
    assert kept <= {change.key for change in [*acknowledged, *unknown]} | {make_key("after")}


def follow_a_switchover(
    store: Any, way: Proxy, switch_over: Callable[[], object], port: int
) -> None:
    """The server can only be read by now, and its name leads to another. One is told so once, and
    all that follows is done there."""
    commit(store, make_change(make_key()))
    with store._entered(), store._entered():
        pass  # now there are two connections
    with store._entered():  # one of them is lent when the other is found to lead to the wrong place
        switch_over()
        way.lead_new_ones_to(port)
        with pytest.raises((StoreReadOnly, StoreUnavailable)):
            store.commit([make_change(make_key("A-002"))])
    for number in (3, 4):
        change = make_change(make_key(f"A-{number:03}"))
        # The first commit after a promotion may be a conflict, where the store has noticed it.
        assert Committed in [type(store.commit([change])[0]) for _ in range(2)]


def outlive_a_promotion(store: Store, promote: Callable[[], object]) -> None:
    """A store that was opened on a replica can only be read, until that is promoted: then it is
    written to, and nobody opens it anew."""
    change, before = make_change(make_key("A-002")), store.limits
    assert before.read_only
    with pytest.raises(StoreReadOnly):
        store.commit([change])
    promote()
    # The first commit after a promotion may be a conflict, where the store has noticed it.
    assert Committed in [type(store.commit([change])[0]) for _ in range(2)]
    assert not store.limits.read_only
    assert [event.key.id for event in read_feed(store)] == ["A-001", "A-002"]


def wait_for_another(store: Any, other: Store, change: Change) -> None:
    """Whoever waits for the feed hears of what another handle commits, long before his time is
    up."""
    cursor = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
    asleep, wait = threading.Event(), store._notifications.wait

    def wait_asleep(*given: Any) -> bool:
        asleep.set()
        return bool(wait(*given))

    def follow() -> None:
        while store.read_events(EventQuery("acme", "apollo", tail=True)).cursor == cursor:
            store.wait([("acme", "apollo")], [cursor], PATIENCE)

    store._notifications.wait = wait_asleep
    follower = threading.Thread(target=follow)
    follower.start()
    assert asleep.wait(PATIENCE)
    commit(other, change)
    follower.join(PATIENCE / 2)
    assert not follower.is_alive(), "nobody has heard of it"
    store._notifications.wait = wait


class ServedStore:
    """Tests for whoever inherits them."""

    kind: Callable[[str], Any]
    """The store, by its URL."""
    driver: str
    extra: str
    anywhere: str
    """Some URL; nobody need be there."""

    def test_without_its_driver_the_error_names_the_extra(self) -> None:
        script = f"""
            import sys
            sys.modules["{self.driver}"] = None
            import genlock
            try:
                genlock.open_store("{self.anywhere}", create=True)
            except genlock.GenlockError as error:
                print(error)
        """
        shown = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"pip install 'genlock[{self.extra}]'" in shown

    def test_many_who_open_a_new_store_at_once_all_get_the_same(self, url: str) -> None:
        stores = [run.answer for run in together([partial(self.kind, url) for _ in range(6)])]
        commit(stores[0], make_change(make_key()))
        assert [len(read_feed(store)) for store in stores] == [1] * 6
        assert (
            len(
                {
                    store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
                    for store in stores
                }
            )
            == 1
        )
        for store in stores:
            store.close()

    def test_idle_connections_that_were_cut_are_replaced_without_a_word(
        self, proxy: Proxy, url: str
    ) -> None:
        with closing(self.kind(through(proxy, url))) as store:
            first = make_change(make_key())
            commit(store, first)
            proxy.cut()
            commit(store, make_change(first.key, first))
            proxy.cut()
            assert store.load([first.key]).records[first.key].version == 2

    def test_a_read_whose_answer_is_lost_is_unavailable(self, proxy: Proxy, url: str) -> None:
        with closing(self.kind(through(proxy, url))) as store:
            store.load([])
            proxy.cut_at_the_next_answer()
            with pytest.raises(StoreUnavailable):
                store.load([make_key()])
            assert store.load([make_key()]).records == {}

    def test_a_claim_whose_commit_was_cut_is_granted_once(self, proxy: Proxy, url: str) -> None:
        with (
            genlock.connect(url, create=True) as other,
            genlock.connect(through(proxy, url), session_id="s", agent_id="a") as fleet,
        ):
            other.add_tasks(tasks=[f"T-{number}" for number in range(10)])
            fleet.register_session()
            for number in range(10):
                (proxy.cut_at_the_next_answer if number % 2 else proxy.cut)()
                result = fleet.claim_task(task_id=f"T-{number}")
                assert result.claim is not None
                assert result.claim.generation == 1
            for number in range(10):
                events = [
                    event.event_type for event in other.read_events(task_id=f"T-{number}").events
                ]
                assert events == ["TASK_ADDED", "CLAIM_ACQUIRED"]

    def test_a_full_pool_is_unavailable_and_says_how_to_widen_it(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("genlock.stores.connection_pool.FULL_SECONDS", 0.1)
        with closing(self.kind(f"{url}&pool=1")) as store:
            with store._entered(), pytest.raises(StoreUnavailable, match="pool="):
                store.load([])
            assert store.load([]).epoch == 0

    def test_commits_under_way_leave_a_connection_to_whoever_reads(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("genlock.stores.connection_pool.FULL_SECONDS", 0.1)
        for pool in (1, 2):
            with closing(self.kind(f"{url}&pool={pool}")) as store:
                changes = [make_change(make_key(f"A-{pool}{number}")) for number in range(3)]
                under_way = [store.start_commit([change]) for change in changes]
                assert store.load([]).epoch == 0
                assert [type(sent.answers()[0]) for sent in under_way] == [Committed] * 3
                # Who has been heard, or is not wanted any more, makes room for the next.
                for number in range(3):
                    sent = store.start_commit([make_change(make_key(f"B-{pool}{number}"))])
                    assert isinstance(sent, PendingCall) == (pool > 1)
                    del sent

    def test_one_connection_is_enough_for_many_callers(self, url: str) -> None:
        with genlock.connect(f"{url}&pool=1", create=True, agent_id="a") as fleet:
            fleet.add_tasks(tasks=[f"T-{number}" for number in range(80)])

            def claim(caller: int) -> list[bool]:
                return [
                    fleet.claim_task(
                        task_id=f"T-{caller * 10 + at}", session_id=f"s-{caller}"
                    ).success
                    for at in range(10)
                ]

            assert [
                run.answer for run in together([partial(claim, caller) for caller in range(8)])
            ] == [[True] * 10] * 8

    def test_where_no_thread_can_be_started_all_go_on_without(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with (
            closing(self.kind(url)) as store,
            closing(self.kind(url)) as other,
            genlock.connect(url, create=True, agent_id="a", session_id="s") as fleet,
        ):
            fleet.add_tasks(tasks=[f"T-{number}" for number in range(80)])
            with no_threads(monkeypatch) as refused:
                commit(store, make_change(make_key("A-001")))
                wait_for_another(store, other, make_change(make_key("A-002")))
                wanted = set(refused)

                def claim(caller: int) -> list[bool]:
                    return [
                        fleet.claim_task(task_id=f"T-{caller * 10 + at}").success
                        for at in range(10)
                    ]

                assert [
                    run.answer for run in together([partial(claim, caller) for caller in range(8)])
                ] == [[True] * 10] * 8
                assert not fleet.claim_next(wait_seconds=0.01).success
            # As soon as there can be some, there are.
            commit(store, make_change(make_key("A-003")))
            wait_for_another(store, other, make_change(make_key("A-004")))
            assert wanted
            assert wanted <= {thread.name for thread in threading.enumerate()}

    def test_without_a_file_to_spare_it_is_unavailable_and_comes_back(self, url: str) -> None:
        script = f"""
            import os, resource
            import genlock
            store = genlock.open_store("{url}", create=True)
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            said = set()
            for free in range(8):
                store._pool.drop_idle()
                taken = []
                try:
                    while True:
                        taken.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    pass
                for _ in range(free):
                    os.close(taken.pop())
                try:
                    store.load([])
                    said.add("loaded")
                except genlock.errors.StoreUnavailable:
                    said.add("unavailable")
                finally:
                    for each in taken:
                        os.close(each)
            store.load([])
            store.close()
            print(*sorted(said))
        """
        shown = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
        )
        assert (shown.stdout, shown.stderr) == ("loaded unavailable\n", "")

    def test_after_a_fork_the_child_is_told_and_the_parent_goes_on(self, store: Store) -> None:
        commit(store, make_change(make_key()))
        child = os.fork()
        if child == 0:
            try:
                store.load([])
            except StoreError as error:
                store.close()
                os._exit(0 if "does not survive fork" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        commit(store, make_change(make_key("A-002")))
