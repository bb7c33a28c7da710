"""Options that `genlock run` and `genlock work` share: where their commands work, and what runs
when a result is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genlock.cli.app import App

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from genlock.core.results import TaskState
    from genlock.isolation.workspaces import TaskWorkspaces
    from genlock.isolation.worktrees import Worktrees

_MOST_AT_ONCE = 500

worktree_option = click.option(
    "--worktree",
    is_flag=True,
    help="Give each task a git worktree of its own, on the branch genlock/<task>/gen<N>.",
)
base_option = click.option(
    "--base",
    metavar="BRANCH",
    help="Where worktrees begin; default: the setting worktree_base, else the present branch.",
)
copy_option = click.option(
    "--copy",
    "copied",
    multiple=True,
    metavar="PATH",
    help="A file that git ignores and each worktree needs, such as .env; may be repeated.",
)
on_complete_option = click.option(
    "--on-complete",
    metavar="COMMAND",
    help="Run this command after each acceptance; default: the setting on_complete, else nothing.",
)


def worktrees_here(app: App) -> Worktrees:
    """Returns the worktrees of the repository around this folder."""
    from genlock.isolation.worktrees import Worktrees

    return Worktrees.around(Path.cwd(), app.project_folder / "worktrees")


def workspaces(
    app: App, *, always: bool, base: str | None, copied: Sequence[str]
) -> TaskWorkspaces:
    """Returns where tasks are worked on. Wrong options are reported before anything starts."""
    from genlock.isolation.workspaces import TaskWorkspaces
    from genlock.isolation.worktrees import check_copied

    here = Path.cwd()
    trees = cache(lambda: worktrees_here(app))
    base = base or app.setting("worktree_base")
    for name in copied:
        check_copied(name)
    if always:
        trees().check_base(base)
    return TaskWorkspaces(
        here,
        trees,
        always=always,
        base=base,
        copy=copied,
        container=app.setting("container"),
        continues=lambda: app.fleet.get_policy().policy.get("worktree_start") == "predecessor",
    )


def states_of(app: App, task_ids: Iterable[str]) -> Mapping[str, TaskState]:
    """Returns the states of these tasks; those that do not exist are left out."""
    names, found = list(task_ids), dict[str, "TaskState"]()
    for first in range(0, len(names), _MOST_AT_ONCE):
        found |= app.fleet.batch_get_states(task_ids=names[first : first + _MOST_AT_ONCE])
    return found
