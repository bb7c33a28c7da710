"""SQLite: what only this store does, or can go wrong with."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from genlock.errors import (
    BadArgument,
    Closed,
    CursorLost,
    OutcomeUnknown,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
)
from genlock.store import Change, Committed, EventQuery, Index, Query, Store
from genlock.stores import file_watch
from genlock.stores.payloads import ABANDONED_SECONDS
from genlock.stores.sqlite import SQLiteStore
from genlock.stores.sqlite.connections import QUERIES
from genlock.testing.sample import facts_of, keys_of, make_change, make_key, read_feed, recorded_of
from tests.eventually import eventually
from tests.resource_limits import no_threads
from tests.stores.faulty_vfs import FaultyVFS

FEED = EventQuery("acme", "apollo")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "genlock.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    with closing(SQLiteStore(path)) as store:
        yield store


def tamper(path: Path, statement: str) -> None:
    """Changes the file behind the store's back."""
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def writer_of(store: SQLiteStore) -> apsw.Connection:
    assert store._writer
    return store._writer.db


def must_commit(store: Store, *changes: Change) -> None:
    assert all(isinstance(answer, Committed) for answer in store.commit(changes))


# Writing


def test_a_claim_writes_a_record_and_an_event_and_no_index_that_stays(store: SQLiteStore) -> None:
    offered = Index(state="PENDING", pool="p", order="1", parent="P", waits_on=("+D-1", "+D-2"))
    first = [make_change(make_key(f"A-{number:03}"), index=offered) for number in range(20)]
    must_commit(store, *first)
    store.load([change.key for change in first])
    claimed = Index(
        state="IN_PROGRESS", due_at=5, session="s", parent="P", waits_on=("+D-1", "+D-2")
    )
    must_commit(store, make_change(make_key("session"), index=Index(session="s")))
    before = writer_of(store).total_changes()
    must_commit(store, *(make_change(change.key, change, index=claimed) for change in first))
    assert writer_of(store).total_changes() - before == 20 + 20 + 1, (
        "records, events, and the feed's head"
    )


def test_names_that_were_rolled_back_are_given_to_others(store: SQLiteStore, path: Path) -> None:
    must_commit(
        store,
        make_change(
            make_key("A-001", project="first"), index=Index(pool="p1", order="1", session="s1")
        ),
    )
    writer_of(store).execute("PRAGMA max_page_count = 1")
    large = make_change(
        make_key("A-002", project="second"),
        index=Index(pool="p2", order="1", session="s2"),
        body=bytes(100_000),
    )
    with pytest.raises(StoreFull):
        store.commit([large])
    writer_of(store).execute("PRAGMA max_page_count = 1000000")
    with closing(SQLiteStore(path)) as other:
        must_commit(
            other,
            make_change(
                make_key("A-003", project="third"), index=Index(pool="p3", order="1", session="s3")
            ),
        )
    must_commit(
        store,
        large,
        make_change(
            make_key("A-004", project="second"), index=Index(pool="p2", order="2", session="s2")
        ),
    )
    for number, ids in ((1, ["A-001"]), (2, ["A-002", "A-004"]), (3, ["A-003"])):
        project = ("first", "second", "third")[number - 1]
        for query in (
            Query("acme", project, pool=f"p{number}"),
            Query("acme", session=f"s{number}"),
            Query("acme", project),
        ):
            assert [key.id for key in keys_of(store.find(query))] == ids


def test_a_full_disk_is_said_so_and_nothing_is_written(store: SQLiteStore) -> None:
    change = make_change(make_key(), events=2)
    must_commit(store, change)
    writer_of(store).execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreFull, match=r"genlock\.db"):
        store.commit(
            [make_change(change.key, change, body=bytes(200_000)), make_change(make_key("A-002"))]
        )
    writer_of(store).execute("PRAGMA max_page_count = 1000000")
    assert facts_of(read_feed(store)) == recorded_of([change])
    must_commit(store, make_change(change.key, change, body=bytes(200_000)))


@pytest.fixture
def faulty() -> Iterator[FaultyVFS]:
    vfs = FaultyVFS("faulty")
    yield vfs
    vfs.unregister()


