"""The table of routes under /api: path, role, request and answer."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from genlock.service.session_api import messages as m
from genlock.wire.operations import AGENT, OBSERVER, OPERATOR

PREFIX: Final = "/api"
EVENTS: Final = "events"
"""The event stream, which is no ordinary endpoint."""


class ApiRoute(NamedTuple):
    """One endpoint."""

    name: str
    method: str
    path: str
    role: str
    request: type[Struct]
    """The type of the query for GET, else of the body."""
    answer: type[Struct]
    session: str | None = None
    """Whose session it acts for: "path", or "body". With keys on, that needs the session's own."""
    what: str = ""


ROUTES: Final = (
    ApiRoute(
        "claim",
        "POST",
        "tasks/{name}/claim",
        AGENT,
        m.ClaimRequest,
        m.Claimed,
        "body",
        "Claim a task for a session",
    ),
    ApiRoute(
        "release",
        "POST",
        "tasks/{name}/release",
        AGENT,
        m.ReleaseRequest,
        m.Released,
        "body",
        "Release a claimed task",
    ),
    ApiRoute(
        "heartbeat",
        "POST",
        "tasks/{name}/claim/heartbeat",
        AGENT,
        m.HeartbeatRequest,
        m.Beaten,
        "body",
        "Extend a claim",
    ),
    ApiRoute(
        "in_flight",
        "GET",
        "tasks/in-flight",
        OBSERVER,
        m.InFlightQuery,
        m.InFlight,
        None,
        "All claimed tasks",
    ),
    ApiRoute(
        "current_task",
        "GET",
        "sessions/{name}/current-task",
        OBSERVER,
        m.Nothing,
        m.SessionTask,
        None,
        "A session's current task",
    ),
    ApiRoute(
        "cleanup",
        "POST",
        "tasks/claims/cleanup",
        OPERATOR,
        m.Nothing,
        m.Cleanup,
        None,
        "Clean up lost claims",
    ),
    ApiRoute(
        "stats",
        "GET",
        "tasks/claims/stats",
        OBSERVER,
        m.Nothing,
        m.Stats,
        None,
        "Claims in numbers",
    ),
    ApiRoute(
        "summary",
        "GET",
        "sessions/summary",
        OBSERVER,
        m.Nothing,
        m.Summary,
        None,
        "The sessions, and what each does",
    ),
    ApiRoute(
        "session_heartbeat",
        "POST",
        "sessions/{name}/heartbeat",
        AGENT,
        m.SessionHeartbeatRequest,
        m.SessionBeaten,
        "path",
        "Say that a session lives",
    ),
    ApiRoute(
        "status",
        "GET",
        "status",
        OBSERVER,
        m.Nothing,
        m.ProjectHealth,
        None,
        "How the project is doing",
    ),
    ApiRoute(
        "start",
        "POST",
        "start",
        OBSERVER,
        m.StartRequest,
        m.Start,
        None,
        "What an agent should take",
    ),
)
