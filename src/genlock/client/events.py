"""A project's events as they come: by a stream that is taken up again behind the last event, or,
where there is none, by asking.

An event is passed on once: whatever breaks, the next attempt begins behind the last that was passed
on. What was there before is read by pages; the stream only brings what is new.
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
    """One event of a stream; a mere sign of life has no data and is called ""."""

    event: str = ""
    data: str = ""
    id: str = ""
    retry_milliseconds: int | None = None


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The events in these lines. A comment is a sign of life, and is passed on as one: whoever
    waits looks at the clock."""
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
"""How often a service is asked that has no streams."""

_SILENCE_SECONDS: Final = 45.0
"""A stream that gives no sign of life for so long is dead."""

_BACKOFF: Final = Backoff(first=0.1, longest=1.6)
_HELD_SECONDS: Final = 1.0
"""A stream that was open for so long was no failed attempt, also if nothing happened meanwhile:
what ends it now and then, as proxies do and whoever renews the service, does not add up."""

_OURS: Final = "genlock:"
_CLOSING: Final = "genlock:closing"
_CURSOR_LOST: Final = "genlock:cursor-lost"


class _Broken(Exception):
    """The stream has ended; another one goes on where it ended."""

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
    """Events as they come, for ever, until nothing has come for `timeout` seconds, or until the ear
    is stopped. Blocks the thread."""
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
    """How far somebody has read."""

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
        """When the stream began, on the monotonic clock; endless if it has not."""

    def left(self) -> float:
        """How long it may stay quiet."""
        return (
            math.inf
            if self._timeout is None
            else self._quiet_since + self._timeout - time.monotonic()
        )

    def pages(self) -> Iterator[FeedEvent]:
        """What is there already."""
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
        """What comes. Ends when it may not stay quiet any longer; `_Broken` if the stream has."""
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
                        return  # taken up again with the patience that is left
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
            # An id alone: what came up to there was not for us.
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
        """Waits a little longer after each attempt that brought nothing, until the deadline."""
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
    """What a message of the service's own says."""
    try:
        said = msgspec.json.decode(message.data or "null")
    except msgspec.MsgspecError:
        return message.data
    return (
        str(said.get("detail") or said.get("reason") or "")
        if isinstance(said, dict)
        else str(said or "")
    )
