"""Reactions: the commands that committed events cause on other records. They are decided after the
change that caused them is known to be done, and written by a second commit.

A reaction may be repeated at any time (see `recovery`), so no note is needed for a crash in
between.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from genlock.core.codec import decode_event, decode_record
from genlock.core.commands import CheckRelated, Command, KeepRefused, ObserveTask
from genlock.core.decision import Decision, Reaction
from genlock.core.events import ClaimAcquired
from genlock.core.keys import TASK, Key
from genlock.core.model import Record, TaskRecord
from genlock.core.rules import amended, react
from genlock.core.task.record import waits_of
from genlock.core.task.relate import SYSTEM
from genlock.engine.batch import BatchRound
from genlock.engine.commit import LoadedRecord
from genlock.engine.feed_watch import FeedRange, feed_ranges_of
from genlock.engine.jobs import Item, plain_item
from genlock.engine.limits import Counts
from genlock.engine.retry import BACKOFF, retry_until
from genlock.engine.unknown_outcomes import possible_writes_of, undecided
from genlock.errors import Busy, GenlockError, StoreUnavailable
from genlock.store import MOST_WAITED_ON, EventQuery, Query, Store, Stored

Waiter = tuple[Stored, Record]
ByAwaited = dict[str, list[CheckRelated]]

AT_ONCE = 0.0
"""Reactions alone do not wait for a store that is unavailable: a recovery repeats them, and the
callers can be answered."""
MOST_AT_A_TIME = 512
_TRIES = 10
_CLAIMS_SEEN = 1000
"""The number of a task's events that are searched for a claim."""
_ACQUIRED = b'"CLAIM_ACQUIRED"'


def reactions_of(loaded_records: Iterable[LoadedRecord]) -> list[Reaction]:
    """Returns the reactions to events that were just committed."""
    reactions: list[Reaction] = []
    for loaded in loaded_records:
        version = loaded.read_version
        for event in loaded.events:
            version += 1
            if loaded.record is not None:
                reactions += react(loaded.key, loaded.record, event, version)
    return reactions


class _Remainder:
    """The work left after one round of reactions."""

    def __init__(
        self, more: list[Reaction], again: list[Command], unfinished: list[tuple[Item, Command]]
    ) -> None:
        self.more = more
        self.again = again
        self.unfinished = unfinished
        self.failed = False


class Reactor:
    """Runs commands to other records, and the reactions to those, round after round."""

    def __init__(self, store: Store, counts: Counts, profile: str) -> None:
        self._store = store
        self._counts = counts
        self._profile = profile
        self.loaded_records: list[LoadedRecord] = []
        """The records that were written."""
        self.written: list[FeedRange] = []
        """The positions of the events in the feeds."""
        self.commits = 0
        """The number of commits."""
        self.unfinished: list[tuple[Item, Command]] = []
        """Followups that are not done yet, each with its item."""

    def run(
        self, reactions: list[Reaction], followups: list[tuple[Item, Command]], until: float
    ) -> bool:
        """Runs reactions and followups. False if some reactions are left for a recovery. A followup
        that fails becomes its item's outcome."""
        self.unfinished = unfinished = [
            (owner, self._with_claim_time(command)) for owner, command in followups
        ]
        todo, known, complete = self._expanded(reactions, until if unfinished else AT_ONCE)
        budget = MOST_AT_A_TIME
        tries = 0
        while todo or unfinished:
            complete = complete and len(todo) <= budget
            todo = todo[:budget]
            outcome = self._round(todo, known, unfinished, until)
            complete = complete and not outcome.failed
            budget -= len(todo) - len(outcome.again)
            tries = tries + 1 if outcome.again or outcome.unfinished else 0
            if tries > _TRIES and not outcome.unfinished:
                return False
            if tries:
                time.sleep(BACKOFF.pause(tries + 1))
            self.unfinished = unfinished = outcome.unfinished
            expanded, known, all_found = self._expanded(
                outcome.more, until if unfinished else AT_ONCE
            )
            complete = complete and all_found
            todo = merge_checks(outcome.again + expanded)
        return complete

    def _with_claim_time(self, command: Command) -> Command:
        """Adds the time at which the session of a refused result claimed the task, which only the
        task's history still has. The result is kept even without it."""
        if not isinstance(command, KeepRefused) or command.claimed_at is not None:
            return command
        key, session = command.key.beside(TASK, command.task), command.by.session
        try:
            page = self._store.read_events(EventQuery(*key.place, record=key, limit=_CLAIMS_SEEN))
        except StoreUnavailable:
            return command
        for recorded in page.events:
            if _ACQUIRED not in recorded.body:
                continue
            event = decode_event(recorded.body).event
            assert isinstance(event, ClaimAcquired)
            if (event.session_id, event.generation) == (session, command.generation):
                return replace(command, claimed_at=event.timestamp)
        return command

    def _round(
        self,
        todo: list[Command],
        known: list[Waiter],
        unfinished: list[tuple[Item, Command]],
        until: float,
    ) -> _Remainder:
        """Runs one load-decide-commit. `known` has waiting tasks that were just found and need not
        be loaded."""
        everything: list[tuple[Item, Item | None]] = [
            (plain_item(command), owner) for owner, command in unfinished
        ]
        everything += [(plain_item(command), None) for command in todo]
        round = retry_until(
            lambda: self._prepared([item for item, _ in everything], known),
            until if unfinished else AT_ONCE,
        )
        edited = [(plain_item(ObserveTask(key, SYSTEM)), None) for key in round.observed]
        round.load_related([item for item, _ in edited])
        everything = [*edited, *everything]
        decisions = [(item, owner, round.decide(item)) for item, owner in everything]
        committed = round.commit(until)
        self.commits += bool(committed)
        self.loaded_records += committed
        self.written += feed_ranges_of(committed)
        outcome = _Remainder(reactions_of(committed), [], [])
        for item, owner, decision in decisions:
            loaded_records = round.changed_records(item) if round.troubled else ()
            error = next((loaded.error for loaded in loaded_records if loaded.error), None)
            if owner is not None and loaded_records:
                owner.possible_writes += possible_writes_of(item, round)
            if (
                decision is None
                or isinstance(error, StoreUnavailable)
                or any(loaded.conflicted for loaded in loaded_records)
            ):
                self._retry(outcome, item, owner, error, until)
            elif error is not None or isinstance(decision, GenlockError):
                if owner is not None:
                    owner.decision = undecided(owner, error or decision)  # type: ignore[arg-type]
                else:
                    # A command that the rules refuse stays refused. One that the store could not
                    # write is left for a recovery.
                    outcome.failed = outcome.failed or error is not None
            elif isinstance(decision, Decision):
                # No caller waits for the followup of a reaction: it becomes another reaction.
                outcome.more += [Reaction(further) for further in decision.followups]
                if owner is not None and isinstance(owner.decision, Decision):
                    owner.decision = amended(owner.decision, decision)
        return outcome

    def _prepared(self, items: list[Item], known: list[Waiter]) -> BatchRound:
        round = BatchRound(self._store, self._counts, profile=self._profile)
        round.add_decoded(known)
        round.prepare(items)
        return round

    def _retry(
        self,
        outcome: _Remainder,
        item: Item,
        owner: Item | None,
        error: GenlockError | None,
        until: float,
    ) -> None:
        if owner is None:
            outcome.again.append(item.command)
        elif time.monotonic() < until:
            outcome.unfinished.append((owner, item.command))
        else:
            owner.decision = undecided(
                owner,
                error
                or Busy("what belongs to this could not be written before the deadline; try again"),
            )

    def _expanded(
        self, reactions: list[Reaction], until: float
    ) -> tuple[list[Command], list[Waiter], bool]:
        """Returns the commands of these reactions. Looks up the tasks that wait for a record. The
        last value is False if there are more of them than fit."""
        commands = [reaction.command for reaction in reactions if reaction.waits_on is None]
        known: list[Waiter] = []
        complete = True
        for place, awaited in group_by_awaited(reactions):
            further, waiters, next = retry_until(
                lambda place=place, awaited=awaited: find_waiting(self._store, place, awaited),  # type: ignore[misc]
                until,
            )
            complete = complete and next is None
            commands += further
            known += waiters
        return merge_checks(commands), known, complete


