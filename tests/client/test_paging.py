"""Long lists, page by page: `after` is the last id that was seen. The same through a service as in
the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2
import pytest

import genlock
from genlock import Coordinator
from genlock.errors import BadArgument
from tests.servers.service import Service

MANY = 7
NAMES = [f"T-{at}" for at in range(MANY)]


@pytest.fixture(params=["embedded", "http"])
def either(
    request: pytest.FixtureRequest, service: Service, place: dict[str, Any]
) -> Iterator[Coordinator]:
    url = service.url if request.param == "http" else "memory://"
    with genlock.connect(url, session_id="s1", agent_id="alice", **place) as fleet:
        yield fleet


def _pages(
    ask: Callable[..., Sequence[Any]], name: Callable[[Any], str], limit: int
) -> list[list[str]]:
    """The ids of all pages, the last of which is empty."""
    pages: list[list[str]] = []
    after: str | None = None
    for _ in range(MANY + 1):
        pages.append([name(line) for line in ask(limit=limit, after=after)])
        if not pages[-1]:
            break
        after = pages[-1][-1]
    return pages


def _block(fleet: Coordinator) -> None:
    fleet.add_tasks(
        tasks=[{"id": "first"}, *({"id": name, "depends_on": ["first"]} for name in NAMES)]
    )


def _refuse(fleet: Coordinator) -> list[str]:
    fleet.add_tasks(tasks=NAMES)
    answers = [
        fleet.submit_result(task_id=name, generation=0, result_data={"of": name}) for name in NAMES
    ]
    return [str(answer.refused_id) for answer in answers]


def test_pages_of_blocked_tasks_have_each_of_them_once_and_in_order(either: Coordinator) -> None:
    _block(either)
    assert _pages(either.blocked, lambda line: line.task.id, 3) == [
        NAMES[:3],
        NAMES[3:6],
        NAMES[6:],
        [],
    ]
    assert [line.task.id for line in either.blocked()] == NAMES


def test_pages_of_refused_results_have_each_of_them_once_and_in_order(either: Coordinator) -> None:
    refused = _refuse(either)
    assert _pages(either.list_refused_results, lambda line: line.id, 4) == [
        refused[:4],
        refused[4:],
        [],
    ]
    assert [
        line.id for line in either.list_refused_results(task_id=NAMES[2], after=refused[1])
    ] == [refused[2]]
    assert either.list_refused_results(task_id=NAMES[2], after=refused[2]) == ()


def test_pages_of_sessions_have_each_of_them_once_and_in_order(either: Coordinator) -> None:
    for name in NAMES:
        either.register_session(session_id=name)
    either.end_session(session_id=NAMES[0])
    assert _pages(either.list_sessions, lambda line: line.session_id, 5) == [
        NAMES[1:6],
        NAMES[6:],
        [],
    ]
    assert [line.session_id for line in either.list_sessions(include_ended=True)] == NAMES


def test_a_page_goes_on_behind_what_has_gone_from_the_list_meanwhile(either: Coordinator) -> None:
    _block(either)
    seen = either.blocked(limit=3)[-1].task.id
    either.edit_task(task_id=seen, changes={"depends_on": []})
    assert [line.task.id for line in either.blocked(after=seen)] == NAMES[3:]


@pytest.mark.parametrize("method", ["blocked", "list_refused_results", "list_sessions"])
def test_a_page_that_cannot_be_meant_is_refused_by_name(either: Coordinator, method: str) -> None:
    with pytest.raises(BadArgument, match="limit"):
        getattr(either, method)(limit=0)
    with pytest.raises(BadArgument, match="after"):
        getattr(either, method)(after="x" * 1001)


def test_whoever_has_no_client_pages_by_the_address(
    service: Service, fleet: Coordinator, place: dict[str, Any]
) -> None:
    _block(fleet)
    answer = httpx2.get(
        f"{service.url}/v1/default/{place['project_id']}/blocked",
        params={"limit": 2, "after": NAMES[4]},
    )
    assert [line["task"]["id"] for line in answer.json()] == NAMES[5:]
