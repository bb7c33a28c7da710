"""What the worktrees of a repository are worth: which generation each belongs to, what is in it,
and whether it may go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from genlock.core.reasons import Status
from genlock.core.results import TaskState
from genlock.errors import GenlockError
from genlock.isolation.worktrees import Worktree, Worktrees, short_name

States = Callable[[Iterable[str]], Mapping[str, TaskState]]
"""Asks the coordinator for the states of tasks; those that it does not know are left out."""
_OVER: Final = (Status.COMPLETED, Status.CANCELLED)


class WorktreeInfo(Struct, frozen=True, kw_only=True):
    """One worktree."""

    task: str
    generation: int
    path: str
    branch: str
    base: str
    """What it should be merged into."""
    uncommitted: tuple[str, ...]
    """Files with changes that are in no commit; at most 20."""
    commits: int
    merged: bool
    """Are all of its commits in the base? Also if there is none."""
    current: bool
    """Is its generation the task's highest?"""
    live: bool
    """Does somebody hold the task at this generation?"""
    state: str | None
    """The task's; None if the coordinator knows no such task."""

    @property
    def is_over(self) -> bool:
        return self.state in _OVER


class Pruned(Struct, frozen=True, kw_only=True):
    """What was removed, and what stayed with work in it."""

    removed: tuple[str, ...]
    """Paths of worktrees."""
    branches: tuple[str, ...]
    """Branches that went."""
    kept: tuple[WorktreeInfo, ...]
    """Those that might have gone, but have uncommitted work."""


def survey(trees: Worktrees, states: States) -> list[WorktreeInfo]:
    """All worktrees of the repository, in order."""
    found = trees.list()
    known = states(sorted({tree.task_id for tree in found}))
    return sorted(
        (look(trees, tree, known.get(tree.task_id)) for tree in found),
        key=lambda one: (one.task, one.generation),
    )


def look(trees: Worktrees, tree: Worktree, state: TaskState | None) -> WorktreeInfo:
    """One of them, of a task in this state."""
    inside = trees.state(tree)
    current = state is not None and state.generation == tree.generation
    return WorktreeInfo(
        task=tree.task_id,
        generation=tree.generation,
        path=str(tree.path),
        branch=tree.branch,
        base=short_name(tree.base),
        uncommitted=inside.uncommitted,
        commits=inside.commits,
        merged=inside.merged,
        current=current,
        live=current and is_live(state, tree.generation),
        state=None if state is None else str(state.state),
    )


def is_live(state: TaskState | None, generation: int) -> bool:
    """Does somebody hold the task at this generation?"""
    claim = state.claim if state is not None else None
    return claim is not None and claim.generation == generation


def prune(trees: Worktrees, states: States, base: str = "HEAD") -> Pruned:
    """Removes the worktrees whose task is over or whose branch is merged, and merged branches that
    have no worktree any more. Uncommitted work stays, and so does a place where somebody is at
    work: even a new one, whose branch has nothing that could be unmerged."""
    removed, branches, kept = [], [], []
    for one in survey(trees, states):
        if one.live or not (one.is_over or one.merged):
            continue
        tree = trees.find(one.task, one.generation)
        if one.uncommitted or tree is None:
            kept += [one] if tree is not None else []
            continue
        try:
            branch_kept = trees.retire(tree)
        except GenlockError:  # somebody has begun to work there
            kept.append(look(trees, tree, None))
            continue
        removed.append(one.path)
        branches += [] if branch_kept else [one.branch]
    branches += trees.remove_merged_branches(
        base, lambda task, generation: not is_live(states([task]).get(task), generation)
    )
    return Pruned(removed=tuple(removed), branches=tuple(branches), kept=tuple(kept))
