"""What only the MySQL store does: connections that break, tables of others, deadlocks, packets that
are too large."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pymysql
import pytest

import genlock
from genlock.errors import (
    BadArgument,
    OutcomeUnknown,
    OverLimit,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.store import Change, Clock, Committed, Conflict, EventQuery, Index, Query, Store
from genlock.stores.mysql import MySQLStore
from genlock.stores.mysql import commit as writing
from genlock.stores.mysql import open as opening
from genlock.stores.mysql.connection import MySQLConnection
from genlock.stores.mysql.queries import Value, tables_for
from genlock.testing import StoreContract
from genlock.testing.clock import ManualClock
from genlock.testing.concurrency import PATIENCE, together
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually
from tests.servers.mariadb import MariaDB, running, url_for
from tests.servers.proxy import Proxy, between
from tests.stores.server_suite import (
    ServedStore,
    commit_once_back,
    follow_a_switchover,
    lose_nothing_in_a_crash,
    outlive_a_promotion,
    through,
)
from tests.stores.two_step_commit import Committing, either_way


@pytest.fixture(name="url")
def _url(mariadb: MariaDB) -> str:
    return mariadb.url()


@pytest.fixture(name="store")
def _store(url: str) -> Iterator[MySQLStore]:
    store = MySQLStore(url)
    yield store
    store.close()


@pytest.fixture(name="proxy")
def _proxy(mariadb: MariaDB) -> Iterator[Proxy]:
    with between(mariadb.port) as proxy:
        yield proxy


@pytest.fixture(name="odd", scope="module")
def _odd() -> Iterator[MariaDB]:
    """A server that takes small packets, and does not flush at every commit."""
    with running(
        innodb_flush_method="nosync", max_allowed_packet="1M", innodb_flush_log_at_trx_commit="2"
    ) as server:
        yield server


def prefix_of(url: str) -> str:
    return url.partition("prefix=")[2].partition("&")[0]


class Attempt(threading.Thread):
    """A commit under way."""

    def __init__(self, store: Store, *changes: Change) -> None:
        super().__init__()
        self._store = store
        self._changes = changes
        self._fate: object = None
        self.start()

    def run(self) -> None:
        try:
            self._fate = list(self._store.commit(self._changes))
        except StoreError as error:
            self._fate = error

    def fate(self) -> object:
        """What became of it: its answers, or the error."""
        self.join(PATIENCE)
        assert not self.is_alive(), "it never came to an end"
        return self._fate


def lock(rival: pymysql.Connection, url: str, *names: str) -> None:
    """Somebody else's transaction holds these records, one after the other."""
    with rival.cursor() as cursor:
        cursor.execute("BEGIN")
        take(rival, url, *names)


def take(rival: pymysql.Connection, url: str, *names: str) -> None:
    with rival.cursor() as cursor:
        for name in names:
            cursor.execute(
                f"SELECT version FROM {prefix_of(url)}record WHERE project = 1 AND kind = 'task' "
                "AND name = %s FOR UPDATE",
                (name,),
            )


def waiting_for_a_lock(server: MariaDB) -> int:
    """The connection that waits for one now."""
    return next(iter(eventually(server.waiting, "a connection that waits for a lock")))


def deadlocks(server: MariaDB) -> int:
    """So many there have been."""
    ((number,),) = server.run(
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
    )
    return int(str(number))


def make_user(server: MariaDB, name: str) -> None:
    """Without a password, and without any right."""
    server.run(f"DROP USER IF EXISTS {name}@'127.0.0.1'")
    server.run(f"CREATE USER {name}@'127.0.0.1'")


class TestMySQLOnItsServer(ServedStore):
    kind = MySQLStore
    driver, extra, anywhere = "pymysql", "mysql", "mysql://127.0.0.1/x"


def test_what_takes_longer_than_it_may_says_how_to_give_it_more_time(url: str) -> None:
    with closing(MySQLStore(f"{url}&statement_timeout=0.1")) as store:
        with pytest.raises(StoreUnavailable, match="statement_timeout="), store._entered() as link:
            link.run(
                b"SELECT COUNT(*) FROM "
                + b", ".join(b"information_schema.collations AS %c" % name for name in b"abcdef")
            )
        assert store.load([]).epoch == 0


