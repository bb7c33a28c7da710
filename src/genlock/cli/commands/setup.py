"""Registering Genlock with an agent's client: setup."""

from __future__ import annotations

import shutil
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.cli.agents.clients import Client
    from genlock.cli.agents.files import Change


AGENTS = ("claude", "codex", "cursor", "gemini", "gptme", "opencode")


@click.command()
@click.argument("agent", type=click.Choice(AGENTS))
@click.option("--print", "only_print", is_flag=True, help="Show what would change; write nothing.")
@click.option("--remove", is_flag=True, help="Take out what setup has put in.")
@click.option("--check", is_flag=True, help="Check that all is set up: exit code 3 if not.")
@verb(store=False)
def setup(app: App, agent: str, only_print: bool, remove: bool, check: bool) -> None:
    """Register Genlock with an agent's client, for this project.

    Writes the MCP server, the hooks and a few lines of instructions into the client's files in this
    folder. Everything else in them stays. The same call again changes nothing. As JSON: {"agent",
    "changed": [{"file", "made"}], "next"}.
    """
    if sum((only_print, remove, check)) > 1:
        raise BadArgument("--print, --remove and --check exclude each other")
    from genlock.cli.agents import files
    from genlock.cli.agents.clients import CLIENTS
    from genlock.project_folder import FOLDER
    from genlock.trust import check_owner

    client, root = CLIENTS[agent], _root()
    check_owner(root / FOLDER)
    changes = files.planned(client, root, remove=remove)
    if only_print:
        app.answers.write_text("".join(map(_difference, changes)))
        return
    if not check:
        files.apply(changes, remove=remove)
    _give(app, client, changes, remove=remove, check=check)
    if check and changes:
        app.leave(exit_codes.NOT_FOUND)


def _root() -> Path:
    """Returns the project's folder: the nearest one with `.git` or `.genlock`, else the working
    folder."""
    here = Path.cwd()
    above = (folder for folder in (here, *here.parents) if _is_root(folder))
    return next(above, here)


def _is_root(folder: Path) -> bool:
    return (folder / ".git").exists() or (folder / ".genlock").is_dir()


def _difference(change: Change) -> str:
    before, after = change.before or "", change.after or ""
    lines = unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        change.file.name if change.before is not None else "/dev/null",
        change.file.name if change.after is not None else "/dev/null",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _give(app: App, client: Client, changes: list[Change], *, remove: bool, check: bool) -> None:
    told = {
        "agent": client.name,
        "changed": [
            {"file": change.file.name, "made": change.before is None} for change in changes
        ],
        "next": "" if remove else client.then,
    }

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        if not changes:
            what = "was not set up" if remove else "is set up"
            print_lines(console, f"{client.title} {what} here; nothing was changed")
        verb = "differs" if check else "removed from" if remove else "written"
        print_lines(console, *(f"{verb}: {change.file.name}" for change in changes))
        if check and changes:
            app.answers.say(f"type: {app.command('setup', client.name)}")
        elif not remove:
            app.answers.say(f"next: {client.then}")

    app.answers.give(told, text=text, bare=[change.file.name for change in changes])
    if not remove and shutil.which("genlock") is None:
        app.answers.say(
            "the command genlock is not on your PATH, so the agent will not find it; "
            "install it with: uv tool install genlock"
        )
