"""Operations of workers: claim, renew, submit, release; one by one or in batches. Splitting a task
is in `spawn_ops`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from genlock.coordinator import payloads
from genlock.coordinator.arguments import (
    LEASE_SECONDS,
    LONGEST_NOTE,
    LONGEST_PATH,
    LONGEST_REFERENCE,
    MOST_WAIT_SECONDS,
    check_cost,
    check_evaluations,
    check_generation,
    check_items,
    check_lease,
    check_mapping,
    check_number,
    check_operation,
    check_products,
    check_role,
    check_text,
    check_tracks,
    one_generation,
    pack,
    pack_with_products,
    plain,
)
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Ask, Read, Script
from genlock.core import commands as c
from genlock.core.durations import Seconds, read_seconds
from genlock.core.keys import Scope, project_key
from genlock.core.model import NO_AGENT
from genlock.core.reasons import ClaimReason, ReleaseReason
from genlock.core.results import (
    ClaimResult,
    ProgressResult,
    ReleaseResult,
    RenewalResult,
    SubmissionResult,
)
from genlock.core.task.claims import check_result_size
from genlock.engine.jobs import Job, NextTask
from genlock.errors import BadArgument, GenlockError, ResultTooLarge, TaskNotFound
from genlock.messages import describe_unfinished
from genlock.reads import claims
from genlock.reads.unfinished import FRESH_SECONDS, WAITED_SECONDS

RELEASES = (ReleaseReason.VOLUNTARY, ReleaseReason.ERROR)
_FAILED: Final = frozenset({"error", "failed"})
"""Release reasons that the circuit breaker counts, alone or before a colon."""


class Working(Base):
    """Operations of workers."""

    def claim_task(
        self,
        *,
        task_id: str,
        agent_id: str | None = None,
        session_id: str | None = None,
        lease_duration_seconds: Seconds = LEASE_SECONDS,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
        agent_role: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> Script[ClaimResult]:
        """Ask for the right to work on a task. A grant carries the generation that every later
        write must show."""
        key = self.task_key(tenant_id, project_id, task_id)
        command = c.ClaimTask(
            key,
            (yield from self.claimant(key.place, session_id, agent_id)),
            check_lease(lease_duration_seconds),
            check_operation(operation_id) if operation_id is not None else "",
            check_role(agent_role) if agent_role != "" else "",
            plain(metadata) if metadata is not None else {},
        )
        job = yield Ask((command,))
        outcome = job.results[0]
        if isinstance(outcome, GenlockError):
            raise outcome
        result: ClaimResult = outcome
        return result

    def renew_lease(
        self,
        *,
        task_id: str,
        generation: int | None = None,
        expected_generation: int | None = None,
        session_id: str | None = None,
        lease_duration_seconds: Seconds | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[RenewalResult]:
        """Start the lease again, with its own length or another within the tenant's limits.

        `expected_generation` is GC's name for `generation`."""
        lease = None if lease_duration_seconds is None else check_lease(lease_duration_seconds)
        generation = one_generation(generation, expected_generation)
        key = self.task_key(tenant_id, project_id, task_id)
        result: RenewalResult = yield from self.ask_one(
            c.RenewLease(key, self.caller(session_id), generation, lease)
        )
        return result

    def report_progress(
        self,
        *,
        task_id: str,
        generation: int,
        fraction: float | None = None,
        note: str = "",
        cost: Mapping[str, float] | None = None,
        worktree_path: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[ProgressResult]:
        """Report progress, findings, the cost so far, or where the work is done. It does not renew
        the lease.

        `fraction` is from 0 to 1. `cost` is by unit, as {"usd": 0.12}, and counts from the
        beginning of this generation. `worktree_path` is where this generation works; "" if that
        folder is gone.
        """
        command = c.ReportProgress(
            self.task_key(tenant_id, project_id, task_id),
            self.caller(session_id, agent_id),
            check_generation(generation),
            None if fraction is None else check_number("fraction", fraction, 0, 1),
            check_text("note", note, LONGEST_NOTE),
            check_cost(cost),
            None
            if worktree_path is None
            else check_text("worktree_path", worktree_path, LONGEST_PATH),
        )
        result: ProgressResult = yield from self.ask_one(command)
        return result

    def release_claim(
        self,
        *,
        task_id: str,
        generation: int | None = None,
        expected_generation: int | None = None,
        session_id: str | None = None,
        reason: str = "VOLUNTARY",
        note: str = "",
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[ReleaseResult]:
        """Give the claim back. The `note` is for the next holder.

        The reason is VOLUNTARY, ERROR if the work failed (the circuit breaker counts those), or any
        text, which is kept beside one of these two: "ERROR: no compiler" is an ERROR.
        `expected_generation` is GC's name for `generation`."""
        kind, stated = _release_reason(reason)
        generation = one_generation(generation, expected_generation)
        key = self.task_key(tenant_id, project_id, task_id)
        command = c.ReleaseClaim(
            key,
            self.caller(session_id),
            generation,
            kind,
            check_operation(operation_id),
            check_text("note", note, LONGEST_NOTE),
            stated,
        )
        result: ReleaseResult = yield from self.ask_one(command)
        return result

    def submit_result(
        self,
        *,
        task_id: str,
        generation: int,
        result_data: Any = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        work_product_ref: str = "",
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
        evaluations: Mapping[str, bool] | None = None,
        products: Sequence[Mapping[str, Any]] | None = None,
    ) -> Script[SubmissionResult]:
        """Hand in the result. It counts if the generation is still the highest, or waits for a
        review; if not, it is refused and kept.

        `work_product_ref` says where the work itself is: a commit, a file, an address. It is shown
        as the result's `reference`, beside the generated name.

        `evaluations` says by name which evaluators of the task's edge have passed. `products` lists
        the drafts that belong to the result, each with path, sha256 and size: an acceptance
        promotes exactly these."""
        command, data = self._submission(
            tenant_id,
            project_id,
            task_id,
            generation,
            result_data,
            session_id,
            agent_id,
            work_product_ref,
            operation_id,
            evaluations,
            products,
        )
        command = yield from self._with_agent(command)
        if not command.content.payload:
            result: SubmissionResult = yield from self.ask_one(command)
            return result
        yield Read(lambda: self._store_payload(command, data))
        result = yield from self.ask_one(command)
        yield from self.tidied(command)
        return result

    def claim_next(
        self,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        lease_duration_seconds: Seconds | None = None,
        tracks: str | Collection[str] | None = None,
        wait_seconds: Seconds = 0,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
        agent_role: str = "",
    ) -> Script[ClaimResult]:
        """Claim whatever ready task comes first for this agent, waiting up to `wait_seconds` for
        one."""
        place = self.place(tenant_id, project_id)
        lease = None if lease_duration_seconds is None else check_lease(lease_duration_seconds)
        wait = read_seconds("wait_seconds", wait_seconds, 0, MOST_WAIT_SECONDS)
        request = NextTask(
            project_key(*place),
            (yield from self.claimant(place, session_id, agent_id)),
            lease,
            check_tracks(tracks),
            check_operation(operation_id),
            check_role(agent_role),
            time.monotonic() + wait if wait else 0,
        )
        job = yield Ask([request], patience=wait)
        result: ClaimResult = job.only()
        if result.reason is ClaimReason.NOTHING_READY:
            return (yield from self._nothing_ready(place, result, waited=bool(wait)))
        return result

    def _nothing_ready(
        self, place: Scope, result: ClaimResult, *, waited: bool
    ) -> Script[ClaimResult]:
        """The answer with the states of the project's unfinished tasks. It is right without them,
        so an error here is no error of the request."""
        counts = self.unfinished.kept(place, WAITED_SECONDS if waited else FRESH_SECONDS)
        if counts is None:
            try:
                counts = yield Read(lambda: self.unfinished.count(place))
            except GenlockError:
                return result
        detail = result.detail if result.limit else describe_unfinished(counts)
        return replace(result, detail=detail, unfinished=counts)

    def batch_claim(
        self,
        *,
        task_ids: Iterable[str],
        agent_id: str | None = None,
        session_id: str | None = None,
        lease_duration_seconds: Seconds = LEASE_SECONDS,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
        agent_role: str = "",
    ) -> Script[dict[str, ClaimResult | GenlockError]]:
        """Claim many tasks at once; each stands or falls alone. A task that does not exist has its
        error as its answer."""
        place = self.place(tenant_id, project_id)
        caller = yield from self.claimant(place, session_id, agent_id)
        lease, operation = check_lease(lease_duration_seconds), check_operation(operation_id)
        keys = list(
            dict.fromkeys(
                self.task_key(tenant_id, project_id, task_id)
                for task_id in check_items("task_ids", task_ids)
            )
        )
        role = check_role(agent_role)
        claims = [c.ClaimTask(key, caller, lease, operation, role) for key in keys]
        return (yield from self._each(claims))

    def batch_renew(
        self,
        *,
        generations: Mapping[str, int],
        session_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[dict[str, RenewalResult | GenlockError]]:
        """Renew many leases at once, given as {task id: generation}."""
        caller = self.caller(session_id)
        commands = [
            c.RenewLease(
                self.task_key(tenant_id, project_id, task_id), caller, check_generation(generation)
            )
            for task_id, generation in check_mapping("generations", generations).items()
        ]
        return (yield from self._each(commands))

    def batch_submit(
        self,
        *,
        results: Iterable[Mapping[str, Any]],
        session_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[dict[str, SubmissionResult | GenlockError]]:
        """Hand in many results at once, each a mapping with task_id, generation and result_data."""
        commands, large = [], []
        for entry in check_items("results", results):
            check_mapping("a result", entry)
            if (
                not _OF_A_RESULT.issuperset(entry)
                or "task_id" not in entry
                or "generation" not in entry
            ):
                unknown = sorted(map(repr, entry.keys() - _OF_A_RESULT))
                raise BadArgument(
                    "a result has task_id, generation and result_data; "
                    f"{unknown[0] if unknown else 'one of them'!r} is wrong or missing"
                )
            command, data = self._submission(
                tenant_id,
                project_id,
                entry["task_id"],
                entry["generation"],
                entry.get("result_data"),
                session_id,
                entry.get("agent_id"),
                entry.get("work_product_ref", ""),
                entry.get("operation_id"),
                entry.get("evaluations"),
                entry.get("products"),
            )
            command = yield from self._with_agent(command)
            if command.content.payload:
                large.append((command, data))
            commands.append(command)
        if large:
            _check_distinct(commands)
        for command, data in large:
            # Such a submission is refused below, without affecting the others.
            with contextlib.suppress(TaskNotFound, ResultTooLarge):
                yield Read(lambda command=command, data=data: self._store_payload(command, data))  # type: ignore[misc]
        answers = yield from self._each(commands)
        for command, _ in large:
            yield from self.tidied(command)
        return answers

    def _with_agent(self, command: c.SubmitResult) -> Script[c.SubmitResult]:
        """Fills in the agent from the claim if the caller named none: refused results name their
        agent too."""
        by, manifest = command.by, command.content.manifest
        if manifest is not None:
            yield Read(lambda: self._check_area(command.key.place))
        if by.agent:
            return command
        agent: str = yield Read(
            lambda: claims.claiming_agent(self.reader, command.key, by.session, command.generation)
        )
        if not agent:
            if manifest is not None:
                raise BadArgument(NO_AGENT)
            return command
        command = replace(command, by=replace(by, agent=agent))
        if manifest is None:
            return command
        manifest = replace(manifest, agent=agent)
        return replace(command, content=replace(command.content, manifest=manifest))

    def _check_area(self, place: tuple[str, str]) -> None:
        if not self.reader.settings(place).policy.products:
            raise BadArgument(
                f"project {place[1]!r} has no area for products, so there are no drafts to accept; "
                "name one, type: genlock policy set products=file:///folder"
            )

    def _submission(
        self,
        tenant_id: str | None,
        project_id: str | None,
        task_id: str,
        generation: int,
        result_data: Any,
        session_id: str | None,
        agent_id: str | None,
        work_product_ref: str,
        operation_id: str | None,
        evaluations: Mapping[str, bool] | None,
        products: Sequence[Mapping[str, Any]] | None,
    ) -> tuple[c.SubmitResult, bytes]:
        content, data = pack(result_data)
        caller, generation = self.caller(session_id, agent_id), check_generation(generation)
        manifest = check_products(products, caller.agent, generation)
        if manifest is not None:
            content = pack_with_products(content, data, manifest)
        content = payloads.owned(content)
        if work_product_ref != "":
            reference = check_text("work_product_ref", work_product_ref, LONGEST_REFERENCE)
            content = replace(content, reference=reference)
        command = c.SubmitResult(
            self.task_key(tenant_id, project_id, task_id),
            caller,
            generation,
            content,
            check_operation(operation_id) if operation_id is not None else "",
            check_evaluations(evaluations) if evaluations is not None else {},
        )
        return command, data

    def _store_payload(self, command: c.SubmitResult, data: bytes) -> None:
        """Stores a large result, durable before the submission is decided.

        A result that will be refused and not kept, because it is too large or its task does not
        exist, is not stored."""
        self.reader.task(command.key)
        check_result_size(command.content.size, self.reader.settings(command.key.place).limits)
        payloads.put(self.store, command.key, command.content, data)

    def _each(self, commands: Sequence[c.Command]) -> Script[dict[str, Any]]:
        if not commands:
            return {}
        _check_distinct(commands)
        job: Job = yield Ask(commands)
        return {
            command.key.id: outcome for command, outcome in zip(commands, job.results, strict=True)
        }


_OF_A_RESULT: Final = frozenset(
    {
        "task_id",
        "generation",
        "result_data",
        "work_product_ref",
        "operation_id",
        "agent_id",
        "evaluations",
        "products",
    }
)


def _release_reason(reason: str) -> tuple[ReleaseReason, str]:
    """Returns the kind of a release, and the caller's own text if it says more."""
    text = check_text("reason", reason, LONGEST_NOTE) or ReleaseReason.VOLUNTARY
    if text in RELEASES:
        return ReleaseReason(text), ""
    kind = text.partition(":")[0].strip().lower()
    if kind == "completed":
        raise BadArgument(
            f"reason of a release is VOLUNTARY, ERROR or a text of yours, not {reason!r}; to "
            "complete a task, submit its result"
        )
    failed = kind in _FAILED
    return (ReleaseReason.ERROR if failed else ReleaseReason.VOLUNTARY), text


def _check_distinct(commands: Sequence[c.Command]) -> None:
    """Checks that no task occurs twice: answers are keyed by task, so the caller would see only the
    last of two."""
    if len({command.key.id for command in commands}) == len(commands):
        return
    seen: set[str] = set()
    for command in commands:
        if command.key.id in seen:
            raise BadArgument(
                f"task {command.key.id!r} is there twice; a batch takes each task once"
            )
        seen.add(command.key.id)
