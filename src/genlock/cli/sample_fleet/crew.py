"""The agents' processes: started, killed, stopped, woken and ended. None is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import TracebackType

NAMES = ("ada", "bob", "cleo", "dora", "erik", "fay", "gus", "hana", "ivo", "jun")
_PATIENCE_SECONDS = 10.0


class Condition(StrEnum):
    """The condition of an agent's process."""

    WELL = "well"
    STOPPED = "stopped"
    KILLED = "killed"


def names(number: int) -> list[str]:
    """Returns this number of names."""
    return [NAMES[n] if n < len(NAMES) else f"agent-{n + 1}" for n in range(number)]


class Crew:
    """Agents by name. As a context manager it leaves no process behind, however it ends."""

    def __init__(
        self,
        url: str,
        agents: Sequence[str] | Mapping[str, str],
        *,
        project: str = "default",
        kind: str = "dev",
        options: Sequence[str] = (),
        logs: Path | None = None,
        program: str = "agent",
    ) -> None:
        """`agents` may say on whose behalf each works. `logs` is a folder for what they print,
        `program` the module that each of them runs."""
        self._program = f"genlock.cli.sample_fleet.{program}"
        self.condition = dict.fromkeys(agents, Condition.WELL)
        self._users = agents if isinstance(agents, Mapping) else dict.fromkeys(agents, kind)
        self._options = ["--url", url, "--project", project, "--kind", kind, *options]
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # A pid may be that of another crew, in another container, on the same store.
        self._run = f"{kind}-{os.urandom(4).hex()}"
        self._numbers = count(1)
        self._home = False

    def start(self) -> None:
        """Starts each agent that is not at work."""
        for name in self._users:
            process = self._processes.get(name)
            if not self._home and (process is None or process.poll() is not None):
                self._close_stdin(name)
                self._processes[name] = self._started(name)
                self.condition[name] = Condition.WELL

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        session = f"{self._run}-{next(self._numbers)}"
        mine = ["--agent", name, "--session", session, "--user", self._users[name]]
        command = [sys.executable, "-m", self._program, *self._options, *mine]
        quiet = None if os.environ.get("GENLOCK_DEBUG") else subprocess.DEVNULL
        with self._log(name).open("wb") as log:
            # In a session of its own: Ctrl-C is for us, and we end them. Its input ends with us,
            # however we end.
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log if self._logs is not None else quiet,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        return Path(os.devnull) if self._logs is None else self._logs / f"{name}.log"

    def kill(self, name: str) -> None:
        """Kills an agent with kill -9 in the middle of its work: no cleanup, no notice."""
        process = self._processes.get(name)
        if process is not None:
            self.condition[name] = Condition.KILLED
            process.kill()
            process.wait()

    def stop(self, name: str) -> None:
        """Puts an agent to sleep in the middle of its work; it does not notice."""
        self._signal(name, signal.SIGSTOP, Condition.STOPPED)

    def wake(self, name: str) -> None:
        """Wakes a stopped agent, which continues as if nothing had happened."""
        self._signal(name, signal.SIGCONT, Condition.WELL)

    def stopped(self) -> list[str]:
        """Returns the agents that are stopped."""
        return [name for name, now in self.condition.items() if now is Condition.STOPPED]

    def send_home(self) -> list[str]:
        """Ends all agents: in order if they can, and otherwise at once. Returns what went wrong
        with those that could not."""
        self._home = True
        for name in self.stopped():
            self.wake(name)
        for name in self._processes:
            self._close_stdin(name)
        complaints = []
        end = time.monotonic() + _PATIENCE_SECONDS
        for name, process in self._processes.items():
            try:
                code = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                complaints.append(f"{name} did not end within {_PATIENCE_SECONDS:.0f} s")
                continue
            if code != 0 and self.condition[name] is not Condition.KILLED:
                complaints.append(f"{name} ended with {code}: {self._log(name).read_text()}")
        return complaints

    def __enter__(self) -> Crew:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is None:
                process.kill()
                process.wait()
            self._close_stdin(name)

    def _close_stdin(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _signal(self, name: str, number: signal.Signals, then: Condition) -> None:
        if name in self._processes:
            self.condition[name] = then
            self._processes[name].send_signal(number)