def group_by_awaited(
    reactions: Iterable[Reaction],
) -> Iterator[tuple[tuple[str, str], ByAwaited]]:
    """Groups reactions by project and by the record that their tasks wait for, in pieces that one
    query can look up."""
    places: dict[tuple[str, str], ByAwaited] = {}
    for command, waits_on in reactions:
        if waits_on is not None:
            assert isinstance(command, CheckRelated)
            places.setdefault(command.key[:2], {}).setdefault(waits_on, []).append(command)
    for place, awaited in places.items():
        names = list(awaited)
        for start in range(0, len(names), MOST_WAITED_ON):
            yield place, {name: awaited[name] for name in names[start : start + MOST_WAITED_ON]}


def find_waiting(
    store: Store, place: tuple[str, str], awaited: ByAwaited, after: str | None = None
) -> tuple[list[Command], list[Waiter], str | None]:
    """Returns the commands for one page of the waiting tasks, the tasks themselves, and where to
    continue if there are more."""
    page = store.find(Query(*place, waits_on=tuple(awaited), after=after, limit=MOST_AT_A_TIME))
    commands: list[Command] = []
    waiters: list[Waiter] = []
    for stored in page.records:
        record = decode_record(TASK, stored.body)
        assert isinstance(record, TaskRecord)
        waiters.append((stored, record))
        for name in waits_of(record):
            commands += [
                CheckRelated(stored.key, SYSTEM, others=command.others, reset=command.reset)
                for command in awaited.get(name, ())
            ]
    return commands, waiters, page.next


def merge_checks(commands: list[Command]) -> list[Command]:
    """Merges the checks of the same record into one command. Other commands stay, in order."""
    if len(commands) < 2:
        return commands
    awaited: dict[Key, dict[str, int]] = {}
    kinds: dict[Key, type[CheckRelated]] = {}
    resets: set[Key] = set()
    rest: list[Command] = []
    for command in commands:
        if isinstance(command, CheckRelated):
            known = awaited.setdefault(command.key, {})
            kinds[command.key] = type(command)
            for other, version in command.others:
                known[other] = max(version, known.get(other, 0))
            if command.reset:
                resets.add(command.key)
        else:
            rest.append(command)
    return [
        *rest,
        *(
            kinds[key](key, SYSTEM, others=tuple(known.items()), reset=key in resets)
            for key, known in awaited.items()
        ),
    ]
