"""The coordinator calls of each tool, and its answer.

A script is a generator: it yields calls and is sent their results. So the same script runs in a
thread on a coordinator and in the service with a key's permissions, and tests run it without
either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeAlias

import msgspec

from genlock.core.overview import find_outlook
from genlock.core.policy import agent_for
from genlock.core.reasons import ClaimState
from genlock.core.results import ClaimResult, SubmissionResult, TaskClaim, TaskState
from genlock.errors import BadArgument, GenlockError, TaskNotFound
from genlock.mcp import texts, tools
from genlock.mcp.answer import Answer, Caller, Script
from genlock.mcp.protocol import Plan, Task
from genlock.wire import operations as op

Perform: TypeAlias = Callable[[op.Call[Any]], Any]
PerformAsync: TypeAlias = Callable[[op.Call[Any]], Awaitable[Any]]

NEXT: Final = "next"
_LISTED: Final = 100
"""How many tasks are requested at once. Fewer are shown if they do not fit."""


def script(asked: tools.Tool | Plan | Task, caller: Caller) -> Script:
    """Returns the script of a tool or a resource."""
    return _SCRIPTS[type(asked)](asked, caller)


def run(asked: tools.Tool | Plan | Task, caller: Caller, perform: Perform) -> Answer:
    """Returns the answer of a tool or a resource. `perform` runs each call in this thread."""
    running = script(asked, caller)
    try:
        call = next(running)
        while True:
            try:
                result = perform(call)
            except GenlockError as error:
                call = running.throw(error)  # the script may handle the error
            else:
                call = running.send(result)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    except GenlockError as error:
        return error_answer(error)


async def run_async(
    asked: tools.Tool | Plan | Task, caller: Caller, perform: PerformAsync
) -> Answer:
    """The same in an event loop."""
    running = script(asked, caller)
    try:
        call = next(running)
        while True:
            try:
                result = await perform(call)
            except GenlockError as error:
                call = running.throw(error)
            else:
                call = running.send(result)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    except GenlockError as error:
        return error_answer(error)


def error_answer(error: GenlockError) -> Answer:
    """Returns an operation's error as an answer."""
    text = texts.bounded(f"{error.code}: {error}")
    return Answer(text, is_error=True, facts={"reason": error.code})


def keywords(call: op.Call[Any]) -> dict[str, Any]:
    """Returns a call's keywords for the coordinator's method of the same name."""
    return {name: getattr(call, name) for name in call.__struct_fields__}


# Claims


def _claim(asked: tools.Claim, caller: Caller) -> Script:
    agent = asked.agent or caller.agent
    if not asked.agent and not caller.named:
        settings = yield op.GetPolicy()
        agent = agent_for(settings.policy, agent)
    if asked.task == NEXT:
        return (yield from _claim_next(asked, agent, caller))
    result: ClaimResult = yield op.ClaimTask(
        task_id=asked.task, session_id=_session(caller), agent_id=agent, agent_role=caller.role
    )
    if result.claim is None:
        return _refused(result.reason, texts.denial(result))
    if result.already_held:
        return _already_held([result.claim])
    return (yield from _granted(result, caller))


def _claim_next(asked: tools.Claim, agent: str, caller: Caller) -> Script:
    """Claims the next task. A caller that already holds a task is told so and gets no other.
    Otherwise a call repeated after a lost answer would leave behind a claim that this server renews
    although nobody works under it."""
    held: tuple[TaskClaim, ...] = yield op.GetActiveClaimsForSession(session_id=_session(caller))
    own = [
        claim
        for claim in held
        if (claim.project_id, claim.agent_id) == (caller.project, agent)
        and claim.state is ClaimState.ACTIVE
    ]
    if own:
        return _already_held(own)
    result: ClaimResult = yield op.ClaimNext(
        session_id=_session(caller),
        agent_id=agent,
        tracks=asked.track,
        wait_seconds=asked.wait_seconds,
        agent_role=caller.role,
    )
    if result.claim is not None:
        return (yield from _granted(result, caller))
    return (yield from _nothing_ready(asked.track))


def _granted(result: ClaimResult, caller: Caller) -> Script:
    claim = result.claim
    assert claim is not None
    earlier = None
    if claim.generation > 1:
        earlier = yield op.GetLineage(task_id=claim.task_id)
    facts = {
        "reason": "GRANTED",
        "task": claim.task_id,
        "generation": claim.generation,
        "expires_at": claim.expires_at,
    }
    text = texts.granted(result, claim, earlier, renewed=caller.renewed)
    return Answer(text, facts=facts)


def _already_held(held: list[TaskClaim]) -> Answer:
    first = held[0]
    return Answer(
        texts.already_held(held),
        is_error=True,
        facts={
            "reason": "ALREADY_HELD",
            "task": first.task_id,
            "generation": first.generation,
        },
    )


def _nothing_ready(track: str | None) -> Script:
    """Answers whether to wait, to stop or to call a person. While other agents are working, that is
    known without reading the whole plan."""
    tracks = () if track is None else (track,)
    at_work = 0
    if not tracks:
        agents = yield op.ListAgents()
        at_work = sum(len(agent.tasks) for agent in agents)
    outlook = None
    if not at_work:
        graph = yield op.GetGraph()
        outlook = find_outlook(graph, tracks)
    standing = "at_work" if outlook is None else outlook.standing.value
    facts = {"reason": "NOTHING_READY", "standing": standing}
    return Answer(texts.nothing_ready(standing, at_work, outlook, track), facts=facts)


