"""The index fields of a record: all that a store can find it by. Computed here from the record alone, copied by stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from genlock.core import model
from genlock.core.reasons import ClaimState, KeyState, Status
from genlock.core.routing import order_of, pool_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Index(Struct, frozen=True, gc=False):
    """The few fields by which records are found."""

    state: str = ""
    pool: str | None = None
    """Set while the record is offered to whoever asks for work."""
    order: str | None = None
    """Its place among the offered; ASCII, compared as bytes."""
    due_at: int | None = None
    """Microseconds since 1970: the next instant at which time alone changes the answer."""
    session: str | None = None
    parent: str | None = None
    waits_on: tuple[str, ...] = ()
    """Dependencies that are not met, by id; those that are met, by id with MET before it."""


MET = "+"
"""No id starts with it: `waits_on` "+X" gives those for whom X counts as met, "X" those it blocks."""


def microseconds(instant: datetime) -> int:
    """Whole microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND


def index_of(record: model.Record) -> Index:
    """What this record can be found by."""
    if isinstance(record, model.TaskRecord):
        return _index_of_task(record)
    if isinstance(record, model.SessionRecord):
        return Index(state="ENDED" if record.ended_at else "ACTIVE")
    if isinstance(record, model.RefusedRecord):
        return Index(state=record.state, parent=record.task)
    if isinstance(record, model.KeyRecord):
        return Index(state=KeyState.REVOKED if record.revoked_at else KeyState.ACTIVE, parent=record.tenant)
    return Index()


def _index_of_task(record: model.TaskRecord) -> Index:
    claim, state = record.claim, record.state
    waits_on = waits_of(record) if record.dependencies else ()
    session = claim.session if claim is not None and claim.state is ClaimState.ACTIVE else None
    if state is Status.PENDING or state is Status.BACKLOG:
        return Index(state, pool_of(record), order_of(record), _due_at(record), session, record.task.parent, waits_on)
    return Index(state, None, None, _due_at(record), session, record.task.parent, waits_on)


def waits_of(record: model.TaskRecord) -> tuple[str, ...]:
    """What `waits_on` says of it."""
    return tuple([MET + other if heard.finished else other for other, heard in record.dependencies.items()])


def _due_at(record: model.TaskRecord) -> int | None:
    claim = record.claim
    held = claim is not None and claim.state is ClaimState.ACTIVE
    if claim is not None and held and not record.early and record.hold is None:
        # The commonest case by a shorter way.
        return microseconds(claim.expires_at + timedelta(seconds=claim.grace_seconds) if claim.grace_seconds else claim.expires_at)
    if record.state is Status.COMPLETED or record.state is Status.CANCELLED:
        return None
    instants = [
        claim.expires_at + timedelta(seconds=claim.grace_seconds) if claim is not None and held else None,
        record.hold.until if record.hold is not None else None,
        record.task.not_before if record.early else None,
        record.assigned_until if not held else None,
    ]
    due = [instant for instant in instants if instant is not None]
    return microseconds(min(due)) if due else None
