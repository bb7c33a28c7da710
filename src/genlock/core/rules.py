"""The whole core behind four functions, for every kind of record registered in `RECORD_KINDS`.

decide(record, command, facts)       the answer, the events, the record after them, and commands to
                                     other records that belong to the same commit
evolve(kind, record, event)          the record after an event
index_of(record)                     the fields by which a store can find it
react(key, record, event, version)   the commands that an event causes on other records
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
"""The names of the events that may cause commands on other records."""


def decide(record: Record | None, command: Command, facts: Facts) -> Decision:
    """Decides what this command does to this record. Pure; raises only for the caller's own
    mistakes."""
    return _DECIDE[type(command)](record, command, facts)


def evolve(kind: str, record: Record | None, event: e.Event) -> Record:
    """Returns the record after this event."""
    registered = _KINDS.get(kind)
    if registered is None:
        raise StoreCorrupt(f"there is no kind of record {kind!r}")
    return registered.evolve(record, event)


def index_of(record: Record) -> Index:
    """Returns the fields by which this record can be found."""
    return _INDEX[type(record)](record)


def react(key: Key, record: Record, event: e.Event, version: int) -> list[Reaction]:
    """Returns the commands that this event, number `version` of this record, causes on others.
    Repeating it is always safe."""
    reacts = _REACT.get(type(event))
    return reacts(key, record, event, version) if reacts is not None else []


def reacts(event: e.Event) -> bool:
    """May this event cause commands on other records?"""
    return type(event) in _REACT


def amended(decision: Decision, followups: Decision) -> Decision:
    """Returns the decision after its command to another record is done. A result that was kept
    before keeps its name."""
    if isinstance(decision.outcome, SubmissionResult) and isinstance(
        followups.outcome, RefusedRecord
    ):
        return replace(
            decision,
            outcome=replace(decision.outcome, work_product_ref=followups.outcome.work_product_ref),
        )
    return decision
