"""The calls that travel are the coordinator's own operations: the same names, keywords and
defaults."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import genlock
from genlock import errors
from genlock.coordinator import Coordinator, Operations
from genlock.core.reasons import (
    ClaimReason,
    ProgressReason,
    ReleaseAnswer,
    RenewReason,
    ReviewReason,
    SubmitReason,
)
from genlock.core.results import ClaimResult, Holder, SubmissionResult
from genlock.messages import SENTENCES, Context
from genlock.service.api.request import Keywords
from genlock.wire.answers import answer_decoder, encode_answer
from genlock.wire.operations import ROUTES, ClaimTask, Route
from genlock.wire.problems import (
    KINDS,
    REASONS,
    error_of,
    problem_of,
    refusal_of,
    status_of,
)

NOT_CALLED = {
    "watch": "a stream",
    **dict.fromkeys(("claim", "next_task", "work", "worker"), "made of other operations"),
    "close": "the client's own",
    "identity": "the client's own",
    "product_access": "the way to an area, which is not the coordinator's",
    "engine": "not for clients",
    "reader": "not for clients",
}
NOT_SENT = {("register_session", "pid"), ("import_plan", "progress")}
"""What means something on the caller's machine only: the client sees to it."""


def test_every_operation_of_the_coordinator_has_its_route_and_there_are_no_others() -> None:
    operations = {name for name in dir(Coordinator) if not name.startswith("_")} - set(NOT_CALLED)
    assert {route.name for route in ROUTES} == operations


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_call_has_the_operation_s_keywords_and_defaults(route: Route) -> None:
    signature = inspect.signature(getattr(Operations, route.name))
    wanted = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name != "self" and (route.name, name) not in NOT_SENT
    }
    assert _defaults(route) == {
        name: _REQUIRED if default is inspect.Parameter.empty else default
        for name, default in wanted.items()
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_request_of_it_can_be_decoded(route: Route) -> None:
    assert set(Keywords(route).type.__struct_fields__) == set(_defaults(route)) - {
        "tenant_id",
        "project_id",
        route.variable,
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_route_s_variable_is_a_keyword_and_its_answer_can_be_decoded(route: Route) -> None:
    assert route.variable is None or route.variable in route.call.__struct_fields__
    assert callable(answer_decoder(route.call))


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("list_agents", "session_ops.py"),
        ("discard_result", "operator_ops.py"),
        ("reopen_task", "operator_ops.py"),
    ],
)
def test_an_operation_is_written_by_hand_in_three_files(name: str, script: str) -> None:
    """The CLI and the scenario player call operations; the examples of the document are extra."""
    source = Path(genlock.__file__).parent
    word = re.compile(rf"\b({name}|class {name.title().replace('_', '')}\(InProject.*)")
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if word.search(path.read_text(encoding="utf-8"))
    }
    callers = {path for path in found if path.startswith(("cli/", "testing/"))}
    assert found - callers - {"service/openapi/examples.py"} == {
        "wire/operations.py",
        f"coordinator/{script}",
        "coordinator/__init__.py",
    }


def test_no_two_routes_are_the_same() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_every_reason_has_a_status_and_every_refusal_a_title() -> None:
    reasons = [
        *ClaimReason,
        *RenewReason,
        *ProgressReason,
        *ReleaseAnswer,
        *SubmitReason,
        *ReviewReason,
    ]
    assert set(REASONS) == {str(reason) for reason in reasons}
    assert {str(reason) for reason in reasons if REASONS[reason] != 200} <= set(SENTENCES)


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_error_arrives_as_what_it_was(code: str) -> None:
    kind = KINDS[code]
    error = (
        errors.PlanInvalid(["this", "that"])
        if kind is errors.PlanInvalid
        else kind("what is wrong, and what to do")
    )
    sent = problem_of(error)
    assert 400 <= sent.status == status_of(error) < 600
    revived = error_of(msgspec.json.encode(sent), sent.status)
    assert type(revived) is kind
    assert str(revived) == str(error)


def test_what_is_no_problem_of_ours_is_told_as_it_came() -> None:
    error = error_of(b"<html>Bad gateway</html>", 502)
    assert type(error) is errors.ServiceError
    assert "502" in str(error)
    assert "Bad gateway" in str(error)


_REQUIRED: Any = object()


def _defaults(route: Route) -> dict[str, Any]:
    return {
        field.name: _REQUIRED if field.required else field.default
        for field in msgspec.structs.fields(route.call)
    }


def test_a_denial_says_to_people_who_has_the_task_and_to_the_client_what_it_always_said() -> None:
    since = datetime(2026, 1, 4, 6, tzinfo=UTC)
    holder = Holder("bob", "s2", "", since, since + timedelta(minutes=5), looks_alive=False)
    denied = ClaimResult(
        False, ClaimReason.DENIED_ACTIVE_CLAIM, "A-001", current_holder="bob", holder=holder
    )
    sent = encode_answer(refusal_of(denied, 409))
    said = msgspec.json.decode(sent)["message"]
    assert said == (
        "A-001 is held by bob (session s2), lease until 2026-01-04T06:05:00Z, looks lost"
    )
    assert answer_decoder(ClaimTask)(sent) == denied


def test_a_refusal_over_http_says_what_it_knows_and_what_to_try() -> None:
    stale = SubmissionResult(
        False, SubmitReason.STALE_GENERATION, 3, True, True, "wp-T-gen2-123456", "T/2/s1/abc"
    )
    sent = refusal_of(stale, 409, Context("T", 2, {"project": "web"}))
    assert (sent["title"], sent["message"], sent["try_next"]) == (
        "The task has moved on to a higher generation: an earlier one no longer counts",
        (
            "T has moved on to generation 3: an earlier one no longer counts. The result is kept "
            "as T/2/s1/abc. Stop working on this task, and ask for the next one"
        ),
        (
            ("genlock", "next", "--project", "web"),
            ("genlock", "history", "T", "--project", "web"),
        ),
    )
