"""An agent of the scene with the repository: it claims a task, works in a worktree of its own,
commits, pushes its branch, and submits the commit.

Like the other agents it knows nothing of the accidents. Git's answers to its pushes are in no feed,
so it writes them to a file beside the repository.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

import genlock
from genlock.cli.sample_fleet.agent import leave_with_parent
from genlock.errors import Closed, ServiceError
from genlock.isolation.worktrees import Worktree, Worktrees
from genlock.worker import ClaimLost, NotGranted, Work

PUSHES: Final = "pushes.jsonl"
OWN_SETTINGS: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
"""The user's settings could sign commits or have hooks elsewhere."""
_REASON: Final = re.compile(r"genlock: ([A-Z][A-Z_]+):")
_WAIT_SECONDS: Final = 0.3


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "project", "agent", "session", "user", "kind", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steady", type=float, metavar="PACE", default=1.0)
    options = parser.parse_args()
    os.environ.update(OWN_SETTINGS)
    leaving = threading.Event()
    threading.Thread(target=leave_with_parent, args=[leaving], daemon=True).start()
    with genlock.connect(
        options.url,
        project_id=options.project,
        session_id=options.session,
        agent_id=options.agent,
        user_id=options.user,
    ) as fleet:
        fleet.register_session(agent_type=options.kind, metadata={"agent": options.agent})
        coder = Coder(fleet, options.agent, Path(options.folder), options.steady, leaving)
        while not leaving.is_set():
            coder.work_once()
        fleet.end_session()


class Coder:
    """One of them."""

    def __init__(
        self, fleet: Any, name: str, folder: Path, pace: float, leaving: threading.Event
    ) -> None:
        self._fleet, self._name, self._folder = fleet, name, folder
        self._pace, self._leaving = pace, leaving
        self._trees = Worktrees.around(folder / "shop", folder / "worktrees")

    def work_once(self) -> None:
        """Claims the next task, if there is one, and finishes it."""
        try:
            with self._fleet.next_task(wait=_WAIT_SECONDS) as work:
                self._do(work)
        except NotGranted:
            pass
        except ClaimLost:
            pass
        except (Closed, ServiceError):
            self._leaving.wait(0.5)

    def _do(self, work: Work) -> None:
        tree = self._trees.create(work.id, work.generation, base="main")
        work.progress(0.1, worktree_path=str(tree.path))
        # An agent that takes over finds most of the work done.
        seconds = (work.task.estimate_seconds or 1) * self._pace / (1 if work.attempt == 1 else 8)
        if not self._pretend(work, seconds):
            return
        # The agent does not ask whether the claim is still its own: the generation decides, at the
        # repository and at the coordinator.
        commit = self._commit(work, tree)
        ok, reason = push(tree.path, f"{tree.branch}:refs/heads/{tree.branch}")
        note_push(self._folder, self._name, work.id, work.generation, ok, reason)
        work.submit({"file": f"{work.id}.py"}, ref=f"git:{commit}")

    def _pretend(self, work: Work, seconds: float) -> bool:
        """Pretends to work for this time, or until it notices that the claim is lost; False if it
        has to leave."""
        while seconds > 0 and not work.lost.wait(min(seconds, 0.2)):
            seconds -= 0.2
            if self._leaving.is_set():
                return False
        return True

    def _commit(self, work: Work, tree: Worktree) -> str:
        (tree.path / f"{work.id}.py").write_text(f"# {work.id}, by {self._name}\n")
        git(tree.path, "add", "--all")
        who = (f"user.name={self._name}", f"user.email={self._name}@example.org")
        settings = [word for each in who for word in ("-c", each)]
        message = f"{work.id}, generation {work.generation}"
        git(tree.path, *settings, "commit", "--quiet", "--message", message)
        return git(tree.path, "rev-parse", "HEAD")


def note_push(folder: Path, agent: str, task: str, generation: int, ok: bool, reason: str) -> None:
    """Appends a line to the file of pushes."""
    told = {"agent": agent, "task": task, "generation": generation, "ok": ok, "reason": reason}
    with (folder / PUSHES).open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def push(where: Path, *refs: str) -> tuple[bool, str]:
    """Pushes. Returns whether git accepted it and, if not, the guard's reason or the end of git's
    output."""
    done = subprocess.run(
        ["git", "push", "--quiet", "origin", *refs],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    reason = _REASON.search(done.stderr)
    return done.returncode == 0, reason[1] if reason else done.stderr.strip()[-200:]


def git(where: Path, *words: str) -> str:
    """Runs git and returns its output."""
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
