"""The context that all parts of a running service share: the coordinator, limits, threads, and
whether the service is stopping."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec.structs import replace

from genlock.coordinator import AsyncCoordinator, speaking_for
from genlock.coordinator.base import Identity
from genlock.core.names import check_agent, check_session, check_user
from genlock.errors import BadArgument
from genlock.service.auth.permissions import Grant
from genlock.service.auth.session_access import SessionAccess
from genlock.service.limits import (
    ALL_PLANS_AT_ONCE,
    LARGE_AT_ONCE,
    LARGE_THREADS,
    LONG_THREADS,
    MOST_WAITING,
    PLANS_AT_ONCE,
    READS_AT_ONCE,
    Pace,
    Rates,
    Turns,
)
from genlock.wire.headers import (
    AGENT_HEADER,
    HOST_HEADER,
    PROCESS_HEADER,
    SESSION_HEADER,
    USER_HEADER,
    unpack_name,
    unpack_process,
)

_SPEAKERS_KEPT: Final = 4096
_LONGEST_HOST: Final = 255

_SESSION, _AGENT, _USER = SESSION_HEADER.encode(), AGENT_HEADER.encode(), USER_HEADER.encode()
_HOST, _PROCESS = HOST_HEADER.encode(), PROCESS_HEADER.encode()
_IDENTITY: Final = (_SESSION, _AGENT, _USER, _HOST, _PROCESS)


class ServiceContext:
    """A running service."""

    def __init__(
        self,
        coordinator: AsyncCoordinator,
        rates: Rates | None = None,
        turns: Turns | None = None,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.coordinator = coordinator
        self.most_waiting = most_waiting
        """The number of a tenant's requests that may wait for a task."""
        self.rates = rates
        """None: no rate limit."""
        self.turns = Turns() if turns is None else turns
        self.acting = SessionAccess(coordinator.reader)
        self.reads = Turns(READS_AT_ONCE, sharing=self.turns.sharing)
        """The turns of reads."""
        self.large = Turns(LARGE_AT_ONCE, sharing=self.turns.sharing)
        """The turns of requests with large bodies."""
        self.large_threads = ThreadPoolExecutor(LARGE_THREADS, thread_name_prefix="genlock-large")
        """Threads that parse and run requests with large bodies, which would block the event
        loop."""
        self.long_threads = ThreadPoolExecutor(LONG_THREADS, thread_name_prefix="genlock-long")
        """Threads that read and encode long answers."""
        self.plans = Turns(PLANS_AT_ONCE, sharing=self.turns.sharing)
        """The turns of plan imports."""
        self.all_plans = asyncio.Semaphore(ALL_PLANS_AT_ONCE)
        self.pace = Pace()
        """The pace at which large bodies are read."""
        self.stopping = asyncio.Event()
        """Set when the service stops. Waiting requests are answered then."""
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        """Awaited in order after `stopping` is set and before the last answers. Streams are closed
        here."""
        self._speakers: OrderedDict[tuple[object, ...], AsyncCoordinator] = OrderedDict()

    def speaker(
        self,
        grant: Grant,
        client: str,
        headers: dict[bytes, bytes],
        orphan_seconds: float | None = None,
    ) -> AsyncCoordinator:
        """The coordinator on behalf of the sender of these headers. Sessions that it registers have
        this `orphan_seconds`."""
        known: tuple[object, ...] = (grant, client, orphan_seconds)
        if not headers.keys().isdisjoint(_IDENTITY):
            known += tuple(map(headers.get, _IDENTITY))
        found = self._speakers.get(known)
        if found is None:
            identity = replace(identity_of(grant, client, headers), orphan_seconds=orphan_seconds)
            found = self._speakers[known] = speaking_for(identity, self.coordinator)
            if len(self._speakers) > _SPEAKERS_KEPT:
                self._speakers.popitem(last=False)
        return found


def identity_of(grant: Grant, client: str, headers: dict[bytes, bytes]) -> Identity:
    """The identity of a caller. With a key, the key's name is the user, whatever the client
    says."""
    session, agent, user = _name(headers, _SESSION), _name(headers, _AGENT), _name(headers, _USER)
    process = headers.get(_PROCESS)
    return Identity(
        session_id=None if session is None else check_session(session),
        agent_id=None if agent is None else check_agent(agent),
        user_id=grant.name or (check_user(user) if user is not None else ""),
        client_ip=client,
        host=(_name(headers, _HOST) or "")[:_LONGEST_HOST],
        role=str(grant.role) if grant.key_id else "",
        process=None if process is None else unpack_process(process.decode("latin-1")),
        own_process=False,
    )


def _name(headers: dict[bytes, bytes], header: bytes) -> str | None:
    value = headers.get(header)
    if value is None:
        return None
    try:
        return unpack_name(value.decode("latin-1"))
    except UnicodeDecodeError:
        raise BadArgument(
            f"header {header.decode()} is percent-encoded UTF-8, which {value[:80]!r} is not"
        ) from None
