"""A process for tests of process identity: it does what it is told, wherever it was started, and
says what came of it.

Orders are lines of JSON: `do` names what to do, the rest is for that. `{"do": "open", "url": …,
"session": …}` comes first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import msgspec

import genlock
from genlock.core.model import Process
from genlock.engine.processes import identify


class Resident:
    """What it has opened, and the child that it looks after."""

    def __init__(self) -> None:
        self.fleet: genlock.Coordinator
        self.child: subprocess.Popen[bytes]

    def open(self, url: str, session: str) -> Any:
        self.fleet = genlock.connect(url, create=True, session_id=session, agent_id=session)
        return os.uname().nodename

    def become(self, user: int) -> None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)

    def pid(self) -> Any:
        return os.getpid()

    def identify(self, pid: int | None = None) -> Any:
        return msgspec.to_builtins(identify(pid))

    def add(self, task: str) -> None:
        self.fleet.add_tasks(tasks=[task])

    def claim(self, task: str, session: str | None = None, lease: float = 300) -> Any:
        answer = self.fleet.claim_task(
            task_id=task, session_id=session, lease_duration_seconds=lease
        )
        return answer.claim.generation if answer.claim else answer.reason

    def next(self, wait: float = 0) -> Any:
        answer = self.fleet.claim_next(wait_seconds=wait)
        return answer.claim.generation if answer.claim else answer.reason

    def submit(self, task: str, generation: int) -> Any:
        answer = self.fleet.submit_result(
            task_id=task, generation=generation, result_data={"work": "done"}
        )
        return answer.accepted or answer.reason

    def sweep(self) -> Any:
        return self.fleet.sweep().orphaned

    def sessions(self) -> Any:
        return {session.session_id: session.process_gone for session in self.fleet.list_sessions()}

    def register(self, session: str, process: dict[str, Any] | None = None) -> None:
        """For its child, unless it is told which process the session is."""
        if process is None:
            self.fleet.register_session(session_id=session, pid=self.child.pid)
        else:
            self.fleet.register_session(session_id=session, process=Process(**process))

    def enroll(self) -> Any:
        """Registers its own session, as the process that it is."""
        return self.fleet.register_session().pid

    def bear(self) -> None:
        self.child = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )  # which ends with us

    def bury(self) -> None:
        self.child.kill()
        self.child.wait()


def main() -> None:
    resident = Resident()
    for line in sys.stdin:
        order = json.loads(line)
        answer = getattr(resident, order.pop("do"))(**order)
        print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    main()
