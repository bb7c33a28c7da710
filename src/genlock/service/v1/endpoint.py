"""One operation over HTTP: keywords out of the request, the coordinator's own method, and its answer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Final

from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.core.access import EVERYWHERE, Role
from genlock.core.results import ClaimResult, ReleaseResult, RenewalResult, SpawnResult, SubmissionResult, TaskClaim
from genlock.errors import BadArgument, RoleRefused
from genlock.plans import PlanFile
from genlock.service.access.grant import Grant
from genlock.service.exchange import PROBLEM, Answer, asides
from genlock.service.sending import LongAnswer
from genlock.service.v1.request import Keywords
from genlock.wire.answers import encode_answer, encode_in_pieces
from genlock.wire.headers import OPERATION_HEADER
from genlock.wire.problems import refusal_of
from genlock.wire.routes import ADMIN, OPERATOR, Route, Within
from genlock.wire.statuses import REASONS

_OPERATION: Final = OPERATION_HEADER.encode()
_MAY_REFUSE: Final = frozenset({ClaimResult, RenewalResult, ReleaseResult, SubmissionResult, SpawnResult})
_MEGABYTE: Final = 1 << 20
_PLAN_BYTES: Final = 4 * _MEGABYTE
"""Twenty thousand tasks, and at worst a minute's reading."""
_RESULTS: Final = frozenset({"submit_result", "batch_submit"})
_PLANS: Final = frozenset({"add_tasks", "import_plan", "diff_plan", "check_plan"})
_WHOLE: Final = frozenset({"get_plan", "get_graph", "read_result"})
"""They answer with all there is."""
_MANY: Final = 1000
_IN_PARTS: Final = "import a larger plan in parts, without prune, or beside the store with `genlock plan import`"


class Endpoint:
    """An operation, ready to be asked."""

    def __init__(self, route: Route, most_bytes: int) -> None:
        self.route = route
        self.name = route.name
        self.keywords = Keywords(route)
        self.method: Callable[..., Awaitable[Any]] = getattr(AsyncCoordinator, route.name)
        self.blocking: Callable[..., Any] = getattr(Coordinator, route.name)
        """The same for a thread: both ask whoever they are called with for its operations."""
        self.has_result = route.name in _RESULTS
        self.most_bytes = most_bytes if self.has_result else min(most_bytes, _PLAN_BYTES if route.name in _PLANS else _MEGABYTE)
        self.advice = _IN_PARTS if route.name in _PLANS else ""
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
        """Those that may do this."""
        self._needs_one_role = not (self._may_change_limits or self.names_user or route.name == "adopt_result")
        """Is the role all that has to be looked at?"""
        self.takes_plan = "source" in self.keywords.type.__struct_fields__

    def arguments(self, place: tuple[str, str], name: str | None, given: dict[str, Any], headers: dict[bytes, bytes]) -> dict[str, Any]:
        """The keywords for the coordinator."""
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
        """RoleRefused where the role does not cover this, whatever its keywords are."""
        if grant.role not in self._roles:
            raise RoleRefused(f"{self.name.replace('_', ' ')!r} needs the role {self.route.role}; this key has the role {grant.role}")

    def permit(self, grant: Grant, speaker: AsyncCoordinator, given: dict[str, Any]) -> None:
        """RoleRefused where the role does not cover this."""
        if self._needs_one_role and grant.role in self._roles:
            return
        if self._changes_limits(given) and not (grant.may(ADMIN) and grant.sees(EVERYWHERE, EVERYWHERE)):
            raise RoleRefused(
                "profile and limits of a tenant are set by an admin of the whole store; to make a key for one, type where the store is: "
                "genlock keys create NAME --role admin --all-tenants"
            )
        self.permit_at_all(grant)
        if self.name == "adopt_result" and given["generation"] is None and not grant.may(OPERATOR):
            raise RoleRefused(
                f"to adopt a result without a generation needs the role operator; this key has the role {grant.role}. "
                "Whoever holds the task gives the generation of its claim"
            )
        user = given["user_id"] if self.names_user else None
        if user is not None and user != speaker.identity.user_id and not grant.may(OPERATOR):
            raise RoleRefused(f"an agent's user is the name of its key, {grant.name!r}; leave user_id out, or ask an operator")

    def session(self, speaker: AsyncCoordinator, given: dict[str, Any]) -> str | None:
        """The session that it acts for."""
        session: str | None = given.get("session_id")
        return session if session is not None else speaker.identity.session_id

    def _changes_limits(self, given: dict[str, Any]) -> bool:
        return self._may_change_limits and (self.name == "set_tenant" or given["profile"] is not None or bool(given["limits"]))

    def is_long(self, given: dict[str, Any]) -> bool:
        """May the answer be so long that it is read and written beside the event loop?"""
        return self.name in _WHOLE or (self.looks and given.get("limit", 0) > _MANY)

    def ask(self, speaker: AsyncCoordinator, given: dict[str, Any], threads: Executor | None) -> Awaitable[Any]:
        """The coordinator's answer; in one of these threads, if there are any."""
        if threads is None:
            return self.method(speaker, **given)
        return asyncio.get_running_loop().run_in_executor(threads, functools.partial(self.blocking, speaker, **given))

    def ask_and_answer(self, speaker: AsyncCoordinator, given: dict[str, Any]) -> Answer:
        """Both for a long answer, for a thread: whoever else waits for the interpreter has it in between."""
        return LongAnswer(200, b"", pieces=encode_in_pieces(self.blocking(speaker, **given)))

    def answer(self, result: Any, grant: Grant, tenant: str) -> Answer:
        """What is sent back."""
        if type(result) in _MAY_REFUSE:
            status = REASONS[result.reason]
            if status != 200:
                return Answer(status, encode_answer(refusal_of(result, status)), PROBLEM, asides(status))
        elif self.name == "get_active_claims_for_session":
            result = _seen(result, grant, tenant)
        return Answer(200, encode_answer(result))


def _take_operation(given: dict[str, Any], header: bytes) -> None:
    operation = header.decode("latin-1")
    if given["operation_id"] not in (None, operation):
        raise BadArgument(f"header {OPERATION_HEADER} and operation_id differ; one of them is enough")
    given["operation_id"] = operation


def _seen(claims: tuple[TaskClaim, ...], grant: Grant, tenant: str) -> tuple[TaskClaim, ...]:
    """A session may hold tasks in projects that this caller does not see."""
    return tuple(claim for claim in claims if grant.sees(tenant, claim.project_id))
