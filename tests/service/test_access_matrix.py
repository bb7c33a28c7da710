"""Access, as a generated matrix: every route of the service, every kind of caller, own and foreign
tenants, projects and sessions.

One service answers all of it. What has to be refused is asked first, and then the store has to be
as it was; what is let in follows.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import pytest
from starlette.routing import Route

from genlock.core.key_roles import FRESH_BYTES, compose, write_key
from genlock.core.keys import NOWHERE
from genlock.service.app import App
from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.compose import Choices
from genlock.service.openapi.document import document, path_of
from genlock.service.session_api.routes import ROUTES as API_ROUTES
from genlock.service.web.sign_in import link_of
from genlock.store import EventQuery
from genlock.testing.clock import ManualClock
from genlock.wire.headers import REQUEST_HEADER
from genlock.wire.operations import ROUTES
from genlock.wire.operations import Route as Operated
from tests.logs import build
from tests.servers.service import Service, serving
from tests.service.matrix import (
    BOUND,
    CALLERS,
    MISSING,
    MISSING_TENANT,
    OWN,
    PLACES,
    ROWS,
    THERE,
    Access,
    Cell,
    Outcome,
    cells,
    expected,
    rows,
)
from tests.service.permissions import API, OPERATIONS
from tests.service.pipeline import Answer, Pipeline, Request

LEAST_CELLS = 8_000
NEVER_OF_ONE_LET_IN = {400, 401, 403, 405, 413, 415, 421, 422, 426, 500}
"""These would mean that a request of ours was wrong, and that its being let in shows nothing."""

_NUMBER = {REQUEST_HEADER: "matrix"}

R = TypeVar("R")


def code_of(answer: Answer) -> str | None:
    """The problem's, or under /api the refusal's."""
    told = json.loads(answer.body) if answer.body.startswith(b"{") else {}
    code: str | None = told.get("code") or told.get("error")
    return code


def renamed(answer: Answer, names: Iterable[tuple[str, str]]) -> Answer:
    """As it would be with other names."""
    body = answer.body
    for mine, theirs in names:
        body = body.replace(mine.encode(), theirs.encode())
    return answer._replace(body=body)


class House:
    """The service, its keys, and one connection to it."""

    def __init__(
        self, service: Service, app: App, clock: ManualClock, token: LocalToken | None
    ) -> None:
        self.service, self.app, self._clock, self._token = service, app, clock, token
        self.texts: dict[str, str | None] = {}
        self.cookies: dict[str, str] = {}
        self._pipeline = Pipeline(urlsplit(service.url).port or 0)
        self.victims: dict[str, str] = {}
        """Keys by tenant, for who wants to rotate or revoke one."""

    def do(self, asked: Coroutine[Any, Any, R]) -> R:
        """Something past the service."""
        assert self.service.loop is not None
        return asyncio.run_coroutine_threadsafe(asked, self.service.loop).result(30)

    async def furnish(self) -> None:
        """Projects, sessions and keys."""
        fleet = self.service.coordinator
        assert fleet is not None
        for tenant, project in THERE:
            await fleet.add_tasks(tasks=["t-1", "t-2", "t-3"], tenant_id=tenant, project_id=project)
        for caller in CALLERS:
            if caller.role is not None and caller.signed_in is None and not caller.by_token:
                scope: dict[str, Any] = {
                    "tenant_id": caller.tenant,
                    "projects": caller.projects,
                    "session_id": caller.session,
                }
                self.texts[caller.name] = (
                    await fleet.create_key(name=f"the {caller.name}", role=caller.role, **scope)
                ).text
        for tenant, session in BOUND - {("acme", "s-own")}:
            await fleet.create_key(
                name="its own", role="agent", tenant_id=tenant, session_id=session
            )
        for tenant in ("acme", "globex", "*"):
            self.victims[tenant] = (
                await fleet.create_key(name="victim", role="admin", tenant_id=tenant)
            ).key.key_id
        await self._bad_keys()

    async def _bad_keys(self) -> None:
        fleet = self.service.coordinator
        assert fleet is not None
        good = await fleet.create_key(name="wrong", role="admin", tenant_id="*")
        revoked = await fleet.create_key(name="revoked", role="admin", tenant_id="*")
        expired = await fleet.create_key(
            name="expired", role="admin", tenant_id="*", expires_in_seconds=5
        )
        await fleet.revoke_key(key_id=revoked.key.key_id, tenant_id="*")
        self._clock.advance(6)
        self.texts |= {
            "none": None,
            "wrong": write_key(compose(bytes(FRESH_BYTES), good.key.key_id)),
            "unknown": write_key(compose(bytes(FRESH_BYTES))),
            "malformed": good.text[:-1],
            "expired": expired.text,
            "revoked": revoked.text,
            "old token": LocalToken().text,
            "token": LocalToken().text if self._token is None else self._token.text,
        }

    def sign_in(self) -> None:
        """Those who come by a cookie: by then their keys are there."""
        for caller in CALLERS:
            if caller.signed_in is None:
                continue
            if not caller.by_token:
                answer = self.service.http.post(
                    "/sign-in", data={"key": self.texts[caller.signed_in]}
                )
            elif self._token is not None:
                answer = self.service.http.get(link_of(self._token))
            else:
                self.cookies[caller.name] = "genlock_sign_in=localservice.9999999999." + "0" * 64
                continue
            assert answer.status_code == 303
            self.cookies[caller.name] = answer.headers["set-cookie"].partition(";")[0]
        self.service.http.cookies.clear()

    def answers(self, every: list[Cell]) -> dict[Cell, Answer]:
        """The answer to each cell."""
        return dict(zip(every, self._pipeline.ask(map(self._request, every)), strict=True))

    def _request(self, cell: Cell) -> Request:
        victim = self.victims.get("*" if cell.place.tenant == "_" else cell.place.tenant, "k" * 12)
        return self._keyed(
            cell.row.method,
            cell.path(victim),
            cell.body(),
            cell.caller.name,
            cell.headers(),
            cell.row.stream,
        )

    def _keyed(
        self,
        method: str,
        path: str,
        body: Any,
        who: str,
        headers: dict[str, str],
        stream: bool = False,
    ) -> Request:
        """Every one has the same number, so that answers can be compared."""
        key, cookie = self.texts.get(who), self.cookies.get(who)
        shown = (
            {"cookie": cookie}
            if cookie is not None
            else {}
            if key is None
            else {"authorization": f"Bearer {key}"}
        )
        return Request(method, path, body, headers | _NUMBER | shown, stream)

    def send(
        self, method: str, path: str, body: Any, who: str, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request."""
        return next(self._pipeline.ask([self._keyed(method, path, body, who, headers or {})]))

    def all_events(self) -> list[bytes]:
        """What every feed has, that of tenants and keys too."""
        assert self.service.coordinator is not None
        store = self.service.coordinator.engine.store
        found: list[bytes] = []
        for place in (*PLACES, (NOWHERE, NOWHERE)):
            page = store.read_events(EventQuery(*place, limit=1000))
            assert not page.more
            found += [event.body for event in page.events]
        return found

    def close(self) -> None:
        self._pipeline.close()


