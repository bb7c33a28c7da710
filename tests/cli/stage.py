"""A project on which the verbs of workers, readers and operators are tried.

What a test looks at is done by the command; what must be there before is set up by the library, on
the same file. Its clock may be put back, so that a lease that began then is over by now: no test
waits for one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import genlock
from genlock.coordinator import Coordinator
from genlock.testing.clock import ManualClock
from tests.cli.console import Ran, run


class Stage:
    """A folder with a project in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".genlock").mkdir(parents=True)
        self.url = f"sqlite://{folder / '.genlock' / 'genlock.db'}"
        with self.library():
            pass

    def run(
        self,
        *args: object,
        as_: str = "s1",
        env: dict[str, str | None] | None = None,
        input: str | None = None,
    ) -> Ran:
        """The command, as a session whose agent has the same name."""
        return run(
            *args,
            cwd=self.folder,
            env={"GENLOCK_SESSION": as_, "GENLOCK_AGENT": as_, **(env or {})},
            input=input,
        )

    def library(self, as_: str = "s1", *, ago: float = 0) -> Coordinator:
        """The library on the same store, with its clock so many seconds back."""
        clock = ManualClock(datetime.now(UTC) - timedelta(seconds=ago)) if ago else None
        return genlock.connect(self.url, create=True, session_id=as_, agent_id=as_, clock=clock)

    def add(self, *tasks: dict[str, Any] | str) -> None:
        """Tasks to begin with."""
        with self.library() as fleet:
            fleet.add_tasks(tasks=tasks)

    def claim(self, task: str, as_: str = "s1", *, ago: float = 0, lease: float = 300) -> int:
        """A claim to begin with; its generation."""
        with self.library(as_, ago=ago) as fleet:
            claimed = fleet.claim_task(task_id=task, lease_duration_seconds=lease).claim
        assert claimed is not None
        return claimed.generation

    def submit(self, task: str, generation: int, as_: str = "s1", data: object = None) -> None:
        """A result to begin with, accepted or not."""
        with self.library(as_) as fleet:
            fleet.submit_result(task_id=task, generation=generation, result_data=data)

    def complete(self, task: str, as_: str = "s1") -> None:
        """A task that is done."""
        self.submit(task, self.claim(task, as_), as_, {"done": task})

    def events(self) -> list[str]:
        """The types of all events, in order."""
        return [json.loads(line)["event_type"] for line in self.run("events").out.splitlines()]

    def files(self) -> dict[str, bytes]:
        """What the store's files hold, byte by byte."""
        names = ("genlock.db", "genlock.db-wal")
        found = (self.folder / ".genlock" / name for name in names)
        return {path.name: path.read_bytes() for path in found if path.exists()}
