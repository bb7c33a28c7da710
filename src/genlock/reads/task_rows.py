"""Rows of tasks, filtered, sorted and paged, from the view of a project."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from heapq import nlargest, nsmallest
from typing import Any, Final, NamedTuple

from msgspec import Struct

from genlock.core.codec import encode_json
from genlock.core.dashboard import HolderHealth, RowHolder, RowProgress, SortBy, TaskPage, TaskRow
from genlock.core.index import microseconds
from genlock.core.keys import Scope
from genlock.core.model import Claim, SessionRecord
from genlock.core.policy import Expired, Policy
from genlock.core.reasons import Cause, Status
from genlock.core.task.view import stale_after
from genlock.errors import BadArgument
from genlock.messages import describe_holder
from genlock.reads.project_view import ProjectView, TaskEntry, few, views_of
from genlock.reads.reader import Reader
from genlock.typed_json import decode

_BY_STATE: Final = (
    Status.HELD,
    Status.IN_REVIEW,
    Status.IN_PROGRESS,
    Status.PENDING,
    Status.BLOCKED,
    Status.BACKLOG,
    Status.COMPLETED,
    Status.CANCELLED,
)
_STATE_RANK: Final = {state: rank for rank, state in enumerate(_BY_STATE)}
_HEALTH_OF: Final = {
    Cause.LEASE_OVER: HolderHealth.OVERDUE,
    Cause.CLOCK_STEPPED: HolderHealth.OVERDUE,
    Cause.SESSION_SILENT: HolderHealth.SILENT,
    Cause.SESSION_ENDED: HolderHealth.ENDED,
    Cause.PROCESS_GONE: HolderHealth.GONE,
}
_FIGURES: Final = (int, float)

SortKey = tuple[Any, ...]


class TaskFilter(Struct, frozen=True, kw_only=True):
    """A filter for tasks. A field that is not given matches everything."""

    states: frozenset[Status] = frozenset()
    tracks: frozenset[str] | None = None
    agent: str | None = None
    """The agent that holds the task, completed it, or has it reserved."""
    session: str | None = None
    """The session that holds the task, or completed it."""
    tag: str | None = None
    text: str = ""
    """Words that must all occur in the id, the title, a tag or the description."""

    def matcher(self) -> Callable[[TaskEntry], bool]:
        """Returns a function that tells whether an entry matches, apart from its state."""
        words = self.text.casefold().split()
        tracks, agent, session, tag = self.tracks, self.agent, self.session, self.tag

        def passes(entry: TaskEntry) -> bool:
            if tracks is not None and entry.track not in tracks:
                return False
            if tag is not None and tag not in entry.tags:
                return False
            claim = entry.claim
            if agent is not None and agent not in (
                claim.agent if claim is not None else None,
                entry.done_by,
                entry.assigned_to,
            ):
                return False
            if session is not None and session not in (
                claim.session if claim is not None else None,
                entry.done_in,
            ):
                return False
            return all(word in entry.searched for word in words)

        return passes


class Sorting(NamedTuple):
    """The order of rows."""

    by: SortBy
    reverse: bool

    def key(self, entry: TaskEntry) -> SortKey:
        """Returns the sort key of a task, which is unique."""
        match self.by:
            case SortBy.ORDER:
                return (entry.order, entry.id)
            case SortBy.PRIORITY:
                return (entry.rank, entry.order, entry.id)
            case SortBy.UPDATED:
                return (-microseconds(entry.updated_at), entry.id)
            case SortBy.STATE:
                return (_STATE_RANK[entry.state], entry.order, entry.id)
            case SortBy.ID:
                return (entry.id,)

    def token(self, entry: TaskEntry) -> str:
        """Returns the token that continues after this task."""
        text = encode_json([self.by, self.reverse, *self.key(entry)])
        return base64.urlsafe_b64encode(text).decode()

    def read_token(self, token: str) -> SortKey:
        """Returns the key at which a page ended; `BadArgument` if that page had another order."""
        try:
            by, reverse, *key = decode(base64.urlsafe_b64decode(token.encode()), list[Any])
        except (UnicodeEncodeError, binascii.Error, ValueError) as error:
            raise _no_token(token) from error
        if (by, reverse) != (self.by, self.reverse) or not _has_shape(self.by, key):
            raise _no_token(token)
        return tuple(key)


_SHAPES: Final[dict[SortBy, tuple[type, ...]]] = {
    SortBy.ORDER: (str, str),
    SortBy.PRIORITY: (int, str, str),
    SortBy.UPDATED: (int, str),
    SortBy.STATE: (int, str, str),
    SortBy.ID: (str,),
}


def _has_shape(by: SortBy, key: Sequence[Any]) -> bool:
    return tuple(map(type, key)) == _SHAPES[by]


def _no_token(token: str) -> BadArgument:
    return BadArgument(
        f"after is `next` of the page before, sorted alike; {token[:80]!r} is not the end of a "
        "page of this list"
    )


def task_page(
    reader: Reader,
    view: ProjectView,
    wanted: TaskFilter,
    sorting: Sorting,
    limit: int,
    after: str | None,
) -> TaskPage:
    """Returns a page of the matching tasks. `view` must be current and from the same reader."""
    last = None if after is None else sorting.read_token(after)
    passes = wanted.matcher()
    counts: Counter[str] = Counter()
    found: list[tuple[SortKey, TaskEntry]] = []
    for entry in view.tasks.values():
        if passes(entry):
            counts[entry.state] += 1
            if not wanted.states or entry.state in wanted.states:
                found.append((sorting.key(entry), entry))
    total = len(found)
    if last is not None:
        found = [one for one in found if (one[0] < last if sorting.reverse else one[0] > last)]
    choose = nlargest if sorting.reverse else nsmallest
    page = [entry for _, entry in choose(limit + 1, found, key=lambda one: one[0])]
    now = reader.now()
    assert view.cursor is not None
    return TaskPage(
        tasks=tuple(rows_of(reader, view, page[:limit], now)),
        total=total,
        counts={state.value: counts[state] for state in Status if counts[state]},
        next=sorting.token(page[limit - 1]) if len(page) > limit else None,
        cursor=view.cursor,
        now=now,
    )


def matching_tasks(view: ProjectView, wanted: TaskFilter) -> set[str]:
    """The ids of all tasks that match."""
    passes = wanted.matcher()
    return {
        entry.id
        for entry in view.tasks.values()
        if (not wanted.states or entry.state in wanted.states) and passes(entry)
    }


class Holding(NamedTuple):
    """The health of a holder."""

    health: HolderHealth
    why: str


def holdings(
    reader: Reader, view: ProjectView, entries: Iterable[TaskEntry], now: datetime, policy: Policy
) -> dict[str, Holding]:
    """Returns the health of the holder of each claimed task among these."""
    claimed = [(entry.id, entry.claim) for entry in entries if entry.claim is not None]
    sessions = {
        claim.session: view.sessions[claim.session]
        for _, claim in claimed
        if claim.session in view.sessions
    }
    causes = reader.causes(
        view.scope,
        (claim for _, claim in claimed),
        sessions,
        now,
        reader.outage_grace(view.scope, now),
    )
    return {
        name: _holding(view, claim, sessions.get(claim.session), cause, now, policy)
        for (name, claim), cause in zip(claimed, causes, strict=True)
    }


def _holding(
    view: ProjectView,
    claim: Claim,
    session: SessionRecord | None,
    cause: Cause | None,
    now: datetime,
    policy: Policy,
) -> Holding:
    silent = (now - claim.renewed_at).total_seconds()
    if cause is not None:
        health = _HEALTH_OF[cause]
    elif claim.expires_at is not None and (
        claim.stale_at is not None
        or silent > min(stale_after(claim), policy.stale_threshold_seconds)
    ):
        health = HolderHealth.STALE
    else:
        return _WORKING
    return Holding(
        health,
        describe_holder(
            health,
            claim,
            session,
            view.heard.get(claim.session),
            stepped=cause is Cause.CLOCK_STEPPED,
            for_person=policy.expired is Expired.HUMAN,
        ),
    )


_WORKING: Final = Holding(HolderHealth.WORKING, "")


def rows_of(
    reader: Reader, view: ProjectView, entries: Sequence[TaskEntry], now: datetime
) -> list[TaskRow]:
    """The rows of these tasks."""
    policy = reader.settings(view.scope).policy
    health = holdings(reader, view, entries, now, policy)
    return [_row(view, entry, health.get(entry.id)) for entry in entries]


def task_rows(
    reader: Reader, scope: Scope, names: Iterable[str], sessions: Iterable[str] = ()
) -> dict[str, TaskRow]:
    """Returns the current rows of the existing tasks among these, and of the tasks that these
    sessions hold."""
    with views_of(reader.engine).of(scope).current(reader) as view:
        entries = {name: view.tasks[name] for name in names if name in view.tasks}
        for session in sessions:
            entries |= view.held_by.get(session, {})
        rows = rows_of(reader, view, list(entries.values()), reader.now())
        return {row.id: row for row in rows}


def _row(view: ProjectView, entry: TaskEntry, holding: Holding | None) -> TaskRow:
    return TaskRow(
        id=entry.id,
        title=entry.title,
        state=entry.state,
        priority=entry.priority,
        track=entry.track,
        sequence=entry.sequence,
        phase=entry.phase,
        tags=entry.tags,
        parent=entry.parent,
        generation=entry.generation,
        holder=_holder(entry.claim, holding) if entry.claim and holding else None,
        attempts=entry.attempts,
        failures=entry.failures,
        progress=_progress(view, entry),
        waits_for=few(entry.waits_for),
        waits_for_count=len(entry.waits_for),
        refused_results=view.refused_of[entry.id],
        inputs_changed=entry.inputs_changed,
        hold_reason=entry.hold_reason,
        hold_until=entry.hold_until,
        review=entry.review,
        feedback=entry.feedback,
        assigned_to=entry.assigned_to,
        human_required=entry.human_required,
        done_by=entry.done_by,
        created_at=entry.created_at,
        updated_at=entry.updated_at,
    )


def _holder(claim: Claim, holding: Holding) -> RowHolder:
    return RowHolder(
        agent_id=claim.agent,
        session_id=claim.session,
        user_id=claim.user,
        claimed_at=claim.claimed_at,
        renewed_at=claim.renewed_at,
        expires_at=claim.expires_at,
        lease_seconds=claim.lease_seconds,
        health=holding.health,
        why=holding.why,
    )


def _progress(view: ProjectView, entry: TaskEntry) -> RowProgress | None:
    session = view.sessions.get(entry.claim.session) if entry.claim is not None else None
    said = own_figures(session)
    if entry.reported is None:
        if said == NOTHING_SAID:
            return None
        assert entry.claim is not None
        reported: tuple[int, datetime, float | None, str] = (
            entry.claim.generation,
            entry.claim.renewed_at,
            None,
            "",
        )
    else:
        reported = entry.reported
    generation, at, fraction, note = reported
    return RowProgress(
        generation=generation,
        updated_at=at,
        fraction=fraction,
        note=note,
        score=said.score,
        context_percent=said.context_percent,
        phase=said.phase,
    )


class OwnFigures(NamedTuple):
    """The figures that a session reports with its heartbeats."""

    score: float | None = None
    context_percent: float | None = None
    phase: str = ""


NOTHING_SAID: Final = OwnFigures()


def own_figures(session: SessionRecord | None) -> OwnFigures:
    """Returns the figures of the right type: a session may put anything into its metadata."""
    if session is None or not session.metadata:
        return NOTHING_SAID
    said = session.metadata
    phase = said.get("phase")
    return OwnFigures(
        _figure(said.get("score")),
        _figure(said.get("contextPercent")),
        phase if isinstance(phase, str) else "",
    )


def _figure(value: object) -> float | None:
    return float(value) if type(value) in _FIGURES else None  # type: ignore[arg-type]
