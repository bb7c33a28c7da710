"""A commit: one batch of changes as one packet of statements, and the server's answers to them.

The packet is written for the usual case, in which all changes fit. If one does not, the packet
stops by itself. Then we ask the server which ones fitted, roll back, and send those again. So a
batch without conflicts is one round trip.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from genlock.errors import OverLimit, StoreCorrupt
from genlock.retry import Backoff, Retry
from genlock.store import Change, Committed, Conflict
from genlock.stores.connection_pool import Refused
from genlock.stores.mysql.connection import Answer, MySQLConnection
from genlock.stores.mysql.errors import PASSING, TOO_MANY_ROWS
from genlock.stores.mysql.queries import Queries, Sql, quoted
from genlock.stores.round_trips import Steps

DEADLOCK = Backoff(first=0.002, longest=0.1)
"""The pause between attempts at a commit that ran into a deadlock with others."""
ROUNDS = 8
"""How often names may need numbering in one commit. Beyond that, the tables must be damaged."""
ROUGHLY = 4 * 1024
"""The most bytes of a row besides its body: names have their limits."""
SPARE = 64 * 1024
"""Bytes of a packet that are reserved for everything except bodies."""

_encode = msgspec.json.Encoder().encode
_astuple = msgspec.structs.astuple
_committed = partial(tuple.__new__, Committed)  # half of what the class itself takes
_CONFLICT = Conflict()

Answers = list[Committed | Conflict]


def commit(
    connection: MySQLConnection, queries: Queries, changes: Sequence[Change], seconds: float
) -> Steps[Answers | None]:
    """Writes each change that still fits. Returns None if the store was written to on another
    server since this connection last identified its server.

    A deadlock has written nothing, and the commit is tried again for `seconds`.
    """
    retry = Retry(DEADLOCK, time.monotonic() + seconds)
    left = sorted(range(len(changes)), key=lambda at: changes[at][0])
    emptied: set[int] = set()
    unnamed = 0
    answers: Answers = [_CONFLICT] * len(changes)
    while left:
        packet = Packet(queries, changes, left, emptied, connection.mark)
        try:
            connection.send(packet.text())
            yield connection.await_answers
            packet.answer(connection.answers(), answers)
            return answers
        except Refused as refused:
            if refused.code == TOO_MANY_ROWS and refused.done < packet.numbered:
                return None
            if refused.code == TOO_MANY_ROWS and refused.done == packet.numbered:
                unnamed += 1
                if unnamed > ROUNDS:
                    raise StoreCorrupt("a name was given a number, and has none") from refused
                connection.run(packet.names())
            elif refused.code == TOO_MANY_ROWS:
                left = packet.fitting(connection.run(packet.question()), emptied)
            else:
                connection.command("ROLLBACK")
                pause = retry.failed(time.monotonic()) if refused.code in PASSING else None
                if pause is None:
                    raise
                time.sleep(pause)
    return answers


def portions(changes: Sequence[Change], most_bytes: int) -> Iterator[Sequence[Change]]:
    """Splits the changes into as few packets as the server takes, usually one. Raises `OverLimit`
    before any packet if one change alone is too large."""
    room = most_bytes - SPARE
    if sum(map(_rough_size, changes)) < room:
        return iter((changes,))
    sizes = [_size(change) for change in changes]
    for change, size in zip(changes, sizes, strict=True):
        if size > room:
            raise OverLimit(
                f"a change of {'/'.join(change.key)} takes {size} bytes, and the server takes "
                f"packets of {most_bytes}: raise its max_allowed_packet; nothing was written"
            )
    return _portions(changes, sizes, room)


def _portions(changes: Sequence[Change], sizes: list[int], room: int) -> Iterator[Sequence[Change]]:
    start = filled = 0
    for at, size in enumerate(sizes):
        if filled + size > room:
            yield changes[start:at]
            start, filled = at, 0
        filled += size
    yield changes[start:]


def _rough_size(change: Change) -> int:
    """Returns an upper bound, which is quick to compute. The size is counted only if this bound
    might be too large."""
    events = change[7]
    bodies = len(change[5]) + sum([len(event[2]) for event in events])
    return 2 * bodies + ROUGHLY * (2 + len(events) + len(change[6].waits_on))


def _size(change: Change) -> int:
    """Returns an upper bound of the size of its literals."""
    (tenant, project, kind, name), _, _, _, _, body, index, events, _ = change
    texts = [
        tenant,
        project,
        kind,
        name,
        index.pool or "",
        index.order or "",
        index.session or "",
        index.parent or "",
        *index.waits_on,
    ]
    plain = (
        8 * sum(map(len, texts)) * (2 + len(events))
        + 64 * len(index.waits_on)
        + 1024 * (2 + len(events))
    )
    bodies = [body, *[event[2] for event in events]]
    return plain + sum([len(data) + data.count(b"'") + data.count(b"\\") for data in bodies])


class Packet:
    """The statements of one attempt; see queries.sql. Frequent names are numbered once, and then
    written as @p1, @o1 and @s1."""

    def __init__(
        self,
        queries: Queries,
        changes: Sequence[Change],
        left: Sequence[int],
        emptied: set[int],
        mark: bytes | None = None,
    ) -> None:
        self._queries = queries
        self._first = [] if mark is None else [queries["stop_elsewhere"].filled(mark=mark)]
        self.numbered = len(self._first)
        """The index of the statement that numbers the names."""
        self._changes = changes
        self._left = left
        self._emptied = emptied
        self._stamp = secrets.randbits(61) << 1
        # Sorted, as the turns are taken in this order.
        self._places = {
            place: number
            for number, place in enumerate(sorted({changes[at][0][:2] for at in left}), 1)
        }
        self._pools: dict[tuple[str, str, str], int] = {}
        self._sessions: dict[tuple[str, str], int] = {}
        self._owners: dict[int, bytes] = {}
        """The first three columns of all rows of a record."""
        self._events = dict.fromkeys(self._places, 0)
        self._turns = 0
        """The index of the first turn among the answers."""

    def text(self) -> bytes:
        """Returns the whole packet."""
        queries = self._queries
        rows = self._rows()
        updates = sum([1 for at in self._left if _is_update(self._changes[at])])
        write = queries["write"].filled(rows=rows, stamp=self._stamp)
        stop = queries["stop_unless"].filled(count=len(self._left) + updates)
        parts = [*self._first, self._numbers(), b"START TRANSACTION", write, stop]
        parts += self._waits()
        events = self._event_rows()
        self._turns = len(parts)
        for place, number in self._places.items():
            parts.append(queries["take_turn"].filled(count=self._events[place], place=number))
            parts.append(queries["remember_turn"].filled(count=self._events[place], place=number))
        if events:
            parts.append(queries["add_events"].filled(rows=events))
        return b";\n".join([*parts, b"COMMIT"])

    def answer(self, results: list[Answer], answers: Answers) -> None:
        """Adds the answers if all changes fitted: their events have the numbers up to the heads."""
        heads = {}
        for at, place in enumerate(self._places):
            heads[place] = results[self._turns + 2 * at].number - self._events[place]
        for at in sorted(self._left):
            change = self._changes[at]
            place = change[0][:2]
            heads[place] += len(change[7])
            answers[at] = _committed((heads[place],))

    def names(self) -> bytes:
        """Returns statements that number all names without a number."""
        queries = self._queries
        parts = [
            queries["add_place"].filled(tenant=tenant, project=project)
            for tenant, project in self._places
        ]
        parts += [
            queries["add_pool"].filled(tenant=tenant, project=project, name=name)
            for tenant, project, name in self._pools
        ]
        parts += [
            queries["add_session"].filled(tenant=tenant, name=name)
            for tenant, name in self._sessions
        ]
        return b";\n".join(parts)

    def question(self) -> bytes:
        """Returns statements that ask which changes fitted, and end the attempt."""
        parts = [
            self._queries["written"].filled(
                shelf=number,
                stamp=self._stamp,
                place=self._places[shelf[0], shelf[1]],
                kind=shelf[2],
                names=tuple(names),
            )
            for number, (shelf, names) in enumerate(self._shelves(self._left).items())
        ]
        return b";\n".join([*parts, b"ROLLBACK"])

    def fitting(self, results: list[Answer], emptied: set[int]) -> list[int]:
        """Returns the changes that fitted. A change that failed only because its record still waits
        on other records is added to `emptied`: it must set the record's waits to none."""
        fitting = []
        for (_, names), result in zip(self._shelves(self._left).items(), results, strict=False):
            for _, name, is_ours, version, digest in result.rows:
                at = names[name.decode()]
                if is_ours:
                    fitting.append(at)
                elif (version, digest) == self._changes[at][1:3]:
                    fitting.append(at)
                    emptied.add(at)
        return [at for at in self._left if at in set(fitting)]

    def _shelves(self, among: Sequence[int]) -> dict[tuple[str, ...], dict[str, int]]:
        shelves: dict[tuple[str, ...], dict[str, int]] = {}
        for at in among:
            key = self._changes[at][0]
            shelves.setdefault(key[:3], {})[key[3]] = at
        return shelves

    def _numbers(self) -> bytes:
        queries = self._queries
        parts = [
            queries["number_place"].filled(at=number, tenant=tenant, project=project)
            for (tenant, project), number in self._places.items()
        ]
        for (tenant, project, name), number in self._pools.items():
            parts.append(
                queries["number_pool"].filled(at=number, tenant=tenant, project=project, name=name)
            )
        for (tenant, name), number in self._sessions.items():
            parts.append(queries["number_session"].filled(at=number, tenant=tenant, name=name))
        return b"SET " + b",\n".join(parts)

    def _rows(self) -> Sql:
        """Returns the rows of the records. Runs once for every change, so it unpacks tuples instead
        of naming fields, and makes as few calls as possible."""
        pools, sessions, changes, owners, stamp = (
            self._pools,
            self._sessions,
            self._changes,
            self._owners,
            b"%d" % self._stamp,
        )
        states: dict[str, bytes] = {}
        rows = []
        for at in self._left:
            (
                (tenant, project, kind, name),
                read_version,
                read_digest,
                version,
                digest,
                body,
                index,
                _,
                _,
            ) = changes[at]
            state, pool, order, due_at, session, parent, waits_on = _astuple(index)
            owners[at] = owner = b"@p%d,%b,%b" % (
                self._places[tenant, project],
                quoted(kind.encode()),
                quoted(name.encode()),
            )
            if state not in states:
                states[state] = quoted(state.encode())
            rows.append(
                b"(%b,%d,%b,%b,%d,%b,%b,%b,%b,%b,%b,%b,%b,%b)"
                % (
                    owner,
                    version,
                    quoted(digest),
                    b"NULL" if read_version or read_digest else stamp,
                    read_version,
                    quoted(read_digest),
                    states[state],
                    b"NULL"
                    if pool is None
                    else b"@o%d" % pools.setdefault((tenant, project, pool), len(pools) + 1),
                    b"NULL" if order is None else quoted(order.encode()),
                    b"NULL" if due_at is None else b"%d" % due_at,
                    b"NULL"
                    if session is None
                    else b"@s%d" % sessions.setdefault((tenant, session), len(sessions) + 1),
                    b"NULL" if parent is None else quoted(parent.encode()),
                    quoted(_encode(waits_on))
                    if waits_on
                    else b"'[]'"
                    if at in self._emptied
                    else b"NULL",
                    quoted(body),
                )
            )
        return Sql(b",\n".join(rows))

    def _event_rows(self) -> Sql:
        """Returns the rows of the events, in the order of the changes given, which is the order of
        the feed."""
        rows, counts = [], self._events
        for at in sorted(self._left):
            change = self._changes[at]
            place, owner = change[0][:2], self._owners[at]
            number = self._places[place]
            for version, digest, body in change[7]:
                counts[place] += 1
                rows.append(
                    b"(@a%d+%d,%b,%d,%b,%b)"
                    % (number, counts[place], owner, version, quoted(digest), quoted(body))
                )
        return Sql(b",\n".join(rows))

    def _waits(self) -> list[bytes]:
        """Returns statements that remove the entries of records that now wait on something else,
        and add the missing ones."""
        queries, changes = self._queries, self._changes
        altered = [
            at
            for at in self._left
            if _is_update(changes[at]) and (changes[at][6].waits_on or at in self._emptied)
        ]
        parts: list[bytes] = [
            queries["clear_waits"].filled(
                place=self._places[shelf[0], shelf[1]],
                kind=shelf[2],
                names=tuple(names),
                stamp=self._stamp,
            )
            for shelf, names in self._shelves(altered).items()
        ]
        rows = []
        for at in self._left:
            number, _, name = self._owners[at].partition(b",")
            rows += [
                b"(%b,%b,%b)" % (number, quoted(dependency.encode()), name)
                for dependency in set(changes[at][6].waits_on)
            ]
        if rows:
            parts.append(queries["add_waits"].filled(rows=Sql(b",".join(sorted(rows)))))
        return parts


def _is_update(change: Change) -> bool:
    return bool(change[1] or change[2])
