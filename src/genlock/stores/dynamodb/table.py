"""The table: how it is created and recognised, and the requests to it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from genlock.errors import StoreForeign, StoreMissing, StoreUnavailable
from genlock.retry import Backoff, Retry
from genlock.stores.dynamodb.calls import (
    DRIVER_ERRORS,
    Calls,
    Cancelled,
    Pauses,
    TooLarge,
    code_of,
    fault_of,
)
from genlock.stores.dynamodb.connection import make_client, settings_of
from genlock.stores.dynamodb.keys import (
    META,
    At,
    Item,
    Span,
    at_of,
    binary,
    key_item,
    names_in,
    whole,
)

FORMAT = 1
READ_AT_ONCE = 100
WRITE_AT_ONCE = 25
"""Items in one BatchGetItem or TransactGetItems, and in one BatchWriteItem."""
LISTED_AT_ONCE = 2000
"""Keys on a page: no more than the 1 MB that a page holds anyway. Without this limit, some servers
fetch all remaining keys for every page."""

READY, DUE, SESSION, PARENT = "ready", "due", "session", "parent"
INDEXES = {READY: ("pk", "rs"), DUE: ("pk", "ds"), SESSION: ("sp", "ss"), PARENT: ("pp", "sk")}
"""The global indexes: hash and sort key. They contain keys only; records are read from the table,
so that they are current."""

_ACTIVE_SECONDS = 120.0
_CREATION = Backoff(first=0.05, longest=2.0, jitter=0)
_KEY_TYPES = (("HASH", 0), ("RANGE", 1))

A = TypeVar("A")
B = TypeVar("B")


def create_table(url: str) -> None:
    """Creates the table of this URL with its indexes, billed per request, and writes its birth into
    it. An existing table stays unchanged."""
    settings = settings_of(url)
    client = make_client(settings, connections=1)
    try:
        _make(client, settings.table)
        _await_active(client, settings.table)
        _give_birth(client, settings.table)
    except DRIVER_ERRORS as error:
        raise fault_of(error, settings.table) from error
    finally:
        client.close()


def _make(client: Any, table: str) -> None:
    names = ("pk", "sk", *{name for pair in INDEXES.values() for name in pair} - {"pk", "sk"})
    try:
        client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
            KeySchema=_schema(("pk", "sk")),
            GlobalSecondaryIndexes=[
                {
                    "IndexName": name,
                    "KeySchema": _schema(pair),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
                for name, pair in INDEXES.items()
            ],
        )
    except ClientError as error:
        if code_of(error) != "ResourceInUseException":
            raise


def _schema(pair: tuple[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": pair[at], "KeyType": kind} for kind, at in _KEY_TYPES]


def _await_active(client: Any, table: str) -> None:
    retry = Retry(_CREATION, time.monotonic() + _ACTIVE_SECONDS)
    while client.describe_table(TableName=table)["Table"]["TableStatus"] != "ACTIVE":
        pause = retry.failed(time.monotonic())
        if pause is None:
            raise StoreUnavailable(
                f"table {table} was asked for, and is not ready after {_ACTIVE_SECONDS:.0f} s"
            )
        time.sleep(pause)


def _give_birth(client: Any, table: str) -> None:
    condition = "attribute_not_exists(#pk)"
    meta = key_item(META) | {
        "bi": binary(secrets.token_bytes(8)),
        "e": whole(0),
        "f": whole(FORMAT),
    }
    try:
        client.put_item(
            TableName=table,
            Item=meta,
            ConditionExpression=condition,
            ExpressionAttributeNames=names_in(condition),
        )
    except ClientError as error:
        if code_of(error) != "ConditionalCheckFailedException":
            raise


class Table:
    """The table of one store. All reads are consistent, except by an index."""

    def __init__(self, calls: Calls, threads: int) -> None:
        self.calls = calls
        self.name = calls.table
        self.ways = threads
        """The number of concurrent requests."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="genlock-dynamodb")

    def check(self) -> None:
        """Raises `StoreMissing` or `StoreForeign` if the table does not exist, or is not ours."""
        try:
            meta = self.get_many([META]).get(META)
        except StoreForeign as error:
            raise StoreMissing(str(error)) from error
        if meta is None:
            raise StoreForeign(
                f"{self.name} is a table, but none of Genlock's: make one with `genlock db create "
                "dynamodb://…`"
            )
        form = int(meta["f"]["N"])
        if form > FORMAT:
            raise StoreForeign(
                f"table {self.name} is of format {form}; this version of Genlock knows {FORMAT}: "
                "install a newer one"
            )

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()

    def at_once(self, act: Callable[[A], B], each: Sequence[A]) -> list[B]:
        """Calls `act` for each in several threads. Returns the answers in order. Must not be called
        from inside another such call."""
        if len(each) < 2:
            return [act(one) for one in each]
        return [answer() for answer in [self._started(act, one) for one in each]]

    def _started(self, act: Callable[[A], B], one: A) -> Callable[[], B]:
        answer: Future[B] = Future()
        try:
            self._threads.submit(_answer, answer, act, one)
        except RuntimeError:
            # The program is exiting, and the pool accepts no work: then the caller does the work
            # itself. Or no thread can be started: then the work is queued, and must not be done
            # twice.
            if answer.cancel():
                return partial(act, one)
        return answer.result

    def get_many(self, wanted: Iterable[At], fields: str | None = None) -> dict[At, Item]:
        """Returns those of the items that exist."""
        asked = list(dict.fromkeys(wanted))
        pieces = [asked[at : at + READ_AT_ONCE] for at in range(0, len(asked), READ_AT_ONCE)]
        found: dict[At, Item] = {}
        for part in self.at_once(lambda piece: self._get(piece, fields), pieces):
            found |= part
        return found

    def _get(self, piece: Sequence[At], fields: str | None) -> dict[At, Item]:
        request: dict[str, Any] = {"Keys": [key_item(at) for at in piece], "ConsistentRead": True}
        if fields is not None:
            request |= {
                "ProjectionExpression": fields,
                "ExpressionAttributeNames": names_in(fields),
            }
        found: dict[At, Item] = {}
        pauses = Pauses(self.calls.stop)
        while True:
            answer = self.calls.call("batch_get_item", RequestItems={self.name: request})
            found |= {at_of(item): item for item in answer["Responses"].get(self.name, ())}
            left = answer.get("UnprocessedKeys", {}).get(self.name)
            if not left:
                return found
            request["Keys"] = left["Keys"]
            if not pauses.pause():
                raise StoreUnavailable(
                    f"table {self.name} left {len(left['Keys'])} items unread: it has too much to "
                    "do"
                )

    def get_together(self, wanted: Sequence[At]) -> dict[At, Item] | None:
        """Returns those of the items that exist, all from one instant; None if a write intervenes,
        or if they are too large together."""
        gets = [{"Get": {"TableName": self.name, "Key": key_item(at)}} for at in wanted]
        try:
            answer = self.calls.call("transact_get_items", TransactItems=gets)
        except (Cancelled, TooLarge):
            return None
        found = [response["Item"] for response in answer["Responses"] if response.get("Item")]
        return {at_of(item): item for item in found}

    def query(
        self,
        hash: str,
        span: Span,
        *,
        index: str | None = None,
        forward: bool = True,
        limit: int | None = None,
        fields: str | None = None,
    ) -> Iterator[Item]:
        """Yields the items of one collection within a range, in order. `limit` is how many are
        fetched at a time."""
        names = INDEXES[index] if index else ("pk", "sk")
        condition = f"#{names[0]} = :hash AND #{names[1]} BETWEEN :low AND :high"
        request: dict[str, Any] = {
            "TableName": self.name,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names_in(condition, fields or ""),
            "ExpressionAttributeValues": {
                ":hash": {"S": hash},
                ":low": {"S": span.low},
                ":high": {"S": span.high},
            },
            "ScanIndexForward": forward,
        }
        request |= {"IndexName": index} if index else {"ConsistentRead": True}
        request |= {"ProjectionExpression": fields} if fields else {}
        request |= {"Limit": limit} if limit else {}
        return self._pages("query", request)

    def scan(self, fields: str) -> Iterator[Item]:
        """Yields all items of the table."""
        request = {
            "TableName": self.name,
            "ProjectionExpression": fields,
            "ExpressionAttributeNames": names_in(fields),
            "ConsistentRead": True,
            "Limit": LISTED_AT_ONCE,
        }
        return self._pages("scan", request)

    def _pages(self, operation: str, request: dict[str, Any]) -> Iterator[Item]:
        while True:
            answer = self.calls.call(operation, **request)
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def update(
        self, at: At, expression: str, values: dict[str, Any], condition: str | None = None
    ) -> Item:
        """Changes or creates one item, and returns its changed attributes. May be executed twice if
        an answer is lost."""
        attributes: Item = self.calls.call(
            "update_item", **self._update(at, expression, values, condition)
        ).get("Attributes", {})
        return attributes

    def update_once(self, at: At, expression: str, values: dict[str, Any], condition: str) -> None:
        """The same for a change that must not be executed twice."""
        self.calls.call_once("update_item", **self._update(at, expression, values, condition))

    def _update(
        self, at: At, expression: str, values: dict[str, Any], condition: str | None
    ) -> dict[str, Any]:
        return {
            **self.updating(at, expression, values, condition)["Update"],
            "ReturnValues": "UPDATED_NEW",
        }

    def put(self, item: Item, condition: str | None = None) -> None:
        """Writes one item. Raises `ConditionFailed` if the condition does not hold."""
        self.calls.call("put_item", **self.putting(item, condition)["Put"])

    def write_many(self, puts: Iterable[Item] = (), deletes: Iterable[At] = ()) -> None:
        """Writes and deletes items, each by itself and without conditions."""
        requests: list[dict[str, Any]] = [{"PutRequest": {"Item": item}} for item in puts]
        requests += [{"DeleteRequest": {"Key": key_item(at)}} for at in deletes]
        left = iter(requests)
        while piece := list(islice(left, WRITE_AT_ONCE)):
            pauses = Pauses(self.calls.stop)
            while piece:
                answer = self.calls.call("batch_write_item", RequestItems={self.name: piece})
                piece = answer.get("UnprocessedItems", {}).get(self.name, [])
                if piece and not pauses.pause():
                    raise StoreUnavailable(
                        f"table {self.name} left {len(piece)} items unwritten: it has too much to "
                        "do"
                    )

    # Actions of a transaction

    def putting(
        self, item: Item, condition: str | None = None, values: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Writes an item, or replaces it."""
        return {
            "Put": {"TableName": self.name, "Item": item}
            | _conditional(condition, values, condition or "")
        }

    def deleting(self, at: At) -> dict[str, Any]:
        """Deletes an item if it exists."""
        return {"Delete": {"TableName": self.name, "Key": key_item(at)}}

    def updating(
        self, at: At, expression: str, values: dict[str, Any], condition: str | None = None
    ) -> dict[str, Any]:
        """Changes or creates an item."""
        request = {"TableName": self.name, "Key": key_item(at), "UpdateExpression": expression}
        return {
            "Update": request | _conditional(condition, values, f"{expression} {condition or ''}")
        }


def _answer(answer: Future[B], act: Callable[[A], B], one: A) -> None:
    """Runs one call, in a thread of the pool or of the caller."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(act(one))
    except BaseException as error:  # raised again in the caller  # noqa: BLE001
        answer.set_exception(error)


def _conditional(
    condition: str | None, values: dict[str, Any] | None, expressions: str
) -> dict[str, Any]:
    parts: dict[str, Any] = {"ConditionExpression": condition} if condition else {}
    parts |= {"ExpressionAttributeValues": values} if values else {}
    return parts | (
        {"ExpressionAttributeNames": names_in(expressions)} if "#" in expressions else {}
    )
