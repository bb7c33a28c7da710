"""What the pages of these tests show: a project with a task in each state, and one by hostile
hands."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import genlock
from genlock import Coordinator

SCREENS = ("", "/tasks", "/agents", "/graph", "/history", "/settings")
SHOP = "/p/default/default"
HOSTILE = "/p/default/hostile"
NEW = "/p/default/new"
"""A project in which nothing has happened yet."""

MARK = "<img src=x onerror=window.hit=1>"
"""A script if a page takes it for HTML."""
TEXT = (
    f'"><script>window.hit=2</script>{MARK}<svg onload=window.hit=3>'
    "</pre></textarea></title>javascript:window.hit=4 ${window.hit=5} {{window.hit=6}} \u202egnitirw"
)
LONG = 3600
"""A lease that outlasts the tests."""
HOSTILE_ID = "A-001-" + "x" * 90


def fill(url: str) -> None:
    """Makes the store, and in it the three projects."""
    with ExitStack() as stack:

        def join(agent: str, project: str) -> Coordinator:
            return stack.enter_context(
                genlock.connect(
                    url,
                    create=True,
                    project_id=project,
                    session_id=f"session-{agent}"[:120],
                    agent_id=agent,
                    user_id=agent,
                    process=None,
                )
            )

        _fill_shop(join("bob", "default"), join("zed", "default"))
        _fill_hostile(join(MARK[:60].replace("/", ""), "hostile"), join("zed", "hostile"))


def _fill_shop(bob: Coordinator, zed: Coordinator) -> None:
    bob.set_policy(tracks={"A": "Application", "B": "Database"})
    tasks: list[Any] = [
        {"id": "A-001-core", "title": "Set up the core", "description": "First of all"},
        {"id": "A-002-container", "title": "Inject", "depends_on": ["A-001-core"]},
        {"id": "A-003-events", "title": "Event bus", "depends_on": ["A-002-container"]},
        {"id": "B-001-schema", "title": "Schema", "priority": "high", "tags": ["sql"]},
        {"id": "B-002-zombie", "title": "Entity models"},
        {"id": "B-003-held", "title": "Repositories"},
        {"id": "B-004-review", "title": "Migrations", "human_required": True},
        {"id": "B-005-cancelled", "title": "Stored procedures"},
        {"id": "B-006-backlog", "title": "Sharding", "state": "backlog"},
    ]
    bob.add_tasks(tasks=tasks)
    for one, type in ((bob, "codex"), (zed, "claude")):
        one.register_session(
            agent_type=type, metadata={"score": 92, "contextPercent": 41, "phase": "BUILD"}
        )
    _supersede(bob, zed, "A-001-core", {"made by": "zed"})
    finish(bob, "A-001-core", {"made by": "bob", "files": ["core.py"]})
    claim = bob.claim_task(task_id="A-002-container", lease_duration_seconds=LONG).require()
    bob.report_progress(
        task_id=claim.task_id, generation=claim.generation, fraction=0.4, note="wiring it up"
    )
    _supersede(bob, zed, "B-002-zombie", {"models": ["by zed"]})
    bob.claim_task(task_id="B-002-zombie", lease_duration_seconds=LONG).require()
    bob.hold_task(task_id="B-003-held", reason="waits for the licence")
    finish(bob, "B-004-review", "create table t (id int)")
    bob.cancel_task(task_id="B-005-cancelled", reason="not wanted any more")


def _supersede(bob: Coordinator, zed: Coordinator, task: str, data: Any) -> None:
    """Zed loses the task to an operator, and hands something in all the same."""
    lost = zed.claim_task(task_id=task).require()
    bob.force_release(task_id=task, take_over=True)
    refused = zed.submit_result(task_id=task, generation=lost.generation, result_data=data)
    assert not refused.accepted


def finish(fleet: Coordinator, task: str, data: Any) -> None:
    """Claims the task and hands its result in."""
    claim = fleet.claim_task(task_id=task).require()
    fleet.submit_result(task_id=task, generation=claim.generation, result_data=data)


def _fill_hostile(fleet: Coordinator, zed: Coordinator) -> None:
    fleet.set_policy(tracks={"A": TEXT})
    words = {"title": TEXT, "description": TEXT, "phase": TEXT, "tags": [MARK.replace("/", "")]}
    fleet.add_tasks(
        tasks=[
            {"id": HOSTILE_ID, **words, "metadata": {MARK: TEXT}},
            {"id": "A-002-held", **words, "depends_on": [HOSTILE_ID]},
            {"id": "A-003-done", **words},
            {"id": "A-004-review", **words, "human_required": True},
            {"id": "A-005-claimed", **words},
        ]
    )
    fleet.register_session(agent_type=MARK[:30], metadata={"phase": TEXT[:60], "score": 1})
    _supersede(fleet, zed, HOSTILE_ID, {TEXT: TEXT})
    _supersede(fleet, zed, "A-003-done", TEXT)
    finish(fleet, "A-003-done", {"text": TEXT})
    finish(fleet, "A-004-review", TEXT)
    claim = fleet.claim_task(task_id="A-005-claimed", lease_duration_seconds=LONG).require()
    fleet.report_progress(task_id=claim.task_id, generation=claim.generation, note=TEXT)
    fleet.hold_task(task_id="A-002-held", reason=TEXT)