def test_a_disk_that_fills_up_inside_the_commit_is_said_so(path: Path, faulty: FaultyVFS) -> None:
    with closing(SQLiteStore(path, vfs="faulty")) as store:
        change = make_change(make_key())
        must_commit(store, change)
        faulty.on_write = apsw.FullError("no room")
        with pytest.raises(StoreFull):
            store.commit([make_change(change.key, change)])
        faulty.on_write = None
        must_commit(store, make_change(change.key, change))


def test_a_commit_that_cannot_be_synced_has_an_unknown_outcome(
    path: Path, faulty: FaultyVFS
) -> None:
    with closing(SQLiteStore(path, vfs="faulty")) as store:
        change = make_change(make_key())
        must_commit(store, change)
        faulty.on_sync = apsw.IOError("the disk does not answer")
        with pytest.raises(OutcomeUnknown, match=r"genlock\.db"):
            store.commit([make_change(change.key, change)])
        faulty.on_sync = None
        version = store.load([change.key]).records[change.key].version
        assert len(read_feed(store)) == version, "whatever the outcome, it is whole"
        must_commit(store, make_change(make_key("A-002")))


def test_what_another_program_locks_is_unavailable(path: Path) -> None:
    with closing(SQLiteStore(path, lock_seconds=0.1)) as store:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"genlock\.db is locked"):
            store.commit([make_change(make_key())])
        other.close()
        must_commit(store, make_change(make_key()))


# The gate

HOLDER = """if True:
    import sys
    from pathlib import Path
    from genlock.stores.sqlite.write_lock import WriteLock
    def inside():
        print("inside", flush=True)
        sys.stdin.readline()
    WriteLock(Path(sys.argv[1]), 60).pass_through(inside)
"""


