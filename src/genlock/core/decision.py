"""Decisions: their parts, and the draft in which one is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from genlock.core.commands import Command
from genlock.core.events import Event, Occurrence
from genlock.core.facts import Facts
from genlock.core.index import Index
from genlock.core.keys import Key
from genlock.core.model import Record
from genlock.errors import GenlockError, StoreCorrupt

R = TypeVar("R", bound=Record)


class Decision(Struct, frozen=True, gc=False):
    """The answer, the events, the record after them, and the commands to other records."""

    outcome: Any
    events: tuple[Event, ...] = ()
    record: Any = None
    followups: tuple[Command, ...] = ()


class Draft(Generic[R]):
    """A decision under construction. Each event is folded in when it is added, so later rules see
    the effects of earlier ones."""

    __slots__ = ("at", "command", "events", "facts", "followups", "record")

    def __init__(self, record: R | None, command: Command, facts: Facts) -> None:
        self.record: R | None = record
        self.command = command
        self.facts = facts
        self.events: list[Event] = []
        self.followups: list[Command] = []
        # Event times never run backwards, whatever the clock does. Lease arithmetic uses facts.now
        # unchanged.
        at = facts.now
        self.at = at if record is None or at >= record.updated_at else record.updated_at

    def common(self) -> dict[str, Any]:
        """Returns the fields that every event has."""
        key, by = self.command.key, self.command.by
        return {
            "timestamp": self.at,
            "tenant_id": key.tenant,
            "project_id": key.project,
            "session_id": by.session,
            "agent_id": by.agent,
            "actor": by.actor,
        }

    def decided(self, outcome: Any) -> Decision:
        """Returns the decision built so far."""
        return Decision(outcome, tuple(self.events), self.record, tuple(self.followups))


def decide_one(
    record: Any,
    command: Command,
    facts: Facts,
    fold: Callable[[Any, Any], Record],
    kind: type[Event],
    outcome: Any = None,
    **fields: Any,
) -> Decision:
    """Returns a decision of exactly one event. Without an explicit outcome, the answer is the
    record after the event."""
    draft: Draft[Any] = Draft(record, command, facts)
    event = kind(**(draft.common() | fields))
    folded = fold(record, event)
    return Decision(folded if outcome is None else outcome, (event,), folded)


def require(record: R | None, error: GenlockError) -> R:
    """Returns the record. Raises `error` if there is none."""
    if record is None:
        raise error
    return record


__all__ = ["Decision", "Draft", "Occurrence", "decide_one", "require"]


# The registration of a kind of record: all that the rest of Genlock must know about it.


_NO_INDEX: Final = Index()


class Reaction(NamedTuple):
    """A command to another record, or to every task that has `waits_on` in its index."""

    command: Command
    waits_on: str | None = None


def no_index(record: Any) -> Index:
    """Returns the index of a record that is only loaded by its key."""
    return _NO_INDEX


class RecordKind(NamedTuple):
    """One kind of record. Its record type, commands and events belong to no other kind."""

    kind: str
    record: type[Any]
    commands: Mapping[type[Command], Callable[[Any, Any, Facts], Decision]]
    begins: type[Occurrence]
    """The event that creates the record."""
    folds: Mapping[type[Occurrence], Callable[[Any, Any], Record]]
    """The function that folds each event into the record."""
    index_of: Callable[[Any], Index] = no_index
    reactions: Mapping[type[Occurrence], Callable[[Key, Any, Any, int], list[Reaction]]] = (
        MappingProxyType({})
    )
    """Returns the commands that an event, number `version` of the record, causes on other
    records."""

    def evolve(self, record: Any, event: Occurrence) -> Record:
        """Returns the record after this event."""
        fold = self.folds.get(type(event))
        if fold is None or (record is None and type(event) is not self.begins):
            name = type(event).__name__
            raise StoreCorrupt(f"a {self.kind} record cannot begin or go on with {name}")
        return fold(record, event)
