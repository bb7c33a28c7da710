"""Turns the events of a feed into commits: the same events in the same order, and each record as
their fold.

The changes of a commit are distinct records, and their events get positions in the order of the
changes. So a commit ends where a record recurs after another record's event. Consecutive events of
one record are one change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from genlock.core.codec import decode_base, decode_event, decode_record, encode_record
from genlock.core.model import Record
from genlock.core.rules import index_of
from genlock.engine.replay_check import folded
from genlock.errors import StoreCorrupt
from genlock.store import Change, Key, Limits, NewEvent, RecordedEvent, Stored

COMMIT_BYTES = 4 * 1024 * 1024
CHANGE_BYTES = 1024 * 1024
"""The most bytes of events in one change: some stores take only a few MB in a transaction."""

_PURGED = b"1{}"
"""Replaces purged events until the base is swapped in."""


class State(NamedTuple):
    """A record in the state reached by the copy so far."""

    version: int
    digest: bytes
    record: Record | None


NOTHING = State(0, b"", None)
States = dict[Key, State]


def state_of(stored: Stored) -> State:
    """Decodes a stored record."""
    return State(stored.version, stored.digest, decode_record(stored.key.kind, stored.body))


class _Run:
    """Consecutive events of one record."""

    def __init__(self, before: State) -> None:
        self.before = before
        self.events: list[NewEvent] = []
        self.bytes = 0


def batches(
    events: Iterable[RecordedEvent], states: States, limits: Limits
) -> Iterator[list[Change]]:
    """Yields the commits that write these events, except for events that the target has already.
    Updates `states`, the records so far."""
    runs: dict[Key, _Run] = {}
    last: Key | None = None
    total = 0
    for recorded in events:
        key, version, digest, body, _ = recorded
        state = states.get(key, NOTHING)
        if version <= state.version:
            continue
        run = runs.get(key)
        if runs and (
            total >= COMMIT_BYTES
            or (len(runs) >= limits.batch if run is None else key != last or _is_full(run, limits))
        ):
            yield _changes(runs, states)
            runs, run, total = {}, None, 0
        if run is None:
            run = runs[key] = _Run(state)
        states[key] = _followed(state, recorded)
        run.events.append(NewEvent(version, digest, body))
        run.bytes += len(body)
        total += len(body)
        last = key
    if runs:
        yield _changes(runs, states)


def _is_full(run: _Run, limits: Limits) -> bool:
    return len(run.events) >= limits.events or run.bytes >= CHANGE_BYTES


def _followed(state: State, recorded: RecordedEvent) -> State:
    key, version, digest, body, _ = recorded
    if version != state.version + 1:
        raise StoreCorrupt(
            f"{'/'.join(key)}: event {state.version + 1} is missing in the source, the next one is "
            f"{version}"
        )
    try:
        return State(version, digest, folded(key, state.record, recorded, decode_event(body).event))
    except StoreCorrupt as error:
        raise StoreCorrupt(
            f"{'/'.join(key)}: event {version} of the source cannot be copied: {error}"
        ) from error


def _changes(runs: dict[Key, _Run], states: States) -> list[Change]:
    return [_change(key, run.before, states[key], tuple(run.events)) for key, run in runs.items()]


def _change(key: Key, before: State, after: State, events: tuple[NewEvent, ...]) -> Change:
    assert after.record is not None
    record = after.record
    return Change(
        key,
        before.version,
        before.digest,
        after.version,
        after.digest,
        encode_record(record),
        index_of(record),
        events,
    )


def begun_at(key: Key, base: bytes) -> tuple[State, Change]:
    """Returns the state of a record's base, and the change that creates the record there. For
    records whose first events were purged."""
    version, digest, record = decode_base(key.kind, base)
    state = State(version, digest, record)
    return state, _change(key, NOTHING, state, (NewEvent(version, digest, _PURGED),))