def _submit(asked: tools.Submit, caller: Caller) -> Script:
    result: SubmissionResult = yield op.SubmitResult(
        task_id=asked.task,
        generation=asked.generation,
        result_data=asked.result,
        session_id=_session(caller),
        agent_id=caller.agents.get((asked.task, asked.generation)),
        work_product_ref=asked.reference,
        operation_id=_operation(asked),
    )
    if result.accepted:
        facts = {"reason": result.reason, "work_product_ref": result.work_product_ref}
        return Answer(texts.accepted(asked.task, result), facts=facts)
    return _refused(result.reason, texts.refused_submission(asked.task, asked.generation, result))


def _release(asked: tools.Release, caller: Caller) -> Script:
    result = yield op.ReleaseClaim(
        task_id=asked.task,
        generation=asked.generation,
        session_id=_session(caller),
        reason="ERROR" if asked.failed else "VOLUNTARY",
        note=asked.note,
        operation_id=_operation(asked),
    )
    if result.success:
        return Answer(texts.released(asked.task), facts={"reason": "RELEASED"})
    return _refused(result.reason, texts.refused(asked.task, asked.generation, result))


def _progress(asked: tools.Progress, caller: Caller) -> Script:
    result = yield op.RenewLease(
        task_id=asked.task,
        generation=asked.generation,
        session_id=_session(caller),
    )
    if result.success and (asked.note or asked.fraction is not None):
        reported = yield op.ReportProgress(
            task_id=asked.task,
            generation=asked.generation,
            fraction=asked.fraction,
            note=asked.note,
            session_id=_session(caller),
        )
        if not reported.success:
            result = reported
    if result.success:
        facts = {"reason": "RENEWED", "expires_at": result.new_expiry}
        return Answer(texts.renewed(asked.task, result), facts=facts)
    return _refused(result.reason, texts.refused(asked.task, asked.generation, result))


def _spawn(asked: tools.Spawn, caller: Caller) -> Script:
    result = yield op.SpawnSubtasks(
        task_id=asked.task,
        generation=asked.generation,
        subtasks=[
            part if isinstance(part, str) else msgspec.to_builtins(part) for part in asked.subtasks
        ],
        mode=asked.mode,
        session_id=_session(caller),
        agent_id=caller.agents.get((asked.task, asked.generation)),
        operation_id=_operation(asked),
    )
    if result.success:
        facts = {"reason": "ACCEPTED", "children": result.children}
        return Answer(texts.spawned(asked.task, asked.mode, result.children), facts=facts)
    return _refused(result.reason, texts.refused_submission(asked.task, asked.generation, result))


def _add(asked: tools.Add, caller: Caller) -> Script:
    (result,) = yield op.AddTasks(tasks=[msgspec.to_builtins(asked)])
    facts = {"reason": result.verdict, "state": result.state}
    return Answer(texts.added(result), facts=facts)


# Reads


def _show(asked: tools.Show, caller: Caller) -> Script:
    text = yield from _task(asked.task)
    return Answer(texts.page(text, asked.offset, f"show(task={asked.task!r}, offset=…)"))


def _task(task_id: str) -> Generator[op.Call[Any], Any, str]:
    state: TaskState = yield op.GetTaskState(task_id=task_id)
    earlier = None
    if state.generation:
        earlier = yield op.GetLineage(task_id=task_id)
    data = None
    if state.result is not None:
        data = state.result.result_data
    return texts.task(state, earlier, data)


def _list(asked: tools.List, caller: Caller) -> Script:
    match asked.what:
        case "mine":
            claims = yield op.GetActiveClaimsForSession(session_id=_session(caller))
            here = [claim for claim in claims if claim.project_id == caller.project]
            return Answer(texts.own_claims(here))
        case "working":
            return Answer(texts.working((yield op.ListAgents())))
        case "blocked":
            found = yield op.Blocked(limit=_LISTED, after=asked.after)
            return Answer(texts.blocked(found, is_cut=len(found) == _LISTED))
        case _:
            found = yield op.Ready(limit=_LISTED, tracks=asked.track)
            if not found:
                return (yield from _nothing_ready(asked.track))
            return Answer(texts.ready(found, is_cut=len(found) == _LISTED))


def _show_plan(asked: Plan, caller: Caller) -> Script:
    progress = yield op.TrackProgress()
    agents = yield op.ListAgents()
    ready = yield op.Ready(limit=_LISTED)
    blocked = yield op.Blocked(limit=_LISTED)
    return Answer(texts.plan(progress, agents, ready, blocked))


def _show_task(asked: Task, caller: Caller) -> Script:
    try:
        text = yield from _task(asked.id)
    except TaskNotFound as error:
        return Answer(str(error), is_error=True)
    return Answer(texts.page(text, 0, f"the tool show with task={asked.id!r} and an offset"))


_SCRIPTS: Final[dict[type, Callable[[Any, Caller], Script]]] = {
    tools.Claim: _claim,
    tools.Submit: _submit,
    tools.Release: _release,
    tools.Progress: _progress,
    tools.Spawn: _spawn,
    tools.Add: _add,
    tools.Show: _show,
    tools.List: _list,
    Plan: _show_plan,
    Task: _show_task,
}


def _session(caller: Caller) -> str:
    if caller.session is None:
        raise BadArgument(
            "it is not known which agent calls. Send the header genlock-session with a name that "
            "stays the same for this agent and is nobody else's, or use a key of this agent alone"
        )
    return caller.session


def _refused(reason: object, text: str) -> Answer:
    return Answer(text, is_error=True, facts={"reason": str(reason)})


def _operation(asked: tools.Tool) -> str:
    """Returns the operation id. A repeated call is the same operation, and so gets the same
    answer."""
    said = msgspec.json.encode(asked, order="sorted")
    return f"mcp-{asked.name}-{hashlib.blake2b(said, digest_size=12).hexdigest()}"