class Run(NamedTuple):
    """All of the matrix."""

    on_loopback: bool
    house: House
    answers: dict[Cell, Answer]
    before: list[bytes]
    after_refusals: list[bytes]

    def expected(self, cell: Cell) -> Outcome:
        return expected(cell, on_loopback=self.on_loopback)


@pytest.fixture(scope="module", params=["keys", "loopback"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A service that has keys alone, and one on loopback, which also takes its token."""
    on_loopback = request.param == "loopback"
    token = LocalToken() if on_loopback else None
    clock = ManualClock()
    apps: list[App] = []

    def make(coordinator: Any) -> App:
        apps.append(
            build(
                coordinator,
                Choices(
                    keys=not on_loopback,
                    token=token,
                    api_tenant=OWN.tenant,
                    api_project=OWN.project,
                ),
            )
        )
        return apps[0]

    with serving(clock=clock, app=make) as service, ExitStack() as stack:
        house = stack.enter_context(closing(House(service, apps[0], clock, token)))
        house.do(house.furnish())
        house.sign_in()
        every = sorted(
            cells(on_loopback=on_loopback),
            key=lambda cell: expected(cell, on_loopback=on_loopback) is Outcome.LET_IN,
        )
        refused = [
            cell for cell in every if expected(cell, on_loopback=on_loopback) is not Outcome.LET_IN
        ]
        before = house.all_events()
        answers = house.answers(refused)
        after = house.all_events()
        answers |= house.answers(every[len(refused) :])
        yield Run(on_loopback, house, answers, before, after)


def test_every_cell_is_answered_as_the_tables_say(run: Run) -> None:
    wrong = [
        f"{cell.row.name} by {cell.caller.name} at {'/'.join(cell.place)} for {cell.session}: "
        f"{run.expected(cell).name}, got {answer.status} {answer.body[:150]!r}"
        for cell, answer in run.answers.items()
        if not _as_expected(run.expected(cell), answer)
    ]
    sums = Counter(run.expected(cell).name for cell in run.answers)
    print(
        f"\nmatrix of access: {len(ROWS)} things to ask for, {len(CALLERS)} callers, "
        f"{len(run.answers):,} cells, {len(wrong)} wrong"
    )
    print(
        ", ".join(
            f"{name.lower().replace('_', ' ')} {count:,}" for name, count in sums.most_common()
        )
    )
    assert not wrong, f"{len(wrong)} of {len(run.answers)}:\n" + "\n".join(wrong[:40])
    assert len(run.answers) >= LEAST_CELLS
    assert set(sums) == {outcome.name for outcome in Outcome}, "every outcome occurs"


def _as_expected(outcome: Outcome, answer: Answer) -> bool:
    if outcome is Outcome.LET_IN:
        return answer.status not in NEVER_OF_ONE_LET_IN and code_of(answer) not in (
            "ROUTE_NOT_FOUND",
            "NOT_CLAIM_OWNER",
        )
    found: bool = (answer.status, code_of(answer)) == outcome.value
    return found


def test_every_operation_has_the_role_and_the_reach_that_are_written_down() -> None:
    found = {
        (
            route.name,
            route.method,
            route.path,
            str(route.role),
            _session_of(route),
            route.within.name.lower(),
        )
        for route in ROUTES
    }
    assert found == set(OPERATIONS)
    assert {
        (route.name, route.method, route.path, str(route.role), route.session)
        for route in API_ROUTES
    } == set(API)


def _session_of(route: Operated) -> str | None:
    return None if not route.fenced else "path" if route.variable == "session_id" else "body"


def test_every_route_that_the_service_has_is_in_the_matrix(run: Run) -> None:
    pages = run.house.app._pages.routes
    assert all(isinstance(route, Route) for route in pages), (
        "a mount hides routes: tell the matrix of them"
    )
    asked = {_shape(*row.route) for row in rows(on_loopback=run.on_loopback)}
    serves = {_shape("GET", route.path) for route in pages if isinstance(route, Route)}
    assert {path for _, path in serves} <= {path for _, path in asked}
    told = {
        _shape(method, path)
        for path, methods in document(keys=True)["paths"].items()
        for method in methods
        if method != "parameters"
    }
    assert told <= asked
    assert {_shape(route.method, path_of(route)) for route in ROUTES} <= asked
    assert {path for _, path in asked} == {path for _, path in serves | told}


def _shape(method: str, path: str) -> tuple[str, str]:
    """Without the names of what is a name: ours differ, and where no project is meant the document
    says so."""
    parts = path.strip("/").split("/")
    names = {"t-1", "s-own", "_"}
    return method.upper(), "/".join(
        "*" if part.startswith("{") or part in names else part for part in parts
    )


def test_every_route_lets_somebody_in_and_keeps_somebody_out(run: Run) -> None:
    for row in rows(on_loopback=run.on_loopback):
        outcomes = {run.expected(cell) for cell in run.answers if cell.row == row}
        if row.access is Access.ACTING:
            continue  # only a browser with an acting ticket: see web/test_acting.py
        assert Outcome.LET_IN in outcomes, row.name
        assert len(outcomes) > 1 or row.access in (Access.OPEN, Access.OPEN_WITH_KEYS), row.name


def test_what_is_foreign_answers_exactly_like_what_is_not_there(run: Run) -> None:
    compared = 0
    for cell, answer in run.answers.items():
        there = {**MISSING, **MISSING_TENANT}.get(cell.place)
        if there is None or run.expected(cell) is not Outcome.NOT_THERE:
            continue
        like = cell._replace(place=there)
        if run.expected(like) is Outcome.NOT_THERE:
            assert answer == renamed(run.answers[like], zip(like.place, cell.place, strict=True)), (
                cell
            )
            compared += 1
    assert compared > 500
    print(f"\nforeign like missing, byte for byte: {compared:,} pairs")


def test_what_was_refused_changed_nothing(run: Run) -> None:
    assert len(run.before) > 20
    assert run.after_refusals == run.before
    assert len(run.house.all_events()) > len(run.before), "what was let in did change something"


@pytest.mark.parametrize("act", ["rotate", "revoke"])
def test_a_tenant_s_admin_finds_no_other_tenant_s_key_nor_one_of_the_whole_store(
    run: Run, act: str
) -> None:
    missing = "a" * 12
    path = f"/v1/acme/_/keys/{missing}/{act}"
    none = run.house.send("POST", path, {}, "admin")
    assert (none.status, code_of(none)) == (404, "KEY_NOT_FOUND")
    before = run.house.all_events()
    for tenant in ("globex", "*"):
        victim = run.house.victims[tenant]
        answer = run.house.send("POST", path.replace(missing, victim), {}, "admin")
        assert renamed(answer, [(victim, missing)]) == none
    assert run.house.all_events() == before


def test_who_acts_stands_in_the_event_with_the_key_s_name_its_role_and_the_address(
    run: Run,
) -> None:
    house, said = run.house, {"genlock-user": "mallory", "genlock-host": "desk"}
    body = {"tasks": ["by-key"]}
    assert house.send("POST", "/v1/acme/secret/tasks", body, "operator", said).status == 200
    claim = {"session_id": "s-actor", "agent_id": "ada"}
    assert (
        house.send("POST", "/v1/acme/secret/tasks/by-key/claim", claim, "agent", said).status == 200
    )
    assert (
        house.send(
            "POST", "/v1/acme/secret/sessions", {"session_id": "s-named"}, "agent", said
        ).status
        == 200
    )
    other = {"session_id": "s-other", "user_id": "eve"}
    assert house.send("POST", "/v1/acme/secret/sessions", other, "operator", said).status == 200
    same = {"session_id": "s-same", "user_id": "the agent"}
    assert house.send("POST", "/v1/acme/secret/sessions", same, "agent", said).status == 200
    feed = json.loads(house.send("GET", "/v1/acme/secret/events?limit=1000", None, "observer").body)
    actors = {
        (event["event_type"], event["id"]): event["event"].get("actor") for event in feed["events"]
    }
    agent = {"user_id": "the agent", "client_ip": "127.0.0.1", "host": "desk", "role": "agent"}
    operator = agent | {"user_id": "the operator", "role": "operator"}
    assert actors["TASK_ADDED", "by-key"] == operator
    assert actors["CLAIM_ACQUIRED", "by-key"] == agent
    assert actors["SESSION_REGISTERED", "s-named"] == agent
    assert actors["SESSION_REGISTERED", "s-same"] == agent
    assert actors["SESSION_REGISTERED", "s-other"] == operator | {"user_id": "eve"}


def test_an_agent_that_names_another_user_is_told_whose_name_counts(run: Run) -> None:
    body = {"session_id": "s-raised", "user_id": "the operator"}
    answer = run.house.send("POST", "/v1/acme/secret/sessions", body, "agent")
    assert (answer.status, code_of(answer)) == (403, "ROLE_REFUSED")
    assert "the name of its key, 'the agent'" in json.loads(answer.body)["detail"]


def test_who_may_not_set_limits_is_told_which_key_may_and_how_it_is_made(run: Run) -> None:
    answer = run.house.send(
        "PATCH", "/v1/acme/secret/policy", {"limits": {"max_active_sessions": 3}}, "operator"
    )
    assert (answer.status, code_of(answer)) == (403, "ROLE_REFUSED")
    assert (
        "genlock keys create NAME --role admin --all-tenants" in json.loads(answer.body)["detail"]
    )