@contextmanager
def holder_of(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process inside the gate of this file."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, f"{path}.gate"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "inside\n"
        try:
            yield process
        finally:
            process.kill()


def when_queued(store: SQLiteStore, act: Callable[[], object]) -> threading.Thread:
    """Acts as soon as a writer of this handle waits for the write lock."""

    def watch() -> None:
        assert store._writer
        writer = store._writer
        eventually(lambda: writer._write_lock._outstanding, "a writer that waits for the lock")
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def let_go(holder: subprocess.Popen[str]) -> None:
    """The process leaves the gate."""
    assert holder.stdin
    holder.stdin.write("\n")
    holder.stdin.flush()


def test_who_waits_too_long_is_told_who_is_inside_and_that_it_is_stopped(
    store: SQLiteStore, path: Path
) -> None:
    with closing(SQLiteStore(path, lock_seconds=0.2)) as impatient, holder_of(path) as holder:
        change = make_change(make_key())
        with pytest.raises(
            StoreUnavailable, match=f"process {holder.pid} has locked .its state is"
        ):
            impatient.commit([change])
        os.kill(holder.pid, signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable,
                match=f"process {holder.pid} has locked and is stopped: continue it .kill -CONT",
            ):
                impatient.commit([change])
        assert impatient.load([change.key]).records == {}, "reading needs no gate"
        os.kill(holder.pid, signal.SIGCONT)
        let_go(holder)
        must_commit(store, change)
        must_commit(impatient, make_change(change.key, change))


def test_who_waits_is_not_told_to_end_a_process_that_only_has_the_number_of_the_one_inside(
    path: Path,
) -> None:
    """The process inside may be in another container, where pids are others."""
    with (
        closing(SQLiteStore(path, lock_seconds=0.2)) as impatient,
        holder_of(path) as holder,
        subprocess.Popen(["cat"], stdin=-1) as other,
    ):
        path.with_name(f"{path.name}.gate").write_text(f"{other.pid}\n")
        os.kill(other.pid, signal.SIGSTOP)
        os.waitpid(other.pid, os.WUNTRACED)
        with pytest.raises(StoreUnavailable) as raised:
            impatient.commit([make_change(make_key())])
        other.kill()
        let_go(holder)
    assert (
        f"which process {other.pid} has locked (it cannot be seen from here: it may be in another "
        "container)"
    ) in str(raised.value)


def test_the_gate_opens_when_the_process_inside_is_killed(store: SQLiteStore, path: Path) -> None:
    with holder_of(path) as holder:
        thread = when_queued(store, holder.kill)
        must_commit(store, make_change(make_key()))
        thread.join()


def test_a_commit_in_the_queue_is_done_when_its_turn_comes(store: SQLiteStore, path: Path) -> None:
    with holder_of(path) as holder:
        thread = when_queued(store, partial(let_go, holder))
        must_commit(store, make_change(make_key()))
        thread.join()
        must_commit(store, make_change(make_key("A-002")))


def test_who_cannot_wait_for_want_of_a_thread_is_told_so_and_tries_again(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = make_change(make_key())
    with holder_of(path) as holder:
        with (
            no_threads(monkeypatch) as refused,
            pytest.raises(StoreUnavailable, match="no thread can be started"),
        ):
            store.commit([change])
        assert refused == {"genlock-write-lock"}
        thread = when_queued(store, partial(let_go, holder))
        must_commit(store, change)
        thread.join()


def test_an_error_in_the_queue_reaches_the_caller(store: SQLiteStore, path: Path) -> None:
    must_commit(store, make_change(make_key()))
    store.set_epoch(5)
    with holder_of(path) as holder:
        thread = when_queued(store, partial(let_go, holder))
        with pytest.raises(BadArgument):
            store.set_epoch(5)
        thread.join()


def test_where_the_gate_cannot_be_locked_writers_do_without(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("genlock.stores.sqlite.write_lock.fcntl.flock", refuse)
    stores = [SQLiteStore(path) for _ in range(4)]

    def write(number: int) -> None:
        for turn in range(20):
            must_commit(stores[number], make_change(make_key(f"{number}-{turn}")))

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_feed(stores[0])) == 80
    for store in stores:
        store.close()


# Reading


def test_every_query_goes_by_its_index(store: SQLiteStore) -> None:
    expected = {
        "find_all": "sqlite_autoindex_record_1",
        "find_pool": "record_ready",
        "find_pool_after": "record_ready",
        "find_heads": "record_ready",
        "find_due": "record_due",
        "find_session": "record_session",
        "find_parent": "record_parent",
        "find_waits": "PRIMARY KEY",
        "load": "sqlite_autoindex_record_1",
        "load_one": "sqlite_autoindex_record_1",
        "read_feed": "INTEGER PRIMARY KEY",
        "read_record": "event_record",
        "update_record": "INTEGER PRIMARY KEY",
        "last_purged": "event_record",
        "drop_events": "event_record",
    }
    sorted_afterwards = {"find_heads", "find_session", "find_parent", "find_waits"}
    for name, index in expected.items():
        plan = [
            row[3]
            for row in writer_of(store).execute("EXPLAIN QUERY PLAN " + QUERIES[name], Anything())
        ]
        assert any(index in step for step in plan), f"{name}: {plan}"
        scanned = [
            step
            for step in plan
            if step.startswith(
                ("SCAN record", "SCAN r", "SCAN head", "SCAN event", "SCAN e", "SCAN w")
            )
        ]
        assert not scanned, f"{name}: {plan}"
        assert any("TEMP B-TREE" in step for step in plan) <= (name in sorted_afterwards), (
            f"{name}: {plan}"
        )


class Anything(dict[str, None]):
    """A value for every parameter."""

    def __missing__(self, name: str) -> None:
        return None


def test_pools_without_an_order_come_first_and_on_every_page(store: SQLiteStore) -> None:
    indexes = [Index(pool="p", order=order) for order in (None, "", "1", None, "0", None)]
    must_commit(
        store, *(make_change(make_key(f"A-{at}"), index=index) for at, index in enumerate(indexes))
    )
    for limit in (1, 2, 6):
        query, orders = Query("acme", "apollo", pool="p", limit=limit), []
        while True:
            page = store.find(query)
            orders += [record.order for record in page.records]
            if page.next is None:
                break
            query = replace(query, after=page.next)
        assert orders == [None, None, None, "", "0", "1"]


def test_an_event_without_its_record_is_named(store: SQLiteStore, path: Path) -> None:
    must_commit(store, make_change(make_key("A-001")), make_change(make_key("A-002"), events=2))
    tamper(path, "DELETE FROM record WHERE name = 'A-002'")
    with pytest.raises(
        StoreCorrupt,
        match=r"genlock\.db: the event at position 2 of acme/apollo belongs to record 2",
    ):
        read_feed(store)


def test_a_feed_that_has_lost_its_end_says_so(store: SQLiteStore, path: Path) -> None:
    must_commit(store, make_change(make_key("A-001"), events=5))
    cursor = store.read_events(replace(FEED, limit=4)).cursor
    tamper(path, "DELETE FROM event WHERE version = 5")
    for after in (None, cursor):
        with pytest.raises(
            StoreCorrupt,
            match="the event at position 5 of acme/apollo is missing; the last is at 4",
        ):
            store.read_events(replace(FEED, after=after))
    tamper(path, "UPDATE event SET at = at + 100 WHERE version = 2")
    with pytest.raises(
        StoreCorrupt,
        match="the event at position 102 of acme/apollo is beyond the feed's end, which is 5",
    ):
        read_feed(store)


def test_text_that_is_none_is_shown(store: SQLiteStore, path: Path) -> None:
    must_commit(store, make_change(make_key("A-001"), index=Index(state="BLOCKED")))
    tamper(path, "UPDATE record SET state = CAST(x'42cc4f' AS TEXT)")
    with pytest.raises(
        StoreCorrupt, match=r"acme/apollo task A-001 has b'B\\xccO' in place of a text"
    ):
        store.load([make_key("A-001")], with_index=True)
    tamper(path, "UPDATE record SET name = CAST(x'42cc4f' AS TEXT)")
    with pytest.raises(StoreCorrupt, match=r"genlock\.db has b'B\\xccO' in place of a text"):
        read_feed(store)
    with pytest.raises(BadArgument, match="surrogates"):
        store.find(Query("acme", "apollo", session="\ud800"))
    with pytest.raises(BadArgument, match="surrogates"):
        store.payloads().open(make_key(), "\ud800")


def test_a_cursor_from_after_the_copy_that_was_restored_is_lost(path: Path, tmp_path: Path) -> None:
    with closing(SQLiteStore(path)) as store:
        must_commit(store, make_change(make_key("A-001")))
    shutil.copy(path, tmp_path / "copy.db")
    with closing(SQLiteStore(path)) as store:
        kept = store.read_events(FEED).cursor
        must_commit(store, make_change(make_key("A-002")))
        lost = store.read_events(FEED).cursor
    with closing(SQLiteStore(tmp_path / "copy.db", read_only=True)) as restored:
        assert restored.read_events(replace(FEED, after=kept)).events == []
        with pytest.raises(CursorLost, match="older copy"):
            restored.read_events(replace(FEED, after=lost))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET state = 'PENDINH'",
        "UPDATE record SET pool = pool + 1",
        "UPDATE record SET ord = '11'",
        "UPDATE record SET due_at = due_at + 1",
        "UPDATE record SET session = session + 1",
        "UPDATE record SET parent = 'Q'",
        "UPDATE record SET waits = replace(waits, 'D-1', 'D-2')",
        "UPDATE waits SET dependency = 'D-0' WHERE dependency = 'D-1'",
        "UPDATE waits SET project = project + 1",
        "UPDATE waits SET record = record + 1",
        "UPDATE pool SET name = 'q'",
        "UPDATE session SET name = 't'",
    ],
)
def test_a_change_of_any_index_column_is_seen(
    store: SQLiteStore, path: Path, statement: str
) -> None:
    index = Index(
        state="PENDING",
        pool="p",
        order="1",
        due_at=7,
        session="s",
        parent="P",
        waits_on=("D-1", "+D-3"),
    )
    must_commit(store, make_change(make_key(), index=index))
    assert store.load([make_key()], with_index=True).records[make_key()].index == index
    tamper(path, statement)
    assert store.load([make_key()], with_index=True).records[make_key()].index != index


