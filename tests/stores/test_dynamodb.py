"""DynamoDB: what only this store does."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    UnauthorizedSSOTokenError,
)
from msgspec.structs import replace

import genlock
from genlock.errors import (
    BadArgument,
    CursorLost,
    OutcomeUnknown,
    OverLimit,
    StoreError,
    StoreForeign,
    StoreMissing,
    StoreUnavailable,
)
from genlock.open import open_store
from genlock.store import Change, Committed, Conflict, EventQuery, Index, Query, Store
from genlock.stores.dynamodb import DynamoDBStore, calls, connection, create_table, keys
from genlock.stores.dynamodb.calls import (
    Cancelled,
    FailureKind,
    cancelled_by,
    fault_of,
    trouble_of,
)
from genlock.stores.dynamodb.commit import ACTIONS, Plan, Result, grouped
from genlock.stores.dynamodb.connection import settings_of
from genlock.stores.dynamodb.keys import INDEX_FIELDS, Item, at_of, key_item, whole
from genlock.stores.dynamodb.position_gaps import GAP_SECONDS
from genlock.stores.dynamodb.store import THREADS
from genlock.testing.sample import (
    facts_of,
    keys_of,
    make_change,
    make_key,
    read_feed,
    read_record,
    recorded_of,
)
from tests.servers import ministack, proxy
from tests.servers.ministack import Server

FEED = EventQuery("acme", "apollo")


@pytest.fixture
def place(tmp_path: Path, dynamodb: Server) -> Path:
    return tmp_path / "genlock.db"


@pytest.fixture
def store(place: Path) -> Iterator[DynamoDBStore]:
    store = opened(place)
    yield store
    store.close()


@pytest.fixture
def other(place: Path) -> Iterator[DynamoDBStore]:
    store = opened(place)
    yield store
    store.close()


def commit(store: Store, *changes: Change) -> list[int]:
    """Commits changes that must fit; their positions."""
    answers = store.commit(changes)
    assert all(isinstance(answer, Committed) for answer in answers)
    return [answer.position for answer in answers if isinstance(answer, Committed)]


def opened(place: Path) -> DynamoDBStore:
    return DynamoDBStore(ministack.url_for(place))


def behind(gateway: proxy.Proxy, place: Path) -> DynamoDBStore:
    """The same by way of a proxy."""
    ministack.url_for(place)
    return DynamoDBStore(ministack.url_for(place, f"http://127.0.0.1:{gateway.port}"))


def voids_of(store: Store) -> int:
    """How many positions of the feed were given to no event, read in small pages."""
    voids, query = 0, replace(FEED, limit=2)
    while True:
        page = store.read_events(query)
        voids += page.voids
        if not page.more:
            return voids
        query = replace(query, after=page.cursor)


def take_positions(store: DynamoDBStore, number: int) -> None:
    """What a writer does first; he then falls silent."""
    store._table.update(keys.head_at("acme", "apollo"), "ADD #h :n", {":n": whole(number)})


# Opening


def test_a_coordinator_is_opened_by_the_url_of_a_table(place: Path, dynamodb: Server) -> None:
    url = ministack.url_for(place)
    with genlock.connect(url, create=True, agent_id="alice", session_id="s1") as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
        assert fleet.claim_task(task_id="A-001-x").success
    with genlock.connect(url, create=True) as fleet:
        assert fleet.get_task_state(task_id="A-001-x").generation == 1


def test_a_table_that_is_not_there_is_an_error_that_says_what_to_do(dynamodb: Server) -> None:
    with pytest.raises(StoreMissing, match=r"there is no table nowhere.*genlock db create"):
        open_store(ministack.url_of("nowhere", dynamodb.endpoint_url), create=True)


def test_a_table_of_somebody_else_is_refused(dynamodb: Server) -> None:
    client = ministack.client_of(dynamodb.endpoint_url)
    keyed: dict[str, Any] = {
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")
        ],
        "KeySchema": [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
    }
    client.create_table(TableName="foreign", BillingMode="PAY_PER_REQUEST", **keyed)
    with pytest.raises(StoreForeign, match="none of Genlock's"):
        open_store(ministack.url_of("foreign", dynamodb.endpoint_url), create=True)


def test_a_table_of_a_newer_format_is_refused(
    place: Path, dynamodb: Server, store: DynamoDBStore
) -> None:
    store._table.update(keys.META, "SET #f = :f", {":f": whole(2)})
    with pytest.raises(
        StoreForeign, match="format 2; this version of Genlock knows 1: install a newer one"
    ):
        opened(place)


def test_creating_a_table_again_changes_nothing(
    place: Path, dynamodb: Server, store: DynamoDBStore
) -> None:
    commit(store, make_change(make_key()))
    cursor = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
    create_table(ministack.url_for(place))
    assert list(store.read_events(EventQuery("acme", "apollo", after=cursor)).events) == []


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("dynamodb://", "names no table"),
        ("dynamodb://?region=eu-west-1", "names no table"),
        ("dynamodb://a/b", "names no table"),
        ("dynamodb://table#x", "names no table"),
        (
            "dynamodb://table?regoin=eu-west-1",
            "no setting 'regoin'; there are: region, endpoint_url, payloads",
        ),
        ("dynamodb://table?region", "table\\?region"),
        ("dynamodb://table?region=", "given twice, or has no value"),
        ("dynamodb://table?region=eu-west-1&region=eu-west-2", "given twice, or has no value"),
        (
            "dynamodb://table?region=eu-west-1&payloads=gs://bucket",
            "write payloads=s3://bucket/prefix or payloads=file:///folder",
        ),
        (
            "dynamodb://table",
            "region is not known: write dynamodb://table\\?region=…, or set AWS_REGION",
        ),
        (
            "dynamodb://table?region=atlantis",
            "AWS has no region 'atlantis': write one such as dynamodb://table\\?region=eu-west-1",
        ),
        ("dynamodb://table?region=eu-west-1&endpoint_url=nonsense", "nonsense"),
    ],
)
@pytest.mark.usefixtures("dynamodb")
def test_a_url_that_cannot_be_meant_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(BadArgument, match=complaint):
        open_store(url, create=True)


def test_without_the_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    for name in [name for name in sys.modules if name.startswith("genlock.stores.dynamodb")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        StoreError, match=r"boto3, is not installed: pip install 'genlock\[dynamodb\]'"
    ):
        open_store("dynamodb://table")


def test_without_credentials_the_error_says_so(
    dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setattr(connection, "_sessions", {})
    with pytest.raises(StoreUnavailable, match=r"no AWS credentials.*AWS_ACCESS_KEY_ID"):
        open_store(ministack.url_of("table", dynamodb.endpoint_url), create=True)


def test_a_profile_that_is_not_there_is_named(
    dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setattr(connection, "_sessions", {})
    with pytest.raises(BadArgument, match="nobody"):
        open_store(ministack.url_of("table", dynamodb.endpoint_url), create=True)


@pytest.mark.usefixtures("dynamodb")
def test_the_region_may_be_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    client = connection.make_client(settings_of("dynamodb://table"), connections=1)
    assert client.meta.region_name == "eu-west-3"
    client.close()


def test_an_endpoint_at_which_nobody_listens_is_unavailable_and_named(
    dynamodb: Server, impatient: None
) -> None:
    address = f"http://127.0.0.1:{ministack.free_port()}"
    with pytest.raises(
        StoreUnavailable,
        match=f"table table cannot be reached .*{address}.*check region, endpoint_url",
    ):
        open_store(ministack.url_of("table", address), create=True)
    with pytest.raises(StoreUnavailable, match=f"table table cannot be reached .*{address}"):
        create_table(ministack.url_of("table", address))


# Faults


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are given up after a moment."""
    monkeypatch.setattr(calls, "PATIENCE_SECONDS", 0.3)


