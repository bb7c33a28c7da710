"""Items as JSON by a way of our own: what is asked and answered is what the driver would have made
of it."""

from __future__ import annotations

from typing import Any

import boto3
import msgspec
import pytest

from genlock.stores.dynamodb import connection
from genlock.stores.dynamodb.connection import make_client, settings_of
from tests.servers import ministack
from tests.servers.ministack import Server

TABLE = "wire-table"
KEY = {"pk": {"S": "feed\tacme"}, "sk": {"S": "=ä 🐙\u2028"}}
ITEM: dict[str, Any] = KEY | {
    "v": {"N": "12"},
    "b": {"B": bytes(range(256))},
    "none": {"B": b""},
    "wa": {"L": [{"S": "a"}, {"S": 'b"\\'}]},
}


@pytest.fixture(scope="module")
def clients(dynamodb: Server) -> tuple[Any, Any]:
    """Ours, and the driver's own."""
    ours = make_client(settings_of(ministack.url_of(TABLE, dynamodb.endpoint_url)), connections=1)
    ours.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")
        ],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
    )
    return ours, boto3.client(
        "dynamodb", region_name=ministack.REGION, endpoint_url=dynamodb.endpoint_url
    )


QUERY: dict[str, Any] = {
    "TableName": TABLE,
    "KeyConditionExpression": "pk = :p",
    "ExpressionAttributeValues": {":p": KEY["pk"]},
}
WRITINGS: list[tuple[str, dict[str, Any]]] = [
    ("put_item", {"TableName": TABLE, "Item": ITEM}),
    ("batch_write_item", {"RequestItems": {TABLE: [{"PutRequest": {"Item": ITEM}}]}}),
    (
        "transact_write_items",
        {
            "TransactItems": [{"Put": {"TableName": TABLE, "Item": ITEM}}],
            "ClientRequestToken": "x" * 32,
        },
    ),
]
READINGS: list[tuple[str, dict[str, Any]]] = [
    ("query", QUERY),
    ("query", QUERY | {"Limit": 1}),
    ("scan", {"TableName": TABLE}),
    ("batch_get_item", {"RequestItems": {TABLE: {"Keys": [KEY], "ConsistentRead": True}}}),
    ("transact_get_items", {"TransactItems": [{"Get": {"TableName": TABLE, "Key": KEY}}]}),
]


def answer_of(client: Any, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = getattr(client, operation)(**request)
    assert answer.pop("ResponseMetadata")["HTTPHeaders"]["date"]
    return {name: value for name, value in answer.items() if name not in ("Count", "ScannedCount")}


@pytest.mark.parametrize(("operation", "request_"), WRITINGS, ids=[name for name, _ in WRITINGS])
def test_what_is_written_is_read_by_the_driver_as_it_was(
    clients: tuple[Any, Any], operation: str, request_: dict[str, Any]
) -> None:
    ours, theirs = clients
    theirs.delete_item(TableName=TABLE, Key=KEY)
    answer_of(ours, operation, request_)
    assert theirs.query(**QUERY)["Items"] == [ITEM]


@pytest.mark.parametrize(("operation", "request_"), READINGS, ids=[name for name, _ in READINGS])
def test_what_is_read_is_what_the_driver_reads(
    clients: tuple[Any, Any], operation: str, request_: dict[str, Any]
) -> None:
    ours, theirs = clients
    theirs.put_item(TableName=TABLE, Item=ITEM)
    assert answer_of(ours, operation, request_) == answer_of(theirs, operation, request_)


def test_what_was_changed_is_what_the_driver_says(clients: tuple[Any, Any]) -> None:
    ours, theirs = clients
    theirs.put_item(TableName=TABLE, Item=ITEM)
    request: dict[str, Any] = {
        "TableName": TABLE,
        "Key": KEY,
        "UpdateExpression": "SET v = :v",
        "ExpressionAttributeValues": {":v": {"N": "13"}},
        "ReturnValues": "UPDATED_NEW",
    }
    assert (
        answer_of(ours, "update_item", request)
        == answer_of(theirs, "update_item", request)
        == {"Attributes": {"v": {"N": "13"}}}
    )


def test_an_answer_that_cannot_be_read_here_is_left_to_the_driver(
    clients: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = clients
    theirs.put_item(TableName=TABLE, Item=ITEM)
    monkeypatch.setitem(connection._DECODERS, "Query", msgspec.json.Decoder(int))
    assert ours.query(**QUERY)["Items"] == [ITEM]


def test_an_error_has_its_name(clients: tuple[Any, Any]) -> None:
    ours, _ = clients
    with pytest.raises(ours.exceptions.ResourceNotFoundException):
        ours.query(**QUERY | {"TableName": "nowhere"})
