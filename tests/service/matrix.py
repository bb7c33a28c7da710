"""The matrix of access: who asks, for what, where, on whose behalf, and what the answer has to be.

The expectation rests on `permissions.py`, which says literally who may do what, and on what the
words of the roles mean. Nothing here asks the service's own tables of routes, nor the code that
decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from genlock.service.openapi.examples import REQUESTS
from genlock.wire.headers import SESSION_HEADER
from tests.logs import PLANTED
from tests.service.permissions import API, OPERATIONS, Operation

ROLES = ["observer", "agent", "operator", "admin"]

# Who asks


class Caller(NamedTuple):
    """A key, or what somebody takes for one."""

    name: str
    role: str | None = None
    """None: no good key."""
    tenant: str = "acme"
    projects: str = "*"
    session: str | None = None
    signed_in: str | None = None
    """The caller by whose key it has signed in: it sends a cookie, and no key."""
    by_token: bool = False
    """Does it come by the token of a service on loopback? Where there are keys alone, that is no
    key."""

    def covers(self, role: str) -> bool:
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)

    def sees_tenant(self, tenant: str) -> bool:
        return self.tenant in ("*", tenant)

    def sees(self, tenant: str, project: str) -> bool:
        """The patterns of this matrix are `*` and `team-*`."""
        return self.sees_tenant(tenant) and (self.projects == "*" or project.startswith("team-"))

    @property
    def sees_all(self) -> bool:
        return self.tenant == "*" and self.projects == "*"


BAD = ["none", "wrong", "unknown", "malformed", "expired", "revoked", "old token"]
CALLERS = [
    *(Caller(name) for name in BAD),
    *(Caller(role, role) for role in ROLES),
    *(Caller(f"team {role}", role, projects="team-*") for role in ROLES[:3]),
    Caller("bound", "agent", session="s-own"),
    Caller("team bound", "agent", projects="team-*", session="s-own"),
    *(Caller(f"foreign {role}", role, "globex") for role in ROLES),
    Caller("root", "admin", "*"),
    Caller("root observer", "observer", "*"),
    Caller("signed in admin", "observer", signed_in="admin"),
    Caller("signed in bound", "observer", signed_in="bound"),
    Caller("signed in root", "observer", "*", signed_in="root"),
    Caller("token", "admin", "*", by_token=True),
    Caller("signed in by link", "observer", "*", signed_in="token", by_token=True),
]

# Where, and on whose behalf


class Place(NamedTuple):
    """A tenant and a project; `_` where none is meant."""

    tenant: str
    project: str


OWN = Place("acme", "team-a")
THERE = [OWN, Place("acme", "secret"), Place("globex", "team-a")]
MISSING = {
    Place("acme", "absent"): Place("acme", "secret"),
    Place("nobody", "team-a"): Place("globex", "team-a"),
}
"""Places that are not there, and for each one that is, with names of the same length."""
PLACES = [*THERE, *MISSING]
TENANTS = [Place(tenant, "_") for tenant in ("acme", "globex", "nobody")]
MISSING_TENANT = {Place("nobody", "_"): Place("globex", "_")}
STORE = Place("_", "_")

BOUND = {("acme", "s-own"), ("acme", "s-two")}
"""Sessions that have a key of their own."""
SESSIONS = ["s-own", "s-two", "s-free"]

# What is asked for


class Access(Enum):
    """What has to be the case besides a key."""

    OPEN = "nothing, not even a key"
    OPEN_WITH_KEYS = "nothing where there are keys alone; on loopback a key or the token"
    TOKEN = "the token of a service on loopback"
    ACTING = "a browser's sign-in to act, which no caller here has"
    ANYONE = "a key"
    STORE = "a key for all that the store has"
    TENANT = "a key of the tenant"
    WHOLE_TENANT = "a key of the tenant and all its projects"
    PROJECT = "a key that sees the project"


class Row(NamedTuple):
    """One thing to ask for."""

    name: str
    method: str
    path: str
    access: Access
    role: str = "observer"
    session: str | None = None
    """Where the session stands that it acts for: `body`, `path` or `header`; None if it acts for
    none."""
    body: str | None = None
    """As JSON."""
    whole_store: bool = False
    """Does the role have to be of the whole store?"""
    api: bool = False
    stream: bool = False

    @property
    def route(self) -> tuple[str, str]:
        """What it is a row of: method and path."""
        return self.method, self.path.partition("?")[0]


_TASK, _KEY_ID = "t-1", "k" * 12
_BODIES: dict[str, Any] = REQUESTS | {
    "adopt_result": {"refused_id": "t-1/1/s-own/0123456789abcdef", "generation": 1},
    "batch_act": {"act": "hold", "task_ids": [_TASK]},
    "batch_claim": {"agent_id": "ada", "task_ids": [_TASK]},
    "batch_renew": {"generations": {_TASK: 1}},
    "batch_submit": {"results": [{"task_id": _TASK, "generation": 1, "result_data": PLANTED}]},
    "discard_result": {"refused_id": "t-1/1/s-own/0123456789abcdef"},
    "submit_result": {
        "generation": 1,
        "result_data": {"said": PLANTED},
        "work_product_ref": PLANTED,
    },
    "create_key": {"name": "more", "role": "agent"},
    "set_tenant": {"limits": {"max_active_sessions": 60}},
}
_OPEN_ROWS = [
    *(
        Row(path, "GET", path, Access.OPEN)
        for path in ("/healthz", "/readyz", "/sign-in", "/favicon.svg", "/favicon.ico")
    ),
    *(Row(path, "GET", path, Access.OPEN_WITH_KEYS) for path in ("/openapi.json", "/docs")),
    Row("/sign-out", "POST", "/sign-out", Access.OPEN),
]
_LOOPBACK_ROWS = [Row("/sign-in/link", "POST", "/sign-in/link", Access.TOKEN)]
_PAGE_ROWS = [
    *(Row(path, "GET", path, Access.ANYONE) for path in ("/", "/p/t-1", "/status", "/projects")),
    Row("/assets", "GET", "/assets/t-1", Access.ANYONE),
    Row("/metrics", "GET", "/metrics", Access.STORE),
    Row("/sign-in/who", "GET", "/sign-in/who", Access.ANYONE),
    Row("/sign-in/stay", "POST", "/sign-in/stay", Access.ACTING),
]
_STREAM_ROWS = [
    Row("stream", "GET", "/v1/{tenant}/{project}/events/stream", Access.PROJECT, stream=True),
    Row("tenant stream", "GET", "/v1/{tenant}/events/stream", Access.TENANT, stream=True),
    Row("api events", "GET", "/api/events", Access.PROJECT, api=True, stream=True),
    Row(
        "some of a tenant's",
        "GET",
        "/v1/{tenant}/events/stream?project={project}",
        Access.PROJECT,
        stream=True,
    ),
]
_WITHIN = {"project": Access.PROJECT, "tenant": Access.WHOLE_TENANT, "store": Access.STORE}


def _row(operation: Operation) -> Row:
    name, method, path, role, session, within = operation
    path = f"/v1/{{tenant}}/{{project}}/{path}".replace(
        "{session_id}", "{session}" if session else "s-own"
    )
    if name == "check_push":
        path += f"?generation=1&commit={'0' * 40}"
    body = None if method == "GET" else json.dumps(_BODIES.get(name, {}))
    # What is about the whole store answers only who sees it all; a tenant's limits do as well, but
    # say so.
    return Row(name, method, path, _WITHIN[within], role, session, body, name == "set_tenant")


def _more() -> Iterator[Row]:
    """Where it depends on what is asked how much one has to be."""
    rows = {operation.name: _row(operation) for operation in OPERATIONS}
    for name, row in rows.items():
        if row.session == "body":
            yield row._replace(name=f"{name} by header", session="header")
    policy, adopt, register = rows["set_policy"], rows["adopt_result"], rows["register_session"]
    for change in ({"limits": {"max_active_sessions": 70}}, {"profile": "enterprise"}):
        yield policy._replace(
            name=f"set_policy {next(iter(change))}",
            body=json.dumps(change),
            role="admin",
            whole_store=True,
        )
    yield adopt._replace(
        name="adopt_result as operator", body=json.dumps(_BODIES["discard_result"]), role="operator"
    )
    yield rows["spawn_subtasks"]._replace(
        name="spawn_subtasks as planner", body='{"subtasks": ["first"]}', role="operator"
    )
    yield register._replace(
        name="register_session for another user", body='{"user_id": "eve"}', role="operator"
    )
    create = rows["create_key"]
    yield create._replace(name="create_key of an admin", body='{"name": "more", "role": "admin"}')
    yield create._replace(
        name="create_key of a session",
        body='{"name": "more", "role": "agent", "session_id": "s-new"}',
    )


def _api() -> Iterator[Row]:
    for name, method, path, role, session in API:
        path = f"/api/{path}".replace(
            "{name}", _TASK if "tasks/{" in path else "{session}" if session else "s-own"
        )
        yield Row(
            f"api {name}",
            method,
            path,
            Access.PROJECT,
            role,
            session,
            None if method == "GET" else "{}",
            api=True,
        )


_MCP_ROW = Row(
    "mcp",
    "POST",
    "/mcp?tenant={tenant}&project={project}",
    Access.PROJECT,
    body='{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}',
)
"""What a tool needs is that of its operations: see tests/mcp/test_http.py."""

ROWS = [
    *map(_row, OPERATIONS),
    _MCP_ROW,
    *_more(),
    *_api(),
    *_STREAM_ROWS,
    *_PAGE_ROWS,
    *_OPEN_ROWS,
    *_LOOPBACK_ROWS,
]

# Cells


class Cell(NamedTuple):
    """One request."""

    row: Row
    caller: Caller
    place: Place
    session: str

    def path(self, key_id: str = _KEY_ID) -> str:
        names = {
            "tenant": self.place.tenant,
            "project": self.place.project,
            "session": self.session,
            "task_id": _TASK,
            "key_id": key_id,
        }
        return self.row.path.format(**names)

    def body(self) -> Any:
        if self.row.body is None:
            return None
        body = json.loads(self.row.body)
        if self.row.session in ("body", "header"):
            sent = {name: value for name, value in body.items() if name != "session_id"}
            return sent | (
                {"sessionId" if self.row.api else "session_id": self.session}
                if self.row.session == "body"
                else {}
            )
        return body

    def headers(self) -> dict[str, str]:
        return {SESSION_HEADER: self.session} if self.row.session == "header" else {}


class Outcome(Enum):
    """Status and code of an answer."""

    NO_KEY = (401, "KEY_REFUSED")
    NOT_THERE = (404, "ROUTE_NOT_FOUND")
    REFUSED = (403, "ROLE_REFUSED")
    NOT_ITS_OWN = (403, "NOT_CLAIM_OWNER")
    LET_IN = (None, None)


def places_of(row: Row) -> list[Place]:
    if row.api:
        return [OWN]
    match row.access:
        case Access.PROJECT:
            return PLACES
        case Access.WHOLE_TENANT | Access.TENANT:
            # Keys may be of the whole store. An agent's may not.
            return (
                [*TENANTS, STORE]
                if row.name in ("create_key of an admin", "list_keys", "rotate_key", "revoke_key")
                else TENANTS
            )
        case _:
            return [STORE]


def rows(*, on_loopback: bool) -> list[Row]:
    """What there is to ask for: of a service on loopback, or of one that has keys alone."""
    return [row for row in ROWS if on_loopback or row.access is not Access.TOKEN]


def cells(*, on_loopback: bool) -> Iterator[Cell]:
    """Every one of them."""
    for row in rows(on_loopback=on_loopback):
        for caller in CALLERS:
            for place in places_of(row):
                for session in (
                    SESSIONS if row.session and caller.role is not None else SESSIONS[:1]
                ):
                    yield Cell(row, caller, place, session)


def expected(cell: Cell, *, on_loopback: bool) -> Outcome:
    """What the tables say."""
    row, caller, place, session = cell
    if row.access is Access.OPEN or (row.access is Access.OPEN_WITH_KEYS and not on_loopback):
        return Outcome.LET_IN
    if (
        caller.role is None
        or (caller.by_token and not on_loopback)
        or (caller.signed_in is not None and row.method != "GET")
    ):
        return Outcome.NO_KEY
    if row.access is Access.ACTING:
        return Outcome.NO_KEY
    if row.access is Access.TOKEN:
        return Outcome.LET_IN if caller.by_token else Outcome.REFUSED
    if not _there(row.access, caller, place):
        # Everybody knows that there is a store as a whole; only what is in it is not for everybody.
        return (
            Outcome.REFUSED if place == STORE and row.path.startswith("/v1/") else Outcome.NOT_THERE
        )
    if not caller.covers(row.role) or (row.whole_store and not caller.sees_all):
        return Outcome.REFUSED
    if row.session and not _may_act(caller, place.tenant, session, needs_own=row.api):
        return Outcome.NOT_ITS_OWN if row.api else Outcome.REFUSED
    return Outcome.LET_IN


def _there(access: Access, caller: Caller, place: Place) -> bool:
    match access:
        case Access.ANYONE | Access.OPEN_WITH_KEYS:
            return True
        case Access.STORE:
            return caller.sees_all
        case Access.TENANT:
            return caller.sees_tenant(place.tenant)
        case Access.WHOLE_TENANT:
            return (
                caller.sees_tenant("*" if place.tenant == "_" else place.tenant)
                and caller.projects == "*"
            )
        case _:
            return caller.sees(*place)


def _may_act(caller: Caller, tenant: str, session: str, *, needs_own: bool) -> bool:
    if caller.covers("operator"):
        return True
    if caller.session is not None or needs_own:
        return caller.session == session
    return (tenant, session) not in BOUND