# Waiting


def waiting(store: Store, timeout: float = 60) -> threading.Thread:
    """A thread that waits for the feed to move."""
    cursor = store.read_events(replace(FEED, tail=True)).cursor
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        store.wait([("acme", "apollo")], [cursor], timeout)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait()
    return thread


def test_closing_wakes_whoever_waits(path: Path) -> None:
    store = SQLiteStore(path)
    threads = [waiting(store) for _ in range(3)]
    store.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_where_writes_cannot_be_noticed_waiters_are_woken_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "_watch", lambda file: None)
    with closing(SQLiteStore(path)) as store, closing(SQLiteStore(path)) as other:
        thread = waiting(store)
        must_commit(other, make_change(make_key()))
        thread.join(10)
        assert not thread.is_alive()


def test_a_waiter_takes_next_to_no_time_of_the_processor(store: SQLiteStore) -> None:
    cursor = store.read_events(replace(FEED, tail=True)).cursor
    store.wait([("acme", "apollo")], [cursor], 0.01)
    began = time.thread_time()
    store.wait([("acme", "apollo")], [cursor], 2)
    assert time.thread_time() - began < 0.02


def test_a_lost_cursor_is_not_waited_for(store: SQLiteStore) -> None:
    cursor = store.read_events(replace(FEED, tail=True)).cursor
    store.set_epoch(1)
    store.wait([("acme", "apollo")], [cursor], 60)


