"""The answers that lists and dashboards are made of: rows of tasks, and a project at a glance.

They say how things stand at one cursor of the project's feed. Who shows them follows the feed from
that cursor on, and misses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from genlock.core.reasons import RefusedState, ReleaseReason, ReviewCause, Status, Verdict
from genlock.core.results import FeedEvent, Holder


class HolderHealth(StrEnum):
    """How the holder of a task is doing, from the best to the worst."""

    WORKING = "WORKING"
    STALE = "STALE"
    """The claim is live, but the renewal that was expected has not come."""
    OVERDUE = "OVERDUE"
    """The lease is over."""
    SILENT = "SILENT"
    """Its session has been silent for too long."""
    ENDED = "ENDED"
    """Its session has ended."""
    GONE = "GONE"
    """Its process is gone."""


LOST: Final = frozenset({HolderHealth.SILENT, HolderHealth.ENDED, HolderHealth.GONE})
"""The holder itself is gone, whatever its lease says."""


class RowHolder(Struct, frozen=True, gc=False, kw_only=True):
    """Who holds a task, and how that is going."""

    agent_id: str
    session_id: str
    user_id: str = ""
    claimed_at: datetime
    renewed_at: datetime
    expires_at: datetime | None
    """None: the claim has no lease."""
    lease_seconds: float
    health: HolderHealth
    why: str = ""
    """In words, why the health is not WORKING."""


class RowProgress(Struct, frozen=True, gc=False, kw_only=True):
    """What was reported last of the work on a task."""

    generation: int
    updated_at: datetime
    fraction: float | None = None
    note: str = ""
    score: float | None = None
    """Score, context and phase are those that the holder's session has reported of itself."""
    context_percent: float | None = None
    phase: str = ""


