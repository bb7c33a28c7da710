"""A project's events as they happen: by a stream that resumes after the last event, or by polling a
service without streams.

Each event is yielded once: after any failure the next attempt begins after the last event that was
yielded. Earlier events are read in pages; the stream brings only new ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from genlock.client.addresses import REFUSED
from genlock.client.call import ask, run
from genlock.client.replies import Response, check_service
from genlock.client.requests import request_of
from genlock.client.transport import StreamHandle, Transport, lost
from genlock.core.results import Feed, FeedEvent
from genlock.errors import BadArgument, CursorLost, RouteNotFound, ServiceError, ServiceUnreachable
from genlock.retry import Backoff
from genlock.typed_json import decode
from genlock.wire.operations import ReadEvents
from genlock.wire.problems import error_of

# Server-sent events, read line by line.


class Message(NamedTuple):
    """One message of a stream. A heartbeat has no data and the name ""."""

    event: str = ""
    data: str = ""
    id: str = ""
    retry_milliseconds: int | None = None


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Parses messages from lines. A comment is yielded as a heartbeat, so that the caller can check
    its timeout."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(":"):
            yield Message()
        elif line:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        elif fields:
            yield _message(fields)
            fields = {}


def _message(fields: dict[str, list[str]]) -> Message:
    retry = fields.get("retry", [""])[-1]
    return Message(
        fields.get("event", ["message" if "data" in fields else ""])[-1],
        "\n".join(fields.get("data", [])),
        fields.get("id", [""])[-1],
        int(retry) if retry.isascii() and retry.isdigit() else None,
    )


_PAGE: Final = 500
_LOOK_SECONDS: Final = 0.5
"""The polling interval for a service without streams."""

_SILENCE_SECONDS: Final = 45.0
"""A stream without a heartbeat for this long counts as dead."""

_BACKOFF: Final = Backoff(first=0.1, longest=1.6)
_HELD_SECONDS: Final = 1.0
"""A stream that was open for this long was no failed attempt, even without events. So the regular
ends of streams, by proxies or restarts of the service, do not add up to a failure."""

_OURS: Final = "genlock:"
_CLOSING: Final = "genlock:closing"
_CURSOR_LOST: Final = "genlock:cursor-lost"


class _Broken(Exception):
    """The stream has ended; another one resumes it."""

    def __init__(self, why: str, after_seconds: float = 0.0) -> None:
        super().__init__(why)
        self.after_seconds = after_seconds


def follow(
    link: Transport,
    tenant_id: str | None,
    project_id: str | None,
    after: str | None,
    timeout: float | None,
    ear: StreamHandle,
) -> Iterator[FeedEvent]:
    """Yields events as they happen, until none has happened for `timeout` seconds, or until the
    handle is stopped. Blocks the thread."""
    given: Any = timeout  # the type is only promised
    if given is not None and (
        isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= math.inf
    ):
        raise BadArgument(f"timeout_seconds is a number from 0 to inf, not {timeout!r}")
    link.ears.add(ear)
    feed = _Feed(link, tenant_id, project_id, after, timeout)
    streams = True
    while True:
        link.check_open()
        if ear.stopped:
            return
        yield from feed.pages()
        if feed.left() <= 0:
            return
        if not streams:
            time.sleep(min(feed.left(), _LOOK_SECONDS))
            continue
        try:
            yield from feed.stream(ear)
        except RouteNotFound:
            streams = False
        except _Broken as broken:
            feed.pause(broken)


class _Feed:
    """A reader of a feed and its cursor."""

    def __init__(
        self,
        link: Transport,
        tenant_id: str | None,
        project_id: str | None,
        after: str | None,
        timeout: float | None,
    ) -> None:
        self._link, self._place, self._timeout = link, (tenant_id, project_id), timeout
        self._cursor = (
            after if after is not None else self._read(ReadEvents(tail=True, limit=1)).cursor
        )
        self._quiet_since = time.monotonic()
        self._broken = 0
        self._broken_since = 0.0
        self._opened = math.inf
        """When the stream began, by the monotonic clock; infinite before that."""

    def left(self) -> float:
        """The time that is left without events."""
        return (
            math.inf
            if self._timeout is None
            else self._quiet_since + self._timeout - time.monotonic()
        )

    def pages(self) -> Iterator[FeedEvent]:
        """Yields the events that exist already, page by page."""
        more = True
        while more:
            page = self._read(ReadEvents(after=self._cursor, limit=_PAGE))
            for event in page.events:
                yield self._seen(event)
            self._cursor, more = page.cursor, page.more

    def _read(self, call: ReadEvents) -> Feed:
        call.tenant_id, call.project_id = self._place
        self._link.check_open()
        return run(self._link, ask(self._link, call))

    def _seen(self, event: FeedEvent) -> FeedEvent:
        self._cursor = event.cursor
        self._quiet_since = time.monotonic()
        self._broken = 0
        return event

    def stream(self, ear: StreamHandle) -> Iterator[FeedEvent]:
        """Yields new events. Ends at the timeout; raises `_Broken` if the stream ends."""
        import httpx2

        link = self._link
        events = request_of(
            link.identity, ReadEvents(tenant_id=self._place[0], project_id=self._place[1])
        )
        patience = min(self.left(), _SILENCE_SECONDS)
        timeout = httpx2.Timeout(patience, connect=max(link.deadline_seconds, 0.1))
        link.check_open()
        address = link.url
        way = link.way_to(address)
        headers = link.headers(way) | {"accept": "text/event-stream", "last-event-id": self._cursor}
        self._opened = math.inf
        try:
            with link.client().stream(
                "GET", f"{way.url}{events.target}/stream", headers=headers, timeout=timeout
            ) as response:
                ear.open(response)
                link.addresses.answered(address, response.status_code)
                if response.status_code == REFUSED and link.is_renewed(address, way):
                    raise _Broken("the service was started again")
                if response.status_code != 200:
                    self._refused(Response(response.status_code, response.headers, response.read()))
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    check_service(
                        Response(response.status_code, response.headers, response.read()),
                        link.url,
                        link.version,
                    )
                self._opened = time.monotonic()
                for message in messages(response.iter_lines()):
                    yield from self._taken(message)
                    if self.left() < patience - 1 and not message.event:
                        return  # the caller resumes with the time that is left
        except httpx2.ReadTimeout:
            if self.left() <= 0:
                return
            raise _Broken("the stream gave no sign of life") from None
        except httpx2.TransportError as error:
            if ear.stopped:
                return
            link.addresses.leave(address)
            raise _Broken(lost(error).why) from None
        if not ear.stopped:
            raise _Broken("the stream ended")

    def _refused(self, response: Response) -> None:
        check_service(response, self._link.url, self._link.version)
        error = error_of(response.body, response.status)
        if response.status in (429, 502, 503, 504):
            raise _Broken(str(error), 1.0)
        raise error

    def _taken(self, message: Message) -> Iterator[FeedEvent]:
        if message.event == _CURSOR_LOST:
            raise CursorLost(
                _told(message) or "the feed cannot be continued from this cursor; start again"
            )
        if message.event.startswith(_OURS):
            if message.event == _CLOSING:
                self._link.addresses.leave(self._link.url)
            raise _Broken(_told(message) or message.event, (message.retry_milliseconds or 0) / 1000)
        if not message.data:
            # An id alone: the events up to there did not pass the filter.
            self._cursor = message.id or self._cursor
            return
        try:
            event = decode(message.data, FeedEvent)
        except msgspec.MsgspecError as error:
            raise ServiceError(
                f"an event of {self._link.url} is not what this client knows: {error}"
            ) from None
        yield self._seen(event)

    def pause(self, broken: _Broken) -> None:
        """Waits before the next attempt, longer after each attempt without events, until the
        deadline."""
        now = time.monotonic()
        if self._broken == 0 or now - self._opened > _HELD_SECONDS:
            self._broken, self._broken_since = 0, now
        self._broken += 1
        if (
            now - self._broken_since > max(self._link.deadline_seconds, broken.after_seconds)
            and self._broken > 2
        ):
            raise ServiceUnreachable(
                f"the events of {self._link.url} cannot be followed: {broken}"
            ) from None
        time.sleep(
            min(
                broken.after_seconds + _BACKOFF.pause(self._broken),
                max(self.left(), 0.0),
            )
        )


def _told(message: Message) -> str:
    """The text of a message from the service itself."""
    try:
        said = msgspec.json.decode(message.data or "null")
    except msgspec.MsgspecError:
        return message.data
    return (
        str(said.get("detail") or said.get("reason") or "")
        if isinstance(said, dict)
        else str(said or "")
    )
