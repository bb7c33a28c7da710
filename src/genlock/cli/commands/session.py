"""Sessions, one by one: start, heartbeat, end, show, memory."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb
from genlock.cli.inputs import WithCommand, command_after_dashes
from genlock.cli.render.text import tell
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import SessionInfo, SessionMemory

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def session() -> None:
    """Start, keep alive, show, end or run a session.

    A first claim begins a session by itself; `start` says more of it. `genlock agents` shows what
    sessions say.
    """


def _told(function: F) -> F:
    """Adds the options with which a session describes itself."""
    for option in (
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="NAME=VALUE",
            help="Anything else to remember of it; VALUE is JSON or text.",
        ),
        click.option("--worktree", metavar="FOLDER", help="The git worktree that it works in."),
        click.option("--workspace", metavar="FOLDER", help="The folder that it works in."),
        click.option(
            "--status",
            metavar="STATUS",
            help="What it does: starting, idle, working, waiting or stopping.",
        ),
    ):
        function = option(function)
    return function


@session.command()
@_told
@click.option("--type", "kind", default="", metavar="TYPE", help="As autonomous or cli.")
@click.option(
    "--pid", type=int, metavar="PID", help="The process that it is; default: the one that calls."
)
@verb(worker=True)
def start(app: App, kind: str, pid: int | None, **told: Any) -> None:
    """Start a session.

    It is `starting` until it claims a task or says otherwise. Its workspace is the present folder
    unless --workspace names another. As JSON: what `show` prints.
    """
    said = {"status": "starting", "workspace": os.getcwd()} | _said(app, told)
    info = app.fleet.register_session(agent_type=kind, metadata=said, pid=pid)
    _give(app, info)


@session.command()
@_told
@verb(worker=True)
def heartbeat(app: App, **told: Any) -> None:
    """Say that a session lives, and what it does.

    This renews no lease: that is what `genlock renew` does.
    """
    _give(app, app.fleet.heartbeat_session(metadata=_said(app, told) or None))


@session.command()
@click.argument("name", required=False, metavar="[SESSION]")
@verb(worker=True)
def end(app: App, name: str | None) -> None:
    """End a session and release what it holds; your own unless another is named.

    It does not come back: the next claim needs another session.
    """
    ended = app.fleet.end_session(session_id=app.who.session if name is None else name)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        released = f"; released: {', '.join(ended.released)}" if ended.released else ""
        print_lines(console, f"session {ended.session_id} has ended{released}")

    app.answers.give(ended, text=text, bare=ended.released)


@session.command()
@click.argument("name", required=False, metavar="[SESSION]")
@verb(worker=True)
def show(app: App, name: str | None) -> None:
    """Show a session; your own unless another is named.

    As JSON: {"session_id", "user_id", "agent_type", "active", "claims": […], "metadata": {…}, …}.
    """
    wanted = app.who.session if name is None else name
    _give(app, app.fleet.get_session(session_id=wanted))


@session.command()
@click.argument("name", required=False, metavar="[SESSION]")
@verb(worker=True)
def memory(app: App, name: str | None) -> None:
    """Show what a session has done, holds and has completed.

    As JSON: {"session_id", "task_log": […], "active_claims": […], "completed_tasks": […],
    "track_progress": {…}, …}.
    """
    found = app.fleet.get_session_memory(session_id=app.who.session if name is None else name)
    app.answers.give(
        found, text=lambda console: _print_memory(console, found), bare=found.completed_tasks
    )


@session.command(name="run", cls=WithCommand)
@click.option(
    "--on-conflict",
    type=click.Choice(["fork", "exit", "queue"]),
    default="fork",
    show_default=True,
    help="What to do while another process runs this session.",
)
@click.argument("name", metavar="NAME")
@verb(worker=True)
def run_(app: App, on_conflict: str, name: str) -> None:
    """Run a command as the session NAME, which one process at a time may be.

    The lock is ~/.claude/locks/NAME.lock, for wrappers of your own as well. While another process
    has it: fork runs COMMAND as a session with a name of its own, exit prints "ERROR: Session busy"
    and exits with 1, queue adds COMMAND to the plan as a task and prints its id.

    COMMAND finds the name in GENLOCK_SESSION. The exit code is COMMAND's own.
    """
    from genlock.worker.command import Command
    from genlock.worker.session_lock import SessionLocks, check_lock_name, locks_folder

    argv = command_after_dashes()
    if not argv:
        raise BadArgument(
            "which command? It stands after --: genlock session run nightly -- ./build.sh"
        )
    locks, name = SessionLocks(locks_folder()), check_lock_name(name)
    command = Command()  # forks: nothing before this may start a thread
    try:
        if on_conflict == "fork":
            name = locks.acquire_fork(name)
        elif not locks.acquire(name):
            if on_conflict == "queue":
                _queue(app, name, argv)
                return
            tell("ERROR: Session busy")
            app.leave(exit_codes.ERROR)
        try:
            error = command.start(argv, {**os.environ, "GENLOCK_SESSION": name})
            if error:
                raise BadArgument(f"{argv[0]!r} cannot be started: {error}")
            app.leave(command.wait(lambda: False).exit_code)
        finally:
            locks.release(name)
    finally:
        command.dismiss()


def _queue(app: App, name: str, argv: Sequence[str]) -> None:
    """Adds the command as a task for any agent; in an orchestra of shell scripts, for agents of the
    caller's type."""
    task_id = app.fleet.next_id()
    task = {"id": task_id, "title": f"Queued for session {name}", "description": shlex.join(argv)}
    if app.settings["agent"].origin == "environment AGENT_TYPE":
        task["assigned_to"] = app.setting("agent")
    app.fleet.add_tasks(tasks=[task])
    # Wrappers read this line, so it is the same on a terminal and elsewhere.
    app.answers.write_text(f"Queued: {task_id}\n")