class Narrow(ThreadingHTTPServer):
    """A table that has too little capacity, as long as `is_full`: it refuses every request.
    Otherwise the server's answers.

    Of the next answer only so many bytes arrive as `arrives` says, and then the connection breaks.
    """

    daemon_threads = True

    def __init__(self, server: Server) -> None:
        super().__init__(("127.0.0.1", 0), _Gate)
        self.behind = server.endpoint_url
        self.is_full = False
        self.refused = 0
        self.arrives: int | None = None


class _Gate(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Narrow

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.is_full:
            self.server.refused += 1
            fault = {
                "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
                "message": "too much",
            }
            self._answer(400, json.dumps(fault).encode())
            return
        try:
            with urlopen(Request(self.server.behind, body, dict(self.headers.items()))) as answer:
                self._answer(answer.status, answer.read())
        except HTTPError as refusal:
            self._answer(refusal.code, refusal.read())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        arrives, self.server.arrives = self.server.arrives, None
        self.close_connection = arrives is not None
        self.wfile.write(body[:arrives])

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def narrow(dynamodb: Server) -> Iterator[Narrow]:
    with Narrow(dynamodb) as write_lock:
        thread = threading.Thread(target=write_lock.serve_forever, args=(0.01,))
        thread.start()
        yield write_lock
        write_lock.shutdown()
        thread.join()


def test_a_table_that_is_throttled_for_good_is_unavailable_and_nothing_is_written(
    place: Path, narrow: Narrow, impatient: None
) -> None:
    ministack.url_for(place)
    url = ministack.url_for(place, f"http://127.0.0.1:{narrow.server_port}")
    store, change = DynamoDBStore(url), make_change(make_key())
    narrow.is_full = True
    acts: list[Callable[[], object]] = [
        lambda: store.load([make_key()]),
        lambda: store.commit([change]),
        lambda: store.find(Query("acme", "apollo")),
        lambda: store.read_events(FEED),
        lambda: DynamoDBStore(url),
    ]
    for number, act in enumerate(acts):
        narrow.refused = 0
        with pytest.raises(
            StoreUnavailable,
            match=r"cannot serve us now .*ProvisionedThroughputExceeded.*nothing was written",
        ):
            act()
        assert narrow.refused > 1, f"act {number} gave up at once"
    narrow.is_full = False
    assert store.load([make_key()]).records == {}
    commit(store, change)
    assert facts_of(read_feed(store)) == recorded_of([change])
    store.close()


@pytest.mark.parametrize("arrives", [0, 1, 20])
def test_an_answer_that_breaks_off_is_asked_for_again(
    place: Path, narrow: Narrow, arrives: int
) -> None:
    """The driver would take it for an answer that has nothing in it."""
    ministack.url_for(place)
    store = DynamoDBStore(ministack.url_for(place, f"http://127.0.0.1:{narrow.server_port}"))
    first = make_change(make_key())
    commit(store, first)
    late = make_change(make_key(), events=2)
    acts: list[tuple[Callable[[], Any], Any]] = [
        (lambda: list(store.load([make_key()]).records), [make_key()]),
        (lambda: list(store.load([make_key(), make_key("A-002")]).records), [make_key()]),
        (
            lambda: [found.key for found in store.find(Query("acme", "apollo")).records],
            [make_key()],
        ),
        (lambda: facts_of(read_feed(store)), recorded_of([first])),
        (
            lambda: facts_of(
                store.read_events(EventQuery("acme", "apollo", record=make_key())).events
            ),
            recorded_of([first]),
        ),
        (lambda: store.commit([late]), [Conflict()]),
        (lambda: len(commit(store, make_change(make_key(), first))), 1),
    ]
    for number, (act, expected) in enumerate(acts):
        narrow.arrives = arrives
        assert act() == expected, f"act {number}"
        assert narrow.arrives is None
    store.close()


def client_error(code: str, status: int = 400, **more: Any) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
            **more,
        },
        "Operation",
    )


