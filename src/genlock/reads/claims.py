"""Claims: every active claim of a project, with its session and why it is overdue, and the last
claims of each session."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from genlock.core import events as e
from genlock.core.codec import decode_event
from genlock.core.history import begun, continued
from genlock.core.keys import TASK, Key, Scope
from genlock.core.model import Claim, SessionRecord, TaskRecord
from genlock.core.reasons import Cause, ClaimState, Status
from genlock.core.results import ClaimHistory, TaskClaim
from genlock.core.task.view import task_claim
from genlock.errors import CursorLost
from genlock.reads.reader import PAGE, Reader, StoreReader
from genlock.store import MAX_DUE, Query

HISTORIES_KEPT: Final = 10
"""Claims of a session."""
_SESSIONS_KEPT: Final = 10_000
_TASKS_KEPT: Final = 100_000
_PAGE: Final = 1000
_TAGS: Final = tuple(
    f'"{kind.__struct_config__.tag}"'.encode()
    for kind in (
        e.ClaimAcquired,
        e.ClaimReleased,
        e.ClaimExpired,
        e.ClaimOrphaned,
        e.ClaimSuperseded,
        e.ResultAccepted,
        e.ConvergenceEscalated,
        e.SubtasksSpawned,
        e.TaskReset,
        e.TaskCancelled,
    )
)


def claiming_agent(reader: StoreReader, key: Key, session: str, generation: int) -> str:
    """Returns the agent of a claim, even if it ended long ago; empty if this session had no claim
    at the generation."""
    for event in reader.history(key):
        if isinstance(event, e.ClaimAcquired) and (event.session_id, event.generation) == (
            session,
            generation,
        ):
            return event.agent_id
    return ""


class HeldTask(NamedTuple):
    """A task with an active claim."""

    record: TaskRecord
    claim: Claim
    session: SessionRecord | None
    cause: Cause | None
    """Why the claim is overdue, by the rules, or None while it is live."""
    last_activity: datetime
    """The session's last heartbeat, its own or one of any of its claims."""


class ActiveClaims(NamedTuple):
    """All active claims of a project, at one instant."""

    held: list[HeldTask]
    now: datetime


def active_claims(
    reader: Reader,
    scope: Scope,
    *,
    session: str | None = None,
    most: int | None = None,
    with_expired: bool = False,
) -> ActiveClaims:
    """Returns every active claim, overdue ones included, the oldest first: of one session, if it is
    named, and of at most `most` tasks. With `with_expired` also those recorded as expired whose
    tasks have not been taken over: no index covers them, so this reads every open task."""
    query = Query(*scope, due_before=MAX_DUE) if session is None else Query(*scope, session=session)
    now = reader.now()
    outage_grace = reader.outage_grace(scope, now)
    found = [
        (record, record.claim)
        for record in islice(reader.find_tasks(query, page=PAGE), most)
        if record.claim is not None and record.claim.state is ClaimState.ACTIVE
    ]
    names = sorted({claim.session for _, claim in found})
    sessions = reader.sessions(scope, names)
    last = _last_activity(found, sessions)
    causes = reader.causes(scope, (claim for _, claim in found), sessions, now, outage_grace)
    held = [
        HeldTask(record, claim, sessions.get(claim.session), cause, last[claim.session])
        for (record, claim), cause in zip(found, causes, strict=True)
    ]
    if with_expired:
        held += [
            HeldTask(record, claim, None, Cause.LEASE_OVER, claim.renewed_at)
            for record, claim in expired_claims(reader, scope)
            if session in (None, claim.session)
        ]
    return ActiveClaims(
        sorted(held, key=lambda one: (one.claim.claimed_at, one.record.task.id)), now
    )


def claims_over_before(
    reader: Reader, scope: Scope, before: datetime | None
) -> tuple[TaskClaim, ...]:
    """Returns GC's `list_expired_claims`: claims whose lease ended before that time, recorded as
    expired or not."""
    found = active_claims(reader, scope, with_expired=True)
    instant = found.now if before is None else before
    over = [
        (one.claim.expires_at, one.record.task.id, one)
        for one in found.held
        if one.claim.expires_at is not None and one.claim.expires_at <= instant
    ]
    over.sort(key=lambda entry: entry[:2])
    return tuple(
        task_claim(Key(*scope, TASK, task), one.record, one.claim) for _, task, one in over
    )


