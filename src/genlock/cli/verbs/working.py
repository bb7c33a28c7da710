"""What workers do with claims: next, claim, renew, release."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import click

from genlock.cli import exits
from genlock.cli.app import App, verb
from genlock.cli.inputs import claim_meant, lease_of, lease_or_default, on_a_claim
from genlock.cli.slips import note_missing
from genlock.cli.streams import forget_stdout

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.cli.outlook import NothingReady
    from genlock.core.results import ClaimResult, TaskClaim

_export = click.option("--export", is_flag=True, help="Print lines for a shell to eval; nothing if it is not granted.")
_lease = click.option("--lease", type=float, metavar="SECONDS", help="How long the claim lasts unrenewed; default: 300.")
_operation = click.option("--operation", metavar="ID", help="The same id again is answered alike: for calls whose answer was lost.")


@click.command()
@click.option("--wait", type=float, default=0, metavar="SECONDS", help="Wait so long for a task to become ready.")
@click.option("--track", "tracks", multiple=True, metavar="TRACK", help="Only of this track; may be given several times.")
@_lease
@_operation
@_export
@verb(worker=True)
def next_task(app: App, wait: float, tracks: tuple[str, ...], lease: float | None, operation: str | None, export: bool) -> None:
    """Claim whatever comes first.

    Prints the task and its generation: the number that renew, submit and release must show. In a shell:

    \b
        eval "$(genlock next --export)" && work && genlock submit

    If nothing is ready, it says why: the plan is finished, others are at work, or somebody has to see to a task. As JSON that is
    {…, "outlook": {"standing": "empty" | "finished" | "reserved" | "at_work" | "waiting" | "stuck", "detail", "try_next": […]}}.
    """
    if wait and sys.stderr.isatty():
        app.answers.say(f"waiting up to {wait:g} s for a task; Ctrl-C ends it")
    seconds = lease_of(app, lease)

    def ask() -> ClaimResult:
        return app.fleet.claim_next(tracks=tracks or None, wait_seconds=wait, operation_id=operation, lease_duration_seconds=seconds)

    _claim(app, ask, export, operation, tracks)


@click.command()
@click.argument("task")
@_lease
@_operation
@_export
@verb(worker=True)
def claim(app: App, task: str, lease: float | None, operation: str | None, export: bool) -> None:
    """Claim a task.

    Prints its generation: the number that renew, submit and release must show. Exit code 5 if it is denied.
    """
    seconds = lease_or_default(app, lease)
    _claim(
        app,
        lambda: app.fleet.claim_task(task_id=task, operation_id=operation, lease_duration_seconds=seconds),
        export,
        operation,
    )


@click.command()
@on_a_claim
@click.option("--lease", type=float, metavar="SECONDS", help="Another length for the lease.")
@verb(holder=True)
def renew(app: App, task: str | None, generation: int | None, lease: float | None) -> None:
    """Renew a lease.

    Exit code 5 if it is refused: the claim is lost, or the lease is over.
    """
    task, generation = claim_meant(task, generation)
    result = app.fleet.renew_lease(task_id=task, expected_generation=generation, lease_duration_seconds=lease)

    def text(console: Console) -> None:
        from genlock.cli.tables import from_now, print_lines
        from genlock.cli.wording import after_refusal, claim_refusal

        if result.success:
            print_lines(console, f"renewed: the lease of {task} ends {from_now(result.new_expiry)}")
            if result.inputs_changed:
                print_lines(console, f"reset since you claimed it: {', '.join(result.inputs_changed)}")
        else:
            why = claim_refusal(task, result.reason, generation, result.generation, session=app.who.session)
            print_lines(console, f"refused, {result.reason}: {why}")
            app.answers.say(f"see: {after_refusal(app.command, task, result.reason, result.generation)}")

    bare = [result.new_expiry.isoformat().replace("+00:00", "Z")] if result.new_expiry else []
    app.answers.give(result, text=text, bare=bare)
    if not result.success:
        app.leave(exits.CONFLICT)


@click.command()
@on_a_claim
@click.option("--error", is_flag=True, help="The work failed; after several such in a row the task is held.")
@_operation
@verb(holder=True)
def release(app: App, task: str | None, generation: int | None, error: bool, operation: str | None) -> None:
    """Give a claim back.

    Exit code 5 if it is refused: the claim is not yours any more.
    """
    task, generation = claim_meant(task, generation)
    result = app.fleet.release_claim(
        task_id=task, expected_generation=generation, reason="ERROR" if error else "VOLUNTARY", operation_id=operation
    )

    def text(console: Console) -> None:
        from genlock.cli.tables import print_lines
        from genlock.cli.wording import after_refusal, claim_refusal

        if result.success:
            print_lines(console, f"released: {task}")
        else:
            why = claim_refusal(task, result.reason, generation, result.generation, session=app.who.session)
            print_lines(console, f"refused, {result.reason}: {why}")
            app.answers.say(f"see: {after_refusal(app.command, task, result.reason, result.generation)}")

    app.answers.give(result, text=text, bare=[result.generation] if result.success else [])
    if not result.success:
        app.leave(exits.CONFLICT)


def _claim(app: App, ask: Callable[[], ClaimResult], export: bool, operation: str | None, tracks: Collection[str] = ()) -> None:
    """Asks for a claim and answers. A claim of which nobody was told, for Ctrl-C, a closed pipe or a full disk, is given back."""
    result: ClaimResult | None = None
    try:
        result = ask()
        _give(app, result, _outlook(app, result, tracks), export)
    except (KeyboardInterrupt, OSError):
        forget_stdout()
        # With an operation id whoever asked can ask again for the same claim.
        if result is not None and result.claim is not None and operation is None and _is_new(result.claim):
            app.fleet.release_claim(task_id=result.claim.task_id, expected_generation=result.claim.generation)
            app.answers.say(f"given back: {result.claim.task_id}")
        raise
    if result.reason.value == "NOTHING_READY":
        note_missing(app, tracks)
        app.leave(exits.NOT_FOUND)
    if not result.success:
        app.leave(exits.CONFLICT)


def _is_new(claim: TaskClaim) -> bool:
    """Was it granted just now, or is it one that we held before and that was extended?"""
    return (claim.expires_at - claim.claimed_at).total_seconds() <= claim.lease_seconds


def _outlook(app: App, result: ClaimResult, tracks: Collection[str]) -> NothingReady | None:
    """Why nothing is ready, where that is so and somebody is to be told."""
    from genlock.cli.answers import Style

    if result.reason.value != "NOTHING_READY" or app.answers.style is Style.BARE:
        return None
    from genlock.cli.outlook import look_out

    return look_out(app, tracks, wait=True)


def _give(app: App, result: ClaimResult, outlook: NothingReady | None, export: bool) -> None:
    """The answer to a claim."""
    claim = result.claim
    if export:
        _give_export(app, result, outlook)
        return
    bare = [claim.task_id, claim.generation] if claim is not None else []
    app.answers.give(_with(result, outlook), text=lambda console: _print_claim(app, console, result, outlook), bare=bare)


def _with(result: ClaimResult, outlook: NothingReady | None) -> ClaimResult:
    if outlook is None:
        return result
    from msgspec.structs import asdict

    from genlock.cli.outlook import NothingGranted

    return NothingGranted(**asdict(result), outlook=outlook)


def _give_export(app: App, result: ClaimResult, outlook: NothingReady | None) -> None:
    from shlex import quote

    from genlock.cli.wording import denial

    claim = result.claim
    if claim is None:
        app.answers.say(f"genlock: not granted, {result.reason}: {outlook.detail if outlook else denial(result)}")
        return
    click.echo(f"export GENLOCK_TASK={quote(claim.task_id)}\nexport GENLOCK_GENERATION={claim.generation}")


def _print_claim(app: App, console: Console, result: ClaimResult, outlook: NothingReady | None) -> None:
    from genlock.cli.app import title_of
    from genlock.cli.tables import from_now, print_fields, print_lines
    from genlock.cli.wording import denial

    claim = result.claim
    if claim is None:
        why = outlook.detail if outlook else denial(result)
        print_lines(console, f"{'not granted' if result.task_id else 'nothing'}, {result.reason}: {why}")
        see = app.command("explain", result.task_id) if result.task_id else app.command("ready")
        app.answers.say(f"type: {outlook.try_next[0]}" if outlook else f"see: {see}")
        return
    print_fields(
        console,
        [
            ("task", claim.task_id),
            ("generation", claim.generation),
            ("lease ends", f"{from_now(claim.expires_at)} ({claim.expires_at:%H:%M:%S} UTC)"),
            ("title", title_of(result.task) if result.task else ""),
            ("inputs changed", ", ".join(result.inputs_changed)),
        ],
    )
    app.answers.say(f"when done: {app.command('submit', claim.task_id, '-g', claim.generation)}")
