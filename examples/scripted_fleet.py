"""A fleet at work, with real processes on a real store, and everything happens to it that happens to fleets.

Five workers share one plan. One is killed in its work, one is stopped until its lease has run out and comes back as a zombie, one is
fenced off by an operator who then adopts its result, and one task is split among several. At the end the events that were written
are checked for everything that Genlock promises; the exit code is 0 only if all of it held.

    python examples/scripted_fleet.py             about a quarter of a minute, live in a terminal
    python examples/scripted_fleet.py --quick     the same, hurried
    python examples/scripted_fleet.py --keep      keeps the store, and says where it is
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

import genlock
from fleet.crew import Crew
from fleet.plan import PLAN, RESERVED, ZOMBIE
from fleet.report import Finding, examine, lineage, verdict
from fleet.stage import Stage
from fleet.story import Story
from fleet.words import Line, describe, when
from genlock import Coordinator, TaskState

QUICK_PACE = 0.15
LONGEST_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.05


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends us, no worker and no folder is left behind
    folder = Path(tempfile.mkdtemp(prefix="genlock-fleet-"))
    console = Console(width=80 if not sys.stdout.isatty() else None)
    try:
        findings = play(folder, Stage(console), QUICK_PACE if options.quick else 1.0)
    except KeyboardInterrupt:
        console.print("Stopped; all workers are gone.")
        return 130
    finally:
        if options.keep:
            console.print(f"The store is kept: {folder}/genlock.db", soft_wrap=True)
        else:
            shutil.rmtree(folder)
    return int(any(finding.faults for finding in findings))


def play(folder: Path, stage: Stage, pace: float) -> list[Finding]:
    """The whole play, and what it showed."""
    url = f"sqlite://{folder}/genlock.db"
    with genlock.connect(url, session_id="sess-desk", agent_id="olga", user_id="olga") as fleet:
        added = fleet.import_plan(source=PLAN).added
        stage.tell(Line(f"olga imports a plan of {len(added)} tasks; five workers set out"))
        with Crew(url, folder, pace) as crew:
            story = Story(fleet, crew, stage.tell, pace)
            with stage.open():
                states = perform(fleet, crew, story, stage)
            complaints = crew.send_home()
        findings = [
            Finding("all that was scripted has happened", story.missed if story.over else ["the time was over before it had"]),
            *examine(fleet, states),
            Finding("every worker that was not killed ended in order", complaints),
        ]
        stage.console.print(lineage(fleet, ZOMBIE), lineage(fleet, RESERVED), verdict(findings))
        return findings


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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Plays a scripted fleet: real processes, real accidents, one plan.")
    parser.add_argument("--quick", action="store_true", help="hurry: for tests")
    parser.add_argument("--keep", action="store_true", help="keep the store, and say where it is")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
