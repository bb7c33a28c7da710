"""Tasks: their states and histories, which are ready, and which are blocked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from genlock.core.agent_roles import roles_in_force
from genlock.core.commands import CheckDue
from genlock.core.history import claim_history
from genlock.core.index import microseconds
from genlock.core.keys import REFUSED, SESSION, Key, Scope
from genlock.core.model import SessionRecord, TaskRecord
from genlock.core.policy import Order, Policy, TenantLimits
from genlock.core.reasons import ClaimState, Status
from genlock.core.results import BlockedTask, Lineage, ReadyTask, TaskState
from genlock.core.routing import Pool, order_of, parse_pool, pool_of
from genlock.core.task.progress import task_progress
from genlock.core.task.relate import SYSTEM
from genlock.core.task.view import claimable, holder_of, task_claim, waits_for
from genlock.engine.features import FeatureList, FeaturesInFlight, NearestFeatures
from genlock.engine.jobs import plain_item
from genlock.reads.reader import PAGE, Reader, decoded, settings_keys, task_of
from genlock.reads.results import accepted_result, refused_of
from genlock.reads.reviews import review_info
from genlock.store import MAX_DUE, Query, Stored

Entry = tuple[str, Stored | TaskRecord]
"""A ready task with its order: as stored, or as opened by the passage of time."""


def task_state(reader: Reader, key: Key, record: TaskRecord | None = None) -> TaskState:
    """Returns the full state of a task now; `record` saves a read if it is loaded already."""
    record = reader.task(key) if record is None else record
    claim = record.claim
    active = claim if claim is not None and claim.state is ClaimState.ACTIVE else None
    refused = reader.counts(Query(*key.place, kind=REFUSED, parent=key.id))
    return TaskState(
        task=record.task,
        state=record.state,
        generation=record.generation,
        claim=task_claim(key, record, active) if active else None,
        holder=(
            holder_of(active, alive=holder_lives(reader, key, record))
            if active is not None
            else None
        ),
        unmet_dependencies=tuple(
            other for other, known in record.dependencies.items() if not known.finished
        ),
        unfinished_children=tuple(
            other for other, known in record.children.items() if not known.finished
        ),
        spawned_tasks=tuple(
            dict.fromkeys((*record.children, *(child.id for child in record.spawning)))
        ),
        result=accepted_result(reader, key, record) if record.result else None,
        refused_results=sum(refused.values()),
        hold_reason=record.hold.reason if record.hold else None,
        held_until=record.hold.until if record.hold else None,
        inputs_changed=record.inputs_changed,
        failures=record.failures,
        progress=task_progress(record.progress),
        review=review_info(record, record.review) if record.review is not None else None,
        feedback=record.feedback,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def holder_lives(reader: Reader, key: Key, record: TaskRecord) -> bool:
    """Is the claim of this task live now? The task must have one."""
    assert record.claim is not None
    session_key = key.beside(SESSION, record.claim.session)
    snapshot = reader.store.load([session_key])
    session = decoded(snapshot).get(session_key)
    known = {session.id: session} if isinstance(session, SessionRecord) else {}
    outage_grace = reader.outage_grace(key.place, snapshot.now)
    return reader.causes(key.place, [record.claim], known, snapshot.now, outage_grace) == [None]


class TaskAndLimits(NamedTuple):
    """A task, if it exists, with its project's policy and its tenant's limits, at one instant."""

    record: TaskRecord | None
    policy: Policy
    limits: TenantLimits
    now: datetime


def task_and_limits(reader: Reader, key: Key) -> TaskAndLimits:
    """One task with the policy and limits in force, in one load."""
    snapshot = reader.store.load([key, *settings_keys(key.place)])
    found = decoded(snapshot)
    record = found.get(key)
    settings = reader.settings_in(key.place, found)
    return TaskAndLimits(
        record if isinstance(record, TaskRecord) else None,
        settings.policy,
        settings.limits,
        snapshot.now,
    )


def task_states(reader: Reader, keys: Sequence[Key]) -> dict[str, TaskState]:
    """The states of many tasks, in this order; those that do not exist are left out."""
    found = {
        key: task_state(reader, key, record)
        for key, record in reader.records(keys).items()
        if isinstance(record, TaskRecord)
    }
    return {key.id: found[key] for key in keys if key in found}


def lineage(reader: Reader, key: Key) -> Lineage:
    """The generations of a task, and the submissions that were refused along the way."""
    record = reader.task(key)
    stored = reader.find(Query(*key.place, kind=REFUSED, parent=key.id))
    refused = tuple(refused_of(key, record, list(stored)))
    submitters = frozenset((result.generation, result.session_id) for result in refused)
    return Lineage(key.id, claim_history(record, reader.history(key), submitters), refused)


def blocked_tasks(
    reader: Reader, scope: Scope, limit: int, after_id: str
) -> tuple[BlockedTask, ...]:
    """Tasks that wait for something, and for what, by id."""
    now = reader.now()

    def blocked() -> Iterator[BlockedTask]:
        for record in reader.find_tasks(Query(*scope, state=Status.BLOCKED), after_id):
            waiting = waits_for(record, now)
            # A task that waited only for a time that has come is ready.
            if waiting or not record.early:
                yield BlockedTask(record.task, waiting)

    return tuple(islice(blocked(), limit))


def ready_tasks(
    reader: Reader,
    scope: Scope,
    limit: int,
    tracks: frozenset[str] | None,
    agent: str | None,
    role: str | None = None,
    *,
    lost: bool = False,
) -> tuple[ReadyTask, ...]:
    """Returns the tasks that could be claimed now, in the order in which they are offered. With
    `lost`, also tasks whose holder is known to be lost."""
    snapshot = reader.store.load(settings_keys(scope), [Query(*scope, heads=limit)])
    (heads,) = snapshot.pages
    settings = reader.settings_in(scope, decoded(snapshot))
    backlog = settings.policy.offer_backlog
    table = roles_in_force(
        settings.project.agent_roles if settings.project else None, settings.policy
    )
    if role is not None:
        role = settings.policy.role_of(role)

    def suited(pool: Pool) -> bool:
        return pool.suits(agent=agent, tracks=tracks, backlog=backlog, role=role, table=table)

    due = {opened.key: opened for opened in _due(reader, scope, snapshot.now)}
    if lost:
        due |= {opened.key: opened for opened in _lost(reader, scope)}
    entries: list[Entry] = [
        (order, record) for _, pool, order, record in due.values() if suited(pool)
    ]
    suits: dict[str, bool] = {}
    for stored in heads.records:
        name = stored.pool or ""
        if name not in suits:
            suits[name] = suited(parse_pool(name))
        if suits[name] and stored.key not in due:
            entries.append((stored.order or "", stored))
    entries.sort(key=lambda entry: entry[0])
    if settings.policy.order is Order.CLOSEST_TO_DONE:
        entries = _nearest_first(
            reader, scope, limit, agent, snapshot.now, entries, due.keys(), suited
        )
    records = [
        task_of(found) if isinstance(found, Stored) else found for _, found in entries[:limit]
    ]
    return tuple(ReadyTask(record.task, record.state, record.generation) for record in records)


def _nearest_first(
    reader: Reader,
    scope: Scope,
    limit: int,
    agent: str | None,
    now: datetime,
    entries: list[Entry],
    due: Collection[Key],
    suited: Callable[[Pool], bool],
) -> list[Entry]:
    """Puts the tasks of the features nearest to completion first, in the order in which they are
    offered."""
    if not any(order.startswith("0") for order, _ in entries):
        return entries  # no task belongs to a feature
    workers = FeaturesInFlight(reader.store, scope).agents(now)
    alone = {agent}
    nearest = NearestFeatures(FeatureList(reader.store, scope), reader.store.find, scope, limit)
    opened: dict[str, list[Entry]] = {}
    for order, found in entries:
        if isinstance(found, TaskRecord) and found.task.feature is not None:
            opened.setdefault(found.task.feature, []).append((order, found))
    first: dict[str, Entry] = {}
    for name, ready in nearest.each_ready(lambda name: not workers.get(name, alone) <= alone):
        of_feature = opened.get(name, []) + [
            (stored.order or "", stored)
            for stored in ready
            if stored.key not in due and suited(parse_pool(stored.pool or ""))
        ]
        of_feature.sort(key=lambda entry: entry[0])
        first |= {_id_of(entry): entry for entry in of_feature}
        if len(first) >= limit:
            break
    return [*first.values(), *(entry for entry in entries if _id_of(entry) not in first)]


def _id_of(entry: Entry) -> str:
    found = entry[1]
    return found.key.id if isinstance(found, Stored) else found.task.id


class _Opened(NamedTuple):
    """A task that became ready by the passage of time."""

    key: Key
    pool: Pool
    order: str
    record: TaskRecord


def _due(reader: Reader, scope: Scope, now: datetime) -> Iterator[_Opened]:
    """Yields tasks that became ready by the passage of time, as a claim would find them now."""
    after: str | None = None
    while True:
        page = reader.store.find(
            Query(*scope, due_before=microseconds(now), after=after, limit=PAGE)
        )
        yield from _opened(reader, page.records)
        if page.next is None:
            return
        after = page.next


def _lost(reader: Reader, scope: Scope) -> Iterator[_Opened]:
    """Yields the first few tasks whose holder's process or session has ended, as a request for a
    next task does."""
    query = Query(*scope, state=Status.IN_PROGRESS, due_before=MAX_DUE, limit=PAGE)
    return _opened(reader, reader.store.find(query).records)


def _opened(reader: Reader, found: Iterable[Stored]) -> Iterator[_Opened]:
    """Yields those of these tasks that became ready by the passage of time; decided, but not
    written."""
    checks = [plain_item(CheckDue(stored.key, SYSTEM)) for stored in found]
    if not checks:
        return
    trial = reader.trial()
    trial.prepare(checks)
    for check in checks:
        trial.decide(check)
        key: Key = check.command.key
        record = trial.loaded_records[key].record
        if isinstance(record, TaskRecord) and claimable(record):
            yield _Opened(key, parse_pool(pool_of(record)), order_of(record), record)