@pytest.mark.parametrize(
    ("error", "trouble", "ours"),
    [
        (
            client_error("ProvisionedThroughputExceededException"),
            FailureKind.NOT_NOW,
            StoreUnavailable,
        ),
        (client_error("ThrottlingException"), FailureKind.NOT_NOW, StoreUnavailable),
        (client_error("TransactionInProgressException"), FailureKind.UNSURE, StoreUnavailable),
        (client_error("InternalServerError", 500), FailureKind.UNSURE, StoreUnavailable),
        (client_error("UnrecognizedClientException"), FailureKind.NEVER, StoreUnavailable),
        (client_error("AccessDeniedException"), FailureKind.NEVER, StoreUnavailable),
        (client_error("ResourceNotFoundException"), FailureKind.NEVER, StoreForeign),
        (client_error("ValidationException"), FailureKind.NEVER, StoreError),
        (EndpointConnectionError(endpoint_url="x"), FailureKind.NOT_NOW, StoreUnavailable),
        (ConnectionClosedError(endpoint_url="x"), FailureKind.UNSURE, StoreUnavailable),
        (NoCredentialsError(), FailureKind.NEVER, StoreUnavailable),
        (
            CredentialRetrievalError(provider="x", error_msg="x"),
            FailureKind.NEVER,
            StoreUnavailable,
        ),
        (UnauthorizedSSOTokenError(), FailureKind.NEVER, StoreUnavailable),
        (BotoCoreError(), FailureKind.UNSURE, StoreUnavailable),
    ],
    ids=lambda value: value.__class__.__name__,
)
def test_what_the_driver_says_is_told_apart(
    error: Exception, trouble: FailureKind, ours: type[StoreError]
) -> None:
    assert trouble_of(error) is trouble
    assert type(fault_of(error, "table")) is ours


@pytest.mark.parametrize(
    ("codes", "passing"),
    [
        (["TransactionConflict", "None"], True),
        (["None", "ThrottlingError"], True),
        (["None", "ProvisionedThroughputExceeded"], True),
        (["ConditionalCheckFailed", "None"], False),
        (["TransactionConflict", "ConditionalCheckFailed"], False),
        (["ValidationError", "None"], False),
    ],
)
def test_reasons_of_a_cancelled_transaction_are_read(codes: list[str], passing: bool) -> None:
    cancelled = cancelled_by(
        client_error(
            "TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes]
        )
    )
    assert isinstance(cancelled, Cancelled)
    assert cancelled.reasons == codes
    assert cancelled.is_passing is passing


def test_a_server_that_is_gone_is_an_error_and_when_it_is_back_work_goes_on(
    place: Path, dynamodb: Server, impatient: None
) -> None:
    with proxy.between(dynamodb.port) as gateway:
        store = behind(gateway, place)
        first, second = make_change(make_key()), make_change(make_key("A-002"))
        commit(store, first)
        gateway.close()
        for act in (lambda: store.load([make_key()]), lambda: store.commit([second])):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                act()
        gateway.admit()
        commit(store, second)
        assert facts_of(read_feed(store)) == recorded_of([first, second])
        store.close()


