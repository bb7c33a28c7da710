"""What anyone may look at: states, history, what is ready, what is blocked and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO

from genlock.coordinator.arguments import (
    LONGEST_DIGEST,
    check_after,
    check_flag,
    check_items,
    check_lease,
    check_limit,
    check_text,
    check_tracks,
    unpack,
)
from genlock.coordinator.base import Base, decoded, settings_keys, task_of
from genlock.coordinator.explain import explanation, opened_by_time
from genlock.coordinator.scripts import Ask, Read, Script
from genlock.core.codec import decode_event, decode_record
from genlock.core.commands import CheckDue, ClaimTask
from genlock.core.events import ResultAccepted
from genlock.core.history import claim_history
from genlock.core.index import microseconds
from genlock.core.keys import REFUSED, SESSION, TASK, Key, payload_key, project_key
from genlock.core.model import NO_DATA, RefusedRecord, Result, SessionRecord, TaskRecord
from genlock.core.names import check_agent
from genlock.core.reasons import ClaimState, RefusedState, Status
from genlock.core.results import (
    BlockedTask,
    ClaimHistory,
    Explanation,
    Lineage,
    Progress,
    ReadyTask,
    TaskClaim,
    TaskResult,
    TaskState,
)
from genlock.core.routing import parse_pool
from genlock.core.task.relate import SYSTEM
from genlock.core.task.view import holder_of, overdue, task_claim, waits_for
from genlock.engine.jobs import Settle, plain_item
from genlock.engine.processes import gone
from genlock.errors import ResultNotFound
from genlock.store import MAX_DUE, EventQuery, Query, Recorded, Stored, look

_PAGE = 500
_LONG_PAGE = 2_000


class Queries(Base):
    """Operations that change nothing (but what was due anyway)."""

    def get_task_state(self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None) -> Script[TaskState]:
        """All that is known of a task now."""
        key = self.task_key(tenant_id, project_id, task_id)
        state: TaskState = yield Read(lambda: self._state(key, self.read_task(key)))
        return state

    def batch_get_states(
        self, *, task_ids: Iterable[str], tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[dict[str, TaskState]]:
        """The states of many tasks; those that do not exist are left out."""
        keys = [self.task_key(tenant_id, project_id, task_id) for task_id in check_items("task_ids", task_ids)]

        def read() -> dict[str, TaskState]:
            states = {}
            for start in range(0, len(keys), _PAGE):
                for key, record in self.read_records(keys[start : start + _PAGE]).items():
                    if isinstance(record, TaskRecord):
                        states[key.id] = self._state(key, record)
            return states

        found: dict[str, TaskState] = yield Read(read)
        return {key.id: found[key.id] for key in keys if key.id in found}

    def get_claim_history(
        self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[tuple[ClaimHistory, ...]]:
        """One entry for each generation that was granted, in order."""
        lineage = yield from self.get_lineage(task_id=task_id, tenant_id=tenant_id, project_id=project_id)
        return lineage.generations

    def get_lineage(self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None) -> Script[Lineage]:
        """The generations of a task, and the submissions that were refused along the way."""
        key = self.task_key(tenant_id, project_id, task_id)

        def read() -> Lineage:
            record = self.read_task(key)
            refused = tuple(self._refused(key, record, list(self._find(Query(*key.place, kind=REFUSED, parent=key.id)))))
            whose = frozenset((result.generation, result.session_id) for result in refused)
            events = (decode_event(recorded.body).event for recorded in self._events(key))
            return Lineage(key.id, claim_history(record, events, whose), refused)

        lineage: Lineage = yield Read(read)
        return lineage

    def get_active_claims_for_session(
        self, *, session_id: str | None = None, tenant_id: str | None = None
    ) -> Script[tuple[TaskClaim, ...]]:
        """The claims a session holds, in all projects of its tenant."""
        tenant, _ = self.place(tenant_id, None)
        session = self.caller(session_id).session

        def read() -> tuple[TaskClaim, ...]:
            claims = []
            for stored in self._find(Query(tenant, session=session)):
                record = task_of(stored)
                if record.claim is not None and record.claim.session == session:
                    claims.append(task_claim(stored.key, record, record.claim))
            return tuple(claims)

        claims: tuple[TaskClaim, ...] = yield Read(read)
        return claims

    def ready(
        self,
        *,
        limit: int = 100,
        tracks: str | Collection[str] | None = None,
        agent_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[ReadyTask, ...]]:
        """What could be claimed now, first things first; with `agent_id`, what that agent would be offered.

        What is claimed by somebody whose process is gone is there if nothing else is, as for who asks for a next task.
        """
        place = self.place(tenant_id, project_id)
        limit = check_limit(limit)
        wanted = check_tracks(tracks)
        if agent_id is not None:
            agent_id = check_agent(agent_id)
        found: tuple[ReadyTask, ...] = yield Read(lambda: self._ready(place, limit, wanted, agent_id))
        if not found:
            # Nothing: a crash may have cut off the reactions that would have opened something, or a holder may be lost.
            yield Ask([Settle(project_key(*place))])
            found = yield Read(lambda: self._ready(place, limit, wanted, agent_id, lost=True))
        return found

    def blocked(
        self, *, limit: int = 100, after: str | None = None, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[tuple[BlockedTask, ...]]:
        """What waits for something, and for what, by task id; `after` is the last id of the page before."""
        place = self.place(tenant_id, project_id)
        limit, behind = check_limit(limit), check_after(after)

        def read() -> tuple[BlockedTask, ...]:
            found = []
            now = self.store.load([]).now
            for stored in self._find(Query(*place, state=Status.BLOCKED), behind):
                record = task_of(stored)
                waiting = waits_for(record, now)
                if record.early and not waiting:
                    continue  # time has opened it: it is among those that are ready
                found.append(BlockedTask(record.task, waiting))
                if len(found) == limit:
                    break
            return tuple(found)

        blocked: tuple[BlockedTask, ...] = yield Read(read)
        return blocked

    def explain(
        self,
        *,
        task_id: str,
        agent_id: str | None = None,
        session_id: str | None = None,
        lease_duration_seconds: float = 300,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Explanation]:
        """Why a task is not ready, or why this agent would not get it, and what would change that."""
        key = self.task_key(tenant_id, project_id, task_id)
        session = session_id if session_id is not None else self.identity.session_id or "explain"
        caller = self.caller(session, agent_id if agent_id is not None else self.identity.agent_id or "explain")
        claim = ClaimTask(key, caller, check_lease(lease_duration_seconds))

        def read() -> Explanation:
            self.read_task(key)
            round = self.engine.look()
            item = plain_item(claim)
            round.prepare([item])
            return explanation(round, item)

        found: Explanation = yield Read(read)
        return found

    def list_refused_results(
        self,
        *,
        task_id: str | None = None,
        include_settled: bool = False,
        limit: int = 100,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[TaskResult, ...]]:
        """Refused results that are still kept, by id; with `include_settled` also those adopted or discarded.

        `after` is the last id of the page before."""
        place = self.place(tenant_id, project_id)
        limit, behind = check_limit(limit), check_after(after)
        parent = None if task_id is None else self.task_key(tenant_id, project_id, task_id).id
        state = None if check_flag("include_settled", include_settled) else RefusedState.KEPT

        def read() -> tuple[TaskResult, ...]:
            results: list[TaskResult] = []
            for stored in self._find(Query(*place, kind=REFUSED, parent=parent, state=state), behind):
                record = decode_record(REFUSED, stored.body)
                assert isinstance(record, RefusedRecord)
                key = stored.key.beside(TASK, record.task)
                results += self._refused(key, self.read_task(key), [stored])
                if len(results) >= limit:
                    break
            return tuple(results[:limit])

        found: tuple[TaskResult, ...] = yield Read(read)
        return found

    def read_result(
        self, *, task_id: str, digest: str | None = None, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[Any]:
        """The data of a task's accepted result, or of a result by its digest, large ones too."""
        key = self.task_key(tenant_id, project_id, task_id)
        if digest is not None:
            digest = check_text("digest", digest, LONGEST_DIGEST)

        def read() -> Any:
            record = self.read_task(key)
            result = record.result
            if digest is None and result is None:
                raise ResultNotFound(f"task {key.id!r} has no accepted result")
            if result is not None and digest in (None, result.digest) and not result.payload:
                return self._result_data(key, record, result)
            wanted = digest if digest is not None else result.digest if result else ""
            for stored in self._find(Query(*key.place, kind=REFUSED, parent=key.id)):
                refused = decode_record(REFUSED, stored.body)
                assert isinstance(refused, RefusedRecord)
                if refused.digest == wanted and refused.data is not NO_DATA:
                    return unpack(refused.data)
            with self._open_payload(key, record, wanted) as payload:
                return unpack(payload.read())

        data: Any = yield Read(read)
        return data

    def track_progress(self, *, tenant_id: str | None = None, project_id: str | None = None) -> Script[dict[str, Progress]]:
        """How far each track is ("" for tasks of no track)."""
        place = self.place(tenant_id, project_id)
        progress: dict[str, Progress] = yield Read(lambda: self._progress(place))
        return progress

    # How it is read

    def _state(self, key: Key, record: TaskRecord) -> TaskState:
        claim = record.claim
        active = claim if claim is not None and claim.state is ClaimState.ACTIVE else None
        alive = False
        if active is not None:
            session_key = key.beside(SESSION, active.session)
            snapshot = self.store.load([session_key])
            now, session = snapshot.now, decoded(snapshot).get(session_key)
            session = session if isinstance(session, SessionRecord) else None
            mercy = self.engine.mercy(key.place, now)
            alive = overdue(active, now, session, session is not None and gone(session.process), mercy) is None
        refused = self.store.find(Query(*key.place, kind=REFUSED, parent=key.id), count_by="state").counts
        return TaskState(
            task=record.task,
            state=record.state,
            generation=record.generation,
            claim=task_claim(key, record, active) if active else None,
            holder=holder_of(active, alive=alive) if active else None,
            unmet_dependencies=tuple(other for other, heard in record.dependencies.items() if not heard.finished),
            unfinished_children=tuple(other for other, heard in record.children.items() if not heard.finished),
            result=self._result(key, record, record.result) if record.result else None,
            refused_results=sum(refused.values()),
            hold_reason=record.hold.reason if record.hold else None,
            held_until=record.hold.until if record.hold else None,
            inputs_changed=record.inputs_changed,
            failures=record.failures,
            created_at=record.created_at,
            updated_at=record.updated_at,
        )

    def _result(self, key: Key, record: TaskRecord, result: Result) -> TaskResult:
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
            result_data=self._result_data(key, record, result),
            submitted_at=result.submitted_at,
            accepted=True,
            digest=result.digest,
            size=result.size,
            payload=result.payload,
            adopted_generation=result.adopted_generation,
            adopted_session=result.adopted_session,
        )

    def _result_data(self, key: Key, record: TaskRecord, result: Result) -> Any:
        if not result.fan_in:
            return unpack(result.data)
        children = self.read_records([key.beside(TASK, child) for child in record.children])
        return {
            child.id: found.result.work_product_ref if isinstance(found, TaskRecord) and found.result else None
            for child, found in children.items()
        }

    def _refused(self, key: Key, task: TaskRecord, found: list[Stored]) -> Iterator[TaskResult]:
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
            )

    def _ready(
        self, place: tuple[str, str], limit: int, tracks: frozenset[str] | None, agent: str | None, *, lost: bool = False
    ) -> tuple[ReadyTask, ...]:
        """With `lost`, also what is claimed by somebody who is known to be gone."""
        snapshot, (heads,) = look(self.store, settings_keys(place), [Query(*place, heads=limit)])
        backlog = self.settings_in(place, decoded(snapshot))[0].offer_backlog
        due = {key: entry for key, *entry in self._due(place, snapshot.now)}
        if lost:
            due |= {key: entry for key, *entry in self._lost(place)}
        entries: list[tuple[str, Any]] = [
            (order, found) for pool, order, found in due.values() if pool.suits(agent=agent, tracks=tracks, backlog=backlog)
        ]
        suiting: dict[str, bool] = {}
        for stored in heads.records:
            name = stored.pool or ""
            if name not in suiting:
                suiting[name] = parse_pool(name).suits(agent=agent, tracks=tracks, backlog=backlog)
            if suiting[name] and stored.key not in due:
                entries.append((stored.order or "", stored))
        entries.sort(key=lambda entry: entry[0])
        records = [task_of(found) if isinstance(found, Stored) else found for _, found in entries[:limit]]
        return tuple(ReadyTask(record.task, record.state, record.generation) for record in records)

    def _due(self, place: tuple[str, str], now: datetime) -> list[tuple[Key, Any, str, Any]]:
        """What time has opened, as it would be if someone claimed it now; nothing is written for a look."""
        opened: list[tuple[Key, Any, str, Any]] = []
        after: str | None = None
        while True:
            page = self.store.find(Query(*place, due_before=microseconds(now), after=after, limit=_PAGE))
            opened += self._opened(page.records)
            if page.next is None:
                return opened
            after = page.next

    def _lost(self, place: tuple[str, str]) -> list[tuple[Key, Any, str, Any]]:
        """The same for claims whose process is gone or whose session has ended; the first few, as for who asks for a next task."""
        return self._opened(self.store.find(Query(*place, state=Status.IN_PROGRESS, due_before=MAX_DUE, limit=_PAGE)).records)

    def _opened(self, found: Sequence[Stored]) -> list[tuple[Key, Any, str, Any]]:
        if not found:
            return []
        round = self.engine.look()
        checks = [plain_item(CheckDue(stored.key, SYSTEM)) for stored in found]
        round.prepare(checks)
        return list(opened_by_time(round, checks))

    def _progress(self, place: tuple[str, str]) -> dict[str, Progress]:
        counts: dict[str, dict[str, int]] = {}
        for stored in self._find(Query(*place)):
            record = task_of(stored)
            track = counts.setdefault(record.task.track or "", {})
            name = _PROGRESS.get(record.state, "other")
            track[name] = track.get(name, 0) + 1
        return {track: Progress(**counts[track]) for track in sorted(counts)}

    def _find(self, query: Query, behind: str = "") -> Iterator[Stored]:
        """All pages of a query; within one project, only what comes behind an id, whether or not it is there."""
        after: str | None = None
        while True:
            page = self.store.find(
                Query(
                    query.tenant,
                    query.project,
                    query.kind,
                    query.state,
                    session=query.session,
                    parent=query.parent,
                    after=after,
                    limit=_LONG_PAGE,
                )
            )
            # A page's own mark is the store's business. That ids come in order is part of its contract.
            yield from (stored for stored in page.records if stored.key.id > behind) if behind else page.records
            if page.next is None:
                return
            after = page.next

    def _events(self, key: Key) -> Iterator[Recorded]:
        after = 0
        while True:
            page = self.store.read_events(EventQuery(*key.place, record=key, after_version=after, limit=_PAGE))
            yield from page.events
            if not page.more:
                return
            after = page.events[-1].version

    def _open_payload(self, key: Key, record: TaskRecord, digest: str) -> BinaryIO:
        opened = self.store.payloads()
        for payload_id in self._payload_ids(key, record, digest):
            with suppress(ResultNotFound):
                return opened.open(payload_key(key, payload_id), digest)
        return opened.open(key, digest)

    def _payload_ids(self, key: Key, record: TaskRecord, digest: str) -> Iterator[str]:
        """Where the bytes of this digest may lie: those of the task's result, of a refused one, of one that counted before a reset."""
        if record.result is not None and record.result.digest == digest:
            yield record.result.payload_id
        for stored in self._find(Query(*key.place, kind=REFUSED, parent=key.id)):
            refused = decode_record(REFUSED, stored.body)
            if isinstance(refused, RefusedRecord) and refused.digest == digest and refused.state is not RefusedState.DISCARDED:
                yield refused.payload_id
        for recorded in self._events(key):
            event = decode_event(recorded.body).event
            if isinstance(event, ResultAccepted) and event.digest == digest:
                yield event.payload_id


_PROGRESS = {
    Status.COMPLETED: "completed",
    Status.IN_PROGRESS: "in_progress",
    Status.PENDING: "pending",
    Status.BACKLOG: "pending",
    Status.BLOCKED: "blocked",
}