# URLs


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("127.0.0.1:1/nowhere?prefix=Upper", "'Upper' is no prefix"),
        ("127.0.0.1:1/nowhere?prefix=a%60b", "is no prefix"),
        ("127.0.0.1:1/nowhere?prefix=", "'' is no prefix"),
        ("127.0.0.1:1/nowhere?prefix=a&prefix=b", "prefix is given twice"),
        ("127.0.0.1:1/nowhere?pool=0", "'0' is no pool"),
        ("127.0.0.1:1/nowhere?ssl=perhaps", "'perhaps' is no ssl"),
        ("127.0.0.1:1/nowhere?statement_timeout=0", "'0' is no statement_timeout"),
        ("127.0.0.1:1/nowhere?lock_timeout=nan", "'nan' is no lock_timeout"),
        ("127.0.0.1:1/nowhere?colour=red", "there is no option 'colour'"),
        ("127.0.0.1:many/nowhere", "this is no MySQL URL"),
        ("127.0.0.1:1", "names one database"),
        ("127.0.0.1:1/one/two", "names one database"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_and_says_why(address: str, complaint: str) -> None:
    with pytest.raises(BadArgument) as raised:
        genlock.open_store(f"mysql://{address}")
    assert complaint in str(raised.value)


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_both_schemes_open_the_same_store(scheme: str, url: str) -> None:
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=["T"])
    with genlock.connect(scheme + "://" + url.partition("://")[2], create=True) as fleet:
        assert fleet.get_task_state(task_id="T").state == "PENDING"


def test_a_server_that_is_not_there_is_unavailable_and_the_message_has_no_password() -> None:
    with pytest.raises(StoreUnavailable) as raised:
        MySQLStore("mysql://bob:secret@127.0.0.1:1/plans")
    assert "127.0.0.1:1/plans (tables genlock_…)" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_an_unknown_database_is_unavailable_and_named(mariadb: MariaDB) -> None:
    with pytest.raises(StoreUnavailable, match="Unknown database 'nowhere'"):
        MySQLStore(mariadb.address.replace("/plans", "/nowhere"))


def test_a_wrong_password_is_unavailable_and_not_repeated(mariadb: MariaDB) -> None:
    with pytest.raises(StoreUnavailable, match="Access denied for user 'genlock'") as raised:
        MySQLStore(mariadb.address.replace("secret", "guessed"))
    assert "guessed" not in str(raised.value)


# Opening


def test_tables_that_somebody_began_to_create_are_finished_by_the_next(
    mariadb: MariaDB, url: str
) -> None:
    """There are no transactions for tables: one who is killed leaves some of them behind."""
    prefix = prefix_of(url)
    MySQLStore(url).close()
    mariadb.run(f"DELETE FROM {prefix}meta")
    mariadb.run(f"DROP TABLE {prefix}event")
    store = MySQLStore(url)
    commit(store, make_change(make_key()))
    store.close()


def test_a_newer_format_is_refused_with_the_version_to_install(
    mariadb: MariaDB, url: str, store: MySQLStore
) -> None:
    mariadb.run(f"UPDATE {prefix_of(url)}meta SET format = 99, made_by = '7.8.9'")
    with pytest.raises(StoreForeign, match=r"is of format 99.*install genlock 7\.8\.9 or later"):
        MySQLStore(url)


def test_tables_of_another_program_are_left_alone(mariadb: MariaDB, url: str) -> None:
    mariadb.run(f"CREATE TABLE {prefix_of(url)}session (name TEXT)")
    with pytest.raises(StoreForeign, match="belong to another program"):
        MySQLStore(url)


@pytest.mark.parametrize("version", ["5.7.44", "8.0.36-0ubuntu", "10.6.16-MariaDB", "unheard of"])
def test_a_server_that_is_too_old_is_refused_and_the_oldest_that_is_not_is_named(
    version: str, store: MySQLStore
) -> None:
    with pytest.raises(StoreForeign, match=r"Genlock needs (8\.4|10\.11) or later"):
        opening.MySQLSchema(store._settings).checked_version(version)


