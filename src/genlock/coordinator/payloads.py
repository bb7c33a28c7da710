"""Large results: where their bytes lie, and who may drop them.

A payload has one owner. Its name has fresh digits in it, made up for one submission or one
adoption, so the record that came of that one is the only one that ever refers to it. Hence whoever
has discarded a refused result drops its bytes without asking anybody: no record that there is, and
none that is being written by any process at that moment, can need them.

That is the point of it. While the bytes lay under their digest alone, a submission of the same
bytes could have put them and not be committed yet: to whoever looks before dropping they are
nobody's. Looking is in vain, because the drop may come late, after the commit; and so is putting
them once more after the commit, because the drop may come later still. Only names that are not
shared need no looking.

What that costs: a submission that is repeated puts its bytes again, and drops them when it sees
that the first ones count; and the adoption of a refused result copies its bytes. Who is killed
between putting and committing leaves bytes that nobody refers to.

Records from before have no such digits. Their bytes lie under the task's key and may be shared, but
only among themselves.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.commands import AdoptResult, Content, SubmitResult
from genlock.core.keys import REFUSED, Key, payload_key, refused_id
from genlock.core.model import RefusedRecord, Result, TaskRecord
from genlock.core.reasons import RefusedState
from genlock.store import Query, Store


def owned(content: Content) -> Content:
    """The same with a name of its own for its bytes, if they are a payload."""
    return replace(content, payload_id=os.urandom(16).hex()) if content.payload else content


def put(store: Store, key: Key, content: Content, data: bytes) -> None:
    """Durable on return, before anyone decides about it."""
    store.payloads().put(payload_key(key, content.payload_id), content.digest, data)


def drop_if_repeated(store: Store, command: SubmitResult | AdoptResult) -> None:
    """Once it is answered: drops these bytes if the same thing was handed in before and the first
    ones count.

    Only if a record shows that: after an error, or if the record has moved on, they stay."""
    content, key = command.content, command.key
    if isinstance(command, AdoptResult):
        name = command.refused
    else:
        name = refused_id(key.id, command.generation or 0, command.by.session, content.digest)
    ours = key.beside(REFUSED, name)
    records = store.load([key, ours]).records
    task = decode_record(key.kind, records[key].body) if key in records else None
    counts = _handed_in(task) if isinstance(task, TaskRecord) else None
    if counts is not None and _is_of(counts, command):
        if counts.payload_id != content.payload_id:
            _drop(store, key, content.payload_id, content.digest)
        return
    refused = (
        decode_record(REFUSED, records[ours].body)
        if ours in records and isinstance(command, SubmitResult)
        else None
    )
    if (
        isinstance(refused, RefusedRecord)
        and refused.state is not RefusedState.DISCARDED
        and refused.payload_id != content.payload_id
    ):
        _drop(store, key, content.payload_id, content.digest)


def _handed_in(task: TaskRecord) -> Result | None:
    """The result that counts, or that waits for a review."""
    return task.review.result if task.review is not None else task.result


def _is_of(result: Result, command: SubmitResult | AdoptResult) -> bool:
    """Is this result what the command asks for?"""
    if isinstance(command, AdoptResult):
        asked = (command.content.digest, command.from_session)
        return (result.digest, result.adopted_session) == asked
    return (result.digest, result.generation, result.session) == (
        command.content.digest,
        command.generation,
        command.by.session,
    )


def drop_discarded(store: Store, key: Key, refused: RefusedRecord) -> None:
    """The bytes of a refused result of this task that is discarded by now. May be repeated."""
    if refused.payload_id or not _is_shared(store, key, refused.digest):
        _drop(store, key, refused.payload_id, refused.digest)


def _is_shared(store: Store, key: Key, digest: str) -> bool:
    """Does another record from before refer to the same bytes?"""
    stored = store.load([key]).records.get(key)
    task = None if stored is None else decode_record(key.kind, stored.body)
    if (
        isinstance(task, TaskRecord)
        and task.result is not None
        and (task.result.digest, task.result.payload_id) == (digest, "")
    ):
        return True
    after = None
    while True:
        page = store.find(Query(*key.place, kind=REFUSED, parent=key.id, after=after))
        for found in page.records:
            record = decode_record(REFUSED, found.body)
            kept = isinstance(record, RefusedRecord) and record.state is not RefusedState.DISCARDED
            if kept and (record.digest, record.payload_id) == (digest, ""):  # type: ignore[union-attr]
                return True
        if page.next is None:
            return False
        after = page.next


def _drop(store: Store, key: Key, payload_id: str, digest: str) -> None:
    store.payloads().drop(payload_key(key, payload_id), digest)
