"""Facts: everything a decision rests on that is not in the record. The engine gathers them; the core only reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from genlock.core import commands as c
from genlock.core.keys import REFUSED, SESSION, TASK, Key
from genlock.core.model import Record, RefusedRecord, SessionRecord, Task, TaskRecord
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.core.reasons import ClaimState, Status


class Seen(NamedTuple):
    """Another task as it was when last looked at."""

    version: int
    status: Status
    parent: str | None = None
    task: Task | None = None
    """Its definition."""


class Mercy(NamedTuple):
    """The coordinator, or its store, was away, and nobody could renew: what fell due because of that counts as live for a while."""

    since: datetime
    """The time of the project's newest event before: what fell due later may have fallen due because of it."""
    back: datetime
    """When both were there again."""


class Facts(Struct, frozen=True, kw_only=True, gc=False):
    """What was so when the records were loaded."""

    now: datetime
    epoch: int = 0
    policy: Policy = Policy()
    limits: TenantLimits = PROFILES["local"]
    fresh: str = "0" * 32
    """32 random hex digits, for ids."""
    session: SessionRecord | None = None
    """The caller's own session, if it is known."""
    holder: SessionRecord | None = None
    """The session of the present holder, if it is another's."""
    holder_gone: bool = False
    """Its process is known to be gone."""
    others: Mapping[str, Seen] = {}
    """The tasks that the command asked to look at, those that exist."""
    refused: RefusedRecord | None = None
    """Of an adoption: what is to be adopted."""
    task: TaskRecord | None = None
    """Of a refused result that is kept or discarded: its task."""
    mercy: Mercy | None = None
    """After an outage, for coordinators that heed it."""
    claims: int | None = None
    """Live claims of the tenant, if it has a limit on them."""
    sessions: int | None = None
    """Active sessions of the tenant, if it has a limit on them."""


def told(command: c.Command) -> tuple[Key, ...]:
    """The other records that this command must be decided on, as far as the command alone tells. For claims the own session first."""
    kind = type(command)
    if kind is c.ClaimTask or kind is c.RenewLease:
        return (command.key.beside(SESSION, command.by.session),)
    if kind is c.SubmitResult:
        return ()
    if isinstance(command, c.Hear):
        return tuple([command.key.beside(TASK, other) for other, _ in command.others])
    if kind is c.AdoptResult:
        return (command.key.beside(REFUSED, command.refused),)  # type: ignore[attr-defined]
    if isinstance(command, c.KeepRefused):
        return (command.key.beside(TASK, command.task),)
    if isinstance(command, c.SpawnSubtasks):
        return tuple([command.key.beside(TASK, child.id) for child in command.children])
    return ()


def wants(record: Record | None, command: c.Command) -> tuple[Key, ...]:
    """What the record, once it is known, says that the command must be decided on besides."""
    key, kind = command.key, type(command)
    if kind is c.DiscardRefused:
        return (key.beside(TASK, record.task),) if isinstance(record, RefusedRecord) else ()
    if not isinstance(record, TaskRecord):
        return ()
    if kind is c.SubmitResult or kind is c.AdoptResult:
        # Children only: whether the dependencies are done is nothing to who holds the task already. Nor do they matter to who does not.
        if not record.children or command.generation not in (None, record.generation):  # type: ignore[attr-defined]
            return ()
        return tuple([key.beside(TASK, other) for other, news in record.children.items() if not news.finished])
    if kind is not c.ClaimTask and kind is not c.CheckDue:
        return ()
    claim = record.claim
    wanted: tuple[Key, ...] = ()
    if claim is not None and claim.state is ClaimState.ACTIVE and claim.session != command.by.session:
        wanted = (key.beside(SESSION, claim.session),)
    if record.dependencies or record.children:
        # Nothing is noted for a crash between a completion and its reactions: whoever comes looks for itself.
        waiting = [other for heard in (record.dependencies, record.children) for other, news in heard.items() if not news.finished]
        wanted += tuple([key.beside(TASK, other) for other in waiting])
    return wanted