@pytest.mark.parametrize(
    "version", ["8.4.3", "9.7.0", "10.11.18-MariaDB-0+deb12u1", "11.8.2-MariaDB"]
)
def test_a_server_that_is_new_enough_is_taken(version: str, store: MySQLStore) -> None:
    opening.MySQLSchema(store._settings).checked_version(version)


def test_who_may_not_create_tables_is_told_so(mariadb: MariaDB, url: str) -> None:
    make_user(mariadb, "guest")
    mariadb.run("GRANT SELECT ON plans.* TO guest@'127.0.0.1'")
    with pytest.raises(StoreReadOnly, match="may create tables"):
        MySQLStore(url.replace("genlock:secret@", "guest@"))


def test_who_may_only_use_the_tables_can_work_in_them(
    mariadb: MariaDB, url: str, store: MySQLStore
) -> None:
    make_user(mariadb, "agent")
    mariadb.run("GRANT SELECT, INSERT, UPDATE, DELETE ON plans.* TO agent@'127.0.0.1'")
    agent = MySQLStore(url.replace("genlock:secret@", "agent@"))
    first = make_change(make_key(), index=Index(pool="p", session="s", waits_on=("d",)))
    commit(agent, first)
    commit(agent, make_change(first.key, first))
    agent.payloads().put(make_key(), "d", b"data")
    agent.purge(make_key(), 2, b"base")
    agent.close()


def test_two_prefixes_in_one_database_never_meet(mariadb: MariaDB) -> None:
    stores = [MySQLStore(mariadb.url()) for _ in range(2)]
    commit(stores[0], make_change(make_key()))
    assert [len(read_feed(store)) for store in stores] == [1, 0]
    for store in stores:
        store.close()


def test_a_prefix_that_begins_another_is_another_store(mariadb: MariaDB, url: str) -> None:
    """Whichever of them was there first. An underscore matches anything where patterns are
    compared."""
    prefix = prefix_of(url)
    prefixes = [f"{prefix}test_", prefix, prefix.removesuffix("_"), f"{prefix}test_x"]
    stores = [MySQLStore(url.replace(prefix, each)) for each in prefixes]
    commit(stores[0], make_change(make_key()))
    assert [len(read_feed(store)) for store in stores] == [1, 0, 0, 0]
    for store in stores:
        store.close()


def test_the_tables_that_are_looked_for_are_those_that_there_are(
    mariadb: MariaDB, url: str, store: MySQLStore
) -> None:
    prefix = prefix_of(url)
    found = mariadb.run(
        f"SELECT table_name FROM information_schema.tables WHERE LEFT(table_name, {len(prefix)}) = "
        f"'{prefix}'"
    )
    assert sorted(str(name) for (name,) in found) == sorted(tables_for(prefix))


def test_a_store_on_a_replica_is_written_to_once_that_is_promoted(odd: MariaDB) -> None:
    with closing(MySQLStore(url := odd.url())) as store:
        commit(store, make_change(make_key("A-001")))
    odd.run("SET GLOBAL read_only = 1")
    try:
        with closing(MySQLStore(url)) as store:
            outlive_a_promotion(store, lambda: odd.run("SET GLOBAL read_only = 0"))
    finally:
        odd.run("SET GLOBAL read_only = 0")


@pytest.mark.parametrize("setting", ["innodb_flush_log_at_trx_commit", "read_only"])
def test_a_server_that_does_not_keep_or_take_everything_is_known_for_it(
    setting: str, odd: MariaDB
) -> None:
    MySQLStore(url := odd.url()).close()
    if setting == "read_only":
        odd.run("SET GLOBAL read_only = 1")
    try:
        store = MySQLStore(url)
        assert not store.limits.durable
        assert store.limits.read_only == (setting == "read_only")
        if store.limits.read_only:
            with pytest.raises(StoreReadOnly, match="read_only"):
                store.commit([make_change(make_key())])
            assert store.load([make_key()]).records == {}
        store.close()
    finally:
        odd.run("SET GLOBAL read_only = 0")


