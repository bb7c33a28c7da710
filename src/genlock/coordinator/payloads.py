"""Payloads, the bytes of large results: where they are stored, and when they are dropped.

A payload has one owner. Its name contains fresh random digits for each submission or adoption, so
only the record of that submission ever refers to it. Hence a process that has discarded a refused
result can drop its bytes without any check: no existing record, and none that any process is
writing at that moment, can need them.

That is why names are unique. When bytes were stored under their digest alone, another submission of
the same bytes could have put them without having committed yet; to a process that checks for
references before the drop, they seemed unused. Such a check is useless, because the drop may run
late, after the commit. Putting the bytes again after the commit is useless too, because the drop
may run later still. Only names that are never shared need no check.

The costs: a repeated submission puts its bytes again, and drops them when it sees that the first
ones count. The adoption of a refused result copies its bytes. A process that is killed between put
and commit leaves bytes without a reference.

Older records have no such digits. Their bytes are stored under the task's key and may be shared,
but only among older records.
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
    """Gives the content's bytes a unique name, if they are a payload."""
    return replace(content, payload_id=os.urandom(16).hex()) if content.payload else content


def put(store: Store, key: Key, content: Content, data: bytes) -> None:
    """Stores a payload. It is durable on return, before the submission is decided."""
    store.payloads().put(payload_key(key, content.payload_id), content.digest, data)


def drop_if_repeated(store: Store, command: SubmitResult | AdoptResult) -> None:
    """Drops the payload of an answered submission if it repeated an earlier one whose bytes count.

    It drops them only if a record proves that: after an error, or if the record has changed since,
    they stay."""
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
    """Returns the accepted result, or the one that waits for a review."""
    return task.review.result if task.review is not None else task.result


def _is_of(result: Result, command: SubmitResult | AdoptResult) -> bool:
    """Is this the result that the command submits or adopts?"""
    if isinstance(command, AdoptResult):
        asked = (command.content.digest, command.from_session)
        return (result.digest, result.adopted_session) == asked
    return (result.digest, result.generation, result.session) == (
        command.content.digest,
        command.generation,
        command.by.session,
    )


def drop_discarded(store: Store, key: Key, refused: RefusedRecord) -> None:
    """Drops the bytes of a refused result of this task that has been discarded. May be repeated."""
    if refused.payload_id or not _is_shared(store, key, refused.digest):
        _drop(store, key, refused.payload_id, refused.digest)


def _is_shared(store: Store, key: Key, digest: str) -> bool:
    """Does another older record refer to the same bytes?"""
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
