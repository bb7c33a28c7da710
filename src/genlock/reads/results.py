"""Results of tasks: the accepted one, the refused ones, and the data of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from genlock.core.codec import decode_record
from genlock.core.events import ResultAccepted
from genlock.core.keys import REFUSED, TASK, Key, Scope, payload_key
from genlock.core.model import NO_DATA, RefusedRecord, Result, TaskRecord
from genlock.core.reasons import RefusedState
from genlock.core.results import TaskResult
from genlock.errors import ResultNotFound
from genlock.reads.reader import Reader
from genlock.store import Query, Stored


def unpack(data: Raw | bytes) -> Any:
    """Decodes the values of a result."""
    return msgspec.json.decode(data)


def accepted_result(reader: Reader, key: Key, record: TaskRecord) -> TaskResult:
    """The result of a task that has one."""
    result = record.result
    assert result is not None
    return TaskResult(
        id=result.id,
        tenant_id=key.tenant,
        project_id=key.project,
        task_id=key.id,
        track=record.task.track,
        sequence=record.task.sequence,
        generation=result.generation,
        session_id=result.session,
        agent_id=result.agent,
        work_product_ref=result.work_product_ref,
        result_data=data_of_result(reader, key, record, result),
        submitted_at=result.submitted_at,
        accepted=True,
        digest=result.digest,
        size=result.size,
        payload=result.payload,
        adopted_generation=result.adopted_generation,
        adopted_session=result.adopted_session,
        reference=result.reference,
        manifest=result.manifest,
    )


def data_of_result(reader: Reader, key: Key, record: TaskRecord, result: Result) -> Any:
    """Returns the data of a result that is not a payload; for a fan-in, the references of its
    children."""
    if not result.fan_in:
        return unpack(result.data)
    children = reader.records([key.beside(TASK, child) for child in record.children])
    return {
        child.id: found.result.work_product_ref
        if isinstance(found, TaskRecord) and found.result
        else None
        for child, found in children.items()
    }


def refused_of(key: Key, task: TaskRecord, found: list[Stored]) -> Iterator[TaskResult]:
    """Refused results of one task."""
    for stored in found:
        record = decode_record(REFUSED, stored.body)
        assert isinstance(record, RefusedRecord)
        yield TaskResult(
            id=stored.key.id,
            tenant_id=key.tenant,
            project_id=key.project,
            task_id=key.id,
            track=task.task.track,
            sequence=task.task.sequence,
            generation=record.generation,
            session_id=record.session,
            agent_id=record.agent,
            work_product_ref=record.work_product_ref,
            result_data=unpack(record.data),
            submitted_at=record.submitted_at,
            accepted=False,
            rejection_reason=record.reason,
            digest=record.digest,
            size=record.size,
            payload=record.payload,
            state=record.state,
            reference=record.reference,
            manifest=record.manifest,
        )


def refused_results(
    reader: Reader,
    scope: Scope,
    task_id: str | None,
    state: RefusedState | None,
    limit: int,
    after_id: str,
) -> tuple[TaskResult, ...]:
    """Refused results by id: of one task, if one is named, and in one state."""

    def results() -> Iterator[TaskResult]:
        query = Query(*scope, kind=REFUSED, parent=task_id, state=state)
        for stored in reader.find(query, after_id):
            record = decode_record(REFUSED, stored.body)
            assert isinstance(record, RefusedRecord)
            key = stored.key.beside(TASK, record.task)
            yield from refused_of(key, reader.task(key), [stored])

    return tuple(islice(results(), limit))


def result_data(reader: Reader, key: Key, digest: str | None) -> Any:
    """The data of a task's accepted result, or of the result with this digest."""
    record = reader.task(key)
    result = record.result
    if result is None and record.review is not None and digest == record.review.result.digest:
        result = record.review.result
    if digest is None and result is None:
        raise ResultNotFound(f"task {key.id!r} has no accepted result")
    if result is not None and digest in (None, result.digest) and not result.payload:
        return data_of_result(reader, key, record, result)
    wanted = digest if digest is not None else result.digest if result else ""
    for refused in _refused_records(reader, key):
        if refused.digest == wanted and refused.data is not NO_DATA:
            return unpack(refused.data)
    with _open_payload(reader, key, record, wanted) as payload:
        return unpack(payload.read())


def _refused_records(reader: Reader, key: Key) -> Iterator[RefusedRecord]:
    for stored in reader.find(Query(*key.place, kind=REFUSED, parent=key.id)):
        record = decode_record(REFUSED, stored.body)
        assert isinstance(record, RefusedRecord)
        yield record


def _open_payload(reader: Reader, key: Key, record: TaskRecord, digest: str) -> BinaryIO:
    payloads = reader.store.payloads()
    for payload_id in _payload_ids(reader, key, record, digest):
        with suppress(ResultNotFound):
            return payloads.open(payload_key(key, payload_id), digest)
    return payloads.open(key, digest)


def _payload_ids(reader: Reader, key: Key, record: TaskRecord, digest: str) -> Iterator[str]:
    """Yields the payload ids that may have this digest: of the task's result, of a refused result,
    or of a result that was accepted before a reset."""
    accepted = [record.result] if record.result is not None else []
    if record.review is not None:
        accepted.append(record.review.result)
    refused = (
        found
        for found in _refused_records(reader, key)
        if found.state is not RefusedState.DISCARDED
    )
    before = (event for event in reader.history(key) if isinstance(event, ResultAccepted))
    for each in chain[Result | RefusedRecord | ResultAccepted](accepted, refused, before):
        if each.digest == digest:
            yield each.payload_id