def test_a_commit_whose_answer_is_lost_is_asked_for_again_and_done_once(
    place: Path, dynamodb: Server, other: DynamoDBStore
) -> None:
    with proxy.between(dynamodb.port) as gateway:
        store = behind(gateway, place)
        first = make_change(make_key(), events=2)
        second = make_change(make_key(), first)
        for change in (first, second):
            gateway.cut_at_the_answer_to(b"TransactWriteItems")
            commit(store, change)
            assert gateway.swallowed.is_set()
        assert facts_of(read_feed(other)) == recorded_of([first, second])
        store.close()


def test_a_commit_in_which_the_server_falls_silent_is_of_unknown_outcome(
    tmp_path: Path, dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_SECONDS", 1.0)
    with ministack.running(tmp_path) as server:
        store = DynamoDBStore(ministack.url_for(tmp_path / "own", server.endpoint_url))
        change = make_change(make_key())
        write, process = store._writer._write, server.process

        def silenced(*given: Any) -> Any:
            process.send_signal(signal.SIGSTOP)
            return write(*given)

        monkeypatch.setattr(store._writer, "_write", silenced)
        with pytest.raises(OutcomeUnknown):
            store.commit([change])
        process.send_signal(signal.SIGCONT)
        found = store.load([change.key]).records
        assert [record.digest for record in found.values()] in ([], [change.digest])
        store.close()


# Positions


def test_where_no_more_threads_can_be_started_each_change_is_written_once(
    store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_one(thread: threading.Thread) -> None:
        if thread.name.startswith("genlock-dynamodb"):
            if started:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    changes = [make_change(make_key(f"A-{number:03}")) for number in range(THREADS)]
    assert [type(answer) for answer in store.commit(changes)] == [Committed] * THREADS
    assert sorted(facts_of(read_feed(store))) == sorted(recorded_of(changes))
    assert len(started) == 1


def test_a_change_that_conflicts_closes_its_positions_at_once(
    store: DynamoDBStore, other: DynamoDBStore
) -> None:
    first = make_change(make_key())
    commit(store, first)
    assert isinstance(store.commit([make_change(make_key(), mark="late", events=3)])[0], Conflict)
    later = make_change(make_key(), first)
    commit(store, later)
    began = time.monotonic()
    assert facts_of(read_feed(other)) == recorded_of([first, later])
    assert time.monotonic() - began < GAP_SECONDS / 2
    assert voids_of(store) == 3


def test_of_many_changes_several_share_a_transaction_and_stand_in_order(
    store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = transactions_of(store, monkeypatch)
    changes = [
        make_change(make_key(f"A-{number:03}"), events=1 + number % 3) for number in range(200)
    ]
    commit(store, *changes)
    assert len(asked) < 50
    assert max(asked) <= ACTIONS
    assert [facts.key for facts in read_feed(store)] == [
        change.key for change in changes for _ in change.events
    ]
    commit(store, *[make_change(make_key(f"B-{number}")) for number in range(THREADS)])
    assert asked[-THREADS:] == [3] * THREADS  # as many as can be under way: each for itself


def test_one_that_comes_too_late_takes_none_of_its_transaction_with_it(
    store: DynamoDBStore, other: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [make_change(make_key(f"A-{number:03}")) for number in range(100)]
    commit(store, *first)
    commit(other, make_change(first[7].key, first[7], mark="theirs"))
    asked = transactions_of(store, monkeypatch)
    answers = store.commit([make_change(change.key, change) for change in first])
    assert [number for number, answer in enumerate(answers) if isinstance(answer, Conflict)] == [7]
    assert [read_record(store, change.key)[-1].version for change in first] == [2] * 100
    assert asked.count(3) > 1  # those that were with it, one by one


@pytest.mark.parametrize("in_order", [True, False])
def test_a_commit_of_which_a_transaction_fails_leaves_a_beginning_if_that_is_wanted(
    in_order: bool, store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_order:
        store.write_in_order()
    transact = store._table.calls.transact
    changes = [make_change(make_key(f"A-{number:03}")) for number in range(200)]

    def fail_once(actions: Sequence[dict[str, Any]], *, insist: bool = True) -> None:
        if any(b"A-050" in str(action).encode() for action in actions):
            raise StoreUnavailable("the table is away; nothing was written")
        transact(actions, insist=insist)

    with monkeypatch.context() as patched:
        patched.setattr(store._table.calls, "transact", fail_once)
        with pytest.raises(OutcomeUnknown, match="a part of the commit was done"):
            store.commit(changes)
    there = [facts.key for facts in read_feed(store)]
    assert 0 < len(there) < 200
    assert (there == [change.key for change in changes[: len(there)]]) == in_order
    left = [change for change in changes if change.key not in set(there)]
    commit(store, *left)
    whole = [facts.key for facts in read_feed(store)]
    assert (whole == [change.key for change in changes]) == in_order


def test_changes_that_are_large_together_are_in_several_transactions() -> None:
    plans = [
        Plan(number, make_change(make_key(str(number)), body=b"x" * 200_000), [], [])
        for number in range(64)
    ]
    assert [len(group) for group in grouped(plans, 4)] == [4] * 16
    assert [
        len(group) for group in grouped([plan._replace(added=["a"] * 50) for plan in plans], 4)
    ] == [1] * 64
    assert [len(group) for group in grouped(plans[:2], 1)] == [2]
    assert list(grouped([], 4)) == []


def transactions_of(store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many actions each transaction of the store has, from now on."""
    asked: list[int] = []
    transact = store._table.calls.transact

    def count(actions: Sequence[dict[str, Any]], *, insist: bool = True) -> None:
        asked.append(len(actions))
        transact(actions, insist=insist)

    monkeypatch.setattr(store._table.calls, "transact", count)
    return asked


def test_what_is_known_to_conflict_takes_no_positions(store: DynamoDBStore) -> None:
    commit(store, make_change(make_key()))
    stale = make_change(make_key(), make_change(make_key(), mark="another history"))
    assert isinstance(store.commit([stale])[0], Conflict)
    assert voids_of(store) == 0


def test_a_reader_closes_the_positions_of_a_writer_who_never_comes(
    store: DynamoDBStore, other: DynamoDBStore
) -> None:
    changes = [make_change(make_key("A-001")), make_change(make_key("A-002"))]
    commit(store, changes[0])
    take_positions(store, 2)
    commit(store, changes[1])
    began = time.monotonic()
    assert facts_of(read_feed(other)) == recorded_of(changes)
    assert time.monotonic() - began >= GAP_SECONDS
    began = time.monotonic()
    assert facts_of(read_feed(store)) == recorded_of(changes)
    assert time.monotonic() - began < GAP_SECONDS
    assert voids_of(store) == 2


def test_a_writer_whose_positions_were_closed_takes_new_ones(
    store: DynamoDBStore, other: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = make_change(make_key("late"), events=2), make_change(make_key("early"))
    reads: list[list[Any]] = []

    def meanwhile(plans: object) -> None:
        if not reads:
            commit(other, early)
            reads.append(read_feed(other))

    monkeypatch.setattr(store._writer, "_add_early", meanwhile)
    (position,) = commit(store, late)
    assert facts_of(reads[0]) == recorded_of([early])
    events = read_feed(other)
    assert facts_of(events) == recorded_of([early, late])
    assert events[-1].position == position
    assert read_record(store, late.key) == events[1:]


@pytest.mark.parametrize("step", ["_take_positions", "_add_early"])
def test_a_commit_that_fails_after_a_part_of_it_was_done_is_of_unknown_outcome(
    store: DynamoDBStore, other: DynamoDBStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A reader closes the position of one change; when another is to be taken, the table has too
    much to do."""
    done, late = make_change(make_key("A-001")), make_change(make_key("A-002"))
    take, then = store._writer._take_positions, getattr(store._writer, step)
    rounds: list[dict[int, int]] = []

    def take_and_lose_one(plans: Any) -> dict[int, int]:
        rounds.append(take(plans))
        if len(rounds) == 1:
            other._gaps.bury(("acme", "apollo"), [rounds[0][1]])
        return rounds[-1]

    def fail_the_second_time(plans: Any) -> Any:
        if len(rounds) == (1 if step == "_take_positions" else 2):
            raise StoreUnavailable("the table cannot serve us now; nothing was written")
        return (take_and_lose_one if step == "_take_positions" else then)(plans)

    monkeypatch.setattr(store._writer, "_take_positions", take_and_lose_one)
    monkeypatch.setattr(store._writer, step, fail_the_second_time)
    with pytest.raises(
        OutcomeUnknown,
        match=r"a part of the commit was done, and then: the table cannot serve us now$",
    ):
        store.commit([done, late])
    assert list(other.load([done.key, late.key]).records) == [done.key]


def test_an_event_never_replaces_a_tombstone(store: DynamoDBStore) -> None:
    (plan,) = store._writer._plan([make_change(make_key())])
    last = store._writer._take_positions([plan])[0]
    store._gaps.bury(("acme", "apollo"), [last])
    assert store._writer._write(plan, last) is Result.LATE
    assert store.load([make_key()]).records == {}
    assert read_feed(store) == []


def test_the_tail_stands_before_what_is_still_to_be_written(
    store: DynamoDBStore, other: DynamoDBStore
) -> None:
    commit(store, make_change(make_key("A-001")))
    (plan,) = store._writer._plan([make_change(make_key("A-002"))])
    last = store._writer._take_positions([plan])[0]
    tail = other.read_events(EventQuery("acme", "apollo", tail=True)).cursor
    assert isinstance(store._writer._write(plan, last), Committed)
    assert [
        event.key.id for event in other.read_events(EventQuery("acme", "apollo", after=tail)).events
    ] == ["A-002"]


def test_positions_at_which_nothing_stands_wake_nobody(store: DynamoDBStore) -> None:
    commit(store, make_change(make_key()))
    tail = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
    take_positions(store, 3)
    began = time.monotonic()
    store.wait([("acme", "apollo")], [tail], 0.3)
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("begins", ["a reader", "a reader of one record", "a writer"])
def test_a_table_that_was_restored_under_our_hands_is_not_taken_for_what_it_was(
    begins: str, store: DynamoDBStore, other: DynamoDBStore
) -> None:
    def everything(fields: str) -> list[Item]:
        return list(store._table.scan(fields))

    commit(store, make_change(make_key("A-001")))
    backup = everything(f"{INDEX_FIELDS}, #b, #k, #i, #n, #p, #h, #so, #pt, #pu, #bi, #e, #f")
    for number in range(2, 9):
        commit(store, make_change(make_key(f"A-{number:03}")))
    assert len(read_feed(store)) == 8
    store._table.write_many(
        backup, [at for at in map(at_of, everything("#pk, #sk")) if at not in map(at_of, backup)]
    )
    if begins == "a writer":
        commit(store, make_change(make_key("B-001")))
    elif begins == "a reader of one record":
        store.read_events(EventQuery("acme", "apollo", record=make_key("A-001")))
    cursor = store.read_events(FEED).cursor
    assert (
        cursor
        == store.read_events(replace(FEED, tail=True)).cursor
        == other.read_events(FEED).cursor
    )
    commit(other, *(make_change(make_key(f"C-{number:03}")) for number in range(9)))
    assert len(store.read_events(replace(FEED, after=cursor)).events) == 9


def test_how_far_a_feed_is_solid_is_noted_now_and_then(
    store: DynamoDBStore, other: DynamoDBStore
) -> None:
    commit(store, *(make_change(make_key(f"A-{number:03}")) for number in range(300)))
    read_feed(store)
    other._feeds.state("acme", "apollo")
    assert other._gaps.solid(("acme", "apollo")) == 300


def test_a_reader_who_saw_the_feed_before_a_purge_does_not_wait_for_what_was_purged(
    store: DynamoDBStore, other: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_change(make_key("A-001"), events=3), make_change(make_key("A-002"))
    commit(store, first)
    commit(store, second)
    state = other._feeds.state

    def state_then_purge(tenant: str, project: str) -> Any:
        seen = state(tenant, project)
        store.purge(first.key, 4, b"base")
        return seen

    monkeypatch.setattr(other._feeds, "state", state_then_purge)
    began = time.monotonic()
    assert facts_of(other.read_events(FEED).events) == recorded_of([second])
    assert time.monotonic() - began < GAP_SECONDS
    assert voids_of(store) == 0


def test_a_reader_whose_next_events_are_purged_while_he_reads_is_told(
    store: DynamoDBStore, other: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge comes after the look at the cursor and before the look at the events."""
    first, second = make_change(make_key("A-001"), events=3), make_change(make_key("A-002"))
    commit(store, first)
    commit(store, second)
    begun = other.read_events(replace(FEED, limit=1)).cursor
    behind = other.read_events(replace(FEED, limit=3)).cursor
    run = other._feeds._run

    def purge_then_run(query: EventQuery, start: int) -> Any:
        store.purge(first.key, 4, b"base")
        return run(query, start)

    monkeypatch.setattr(other._feeds, "_run", purge_then_run)
    with pytest.raises(CursorLost, match="have been purged since"):
        other.read_events(replace(FEED, after=begun))
    assert facts_of(other.read_events(replace(FEED, after=behind)).events) == recorded_of([second])


def test_a_reader_from_the_start_goes_on_after_a_purge_in_his_first_page(
    store: DynamoDBStore, other: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third, fourth, fifth = (
        make_change(make_key(f"A-00{number}"), events=2) for number in range(1, 6)
    )
    commit(store, first, second, third, fourth, fifth)
    run = other._feeds._run

    def purge_then_run(query: EventQuery, start: int) -> Any:
        for change in (second, fourth):
            store.purge(change.key, 3, b"base")
        return run(query, start)

    monkeypatch.setattr(other._feeds, "_run", purge_then_run)
    assert facts_of(read_feed(other, limit=3)) == recorded_of([first, third, fifth])


# Limits


def test_who_waits_on_more_than_a_transaction_holds_is_found_by_each(store: DynamoDBStore) -> None:
    names = [f"D-{number:03}" for number in range(3 * ACTIONS)]
    change = make_change(make_key(), index=Index(waits_on=tuple(names)))
    commit(store, change)
    assert all(
        keys_of(store.find(Query("acme", "apollo", waits_on=(name,)))) == [make_key()]
        for name in names[::37] + names[-1:]
    )
    left = make_change(make_key(), change, index=Index(waits_on=(names[7],)))
    commit(store, left)
    assert keys_of(store.find(Query("acme", "apollo", waits_on=tuple(names)))) == [make_key()]
    assert (
        keys_of(
            store.find(
                Query("acme", "apollo", waits_on=tuple(name for name in names if name != names[7]))
            )
        )
        == []
    )
    (stored,) = store.load([make_key()], with_index=True).records.values()
    assert stored.index == left.index


@pytest.mark.parametrize(
    "change",
    [
        make_change(make_key("x" * 1100)),
        make_change(make_key(tenant="t" * 1100, project="p" * 1100)),
        make_change(make_key(), index=Index(pool="p", order="o" * 1100)),
        make_change(make_key(), index=Index(session="s" * 2100)),
        make_change(make_key(), index=Index(waits_on=("d" * 2100,))),
        make_change(make_key(), index=Index(state="s" * 200_000)),
        make_change(make_key(), events=[bytes(250_000)] * 12),
    ],
    ids=["id", "place", "order", "session", "dependency", "state", "events"],
)
def test_what_no_item_or_transaction_holds_is_refused_before_anything_is_written(
    store: DynamoDBStore, change: Any
) -> None:
    with pytest.raises(OverLimit):
        store.commit([make_change(make_key("first")), change])
    assert read_feed(store) == []
    assert store._feeds.state("acme", "apollo").head == 0


def test_a_pool_s_name_may_be_long(store: DynamoDBStore) -> None:
    pools = ["p" * 99, "p" * 100, "p" * 101, "p" * 5000, "p" * 5001, "\N{OCTOPUS}" * 99]
    for number, pool in enumerate(pools):
        commit(
            store,
            *(
                make_change(
                    make_key(f"{number}-{at}"), index=Index(pool=pool, order=f"{number}{at}")
                )
                for at in range(3)
            ),
        )
    for number, pool in enumerate(pools):
        found = store.find(Query("acme", "apollo", pool=pool)).records
        assert [(record.key.id, record.pool) for record in found] == [
            (f"{number}-{at}", pool) for at in range(3)
        ]
    assert [record.pool for record in store.find(Query("acme", "apollo", heads=1)).records] == pools
    assert store.find(Query("acme", "apollo"), count_by="pool").counts == dict.fromkeys(pools, 3)


def test_what_is_no_text_is_refused(store: DynamoDBStore) -> None:
    acts: list[Callable[[], object]] = [
        lambda: store.commit(
            [make_change(make_key("\udc80")._replace(kind="task"), events=[b"x"])]
        ),
        lambda: store.commit([make_change(make_key(), index=Index(pool="\udc80"))]),
        lambda: store.load([make_key("\udc80")]),
        lambda: store.find(Query("acme", "apollo", pool="\udc80")),
        lambda: store.read_events(EventQuery("acme", "\udc80")),
    ]
    for act in acts:
        with pytest.raises(BadArgument):
            act()


def test_without_a_place_for_them_payloads_are_refused_and_the_task_stays_as_it_was(
    place: Path,
) -> None:
    with genlock.connect(
        ministack.url_for(place), create=True, agent_id="alice", session_id="s1"
    ) as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
        fleet.claim_task(task_id="A-001-x")
        with pytest.raises(OverLimit, match="payloads=s3://bucket/prefix"):
            fleet.submit_result(task_id="A-001-x", generation=1, result_data="x" * 40_000)
        assert fleet.submit_result(
            task_id="A-001-x", generation=1, result_data="x" * 20_000
        ).accepted


def test_a_large_result_is_kept_in_the_bucket_that_the_url_names(place: Path) -> None:
    url = ministack.url_for(place, payloads=ministack.bucket_for(place.parent))
    with genlock.connect(url, create=True, agent_id="alice", session_id="s1") as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
        fleet.claim_task(task_id="A-001-x")
        assert fleet.submit_result(
            task_id="A-001-x", generation=1, result_data="x" * 40_000
        ).accepted
    with genlock.connect(url, create=True) as fleet:
        assert fleet.read_result(task_id="A-001-x") == "x" * 40_000


# The rest


def test_a_purge_of_more_than_a_transaction_holds_drops_it_all(store: DynamoDBStore) -> None:
    change = make_change(make_key(), events=64)
    commit(store, change)
    for _ in range(2):
        change = make_change(make_key(), change, events=64)
        commit(store, change)
    store.purge(make_key(), 190, b"base")
    page = store.read_events(EventQuery("acme", "apollo", record=make_key()))
    assert ([event.version for event in page.events], page.base) == ([190, 191, 192], b"base")
    assert [event.version for event in read_feed(store)] == [190, 191, 192]


def test_an_audit_names_what_belongs_nowhere(store: DynamoDBStore) -> None:
    commit(store, make_change(make_key()))
    store._table.put(key_item(keys.record_at(make_key(project="nowhere"))))
    store._table.put(key_item(keys.At("stray", "item")))
    assert list(store.audit().faults) == [
        "a record belongs to acme/nowhere, which is not listed",
        "the item 'stray' 'item' is not Genlock's",
    ]


def operations_of(store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the store asks for from now on. Whatever lists many is told how many are wanted at a
    time."""
    asked: list[str] = []
    call = store._table.calls.call

    def note(operation: str, **parameters: Any) -> dict[str, Any]:
        asked.append(operation)
        assert operation != "scan" or parameters["Limit"]
        return call(operation, **parameters)

    monkeypatch.setattr(store._table.calls, "call", note)
    return asked


def test_many_are_loaded_with_their_index_fields_in_few_requests(
    store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [
        make_change(make_key(f"A-{number}"), index=Index(waits_on=(f"B-{number}", "C")))
        for number in range(40)
    ]
    commit(store, *changes)
    store._table.write_many(deletes=[keys.wait_at(changes[3].key, "C")])
    asked = operations_of(store, monkeypatch)
    loaded = store.load([change.key for change in changes], with_index=True).records
    found = [stored.index.waits_on for stored in loaded.values() if stored.index is not None]
    assert found == [(f"B-{number}", "C") if number != 3 else ("B-3",) for number in range(40)]
    assert len(asked) == 2


def test_whoever_asks_an_audit_for_places_only_does_not_pay_for_a_look_at_everything(
    store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, make_change(make_key()))
    asked = operations_of(store, monkeypatch)
    audit = store.audit()
    assert list(audit.places) == [("acme", "apollo")]
    assert "scan" not in asked
    assert (list(audit.faults), len(audit.faults), audit.faults[:1]) == ([], 0, [])
    assert asked.count("scan") == 1


def test_a_pool_of_many_does_not_make_the_heads_dearer(
    store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def index(pool: str, number: int) -> Index:
        return Index(pool=pool, order=f"{number:04}")

    commit(
        store,
        *(
            make_change(make_key(f"p-{number:03}"), index=index("p", number))
            for number in range(250)
        ),
    )
    commit(
        store,
        *(make_change(make_key(f"q-{number:03}"), index=index("q", number)) for number in range(2)),
    )
    asked: list[str] = []
    call = store._table.calls.call

    def counted(operation: str, **given: Any) -> dict[str, Any]:
        asked.append(operation)
        return call(operation, **given)

    monkeypatch.setattr(store._table.calls, "call", counted)
    heads = store.find(Query("acme", "apollo", heads=2))
    assert [record.key.id for record in heads.records] == ["p-000", "q-000", "p-001", "q-001"]
    assert len(asked) <= 6


def test_a_forked_child_is_told_to_open_anew(
    store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(StoreError, match="does not survive fork"):
            store.find(Query("acme"))


def test_the_store_is_shared_and_has_the_servers_clock(store: DynamoDBStore) -> None:
    assert store.limits.shared
    assert store.limits.durable
    assert store.limits.server_clock


NEEDED = {
    "batch_get_item": "BatchGetItem",
    "batch_write_item": "BatchWriteItem",
    "put_item": "PutItem",
    "query": "Query",
    "transact_get_items": "GetItem",
    "update_item": "UpdateItem",
}
"""Which permission each call needs; transactions need those of their actions."""


def test_the_policy_in_the_documents_is_what_a_coordinator_needs(
    store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "dynamodb.md").read_text(
        encoding="utf-8"
    )
    policy = json.loads(page.partition("```json\n")[2].partition("```")[0])
    asked: set[str] = set()
    once = store._table.calls._once

    def noted(operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        asked.update(
            f"{kind}Item" for action in parameters.get("TransactItems", ()) for kind in action
        )
        asked.update([NEEDED[operation]] if operation in NEEDED else [])
        assert operation in NEEDED or operation == "transact_write_items", operation
        return once(operation, parameters)

    monkeypatch.setattr(store._table.calls, "_once", noted)
    change = make_change(make_key(), index=Index(waits_on=("d",)))
    later = make_change(make_key(), change)
    assert isinstance(store.commit([change, make_change(make_key("A-002"))])[0], Committed)
    assert isinstance(store.commit([make_change(make_key())])[0], Conflict)
    commit(store, later)
    store.load([make_key(), make_key("A-002")])
    store.find(Query("acme"))
    store.wait([("acme", "apollo")], [store.read_events(FEED).cursor], 0)
    store.purge(make_key(), 2, b"base")
    store.set_epoch(1)
    assert {f"dynamodb:{name}" for name in asked} == set(policy["Statement"][0]["Action"])
