"""`genlock work` as a test sees it: a real fleet of fake agents, and what it tells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import genlock
from genlock import Coordinator
from tests.cli.console import COMMAND, environment
from tests.eventually import eventually

FAKE = Path(__file__).with_name("fake_agent.py")


class AgentFleet:
    """A `genlock work` that is under way."""

    def __init__(self, process: subprocess.Popen[str], place: Path) -> None:
        self.process = process
        self.place = place

    def end(self) -> int:
        """Waits for the end; the exit code."""
        return self.process.wait(60)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it has told so far."""
        lines = (self.place / "events").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def ended(self) -> list[dict[str, Any]]:
        """What became of the tasks so far."""
        return [event for event in self.events if event["event"] == "ended"]

    def outcomes(self) -> list[str]:
        """The same in a word each."""
        return [event["outcome"] for event in self.ended()]

    def reason(self) -> tuple[str, str]:
        """Why it stopped."""
        found = next(event for event in self.events if event["event"] == "stopping")
        return found["reason"], found["detail"]

    def until(self, name: str) -> None:
        """Until an agent has left this mark."""
        eventually((self.place / name).exists, name)

    def errors(self) -> str:
        """What it wrote to stderr."""
        return (self.place / "errors").read_text()


def plan(place: Path, titles: dict[str, str], **more: Any) -> str:
    """A store whose tasks have these titles, which say what a fake agent does with them."""
    url = f"sqlite://{place}/plan.db"
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(
            tasks=[{"id": name, "title": title, **more} for name, title in titles.items()]
        )
    return url


def fake_environment(place: Path, url: str, name: str = "claude") -> dict[str, str]:
    """An environment in which the fake agent is called so."""
    programs = place / "programs"
    programs.mkdir(exist_ok=True)
    script = programs / name
    if not script.exists():
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        script.chmod(0o755)
    env = environment({"GENLOCK_SESSION": None})
    return env | {
        "GENLOCK_URL": url,
        "PLACE": str(place),
        "PATH": f"{programs}:{env['PATH']}",
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.com",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.com",
    }


@contextmanager
def at_work(
    url: str,
    place: Path,
    *arguments: object,
    agent: Sequence[str] = ("--agent", "claude"),
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[AgentFleet]:
    """`genlock work` with these arguments, killed at the end of the block if it still runs."""
    command = [*COMMAND, "work", *agent, *map(str, arguments)]
    with (
        (place / "events").open("w") as events,
        (place / "errors").open("w") as errors,
        subprocess.Popen(
            command,
            cwd=folder or place,
            env={**fake_environment(place, url), **(env or {})},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=events,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield AgentFleet(process, place)
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def state(fleet: Coordinator, task: str = "T") -> tuple[str, int]:
    """A task's state, and how many failures in a row its circuit breaker counts."""
    found = fleet.get_task_state(task_id=task)
    return str(found.state), found.failures


def children(pid: int) -> list[int]:
    """All processes below this one."""
    from genlock.worker.process_tree import descendants

    return descendants(pid)
