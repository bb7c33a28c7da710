"""The answers behind lists and dashboards: rows of tasks, and a project at a glance.

They describe the project at one cursor of its feed. A client that follows the feed from that cursor
on misses nothing.
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
    """The health of a task's holder, from best to worst."""

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
    """The holder of a task, and its health."""

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
    """The reason, in words, why the health is not WORKING."""


class RowProgress(Struct, frozen=True, gc=False, kw_only=True):
    """The last report of the work on a task."""

    generation: int
    updated_at: datetime
    fraction: float | None = None
    note: str = ""
    score: float | None = None
    """The holder's session reported score, context and phase of itself."""
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
    """The holder of an active claim, overdue or not."""
    attempts: int
    """The number of grants since the task was added or reset."""
    failures: int
    """The number of claims in a row that failed."""
    progress: RowProgress | None
    waits_for: tuple[str, ...]
    """The first few things that keep it blocked: dependencies, children, a time, or a text."""
    waits_for_count: int
    refused_results: int
    """The number that is still kept."""
    inputs_changed: tuple[str, ...]
    hold_reason: str | None
    hold_until: datetime | None
    review: RowReview | None
    """Set for a task that is IN_REVIEW."""
    feedback: str | None
    """The reason why the last review did not accept the result."""
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
    """The number of tasks that match all filters."""
    counts: Mapping[str, int]
    """By state, the number of tasks that match the filters other than the states."""
    next: str | None
    """`after` of the next page; None on the last one."""
    cursor: str
    """The cursor of the feed: this answer includes everything up to it."""
    now: datetime


class SortBy(StrEnum):
    """The order of a list of tasks."""

    ORDER = "order"
    """The order in which they would be granted."""
    PRIORITY = "priority"
    UPDATED = "updated"
    """The last change first."""
    STATE = "state"
    """First the tasks that need a person, then those in progress, ready, blocked and finished."""
    ID = "id"


class NeedKind(StrEnum):
    """The reason why a task or a result needs a person, the most urgent first."""

    LOST_HOLDER = "LOST_HOLDER"
    """Its holder's process is gone, its session has ended, or it has been silent for too long."""
    OVERDUE = "OVERDUE"
    """Its lease is over, and the policy leaves the decision to a person."""
    NOT_TAKEN_OVER = "NOT_TAKEN_OVER"
    """Its lease has been over for more than a minute, and no agent has taken it over."""
    HELD = "HELD"
    """It is not granted until it is reopened."""
    IN_REVIEW = "IN_REVIEW"
    """Its result waits for a review."""
    REFUSED_RESULT = "REFUSED_RESULT"
    """A result was refused and is kept."""
    CYCLE = "CYCLE"
    """It waits for itself through other tasks."""
    IN_BACKLOG = "IN_BACKLOG"
    """Other tasks wait for it, and it is not offered to any agent."""
    WAITS_FOR_PERSON = "WAITS_FOR_PERSON"
    """It waits for something that is not a task."""


class Need(Struct, frozen=True, gc=False, kw_only=True):
    """A task or result that makes no progress without a person."""

    kind: NeedKind
    task_id: str
    title: str
    state: Status
    generation: int
    """The generation of the task; for a refused result, the one under which it was submitted."""
    since: datetime
    why: str
    waited_for_by: int
    """The number of tasks that wait for it directly."""
    agent_id: str | None = None
    session_id: str | None = None
    refused_id: str | None = None
    size: int | None = None
    """The size of the refused result in bytes."""
    acts: tuple[str, ...] = ()
    """The possible actions, the likeliest first: release, hold, reopen, edit, adopt, discard,
    approve or reject."""
    command: tuple[str, ...] = ()
    """The first action as a command to type."""


class TrackCounts(Struct, frozen=True, gc=False, kw_only=True):
    """The tasks of one track; the track "" has the tasks without a track."""

    track: str
    purpose: str
    states: Mapping[str, int]
    total: int
    agents: tuple[str, ...]
    """The agents that work on it now."""


class MinuteCounts(Struct, frozen=True, gc=False):
    """The counts of events within one minute."""

    at: datetime
    claims: int = 0
    completions: int = 0
    refusals: int = 0
    denials: int = 0


class Rates(Struct, frozen=True, gc=False, kw_only=True):
    """The recent activity. The figures are per minute, over `seconds`."""

    claims: float
    completions: float
    refusals: float
    denials: float
    seconds: float
    since: datetime
    """Events before this time are not counted in `minutes`."""
    minutes: tuple[MinuteCounts, ...]
    """The oldest first, including minutes in which nothing happened."""


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
    """A session as a card of the dashboard."""

    session_id: str
    agent_id: str
    """The agent that works in it, or the one that submitted a result last; "" if no task names
    one."""
    agent_type: str
    user_id: str
    host: str | None
    pid: int | None
    active: bool
    """Neither ended, nor gone, nor silent for longer than the policy allows."""
    process_gone: bool
    health: HolderHealth | None
    """The worst health among its tasks; None if it holds none."""
    tasks: tuple[CardTask, ...]
    """The tasks that it holds, the last claimed first; at most ten."""
    tasks_held: int
    tasks_done: int
    """The number of tasks whose accepted result came from this session."""
    refused_results: int
    score: float | None = None
    context_percent: float | None = None
    phase: str = ""
    created_at: datetime
    last_sign: datetime
    metadata: Mapping[str, Any] = {}


