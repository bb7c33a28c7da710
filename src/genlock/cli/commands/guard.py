"""`genlock guard`: a git repository that takes no stale work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb
from genlock.cli.render.text import tell

if TYPE_CHECKING:
    from genlock.core.results import PushVerdict
    from genlock.isolation.guard import Guard, Refusal

_HERE = Path()


@click.group()
def guard() -> None:
    """Keep stale work out of a git repository.

    Install the guard into the repository that agents push to. It refuses a push to
    genlock/TASK/genN unless generation N is the highest and its claim is live, and lets only
    accepted commits onto protected branches.
    """


@guard.command()
@click.argument("repo", default=".", metavar="[REPO]")
@click.option(
    "--protect",
    "protected",
    multiple=True,
    metavar="BRANCH",
    help="A branch, or a pattern as release/*; may be given several times; default: main, master.",
)
@click.option("--replace", is_flag=True, help="Replace hooks that are there already.")
@verb()
def install(app: App, repo: str, protected: tuple[str, ...], replace: bool) -> None:
    """Install the guard into a repository.

    The hooks ask the coordinator at the address of --url, or at the one that this folder uses. Keys
    are those of the user whose git runs the hooks.
    """
    from genlock.isolation.guard import DEFAULT_PROTECTED, find_repository, install
    from genlock.project_folder import url_from_anywhere

    repository = find_repository(Path(repo))
    branches = protected or DEFAULT_PROTECTED
    url = url_from_anywhere(app.url)
    options = ["--url", url]
    for name in ("tenant", "project"):
        if app.setting(name):
            options += [f"--{name}", app.setting(name)]
    hooks = install(
        repository, branches, [sys.executable, "-m", "genlock.cli"], options, replace=replace
    )
    app.answers.give(
        {"hooks": [str(hook) for hook in hooks], "url": url, "protected": branches},
        text=lambda console: console.print(
            f"guarded: {repository}; protected: {', '.join(branches)}", soft_wrap=True
        ),
        bare=[str(hook) for hook in hooks],
    )


@guard.command()
@click.argument("repo", default=".", metavar="[REPO]")
@verb()
def remove(app: App, repo: str) -> None:
    """Take the guard out of a repository again."""
    from genlock.isolation.guard import find_repository, remove

    gone = [str(hook) for hook in remove(find_repository(Path(repo)))]
    app.answers.give(
        {"removed": gone},
        text=lambda console: console.print(f"removed: {', '.join(gone) or 'nothing'}"),
        bare=gone,
    )


@guard.command()
@click.argument("ref")
@click.argument("old")
@click.argument("new")
@verb()
def update(app: App, ref: str, old: str, new: str) -> None:
    """The hook that git calls before it moves a branch.

    Exit code 0: git may move it. Anything else: git refuses the push and shows what is printed.
    """
    with _closed(app):
        refused = _guard(app).refusal(ref, old, new)
    if refused is not None:
        _print_refusal(refused)
        app.leave(exit_codes.CONFLICT)


@guard.command(name="post-receive")
@verb()
def post_receive(app: App) -> None:
    """The hook that git calls after it has moved branches.

    It reads OLD NEW REF lines from stdin, asks again, and reports what became stale meanwhile.
    """
    moved = [line.split() for line in sys.stdin if len(line.split()) == 3]
    with _closed(app):
        guarded = _guard(app)
        late = [
            refused
            for old, new, ref in moved
            if (refused := guarded.refusal(ref, old, new)) is not None
        ]
    for refused in late:
        tell(
            f"genlock: {refused.ref} became stale while it was pushed. It is in a branch that "
            "nobody continues, and on no protected branch:"
        )
        _print_refusal(refused)


def _guard(app: App) -> Guard:
    """Returns the guard of the repository in which git runs us. It connects to the coordinator only
    when it has a question."""
    from genlock.core.git_push import unknown_task
    from genlock.errors import TaskNotFound
    from genlock.isolation.guard import Guard, protected_branches

    def ask(task_id: str, generation: int, commit: str, protected: bool) -> PushVerdict:
        try:
            return app.fleet.check_push(
                task_id=task_id, generation=generation, commit=commit, protected=protected
            )
        except TaskNotFound:
            return unknown_task(task_id, generation)

    return Guard(_HERE, protected_branches(_HERE), ask)


def _print_refusal(refused: Refusal) -> None:
    from genlock.messages import describe

    if refused.text:
        tell(f"genlock: {refused.ref}: {refused.text}")
    if refused.verdict is not None:
        told = describe(refused.verdict)
        tell(f"genlock: {refused.verdict.reason}: {told.text}")
        for command in told.try_next:
            tell(f"  {' '.join(command)}")


@contextmanager
def _closed(app: App) -> Iterator[None]:
    """Fails closed: on any error, git refuses the push."""
    from genlock.errors import GenlockError

    try:
        yield
    except GenlockError as error:
        tell(
            "genlock: the push was refused, because the coordinator could not be asked: "
            f"{error.message}"
        )
        app.leave(exit_codes.ERROR)
