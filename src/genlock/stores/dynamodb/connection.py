"""A client of the driver for a URL, faster JSON for it, and the clock of the server.

The driver converts JSON attribute by attribute through its model of the service, which takes most
of the time of a call; this module uses msgspec instead. The driver still signs, sends, finds the
endpoint and reads errors. Its events let us take the parameters before it serialises them, set our
JSON as the body before it signs the request, and read the body of an answer before it does. An
answer that msgspec cannot read is left to the driver.

If the connection breaks in the middle of an answer, the driver takes the part that has arrived for
the whole, so that half a list becomes an empty one. `_read` checks that an answer is complete.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypedDict
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import botocore.config
import botocore.exceptions
import msgspec
from botocore.exceptions import IncompleteReadError

from genlock.errors import BadArgument
from genlock.safe_text import without_password
from genlock.stores.clock import SystemClock
from genlock.typed_json import decoder

_OWN = ("region", "endpoint_url", "payloads")


class Settings(NamedTuple):
    """The settings in a URL: dynamodb://table?region=…&endpoint_url=…&payloads=…"""

    table: str
    region: str | None = None
    """None: the region of the AWS environment."""
    endpoint_url: str | None = None
    payloads: str | None = None
    """The place of large results; None: they are not supported."""


def settings_of(url: str) -> Settings:
    """Returns the settings in a URL. Raises `BadArgument` if the URL is invalid."""
    shown = without_password(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadArgument(f"{shown!r} names no table; write dynamodb://table?region=…") from None
    table = unquote(parts.netloc + parts.path)
    if parts.scheme != "dynamodb" or not table or "/" in table or "@" in table or parts.fragment:
        raise BadArgument(f"{shown!r} names no table; write dynamodb://table?region=…")
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadArgument(f"{shown!r}: {error}") from error
    settings = dict(given)
    unknown = settings.keys() - set(_OWN)
    if unknown:
        raise BadArgument(
            f"{shown!r}: there is no setting {min(unknown)!r}; there are: {', '.join(_OWN)}"
        )
    if len(settings) < len(given) or not all(settings.values()):
        raise BadArgument(f"{shown!r}: a setting is given twice, or has no value")
    return Settings(table, **settings)


_KEPT = "genlock_asked"


class Attribute(TypedDict, total=False):
    """The types of our items' attributes; others are left out."""

    S: str
    N: str
    B: bytes
    """Base64 on the wire."""
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
    """Undecoded, because it is sent again unchanged."""


class _Done(TypedDict):
    """The rest of the answer is not used."""


_encode = msgspec.json.Encoder().encode
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "Query": decoder(_Listed),
    "Scan": decoder(_Listed),
    "BatchGetItem": decoder(_Found),
    "TransactGetItems": decoder(_FoundTogether),
    "UpdateItem": decoder(_Changed),
    "BatchWriteItem": decoder(_Left),
    "PutItem": decoder(_Done),
    "TransactWriteItems": decoder(_Done),
}


def shorten(client: Any) -> None:
    """Makes this client use our JSON. Its parameter checks must be off, because it sees no
    parameters."""
    for operation in _DECODERS:
        client.meta.events.register(f"provide-client-params.dynamodb.{operation}", _put_aside)
        client.meta.events.register(f"before-call.dynamodb.{operation}", _write)
        client.meta.events.register(f"before-parse.dynamodb.{operation}", _read)


def _put_aside(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any]:
    context[_KEPT] = params
    # The driver searches RequestItems for names of tables in other accounts.
    return {name: {} for name in params if name == "RequestItems"}


def _write(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    params["body"] = _encode(context[_KEPT])


def _read(
    operation_model: Any,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
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


CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0

_lock = threading.Lock()
_sessions: dict[int, Any] = {}


def make_client(settings: Settings, *, connections: int) -> Any:
    """Returns a client with the credentials of the usual AWS environment. It never retries: see
    calls.py."""
    region, endpoint_url = settings.region or os.environ.get("AWS_REGION"), settings.endpoint_url
    config = botocore.config.Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        tcp_keepalive=True,
        # The driver composes its own for every call, which takes a seventh of the time of a call.
        user_agent="genlock",
        parameter_validation=False,
    )
    try:
        with _lock:  # a session is not thread-safe; its clients are
            session = _session()
            if endpoint_url is None and region is not None:
                session.get_partition_for_region(region)
            client = session.client(
                "dynamodb", region_name=region, endpoint_url=endpoint_url, config=config
            )
        shorten(client)
        return client
    except botocore.exceptions.UnknownRegionError as error:
        raise BadArgument(
            f"AWS has no region {region!r}: write one such as "
            f"dynamodb://{settings.table}?region=eu-west-1"
        ) from error
    except botocore.exceptions.NoRegionError as error:
        raise BadArgument(
            "the table's region is not known: write dynamodb://table?region=…, or set AWS_REGION"
        ) from error
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise BadArgument(
            f"there can be no client for DynamoDB at {endpoint_url or region}: {error}"
        ) from error


def _session() -> Any:
    """Returns the session that all stores of a process share, because it loads the driver's service
    tables, which takes long."""
    pid = os.getpid()
    if pid not in _sessions:
        _sessions.clear()
        _sessions[pid] = boto3.session.Session()
    return _sessions[pid]


DRIFT = 0.0002
"""How far two clocks may drift apart, in seconds per second: older answers are less precise."""

_START = datetime(1970, 1, 1, tzinfo=UTC)


class ServerClock:
    """`genlock.store.Clock` of the server, from the `Date` of its answers.

    A `Date` has whole seconds. But each answer shows that the server's clock was between that
    second and the next at some instant between call and answer. After a few seconds all answers
    together determine the time to some milliseconds. Between answers the clock advances by this
    host's monotonic time. It shows the earliest instant that all answers allow, so it rarely goes
    back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._low = self._high = 0.0
        self._at: float | None = None
        self._last: tuple[str, float] = "", 0.0

    def observe(self, date: str, asked: float, answered: float) -> None:
        """Records the `Date` of an answer, with the monotonic time of call and answer."""
        second = self._second(date)
        if second is None:
            return
        low, high = second - answered, second + 1 - asked
        with self._lock:
            if self._at is not None:
                room = DRIFT * max(0.0, answered - self._at)
                known_low, known_high = self._low - room, self._high + room
                if max(low, known_low) <= min(high, known_high):
                    low, high = max(low, known_low), min(high, known_high)
                # Otherwise a clock was set, and earlier answers are invalid.
            self._low, self._high, self._at = low, high, answered

    def _second(self, date: str) -> float | None:
        last, second = self._last
        if date == last:
            return second
        try:
            second = (parsedate_to_datetime(date) - _START).total_seconds()
        except (TypeError, ValueError):
            return None
        self._last = date, second
        return second

    def now(self) -> datetime:
        """The present instant, by this host's clock until the server's first answer."""
        with self._lock:
            if self._at is None:
                return SystemClock().now()
            return _START + timedelta(seconds=self._low + time.monotonic())
