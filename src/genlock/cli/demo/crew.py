"""The crew: worker processes that can be started, killed, stopped, woken and sent home."""

from __future__ import annotations

import signal
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from types import TracebackType

USERS = {"ada": "alice", "bob": "alice", "cleo": "alice", "dora": "ben", "erik": "ben"}
"""Agents, and on whose behalf they work."""

_PATIENCE_SECONDS = 10.0


class Condition(StrEnum):
    """What has become of a worker's process."""

    WELL = "well"
    STOPPED = "stopped"
    KILLED = "killed"


class Crew:
    """Workers by name. As a context manager it leaves no process behind, however it ends."""

    def __init__(self, url: str, folder: Path, pace: float) -> None:
        self.condition = dict.fromkeys(USERS, Condition.WELL)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        try:
            for number, (agent, user) in enumerate(USERS.items(), start=1):
                self._start(agent, ["--agent", agent, "--user", user, "--session", f"sess-{number:03d}", "--url", url, "--pace", str(pace)])
        except BaseException:
            self._end()
            raise

    def _start(self, agent: str, options: list[str]) -> None:
        with self._log(agent).open("wb") as log:
            # In a process group of its own: Ctrl-C is for us, and we send them home.
            self._processes[agent] = subprocess.Popen(
                [sys.executable, "-m", "genlock.cli.demo.worker", *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, agent: str) -> None:
        """kill -9: nothing is tidied up, nobody is told."""
        self._signal(agent, signal.SIGKILL, Condition.KILLED)
        self._processes[agent].wait()

    def stop(self, agent: str) -> None:
        """Puts the worker to sleep in the middle of its work; it does not notice."""
        self._signal(agent, signal.SIGSTOP, Condition.STOPPED)

    def wake(self, agent: str) -> None:
        """The worker goes on as if nothing had happened."""
        self._signal(agent, signal.SIGCONT, Condition.WELL)

    def stopped(self) -> list[str]:
        """Those who sleep."""
        return [agent for agent, condition in self.condition.items() if condition is Condition.STOPPED]

    def send_home(self) -> list[str]:
        """Lets all end in order; says what went wrong with those that could not."""
        for agent in self.stopped():
            self.wake(agent)
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        complaints = []
        for agent, process in self._processes.items():
            try:
                code = process.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                complaints.append(f"{agent} did not end within {_PATIENCE_SECONDS:.0f} s")
                continue
            if code != 0 and self.condition[agent] is not Condition.KILLED:
                complaints.append(f"{agent} ended with {code}: {self._log(agent).read_text()}")
        return complaints

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def _signal(self, agent: str, number: signal.Signals, then: Condition) -> None:
        self.condition[agent] = then
        self._processes[agent].send_signal(number)

    def _log(self, agent: str) -> Path:
        return self._folder / f"{agent}.log"