_MAY_HAVE_EXPIRED: Final = (Status.PENDING, Status.BLOCKED, Status.HELD, Status.BACKLOG)


def expired_claims(reader: StoreReader, scope: Scope) -> Iterator[tuple[TaskRecord, Claim]]:
    """Yields the claims recorded as expired whose tasks have not been taken over."""
    for state in _MAY_HAVE_EXPIRED:
        for record in reader.find_tasks(Query(*scope, state=state), page=PAGE):
            if record.claim is not None and record.claim.state is ClaimState.EXPIRED:
                yield record, record.claim


def _last_activity(
    found: list[tuple[TaskRecord, Claim]], sessions: dict[str, SessionRecord]
) -> dict[str, datetime]:
    last = {name: session.updated_at for name, session in sessions.items()}
    for _, claim in found:
        last[claim.session] = max(claim.renewed_at, last.get(claim.session, claim.renewed_at))
    return last


class SessionHistories:
    """The last claims of every session of one project, read from its feed.

    The feed is read once, and afterwards only new events. So the first read takes time in
    proportion to the feed, and later ones hardly any. Only one thread at a time may use it.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._forget()

    def _forget(self) -> None:
        self._cursor: str | None = None
        self._last: OrderedDict[str, ClaimHistory] = OrderedDict()
        """The last claim of each task."""
        self._sessions: OrderedDict[str, deque[tuple[str, int]]] = OrderedDict()
        self._ended: dict[tuple[str, int], ClaimHistory] = {}
        self._completed: dict[str, set[str]] = {}
        """By session."""

    def completed(self, session: str) -> int:
        """Returns how many tasks a session had completed at the last call of `of`."""
        return len(self._completed.get(session, ()))

    def of(self, reader: StoreReader, sessions: Iterable[str]) -> dict[str, list[ClaimHistory]]:
        """Returns the last ended claims of these sessions, the oldest first."""
        try:
            self._catch_up(reader)
        except CursorLost:
            self._forget()
            self._catch_up(reader)
        return {
            session: [self._ended[name] for name in self._sessions.get(session, ())]
            for session in sessions
        }

    def _catch_up(self, reader: StoreReader) -> None:
        more = True
        while more:
            page = reader.events(self._scope, self._cursor, _PAGE)
            for recorded in page.events:
                # Most events are none of these; a search for a few bytes is cheaper than decoding.
                if recorded.key.kind == TASK and any(tag in recorded.body for tag in _TAGS):
                    self._apply(recorded.key.id, decode_event(recorded.body).event)
            self._cursor, more = page.cursor, page.more

    def _apply(self, task: str, event: e.Event) -> None:
        if isinstance(event, e.ClaimAcquired):
            self._last[task] = begun(event)
            self._last.move_to_end(task)
            if len(self._last) > _TASKS_KEPT:
                self._last.popitem(last=False)
            return
        last = self._last.get(task)
        entry = None if last is None else continued(last, event)
        if entry is None or entry.released_at is None:
            return
        self._last[task] = entry
        self._keep(entry)

    def _keep(self, entry: ClaimHistory) -> None:
        name = (entry.task_id, entry.generation)
        if entry.result_accepted:
            self._completed.setdefault(entry.session_id, set()).add(entry.task_id)
        if name not in self._ended:
            names = self._sessions.setdefault(entry.session_id, deque())
            self._sessions.move_to_end(entry.session_id)
            names.append(name)
            if len(names) > HISTORIES_KEPT:
                self._ended.pop(names.popleft(), None)
            if len(self._sessions) > _SESSIONS_KEPT:
                forgotten, claims = self._sessions.popitem(last=False)
                self._completed.pop(forgotten, None)
                for old in claims:
                    self._ended.pop(old, None)
        self._ended[name] = entry
