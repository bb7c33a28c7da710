"""What operators do: reset, cancel, assign, unlock, hold, reopen, adopt, discard, policy, sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from genlock.coordinator import payloads
from genlock.coordinator.arguments import (
    LONGEST_REFERENCE,
    MOST_HOURS,
    check_flag,
    check_generation,
    check_mapping,
    check_number,
    check_operation,
    check_profile,
    check_text,
)
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Ask, Read, Script
from genlock.coordinator.plan_ops import in_turn
from genlock.core import commands as c
from genlock.core.agent_roles import as_document, check_agent_roles
from genlock.core.events import TaskReset
from genlock.core.index import MET
from genlock.core.keys import REFUSED, TASK, Key, payload_key, project_key, tenant_key
from genlock.core.model import RefusedRecord, TaskRecord
from genlock.core.names import check_agent, check_track
from genlock.core.policy import PROFILES, STANDARD_TRACKS, Policy, change_limits, change_policy
from genlock.core.reasons import RefusedState, Status, Verdict
from genlock.core.results import OperatorResult, Settings, SubmissionResult, SweepResult
from genlock.engine.jobs import Job, Sweep
from genlock.engine.scan import purge_old
from genlock.errors import BadArgument, GenlockError, NotAllowed, ResultNotFound
from genlock.store import Query

_AT_ONCE = 500


class Operating(Base):
    """Operations of operators. None of them is fenced; those that revoke a claim raise the
    generation."""

    def reset_task(
        self,
        *,
        task_id: str,
        cascade: bool = False,
        take_over: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[OperatorResult]:
        """Have a task done again. With `cascade` also every completed task that depends on it,
        listed in the answer.

        A live claim is revoked only with `take_over`; without it, the call raises LiveClaim."""
        key = self.task_key(tenant_id, project_id, task_id)
        check_flag("cascade", cascade)
        check_flag("take_over", take_over)
        operation = check_operation(operation_id)
        descendants: list[Key] = (
            (yield Read(lambda: self._completed_dependents(key, operation))) if cascade else []
        )
        result: OperatorResult = yield from self.ask_one(
            c.ResetTask(key, self.operator(), operation, take_over=take_over)
        )
        cascade_of: list[str] = []
        errors: list[GenlockError] = []
        for start in range(0, len(descendants), _AT_ONCE):
            commands = [
                c.ResetTask(other, self.operator(), operation, if_completed=True)
                for other in descendants[start : start + _AT_ONCE]
            ]
            job: Job = yield Ask(commands)
            errors += [outcome for outcome in job.results if isinstance(outcome, GenlockError)]
            cascade_of += [outcome.task_id for outcome in job.results if _is_done(outcome)]
        if errors:
            # After a failure, finished resets stay; a repeated call continues with the tasks that
            # are still completed.
            raise errors[0]
        return msgspec.structs.replace(result, cascade=tuple(cascade_of))

    def preview_reset(
        self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[tuple[str, ...]]:
        """The completed tasks that a reset with `cascade` would reset too."""
        key = self.task_key(tenant_id, project_id, task_id)
        found: list[Key] = yield Read(lambda: self._completed_dependents(key))
        return tuple(other.id for other in found)

    def cancel_task(
        self,
        *,
        task_id: str,
        reason: str = "",
        take_over: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[OperatorResult]:
        """The task will not be done; for its dependents it counts as met (policy
        `cancelled_dependency`).

        A live claim is revoked only with `take_over`; without it, the call raises LiveClaim."""
        key, operation = (
            self.task_key(tenant_id, project_id, task_id),
            check_operation(operation_id),
        )
        command = c.CancelTask(
            key,
            self.operator(),
            check_text("reason", reason),
            operation,
            check_flag("take_over", take_over),
        )
        return (yield from self._act(command))

    def assign_task(
        self,
        *,
        task_id: str,
        agent_id: str,
        hours: float | None = None,
        take_over: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[OperatorResult]:
        """Reserve a task for one agent. A live claim is revoked only with `take_over`; without it,
        the call raises LiveClaim."""
        if hours is not None:
            hours = check_number("hours", hours, 0, MOST_HOURS)
        key, operation = (
            self.task_key(tenant_id, project_id, task_id),
            check_operation(operation_id),
        )
        take_over = check_flag("take_over", take_over)
        return (
            yield from self._act(
                c.AssignTask(
                    key, self.operator(), check_agent(agent_id), hours, operation, take_over
                )
            )
        )

    def force_release(
        self,
        *,
        task_id: str,
        take_over: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[OperatorResult]:
        """Revoke a claim; its holder is fenced off from now on. A live claim is revoked only with
        `take_over`; without it, the call raises LiveClaim."""
        key, operation = (
            self.task_key(tenant_id, project_id, task_id),
            check_operation(operation_id),
        )
        return (
            yield from self._act(
                c.ForceRelease(key, self.operator(), operation, check_flag("take_over", take_over))
            )
        )

    def hold_task(
        self,
        *,
        task_id: str,
        reason: str = "",
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[OperatorResult]:
        """Hold a task: no claim is granted until it is reopened; the current holder may finish."""
        key, operation = (
            self.task_key(tenant_id, project_id, task_id),
            check_operation(operation_id),
        )
        return (
            yield from self._act(
                c.HoldTask(key, self.operator(), check_text("reason", reason), operation)
            )
        )

    def reopen_task(
        self,
        *,
        task_id: str,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[OperatorResult]:
        """Lift a hold; a task that is not held is taken out of the backlog."""
        key, operation = (
            self.task_key(tenant_id, project_id, task_id),
            check_operation(operation_id),
        )
        return (yield from self._act(c.ReopenTask(key, self.operator(), operation)))

    def adopt_result(
        self,
        *,
        task_id: str,
        refused_id: str,
        session_id: str | None = None,
        generation: int | None = None,
        take_over: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[SubmissionResult]:
        """Make a refused result the task's result: by the holder with its generation, or by an
        operator without one.

        An operator revokes a live claim only with `take_over`; without it, the call raises
        LiveClaim. The session whose result was refused can adopt it only as the holder."""
        key, operation = (
            self.task_key(tenant_id, project_id, task_id),
            check_operation(operation_id),
        )
        if check_flag("take_over", take_over) and generation is not None:
            raise BadArgument(
                "take_over is for operators, who give no generation; the holder has nothing to "
                "take over"
            )
        by = self.operator(session_id=session_id) if generation is None else self.caller(session_id)
        refused, content = yield Read(lambda: self._adoptable(key, refused_id))
        command = c.AdoptResult(
            key,
            by,
            refused_id,
            None if generation is None else check_generation(generation),
            content,
            refused.work_product_ref,
            refused.generation,
            refused.session,
            operation,
            take_over,
        )
        result: SubmissionResult = yield from self.ask_one(command)
        if content.payload:
            yield from self.tidied(command)
        return result

    def discard_result(
        self,
        *,
        task_id: str,
        refused_id: str,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[None]:
        """Discard a refused result: its data is deleted, its record stays."""
        key = self.task_key(tenant_id, project_id, task_id)
        yield Read(lambda: self._read_refused(key, refused_id))
        refused: RefusedRecord = yield from self.ask_one(
            c.DiscardRefused(key.beside(REFUSED, refused_id), self.operator())
        )
        if refused.payload:
            yield Read(lambda: payloads.drop_discarded(self.store, key, refused))

    def get_policy(
        self, *, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[Settings]:
        """The project's policy and tracks, and its tenant's limits."""
        place = self.place(tenant_id, project_id)

        def read() -> Settings:
            policy, limits, project, tenant = self.reader.settings(place)
            own = project.tracks if project is not None else None
            tracks = STANDARD_TRACKS if own is None else own
            every = {name: getattr(policy, name) for name in policy.__struct_fields__}
            each = {name: getattr(limits, name) for name in limits.__struct_fields__}
            roles = project.agent_roles if project else None
            return Settings(
                every,
                each,
                tenant.profile if tenant else self.engine.profile,
                dict(tracks),
                {} if roles is None else as_document(roles),
                own is not None,
            )

        settings: Settings = yield Read(read)
        return settings

    def set_policy(
        self,
        *,
        policy: Mapping[str, Any] | None = None,
        tracks: Mapping[str, str] | None = None,
        agent_roles: Mapping[str, Any] | None = None,
        profile: str | None = None,
        limits: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Settings]:
        """Change some keys of the project's policy, its tracks, its table of roles, or its tenant's
        profile and limits. `agent_roles` is the whole table, as `agent_roles.yml` has it."""
        roles = None if agent_roles is None else check_agent_roles(agent_roles)
        place = self.place(tenant_id, project_id)
        if tracks is not None:
            tracks = {
                check_track(track): check_text("purpose", purpose)
                for track, purpose in check_mapping("tracks", tracks).items()
            }
        policy = None if policy is None else dict(check_mapping("policy", policy))
        limits = None if limits is None else dict(check_mapping("limits", limits))
        profile = None if profile is None else check_profile(profile)
        # Both changes are checked before either is written, because they affect two records.
        in_force = yield Read(lambda: self.reader.settings(place))
        change_policy(in_force[0], policy or {})
        change_limits(in_force[1] if profile is None else PROFILES[profile], limits or {})
        yield from self.ensure_place(place)
        if policy or tracks is not None or roles is not None:
            command = c.ChangeProject(
                project_key(*place),
                self.operator(),
                dict(policy) if policy else None,
                dict(tracks) if tracks is not None else None,
                roles,
            )
            after: Policy = yield from self.ask_one(command)
            if policy and "order" in policy:
                # Also if the order is unchanged: the call that set it may have failed before the
                # last task.
                yield from self._reorder(place, after)
        if profile is not None or limits:
            yield from self.ask_one(
                c.ChangeTenant(
                    tenant_key(place[0]),
                    self.operator(),
                    self.engine.profile,
                    profile,
                    dict(limits) if limits else None,
                )
            )
        return (yield from self.get_policy(tenant_id=place[0], project_id=place[1]))

    def sweep(
        self, *, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[SweepResult]:
        """Record what is due, find lost holders, repeat reactions that a crash cut off, and drop
        data past its retention."""
        place = self.place(tenant_id, project_id)
        job = yield Ask([Sweep(project_key(*place))], patience=120)
        swept: SweepResult = job.only()
        purged: int = yield Read(
            lambda: purge_old(self.store, place, self.reader.settings(place)[1])
        )
        return msgspec.structs.replace(swept, purged=purged)

    # Implementation

    def _act(self, command: c.Command) -> Script[OperatorResult]:
        result: OperatorResult = yield from self.ask_one(command)
        return result

    def _reorder(self, place: tuple[str, str], policy: Policy) -> Script[None]:
        """Gives every task its place in the new order. After a failure, finished changes stay, and
        a repeated call continues. Tasks added meanwhile have the new order already."""
        keys: list[Key] = yield Read(
            lambda: [Key(*place, TASK, name) for name in self.reader.task_ids(place)]
        )
        yield from in_turn(
            (c.ReorderTask(key, self.operator(), policy.order) for key in keys), len(keys)
        )

    def _completed_dependents(self, key: Key, operation: str = "") -> list[Key]:
        """Returns the completed tasks that depend on this one, directly or through others: its
        dependents and its parent.

        Includes tasks that this same operation has reset before its answer was lost, so that the
        repeated answer lists them. Excludes tasks that were completed only after the operation
        began.

        The search continues through tasks that are open again: a reset without `cascade` left their
        dependents completed. It stops at cancelled tasks, which will not be done again."""
        completed: list[Key] = []
        seen = {key}
        todo = [(key, self.reader.task(key))]
        begun = self._when_reset_by(*todo[0], operation)
        while todo:
            for other, record in self._resting_on(*todo.pop()):
                if record.state is not Status.CANCELLED and other not in seen:
                    seen.add(other)
                    todo.append((other, record))
                    if _is_completed(record, begun) or self._was_reset_by(record, operation):
                        completed.append(other)
        return completed

    def _resting_on(self, key: Key, task: TaskRecord) -> Iterator[tuple[Key, TaskRecord]]:
        """Yields the tasks that depend on this one, and its parent."""
        # Whether it counts as met for a dependent depends on its current state.
        query = Query(*key.place, waits_on=(MET + key.id, key.id))
        for record in self.reader.find_tasks(query):
            yield key.beside(TASK, record.task.id), record
        if task.task.parent is not None:
            above = self.reader.tasks(key.place, [task.task.parent])
            yield from ((key.beside(TASK, name), record) for name, record in above.items())

    def _was_reset_by(self, record: TaskRecord, operation: str) -> bool:
        act = record.remembered(operation, self.identity.session_id or "")
        return act is not None and act.what == TaskReset.__struct_config__.tag

    def _when_reset_by(self, key: Key, record: TaskRecord, operation: str) -> datetime | None:
        """Returns when this operation reset the task; None if it did not, or if the event has been
        purged."""
        if not self._was_reset_by(record, operation):
            return None
        whose = (operation, self.identity.session_id or "")
        found = None
        for event in self.reader.history(key):
            if isinstance(event, TaskReset) and (event.operation, event.session_id) == whose:
                found = event.timestamp
        return found

    def _adoptable(self, key: Key, refused_id: str) -> tuple[RefusedRecord, c.Content]:
        """Returns a refused result, and its content for the task: a copy, so that dropping one does
        not lose the other."""
        while True:
            refused = self._read_refused(key, refused_id)
            if refused.state is RefusedState.DISCARDED:
                raise NotAllowed(f"refused result {refused_id!r} was discarded")
            content = payloads.owned(
                c.Content(
                    refused.digest,
                    refused.size,
                    refused.data,
                    refused.payload,
                    reference=refused.reference,
                    manifest=refused.manifest,
                )
            )
            if not content.payload:
                return refused, content
            try:
                with self.store.payloads().open(
                    payload_key(key, refused.payload_id), refused.digest
                ) as file:
                    data = file.read()
            except ResultNotFound:
                if self._read_refused(key, refused_id) == refused:
                    raise
                # The result has just been discarded, and perhaps submitted again.
                continue
            payloads.put(self.store, key, content, data)
            return refused, content

    def _read_refused(self, key: Key, refused_id: str) -> RefusedRecord:
        refused_id = check_text("refused_id", refused_id, LONGEST_REFERENCE)
        record = self.reader.records([key.beside(REFUSED, refused_id)]).get(
            key.beside(REFUSED, refused_id)
        )
        if not isinstance(record, RefusedRecord) or record.task != key.id:
            raise ResultNotFound(
                f"task {key.id!r} has no refused result {refused_id!r}; the list of refused "
                "results has those there are"
            )
        return record


def _is_completed(record: TaskRecord, before: datetime | None) -> bool:
    """Is it completed, and was it already completed at that time?"""
    if record.state is not Status.COMPLETED:
        return False
    return before is None or record.result is None or record.result.submitted_at <= before


def _is_done(outcome: Any) -> bool:
    return isinstance(outcome, OperatorResult) and outcome.verdict is Verdict.DONE
