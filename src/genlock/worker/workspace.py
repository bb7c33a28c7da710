"""The place in which a command under a claim works: a shared folder, or a place of its own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from genlock.core.model import Task


class Workspace(NamedTuple):
    """The place in which one generation works."""

    folder: str
    branch: str = ""
    """Empty: the generation shares the folder with others."""
    git_folders: tuple[str, ...] = ()
    """The folders that a commit writes to, besides this one."""
    base: str = ""
    """The branch to merge into."""
    container: tuple[str, ...] = ()
    """The words that prefix the command to run it in a container; empty without a container."""


class Workspaces(Protocol):
    """Gives each generation its place."""

    def isolates(self, task: Task) -> bool:
        """Does the task get a place of its own?"""

    def prepare(self, task: Task, generation: int, files: Path) -> Workspace:
        """Creates the place. `files` holds the prompt and later the result of the command."""

    def commit_of(self, task: Task, generation: int) -> str:
        """Returns the last commit made there, if any."""

    def finish(self, task: Task, generation: int, *, over: bool) -> str:
        """Removes the place, unless that would lose work; then returns where the work is. `over`:
        the result is accepted, so a branch is enough to keep its commits."""


def place_environment(workspace: Workspace) -> dict[str, str]:
    """Returns the environment variables that describe the place to a command."""
    if not workspace.branch:
        return {}
    return {
        "GENLOCK_WORKTREE": workspace.folder,
        "GENLOCK_BRANCH": workspace.branch,
        "GENLOCK_BASE": workspace.base,
    }
