"""One act of an operator on many tasks: on all that match a filter, or on some by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from genlock.coordinator.arguments import (
    check_filter,
    check_flag,
    check_items,
    check_limit,
    check_operation,
    check_text,
)
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Ask, Read, Script
from genlock.core import commands as c
from genlock.core.dashboard import ActOutcome, ActsResult
from genlock.core.decision import Decision
from genlock.core.fields import describe_value
from genlock.core.keys import TASK, Key
from genlock.core.reasons import Verdict
from genlock.core.results import OperatorResult
from genlock.engine.jobs import plain_item
from genlock.errors import BadArgument, GenlockError, NotAllowed

if TYPE_CHECKING:
    from genlock.reads.task_rows import TaskFilter

_AT_ONCE: Final = 500

Make = Callable[[Key, c.Caller, str, str, bool], c.Command]

_ACTS: Final[dict[str, Make]] = {
    "release": lambda key, by, _, operation, take_over: c.ForceRelease(
        key, by, operation, take_over
    ),
    "hold": lambda key, by, reason, operation, _: c.HoldTask(key, by, reason, operation),
    "reopen": lambda key, by, _, operation, __: c.ReopenTask(key, by, operation),
    "reset": lambda key, by, _, operation, take_over: c.ResetTask(
        key, by, operation, take_over=take_over
    ),
    "cancel": lambda key, by, reason, operation, take_over: c.CancelTask(
        key, by, reason, operation, take_over
    ),
}
ACTS: Final = tuple(_ACTS)


class BulkActs(Base):
    """Operators' acts on many tasks. Each task is decided by itself, as if it were the only one."""

    def batch_act(
        self,
        *,
        act: str,
        task_ids: Collection[str] | None = None,
        states: str | Collection[str] | None = None,
        tracks: str | Collection[str] | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        tag: str | None = None,
        text: str = "",
        reason: str = "",
        take_over: bool = False,
        dry_run: bool = True,
        limit: int = 1000,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[ActsResult]:
        """Release, hold, reopen, reset or cancel every task that matches the filter; of `task_ids`,
        if they are given, those that match.

        Unless `dry_run` is False nothing is done, and the answer says what would happen to each
        task now. A live claim is revoked only with `take_over`. If more tasks match than `limit`,
        nothing is done at all."""
        scope, limit = self.place(tenant_id, project_id), check_limit(limit)
        make, check_only = _check_act(act), check_flag("dry_run", dry_run)
        named = None
        if task_ids is not None:
            given = check_items("task_ids", task_ids)
            named = [self.task_key(tenant_id, project_id, name).id for name in given]
        wanted = check_filter(states, tracks, agent_id, session_id, tag, text)
        if named is None and wanted == type(wanted)():
            raise BadArgument(
                "give task_ids, or a filter (states, tracks, agent_id, session_id, tag or text): "
                "an act on every task of a project is not meant"
            )
        reason, operation = check_text("reason", reason), check_operation(operation_id)
        take_over = check_flag("take_over", take_over)
        names, others = yield Read(lambda: self._matching(scope, wanted, named))
        if len(names) > limit and not check_only:
            raise NotAllowed(
                f"{len(names):,} tasks match, more than the limit of {limit:,}: nothing was done. "
                "Narrow the filter, or raise the limit"
            )
        commands = [
            make(Key(*scope, TASK, name), self.operator(), reason, operation, take_over)
            for name in names[:limit]
        ]
        outcomes: list[ActOutcome] = []
        for start in range(0, len(commands), _AT_ONCE):
            chunk = commands[start : start + _AT_ONCE]
            if check_only:
                answers = yield Read(partial(self._tried, chunk))
            else:
                answers = (yield Ask(chunk)).results
            outcomes += map(_outcome, chunk, answers)
        done = Counter(outcome.verdict for outcome in outcomes)
        return ActsResult(
            act=act,
            dry_run=check_only,
            matched=len(names),
            done=done[Verdict.DONE],
            unchanged=done[Verdict.UNCHANGED],
            refused=done[None],
            outcomes=tuple(outcomes),
            others=tuple(others),
        )

    def _matching(
        self, scope: tuple[str, str], wanted: TaskFilter, named: list[str] | None
    ) -> tuple[list[str], list[str]]:
        """Returns the tasks to act on, in the order of their ids or as they were named, and the
        named tasks that do not match."""
        from genlock.reads.project_view import views_of
        from genlock.reads.task_rows import matching_tasks

        with views_of(self.engine).of(scope).current(self.reader) as view:
            matching = matching_tasks(view, wanted)
        if named is None:
            return sorted(matching), []
        named = list(dict.fromkeys(named))
        return (
            [name for name in named if name in matching],
            [name for name in named if name not in matching],
        )

    def _tried(self, commands: list[c.Command]) -> list[Any]:
        """Returns the answers that the commands would get now; nothing is committed."""
        trial = self.reader.trial()
        items = [plain_item(command) for command in commands]
        trial.prepare(items)
        answers: list[Any] = []
        for item in items:
            decided = trial.decide(item)
            answers.append(decided.outcome if isinstance(decided, Decision) else decided)
        return answers


def _check_act(act: Any) -> Make:
    if not isinstance(act, str) or act not in _ACTS:
        raise BadArgument(f"act is one of {', '.join(ACTS)}, not {describe_value(act)!s:.60}")
    return _ACTS[act]


def _outcome(command: c.Command, answer: Any) -> ActOutcome:
    task = command.key.id
    if isinstance(answer, OperatorResult):
        return ActOutcome(
            task_id=task,
            verdict=answer.verdict,
            state=answer.state,
            generation=answer.generation,
            superseded=answer.superseded,
        )
    error = answer if isinstance(answer, GenlockError) else GenlockError("it was not decided")
    return ActOutcome(task_id=task, error=error.code, why=str(error))
