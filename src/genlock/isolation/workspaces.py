"""Where the commands of `genlock run` and the agents of `genlock work` work: all in one folder, or
each in a worktree of its own, in a container or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from genlock.core.model import Task
from genlock.core.reasons import Isolation
from genlock.isolation.container import container_words
from genlock.isolation.worktrees import Worktree, WorktreeError, Worktrees, short_name
from genlock.work_settings import NO_CONTAINER
from genlock.worker.workspace import Workspace

_NOWHERE: Final = ""


class TaskWorkspaces:
    """Worktrees for all tasks, or only for those that ask for one (`isolation: worktree`, and
    `isolation: container`)."""

    def __init__(
        self,
        folder: Path,
        open_worktrees: Callable[[], Worktrees],
        *,
        always: bool,
        base: str = "HEAD",
        copy: Sequence[str] = (),
        container: str = "",
        continues: Callable[[], bool] = lambda: False,
    ) -> None:
        """`container` is the template. `continues`: does a generation begin at the last commit of
        its predecessor?"""
        self._folder = folder
        self._open_worktrees = open_worktrees
        self._always = always
        self._base = base
        self._copy = copy
        self._container = container
        self._continues = continues
        self._made: dict[tuple[str, int], Worktree] = {}

    def isolates(self, task: Task) -> bool:
        """Is the task's place its own?"""
        return self._always or task.isolation is Isolation.WORKTREE or self._contains(task)

    def _contains(self, task: Task) -> bool:
        return task.isolation is Isolation.CONTAINER and self._container != NO_CONTAINER

    def prepare(self, task: Task, generation: int, files: Path) -> Workspace:
        """Makes it. In `files` are the prompt and later the result of the command."""
        if not self.isolates(task):
            return Workspace(str(self._folder))
        trees = self._open_worktrees()
        after = trees.predecessor(task.id, generation) if self._continues() else ""
        tree = trees.create(task.id, generation, base=self._base, after=after, copy=self._copy)
        self._made[task.id, generation] = tree
        workspace = Workspace(
            str(tree.path), tree.branch, trees.commit_folders(tree), short_name(tree.base)
        )
        if not self._contains(task):
            return workspace
        git = trees.common_folder()
        words = container_words(self._container, workspace, files=str(files), git=git, task=task.id)
        return workspace._replace(container=words)

    def commit_of(self, task: Task, generation: int) -> str:
        """The last commit that was made there, if one was."""
        tree = self._made.get((task.id, generation))
        if tree is None:
            return _NOWHERE
        state = self._open_worktrees().state(tree)
        return state.head if state.commits else _NOWHERE

    def finish(self, task: Task, generation: int, *, over: bool) -> str:
        """Removes it, unless work would be lost by that; then it says where the work is. Files that
        git does not know and that were not committed are work, too."""
        tree = self._made.pop((task.id, generation), None)
        if tree is None:
            return _NOWHERE
        trees = self._open_worktrees()
        try:
            state = trees.state(tree)
            if state.is_disposable or (over and not state.uncommitted):
                branch_kept = trees.retire(tree)
                return f"the branch {tree.branch}" if branch_kept else _NOWHERE
        except WorktreeError as error:
            return f"{tree.path} ({error})"
        changes = ", with uncommitted changes" if state.uncommitted else ""
        return f"the branch {tree.branch}{changes}, in {tree.path}"