@pytest.mark.parametrize(
    "setting", ["sql_safe_updates = 1", "sql_select_limit = 1", "max_join_size = 1"]
)
def test_what_a_server_sets_for_people_who_type_statements_does_not_count(
    setting: str, odd: MariaDB
) -> None:
    odd.run(f"SET GLOBAL {setting}")
    try:
        with closing(MySQLStore(odd.url())) as store:
            changes = [make_change(make_key("A-001")), make_change(make_key("A-002"))]
            commit(store, *changes)
            assert len(store.load([change.key for change in changes]).records) == 2
            assert len(read_feed(store)) == 2
            store.purge(changes[0].key, 2, b"{}")
            store.set_epoch(1)
    finally:
        odd.run(f"SET GLOBAL {setting.partition(' ')[0]} = DEFAULT")


# Time


def test_now_is_the_server_s_unless_a_clock_is_given(
    mariadb: MariaDB, url: str, store: MySQLStore
) -> None:
    """The server of the tests is thirteen hours ahead of UTC."""

    def server_time() -> int:
        ((seconds,),) = mariadb.run("SELECT FLOOR(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000)")
        return int(str(seconds))

    before, now, after = server_time(), store.load([]).now, server_time()
    assert before <= now.timestamp() * 1_000_000 + 1
    assert now.timestamp() * 1_000_000 - 1 <= after
    assert store.limits.server_clock
    with_clock = MySQLStore(url, clock=ManualClock())
    assert not with_clock.limits.server_clock
    with_clock.close()


# Connections that break


@either_way
def test_a_commit_that_is_cut_off_is_of_unknown_outcome_and_was_done_whole_or_not_at_all(
    proxy: Proxy, url: str, store: MySQLStore, committing: Committing
) -> None:
    """The server answers each statement of the packet. Whether it goes on when nobody listens any
    more is a matter of luck."""
    broken = MySQLStore(through(proxy, url))
    commit(broken, make_change(make_key("warm")))
    change = make_change(make_key(), events=3)
    proxy.cut_at_the_next_answer()
    with pytest.raises(OutcomeUnknown):
        committing(broken, [change])
    store.commit([change])  # waits for the first, if that is still under way
    assert [event.version for event in read_feed(store) if event.key == change.key] == [1, 2, 3]
    broken.close()


@either_way
def test_a_commit_whose_answers_are_lost_is_of_unknown_outcome_and_was_done(
    proxy: Proxy,
    url: str,
    store: MySQLStore,
    monkeypatch: pytest.MonkeyPatch,
    committing: Committing,
) -> None:
    monkeypatch.setattr("genlock.stores.mysql.connection.SILENCE", 0.2)
    broken = MySQLStore(through(proxy, f"{url}&statement_timeout=0.5"))
    commit(broken, make_change(make_key("warm")))
    change = make_change(make_key())
    proxy.swallow_answers()
    with pytest.raises(OutcomeUnknown, match="silent"):
        committing(broken, [change])
    eventually(
        lambda: change.key in store.load([change.key]).records,
        "the server to carry out the packet it was sent",
    )
    proxy.pass_on()
    commit(broken, make_change(make_key("later")))
    broken.close()


def test_a_connection_that_an_operator_ends_inside_a_commit_is_of_unknown_outcome(
    mariadb: MariaDB, url: str, store: MySQLStore
) -> None:
    first = make_change(make_key())
    commit(store, first)
    with mariadb.connected() as rival:
        lock(rival, url, first.key.id)
        attempt = Attempt(store, make_change(first.key, first))
        mariadb.run(f"KILL CONNECTION {waiting_for_a_lock(mariadb)}")
        assert isinstance(attempt.fate(), OutcomeUnknown)
    commit(store, make_change(first.key, first))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1020, StoreUnavailable),
        (1026, OutcomeUnknown),
        (1047, StoreUnavailable),
        (1062, StoreCorrupt),
        (1114, StoreFull),
        (1180, OutcomeUnknown),
        (1290, StoreReadOnly),
        (1317, OutcomeUnknown),
        (1412, StoreUnavailable),
        (1598, OutcomeUnknown),
        (1836, StoreReadOnly),
        (1969, StoreUnavailable),
        (2003, StoreUnavailable),
        (3100, OutcomeUnknown),
        (3101, StoreUnavailable),
        (9001, StoreUnavailable),
    ],
)
def test_what_a_server_a_cluster_or_a_proxy_says_inside_a_commit_is_told_as_what_it_means(
    code: int, error: type[StoreError], mariadb: MariaDB, url: str
) -> None:
    with closing(MySQLStore(f"{url}&lock_timeout=0.1")) as store:
        mariadb.run(
            f"CREATE TRIGGER {prefix_of(url)}trouble BEFORE INSERT ON {prefix_of(url)}event FOR "
            f"EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'trouble'"
        )
        with pytest.raises(error, match="trouble") as raised:
            store.commit([make_change(make_key())])
        assert raised.type is error
        mariadb.run(f"DROP TRIGGER {prefix_of(url)}trouble")
        assert store.load([make_key()]).records == {}
        commit(store, make_change(make_key()))


