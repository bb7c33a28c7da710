"""A commit: one batch of changes as columns, and the server's answers to them.

This is the hot path. Its loop runs once for every change, so it unpacks tuples instead of naming
fields, and makes hardly any calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import msgspec

from genlock.errors import BadArgument
from genlock.store import Change, Committed, Conflict
from genlock.stores.postgres.connection import PostgresConnection
from genlock.stores.postgres.queries import (
    byteas,
    decode_ints,
    encode,
    int_rows,
    ints,
    row_of_ints,
    sparse_texts,
    texts,
)
from genlock.stores.round_trips import Steps

_NONE = -(2**63)
_encode = msgspec.json.Encoder().encode
_astuple = msgspec.structs.astuple
_fields = row_of_ints(8).pack
_event_fields = row_of_ints(2).pack

_CONFLICT = Conflict()
_committed = partial(tuple.__new__, Committed)  # half of what the class itself takes

Answers = list[Committed | Conflict]
Names = dict[tuple[str, str], int]


def commit(
    connection: PostgresConnection, statement: str, changes: Sequence[Change], *more: str
) -> Steps[Answers | None]:
    """Writes each change that still fits. Returns None if the statement, with the values in `more`,
    was meant for a different server."""
    batch = Batch(changes)
    connection.send(statement, [*batch.columns(), *map(encode, more)])
    yield connection.await_answer
    result = connection.answer()
    if not result.ntuples:
        return None
    heads, lost = result.get_value(0, 0), result.get_value(0, 1)
    return batch.answers(
        decode_ints(heads or b""), set(decode_ints(lost)) if lost is not None else set()
    )


def in_order(changes: Sequence[Change]) -> list[int]:
    """Returns the changes in the order in which every commit locks them: updates before creations,
    and each group by key."""
    order = sorted(range(len(changes)), key=lambda at: changes[at][0])
    updates = [at for at in order if _is_update(changes[at])]
    if len(updates) == len(order):
        return updates
    return updates + [at for at in order if not _is_update(changes[at])]


def _is_update(change: Change) -> bool:
    return bool(change[1] or change[2])


class Batch:
    """The columns of one commit; see genlock.commit_changes in the migrations, which takes them in
    this order."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes
        self._order = in_order(changes)
        # Sorted, as the turns are taken in this order.
        self._places: Names = {
            place: number
            for number, place in enumerate(sorted({change[0][:2] for change in changes}), 1)
        }
        self._pools: dict[tuple[int, str], int] = {}
        self._sessions: Names = {}
        self._kinds: dict[str, int] = {}
        self._states: dict[str, int] = {}
        self._place_of = [0] * len(changes)

    def columns(self) -> list[bytes | None]:
        """Returns all columns to send."""
        changes, order = self._changes, self._order
        try:
            rows = self._rows()
            names = texts([changes[at][0][3] for at in order])
            indexes = [changes[at][6] for at in order]
            sparse = [
                sparse_texts([index.order for index in indexes]),
                sparse_texts([index.parent for index in indexes]),
                sparse_texts(
                    [
                        _encode(index.waits_on).decode() if index.waits_on else None
                        for index in indexes
                    ]
                ),
            ]
            updates = sum([_is_update(change) for change in changes])
            bytes_ = [
                byteas([changes[at][2] for at in order]),
                byteas([changes[at][4] for at in order]),
                byteas([changes[at][5] for at in order]),
            ]
            return [
                *self._names(),
                encode(updates),
                int_rows(rows, 8),
                names,
                *sparse,
                *bytes_,
                *self._events(),
            ]
        except OverflowError as error:
            raise BadArgument(f"there is a number that cannot be stored ({error})") from error

    def _rows(self) -> list[bytes]:
        places, pools, sessions, kinds, states = (
            self._places,
            self._pools,
            self._sessions,
            self._kinds,
            self._states,
        )
        rows = []
        for at in self._order:
            (tenant, project, kind, _), read_version, _, version, _, _, index, *_ = self._changes[
                at
            ]
            state, pool, _, due_at, session, _, _ = _astuple(index)
            self._place_of[at] = place = places[tenant, project]
            rows.append(
                _fields(
                    8, place,
                    8, kinds.setdefault(kind, len(kinds) + 1),
                    8, read_version,
                    8, version,
                    8, states.setdefault(state, len(states) + 1),
                    8, 0 if pool is None else pools.setdefault((place, pool), len(pools) + 1),
                    8, _NONE if due_at is None else due_at,
                    8, 0 if session is None else sessions.setdefault((tenant, session),
                    len(sessions) + 1),
                )
            )  # fmt: skip
        return rows

    def _names(self) -> list[bytes]:
        places, pools, sessions = self._places, self._pools, self._sessions
        return [
            texts([tenant for tenant, _ in places]),
            texts([project for _, project in places]),
            texts(self._kinds),
            texts(self._states),
            ints([place for place, _ in pools]),
            texts([name for _, name in pools]),
            texts([tenant for tenant, _ in sessions]),
            texts([name for _, name in sessions]),
        ]

    def _events(self) -> list[bytes]:
        """Returns the columns of the events, in the order of the changes given, which is the order
        of the feed."""
        rank = {at: place for place, at in enumerate(self._order, 1)}
        rows = [
            _event_fields(8, rank[at], 8, event[0])
            for at, change in enumerate(self._changes)
            for event in change[7]
        ]
        events = list(chain.from_iterable([change[7] for change in self._changes]))
        return [
            int_rows(rows, 2),
            byteas([event[1] for event in events]),
            byteas([event[2] for event in events]),
        ]

    def answers(self, heads: list[int], lost: set[int]) -> Answers:
        """Returns the answer to each change. The server numbers the events of the changes that
        fitted, starting at the heads."""
        conflicts = {self._order[place - 1] for place in lost}
        answers: Answers = []
        for at, change in enumerate(self._changes):
            if at in conflicts:
                answers.append(_CONFLICT)
                continue
            place = self._place_of[at] - 1
            heads[place] += len(change[7])
            answers.append(_committed((heads[place],)))
        return answers
