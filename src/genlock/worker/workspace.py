"""Where a command under a claim works: in a folder that it shares with others, or in a place of its
own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from genlock.core.model import Task


class Workspace(NamedTuple):
    """Where one generation works."""

    folder: str
    branch: str = ""
    """Empty: the folder is not the generation's alone."""
    git_folders: tuple[str, ...] = ()
    """Where a commit writes, besides the folder."""
    base: str = ""
    """What the branch should be merged into."""
    container: tuple[str, ...] = ()
    """The words before the command that put it into a container; none if it is in none."""


class Workspaces(Protocol):
    """Gives each generation its place."""

    def isolates(self, task: Task) -> bool:
        """Is the task's place its own?"""

    def prepare(self, task: Task, generation: int, files: Path) -> Workspace:
        """Makes it. In `files` are the prompt and later the result of the command."""

    def commit_of(self, task: Task, generation: int) -> str:
        """The last commit that was made there, if one was."""

    def finish(self, task: Task, generation: int, *, over: bool) -> str:
        """Removes it, unless work would be lost by that; then it says where the work is. `over`:
        the result is accepted, so a branch is enough to keep its commits."""


def place_environment(workspace: Workspace) -> dict[str, str]:
    """What a command finds of its place in its environment."""
    if not workspace.branch:
        return {}
    return {
        "GENLOCK_WORKTREE": workspace.folder,
        "GENLOCK_BRANCH": workspace.branch,
        "GENLOCK_BASE": workspace.base,
    }
