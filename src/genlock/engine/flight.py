"""A flight: a batch that is being committed while its lane decides the next one.

On a server a commit is mostly waiting, and a lane that waits with it decides nothing meanwhile. So the waiting alone is handed to a
thread beside the lane's. Everything else stays with the lane, in order: it sends, looks at the answers, runs the reactions, and answers
the callers. What a flight has touched is busy until it has landed, and nothing is decided on it before that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from genlock.core.facts import told
from genlock.core.keys import SESSION, TASK, Key
from genlock.engine.batch import Round
from genlock.engine.commits import Answer
from genlock.engine.jobs import Item, NextTask, Settle, Sweep
from genlock.engine.spans import Span
from genlock.threads import started


class Flight:
    """One batch under way."""

    def __init__(self, items: list[Item], decided: list[Item], round: Round, until: float, written: Callable[[list[Span]], None]) -> None:
        """`written` is told its spans at once."""
        self.items = items
        self.decided = decided
        self.round = round
        self.until = until
        self._written = written
        self.depth = 0
        self.seconds = 0.0
        """How many were waiting when it was gathered, and how long it took to load and decide it; for observers."""
        self.tasks: set[Key] = set()
        """The tasks that it changes; nobody may be offered them just now."""
        self._others: set[Key] = set()
        self._asking: set[str] = set()
        """The sessions that have asked for a next task with an operation id."""
        self.spans: list[Span] = []
        """Where in the feeds its events have come to stand."""
        self._in_the_air = False
        self._failed: BaseException | None = None
        self._landed = threading.Lock()
        self._landed.acquire()
        self.has_landed = False

    def take_off(self) -> None:
        """Says what is busy from now on, and sends it."""
        self._in_the_air = True
        for key in [cell.key for cell in self.round.cells.values() if cell.sealed]:
            (self.tasks if key.kind == TASK else self._others).add(key)
        for item in self.items:
            request = item.request
            if type(request) is NextTask and request.operation:
                self._asking.add(request.by.session)
        self.round.drawn_up.send()

    def fly(self) -> None:
        """By the thread beside: waits for what was sent."""
        try:
            self.round.drawn_up.wait()
        except BaseException as error:  # noqa: BLE001  # it is the lane's thread that has to end by it
            self._failed = error
        self.has_landed = True
        self._landed.release()

    def answers(self) -> list[Answer]:
        """Waits until it has landed, if it has taken off; what has become of each of its changes."""
        if self._in_the_air:
            self._landed.acquire()
        if self._failed is not None:
            raise self._failed
        answers = self.round.drawn_up.write(self.until)
        self.spans = self.round.spans(answers)
        self._written(self.spans)
        return answers

    def parted(self, items: Iterable[Item]) -> tuple[list[Item], list[Item]]:
        """Those that can be decided beside this flight, and those that must wait for it."""
        free: list[Item] = []
        held: list[Item] = []
        for item in items:
            (held if self._concerns(item) else free).append(item)
        return free, held

    def _concerns(self, item: Item) -> bool:
        # By the exact type: `isinstance` of a struct takes three times as long if it is another.
        request = item.request
        if type(request) is NextTask:
            # One that is repeated must find what the first was granted.
            session = request.by.session
            return session in self._asking or request.key.beside(SESSION, session) in self._others
        if type(request) is Sweep or type(request) is Settle or request.key in self.tasks:
            return True
        return bool(self._others) and not self._others.isdisjoint((request.key, *told(request)))  # type: ignore[arg-type]


class Ahead:
    """A batch that was gathered and asked for while the one before it is decided."""

    def __init__(self, items: list[Item], round: Round) -> None:
        self.items = items
        self.round = round
        self.changed: set[Key] = set()
        """What the lane has changed, or is about to, since it was asked for."""

    def parted(self) -> tuple[list[Item], list[Item]]:
        """Those that what was asked for is still good for, and those that must be loaded anew."""
        fresh: list[Item] = []
        stale: list[Item] = []
        for item in self.items:
            (fresh if self.changed.isdisjoint((item.command.key, *item.wanted)) else stale).append(item)
        return fresh, stale


class Pilot:
    """The thread that waits for the server in a lane's place; started when it is first needed."""

    def __init__(self, name: str, landed: Callable[[], None]) -> None:
        self._name = name
        self._landed = landed
        self._flights: SimpleQueue[Flight | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def take_off(self, flight: Flight) -> None:
        """Begins to commit it, which the lane is told of by a ring."""
        flight.take_off()
        if self._thread is None:
            self._thread = started(self._run, self._name)
        if self._thread is not None:
            self._flights.put(flight)
        else:
            flight.fly()  # there is nobody to wait in the lane's place

    def close(self) -> None:
        """Ends the thread once it has done what it was given."""
        self._flights.put(None)

    def _run(self) -> None:
        while (flight := self._flights.get()) is not None:
            flight.fly()
            self._landed()
