"""What a decision is made of, and how one is drawn up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from genlock.core.commands import Command
from genlock.core.events import Event, Occurrence
from genlock.core.facts import Facts
from genlock.core.model import Record
from genlock.errors import GenlockError

R = TypeVar("R", bound=Record)


class Decision(Struct, frozen=True, gc=False):
    """The answer, what happened, what the record is after it, and what is asked of other records."""

    outcome: Any
    events: tuple[Event, ...] = ()
    record: Any = None
    also: tuple[Command, ...] = ()


class Draft(Generic[R]):
    """A decision being drawn up: each event is folded in as it is added, so later rules see what earlier ones brought."""

    __slots__ = ("also", "at", "command", "events", "facts", "record")

    def __init__(self, record: R | None, command: Command, facts: Facts) -> None:
        self.record: R | None = record
        self.command = command
        self.facts = facts
        self.events: list[Event] = []
        self.also: list[Command] = []
        # Event times never run back, whatever the clock does; lease arithmetic uses facts.now as it is.
        at = facts.now
        self.at = at if record is None or at >= record.updated_at else record.updated_at

    def common(self) -> dict[str, Any]:
        """The fields every event has."""
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
        """The decision as it stands."""
        return Decision(outcome, tuple(self.events), self.record, tuple(self.also))


def decide_one(
    record: Any,
    command: Command,
    facts: Facts,
    fold: Callable[[Any, Any], Record],
    kind: type[Event],
    outcome: Any = None,
    **fields: Any,
) -> Decision:
    """A decision of exactly one event; without an outcome of its own it is answered with the record after it."""
    draft: Draft[Any] = Draft(record, command, facts)
    event = kind(**(draft.common() | fields))
    folded = fold(record, event)
    return Decision(folded if outcome is None else outcome, (event,), folded)


def present(record: R | None, error: GenlockError) -> R:
    """The record, or `error` if there is none."""
    if record is None:
        raise error
    return record


__all__ = ["Decision", "Draft", "Occurrence", "decide_one", "present"]
