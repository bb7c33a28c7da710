"""A commit: first positions for all of its events, then one transaction for each change, several at
a time.

A change is its record, its events at their positions, an entry in the record's history, and its
waits.

If there are more changes than threads, several share a transaction, since a request costs more than
its content. If that is cancelled, no part of it was written, and each change is tried alone. So a
late change does not make the others fail.

An interrupted commit may leave any of its changes written. With `in_order` the transactions run one
after the other, and stop at the first that was not done, so that a prefix of the changes is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Any, NamedTuple

from genlock.errors import OutcomeUnknown, OverLimit, StoreError, StoreUnavailable
from genlock.failpoints import hit
from genlock.store import Change, Committed, Conflict, Key
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.calls import CONDITION, Cancelled
from genlock.stores.dynamodb.keys import (
    At,
    binary,
    event_item,
    int_of,
    key_item,
    record_item,
    waits_in,
    whole,
)
from genlock.stores.dynamodb.position_gaps import Place, PositionGaps
from genlock.stores.dynamodb.reads import Memory
from genlock.stores.dynamodb.table import Table

ACTIONS = 100
"""The most actions of one transaction."""
CHANGE_BYTES = 2_500_000
"""The most bytes of one change. DynamoDB takes 4 MB, and some servers count base64, a third
more."""
GROUP_BYTES = 1_000_000
"""The most bytes of bodies in a transaction of several changes."""
INDEX_BYTES = 100_000
"""The most bytes of a record's names and index fields: with the largest body they fit into an item
of 400 KB."""
MOST_ROUNDS = 8
"""How often readers may close a writer's positions before the writer gives up."""

_UNCHANGED = "#v = :v AND #d = :d"
_ABSENT = "attribute_not_exists(#pk)"

Answers = list[Committed | Conflict]


class Result(Enum):
    """Why a transaction was not done."""

    CONFLICT = auto()
    """The record has been changed."""
    LATE = auto()
    """A reader had waited too long for the events, and closed their positions."""


Results = list[Committed | Result | StoreError]


class Plan(NamedTuple):
    """A change that may fit: its number in the commit, and the waits to add and to remove."""

    number: int
    change: Change
    added: list[str]
    removed: list[str]

    @property
    def events(self) -> int:
        return len(self.change.events)

    @property
    def actions(self) -> int:
        """The most actions in its transaction."""
        return min(ACTIONS, 2 + self.events + len(self.added) + len(self.removed))

    @property
    def bytes(self) -> int:
        return len(self.change.body) + sum([len(event.body) for event in self.change.events])


def check_sizes(changes: Sequence[Change]) -> None:
    """Raises `OverLimit`, before any write, if an item, key or transaction cannot hold a change."""
    for change in changes:
        key, index = change.key, change.index
        names = (
            *key,
            index.state,
            index.pool or "",
            index.order or "",
            index.session or "",
            index.parent or "",
            *index.waits_on,
        )
        size = sum([len(keys.check_text(name).encode()) for name in names])
        if size > INDEX_BYTES:
            raise OverLimit(
                f"names and index fields of {'/'.join(key)[:200]} have {size} bytes; this store "
                f"takes {INDEX_BYTES}"
            )
        hashes = [keys.history_of(key)]
        hashes += (
            [keys.session_hash(key.tenant, key.kind, index.session)]
            if index.session is not None
            else []
        )
        hashes += [keys.parent_hash(key, index.parent)] if index.parent is not None else []
        hashes += [keys.wait_at(key, name).pk for name in index.waits_on]
        sorts = [keys.joined(key.project, key.id)]
        sorts += [keys.ready_sort(index, key.id)] if index.pool is not None else []
        keys.check_sizes(key, hashes=tuple(hashes), sorts=tuple(sorts))
        total = len(change.body) + sum([len(event.body) for event in change.events])
        if total > CHANGE_BYTES:
            raise OverLimit(
                f"a change of {'/'.join(key)} has {total} bytes; this store takes {CHANGE_BYTES}"
            )