class Refusal(Struct, frozen=True, gc=False, kw_only=True):
    """A refused result: a session submitted it after its claim was over."""

    refused_id: str
    task_id: str
    at: datetime
    agent_id: str
    session_id: str
    generation: int
    current_generation: int
    """The generation of the task when the result was refused."""
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
    """The cursor of the feed: this answer includes everything up to it."""
    total: int
    states: Mapping[str, int]
    tracks: tuple[TrackCounts, ...]
    claims: int
    """Active claims, overdue ones included."""
    refused_results: int
    """The number that is still kept."""
    needs: tuple[Need, ...]
    """The most urgent first; at most `limit`."""
    needs_counts: Mapping[str, int]
    """The number of all needs, by kind."""
    rates: Rates
    sessions: tuple[SessionCard, ...]
    """Sessions that hold a task first, then the most recently active; at most `limit`."""
    sessions_count: int
    """The number of sessions that have not ended."""
    next_up: tuple[TaskRow, ...]
    """The tasks that would be granted next."""
    refusals: tuple[Refusal, ...]
    """The last refusals, the newest first."""


class EventPage(Struct, frozen=True, gc=False, kw_only=True):
    """Events of a project, the newest first."""

    events: tuple[FeedEvent, ...]
    """Without `result_data`. Those of one task have no `cursor` of their own."""
    sentences: tuple[str, ...]
    """Each event as a sentence."""
    next: str | None
    """`before` of the next page; None when the page reaches the oldest event that is kept. A page
    may have fewer events than requested and still not be the last."""
    cursor: str
    """The cursor of the feed: this page and the pages after it have every matching event up to
    it."""


class ClaimSpan(Struct, frozen=True, gc=False, kw_only=True):
    """A claim from its grant to its end."""

    agent_id: str
    session_id: str
    task_id: str
    generation: int
    start: datetime | None
    """None: it began before the part of the feed that was read."""
    end: datetime | None
    """None: it has not ended."""
    ended: ReleaseReason | None
    health: HolderHealth | None = None
    """Set for a claim that has not ended."""
    user_id: str = ""
    """The user of its session; "" if the session is no longer known or has no user."""
    track: str | None = None
    """The present track of its task."""


class Activity(Struct, frozen=True, gc=False, kw_only=True):
    """Which agent has worked on which task, by claims."""

    spans: tuple[ClaimSpan, ...]
    """Sorted by agent, then by start."""
    since: datetime
    until: datetime
    known_since: datetime
    """Claims that ended before this time are missing, if it is later than `since`."""
    left_out: int
    """The number of spans beyond the limit. The shortest ones are left out."""
    cursor: str
    now: datetime


class ActOutcome(Struct, frozen=True, gc=False, kw_only=True):
    """The outcome for one task of several, or the outcome that a dry run predicts."""

    task_id: str
    verdict: Verdict | None = None
    """None: it was refused."""
    state: Status | None = None
    """The state of the task after the command."""
    generation: int | None = None
    superseded: Holder | None = None
    """The holder whose claim is superseded."""
    error: str | None = None
    why: str = ""


class ActsResult(Struct, frozen=True, gc=False, kw_only=True):
    """The outcomes of a command on several tasks, or those that a dry run predicts."""

    act: str
    dry_run: bool
    """True: nothing was changed; the outcomes are a prediction."""
    matched: int
    done: int
    unchanged: int
    refused: int
    outcomes: tuple[ActOutcome, ...]
    """One outcome for each matching task, at most `limit`."""
    others: tuple[str, ...] = ()
    """The named tasks that do not exist or do not match."""


class GraphNode(Struct, frozen=True, gc=False, kw_only=True):
    """A box: a task, or all tasks of a track."""

    id: str
    """The id of the task, or the name of the track; "" for the tasks without a track."""
    kind: str
    """`task` or `track`."""
    title: str
    track: str | None
    x: float
    """The layer, from 0: each box stands behind all boxes that it waits for."""
    y: float
    """The row, from 0; a box is one row high."""
    state: Status | None = None
    generation: int = 0
    agent_id: str | None = None
    distance: int = 0
    """In a graph around a task: the distance from it, negative towards its dependencies."""
    total: int = 1
    states: Mapping[str, int] = {}
    """For a track: the number of its tasks by state."""


class GraphEdge(Struct, frozen=True, gc=False, kw_only=True):
    """A dependency: `target` waits for `source`, or has waited for it."""

    source: str
    target: str
    met: bool
    count: int = 1
    """Between tracks: the number of dependencies that the edge stands for."""
    bends: tuple[tuple[float, float], ...] = ()
    """Points on its way, as x and y, that keep it from running under a box."""


class GraphLayout(Struct, frozen=True, gc=False, kw_only=True):
    """A graph with the position of each box."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    width: int
    height: float
    folded: bool
    """Is each box a track?"""
    total: int
    """The number of tasks that were requested."""
    left_out: Mapping[str, int]
    """By state, the number of tasks that are not drawn. At most 500 boxes are drawn."""
    around: str | None
    cursor: str
    now: datetime
