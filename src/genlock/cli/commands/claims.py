"""Workers' commands for claims: next, claim, renew, release."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NoReturn

import click

from genlock.cli import exit_codes
from genlock.cli.answers import forget_stdout
from genlock.cli.app import App, title_of, verb, with_message
from genlock.cli.inputs import (
    SECONDS,
    claim_meant,
    export_claim,
    lease_of,
    lease_or_default,
    on_a_claim,
)
from genlock.cli.suggestions import note_missing

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.cli.suggestions import NothingReady
    from genlock.core.reasons import ClaimReason
    from genlock.core.results import ClaimResult, Feedback, ReleaseResult, RenewalResult, TaskClaim
    from genlock.messages import Message

_export = click.option(
    "--export",
    is_flag=True,
    help="Print lines for a shell to eval; if nothing is granted they unset and fail.",
)
_lease = click.option(
    "--lease",
    type=SECONDS,
    metavar="SECONDS",
    help="The length of the lease; default: 300.",
)
_role = click.option(
    "--role",
    default="",
    envvar="GENLOCK_ROLE",
    metavar="ROLE",
    help="The role you work in; default: $GENLOCK_ROLE.",
)
_operation = click.option(
    "--operation", metavar="ID", help="Idempotency key: a retry returns the first answer."
)


@click.command()
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
@_lease
@_role
@_operation
@_export
@click.option("--dry-run", is_flag=True, help="Say what would be granted, and why; claim nothing.")
@verb(worker=True)
def next_task(
    app: App,
    wait: float,
    tracks: tuple[str, ...],
    lease: float | None,
    role: str,
    operation: str | None,
    export: bool,
    dry_run: bool,
) -> None:
    """Claim the next task.

    Prints the task and its generation, the number that renew, submit and release need. In a shell:

    \b
      while eval "$(genlock next --export)" && work && genlock submit; do :; done

    Lists the tasks that the session holds already, and never grants them again. If none is ready,
    it says why: the plan is finished, others are at work, or a task needs a person.
    As JSON that is {…, "message", "try_next": [["genlock", …], …], "outlook": {"standing":
    "empty" | "finished" | "reserved" | "at_work" | "waiting" | "stuck", "detail", "try_next"}}.
    """
    if dry_run:
        _preview(app, tracks, role)
        return
    if wait and sys.stderr.isatty():
        app.answers.say(f"waiting up to {wait:g} s for a task; Ctrl-C ends it")
    seconds = lease_of(app, lease)

    agent = app.claiming_agent
    # With an operation id, the answer to a grant lists the session's claims, too.
    fresh = f"next-{os.urandom(8).hex()}"

    def ask() -> ClaimResult:
        return app.fleet.claim_next(
            agent_id=agent,
            tracks=tracks or None,
            wait_seconds=wait,
            operation_id=operation or fresh,
            lease_duration_seconds=seconds,
            agent_role=role,
        )

    _claim(app, ask, export, operation, tracks)


def _preview(app: App, tracks: tuple[str, ...], role: str) -> None:
    """Shows the task that would be granted, and why."""
    who = app.who
    found = app.fleet.preview_next(
        session_id=who.session,
        agent_id=app.claiming_agent,
        tracks=tracks or None,
        agent_role=role,
    )

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_commands, print_lines
        from genlock.messages import typed

        outlook = _outlook(app, found.reason, tracks)
        named = found.task.id if found.task is not None else "nothing"
        because = found.because if outlook is None else (outlook.detail,)
        print_lines(console, f"would be granted: {named}", *(f"  {why}" for why in because))
        if found.task is not None:
            print_commands(console, app.command("claim", found.task.id))
        elif outlook is not None:
            print_commands(console, *map(typed, outlook.try_next))

    app.answers.give(found, text=text, bare=[found.task.id] if found.task is not None else [])
    if found.task is None:
        app.leave(exit_codes.NOT_FOUND)


@click.command()
@click.argument("task")
@_lease
@_role
@_operation
@_export
@verb(worker=True)
def claim(
    app: App, task: str, lease: float | None, role: str, operation: str | None, export: bool
) -> None:
    """Claim a task.

    Prints its generation, the number that renew, submit and release need. Exit code 5 if it is
    denied, 6 if this session and agent hold it already: then another worker may be at work on it.
    Give each worker its own name in GENLOCK_AGENT.
    """
    seconds, agent = lease_or_default(app, lease), app.claiming_agent
    _claim(
        app,
        lambda: app.fleet.claim_task(
            agent_id=agent,
            task_id=task,
            operation_id=operation,
            lease_duration_seconds=seconds,
            agent_role=role,
        ),
        export,
        operation,
    )


@click.command()
@on_a_claim
@click.option("--lease", type=SECONDS, metavar="SECONDS", help="A different length for the lease.")
@verb(holder=True)
def renew(app: App, task: str | None, generation: int | None, lease: float | None) -> None:
    """Renew a lease.

    Exit code 5 if it is refused: the claim is lost, or the lease is over.
    """
    task, generation = claim_meant(task, generation)
    result = app.fleet.renew_lease(
        task_id=task, generation=generation, lease_duration_seconds=lease
    )

    if not result.success:
        _refuse(app, result, task, generation)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import from_now, print_lines

        ends = from_now(result.new_expiry)
        told = f"the lease of {task} ends {ends}" if ends else f"the claim of {task} has no lease"
        print_lines(console, f"renewed: {told}")
        if result.inputs_changed:
            print_lines(console, f"reset since you claimed it: {', '.join(result.inputs_changed)}")

    bare = [result.new_expiry.isoformat().replace("+00:00", "Z")] if result.new_expiry else []
    app.answers.give(result, text=text, bare=bare)


@click.command()
@on_a_claim
@click.option(
    "--error",
    is_flag=True,
    help="The work failed. After several failures in a row the task is held.",
)
@click.option("--reason", default="", metavar="TEXT", help="The reason, for the history.")
@_operation
@verb(holder=True)
def release(
    app: App,
    task: str | None,
    generation: int | None,
    error: bool,
    reason: str,
    operation: str | None,
) -> None:
    """Release a claim.

    Exit code 5 if it is refused: the claim is not yours any more.
    """
    task, generation = claim_meant(task, generation)
    result = app.fleet.release_claim(
        task_id=task,
        generation=generation,
        reason=": ".join(filter(None, ("ERROR" if error else "", reason))) or "VOLUNTARY",
        operation_id=operation,
    )

    if not result.success:
        _refuse(app, result, task, generation)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(console, f"released: {task}")

    app.answers.give(result, text=text, bare=[result.generation])


def _refuse(
    app: App, result: RenewalResult | ReleaseResult, task: str, generation: int
) -> NoReturn:
    from genlock.messages import describe

    app.refuse(result, describe(result, app.context(task, generation, app.who.session)))


def _claim(
    app: App,
    ask: Callable[[], ClaimResult],
    export: bool,
    operation: str | None,
    tracks: Collection[str] = (),
) -> None:
    """Requests a claim and prints the answer. If the answer cannot be delivered (Ctrl-C, a closed
    pipe, a full disk), the claim is released."""
    result: ClaimResult | None = None
    try:
        result = ask()
        if result.reason.value == "NOTHING_READY":
            note_missing(app, tracks)
        _give(app, result, _outlook(app, result.reason, tracks), export)
    except (KeyboardInterrupt, OSError):
        forget_stdout()
        # With an operation id, the caller can retry and get the same claim.
        if (
            result is not None
            and result.claim is not None
            and operation is None
            and not result.already_held
        ):
            app.fleet.release_claim(
                task_id=result.claim.task_id, generation=result.claim.generation
            )
            app.answers.say(f"given back: {result.claim.task_id}")
        raise
    if result.reason.value == "NOTHING_READY":
        app.leave(exit_codes.NOT_FOUND)
    if not result.success:
        app.leave(exit_codes.CONFLICT)
    if result.already_held:
        app.leave(exit_codes.ALREADY_HELD)


def _outlook(app: App, reason: ClaimReason, tracks: Collection[str]) -> NothingReady | None:
    """Returns why nothing is ready, if that is the case and the answer shows it."""
    from genlock.cli.answers import Style

    if reason.value != "NOTHING_READY" or app.answers.style is Style.BARE:
        return None
    from genlock.cli.suggestions import look_out

    return look_out(app, tracks, wait=True)


def _give(app: App, result: ClaimResult, outlook: NothingReady | None, export: bool) -> None:
    """Prints the answer to a claim."""
    claim = result.claim
    message = _message(app, result, outlook)
    if export:
        if claim is not None and message is None:
            app.answers.write_text(export_claim(claim.task_id, claim.generation))
        elif message is not None:
            denied = f"not granted, {result.reason}: " if claim is None else ""
            app.answers.say(f"genlock: {denied}{message.text}")
        return
    app.answers.give(
        _with(result, message, outlook),
        text=lambda console: _print_claim(app, console, result, message),
        bare=[claim.task_id, claim.generation] if claim is not None else [],
    )
    if claim is not None and message is not None:
        app.answers.say(message.text)


def _message(app: App, result: ClaimResult, outlook: NothingReady | None) -> Message | None:
    """Returns the message about a repeated or denied claim, and what to type next."""
    if result.success and not result.already_held:
        return None
    from genlock.messages import Message, describe

    if outlook is not None:
        return Message(outlook.detail, outlook.try_next)
    return describe(result, app.context())


def _with(
    result: ClaimResult, message: Message | None, outlook: NothingReady | None
) -> ClaimResult | dict[str, object]:
    if message is None:
        return result
    return with_message(result, message, **({} if outlook is None else {"outlook": outlook}))


def _print_claim(app: App, console: Console, result: ClaimResult, message: Message | None) -> None:
    from genlock.cli.render.tables import print_commands, print_fields, print_lines
    from genlock.messages import typed

    claim = result.claim
    if claim is None:
        assert message is not None
        denied = "not granted" if result.task_id else "nothing"
        print_lines(console, f"{denied}, {result.reason}: {message.text}")
        _print_held(console, result)
        print_commands(console, *map(typed, message.try_next))
        return
    print_fields(
        console,
        [
            ("task", claim.task_id),
            ("generation", claim.generation),
            ("lease ends", _lease_end(claim)),
            ("title", title_of(result.task) if result.task else ""),
            ("inputs changed", ", ".join(result.inputs_changed)),
            *_feedback(app, claim.task_id, result.feedback),
        ],
    )
    _print_held(console, result)
    if not result.already_held:
        app.answers.say(
            f"when done: {app.command('submit', claim.task_id, '-g', claim.generation)}"
        )


def _lease_end(claim: TaskClaim) -> str:
    from genlock.cli.render.tables import lease_end

    at = claim.expires_at
    return lease_end(at) if at is None else f"{lease_end(at)} ({at:%H:%M:%S} UTC)"


def _feedback(app: App, task: str, feedback: Feedback | None) -> list[tuple[str, object]]:
    """Returns why the last review ended without accepting the result."""
    if feedback is None:
        return []
    rejected = f"generation {feedback.generation}, by {feedback.by}: {feedback.text}"
    adopt = app.command("adopt", task, feedback.refused_id) if feedback.refused_id else ""
    return [("rejected", rejected.removesuffix(": ")), ("its work", adopt)]


def _print_held(console: Console, result: ClaimResult) -> None:
    """Prints the session's other claims."""
    if not result.held:
        return
    from genlock.cli.render.tables import from_now, print_lines
    from genlock.core.model import NO_LEASE

    print_lines(console, "this session holds already:")
    print_lines(
        console,
        *(
            f"  {ref.task_id}, generation {ref.generation}, "
            f"{f'lease ends {from_now(ref.expires_at)}' if ref.expires_at else NO_LEASE}"
            for ref in result.held
        ),
    )
