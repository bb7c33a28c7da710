"""A git repository with a project in it, on which commands are called."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import genlock
from genlock.coordinator import Coordinator
from tests.cli.console import Ran, environment, run

WHO = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.com",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.com",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
COMMIT = 'echo "$GENLOCK_TASK" > made.txt && git add made.txt && git commit --quiet -m "Make it"'
"""A shell's words for work that is committed."""


class Place:
    """The repository, its plan, and calls of the command line there."""

    def __init__(self, folder: Path, **tasks: Mapping[str, object]) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "-b", "main")
        (folder / ".gitignore").write_text(".genlock\n.env\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Begin")
        (folder / ".genlock").mkdir()
        self.url = f"sqlite://{folder / '.genlock' / 'genlock.db'}"
        with self.fleet(create=True) as fleet:
            fleet.add_tasks(tasks=[{"id": name, **more} for name, more in tasks.items()])

    @property
    def trees(self) -> Path:
        return self.folder / ".genlock" / "worktrees"

    def fleet(self, session: str = "s1", *, create: bool = False) -> Coordinator:
        return genlock.connect(self.url, create=create, session_id=session, agent_id=session)

    def claim(self, task: str, session: str = "s1") -> int:
        with self.fleet(session) as fleet:
            return fleet.claim_task(task_id=task).require().generation

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=cwd or self.folder,
            env=environment(WHO),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def branches(self) -> list[str]:
        shown = self.git("for-each-ref", "--format=%(refname:short)", "refs/heads/genlock/")
        return shown.splitlines()

    def commit(self, task: str, generation: int, file: str = "work.txt") -> str:
        """A commit in the worktree of this generation."""
        tree = self.trees / f"{task}.gen{generation}"
        (tree / file).write_text(file)
        self.git("add", file, cwd=tree)
        self.git("commit", "--quiet", "-m", f"Write {file}", cwd=tree)
        return self.git("rev-parse", "HEAD", cwd=tree)

    def run(self, *words: object, as_: str = "s1", **env: str | None) -> Ran:
        session = {"GENLOCK_SESSION": as_, "GENLOCK_AGENT": as_}
        return run(*words, cwd=self.folder, env={**WHO, **session, **env})