def _said(app: App, told: dict[str, Any]) -> dict[str, Any]:
    """Returns the options as metadata of the session."""
    from genlock.cli.inputs import read_assignments
    from genlock.reads.agents import AGENT, TOLD

    said: dict[str, Any] = read_assignments(told.pop("assignments"), "--set", "NAME=VALUE")
    said |= {name: value for name, value in told.items() if value is not None}
    if said.get("status", TOLD[0]) not in TOLD:
        raise BadArgument(f"--status is one of {', '.join(TOLD)}, not {said['status']!r}")
    if agent := app.setting("agent"):
        said[AGENT] = agent
    return said


def _give(app: App, info: SessionInfo) -> None:
    def text(console: Console) -> None:
        from genlock.cli.render.tables import from_now, print_fields

        state = "ended" if info.ended_at else "active" if info.active else "silent"
        claims = ", ".join(f"{one.task_id} (generation {one.generation})" for one in info.claims)
        print_fields(
            console,
            [
                ("session", info.session_id),
                ("user", info.user_id),
                ("type", info.agent_type),
                ("state", "gone" if info.process_gone else state),
                ("began", from_now(info.created_at)),
                ("last heard of", from_now(info.last_activity)),
                ("process", f"{info.pid} on {info.host}" if info.pid else ""),
                ("holds", claims),
                *((name, str(value)) for name, value in info.metadata.items()),
            ],
        )

    app.answers.give(info, text=text, bare=[info.session_id])


def _print_memory(console: Console, found: SessionMemory) -> None:
    from genlock.cli.render.tables import Column, from_now, print_lines, print_table, stamp

    print_lines(
        console,
        f"session {found.session_id} of {found.user_id or 'nobody named'}, last heard of "
        f"{from_now(found.last_activity)}",
    )
    if found.task_log:
        columns = [
            Column("when", 1, least=8),
            Column("event", least=16),
            Column("task", least=16),
            Column("gen", 3, least=3, right=True),
            Column("agent", 2, least=6),
            Column("outcome", 4, least=8),
        ]
        rows = [
            (
                stamp(entry.timestamp),
                entry.event,
                entry.task_id,
                entry.generation,
                entry.agent_id,
                entry.outcome or "",
            )
            for entry in found.task_log
        ]
        print_table(console, columns, rows)
    print_lines(
        console,
        f"holds: {', '.join(ref.task_id for ref in found.active_claims) or 'nothing'}",
        f"has completed: {', '.join(found.completed_tasks) or 'nothing'}",
    )