# Locks


def test_a_lock_that_others_hold_too_long_is_unavailable_and_nothing_is_written(
    mariadb: MariaDB, url: str
) -> None:
    store = MySQLStore(f"{url}&lock_timeout=0.5")
    first = make_change(make_key())
    commit(store, first)
    with mariadb.connected() as rival:
        lock(rival, url, first.key.id)
        with pytest.raises(
            StoreUnavailable, match=r"Lock wait timeout exceeded.*nothing was written"
        ):
            store.commit([make_change(first.key, first), make_change(make_key("B-001"))])
    assert list(store.load([first.key, make_key("B-001")]).records) == [first.key]
    commit(store, make_change(first.key, first))
    store.close()


@pytest.mark.parametrize("locking", ["LOCK TABLES {}record READ", "FLUSH TABLES WITH READ LOCK"])
def test_tables_that_a_backup_locks_are_unavailable_in_good_time_and_nothing_is_written(
    locking: str, odd: MariaDB
) -> None:
    with (
        closing(MySQLStore(url := odd.url(lock_timeout="0.5"))) as store,
        odd.connected() as rival,
        rival.cursor() as cursor,
    ):
        cursor.execute(locking.format(prefix_of(url)))
        began = time.monotonic()
        with pytest.raises(
            StoreUnavailable, match=r"Lock wait timeout exceeded.*nothing was written"
        ):
            store.commit([make_change(make_key())])
        assert time.monotonic() - began < 5
        cursor.execute("UNLOCK TABLES")
        assert store.load([make_key()]).records == {}
        commit(store, make_change(make_key()))


def test_a_commit_that_ends_in_a_deadlock_is_tried_again_and_takes_effect_once(
    mariadb: MariaDB, url: str, store: MySQLStore
) -> None:
    first, second = make_change(make_key("A-001")), make_change(make_key("A-002"))
    commit(store, first, second)
    mariadb.run(f"CREATE TABLE {prefix_of(url)}weight (number INT)")
    before = deadlocks(mariadb)
    with mariadb.connected() as rival, rival.cursor() as cursor:
        lock(rival, url, "A-002")
        # Of two who wait for each other the one is rolled back that has written less.
        cursor.execute(f"INSERT INTO {prefix_of(url)}weight VALUES " + ",".join(["(1)"] * 1000))
        attempt = Attempt(store, make_change(first.key, first), make_change(second.key, second))
        waiting_for_a_lock(mariadb)
        take(rival, url, "A-001")
        cursor.execute("ROLLBACK")
    assert [type(answer) for answer in attempt.fate()] == [Committed, Committed]  # type: ignore[attr-defined]
    assert deadlocks(mariadb) > before, "there was no deadlock"
    assert [event.position for event in read_feed(store)] == [1, 2, 3, 4]


def test_who_comes_second_waits_for_the_first_and_conflicts(
    mariadb: MariaDB, url: str, store: MySQLStore
) -> None:
    """Also if the first is in another transaction: what is compared is what is there when the lock
    is had."""
    first = make_change(make_key())
    commit(store, first)
    with mariadb.connected() as rival, rival.cursor() as cursor:
        lock(rival, url, first.key.id)
        attempt = Attempt(store, make_change(first.key, first), make_change(make_key("B-001")))
        waiting_for_a_lock(mariadb)
        cursor.execute(f"UPDATE {prefix_of(url)}record SET version = 7")
        cursor.execute("COMMIT")
    assert [type(answer) for answer in attempt.fate()] == [Conflict, Committed]  # type: ignore[attr-defined]


