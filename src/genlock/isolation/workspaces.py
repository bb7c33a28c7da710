"""Where the agents of `genlock work` work: all in one folder, or each in a worktree of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from genlock.core.model import Task
from genlock.core.reasons import Isolation
from genlock.errors import GenlockError
from genlock.isolation.worktrees import Worktree, WorktreeError, Worktrees
from genlock.worker.agents.agent_run import Workspace

_NOWHERE: Final = ""


class TaskWorkspaces:
    """Worktrees for all tasks, or only for those that ask for one (`isolation: worktree`)."""

    def __init__(
        self,
        folder: Path,
        open_worktrees: Callable[[], Worktrees],
        *,
        always: bool,
        base: str = "HEAD",
        copy: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._open_worktrees = open_worktrees
        self._always = always
        self._base = base
        self._copy = copy
        self._made: dict[tuple[str, int], Worktree] = {}

    def isolates(self, task: Task) -> bool:
        """Is the task's place its own?"""
        return self._always or task.isolation is Isolation.WORKTREE

    def prepare(self, task: Task, generation: int) -> Workspace:
        """Makes it."""
        if not self.isolates(task):
            return Workspace(str(self._folder))
        trees = self._open_worktrees()
        tree = trees.create(task.id, generation, base=self._base, copy=self._copy)
        self._made[task.id, generation] = tree
        return Workspace(str(tree.path), tree.branch, trees.commit_folders(tree))

    def commit_of(self, task: Task, generation: int) -> str:
        """The last commit that was made there, if one was."""
        tree = self._made.get((task.id, generation))
        if tree is None:
            return _NOWHERE
        state = self._open_worktrees().state(tree)
        return state.head if state.commits else _NOWHERE

    def finish(self, task: Task, generation: int) -> str:
        """Removes it if nothing is lost by that; else says where the work is. Files that git does
        not know and that were not committed are work, too."""
        tree = self._made.pop((task.id, generation), None)
        if tree is None:
            return _NOWHERE
        trees = self._open_worktrees()
        try:
            state = trees.state(tree)
            if state.is_disposable:
                trees.remove(tree)
                return _NOWHERE
        except WorktreeError as error:
            return f"{tree.path} ({error})"
        changes = ", with uncommitted changes" if state.uncommitted else ""
        return f"the branch {tree.branch}{changes}, in {tree.path}"

    def remove_merged(self, is_finished: Callable[[str, int], bool]) -> None:
        """Removes worktrees of finished tasks that were kept, and have been merged since."""
        if not self._always:
            return
        trees = self._open_worktrees()
        for tree in trees.list():
            with suppress(GenlockError):  # then it stays
                if is_finished(tree.task_id, tree.generation) and trees.state(tree).is_disposable:
                    trees.remove(tree)
