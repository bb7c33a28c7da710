"""What only the Redis store does: what a server must be, scripts, connections that break, waiting
for replicas."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import genlock
from genlock.errors import (
    BadArgument,
    OutcomeUnknown,
    OverLimit,
    ResultNotFound,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.store import Change, EventQuery, Index, Key, Query
from genlock.stores.connection_pool import Refused
from genlock.stores.cursors import feed_mark
from genlock.stores.redis import RedisStore
from genlock.stores.redis.scripts import SCRIPTS, Script
from genlock.testing.clock import ManualClock
from genlock.testing.concurrency import PATIENCE
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually
from tests.servers.proxy import Proxy, between
from tests.servers.redis import Redis, certificate, free_port, replicated, running
from tests.stores.server_suite import ServedStore, commit_once_back, through
from tests.stores.two_step_commit import Committing, either_way


@pytest.fixture(name="url")
def _url(redis: Redis, request: pytest.FixtureRequest) -> str:
    return redis.url(request.node.nodeid)


@pytest.fixture(name="store")
def _store(url: str) -> Iterator[RedisStore]:
    with opened(url) as store:
        yield store


@pytest.fixture(name="proxy")
def _proxy(redis: Redis) -> Iterator[Proxy]:
    with between(redis.port) as proxy:
        yield proxy


@pytest.fixture(name="own", scope="module")
def _own() -> Iterator[Redis]:
    """A server whose settings may be changed, if they are changed back."""
    with running(busy_reply_threshold="50") as server:
        yield server


def test_of_what_is_asked_together_one_that_is_refused_leaves_no_answer_behind(
    store: RedisStore,
) -> None:
    with store._pool.lent() as link:
        with pytest.raises(Refused, match="unknown command"):
            link.ask([("PING",), ("NO-SUCH-THING",), ("ECHO", "last")])
        assert link.ask([("ECHO", "one"), ("ECHO", "two")]) == [b"one", b"two"]


@contextmanager
def opened(url: str) -> Iterator[RedisStore]:
    store = RedisStore(url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def configured(server: Redis, **settings: str) -> Iterator[None]:
    """The server has these settings as long as the block lasts."""
    before = [server.tell("CONFIG", "GET", name.replace("_", "-")) for name in settings]
    for name, value in settings.items():
        server.tell("CONFIG", "SET", name.replace("_", "-"), value)
    try:
        yield
    finally:
        for name, value in before:
            server.tell("CONFIG", "SET", name, value)


def prefix_of(url: str) -> str:
    return url.partition("prefix=")[2].partition("&")[0]


class TestRedisOnItsServer(ServedStore):
    kind = RedisStore
    driver, extra, anywhere = "redis", "redis", "redis://127.0.0.1/0"


# URLs


@pytest.mark.parametrize(
    ("rest", "complaint"),
    [
        ("0?prefix=a{b}", "is no prefix"),
        ("0?prefix=", "'' is no prefix"),
        ("0?prefix=a&prefix=b", "prefix is given twice"),
        ("0?pool=0", "'0' is no pool"),
        (
            "0?durability=mostly",
            "'mostly' is no durability in a Redis URL: it is none, everysec or always",
        ),
        ("0?wait=-1", "'-1' is no wait"),
        ("0?wait_timeout=soon", "'soon' is no wait_timeout"),
        ("0?wait=1&wait_timeout=20", "wait_timeout must be shorter than socket_timeout"),
        ("0?alone=perhaps", "'perhaps' is no alone"),
        ("0?alone=on", "alone=on needs durability=always"),
        ("0?durability=always&alone=on&wait=1", "leave one of them out"),
        ("0?colour=red", "colour"),
        ("plans", "names no database"),
    ],
)
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_an_option_that_cannot_be_meant_is_refused_and_named(
    scheme: str, rest: str, complaint: str
) -> None:
    with pytest.raises(BadArgument) as raised:
        genlock.open_store(f"{scheme}://127.0.0.1:1/{rest}", create=True)
    assert complaint in str(raised.value)


def test_a_server_that_is_not_there_is_unavailable_and_the_message_has_no_password() -> None:
    with pytest.raises(StoreUnavailable) as raised:
        RedisStore("redis://bob:secret@127.0.0.1:1/3")
    assert "redis://127.0.0.1:1/3 (prefix genlock)" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_server_that_does_not_speak_tls_is_unavailable_by_rediss(redis: Redis) -> None:
    with pytest.raises(StoreUnavailable):
        RedisStore(f"rediss://127.0.0.1:{redis.port}/0?socket_timeout=1")


def test_rediss_speaks_tls_and_checks_the_certificate(tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    tls = {
        "tls_cert_file": str(made),
        "tls_key_file": str(key),
        "tls_auth_clients": "no",
        "tls_port": str(free_port()),
    }
    with running(**tls) as server:
        url = (
            server.url("x")
            .replace("redis://", "rediss://")
            .replace(f":{server.port}/", f":{tls['tls_port']}/")
        )
        with opened(f"{url}&ssl_ca_certs={made}") as store:
            commit(store, make_change(make_key()))
            assert len(read_feed(store)) == 1
        with pytest.raises(StoreUnavailable, match="certificate"):
            RedisStore(url)


# Opening


def test_a_newer_format_is_refused_with_the_version_to_install(
    redis: Redis, url: str, store: RedisStore
) -> None:
    redis.tell("HSET", store._names.store, "format", 99, "made_by", "7.8.9")
    with pytest.raises(StoreForeign, match=r"is of format 99.*install genlock 7\.8\.9 or later"):
        RedisStore(url)


@pytest.mark.parametrize("command", [("SET", "x"), ("HSET", "colour", "red")])
def test_keys_of_another_program_are_left_alone(
    command: tuple[str, ...], redis: Redis, url: str
) -> None:
    redis.tell(command[0], f"{prefix_of(url)}:{{store}}", *command[1:])
    with pytest.raises(StoreForeign, match="name another prefix"):
        RedisStore(url)


def test_two_prefixes_and_two_databases_of_one_server_never_meet(redis: Redis) -> None:
    urls = [redis.url("one"), redis.url("two"), redis.url("one").replace("/0?", "/1?")]
    stores = [RedisStore(each) for each in urls]
    commit(stores[0], make_change(make_key()))
    assert [len(read_feed(store)) for store in stores] == [1, 0, 0]
    for store in stores:
        store.close()


def test_a_server_without_an_append_only_file_is_refused_unless_nothing_need_last(
    own: Redis,
) -> None:
    with configured(own, appendonly="no"):
        for durability in ("everysec", "always"):
            with pytest.raises(StoreError, match="set appendonly yes, or write durability=none"):
                RedisStore(own.url("x", durability=durability))
        with opened(own.url("x", durability="none")) as store:
            assert not store.limits.durable


@pytest.mark.parametrize(
    ("syncs", "durability", "advice"),
    [
        ("no", "everysec", "say durability=none"),
        ("no", "always", "say durability=none"),
        ("everysec", "always", "say durability=everysec"),
    ],
)
def test_a_server_that_syncs_less_than_the_url_promises_is_refused(
    own: Redis, syncs: str, durability: str, advice: str
) -> None:
    with (
        configured(own, appendfsync=syncs),
        pytest.raises(StoreError, match=f"has appendfsync {syncs}: set it, or {advice}"),
    ):
        RedisStore(own.url("x", durability=durability))


def test_only_a_store_that_syncs_every_write_is_durable(own: Redis) -> None:
    with configured(own, appendfsync="always"):
        for durability, durable in (("none", False), ("everysec", False), ("always", True)):
            with opened(own.url("x", durability=durability)) as store:
                assert store.limits.durable == durable
        with (
            configured(own, no_appendfsync_on_rewrite="yes"),
            pytest.raises(StoreError, match="no-appendfsync-on-rewrite"),
        ):
            RedisStore(own.url("x", durability="always"))


def test_a_server_that_would_drop_records_is_refused(own: Redis) -> None:
    with (
        configured(own, maxmemory="100mb", maxmemory_policy="allkeys-lru"),
        pytest.raises(StoreError, match="set it to noeviction"),
    ):
        RedisStore(own.url("x"))
    with (
        configured(own, maxmemory="100mb", maxmemory_policy="volatile-lru"),
        opened(own.url("x")) as store,
    ):
        commit(store, make_change(make_key("volatile")))


def test_a_password_that_is_missing_or_wrong_is_said(own: Redis) -> None:
    own.tell("CONFIG", "SET", "requirepass", "hidden")
    try:
        for login in ("", "someone:wrong@", ":wrong@"):
            with pytest.raises(StoreError, match="user and password in the URL") as raised:
                RedisStore(own.url("x").replace("127.0.0.1", f"{login}127.0.0.1"))
            assert "wrong@" not in str(raised.value)
        with opened(own.url("x").replace("127.0.0.1", ":hidden@127.0.0.1")) as store:
            commit(store, make_change(make_key("secret")))
    finally:
        with own.client() as client:
            client.auth("hidden")
            client.config_set("requirepass", "")


def test_a_user_with_the_rights_that_the_how_to_names_can_do_everything(own: Redis) -> None:
    prefix = prefix_of(own.url("x"))
    rights = (
        f"~{prefix}:* &{prefix}:* -@all +@read +@write +@scripting +@connection +info +time "
        "+wait +subscribe +publish"
    )
    own.tell("ACL", "SETUSER", "agent", "on", ">pw", *rights.split())
    with opened(own.url("x").replace("127.0.0.1", "agent:pw@127.0.0.1")) as store:
        commit(store, make_change(make_key("by agent")))
        store.purge(make_key("by agent"), 2, b"base")
        store.set_epoch(store.load([]).epoch + 1)
        assert store.audit().faults == []
    own.tell("ACL", "SETUSER", "agent", "-publish")
    with (
        pytest.raises(StoreError, match=r"docs/how-to/redis\.md"),
        opened(own.url("x").replace("127.0.0.1", "agent:pw@127.0.0.1")) as store,
    ):
        commit(store, make_change(make_key("by agent again")))


# What a server says


def test_a_server_that_is_out_of_memory_is_full_and_nothing_is_written(own: Redis) -> None:
    with opened(own.url("full")) as store:
        first = make_change(make_key(), index=Index(state="PENDING", pool="p", order="1"))
        commit(store, first)
        with configured(own, maxmemory="1mb"):
            with pytest.raises(StoreFull):
                store.commit([make_change(first.key, first, index=Index(state="HELD"))])
            assert store.load([first.key]).records[first.key].version == 1
            assert [
                record.version for record in store.find(Query("acme", "apollo", pool="p")).records
            ] == [1]
        commit(store, make_change(first.key, first))


def test_a_server_that_is_busy_with_a_script_is_unavailable_and_nothing_is_written(
    own: Redis,
) -> None:
    with opened(own.url("busy")) as store:
        commit(store, make_change(make_key("warm")))
        with own.client() as client:
            endless = threading.Thread(target=_run_for_ever, args=(own,))
            endless.start()
            _await_busy(client)
            with pytest.raises(StoreUnavailable, match="busy running a script"):
                store.commit([make_change(make_key())])
            client.script_kill()
            endless.join()
        commit_once_back(store, make_change(make_key()))


def test_a_look_that_an_operator_ends_is_unavailable(
    own: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(own.url("ended")) as store, own.client() as client:
        monkeypatch.setitem(
            SCRIPTS, "load", Script("#!lua flags=no-writes\nwhile true do end", "0" * 40)
        )

        def end() -> None:
            _await_busy(client)
            client.script_kill()

        operator = threading.Thread(target=end)
        operator.start()
        with pytest.raises(StoreUnavailable, match=r"SCRIPT KILL.*nothing was written"):
            store.load([make_key()])
        operator.join()


def test_a_server_that_is_still_loading_is_unavailable_and_waited_for() -> None:
    with running(appendfsync="always") as server:
        with server.client() as client, client.pipeline(transaction=False) as many:
            for number in range(5000):
                many.set(f"key {number}", number)
            many.execute()
        with opened(server.url("x")) as store:
            commit(store, make_change(make_key()))
            server.stop()
            server.start(
                wait=False, key_load_delay="200", loading_process_events_interval_bytes="1024"
            )
            said = set()

            def loaded() -> bool:
                try:
                    assert make_key() in store.load([make_key()]).records
                except StoreUnavailable as error:
                    said.add("loading" in str(error))
                    return False
                return True

            eventually(loaded, "the server to have loaded its data")
            assert True in said


def _run_for_ever(server: Redis) -> None:
    import redis

    with server.client() as client, pytest.raises(redis.RedisError):
        client.eval("while true do end", 0)


def _await_busy(client: object) -> None:
    import redis

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            client.ping()  # type: ignore[attr-defined]
        except redis.RedisError:
            return
    raise AssertionError("the server was never busy")


def test_scripts_that_the_server_has_forgotten_are_taught_again(
    redis: Redis, store: RedisStore
) -> None:
    first = make_change(make_key())
    commit(store, first)
    redis.tell("SCRIPT", "FLUSH")
    commit(store, make_change(first.key, first), make_change(make_key(project="gemini")))
    redis.tell("SCRIPT", "FLUSH")
    assert store.load([first.key]).records[first.key].version == 2


def test_a_store_that_was_emptied_under_us_is_foreign_and_is_not_made_again(
    redis: Redis, url: str, store: RedisStore
) -> None:
    commit(store, make_change(make_key()))
    for key in redis.tell("KEYS", f"{prefix_of(url)}:*"):
        redis.tell("DEL", key)
    calls: list[Callable[[], object]] = [
        lambda: store.load([]),
        lambda: store.commit([make_change(make_key("A-002"))]),
        lambda: store.read_events(EventQuery("acme", "apollo")),
        lambda: store.purge(make_key(), 1, b""),
        lambda: store.set_epoch(5),
    ]
    for call in calls:
        with pytest.raises(StoreForeign, match="not there any more"):
            call()
    assert redis.tell("KEYS", f"{prefix_of(url)}:*") == []


def test_a_commit_of_which_one_project_s_part_was_refused_is_of_unknown_outcome(
    redis: Redis, url: str, store: RedisStore
) -> None:
    commit(store, make_change(make_key("warm")), make_change(make_key("warm", project="gemini")))
    place = store._names.place("acme", "gemini")
    redis.tell("RENAME", f"{place}:h", f"{place}:elsewhere")
    redis.tell("SET", f"{place}:h", "what should not be there")
    with pytest.raises(OutcomeUnknown, match="was refused"):
        store.commit([make_change(make_key()), make_change(make_key(project="gemini"))])
    assert make_key() in store.load([make_key()]).records
    with pytest.raises(StoreCorrupt, match="what should not be there"):
        store.commit([make_change(make_key(project="gemini"))])
    redis.tell("SET", store._names.projects("other"), "what should not be there")
    with pytest.raises(
        OutcomeUnknown, match="was refused"
    ):  # a place that is new is written in a second step
        store.commit([make_change(make_key("A-002")), make_change(make_key(tenant="other"))])


def test_a_look_at_more_records_than_one_script_takes_is_continued(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genlock.stores.redis.queries.BUDGET", 7)
    states = {f"{number:03}": "HELD" if number % 40 == 39 else "PENDING" for number in range(160)}
    commit(
        store,
        *(
            make_change(make_key(id), index=Index(state=state, parent="t", session="s"))
            for id, state in states.items()
        ),
    )
    held = Query("acme", "apollo", parent="t", state="HELD")
    assert [record.key.id for record in store.find(held).records] == ["039", "079", "119", "159"]
    assert store.find(held, count_by="state").counts == {"HELD": 4}
    assert store.find(Query("acme", "apollo", state="HELD"), count_by="session").counts == {"s": 4}


@pytest.mark.parametrize(
    "late",
    [
        make_change(make_key("nul\0")),
        make_change(make_key())._replace(key=make_key("\ud800")),
        make_change(make_key())._replace(key=make_key(project="\ud800")),
        make_change(make_key(), index=Index(session="a\0b")),
        make_change(make_key(), index=Index(due_at=2**63)),
        make_change(make_key())._replace(version=2**64),
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(
    late: Change, store: RedisStore
) -> None:
    with pytest.raises(BadArgument, match="cannot be stored"):
        store.commit([make_change(make_key("fine")), late])
    assert read_feed(store) == []


@pytest.mark.parametrize("length", [30, 31, 32, 240, 255, 256, 500, 65_536])
def test_names_of_every_length_are_found(length: int, store: RedisStore) -> None:
    name = "x" * length
    commit(
        store,
        make_change(
            make_key(name),
            index=Index(state=name, pool=name, order=name, session=name, waits_on=(name,)),
        ),
    )
    for query in (
        Query("acme", "apollo", pool=name),
        Query("acme", "apollo", waits_on=(name,)),
        Query("acme", "apollo", state=name),
    ):
        assert [record.key.id for record in store.find(query).records] == [name]


def test_a_payload_is_refused_with_what_to_type(store: RedisStore) -> None:
    with pytest.raises(OverLimit, match=r"payloads=s3://bucket/prefix or payloads=file:///folder"):
        store.payloads().put(make_key(), "d", b"x" * 40_000)
    with pytest.raises(ResultNotFound):
        store.payloads().open(make_key(), "d")
    store.payloads().drop(make_key(), "d")


def test_now_is_the_server_s_unless_a_clock_is_given(
    redis: Redis, url: str, store: RedisStore
) -> None:
    before, now, after = redis.tell("TIME"), store.load([]).now.timestamp(), redis.tell("TIME")
    assert before[0] + before[1] / 1e6 - 1e-5 <= now <= after[0] + after[1] / 1e6 + 1e-5
    assert store.limits.server_clock
    with_clock = RedisStore(url, clock=ManualClock())
    assert not with_clock.limits.server_clock
    with_clock.close()


# Connections that break


@either_way
def test_a_commit_whose_answer_is_lost_is_of_unknown_outcome_and_was_done(
    proxy: Proxy, url: str, store: RedisStore, committing: Committing
) -> None:
    with opened(through(proxy, url)) as broken:
        commit(broken, make_change(make_key("warm")))
        change = make_change(make_key())
        proxy.cut_at_the_next_answer()
        with pytest.raises(OutcomeUnknown):
            committing(broken, [change])
    assert change.key in store.load([change.key]).records


@either_way
def test_a_server_that_falls_silent_inside_a_commit_is_given_up(
    proxy: Proxy, url: str, committing: Committing
) -> None:
    with opened(through(proxy, f"{url}&socket_timeout=0.5")) as store:
        commit(store, make_change(make_key("warm")))
        proxy.swallow_answers()
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            committing(store, [make_change(make_key())])
        assert time.monotonic() - began < PATIENCE / 4
        proxy.pass_on()
        commit(store, make_change(make_key("later")))


def test_whoever_listens_is_told_and_outlives_a_cut(
    proxy: Proxy, url: str, store: RedisStore
) -> None:
    with opened(through(proxy, url)) as waiter:
        place, mark, deadline = (
            ("acme", "apollo"),
            {feed_mark("acme", "apollo")},
            time.monotonic() + PATIENCE,
        )
        heard = 0
        for number in range(3):
            # Whoever begins to listen tells it, because something may have been missed before.
            while waiter._notifications.now() == heard or not waiter._listener.hears:
                waiter.wait(
                    [place], [waiter.read_events(EventQuery(*place, tail=True)).cursor], 0.01
                )
                assert time.monotonic() < deadline, "it never came to listen"
            since = waiter._notifications.now()
            commit(store, make_change(make_key(f"A-{number}")))
            assert waiter._notifications.wait(dict.fromkeys(mark, since), PATIENCE / 4), (
                "nobody told"
            )
            heard = waiter._notifications.now()
            proxy.cut()


def test_words_that_are_not_of_ours_may_mean_any_feed_and_end_nothing(
    url: str, store: RedisStore
) -> None:
    place, deadline = ("acme", "apollo"), time.monotonic() + PATIENCE
    with opened(url) as waiter:
        while not waiter._listener.hears:
            waiter.wait([place], [waiter.read_events(EventQuery(*place, tail=True)).cursor], 0.01)
            assert time.monotonic() < deadline, "it never came to listen"
        for words in ("hello", "2"):
            since = waiter._notifications.now()
            with store._entered() as link:
                link.call("PUBLISH", store._names.moves, words)
            waiter._notifications.wait({2: since}, PATIENCE / 4)
            assert waiter._notifications.now() > since, "nobody told"


# Replicas


@pytest.fixture(name="pair", scope="module")
def _pair() -> Iterator[tuple[Redis, Redis]]:
    with replicated() as pair:
        yield pair


def test_a_replica_can_be_read_and_not_written(pair: tuple[Redis, Redis]) -> None:
    master, replica = pair
    with pytest.raises(StoreReadOnly, match="open its master once"):
        RedisStore(replica.url("never made"))
    with opened(master.url("read", wait=1, wait_timeout=9)) as store:
        change = make_change(make_key(), index=Index(state="PENDING"))
        commit(store, change)
        with opened(replica.url("read")) as copy:
            assert copy.limits.read_only
            assert copy.load([change.key]).records[change.key].version == 1
            assert len(copy.find(Query("acme", "apollo")).records) == len(read_feed(copy)) == 1
            with pytest.raises(StoreReadOnly, match="is a replica"):
                copy.commit([make_change(change.key, change)])


def test_alone_is_refused_where_there_are_replicas(pair: tuple[Redis, Redis]) -> None:
    master, _ = pair
    with (
        configured(master, appendfsync="always"),
        pytest.raises(StoreError, match="leave alone=on out"),
    ):
        RedisStore(master.url("alone", durability="always", alone="on"))


def test_with_fewer_replicas_than_are_waited_for_nothing_is_written(
    pair: tuple[Redis, Redis],
) -> None:
    master, _ = pair
    with opened(master.url("few", wait=2)) as store:
        with pytest.raises(
            StoreUnavailable, match="wait=2, and only 1 replicas are there; nothing was written"
        ):
            store.commit([make_change(make_key())])
        assert store.load([make_key()]).records == {}


def test_a_commit_that_too_few_replicas_have_is_unknown_and_nothing_is_read_until_they_have_it(
    pair: tuple[Redis, Redis],
) -> None:
    master, replica = pair
    with opened(master.url("slow", wait=1)) as patient:
        commit(patient, make_change(make_key("warm")))
    with opened(master.url("slow", wait=1, wait_timeout=0.2)) as store:
        replica.signal(signal.SIGSTOP)
        try:
            with pytest.raises(OutcomeUnknown, match="0 of 1 replicas"):
                store.commit([make_change(make_key())])
            with pytest.raises(StoreUnavailable, match="nothing is read until they have it"):
                store.load([make_key()])
        finally:
            replica.signal(signal.SIGCONT)
        snapshot = eventually(
            lambda: store.load([make_key()]),
            "the replica to catch up",
            retry_on=(StoreUnavailable,),
        )
        assert make_key() in snapshot.records
        with opened(replica.url("slow")) as copy:
            assert make_key() in copy.load([make_key()]).records


def test_a_claim_is_not_granted_before_its_replica_has_it_and_then_once(
    pair: tuple[Redis, Redis],
) -> None:
    master, replica = pair
    url = master.url("granted", wait=1, wait_timeout=0.2)
    with (
        genlock.connect(
            url, create=True, session_id="s", agent_id="a", deadline_seconds=PATIENCE
        ) as fleet,
        opened(master.url("granted")) as other,
    ):
        fleet.add_tasks(tasks=["T"])
        fleet.register_session()
        key = Key("default", "default", "task", "T")
        answers: list[genlock.ClaimResult] = []
        claimer = threading.Thread(target=lambda: answers.append(fleet.claim_task(task_id="T")))
        replica.signal(signal.SIGSTOP)
        try:
            claimer.start()
            eventually(
                lambda: other.load([key]).records[key].version > 1, "the claim to reach the master"
            )
            claimer.join(0.5)
            assert answers == [], "granted while it might be lost"
        finally:
            replica.signal(signal.SIGCONT)
        claimer.join(PATIENCE)
        (granted,) = answers
        assert granted.claim is not None
        assert granted.claim.generation == 1
        assert [event.event_type for event in fleet.read_events(task_id="T").events] == [
            "TASK_ADDED",
            "CLAIM_ACQUIRED",
        ]