def test_who_creates_second_waits_for_the_first_and_conflicts(store: MySQLStore, url: str) -> None:
    other = MySQLStore(url)
    change = make_change(make_key())
    answers = [
        run.answer
        for run in together([partial(one.commit, [change]) for one in (store, other)] * 4)
    ]
    assert (
        sorted(type(answer).__name__ for (answer,) in answers) == ["Committed"] + ["Conflict"] * 7
    )
    assert len(read_feed(store)) == 1
    other.close()


def test_a_connection_that_was_left_inside_a_transaction_is_not_used_again(
    store: MySQLStore,
) -> None:
    """Whoever began another one on it would commit what was left in the first."""
    with store._entered() as left:
        left.run(b"START TRANSACTION")
    with store._entered() as other:
        assert other is not left
    with store._entered() as same:
        assert same is other


# Commits


def test_a_commit_is_one_packet_and_so_is_a_load(
    store: MySQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [
        make_change(make_key(f"A-{number:03}"), index=Index(pool="p", session="s", waits_on=("d",)))
        for number in range(100)
    ]
    commit(store, *changes)
    packets: list[bytes] = []
    send = MySQLConnection.send

    def noted(link: MySQLConnection, packet: bytes) -> None:
        packets.append(packet)
        send(link, packet)

    monkeypatch.setattr(MySQLConnection, "send", noted)
    commit(
        store,
        *[
            make_change(change.key, change, index=Index(session="s", waits_on=("+d",)))
            for change in changes
        ],
    )
    assert len(store.load([change.key for change in changes]).records) == 100
    assert len(packets) == 2


def test_what_a_packet_does_not_hold_is_sent_in_several(odd: MariaDB) -> None:
    store = MySQLStore(odd.url())
    changes = [
        make_change(make_key(f"A-{number:03}"), body=b"\\'" * 60_000) for number in range(12)
    ]
    assert len(list(writing.portions(changes, store._most_bytes))) > 1
    assert commit(store, *changes) == list(range(1, 13))
    assert [event.key for event in read_feed(store)] == [change.key for change in changes]
    store.close()


def test_a_change_that_no_packet_holds_is_refused_and_nothing_is_written(odd: MariaDB) -> None:
    store = MySQLStore(odd.url())
    large = make_change(make_key("B-001"), events=[bytes(200_000)] * 6)
    with pytest.raises(OverLimit, match="max_allowed_packet"):
        store.commit([make_change(make_key("A-001")), large])
    assert store.load([make_key("A-001"), large.key]).records == {}
    store.close()


def test_payloads_fit_through_small_packets(odd: MariaDB) -> None:
    store = MySQLStore(odd.url())
    data = b"it's \\" * 500_000
    store.payloads().put(make_key(), "d", data)
    assert store.payloads().open(make_key(), "d").read() == data
    store.close()


@pytest.mark.parametrize(
    "part", ["tenant", "project", "kind", "id", "session", "pool", "parent", "dependency"]
)
def test_a_name_that_is_too_long_is_refused_and_nothing_is_written(
    part: str, store: MySQLStore
) -> None:
    """It is not cut off, whatever the server's mode is: two long names would be one."""
    long = "x" * 5000
    key = (
        make_key()._replace(**{part: long})
        if part in ("tenant", "project", "kind", "id")
        else make_key()
    )
    index = {
        "session": Index(session=long),
        "pool": Index(pool=long),
        "parent": Index(parent=long),
        "dependency": Index(waits_on=(long,)),
    }.get(part, Index())
    with pytest.raises(OverLimit, match="too long"):
        store.commit([make_change(make_key("A-000")), make_change(key, index=index)])
    assert store.load([make_key("A-000"), key]).records == {}
    assert read_feed(store) == []


def test_a_commit_that_was_rolled_back_leaves_no_hole_in_the_feed(store: MySQLStore) -> None:
    first = make_change(make_key())
    commit(store, first)
    with pytest.raises(OverLimit):
        store.commit([make_change(make_key("x" * 2000)), make_change(first.key, first)])
    store.commit([make_change(make_key()), make_change(make_key("A-002"))])
    commit(store, make_change(first.key, first))
    assert [event.position for event in read_feed(store)] == [1, 2, 3]


def test_who_waits_no_longer_is_not_found_by_what_he_waited_for(store: MySQLStore) -> None:
    """Also if one change of many says so, and another of the same commit conflicts."""
    waiting = [
        make_change(make_key(f"A-{number}"), index=Index(waits_on=("d", "e")))
        for number in range(3)
    ]
    commit(store, *waiting)
    late = make_change(make_key("A-2"), waiting[2])
    commit(store, late)
    answers = store.commit([make_change(change.key, change) for change in waiting])
    assert [type(answer) for answer in answers] == [Committed, Committed, Conflict]
    assert store.find(Query("acme", "apollo", waits_on=("d", "e"))).records == []
    commit(
        store,
        make_change(
            waiting[0].key, make_change(waiting[0].key, waiting[0]), index=Index(waits_on=("e",))
        ),
    )
    assert [
        found.key.id for found in store.find(Query("acme", "apollo", waits_on=("d", "e"))).records
    ] == ["A-0"]
    assert store.audit().faults == []


def test_commit_that_conflicts_locks_nothing_between_its_two_steps(
    store: MySQLStore, url: str
) -> None:
    """A lane comes to the second step only after the reactions of the batch before, which may
    write the same records."""
    ours, theirs = make_change(make_key("A-1")), make_change(make_key("A-2"))
    commit(store, ours, theirs)
    commit(store, make_change(theirs.key, theirs))
    sent = store.start_commit(
        [make_change(ours.key, ours), make_change(theirs.key, theirs, mark="late")]
    )
    with ThreadPoolExecutor(1) as beside:
        beside.submit(sent.wait).result(PATIENCE)

    with closing(MySQLStore(url)) as other:
        answers = other.commit([make_change(ours.key, ours, mark="rival")])

    assert [type(answer) for answer in answers] == [Conflict]
    assert [type(answer) for answer in sent.answers()] == [Committed, Conflict]


def test_an_audit_names_what_belongs_nowhere(mariadb: MariaDB, url: str, store: MySQLStore) -> None:
    commit(
        store,
        make_change(make_key(), index=Index(waits_on=("d",))),
        make_change(make_key("B-001", project="gone")),
    )
    prefix = prefix_of(url)
    mariadb.run(f"INSERT INTO {prefix}waits SELECT project, 'e', kind, name FROM {prefix}waits")
    mariadb.run(f"DELETE FROM {prefix}project WHERE project = 'gone'")
    faults = store.audit().faults
    assert len(faults) == 3
    assert any("task B-001 belongs to project" in fault for fault in faults)
    assert any("the event at position 1 belongs to project" in fault for fault in faults)
    assert any(
        "acme/apollo task A-001: is found by waits_on e, for which it does not wait" in fault
        for fault in faults
    )


# Waiting


def test_one_thread_looks_for_all_who_wait_and_outlives_a_cut(
    proxy: Proxy, url: str, store: MySQLStore
) -> None:
    waiter = MySQLStore(through(proxy, url))

    def wait(cursor: str) -> None:
        with suppress(StoreUnavailable):  # cut while it looked for itself
            waiter.wait([("acme", "apollo")], [cursor], PATIENCE)

    for number in range(2):
        before = waiter.read_events(EventQuery("acme", "apollo", tail=True)).cursor
        waiting = [threading.Thread(target=wait, args=(before,)) for _ in range(4)]
        for thread in waiting:
            thread.start()
        eventually(lambda: waiter._watcher._wanted["acme", "apollo"] >= 4, "four waiters")
        assert [thread.name for thread in threading.enumerate()].count("genlock-watcher") == 1
        if number:
            proxy.cut()
        began = time.monotonic()
        commit(store, make_change(make_key(f"A-{number}")))
        for thread in waiting:
            thread.join(PATIENCE)
        assert time.monotonic() - began < PATIENCE / 4
    waiter.close()


# Forks, restarts


def test_nothing_acknowledged_is_lost_when_the_server_crashes_and_the_store_comes_back_by_itself() -> (
    None
):
    with running() as server, closing(MySQLStore(server.url())) as store:
        lose_nothing_in_a_crash(store, server.kill, server.start)
        server.stop()
        with pytest.raises(StoreUnavailable):
            store.load([])
        server.start()
        commit_once_back(store, make_change(make_key("after the second")))


def test_commits_follow_the_address_of_the_primary_to_another_server(
    odd: MariaDB, mariadb: MariaDB
) -> None:
    for server in (odd, mariadb):
        make_user(server, "follower")
        server.run("GRANT ALL ON plans.* TO follower@'127.0.0.1'")
    url = odd.url().replace("genlock:secret@", "follower@")
    MySQLStore(url.replace(f":{odd.port}/", f":{mariadb.port}/")).close()
    with between(odd.port) as way, closing(MySQLStore(through(way, url))) as store:
        try:
            follow_a_switchover(
                store, way, lambda: odd.run("SET GLOBAL read_only = 1"), mariadb.port
            )
        finally:
            odd.run("SET GLOBAL read_only = 0")
    assert len(mariadb.run(f"SELECT name FROM {prefix_of(url)}record")) == 2


# What it costs


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("find_pool", {"pool": "p", "after": None, "most": 2}),
        ("find_pool_after", {"pool": "p", "ord": "00010", "after": "A-00010", "most": 2}),
        ("find_head", {"pool": 1, "most": 2}),
        ("find_due", {"due": 2**62, "after_due": 0, "after": "", "most": 2}),
        ("find_one", {"after": "A-00010", "most": 2}),
        ("read_feed", {"position": 10, "most": 2}),
        ("load_shelf", {"shelf": 1, "names": ("A-00001", "A-00002")}),
        ("offered_pools", {}),
    ],
)
def test_a_page_is_read_along_an_index_and_nothing_is_sorted(
    statement: str, values: dict[str, Value], crowded: MySQLStore, mariadb: MariaDB
) -> None:
    """So that it costs the same however many records there are."""
    given = {"tenant": "acme", "project": "apollo", "kind": "task", "state": None, **values}
    with crowded._entered() as link:
        plan = link.run(b"EXPLAIN " + crowded._queries[statement].filled(**given))[0].rows
        first, before, _, after = link.run(
            b";".join([_READ, _READ, crowded._queries[statement].filled(**given), _READ])
        )
    assert not any(
        b"filesort" in (step[-1] or b"") or b"temporary" in (step[-1] or b"") for step in plan
    ), plan
    read = [sum(int(number) for _, number in answer.rows) for answer in (first, before, after)]
    to_look = read[1] - read[0]
    assert read[2] - read[1] - to_look < 60, "more was read than the page has"


