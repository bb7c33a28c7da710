"""The service does what its OpenAPI document says: schemathesis makes requests, good ones and bad
ones, from the document alone.

The cases are the same in every run. `make nightly` tries many more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode

from genlock.core.ids import parse_task_id
from genlock.errors import BadArgument
from genlock.service.openapi.document import document
from genlock.service.openapi.others import API, STREAMS
from tests.servers.service import serving

TASKS = [f"A-{number:03}-made" for number in range(1, 9)]
SESSIONS = [f"session-{number}" for number in range(1, 4)]

REFUSED = [
    "400",
    "401",
    "403",
    "404",
    "405",
    "409",
    "410",
    "413",
    "415",
    "421",
    "422",
    "426",
    "429",
]
ANSWERED = ["200", "404", "409", "410", "422", "429"]
FREE_FORM = [
    "add_tasks",
    "edit_task",
    "spawn_subtasks",
    "import_plan",
    "diff_plan",
    "check_plan",
    "set_policy",
    "read_events",
    "list_tasks",
    "batch_act",
    "search_events",
    "get_activity",
]
FREE_FORM += ["set_tenant", "create_key", "rotate_key"]
FREE_FORM += ["submit_result", "batch_submit", "settle_promotion"]  # paths, and an area for them
FREE_FORM += ["renew_lease", "release_claim"]  # the generation has two names, and needs one of them
"""What these take is told in words: a definition, a plan, a cursor. What their schema admits may
still be refused for what it says."""


CONFIG = {
    "generation": {"deterministic": True, "codec": "ascii", "allow-x00": False},
    "checks": {
        "negative_data_rejection": {"expected-statuses": REFUSED},
        "positive_data_acceptance": {"expected-statuses": ANSWERED},
        # These want things that one request makes and another one removes, or keys.
        "use_after_free": {"enabled": False},
        "ensure_resource_availability": {"enabled": False},
        "ignored_auth": {"enabled": False},
    },
    "operations": [
        {
            "include-operation-id": name,
            "checks": {"positive_data_acceptance": {"expected-statuses": [*ANSWERED, "400"]}},
        }
        for name in FREE_FORM
    ]
    # That interface is lenient by its own rules, and tested by its own examples.
    + [
        {
            "include-tag": API,
            "checks": {
                "negative_data_rejection": {"enabled": False},
                "positive_data_acceptance": {"enabled": False},
            },
        }
    ],
}
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
OPERATIONS = {
    operation["operationId"]: (path, method.upper())
    for path, methods in document(keys=False)["paths"].items()
    for method, operation in methods.items()
    if path not in STREAMS
}
"""But the streams: they do not end."""


LONGEST_PARENT = 180
"""The id of a child is longer than its parent's, and may not be too long either."""
PLAIN = {"healthz", "readyz", "metrics", "api_cleanup", "api_stats", "api_summary", "api_status"}
"""They take nothing that could be wrong, so there are no bad requests to be made up."""

asked: Counter[int] = Counter()


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with serving() as running:
        place = "/v1/default/default"
        running.http.post(f"{place}/tasks", json={"tasks": TASKS}).raise_for_status()
        for session in SESSIONS:
            running.http.post(f"{place}/sessions", json={"session_id": session}).raise_for_status()
        yield running.url
    print(f"\nschemathesis: {asked.total():,} requests, by status {dict(sorted(asked.items()))}")


@pytest.fixture(scope="module")
def connection() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@pytest.fixture(scope="module")
def contract() -> Any:
    """The document as schemathesis reads it."""
    return schemathesis.openapi.from_dict(
        document(keys=False), config=SchemathesisConfig.from_dict(CONFIG)
    )


class Asking:
    """Sends the requests that schemathesis makes for one operation, and looks at what comes
    back."""

    def __init__(self, operation: Any, service: str, connection: requests.Session) -> None:
        self.operation, self.service, self.connection = operation, service, connection

    def _ask(self, case: Any) -> None:
        aim(case)
        response = case.call(base_url=self.service, session=self.connection)
        asked[response.status_code] += 1
        case.validate_response(response)

    def at_the_bounds(self, step: int) -> None:
        """Every bound of every field, and what lies beyond it; of those every so many."""
        config = self.operation.schema.config.generation
        cases = self.operation.schema.iter_coverage_cases(
            self.operation, generation_modes=list(MODES), generation_config=config
        )
        for case in islice(cases, 0, None, step):
            self._ask(case)

    def at_random(self, examples: int) -> None:
        """So many good requests, and so many bad ones; the same in every run."""
        for mode in MODES[:1] if self.operation.definition.raw["operationId"] in PLAIN else MODES:
            once = settings(
                max_examples=examples,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            once(given(case=self.operation.as_strategy(generation_mode=mode))(self._ask))()


@pytest.fixture
def asking(
    contract: Any, service: str, connection: requests.Session, request: pytest.FixtureRequest
) -> Asking:
    path, method = request.param
    return Asking(contract[path][method], service, connection)


@pytest.mark.parametrize("asking", OPERATIONS.values(), ids=OPERATIONS, indirect=True)
def test_every_answer_is_one_that_the_document_promises(asking: Asking) -> None:
    asking.at_the_bounds(step=7)


@pytest.mark.slow
@pytest.mark.parametrize("asking", OPERATIONS.values(), ids=OPERATIONS, indirect=True)
def test_every_answer_is_one_that_the_document_promises_however_often_one_asks(
    asking: Asking,
) -> None:
    asking.at_the_bounds(step=1)
    asking.at_random(examples=100)


def aim(case: Any) -> None:
    """Good requests are made to be for what exists, and to say nothing that no schema can forbid.
    Bad ones are left as they are."""
    chance = len(repr(case.body)) + len(repr(case.query))
    if case.path_parameters and _is_good(case, ParameterLocation.PATH):
        known = {
            "task_id": TASKS[chance % len(TASKS)],
            "session_id": SESSIONS[chance % len(SESSIONS)],
        }
        if chance % 5:
            known |= {"tenant": "default", "project": "default"}
        case.path_parameters.update(
            {name: value for name, value in known.items() if name in case.path_parameters}
        )
    if _is_good(case, ParameterLocation.HEADER):
        case.headers = {
            **(case.headers or {}),
            "genlock-session": SESSIONS[0],
            "genlock-agent": "alice",
            "genlock-user": "ann",
        }
    if isinstance(case.body, dict) and _is_good(case, ParameterLocation.BODY):
        case.body = _sound(case.body)
        if case.body.get("operation_id") is not None:
            case.headers.pop("idempotency-key", None)
        if "wait_seconds" in case.body:
            case.body["wait_seconds"] = 0
        if isinstance(case.body.get("results"), list):
            # A batch takes each task once.
            case.body["results"] = list(
                {str(result["task_id"]): result for result in case.body["results"]}.values()
            )
        if len(case.body.get("parent") or "") > LONGEST_PARENT:
            case.body["parent"] = TASKS[0]


def _sound(value: Any) -> Any:
    """JSON Schema takes 3.0 for a whole number, and its patterns what only resembles an id; the
    service takes neither."""
    if isinstance(value, dict):
        return {_sound(name): _sound(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_sound(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return TASKS[0] if isinstance(value, str) and ":" in value and not _is_id(value) else value


def _is_id(text: str) -> bool:
    try:
        parse_task_id(text)
    except BadArgument:
        return False
    return True


def _is_good(case: Any, location: ParameterLocation) -> bool:
    if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
        return True
    found = case.meta.components.get(location)
    return found is None or found.mode is GenerationMode.POSITIVE
