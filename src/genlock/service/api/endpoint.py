"""One operation over HTTP: takes keywords from the request, calls the coordinator's method, and
encodes its answer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final, Generic, TypeVar

from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.core.key_roles import EVERYWHERE, Role
from genlock.core.results import TaskClaim
from genlock.errors import BadArgument, RoleRefused
from genlock.messages import Context
from genlock.plans import PlanFile
from genlock.service.api.request import Keywords
from genlock.service.auth.permissions import Grant
from genlock.service.request import PROBLEM, Answer, asides
from genlock.service.responses import LongAnswer
from genlock.wire.answers import encode_answer, encode_in_pieces
from genlock.wire.headers import OPERATION_HEADER
from genlock.wire.operations import ADMIN, OPERATOR, Body, Route, Within
from genlock.wire.problems import REASONS, REFUSALS, refusal_of

_OPERATION: Final = OPERATION_HEADER.encode()
_MEGABYTE: Final = 1 << 20
_PLAN_BYTES: Final = 4 * _MEGABYTE
"""Enough for twenty thousand tasks, which take at most a minute to parse."""
_MANY: Final = 1000
_OPERATOR_WITHOUT_GENERATION: Final = {
    "adopt_result": "adopt a result",
    "spawn_subtasks": "split a task",
}
"""Operations that need the role of an agent with a generation, and of an operator without."""
_DEFAULT: Final = "default"
"""The default tenant and project of commands."""
_IN_PARTS: Final = (
    "import a larger plan in parts, without prune, or beside the store with `genlock plan import`"
)


class Endpoint:
    """One operation of the table."""

    def __init__(self, route: Route, most_bytes: int) -> None:
        self.route = route
        self.name = route.name
        self.keywords = Keywords(route)
        self.method: Callable[..., Awaitable[Any]] = getattr(AsyncCoordinator, route.name)
        self.blocking: Callable[..., Any] = getattr(Coordinator, route.name)
        """The coordinator's blocking method, for use in a thread."""
        self.has_result = route.body is Body.RESULT
        limits = {Body.SMALL: _MEGABYTE, Body.PLAN: _PLAN_BYTES, Body.RESULT: most_bytes}
        self.most_bytes = min(most_bytes, limits[route.body])
        self.advice = _IN_PARTS if route.body is Body.PLAN else ""
        self._may_change_limits = route.name in ("set_tenant", "set_policy")
        self.in_tenant = "tenant_id" in route.call.__struct_fields__
        self.in_project = "project_id" in route.call.__struct_fields__
        self.in_store = route.within is Within.STORE
        self.variable = route.variable
        self._takes_operation = self.keywords.takes_operation
        self.fenced = route.fenced
        self.reads_body = route.method != "GET"
        self.looks = route.repeatable
        self.waits = route.name == "claim_next"
        self.names_user = "user_id" in self.keywords.type.__struct_fields__
        self._roles = frozenset(role for role in Role if role.covers(route.role))
        """The roles that permit this operation."""
        self._states_role = route.fenced and "agent_role" in self.keywords.type.__struct_fields__
        self._needs_one_role = not (
            self._may_change_limits
            or self.names_user
            or self._states_role
            or route.name in _OPERATOR_WITHOUT_GENERATION
        )
        """Is the role the only permission to check?"""
        self.takes_plan = "source" in self.keywords.type.__struct_fields__

    def arguments(
        self,
        place: tuple[str, str],
        name: str | None,
        given: dict[str, Any],
        headers: dict[bytes, bytes],
    ) -> dict[str, Any]:
        """The keywords for the coordinator's method."""
        if self.in_tenant:
            given["tenant_id"] = place[0]
        if self.in_project:
            given["project_id"] = place[1]
        if self.variable is not None:
            given[self.variable] = name
        if self._takes_operation and _OPERATION in headers:
            _take_operation(given, headers[_OPERATION])
        if self.takes_plan and isinstance(given["source"], list):
            given["source"] = [PlanFile(*file) for file in given["source"]]
        return given

    def permit_at_all(self, grant: Grant) -> None:
        """Raises RoleRefused if the role does not permit this operation with any keywords."""
        if grant.role not in self._roles:
            raise RoleRefused(
                f"{self.name.replace('_', ' ')!r} needs the role {self.route.role}; this key has "
                f"the role {grant.role}"
            )

    def permit(self, grant: Grant, speaker: AsyncCoordinator, given: dict[str, Any]) -> None:
        """Raises RoleRefused if the role does not permit this call. Also checks or fills in the
        agent role of a claim."""
        if self._needs_one_role and grant.role in self._roles:
            return
        if self._changes_limits(given) and not (
            grant.may(ADMIN) and grant.sees(EVERYWHERE, EVERYWHERE)
        ):
            raise RoleRefused(
                "profile and limits of a tenant are set by an admin of the whole store; to make a "
                "key for one, type where the store is: "
                "genlock keys create NAME --role admin --all-tenants"
            )
        self.permit_at_all(grant)
        if self._states_role:
            given["agent_role"] = grant.role_of_agent(given["agent_role"])
        act = _OPERATOR_WITHOUT_GENERATION.get(self.name)
        if act is not None and given["generation"] is None and not grant.may(OPERATOR):
            raise RoleRefused(
                f"to {act} without a generation needs the role operator; this key has the "
                f"role {grant.role}. The holder of the task gives the generation of its claim"
            )
        user = given["user_id"] if self.names_user else None
        if user is not None and user != speaker.identity.user_id and not grant.may(OPERATOR):
            raise RoleRefused(
                f"an agent's user is the name of its key, {grant.name!r}; leave user_id out, or "
                "ask an operator"
            )

    def session(self, speaker: AsyncCoordinator, given: dict[str, Any]) -> str | None:
        """The session that the call acts for."""
        session: str | None = given.get("session_id")
        return session if session is not None else speaker.identity.session_id

    def _changes_limits(self, given: dict[str, Any]) -> bool:
        return self._may_change_limits and (
            self.name == "set_tenant" or given["profile"] is not None or bool(given["limits"])
        )

    def is_long(self, given: dict[str, Any]) -> bool:
        """May the answer be long, so that it is read and encoded in a thread?"""
        return self.route.unbounded or (self.looks and given.get("limit", 0) > _MANY)

    def ask(
        self, speaker: AsyncCoordinator, given: dict[str, Any], threads: Executor | None
    ) -> Awaitable[Any]:
        """The coordinator's answer, computed in one of these threads if there are any."""
        if threads is None:
            return self.method(speaker, **given)
        return asyncio.get_running_loop().run_in_executor(
            threads, functools.partial(self.blocking, speaker, **given)
        )

    def ask_and_answer(self, speaker: AsyncCoordinator, given: dict[str, Any]) -> Answer:
        """Reads and encodes a long answer. Call it in a thread. The encoder releases the
        interpreter in between."""
        return LongAnswer(200, b"", pieces=encode_in_pieces(self.blocking(speaker, **given)))

    def answer(
        self, result: Any, grant: Grant, place: tuple[str, str], given: dict[str, Any]
    ) -> Answer:
        """Encodes the answer."""
        if type(result) in REFUSALS:
            status = REASONS[result.reason]
            if status != 200:
                refusal = refusal_of(result, status, _context(place, given))
                return Answer(status, encode_answer(refusal), PROBLEM, asides(status))
        elif self.name == "get_active_claims_for_session":
            result = _seen(result, grant, place[0])
        return Answer(200, encode_answer(result))


