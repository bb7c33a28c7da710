"""The command that agents' clients call on events of a session: hook."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from genlock.cli.agents.hook_events import (
    HookEvent,
    Kind,
    context_answer,
    export_session,
    read_event,
)
from genlock.cli.app import App, verb
from genlock.cli.commands.setup import AGENTS
from genlock.cli.inputs import GENERATION, TASK
from genlock.cli.render.text import tell
from genlock.errors import GenlockError

if TYPE_CHECKING:
    from genlock.coordinator import Coordinator
    from genlock.core.results import TaskClaim

_BLOCK: Final = 2
"""The exit code by which a hook keeps an agent from stopping."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_QUIET_SHARE: Final = 0.1
"""The share of a lease that must pass after a renewal before a hook renews it again."""
_LOOK_SECONDS: Final = 10.0
"""The time for which a session without claims is not checked again."""


@click.command()
@click.argument("agent", type=click.Choice(AGENTS))
@click.option("--event", default="", metavar="NAME", help="The event, if stdin does not name it.")
@verb(worker=True)
def hook(app: App, agent: str, event: str) -> None:
    """React to an event of an agent's session; clients call this.

    Reads the event from stdin, as the client sends it. At the start of a session it prints what
    `prime` prints, after a tool it renews the session's leases, at the end it releases its claims.
    It never fails the session: if something goes wrong, it says so on stderr and exits with 0.
    """
    told = read_event(b"" if sys.stdin.isatty() else sys.stdin.buffer.read(_MOST_BYTES), event)
    try:
        blocked = _react(app, agent, told)
    except (GenlockError, OSError) as error:
        app.answers.say(f"genlock hook: {error}")
        return
    if blocked:
        tell(blocked)
        app.leave(_BLOCK)


def _react(app: App, agent: str, told: HookEvent) -> str:
    """Reacts to the event. Returns the reason that keeps the agent from stopping, if any."""
    if told.folder and not (Path.cwd() / ".genlock").is_dir() and Path(told.folder).is_dir():
        os.chdir(told.folder)
    session: str | None = app.setting("session") or told.session
    if session is None or told.kind is Kind.OTHER:
        return ""
    note = _Note(session)
    if told.kind is Kind.TOOL and note.is_quiet():
        return ""
    with _open(app, session) as fleet:
        match told.kind:
            case Kind.START:
                _start(app, agent, fleet, session)
            case Kind.TOOL:
                note.write(_renew(fleet, _claims(fleet, session), session))
            case Kind.STOP:
                return "" if told.is_repeated else _unfinished(_own_claims(fleet, session))
            case Kind.END:
                _release(fleet, _own_claims(fleet, session), told.reason)
                note.remove()
    return ""


def _start(app: App, agent: str, fleet: Coordinator, session: str) -> None:
    from genlock.cli.agents.prime_text import prime_text

    if agent == "claude":
        export_session(session)
    app.answers.write_text(context_answer(agent, prime_text(fleet, session), session))


def _open(app: App, session: str) -> Coordinator:
    from genlock.cli.open_fleet import keys_of
    from genlock.open import connect

    return connect(
        app.url,
        tenant_id=app.setting("tenant"),
        project_id=app.setting("project"),
        session_id=session,
        process=None,
        api_key=keys_of(app),
    )


def _claims(fleet: Coordinator, session: str) -> list[TaskClaim]:
    """Returns the session's claims in this project."""
    from genlock.core.reasons import ClaimState

    return [
        claim
        for claim in fleet.get_active_claims_for_session(session_id=session)
        if claim.project_id == fleet.identity.project_id and claim.state is ClaimState.ACTIVE
    ]


def _own_claims(fleet: Coordinator, session: str) -> list[TaskClaim]:
    """Returns the session's claims except the one under which the agent was started: `genlock run`
    and `genlock work` submit its result when the agent has ended."""
    given = (os.environ.get(TASK), os.environ.get(GENERATION))
    return [
        claim
        for claim in _claims(fleet, session)
        if (claim.task_id, str(claim.generation)) != given
    ]


def _renew(fleet: Coordinator, claims: Sequence[TaskClaim], session: str) -> float:
    """Renews the leases that were not renewed recently. Returns the seconds until the next
    renewal."""
    if not claims:
        return _LOOK_SECONDS
    now = time.time()
    due = {
        claim.task_id: claim.generation
        for claim in claims
        if claim.expires_at is not None
        and now - (claim.expires_at.timestamp() - claim.lease_seconds)
        >= claim.lease_seconds * _QUIET_SHARE
    }
    if due:
        fleet.batch_renew(generations=due, session_id=session)
    return _QUIET_SHARE * min(claim.lease_seconds for claim in claims)


def _unfinished(claims: Sequence[TaskClaim]) -> str:
    if not claims:
        return ""
    held = ", ".join(f"{claim.task_id} (generation {claim.generation})" for claim in claims[:5])
    return (
        f"You still hold {held}. Submit the result or release the task before you stop. If you "
        "wait for the user, say what for, and stop again."
    )


def _release(fleet: Coordinator, claims: Sequence[TaskClaim], reason: str) -> None:
    for claim in claims:
        fleet.release_claim(
            task_id=claim.task_id,
            generation=claim.generation,
            note=f"the session ended: {reason}" if reason else "",
        )


class _Note:
    """A file of the user's that says until when a session needs no renewal. Most calls end after
    reading it, before the store is opened."""

    def __init__(self, session: str) -> None:
        from genlock.token_files import folders

        name = "".join(char if char.isalnum() or char in "-_" else "_" for char in session[:80])
        self._path = folders(None)[0] / "hooks" / f"{name}.json"

    def is_quiet(self) -> bool:
        """Is it too early for the next check?"""
        try:
            found: Any = json.loads(self._path.read_bytes())
            at, seconds = float(found["at"]), float(found["seconds"])
        except (OSError, ValueError, TypeError, KeyError):
            return False
        return 0 <= time.time() - at < seconds

    def write(self, seconds: float) -> None:
        """Records that nothing is due for this many seconds."""
        from genlock.private_files import write_private

        write_private(self._path, json.dumps({"at": time.time(), "seconds": seconds}))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
