"""`genlock run` as a test sees it: real processes, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import genlock
from genlock import Coordinator
from tests.cli.console import COMMAND, environment
from tests.eventually import eventually

TREE = """
import os, subprocess, sys, time
place = sys.argv[1]
LIVE = "import sys, time, os; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", LIVE, f"{place}/child"])
subprocess.Popen(["sh", "-c", f'"{sys.executable}" -c "{LIVE}" {place}/grandchild & sleep 600'])
subprocess.Popen([sys.executable, "-c", LIVE, f"{place}/setsid"], start_new_session=True)
if os.fork() == 0:                       # a daemon: its parent is gone, and its session is its own
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", LIVE, f"{place}/daemon"])
    os._exit(0)
open(f"{place}/leader", "w").write(str(os.getpid()))
time.sleep(600)
"""
"""A command that leaves processes behind in every way there is."""

MEMBERS = ("leader", "child", "grandchild", "setsid", "daemon")


class Run:
    """A `genlock run` that is under way."""

    def __init__(self, process: subprocess.Popen[str], place: Path) -> None:
        self.process = process
        self.place = place

    @property
    def status(self) -> dict[str, Any]:
        """The status file."""
        found: dict[str, Any] = json.loads((self.place / "status.json").read_text())
        return found

    def end(self) -> int:
        """Waits for the end; the exit code."""
        return self.process.wait(60)

    def pids(self) -> dict[str, int]:
        """The processes of `TREE`, once all are there."""

        def written() -> dict[str, int]:
            with suppress(OSError, ValueError):
                return {name: int((self.place / name).read_text()) for name in MEMBERS}
            return {}

        return eventually(written, "the whole tree")


def is_alive(pid: int) -> bool:
    """Does the process exist, and is it no zombie?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def store(place: Path, *tasks: str) -> str:
    """A store with these tasks."""
    url = f"sqlite://{place}/plan.db"
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=list(tasks) or ["T"])
    return url


@contextmanager
def running(url: str, place: Path, *arguments: object, **more: Any) -> Iterator[Run]:
    """`genlock run` with these arguments, killed at the end of the block if it still runs."""
    env = environment(more.pop("env", None)) | {"GENLOCK_URL": url}
    env.pop("GENLOCK_SESSION", None)
    command = [*COMMAND, "run", "--status-file", place / "status.json", *arguments]
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=place,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **more,
    ) as process:
        try:
            yield Run(process, place)
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
                os.kill(process.pid, signal.SIGKILL)


def events(fleet: Coordinator) -> list[str]:
    """What has happened, by name."""
    return [event.event_type for event in fleet.read_events().events]