class RowReview(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a task that waits for a review."""

    agent_id: str
    session_id: str
    generation: int
    submitted_at: datetime
    digest: str
    size: int
    causes: tuple[ReviewCause, ...]
    missing_evaluators: tuple[str, ...] = ()


class TaskRow(Struct, frozen=True, gc=False, kw_only=True):
    """A task as one row of a list."""

    id: str
    title: str
    state: Status
    priority: str
    track: str | None
    sequence: int | None
    phase: str
    tags: tuple[str, ...]
    parent: str | None
    generation: int
    holder: RowHolder | None
    """Whoever has an active claim, overdue or not."""
    attempts: int
    """How often it was granted since it was added or reset."""
    failures: int
    """Claims in a row that came to nothing."""
    progress: RowProgress | None
    waits_for: tuple[str, ...]
    """The first few of what keeps it blocked: dependencies, children, a time, or a text."""
    waits_for_count: int
    refused_results: int
    """Those that are still kept."""
    inputs_changed: tuple[str, ...]
    hold_reason: str | None
    hold_until: datetime | None
    review: RowReview | None
    """Of a task that is IN_REVIEW."""
    feedback: str | None
    """Why the last review ended without the result."""
    assigned_to: str | None
    human_required: bool
    done_by: str | None
    """The agent whose result was accepted."""
    created_at: datetime
    updated_at: datetime


class TaskPage(Struct, frozen=True, gc=False, kw_only=True):
    """A page of a list of tasks."""

    tasks: tuple[TaskRow, ...]
    total: int
    """Tasks that match all filters."""
    counts: Mapping[str, int]
    """By state, the tasks that match the filters other than the states."""
    next: str | None
    """`after` of the next page; None on the last one."""
    cursor: str
    """Of the feed: everything up to it is in this answer."""
    now: datetime


class SortBy(StrEnum):
    """What a list of tasks is sorted by."""

    ORDER = "order"
    """As they would be handed out."""
    PRIORITY = "priority"
    UPDATED = "updated"
    """What has changed last comes first."""
    STATE = "state"
    """What needs somebody first, then what moves, what is ready, blocked, and finished."""
    ID = "id"


class NeedKind(StrEnum):
    """Why a task or a result needs a person, the most urgent first."""

    LOST_HOLDER = "LOST_HOLDER"
    """Its holder's process is gone, its session has ended, or it has been silent for too long."""
    OVERDUE = "OVERDUE"
    """Its lease is over, and the policy leaves it to a person what becomes of that."""
    NOT_TAKEN_OVER = "NOT_TAKEN_OVER"
    """Its lease has been over for more than a minute, and nobody has taken it over."""
    HELD = "HELD"
    """Nobody is granted it until it is reopened."""
    IN_REVIEW = "IN_REVIEW"
    """Its result waits for a review."""
    REFUSED_RESULT = "REFUSED_RESULT"
    """A result was refused and is kept."""
    CYCLE = "CYCLE"
    """It waits for itself, through others."""
    IN_BACKLOG = "IN_BACKLOG"
    """Others wait for it, and nobody is offered it."""
    WAITS_FOR_PERSON = "WAITS_FOR_PERSON"
    """It waits for something that is no task."""


class Need(Struct, frozen=True, gc=False, kw_only=True):
    """Something that does not go on without a person."""

    kind: NeedKind
    task_id: str
    title: str
    state: Status
    generation: int
    """Of the task; of a refused result, the one that it was handed in at."""
    since: datetime
    why: str
    waited_for_by: int
    """How many tasks wait for it directly."""
    agent_id: str | None = None
    session_id: str | None = None
    refused_id: str | None = None
    size: int | None = None
    """Bytes of the refused result."""
    acts: tuple[str, ...] = ()
    """What could be done, the likeliest first: release, hold, reopen, edit, adopt, discard,
    approve or reject."""
    command: tuple[str, ...] = ()
    """The first of them as it is typed."""


class TrackCounts(Struct, frozen=True, gc=False, kw_only=True):
    """The tasks of one track, "" for those of none."""

    track: str
    purpose: str
    states: Mapping[str, int]
    total: int
    agents: tuple[str, ...]
    """Who works on it now."""


class MinuteCounts(Struct, frozen=True, gc=False):
    """What happened within one minute."""

    at: datetime
    claims: int = 0
    completions: int = 0
    refusals: int = 0
    denials: int = 0


class Rates(Struct, frozen=True, gc=False, kw_only=True):
    """What has happened of late. The figures are per minute, over `seconds`."""

    claims: float
    completions: float
    refusals: float
    denials: float
    seconds: float
    since: datetime
    """What happened before this is not counted in `minutes`."""
    minutes: tuple[MinuteCounts, ...]
    """The oldest first; a minute in which nothing happened is there, too."""


class CardTask(Struct, frozen=True, gc=False, kw_only=True):
    """A task that a session holds."""

    task_id: str
    title: str
    agent_id: str
    generation: int
    claimed_at: datetime
    expires_at: datetime | None
    """None: the claim has no lease."""
    lease_seconds: float
    health: HolderHealth
    why: str = ""
    fraction: float | None = None
    note: str = ""


class SessionCard(Struct, frozen=True, gc=False, kw_only=True):
    """A session, as a card."""

    session_id: str
    agent_id: str
    """The agent that works in it, or has handed in a result last; "" if tasks tell of none."""
    agent_type: str
    user_id: str
    host: str | None
    pid: int | None
    active: bool
    """Neither ended, nor gone, nor silent for longer than the policy allows."""
    process_gone: bool
    health: HolderHealth | None
    """The worst of its tasks'; None if it holds none."""
    tasks: tuple[CardTask, ...]
    """What it holds, claimed last first; at most ten."""
    tasks_held: int
    tasks_done: int
    """Tasks whose accepted result is this session's."""
    refused_results: int
    score: float | None = None
    context_percent: float | None = None
    phase: str = ""
    created_at: datetime
    last_sign: datetime
    metadata: Mapping[str, Any] = {}


class Refusal(Struct, frozen=True, gc=False, kw_only=True):
    """A result that was refused: what a session handed in after its claim was over."""

    refused_id: str
    task_id: str
    at: datetime
    agent_id: str
    session_id: str
    generation: int
    current_generation: int
    """Of the task, when it was refused."""
    reason: str
    why: str
    size: int
    state: RefusedState


class Overview(Struct, frozen=True, gc=False, kw_only=True):
    """A project at a glance."""

    tenant_id: str
    project_id: str
    now: datetime
    cursor: str
    """Of the feed: everything up to it is in this answer."""
    total: int
    states: Mapping[str, int]
    tracks: tuple[TrackCounts, ...]
    claims: int
    """Active claims, overdue ones included."""
    refused_results: int
    """Those that are still kept."""
    needs: tuple[Need, ...]
    """The most urgent first; at most `limit`."""
    needs_counts: Mapping[str, int]
    """All of them, by kind."""
    rates: Rates
    sessions: tuple[SessionCard, ...]
    """Those that hold something first, then those heard of last; at most `limit`."""
    sessions_count: int
    """All that have not ended."""
    next_up: tuple[TaskRow, ...]
    """What would be handed out next."""
    refusals: tuple[Refusal, ...]
    """The last ones, the newest first."""


class EventPage(Struct, frozen=True, gc=False, kw_only=True):
    """Events of a project, the newest first."""

    events: tuple[FeedEvent, ...]
    """Without `result_data`. Those of one task have no `cursor` of their own."""
    sentences: tuple[str, ...]
    """What each of them says, in words."""
    next: str | None
    """`before` of the next page; None when the oldest event that is kept was reached. A page may
    have fewer events than asked for, and still not be the last."""
    cursor: str
    """Of the feed: everything up to it that matches is in this page and those after it."""


class ClaimSpan(Struct, frozen=True, gc=False, kw_only=True):
    """A claim from its grant to its end."""

    agent_id: str
    session_id: str
    task_id: str
    generation: int
    start: datetime | None
    """None: before what was read of the feed."""
    end: datetime | None
    """None: it has not ended."""
    ended: ReleaseReason | None
    health: HolderHealth | None = None
    """Of a claim that has not ended."""
    user_id: str = ""
    """Of its session; "" if that is no longer known, or has none."""
    track: str | None = None
    """Of its task, as it is now."""


class Activity(Struct, frozen=True, gc=False, kw_only=True):
    """Who has worked on what, by claims."""

    spans: tuple[ClaimSpan, ...]
    """By agent, then by start."""
    since: datetime
    until: datetime
    known_since: datetime
    """Claims that ended before this are not in it, if it is later than `since`."""
    left_out: int
    """Spans beyond the limit: the shortest ones are left out."""
    cursor: str
    now: datetime


class ActOutcome(Struct, frozen=True, gc=False, kw_only=True):
    """What became of one task of several, or would become of it."""

    task_id: str
    verdict: Verdict | None = None
    """None: it was refused."""
    state: Status | None = None
    """After the act."""
    generation: int | None = None
    superseded: Holder | None = None
    """Whose claim it takes away."""
    error: str | None = None
    why: str = ""


class ActsResult(Struct, frozen=True, gc=False, kw_only=True):
    """What an act on several tasks did to each, or would do."""

    act: str
    dry_run: bool
    """Nothing was done; this is what would be."""
    matched: int
    done: int
    unchanged: int
    refused: int
    outcomes: tuple[ActOutcome, ...]
    """One for each task that matches, at most `limit`."""
    others: tuple[str, ...] = ()
    """Those of the named tasks that do not exist or do not match."""


class GraphNode(Struct, frozen=True, gc=False, kw_only=True):
    """A box: a task, or all tasks of a track."""

    id: str
    """Of the task; of a track, its name, "" for the tasks of none."""
    kind: str
    """`task` or `track`."""
    title: str
    track: str | None
    x: float
    """The layer, from 0: everything stands behind all that it waits for."""
    y: float
    """The row, from 0; a box is one row high."""
    state: Status | None = None
    generation: int = 0
    agent_id: str | None = None
    distance: int = 0
    """Around a task: how far away, negative towards what it waits for."""
    total: int = 1
    states: Mapping[str, int] = {}
    """Of a track, its tasks by state."""


class GraphEdge(Struct, frozen=True, gc=False, kw_only=True):
    """`target` waits for `source`, or has waited for it."""

    source: str
    target: str
    met: bool
    count: int = 1
    """Between tracks: for how many dependencies it stands."""
    bends: tuple[tuple[float, float], ...] = ()
    """Points on its way, as x and y, so that it runs under no box."""


class GraphLayout(Struct, frozen=True, gc=False, kw_only=True):
    """A graph with the place of each box."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    width: int
    height: float
    folded: bool
    """Is each box a track?"""
    total: int
    """Tasks that were asked for."""
    left_out: Mapping[str, int]
    """By state, those for which there are too many to draw; 500 boxes are drawn at most."""
    around: str | None
    cursor: str
    now: datetime
