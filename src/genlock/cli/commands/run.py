"""`genlock run`: a command under a claim."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb
from genlock.cli.inputs import SECONDS, WithCommand, command_after_dashes, lease_of
from genlock.cli.render.text import tell
from genlock.cli.workspace_options import (
    base_option,
    copy_option,
    on_complete_option,
    workspaces,
    worktree_option,
)
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.worker.grant import Wanted
    from genlock.worker.task_run import Report


@click.command(name="run", cls=WithCommand)
@click.argument("task", required=False)
@click.option("--next", "next_task", is_flag=True, help="Claim the next task (the default).")
@click.option(
    "--wait",
    type=SECONDS,
    default=0,
    metavar="SECONDS",
    help="Wait up to this long for a task to become ready.",
)
@click.option(
    "--track",
    "tracks",
    multiple=True,
    metavar="TRACK",
    help="Only this track; may be given several times.",
)
@click.option(
    "--lease",
    type=SECONDS,
    metavar="SECONDS",
    help="The length of the lease; default: what suits the task.",
)
@click.option(
    "--patience",
    type=SECONDS,
    default=30,
    metavar="SECONDS",
    help="How long to look for a coordinator that does not answer; default: 30.",
)
@click.option(
    "--role",
    default="",
    envvar="GENLOCK_ROLE",
    metavar="ROLE",
    help="The role you work in; default: $GENLOCK_ROLE.",
)
@worktree_option
@base_option
@copy_option
@on_complete_option
@click.option("--status-file", metavar="PATH", help="Write here, as JSON, what became of the task.")
@click.option(
    "--conflict-exit-code",
    type=click.IntRange(0, 255),
    default=exit_codes.CONFLICT,
    metavar="N",
    help="The exit code if the claim is denied; default: 5.",
)
@verb(worker=True, patient=True)
def run(
    app: App,
    task: str | None,
    next_task: bool,
    wait: float,
    tracks: tuple[str, ...],
    lease: float | None,
    patience: float,
    role: str,
    worktree: bool,
    base: str | None,
    copied: tuple[str, ...],
    on_complete: str | None,
    status_file: str | None,
    conflict_exit_code: int,
) -> None:
    """Run a command under a claim.

    Claims TASK or the next task, runs COMMAND, and renews the lease meanwhile. If COMMAND succeeds,
    its result is submitted: what it has written to the file $GENLOCK_RESULT, or its exit status. If
    it fails, the task is released with the error.

    When the claim is lost, COMMAND and everything that it has started is ended before another
    agent is granted the task. COMMAND finds the task in GENLOCK_TASK, GENLOCK_GENERATION,
    GENLOCK_SESSION, GENLOCK_AGENT, GENLOCK_PROMPT_FILE, GENLOCK_PRODUCTS and GENLOCK_WORKTREE.

    A task with `isolation: worktree` gets a git worktree of its own, in which COMMAND runs. When
    the task is over the worktree is removed; with uncommitted work in it, it is kept and named.

    The exit code is COMMAND's own, or: 3 nothing is ready, 5 denied (COMMAND was not started), 120
    the claim was lost, 121 the result was refused and kept, 122 no coordinator was reached.
    """
    argv = command_after_dashes()
    if not argv:
        raise BadArgument("which command? It stands after --: genlock run --next -- make test")
    if task is not None and (next_task or tracks):
        raise BadArgument("name a task, or take the next one with --next and --track, not both")
    from genlock.work_settings import check_on_complete
    from genlock.worker.command import Command
    from genlock.worker.task_run import TaskRun

    places = workspaces(app, always=worktree, base=base, copied=copied)
    hook = app.setting("on_complete") if on_complete is None else check_on_complete(on_complete)
    command = Command()  # forks: nothing before this may start a thread
    try:
        wanted = _wanted(app, command.warden, argv, task, wait, tracks, lease_of(app, lease))
        wanted = wanted._replace(patience=patience, role=role)
        task_run = TaskRun(
            command,
            lambda: app.fleet,
            argv,
            _environment(app),
            places,
            on_complete=hook,
            conflict_exit_code=conflict_exit_code,
        )
        report = task_run.run(wanted)
    finally:
        command.dismiss()
    if report.outcome == "nothing_ready":
        report.detail = _why_nothing(app, tracks) or report.detail
    _tell(app, report, status_file)
    app.leave(report.exit_code)


def _wanted(
    app: App,
    warden: int,
    argv: Sequence[str],
    task: str | None,
    wait: float,
    tracks: tuple[str, ...],
    lease: float | None,
) -> Wanted:
    """Returns what to claim, and as whom: as a session of its own, unless one is named. The
    session's process is the warden, which ends after the command. So the claim is overdue as soon
    as all its processes have ended, and not before."""
    from genlock.identity import identify_process
    from genlock.worker.grant import Wanted

    app.who = who = identify_process(app.setting("session"), os.path.basename(argv[0]), warden)
    named = app.setting("agent")
    return Wanted(
        who.session,
        named or who.agent,
        task,
        tracks or None,
        wait,
        lease,
        patience=30.0,
        named=bool(named),
    )


def _environment(app: App) -> dict[str, str]:
    """Returns the variables that the command gets besides the claim. Session and generation fence
    it, so it needs no secret of ours."""
    return {**os.environ, "GENLOCK_URL": app.url}


def _why_nothing(app: App, tracks: tuple[str, ...]) -> str:
    """As `genlock next` says it: is the plan finished, or is somebody at work?"""
    from genlock.cli.suggestions import look_out

    found = look_out(app, tracks, wait=True)
    return "" if found is None else found.detail


def _tell(app: App, report: Report, status_file: str | None) -> None:
    if status_file is not None:
        _write(Path(status_file), report)
    if report.on_complete:
        app.answers.say(f"genlock: on_complete: {report.on_complete}")
    if report.kept:
        app.answers.say(f"genlock: {report.task_id}: kept {report.kept}")
    if report.outcome in ("accepted", "failed", "interrupted") and not report.detail:
        return
    where = f"{report.task_id}: " if report.task_id else ""
    kept = (
        f" The result is kept as {report.refused_id}."
        if report.refused_id and report.outcome == "lost"
        else ""
    )
    saved = f" The result is in {report.result_file}." if report.result_file else ""
    app.answers.say(f"genlock: {where}{report.outcome}: {report.detail}{kept}{saved}")


def _write(path: Path, report: Report) -> None:
    """Writes the report atomically, because it may be read at any time."""
    import msgspec

    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(msgspec.json.encode(report) + b"\n")
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        tell(f"genlock: the status file cannot be written: {error.strerror or error}")
