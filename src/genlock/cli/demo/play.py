"""The whole play: plan, fleet, accidents, and what it showed."""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import Struct

from genlock.cli.demo.crew import Crew
from genlock.cli.demo.examine import Finding, examine
from genlock.cli.demo.plan import PLAN, RESERVED, ZOMBIE
from genlock.cli.demo.stage import Stage
from genlock.cli.demo.story import Story
from genlock.cli.demo.words import Line, describe, when
from genlock.coordinator import Coordinator
from genlock.core.results import Lineage, TaskState
from genlock.errors import StoreError
from genlock.open import connect

LONGEST_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.05


class Outcome(Struct, frozen=True):
    """What `demo` answers."""

    held: bool
    """Was every promise kept?"""
    invariants: tuple[Finding, ...]
    lineages: tuple[Lineage, ...]
    seconds: float
    store: str | None = None
    """The store's URL, if it was kept."""


def play(folder: Path, stage: Stage, pace: float) -> Outcome:
    """Plays it in this folder."""
    began = time.monotonic()
    url = f"sqlite://{folder}/genlock.db"
    with connect(url, session_id="sess-desk", agent_id="olga", user_id="olga") as fleet:
        added = fleet.import_plan(source=PLAN).added
        stage.tell(Line(f"olga imports a plan of {len(added)} tasks; five workers set out"))
        with Crew(url, folder, pace) as crew:
            story = Story(fleet, crew, stage.tell, pace)
            with stage.open():
                states = perform(fleet, crew, story, stage)
            complaints = crew.send_home()
        findings = (
            Finding("all that was scripted has happened", story.missed if story.over else ["the time was over before it had"]),
            *examine(fleet, states),
            Finding("every worker that was not killed ended in order", complaints),
        )
        lineages = _lineages(fleet)
    return Outcome(not any(finding.faults for finding in findings), findings, lineages, round(time.monotonic() - began, 1))


def _lineages(fleet: Coordinator) -> tuple[Lineage, ...]:
    """Of the tasks whose results were refused; none if they cannot be read, which the report says."""
    try:
        return tuple(fleet.get_lineage(task_id=task) for task in (ZOMBIE, RESERVED))
    except StoreError:
        return ()


def perform(fleet: Coordinator, crew: Crew, story: Story, stage: Stage) -> dict[str, TaskState]:
    """Follows the feed and shows it, until the plan is done or the time is over. The last states of all tasks."""
    cursor: str | None = None
    tasks: list[str] = []
    states: dict[str, TaskState] = {}
    end = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < end:
        # States before events: when all are done, what is read after that has the last event too.
        states = fleet.batch_get_states(task_ids=tasks)
        page = fleet.read_events(after=cursor, limit=500)
        cursor = page.cursor
        for happened in page.events:
            if happened.event_type == "TASK_ADDED":
                tasks.append(happened.id)
            story.hear(happened)
            line = describe(happened)
            if line is not None:
                stage.tell(line, when(happened.event))
        story.go_on()
        stage.draw(states, crew.condition)
        if states and story.over and all(state.state == "COMPLETED" for state in states.values()):
            break
        time.sleep(LOOK_EVERY_SECONDS)
    return states
