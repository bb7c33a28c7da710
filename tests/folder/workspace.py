"""A gptodo workspace for a test, and coordinators on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import genlock
from genlock.stores.folder.layouts import frontmatter
from genlock.testing.clock import ManualClock

GPTODO = Path(sys.executable).with_name("gptodo")


class Workspace:
    """The folder, and what other tools do in it."""

    def __init__(self, root: Path, **options: str) -> None:
        self.root = root
        self.tasks = root / "tasks"
        self.locks = root / "state" / "locks"
        self.tasks.mkdir(parents=True, exist_ok=True)
        text = "".join(f"&{name}={value}" for name, value in options.items())
        self.url = f"folder://{root}?layout=gptodo{text}"
        self._fleets: list[genlock.Coordinator] = []

    def connect(
        self, session: str = "s1", agent: str = "a1", clock: ManualClock | None = None
    ) -> genlock.Coordinator:
        """A coordinator for this session."""
        fleet = genlock.connect(
            self.url, create=True, session_id=session, agent_id=agent, clock=clock
        )
        self._fleets.append(fleet)
        return fleet

    def close(self) -> None:
        for fleet in self._fleets:
            fleet.close()

    # Files

    def add(self, id: str, body: str = "", **values: Any) -> Path:
        """A task's file, as a person writes it."""
        values = {"state": "todo", "created": "2026-01-27T10:00:00+00:00"} | values
        path = self.tasks / f"{id}.md"
        path.write_text(frontmatter.new_file(values, body or f"# {id}"))
        return path

    def text(self, id: str) -> str:
        return (self.tasks / f"{id}.md").read_text()

    def values(self, id: str) -> dict[str, Any]:
        """The frontmatter."""
        return frontmatter.read(frontmatter.split(self.text(id)).yaml)

    def edit(self, id: str, **values: Any) -> None:
        """Another tool writes the file again with these values; None removes one."""
        parts = frontmatter.split(self.text(id))
        (self.tasks / f"{id}.md").write_text(frontmatter.change(parts, values))

    def lock(self, id: str, worker: str, hours: float = 4.0, since: datetime | None = None) -> None:
        """Another tool's lock."""
        self.locks.mkdir(parents=True, exist_ok=True)
        started = (since or datetime.now(UTC)).isoformat()
        (self.locks / f"{id}.lock").write_text(
            json.dumps(
                {"task_id": id, "worker": worker, "started": started, "timeout_hours": hours},
                indent=2,
            )
        )

    def unlock(self, id: str) -> None:
        (self.locks / f"{id}.lock").unlink()

    def lock_of(self, id: str) -> dict[str, Any] | None:
        """What is in the lock."""
        try:
            found: dict[str, Any] = json.loads((self.locks / f"{id}.lock").read_text())
        except FileNotFoundError:
            return None
        return found

    # The real tool

    def gptodo(self, *arguments: str, fails: bool = False) -> str:
        """Runs gptodo here, and gives what it prints."""
        done = subprocess.run(
            [GPTODO, *arguments],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "TASKS_REPO_ROOT": str(self.root), "COLUMNS": "200"},
        )
        assert fails or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def gptodo_json(self, *arguments: str) -> Any:
        return json.loads(self.gptodo(*arguments, "--json"))


def granted(fleet: genlock.Coordinator, id: str, seconds: float = 300.0) -> int:
    """Claims a task, and gives its generation."""
    result = fleet.claim_task(task_id=id, lease_duration_seconds=seconds)
    assert result.claim is not None, result
    return result.claim.generation


def submitted(fleet: genlock.Coordinator, id: str, generation: int) -> str:
    """Submits a result, and gives the reason of the answer."""
    answer = fleet.submit_result(task_id=id, generation=generation, result_data={"by": "genlock"})
    return str(answer.reason)


def state_of(fleet: genlock.Coordinator, id: str) -> str:
    return str(fleet.get_task_state(task_id=id).state)


def ready(fleet: genlock.Coordinator) -> list[str]:
    return [each.task.id for each in fleet.ready()]


def kinds_of(fleet: genlock.Coordinator, id: str) -> list[str]:
    """The names of the task's events, in order."""
    events = fleet.read_events(limit=1000).events
    return [event.event_type for event in events if (event.kind, event.id) == ("task", id)]


def later(**length: float) -> datetime:
    return datetime.now(UTC) + timedelta(**length)
