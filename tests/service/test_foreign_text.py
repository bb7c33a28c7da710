"""What strangers wrote, at the service's edges: JSON that a terminal is given by curl, the status
page, events, the log."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock.service.logs import Log
from tests.hostile_text import HOSTILE, obeyed
from tests.servers.service import Service, serving

TASKS = "/v1/default/default/tasks"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    with genlock.connect(url, create=True, session_id="s1", agent_id="a1") as fleet:
        fleet.add_tasks(
            tasks=[
                {"id": name, "title": HOSTILE, "metadata": {"k": HOSTILE}}
                for name in ("T", "H", "D")
            ]
        )
        fleet.hold_task(task_id="H", reason=HOSTILE)
        claim = fleet.claim_task(task_id="D").claim
        assert claim is not None
        fleet.submit_result(task_id="D", generation=claim.generation, result_data=HOSTILE)
    with serving(url) as service:
        yield service


def test_json_means_what_was_written_and_has_nothing_to_obey(service: Service) -> None:
    for path in (
        TASKS,
        f"{TASKS}/T",
        f"{TASKS}/D",
        "/v1/default/default/events",
        "/v1/default/default/graph",
        "/api/tasks",
        "/openapi.json",
    ):
        assert obeyed(service.http.get(path).text) == [], path
    assert service.http.get(f"{TASKS}/T").json()["task"]["title"] == HOSTILE
    assert service.http.get(f"{TASKS}/D").json()["result"]["result_data"] == HOSTILE


def test_a_refusal_that_quotes_its_request_has_nothing_to_obey(service: Service) -> None:
    for answer in (
        service.http.get(f"{TASKS}/%C2%9B%E2%80%AE%1b"),
        service.http.get("/%C2%9B%E2%80%AE%1b"),
        service.http.get("/api/tasks/%C2%9B%E2%80%AE%1b/claim"),
        service.http.post(TASKS, json={"tasks": [{"id": HOSTILE}]}),
        service.http.post(TASKS, json={HOSTILE: 1}),
        service.http.post(
            f"{TASKS}/T/claim", json={"session_id": "\x9b\u202e", "agent_id": HOSTILE}
        ),
        service.http.post("/api/tasks/T/claim", json={"sessionId": HOSTILE}),
    ):
        assert answer.status_code >= 400
        assert obeyed(answer.text) == [], answer.text


def test_the_status_page_shows_it_and_is_not_turned_around_by_it(service: Service) -> None:
    page = service.http.get("/status").text
    assert "[red]markup[/red]" in page
    assert "<b>bold</b>" not in page
    assert obeyed(page) == []


def test_an_event_on_a_stream_is_one_event(service: Service) -> None:
    after = service.http.get("/v1/default/default/events?limit=1").json()["cursor"]
    with service.http.stream("GET", f"/v1/default/default/events/stream?after={after}") as answer:
        if answer.status_code != 200:
            pytest.fail(answer.read().decode())
        text = ""
        for piece in answer.iter_text():
            text += piece
            if "TASK_HELD" in text and text.endswith("\n\n"):
                break
    assert obeyed(text) == []
    assert [
        line for line in text.splitlines() if not re.match(r"(id|event|data|retry): |: |$", line)
    ] == []
    held = next(
        json.loads(line[6:])
        for line in text.splitlines()
        if line.startswith("data: ") and "TASK_HELD" in line
    )
    assert held["event"]["reason"] == HOSTILE


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_on_a_terminal_is_shown_and_not_obeyed(form: str) -> None:
    out, into = os.pipe()
    log = Log(file=into, form=form, terminal=True)
    log.event("error", HOSTILE, message=HOSTILE, traceback=f"File {HOSTILE}\n", library=HOSTILE)
    log.close()
    os.close(into)
    with os.fdopen(out, "rb") as file:
        written = file.read().decode()
    assert "owned" in written
    assert obeyed(written, colours=True) == []