_READ = b"""SHOW SESSION STATUS
WHERE variable_name IN ('Handler_read_next', 'Handler_read_rnd_next', 'Handler_read_key', 'Handler_read_prev')"""


@pytest.fixture(name="crowded", scope="module")
def _crowded(mariadb: MariaDB) -> Iterator[MySQLStore]:
    """A store with a thousand records in one pool."""
    store = MySQLStore(mariadb.url())
    commit(
        store,
        *[
            make_change(
                make_key(f"A-{number:05}"),
                index=Index(state="PENDING", pool="p", order=f"{number:05}", due_at=number),
            )
            for number in range(1000)
        ],
    )
    yield store
    store.close()


@pytest.mark.slow
class TestMySQLStoreWithSmallPackets(StoreContract):
    """Nothing of the contract rests on the size of a packet."""

    @pytest.fixture(autouse=True)
    def _at(self, odd: MariaDB, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GENLOCK_TEST_MARIADB", odd.address)

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return MySQLStore(url_for(place), clock=clock)


def test_who_has_raised_the_epoch_himself_writes_by_a_new_connection_too(store: MySQLStore) -> None:
    """It asks before it first writes, and is told nothing new."""
    first = make_change(make_key())
    commit(store, first)
    store.set_epoch(1)
    with store._pool.lent():
        commit(store, make_change(first.key, first))