def grouped(plans: Sequence[Plan], ways: int) -> Iterator[list[Plan]]:
    """Yields groups of changes for one transaction each: small enough to use all threads and to
    fit."""
    most = -(-len(plans) // ways)
    group: list[Plan] = []
    actions = total = 0
    for plan in plans:
        actions, total = actions + plan.actions, total + plan.bytes
        if group and (len(group) >= most or actions > ACTIONS or total > GROUP_BYTES):
            yield group
            group, actions, total = [], plan.actions, plan.bytes
        group.append(plan)
    if group:
        yield group


class Writer:
    """Writes the commits of one store. Any thread may use it."""

    def __init__(self, table: Table, gaps: PositionGaps, memory: Memory) -> None:
        self._table = table
        self._gaps = gaps
        self._memory = memory
        self._places: set[Place] = set()
        self.in_order = False
        """Must a change be written after all earlier changes of its commit?"""

    def commit(self, changes: Sequence[Change]) -> Answers:
        """Writes each change that still fits."""
        answers: Answers = [Conflict()] * len(changes)
        plans = self._plan(changes)
        for _ in range(MOST_ROUNDS):
            if not plans:
                return answers
            try:
                plans = self._round(plans, answers)
            except StoreError as error:
                raise self._broken(answers, error) from error
        raise self._broken(
            answers,
            StoreUnavailable(
                f"table {self._table.name}: readers closed our positions {MOST_ROUNDS} times over"
            ),
        )

    def _plan(self, changes: Sequence[Change]) -> list[Plan]:
        """Returns the changes to write, without those that are known to be late."""
        waits = [self._recall(change) for change in changes]
        unknown = [change for change, known in zip(changes, waits, strict=True) if known is None]
        looked_up = self._look_up(unknown) if unknown else {}
        plans = []
        for number, (change, known) in enumerate(zip(changes, waits, strict=True)):
            before = looked_up.get(change.key) if known is None else known
            if before is not None:
                after = dict.fromkeys(change.index.waits_on)
                added = [name for name in after if name not in before]
                plans.append(
                    Plan(
                        number,
                        change,
                        added,
                        [name for name in dict.fromkeys(before) if name not in after],
                    )
                )
        return plans

    def _recall(self, change: Change) -> tuple[str, ...] | None:
        if not change.read_version and not change.read_digest:
            return ()
        return self._memory.recall(change.key, change.read_version, change.read_digest)

    def _look_up(self, changes: Sequence[Change]) -> dict[Key, tuple[str, ...]]:
        """Returns the waits of the records that are still at the version and digest of the
        changes."""
        items = self._table.get_many(
            [keys.record_at(change.key) for change in changes], "#pk, #sk, #v, #d, #wa"
        )
        found = {}
        for change in changes:
            item = items.get(keys.record_at(change.key))
            if item is not None and (int_of(item, "v"), item["d"]["B"]) == (
                change.read_version,
                change.read_digest,
            ):
                found[change.key] = waits_in(item)
        return found

    def _round(self, plans: list[Plan], answers: Answers) -> list[Plan]:
        """Takes positions and writes each change. Returns the changes whose positions were
        closed."""
        last = self._take_positions(plans)
        hit("dynamodb.commit.positions")
        self._add_early(plans)
        groups = list(grouped(plans, 1 if self.in_order else self._table.ways))
        if self.in_order:
            results = _until_one_is_not_done(
                groups, lambda group: self._write_together(group, last)
            )
        else:
            results = list(
                chain.from_iterable(
                    self._table.at_once(lambda group: self._write_together(group, last), groups)
                )
            )
        hit("dynamodb.commit.written")
        late, fault = [], None
        for plan, result in zip(plans, results, strict=True):
            if isinstance(result, StoreError):
                fault = result if fault is None or isinstance(result, OutcomeUnknown) else fault
            elif isinstance(result, Committed):
                answers[plan.number] = result
                change = plan.change
                self._memory.note(
                    change.key, (change.version, change.digest, change.index.waits_on)
                )
            elif result is Result.LATE:
                late.append(plan)
        self._close_positions(plans, results, last)
        if fault is not None:
            raise fault
        return late

    def _broken(self, answers: Answers, fault: StoreError) -> StoreError:
        """Returns the error of a commit: its outcome is unknown if a part was done, in this round
        or an earlier one."""
        if isinstance(fault, OutcomeUnknown) or not any(
            isinstance(answer, Committed) for answer in answers
        ):
            return fault
        return OutcomeUnknown(
            "a part of the commit was done, and then: "
            f"{str(fault).removesuffix('; nothing was written')}"
        )

    def _take_positions(self, plans: list[Plan]) -> dict[int, int]:
        """Takes positions, by one request per project. Returns the last position of each change, by
        its number in the commit. A taken position is never given back."""
        last: dict[int, int] = {}
        for place in sorted({plan.change.key.place for plan in plans}):
            own = [plan for plan in plans if plan.change.key.place == place]
            if place not in self._places:
                self._list(place)
            number, known = sum([plan.events for plan in own]), self._gaps.solid(place)
            position = (
                int_of(
                    self._table.update(keys.head_at(*place), "ADD #h :n", {":n": whole(number)}),
                    "h",
                )
                - number
            )
            if self._gaps.forget_if_older(place, known, position):
                self._places.clear()  # an older copy of the table may lack some
                self._list(place)
            for plan in own:
                position += plan.events
                last[plan.number] = position
        return last

    def _list(self, place: Place) -> None:
        self._table.put(key_item(keys.place_at(*place)))
        self._places.add(place)

    def _add_early(self, plans: list[Plan]) -> None:
        """Writes waits that do not fit into the transaction before it. A reader that finds a record
        by them checks whether it waits."""
        early = [
            name_at
            for plan in plans
            for name_at in [
                keys.wait_at(plan.change.key, name) for name in plan.added[_room(plan) :]
            ]
        ]
        if early:
            self._table.write_many([key_item(at) for at in early])

    def _write_together(self, group: list[Plan], last: dict[int, int]) -> Results:
        if len(group) > 1:
            actions = [
                action for plan in group for action in self._actions(plan, last[plan.number])
            ]
            try:
                self._table.calls.transact(actions, insist=False)
            except Cancelled:
                pass
            except StoreError as error:
                return [error] * len(group)
            else:
                hit("dynamodb.commit.group")
                return [Committed(last[plan.number]) for plan in group]
        if self.in_order:
            return _until_one_is_not_done(
                [[plan] for plan in group], lambda one: [self._write(one[0], last[one[0].number])]
            )
        return [self._write(plan, last[plan.number]) for plan in group]

    def _write(self, plan: Plan, last: int) -> Committed | Result | StoreError:
        try:
            self._table.calls.transact(self._actions(plan, last))
        except Cancelled as cancelled:
            if cancelled.reasons[0] == CONDITION:
                return Result.CONFLICT
            if CONDITION in cancelled.reasons:
                return Result.LATE
            return StoreError(
                f"table {self._table.name} refused a change of {'/'.join(plan.change.key)} "
                f"({cancelled})"
            )
        except StoreError as error:
            return error
        return Committed(last)

    def _actions(self, plan: Plan, last: int) -> list[dict[str, Any]]:
        """Returns the transaction. The record comes first: its cancellation reason distinguishes a
        conflict from closed positions."""
        table, change = self._table, plan.change
        key = change.key
        if change.read_version or change.read_digest:
            values = {":v": whole(change.read_version), ":d": binary(change.read_digest)}
            actions = [table.putting(record_item(change), _UNCHANGED, values)]
        else:
            actions = [table.putting(record_item(change), _ABSENT)]
        entry = At(keys.history_of(key), keys.number(change.version))
        actions.append(table.putting(key_item(entry) | {"n": whole(plan.events), "p": whole(last)}))
        first = last - plan.events + 1
        actions += [
            table.putting(event_item(key, event, first + at), _ABSENT)
            for at, event in enumerate(change.events)
        ]
        room = _room(plan)
        actions += [table.putting(key_item(keys.wait_at(key, name))) for name in plan.added[:room]]
        # The rest stays: a reader that finds a record by it checks whether the record waits.
        removed = plan.removed[: max(0, room - len(plan.added))]
        return actions + [table.deleting(keys.wait_at(key, name)) for name in removed]

    def _close_positions(self, plans: list[Plan], results: Results, last: dict[int, int]) -> None:
        """Closes the positions of changes that were certainly not written, so that readers need not
        wait for them."""
        for place in {plan.change.key.place for plan in plans}:
            own = [
                (plan, result)
                for plan, result in zip(plans, results, strict=True)
                if plan.change.key.place == place
            ]
            void = [
                position
                for plan, result in own
                if isinstance(result, Result)
                for position in range(last[plan.number] - plan.events + 1, last[plan.number] + 1)
            ]
            certain = not any(isinstance(result, StoreError) for _, result in own)
            if self._gaps.bury_own(place, void) and certain:
                self._gaps.closed(
                    place, last[own[0][0].number] - own[0][0].events + 1, last[own[-1][0].number]
                )


def _until_one_is_not_done(
    groups: Sequence[list[Plan]], write: Callable[[list[Plan]], Results]
) -> Results:
    """Writes group by group. Groups after one that may not have been done count as late, as if a
    reader had closed their positions."""
    results: Results = []
    for group in groups:
        goes_on = all(
            isinstance(result, Committed) or result is Result.CONFLICT for result in results[-1:]
        )
        results += write(group) if goes_on else [Result.LATE] * len(group)
    return results


def _room(plan: Plan) -> int:
    """Returns how many waits fit into the transaction."""
    return max(0, ACTIONS - 2 - plan.events)
