"""Items as JSON, by msgspec: the driver's own way, attribute by attribute through its model of the service, is most of what a call takes.

The driver signs, sends, finds the endpoint and reads errors as ever. It is taken by its events: what is asked is put aside before it is
serialised, its JSON becomes the body before that is signed, and the body of an answer is read before the driver would. What cannot be
read here is left to the driver.

The driver takes whatever has come for the answer, also if the connection broke in the middle of it: half a list would be an empty one.
So it is seen to here that an answer is whole.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
from botocore.exceptions import IncompleteReadError

_KEPT = "genlock_asked"


class Attribute(TypedDict, total=False):
    """The types that our items have; others are left out."""

    S: str
    N: str
    B: bytes
    """As base64 on the wire."""
    L: list[Attribute]


_Item = dict[str, Attribute]


class _One(TypedDict, total=False):
    Item: _Item


class _Keys(TypedDict):
    Keys: list[_Item]


class _Listed(TypedDict, total=False):
    Items: list[_Item]
    LastEvaluatedKey: _Item


class _Changed(TypedDict, total=False):
    Attributes: _Item


class _Found(TypedDict, total=False):
    Responses: dict[str, list[_Item]]
    UnprocessedKeys: dict[str, _Keys]


class _FoundTogether(TypedDict, total=False):
    Responses: list[_One]


class _Left(TypedDict, total=False):
    UnprocessedItems: dict[str, Any]
    """As it came: it is sent again, and base64 stays what it is."""


class _Done(TypedDict):
    """Nothing else in the answer is of use."""


_encode = msgspec.json.Encoder().encode
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "Query": msgspec.json.Decoder(_Listed),
    "Scan": msgspec.json.Decoder(_Listed),
    "BatchGetItem": msgspec.json.Decoder(_Found),
    "TransactGetItems": msgspec.json.Decoder(_FoundTogether),
    "UpdateItem": msgspec.json.Decoder(_Changed),
    "BatchWriteItem": msgspec.json.Decoder(_Left),
    "PutItem": msgspec.json.Decoder(_Done),
    "TransactWriteItems": msgspec.json.Decoder(_Done),
}


def shorten(client: Any) -> None:
    """Lets this client take the short way. It must not check parameters, as it gets none to see."""
    for operation in _DECODERS:
        client.meta.events.register(f"provide-client-params.dynamodb.{operation}", _put_aside)
        client.meta.events.register(f"before-call.dynamodb.{operation}", _write)
        client.meta.events.register(f"before-parse.dynamodb.{operation}", _read)


def _put_aside(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any]:
    context[_KEPT] = params
    return {name: {} for name in params if name == "RequestItems"}  # which it looks into for names of tables in other accounts


def _write(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    params["body"] = _encode(context[_KEPT])


def _read(operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    body, length = response_dict["body"], response_dict["headers"].get("content-length")
    if length is not None and len(body) != int(length):
        raise IncompleteReadError(actual_bytes=len(body), expected_bytes=length)
    if response_dict["status_code"] != 200:
        return
    try:
        answer = _DECODERS[operation_model.name].decode(body)
    except msgspec.MsgspecError:
        return
    customized_response_dict.update(answer)
    response_dict["body"] = b"{}"
