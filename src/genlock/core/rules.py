"""The whole core behind four functions, for every kind of record registered in `RECORD_KINDS`.

decide(record, command, facts)       the answer, the events, the record after them, and commands to
                                     other records that belong to the same commit
evolve(kind, record, event)          what a record is after an event
index_of(record)                     what a store can find it by
react(key, record, event, version)   what an event asks of other records
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.commands import Command
from genlock.core.decision import Decision, Reaction, RecordKind
from genlock.core.facts import Facts
from genlock.core.index import Index
from genlock.core.keys import Key
from genlock.core.model import Record, RefusedRecord
from genlock.core.records import (
    api_key,
    counter,
    denials,
    feature,
    project,
    promotion,
    reaction_cursor,
    refused_result,
    session,
    tenant,
)
from genlock.core.results import SubmissionResult
from genlock.core.task import record as task
from genlock.errors import StoreCorrupt

RECORD_KINDS: Final[tuple[RecordKind, ...]] = (
    task.RECORD,
    session.RECORD,
    refused_result.RECORD,
    promotion.RECORD,
    counter.RECORD,
    project.RECORD,
    tenant.RECORD,
    denials.RECORD,
    reaction_cursor.RECORD,
    api_key.RECORD,
    feature.RECORD,
)
"""Every kind of record. A new kind is a file in `core/records` and a line here."""

_KINDS: Final = {registered.kind: registered for registered in RECORD_KINDS}
_DECIDE: Final = {
    command: decides
    for registered in RECORD_KINDS
    for command, decides in registered.commands.items()
}
_INDEX: Final = {registered.record: registered.index_of for registered in RECORD_KINDS}
_REACT: Final = {
    event: reacts for registered in RECORD_KINDS for event, reacts in registered.reactions.items()
}

REACTING: Final = tuple(str(event.__struct_config__.tag) for event in _REACT)
"""The names of the events that may ask something of others."""


def decide(record: Record | None, command: Command, facts: Facts) -> Decision:
    """What this command does to this record. Pure; raises only for the caller's own mistakes."""
    return _DECIDE[type(command)](record, command, facts)


def evolve(kind: str, record: Record | None, event: e.Event) -> Record:
    """What the record is after this event."""
    registered = _KINDS.get(kind)
    if registered is None:
        raise StoreCorrupt(f"there is no kind of record {kind!r}")
    return registered.evolve(record, event)


def index_of(record: Record) -> Index:
    """What this record can be found by."""
    return _INDEX[type(record)](record)


def react(key: Key, record: Record, event: e.Event, version: int) -> list[Reaction]:
    """What this event, the one numbered `version` of this record, asks of others. Repeating it is
    always safe."""
    reacts = _REACT.get(type(event))
    return reacts(key, record, event, version) if reacts is not None else []


def reacts(event: e.Event) -> bool:
    """Could this event ask anything of others?"""
    return type(event) in _REACT


def amended(decision: Decision, followups: Decision) -> Decision:
    """The decision, once what it asked of another record is done: a result that was kept before is
    named as it was kept."""
    if isinstance(decision.outcome, SubmissionResult) and isinstance(
        followups.outcome, RefusedRecord
    ):
        return replace(
            decision,
            outcome=replace(decision.outcome, work_product_ref=followups.outcome.work_product_ref),
        )
    return decision
