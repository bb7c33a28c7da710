"""Telling an observer what the lanes do: once a batch, after it was answered, and never once a command.

What is handed over are the lane's own lists. An observer reads them there and then, in the lane's thread, keeps none of them, and
changes nothing; whatever it costs, every caller of that lane waits for. If it fails, that is logged once, and nobody else notices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from genlock.engine.cells import Cell
    from genlock.engine.flight import Flight
    from genlock.engine.jobs import Item


class Measures(NamedTuple):
    """How it went with one batch."""

    size: int
    """Requests that were gathered."""
    depth: int
    """Jobs that were waiting when it was gathered, those that were taken included."""
    load_seconds: float
    decide_seconds: float
    commit_seconds: float
    conflicts: int
    """Records that somebody else had changed meanwhile."""


class Batch(NamedTuple):
    """What a lane has done since it told of the batch before."""

    lane: str
    answered: Sequence[Item]
    """Each with its request and, in `decision`, what came of it: a Decision with its outcome, or an error."""
    written: Sequence[Cell]
    """The records that were committed, reactions and the lane's own upkeep included, each with its events."""
    second_commits: int
    measures: Measures | None
    """None for what is no batch: upkeep alone, and answers without a decision."""


class Observer(Protocol):
    """Whoever wants to know."""

    def batch_done(self, batch: Batch) -> None:
        """Called by several lanes, each in its own thread."""


class Notes:
    """What one lane has done and not told yet. Only the lane's own thread comes here."""

    def __init__(self, observer: Observer, lane: str) -> None:
        self._observer = observer
        self._lane = lane
        self._written: list[Cell] = []
        self._second_commits = 0
        self._has_failed = False

    def __bool__(self) -> bool:
        return bool(self._written)

    def wrote(self, cells: Sequence[Cell], second_commits: int) -> None:
        """These records were committed."""
        self._written += cells
        self._second_commits += second_commits

    def tell(self, answered: Sequence[Item] = (), flight: Flight | None = None) -> None:
        """Tells the observer, and begins anew."""
        batch = Batch(self._lane, answered, self._written, self._second_commits, None if flight is None else _measures(flight))
        self._written, self._second_commits = [], 0
        try:
            self._observer.batch_done(batch)
        except Exception:  # a stranger's mistake must not cost anybody an answer
            if not self._has_failed:
                self._has_failed = True
                import logging  # needed by nobody else here, and not for nothing

                logging.getLogger("genlock.engine").exception("an observer has failed; it is told again, but this is not logged again")


def _measures(flight: Flight) -> Measures:
    round = flight.round
    conflicts = sum(cell.conflicted for cell in round.cells.values()) if round.troubled else 0
    deciding = max(0.0, flight.seconds - round.load_seconds)
    return Measures(len(flight.items), flight.depth, round.load_seconds, deciding, round.drawn_up.seconds, conflicts)