# Forks and the end

FORK = """if True:
    import gc, os, sys
    from genlock.errors import StoreError
    from genlock.store import Query
    from genlock.stores.sqlite import SQLiteStore
    from genlock.testing.sample import make_change, make_key, read_feed
    store = SQLiteStore(sys.argv[1])
    store.commit([make_change(make_key("before"))])
    read_feed(store)
    log = sys.argv[1] + "-wal"
    child = os.fork()
    if child == 0:
        for call in (lambda: store.commit([make_change(make_key("child"))]), lambda: store.find(Query("acme")), lambda: store.load([])):
            try:
                call()
            except StoreError as error:
                assert "does not survive fork" in str(error)
            else:
                sys.exit("the child could use it")
        store.close()
        del store
        gc.collect()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.getsize(log) > 0
    store.commit([make_change(make_key("after"))])
    child = os.fork()
    if child == 0:
        again = SQLiteStore(sys.argv[1])
        again.commit([make_change(make_key("anew"))])
        again.close()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    print(*[event.key.id for event in read_feed(store)])
    store.close()
"""


def test_a_forked_child_cannot_use_the_store_and_does_it_no_harm(path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        check=True,
        timeout=60,
    )
    assert done.stdout == "before after anew\n"


def test_closing_waits_for_the_commit_under_way(path: Path) -> None:
    store = SQLiteStore(path)
    answers: list[bool] = []

    def write() -> None:
        with suppress(Closed):
            for number in range(10_000):
                (answer,) = store.commit([make_change(make_key(f"A-{number}"))])
                answers.append(isinstance(answer, Committed))

    thread = threading.Thread(target=write)
    thread.start()
    eventually(lambda: answers, "the first commit")
    store.close()
    thread.join()
    assert all(answers)
    with closing(SQLiteStore(path)) as reopened:
        assert len(read_feed(reopened, limit=10_000)) == len(answers)


def test_payloads_that_a_killed_process_left_unfinished_are_removed_in_time(
    store: SQLiteStore, path: Path
) -> None:
    payloads = store.payloads()
    payloads.put(make_key(), "first", b"data")
    folder = Path(f"{path}.payloads") / "unfinished"
    old, young = folder / "old", folder / "young"
    for file in (old, young):
        file.write_bytes(b"da")
    long_ago = young.stat().st_mtime - ABANDONED_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    payloads.put(make_key(), "second", b"data")
    assert os.listdir(folder) == ["young"]


def test_a_closed_stores_payloads_say_so(path: Path) -> None:
    store = SQLiteStore(path)
    payloads = store.payloads()
    store.close()
    with pytest.raises(Closed):
        payloads.put(make_key(), "digest", b"data")
    with pytest.raises(Closed):
        payloads.open(make_key(), "digest")