def _context(place: tuple[str, str], given: dict[str, Any]) -> Context:
    """The fields of the request that a refusal's advice needs."""
    named = zip(("tenant", "project"), place, strict=True)
    return Context(
        task_id=given.get("task_id") or "",
        generation=given.get("generation") or given.get("expected_generation"),
        options={name: value for name, value in named if value != _DEFAULT},
        session=given.get("session_id") or "",
    )


def _take_operation(given: dict[str, Any], header: bytes) -> None:
    operation = header.decode("latin-1")
    if given["operation_id"] not in (None, operation):
        raise BadArgument(
            f"header {OPERATION_HEADER} and operation_id differ; one of them is enough"
        )
    given["operation_id"] = operation


def _seen(claims: tuple[TaskClaim, ...], grant: Grant, tenant: str) -> tuple[TaskClaim, ...]:
    """Drops claims in projects that the caller may not see."""
    return tuple(claim for claim in claims if grant.sees(tenant, claim.project_id))


# The router looks up the route of a path and never searches, so its cost does not grow with the
# number of routes.


E = TypeVar("E")


class Router(Generic[E]):
    """Routes by their path after the project."""

    def __init__(self, endpoints: Iterable[tuple[Route, E]]) -> None:
        self._plain: dict[str, dict[str, E]] = {}
        """Routes of one part or two, without a variable."""
        self._named: dict[tuple[str, str], dict[str, E]] = {}
        for route, endpoint in endpoints:
            parts = route.path.split("/")
            if route.variable is None:
                self._plain.setdefault(route.path, {})[route.method] = endpoint
            else:
                self._named.setdefault((parts[0], parts[2] if len(parts) == 3 else ""), {})[
                    route.method
                ] = endpoint

    def match(self, path: str) -> tuple[dict[str, E], str | None] | None:
        """The endpoints at this path by method, and the value of the variable; or None."""
        first, _, rest = path.partition("/")
        name, slash, last = rest.partition("/")
        if not slash:
            plain = self._plain.get(path)
            if plain is not None:
                return plain, None
        elif not last:
            return None
        named = self._named.get((first, last)) if name else None
        return None if named is None else (named, name)
