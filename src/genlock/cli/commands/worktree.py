"""`genlock worktree`: a git worktree for each generation of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb
from genlock.cli.workspace_options import base_option, copy_option, states_of, worktrees_here
from genlock.errors import BadArgument, GenlockError

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.isolation.survey import WorktreeInfo
    from genlock.isolation.worktrees import Worktree, Worktrees

_SHOWN_FILES = 3


@click.group()
def worktree() -> None:
    """Make, list and remove the git worktrees of tasks.

    Each generation of a task works in a worktree of its own, on the branch genlock/TASK/genN.
    `genlock run` and `genlock work` make and remove them by themselves.
    """


@worktree.command()
@click.argument("task")
@click.option("-g", "--generation", type=int, required=True, help="The generation of your claim.")
@base_option
@copy_option
@verb(holder=True)
def add(app: App, task: str, generation: int, base: str | None, copied: tuple[str, ...]) -> None:
    """Make a worktree for your claim, and enter its path into the task's record.

    Exit code 5 if the claim is not yours at this generation; then nothing is made. A worktree that
    is there already is answered again.
    """
    trees = worktrees_here(app)
    made = trees.find(task, generation)
    tree = made or _made(app, trees, task, generation, base, copied)
    try:
        result = app.fleet.report_progress(
            task_id=task,
            generation=generation,
            worktree_path=str(tree.path),
            session_id=app.who.session,
            agent_id=app.agent_of(task, generation),
        )
    except GenlockError:
        if made is None:
            trees.remove(tree)
        raise
    if not result.success:
        if made is None:
            trees.remove(tree)
        from genlock.messages import describe

        context = app.context(task, generation, app.who.session)
        app.refuse(result, describe(result, context), "no worktree was made")
    app.answers.give(
        {"task": task, "generation": generation, "path": str(tree.path), "branch": tree.branch},
        text=lambda console: console.print(
            f"{tree.path}\non the branch {tree.branch}", soft_wrap=True, markup=False
        ),
        bare=[str(tree.path)],
    )


def _made(
    app: App,
    trees: Worktrees,
    task: str,
    generation: int,
    base: str | None,
    copied: Sequence[str],
) -> Worktree:
    continues = app.fleet.get_policy().policy.get("worktree_start") == "predecessor"
    after = trees.predecessor(task, generation) if continues else ""
    base = base or app.setting("worktree_base")
    return trees.create(task, generation, base=base, after=after, copy=copied)


@worktree.command("list")
@verb()
def list_(app: App) -> None:
    """List the worktrees of tasks in this repository, and what is in them."""
    from genlock.isolation.survey import survey

    found = survey(worktrees_here(app), lambda tasks: states_of(app, tasks))

    def text(console: Console) -> None:
        from genlock.cli.render.tables import Column, print_lines, print_table

        if not found:
            print_lines(console, "there are no worktrees of tasks")
            return
        columns = [
            Column("task", least=12, style="bold"),
            Column("gen", least=3, right=True),
            Column("current", 2, least=7),
            Column("state", 3, least=9),
            Column("commits", 2, least=7, right=True),
            Column("merged", 2, least=6),
            Column("uncommitted", 1, least=11),
            Column("path", 4),
        ]
        print_table(console, columns, [_row(one) for one in found])

    app.answers.give({"worktrees": found}, text=text, bare=[one.path for one in found])


def _row(one: WorktreeInfo) -> tuple[object, ...]:
    current = "at work" if one.live else "yes" if one.current else "no"
    merged = "" if not one.commits else "yes" if one.merged else "no"
    files = _files(one.uncommitted)
    state = one.state or "unknown"
    return (one.task, one.generation, current, state, one.commits, merged, files, one.path)


def _files(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_FILES
    return ", ".join(names[:_SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")


@worktree.command()
@click.argument("task")
@click.option("-g", "--generation", type=int, help="Its generation, if the task has several.")
@click.option("--force", is_flag=True, help="Remove it with the work in it, and say what is lost.")
@verb()
def remove(app: App, task: str, generation: int | None, force: bool) -> None:
    """Remove a worktree and its branch.

    Refuses if somebody is at work in it, if it has uncommitted changes, or if its branch has
    commits that are nowhere else. --force says what is lost, and how to get the commits back.
    """
    from genlock.isolation.survey import look
    from genlock.isolation.worktrees import WorkWouldBeLost

    trees = worktrees_here(app)
    tree = _the_one(trees, task, generation)
    found = look(trees, tree, states_of(app, [tree.task_id]).get(tree.task_id))
    commits = [] if found.merged else trees.commits(tree)
    head = trees.state(tree).head
    again = app.command("worktree remove", task, "-g", tree.generation, "--force")
    if found.live and not force:
        raise WorkWouldBeLost(
            f"{task} is held at generation {tree.generation}, and its holder works in {tree.path}; "
            f"to remove it all the same, type: {again}"
        )
    try:
        trees.remove(tree, force=force)
    except WorkWouldBeLost as error:
        raise WorkWouldBeLost(f"{error.message}; to lose that, type: {again}") from None
    lost = {"uncommitted": found.uncommitted, "commits": commits}
    back = ["git", "branch", tree.branch, head] if commits else []

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_commands, print_lines
        from genlock.messages import typed

        lines = [f"removed: {found.path}"]
        if found.uncommitted:
            lines.append(f"lost: uncommitted changes of {', '.join(found.uncommitted)}")
        lines += [f"lost: {commit}" for commit in commits]
        print_lines(console, *lines)
        if back:
            print_lines(console, "to get the commits back, as long as git keeps them:")
            print_commands(console, typed(back))

    app.answers.give({"removed": found, "lost": lost, "get_back": back}, text=text)


def _the_one(trees: Worktrees, task: str, generation: int | None) -> Worktree:
    found = [
        tree
        for tree in trees.list()
        if tree.task_id == task and generation in (None, tree.generation)
    ]
    if not found:
        which = task if generation is None else f"{task} at generation {generation}"
        raise BadArgument(f"there is no worktree of {which}; genlock worktree list shows all")
    if len(found) > 1:
        numbers = ", ".join(str(tree.generation) for tree in found)
        raise BadArgument(f"{task} has worktrees of the generations {numbers}; choose one with -g")
    return found[0]


@worktree.command()
@base_option
@verb()
def prune(app: App, base: str | None) -> None:
    """Remove the worktrees whose task is over or whose branch is merged.

    A branch with commits that are not merged is kept without its worktree. A worktree with
    uncommitted work is kept and named, and so is one in which somebody is at work.
    """
    from genlock.isolation.survey import prune

    trees = worktrees_here(app)
    pruned = prune(
        trees,
        lambda tasks: states_of(app, tasks),
        trees.check_base(base or app.setting("worktree_base")),
    )

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        lines = [f"removed: {path}" for path in pruned.removed]
        lines += [f"removed: the branch {branch}" for branch in pruned.branches]
        lines += [
            f"kept: {one.path}, with uncommitted work: {_files(one.uncommitted)}"
            for one in pruned.kept
        ]
        print_lines(console, *(lines or ["nothing to remove"]))

    app.answers.give(pruned, text=text, bare=pruned.removed)
