"""What only the PostgreSQL store does: connections that break, schemas of others, standbys of
patience, poolers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import genlock
from genlock.errors import (
    BadArgument,
    GenlockError,
    OutcomeUnknown,
    OverLimit,
    StoreError,
    StoreForeign,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.store import MAX_DUE, Change, Clock, EventQuery, Index, Query, Store
from genlock.stores.postgres import PostgresStore
from genlock.stores.postgres.queries import Statement
from genlock.testing import StoreContract
from genlock.testing.clock import ManualClock
from genlock.testing.concurrency import PATIENCE
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually
from tests.servers.postgres import Postgres, binaries, running, url_for
from tests.servers.proxy import Proxy, between
from tests.stores.server_suite import (
    ServedStore,
    follow_a_switchover,
    lose_nothing_in_a_crash,
    outlive_a_promotion,
    through,
)
from tests.stores.two_step_commit import Committing, either_way

APOLLO = "acme", "apollo"


@pytest.fixture(name="url")
def _url(postgres: Postgres) -> str:
    return postgres.url()


@pytest.fixture(name="store")
def _store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


@pytest.fixture(name="proxy")
def _proxy(postgres: Postgres) -> Iterator[Proxy]:
    with between(postgres.port) as proxy:
        yield proxy


def run_sql(url: str, statement: str) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(statement)


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


class TestPostgresOnItsServer(ServedStore):
    kind = PostgresStore
    driver, extra, anywhere = "psycopg", "postgres", "postgresql://127.0.0.1/x"


# URLs


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("schema=Upper", "'Upper' is no schema"),
        ("schema=pg_catalog", "'pg_catalog' is no schema"),
        ("schema=a%22b", "is no schema"),
        ("schema=", "'' is no schema"),
        ("schema=a&schema=b", "schema is given twice"),
        ("pool=0", "'0' is no pool"),
        ("pool=many", "'many' is no pool"),
        ("pooled=perhaps", "'perhaps' is no pooled"),
        ("listen=2", "'2' is no listen"),
        ("statement_timeout=0", "'0' is no statement_timeout"),
        ("lock_timeout=nan", "'nan' is no lock_timeout"),
        ("colour=red", "colour"),
        ("listen_url=nonsense", "this is no PostgreSQL URL"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_and_named(options: str, complaint: str) -> None:
    with pytest.raises(BadArgument) as raised:
        genlock.open_store(f"postgresql://127.0.0.1:1/nowhere?{options}")
    assert complaint in str(raised.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_both_schemes_open_the_same_store(scheme: str, url: str) -> None:
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=["T"])
    with genlock.connect(scheme + "://" + url.partition("://")[2], create=True) as fleet:
        assert fleet.get_task_state(task_id="T").state == "PENDING"


def test_options_of_the_driver_are_passed_on(url: str) -> None:
    store = PostgresStore(f"{url}&application_name=alice")
    with store._entered() as link:
        assert link.rows(Statement("SELECT current_setting('application_name')")) == [("alice",)]
    store.close()


def test_a_server_that_is_not_there_is_unavailable_and_the_message_has_no_password() -> None:
    with pytest.raises(StoreUnavailable) as raised:
        PostgresStore("postgresql://bob:secret@127.0.0.1:1/plans")
    assert "127.0.0.1:1/plans (schema genlock)" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_an_unknown_database_is_unavailable_and_named(postgres: Postgres) -> None:
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist: create it'):
        PostgresStore(postgres.address.replace("/postgres", "/nowhere"))


def test_a_role_that_may_not_log_in_is_unavailable_and_said(postgres: Postgres) -> None:
    run_sql(postgres.address, "CREATE ROLE stranger NOLOGIN")
    with pytest.raises(StoreUnavailable, match="stranger"):
        PostgresStore(postgres.address.replace("genlock@", "stranger@"))


# Opening


def test_a_newer_format_is_refused_with_the_version_to_install(
    url: str, store: PostgresStore
) -> None:
    run_sql(url, f"UPDATE {schema_of(url)}.meta SET format = 99, made_by = '7.8.9'")
    with pytest.raises(StoreForeign, match=r"is of format 99.*install genlock 7\.8\.9 or later"):
        PostgresStore(url)


def test_a_schema_of_another_program_is_left_alone(url: str) -> None:
    run_sql(url, f"CREATE SCHEMA {schema_of(url)}; CREATE TABLE {schema_of(url)}.cats (name text)")
    with pytest.raises(StoreForeign, match="belongs to another program"):
        PostgresStore(url)


def test_an_empty_schema_that_exists_is_taken(url: str) -> None:
    run_sql(url, f"CREATE SCHEMA {schema_of(url)}")
    store = PostgresStore(url)
    commit(store, make_change(make_key()))
    store.close()


def test_who_may_not_create_the_schema_is_told_so(postgres: Postgres, url: str) -> None:
    run_sql(url, "CREATE ROLE guest LOGIN")
    with pytest.raises(StoreReadOnly, match="may create the schema"):
        PostgresStore(url.replace("genlock@", "guest@"))


def test_who_may_only_use_the_schema_can_work_in_it(url: str, store: PostgresStore) -> None:
    schema = schema_of(url)
    run_sql(
        url, f"CREATE ROLE {schema}_agent LOGIN; GRANT USAGE ON SCHEMA {schema} TO {schema}_agent"
    )
    run_sql(
        url,
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}_agent",
    )
    run_sql(url, f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {schema}_agent")
    agent = PostgresStore(url.replace("genlock@", f"{schema}_agent@"))
    commit(agent, make_change(make_key(), index=Index(pool="p", session="s", waits_on=("d",))))
    agent.payloads().put(make_key(), "d", b"data")
    agent.purge(make_key(), 2, b"base")
    agent.close()


def test_two_schemas_of_one_database_never_meet(postgres: Postgres) -> None:
    stores = [PostgresStore(postgres.url()) for _ in range(2)]
    commit(stores[0], make_change(make_key()))
    assert [len(read_feed(store)) for store in stores] == [1, 0]
    for store in stores:
        store.close()


# Time


def test_now_is_the_server_s_unless_a_clock_is_given(url: str, store: PostgresStore) -> None:
    before, after = (psycopg.connect(url.partition("?")[0], autocommit=True) for _ in range(2))
    with before, after:
        first = before.execute("SELECT clock_timestamp()").fetchone()
        now = store.load([]).now
        last = after.execute("SELECT clock_timestamp()").fetchone()
    assert first is not None
    assert last is not None
    assert first[0] <= now <= last[0]
    assert store.limits.server_clock
    with_clock = PostgresStore(url, clock=ManualClock())
    assert not with_clock.limits.server_clock
    with_clock.close()


def test_who_has_raised_the_epoch_himself_writes_by_a_new_connection_too(
    store: PostgresStore,
) -> None:
    """It asks before it first writes, and is told nothing new."""
    first = make_change(make_key())
    commit(store, first)
    store.set_epoch(1)
    with store._pool.lent():
        commit(store, make_change(first.key, first))


# Records and pages in one trip


@pytest.mark.parametrize("option", ["pooled=off", "pooled=on"])
def test_a_load_with_queries_that_the_server_refuses_leaves_the_connection_as_it_was(
    url: str, option: str
) -> None:
    with closing(PostgresStore(f"{url}&{option}")) as store:
        change = make_change(make_key())
        commit(store, change)
        query = Query(*APOLLO)
        store.load([change.key], [query, query])
        with store._pool.lent() as before:
            pass
        for keys, queries in (
            ([make_key("nul\0")], [query]),
            ([change.key], [query, Query("nul\0"), query]),
        ):
            with pytest.raises(GenlockError):
                store.load(keys, queries)
        with store._pool.lent() as after:
            assert after is before
        snapshot = store.load([change.key], [query, query])
        page, again = snapshot.pages
        assert (
            snapshot.records[change.key].body
            == page.records[0].body
            == again.records[0].body
            == change.body
        )


def test_a_load_with_queries_that_is_cut_off_is_unavailable_and_the_next_one_is_answered(
    proxy: Proxy, url: str
) -> None:
    with closing(PostgresStore(through(proxy, f"{url}&listen=off"))) as store:
        change = make_change(make_key())
        commit(store, change)
        store._notifier.close()
        store.load([change.key], [Query(*APOLLO)])
        proxy.cut_at_the_next_answer()
        with pytest.raises(StoreUnavailable):
            store.load([change.key], [Query(*APOLLO)])
        assert change.key in store.load([change.key], [Query(*APOLLO)]).records


# Connections that break


@either_way
def test_a_commit_whose_answer_is_lost_is_of_unknown_outcome_and_was_done(
    proxy: Proxy, url: str, store: PostgresStore, committing: Committing
) -> None:
    broken = PostgresStore(through(proxy, f"{url}&listen=off"))
    commit(broken, make_change(make_key("warm")))
    change = make_change(make_key())
    broken._notifier.close()  # its statements would come between
    proxy.cut_at_the_next_answer()
    with pytest.raises(OutcomeUnknown):
        committing(broken, [change])
    eventually(
        lambda: change.key in store.load([change.key]).records,
        "the server to carry out the statement it was sent",
    )
    broken.close()


@either_way
def test_a_server_that_falls_silent_inside_a_commit_is_given_up(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch, committing: Committing
) -> None:
    monkeypatch.setattr("genlock.stores.postgres.connection.SILENCE", 0.2)
    store = PostgresStore(through(proxy, f"{url}&statement_timeout=0.5&listen=off"))
    commit(store, make_change(make_key("warm")))
    store._notifier.close()
    proxy.swallow_answers()
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="silent"):
        committing(store, [make_change(make_key())])
    assert time.monotonic() - began < PATIENCE / 4
    proxy.pass_on()
    commit(store, make_change(make_key("later")))
    store.close()


def test_a_lock_that_others_hold_too_long_is_unavailable_and_nothing_is_written(url: str) -> None:
    store = PostgresStore(f"{url}&lock_timeout=0.2")
    first = make_change(make_key())
    commit(store, first)
    with psycopg.connect(url.partition("?")[0]) as rival:
        rival.execute(f"SELECT 1 FROM {schema_of(url)}.record FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            store.commit([make_change(first.key, first)])
        rival.rollback()
    commit(store, make_change(first.key, first))
    store.close()


# Feeds


def test_an_open_transaction_elsewhere_holds_no_reader_up(url: str, store: PostgresStore) -> None:
    """Neither one that writes nor one that holds an old snapshot."""
    with (
        psycopg.connect(url.partition("?")[0]) as writing,
        psycopg.connect(url.partition("?")[0]) as old,
    ):
        writing.execute(f"CREATE TABLE {schema_of(url)}.other (number int)")
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT txid_current()")
        for number in range(20):
            (position,) = commit(store, make_change(make_key(f"A-{number}")))
            assert read_feed(store)[-1].position == position


def test_a_commit_that_was_rolled_back_leaves_no_hole_in_the_feed(
    url: str, store: PostgresStore
) -> None:
    first = make_change(make_key())
    commit(store, first)
    with pytest.raises(OverLimit):
        store.commit([make_change(make_key(os.urandom(5000).hex())), make_change(first.key, first)])
    with pytest.raises(GenlockError):
        store.commit([make_change(make_key("nul\0"))])
    commit(store, make_change(first.key, first))
    assert [event.position for event in read_feed(store)] == [1, 2]


def test_commits_in_another_isolation_are_refused_and_nothing_is_written(
    url: str, store: PostgresStore
) -> None:
    serial = PostgresStore(
        f"{url}&pooled=on&options=-c%20default_transaction_isolation=serializable"
    )
    with pytest.raises(StoreError, match="READ COMMITTED"):
        serial.commit([make_change(make_key())])
    assert store.load([make_key()]).records == {}
    serial.close()


def test_a_commit_is_synchronous_also_where_the_database_is_not(url: str) -> None:
    store = PostgresStore(f"{url}&options=-c%20synchronous_commit=off")
    with store._entered() as link:
        link.command("BEGIN")
        link.call(store._queries["commit"].text, _columns(make_change(make_key())))
        assert link.rows(Statement("SELECT current_setting('synchronous_commit')")) == [("on",)]
        link.command("COMMIT")
    store.close()


def _columns(change: Change) -> list[bytes | None]:
    from genlock.stores.postgres.commit import Batch

    return Batch([change]).columns()


@pytest.mark.parametrize("option", ["listen=off", "pooled=on", "listen=on"])
def test_a_waiter_is_woken_by_notification_or_by_polling(
    option: str, url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(f"{url}&{option}")
    after = [waiter.read_events(EventQuery("acme", "apollo", tail=True)).cursor]
    woken: list[float] = []

    def wait() -> None:
        waiter.wait([("acme", "apollo")], after, PATIENCE)
        woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    commit(store, make_change(make_key()))
    began = time.monotonic()
    thread.join()
    assert woken[0] - began < PATIENCE / 4
    waiter.close()


def listen(waiter: PostgresStore) -> None:
    """Lets it wait until it hears."""

    def hears() -> bool:
        waiter.wait([APOLLO], [waiter.read_events(EventQuery(*APOLLO, tail=True)).cursor], 0.01)
        return waiter._listener.hears

    if not waiter._listener.hears:
        eventually(hears, "the store to listen for notifications")


def test_listener_is_notified_and_reconnects_after_a_cut(
    proxy: Proxy, url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(through(proxy, url))
    place = APOLLO
    for number in range(3):
        listen(waiter)
        since, mark = waiter._notifications.now(), {waiter_mark(place)}
        commit(store, make_change(make_key(f"A-{number}")))
        assert waiter._notifications.wait(dict.fromkeys(mark, since), PATIENCE / 4), "nobody told"
        proxy.cut()
        eventually(lambda: not waiter._listener.hears, "the listener to notice the cut")
    waiter.close()


def test_who_has_just_read_the_end_of_a_feed_and_listens_asks_nothing_more(
    url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(url)
    listen(waiter)
    waiter._queries["feed_ends"] = Statement("SELECT a_look")
    before = [waiter.read_events(EventQuery(*APOLLO, tail=True)).cursor]
    heard = waiter._notifications.now()
    commit(store, make_change(make_key("A-1")))
    waiter._notifications.wait({waiter_mark(APOLLO): heard}, PATIENCE / 4)
    began = time.monotonic()
    waiter.wait([APOLLO], before, PATIENCE)  # it came between the two
    after = [waiter.read_events(EventQuery(*APOLLO, tail=True)).cursor]
    commit(waiter, make_change(make_key("A-2")))
    waiter.wait([APOLLO], after, PATIENCE)  # what is written here counts as well
    assert time.monotonic() - began < PATIENCE / 4
    with pytest.raises(StoreError, match="a_look"):
        waiter.wait(
            [APOLLO], before, PATIENCE
        )  # of one who has read something else since, it is looked up
    some_way_back = waiter.read_events(EventQuery(*APOLLO, tail=True, back=2)).cursor
    assert waiter._notifications.since_look({waiter_mark(APOLLO): some_way_back}) is None
    waiter.close()


def test_who_hears_sleeps_through_what_is_committed_here_and_is_told_what_others_have_moved(
    url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(url)
    listen(waiter)
    places = [APOLLO, ("acme", "gemini")]
    after = [waiter.read_events(EventQuery(*place, tail=True)).cursor for place in places]
    asleep, hear = threading.Event(), waiter._notifications.hear
    naps: list[list[int]] = []

    def nap(*given: Any) -> list[int]:
        asleep.set()
        naps.append(hear(*given))
        return naps[-1]

    waiter._notifications.hear = nap  # type: ignore[method-assign, assignment]
    heard: list[tuple[str, str]] = []
    thread = threading.Thread(
        target=lambda: heard.extend(waiter.wait(places, after, PATIENCE, others=True))
    )
    thread.start()
    assert asleep.wait(PATIENCE)
    for number in range(5):
        commit(waiter, make_change(make_key(f"A-{number}")))
    commit(store, make_change(make_key("A-9", project="gemini")))
    thread.join(PATIENCE)
    assert (heard, len(naps)) == ([("acme", "gemini")], 1), (
        "it was woken by its own commits, or by nobody"
    )
    waiter.close()


def heard_from(waiter: PostgresStore, store: PostgresStore, change: Change) -> None:
    """Lets another commit, and waits until that was told here."""
    since = waiter._notifications.now()
    commit(store, change)
    assert waiter._notifications.wait({waiter_mark(change.key.place): since}, PATIENCE), (
        "nobody told"
    )


def test_of_two_projects_one_that_was_heard_of_is_not_heard_of_again(
    url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(url)
    listen(waiter)
    places = [APOLLO, ("acme", "gemini")]
    after = [waiter.read_events(EventQuery(*place, tail=True)).cursor for place in places]
    heard_from(waiter, store, make_change(make_key("A-1")))
    assert waiter.wait(places, after, PATIENCE, others=True) == [APOLLO]
    after[0] = waiter.read_events(
        EventQuery(*APOLLO, tail=True)
    ).cursor  # of the other nobody has to look
    assert waiter.wait(places, after, 0.1, others=True) == ()
    waiter.close()


def test_what_comes_after_one_was_told_and_before_he_looks_is_heard_of(
    url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(url)
    listen(waiter)
    after = [waiter.read_events(EventQuery(*APOLLO, tail=True)).cursor]
    heard_from(waiter, store, make_change(make_key("A-1")))
    assert waiter.wait([APOLLO], after, PATIENCE, others=True) == [APOLLO]
    # Whoever waits looks now, and finds nothing; then comes another, and only then it is read where
    # the feed ends.
    heard_from(waiter, store, make_change(make_key("A-2")))
    after = [waiter.read_events(EventQuery(*APOLLO, tail=True)).cursor]
    assert waiter.wait([APOLLO], after, PATIENCE, others=True) == [APOLLO]
    after = [waiter.read_events(EventQuery(*APOLLO, tail=True)).cursor]
    assert waiter.wait([APOLLO], after, 0.1, others=True) == ()
    waiter.close()


def test_nobody_notifies_himself(url: str, store: PostgresStore) -> None:
    listen(store)
    assert store._notifier._send() is False, "it told its own listener, who knows"
    other = PostgresStore(url)
    listen(other)
    assert store._notifier._send() is True
    other.close()


def test_its_own_words_wake_nobody_and_those_of_older_versions_do(
    url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(url)
    listen(waiter)
    own, others = 1, 2
    for words, heard in ((f"{waiter._notifier._name} {own}", False), (f"{own}", True)):
        since = waiter._notifications.now()
        with store._entered() as link:
            link.rows(store._queries["notify"], message=words, own=0)
            link.rows(store._queries["notify"], message=f"{store._notifier._name} {others}", own=0)
        assert waiter._notifications.wait({others: since}, PATIENCE / 4), "nobody told"
        assert bool(waiter._notifications.wait({own: since}, 0)) is heard
    waiter.close()


def test_words_that_are_not_of_ours_may_mean_any_feed_and_end_nothing(
    url: str, store: PostgresStore
) -> None:
    waiter = PostgresStore(url)
    listen(waiter)
    for words in ("hello", f"{store._notifier._name} 2"):
        since = waiter._notifications.now()
        with store._entered() as link:
            link.rows(store._queries["notify"], message=words, own=0)
        waiter._notifications.wait({2: since}, PATIENCE / 4)
        assert waiter._notifications.now() > since, "nobody told"
    waiter.close()


def test_who_has_very_many_files_open_goes_on_trying_to_listen(url: str) -> None:
    script = f"""
        import os
        import genlock
        from genlock.store import EventQuery
        files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        store = genlock.open_store("{url}&listen_url=postgresql://127.0.0.1:1/nowhere", create=True)
        cursor = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
        store.wait([("acme", "apollo")], [cursor], 0.2)
        print(store._listener._thread.is_alive())
        store.close()
    """
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert (shown.stdout, shown.stderr) == ("True\n", "")


def waiter_mark(place: tuple[str, str]) -> int:
    from genlock.stores.cursors import feed_mark

    return feed_mark(*place)


def test_a_name_that_has_a_number_uses_up_no_other(url: str, store: PostgresStore) -> None:
    for new in range(3):
        sessions = [f"new-{new}", *(f"s-{number}" for number in range(50))]
        changes = [
            make_change(
                make_key(f"{new}-{name}"), index=Index(state="PENDING", session=name, pool=name)
            )
            for name in sessions
        ]
        assert len(store.commit(changes)) == 51
    with store._entered() as link:
        for table, names in (("project", 1), ("pool", 53), ("session", 53)):
            assert link.rows(
                Statement(f"SELECT count(*), max(id)::int8 FROM {store._settings.schema}.{table}")
            ) == [(names, names)]


def test_what_takes_longer_than_it_may_says_how_to_give_it_more_time(url: str) -> None:
    with closing(PostgresStore(f"{url}&statement_timeout=0.1")) as store:
        with pytest.raises(StoreUnavailable, match="statement_timeout="), store._entered() as link:
            link.rows(Statement("SELECT pg_sleep(60) IS NULL"))
        assert store.load([]).epoch == 0


# Forks, poolers, other servers


def test_behind_a_pooler_everything_works_with_nothing_that_outlives_a_transaction(
    url: str,
) -> None:
    store = PostgresStore(f"{url}&pooled=on")
    first = make_change(
        make_key(), index=Index(state="PENDING", pool="p", order="1", waits_on=("d",))
    )
    commit(store, first)
    commit(
        store,
        make_change(
            first.key, first, index=Index(state="PENDING", pool="p", order="2", session="s")
        ),
    )
    store.payloads().put(first.key, "d", b"data" * 100_000)
    assert store.payloads().open(first.key, "d").read() == b"data" * 100_000
    store.purge(first.key, 2, b"base")
    assert [record.version for record in store.find(Query("acme", "apollo", pool="p")).records] == [
        2
    ]
    with store._entered() as link:
        assert link.rows(Statement("SELECT count(*) FROM pg_prepared_statements")) == [(0,)]
    store.close()


def test_nothing_acknowledged_is_lost_when_the_server_crashes_and_the_store_comes_back_by_itself() -> (
    None
):
    with running() as server, closing(PostgresStore(server.url())) as store:
        lose_nothing_in_a_crash(store, lambda: server.stop("immediate"), server.start)


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[Postgres]:
    with running(15, fsync="off", autovacuum="off") as server:
        yield server


@pytest.mark.slow
@pytest.mark.skipif(
    binaries(15) is None and not os.environ.get("CI"),
    reason="there is no PostgreSQL 15 on this machine",
)
class TestPostgres15Store(StoreContract):
    """The oldest server that is supported. Its processes find it as those of the newest find
    theirs."""

    @pytest.fixture(autouse=True)
    def _at(self, postgres_15: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GENLOCK_TEST_POSTGRES", postgres_15.address)

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return PostgresStore(url_for(place), clock=clock)


def test_commits_follow_the_address_of_the_primary_to_another_server(postgres: Postgres) -> None:
    with running() as old, between(old.port) as way:
        url = old.url()
        PostgresStore(url.replace(f":{old.port}/", f":{postgres.port}/")).close()

        def switch_over() -> None:
            run_sql(url, "ALTER SYSTEM SET default_transaction_read_only = on")
            run_sql(url, "SELECT pg_reload_conf()")
            with psycopg.connect(old.address, autocommit=True) as connection:
                eventually(
                    lambda: connection.execute("SHOW transaction_read_only").fetchone() == ("on",),
                    "the server to refuse writes",
                )

        with closing(PostgresStore(through(way, url))) as store:
            follow_a_switchover(store, way, switch_over, postgres.port)


def test_a_store_on_a_standby_is_written_to_once_that_is_promoted() -> None:
    with running() as server:
        with closing(PostgresStore(url := server.url())) as store:
            commit(store, make_change(make_key("A-001")))
        server.demote()
        with closing(PostgresStore(url)) as store:
            outlive_a_promotion(store, lambda: run_sql(url, "SELECT pg_promote()"))


def test_a_connection_that_breaks_before_the_commit_is_sent_leaves_no_doubt(
    proxy: Proxy, url: str, store: PostgresStore
) -> None:
    with closing(PostgresStore(through(proxy, url))) as other:
        proxy.cut()
        proxy.cut_at_the_answer_to(b"default_transaction_isolation")
        with pytest.raises(StoreUnavailable, match="nothing was written"):
            other.commit([make_change(make_key())])
        assert proxy.swallowed.is_set()
        commit(other, make_change(make_key()))


# What it costs


def sized(number: int) -> Change:
    """One of many tasks: of four one is offered, one claimed, one waits and one is done; some are
    parts of another."""
    role, name = number % 4, f"t-{number}"
    index = Index(
        state=("PENDING", "IN_PROGRESS", "BLOCKED", "COMPLETED")[role],
        pool=f"pool-{number % 5}" if role == 0 else None,
        order=f"{number:08}" if role == 0 else None,
        due_at=1000 + number if role == 1 else None,
        session=f"s-{number}" if role == 1 else None,
        parent=f"t-{number % 500}" if number % 3 == 0 else None,
        waits_on=(f"t-{number - 1}",) if role == 2 else (),
    )
    return make_change(make_key(name), index=index)


def hears(store: PostgresStore) -> None:
    """A task that waits for something else now than before, again and again."""
    key = make_key("t-2")
    stored = store.load([key]).records.get(key)
    if stored is not None:
        commit(
            store,
            make_change(
                key,
                stored,
                index=Index(
                    state="BLOCKED", waits_on=("t-1",) if stored.version % 2 else ("+t-1", "t-0")
                ),
            ),
        )


_FINDS = {
    "one page": Query("acme", "apollo", limit=5),
    "of the tenant": Query("acme", limit=5),
    "offered": Query("acme", "apollo", pool="pool-0", limit=5),
    "heads": Query("acme", "apollo", heads=2),
    "due": Query("acme", "apollo", due_before=1010, limit=5),
    "next due": Query("acme", "apollo", due_before=MAX_DUE, limit=1),
    "held by a session": Query("acme", session="s-5", limit=5),
    "children": Query("acme", "apollo", parent="t-9", limit=50),
    "dependents": Query("acme", "apollo", waits_on=("t-5", "+t-5"), limit=50),
}
_COUNTS = {
    "claims of a session": Query("acme", session="s-5"),
    "children by state": Query("acme", "apollo", parent="t-9"),
    "dependents by state": Query("acme", "apollo", waits_on=("t-5",)),
}
_LOOKS: dict[str, Callable[[PostgresStore], object]] = {
    **{name: lambda store, query=query: store.find(query) for name, query in _FINDS.items()},  # type: ignore[misc]
    **{
        name: lambda store, query=query: store.find(query, count_by="state")  # type: ignore[misc]
        for name, query in _COUNTS.items()
    },
    "load": lambda store: store.load([make_key("t-0"), make_key("t-7")]),
    "feed": lambda store: store.read_events(EventQuery("acme", "apollo", limit=5)),
    "end of the feed": lambda store: store.read_events(EventQuery("acme", "apollo", tail=True)),
    "history": lambda store: store.read_events(
        EventQuery("acme", "apollo", record=make_key("t-0"))
    ),
    "conflict": lambda store: store.commit([make_change(make_key("t-0"), mark="late")]),
    "commit": hears,
    "purge": lambda store: store.purge(make_key("t-2"), 3, b"{}"),
}


@pytest.fixture(name="crowded", scope="module")
def _crowded(postgres: Postgres) -> Iterator[PostgresStore]:
    """A store with thousands of records that the server has never counted, and whose plans it has
    made when there was one."""
    store = PostgresStore(f"{postgres.address}?schema=crowded&listen=off&pool=1")
    commit(store, sized(0))
    commit(store, sized(2))
    for look in _LOOKS.values():
        for _ in range(8):  # after five times a plan is kept
            look(store)
    commit(store, sized(1))
    for start in range(3, 3000, 500):
        commit(store, *map(sized, range(start, start + 500)))
    yield store
    store.close()
    with psycopg.connect(postgres.address, autocommit=True) as owner:
        owner.execute("DROP SCHEMA crowded CASCADE")


def rows_read(store: PostgresStore) -> int:
    """By all of its statements so far."""
    with store._entered() as link:
        link.rows(Statement("SELECT pg_stat_force_next_flush() IS NULL"))
        ((read,),) = link.rows(
            Statement(
                "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = "
                "'crowded')::int8 + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE "
                "schemaname = 'crowded')::int8"
            )
        )
    assert isinstance(read, int)
    return read


@pytest.mark.parametrize("name", _LOOKS)
def test_what_is_read_does_not_grow_with_the_plan_though_nobody_has_counted_it(
    name: str, crowded: PostgresStore
) -> None:
    before = rows_read(crowded)
    _LOOKS[name](crowded)
    assert rows_read(crowded) - before < 60, "more was read than was asked for"
