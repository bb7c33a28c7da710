"""The verbs of scenarios: what each does with a coordinator, and its outcome in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from genlock.core.results import ClaimHistory, ClaimResult, OperatorResult, SubmissionResult, TaskResult
from genlock.errors import GenlockError
from genlock.store import Store
from genlock.testing.clock import ManualClock
from genlock.testing.script_words import Arguments, ScriptError, Verb

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_FRESH = re.compile(r"(wp-\S+?-gen\d+)-[0-9a-f]{6}\b")


class Player:
    """The language: every method `do_<verb>` is a verb, its docstring says how it is written."""

    def __init__(self, coordinator: Any, clock: ManualClock, store: Store | None) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._store = store
        self._begin = clock.now()
        self.reasons: set[tuple[str, str]] = set()

    def verbs(self) -> dict[str, Verb]:
        """All verbs by name."""
        return {name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")}

    # Time

    def move_to(self, seconds: float) -> None:
        """So many seconds after the beginning, before or after the present."""
        self._clock.advance(seconds - (self._clock.now() - self._begin).total_seconds())

    def instant(self, seconds: float) -> datetime:
        return self._begin + timedelta(seconds=seconds)

    def time(self, instant: datetime) -> str:
        seconds = (instant - self._begin).total_seconds()
        return str(int(seconds)) if seconds.is_integer() else str(seconds)

    def plain(self, outcome: str) -> str:
        """Instants as the script's seconds, and what is made up anew every time as dots."""
        outcome = _INSTANT.sub(lambda found: f"T={self.time(datetime.fromisoformat(found[0]))}", outcome)
        return _FRESH.sub(r"\1-...", outcome)

    # Workers

    def do_claim(self, line: Arguments) -> str:
        """claim TASK agent/session [lease=] [role=] [metadata=JSON] [operation=]"""
        task_id = line.word("the task")
        keywords = line.renamed(lease_duration_seconds="lease", agent_role="role", metadata="metadata", operation_id="operation")
        return self._claimed(self._coordinator.claim_task(task_id=task_id, **line.who(), **keywords))

    def do_batch_claim(self, line: Arguments) -> str:
        """batch_claim TASK,TASK agent/session [lease=]"""
        task_ids = line.word("the tasks").split(",")
        keywords = line.renamed(lease_duration_seconds="lease")
        answers = self._coordinator.batch_claim(task_ids=task_ids, **line.who(), **keywords)
        return " | ".join(
            f"{task} {f'error {answer.code}' if isinstance(answer, GenlockError) else self._claimed(answer)}"
            for task, answer in answers.items()
        )

    def do_next(self, line: Arguments) -> str:
        """next agent/session [tracks=A,B] [lease=] [operation=]"""
        tracks = line.names("tracks")
        keywords = line.renamed(lease_duration_seconds="lease", operation_id="operation")
        answer: ClaimResult = self._coordinator.claim_next(**line.who(), tracks=tracks, **keywords)
        return self._claimed(answer, name=True)

    def _claimed(self, answer: ClaimResult, *, name: bool = False) -> str:
        self._note(answer.reason)
        if answer.claim is not None:
            words = ["granted", *([answer.claim.task_id] if name else []), f"generation={answer.claim.generation}"]
        else:
            words = ["denied", answer.reason.value]
        if answer.holder is not None:
            words += [f"holder={answer.holder.agent}/{answer.holder.session}", f"until={self.time(answer.holder.expires_at)}"]
        words += _listed("waits_for", answer.waits_for)
        if answer.limit is not None:
            words.append(f"limit={answer.limit}")
        words += _listed("inputs_changed", answer.inputs_changed)
        # What the detail of a limit says is its name and its figure again.
        if answer.detail and answer.limit is None and not name:
            words.append(f"({answer.detail})")
        return " ".join(words)

    def do_renew(self, line: Arguments) -> str:
        """renew TASK agent/session generation= [lease=]"""
        task_id, session = line.word("the task"), line.who()["session_id"]
        keywords = line.renamed(expected_generation="generation", lease_duration_seconds="lease")
        answer = self._coordinator.renew_lease(task_id=task_id, session_id=session, **keywords)
        self._note(answer.reason)
        if not answer.success:
            return f"refused {answer.reason.value} current={answer.generation}"
        return " ".join([f"renewed until={self.time(answer.new_expiry)}", *_listed("inputs_changed", answer.inputs_changed)])

    def do_release(self, line: Arguments) -> str:
        """release TASK agent/session generation= [reason=ERROR] [operation=]"""
        task_id, session = line.word("the task"), line.who()["session_id"]
        keywords = line.renamed(expected_generation="generation", reason="reason", operation_id="operation")
        answer = self._coordinator.release_claim(task_id=task_id, session_id=session, **keywords)
        self._note(answer.reason)
        return "released" if answer.success else f"refused {answer.reason.value} current={answer.generation}"

    def do_submit(self, line: Arguments) -> str:
        """submit TASK agent/session generation= [result=TEXT | bytes=N | empty] [operation=]"""
        task_id, who = line.word("the task"), line.who()
        data = _content(line, f"{who['agent_id']}/{who['session_id']}")
        keywords = line.renamed(generation="generation", operation_id="operation")
        answer: SubmissionResult = self._coordinator.submit_result(task_id=task_id, **who, result_data=data, **keywords)
        self._note(answer.reason)
        return _submitted(answer)

    def do_spawn(self, line: Arguments) -> str:
        """spawn TASK agent/session generation= children=a,b<a+x [mode=] [keep]; `<` names dependencies, count=N leaves the ids open"""
        task_id, keep = line.word("the task"), line.flag("keep")
        subtasks = [_child(child) for child in line.names("children") or ()]
        subtasks += [{"title": f"number {n}"} for n in range(line.value("count") or 0)]
        keywords = line.renamed(generation="generation", mode="mode", operation_id="operation")
        answer = self._coordinator.spawn_subtasks(task_id=task_id, **line.who(), subtasks=subtasks, keep=keep, **keywords)
        if not answer.success:
            return f"refused {answer.reason.value} current={answer.current_generation}"
        return " ".join(["accepted", *_listed("children", answer.children)])

    # Planners and operators

    def do_task(self, line: Arguments) -> str:
        """task ID [depends_on=A,B] [not_before=SECONDS] [state=backlog] [priority=] [any other field=]"""
        fields = self._fields(line) | {"id": line.word("the id")}
        (answer,) = self._coordinator.add_tasks(tasks=[fields])
        return f"{'added' if answer.verdict == 'DONE' else 'unchanged'} {answer.state.value}"

    def do_edit(self, line: Arguments) -> str:
        """edit TASK field=value … [operation=]"""
        task_id, keywords = line.word("the task"), line.renamed(operation_id="operation")
        answer = self._coordinator.edit_task(task_id=task_id, changes=self._fields(line), **keywords)
        return " ".join([answer.verdict.value.lower(), answer.state.value, *_listed("changed", answer.changed)])

    def _fields(self, line: Arguments) -> dict[str, Any]:
        fields = line.rest()
        if "not_before" in fields:
            fields["not_before"] = self.instant(fields["not_before"])
        # `depends_on=` takes the last one away.
        return {name: [] if value == [""] else value for name, value in fields.items()}

    def do_policy(self, line: Arguments) -> str:
        """policy key=value …"""
        self._coordinator.set_policy(policy=line.rest())
        return "set"

    def do_limits(self, line: Arguments) -> str:
        """limits [profile=default] [limit=value …]"""
        profile = line.text("profile")
        self._coordinator.set_policy(profile=profile, limits=line.rest())
        return "set"

    def do_reset(self, line: Arguments) -> str:
        """reset TASK [cascade] [operation=]"""
        cascade, keywords = line.flag("cascade"), line.renamed(operation_id="operation")
        return _operated(self._coordinator.reset_task(task_id=line.word("the task"), cascade=cascade, **keywords))

    def do_preview(self, line: Arguments) -> str:
        """preview TASK: what a cascading reset would reset too"""
        return " ".join(self._coordinator.preview_reset(task_id=line.word("the task"))) or "none"

    def do_cancel(self, line: Arguments) -> str:
        """cancel TASK [reason=] [operation=]"""
        keywords = line.renamed(operation_id="operation")
        return _operated(self._coordinator.cancel_task(task_id=line.word("the task"), reason=line.text("reason") or "", **keywords))

    def do_assign(self, line: Arguments) -> str:
        """assign TASK agent [hours=] [operation=]"""
        task_id, agent = line.word("the task"), line.word("the agent")
        keywords = line.renamed(hours="hours", operation_id="operation")
        return _operated(self._coordinator.assign_task(task_id=task_id, agent_id=agent, **keywords))

    def do_unlock(self, line: Arguments) -> str:
        """unlock TASK [operation=]"""
        return _operated(self._coordinator.force_release(task_id=line.word("the task"), **line.renamed(operation_id="operation")))

    def do_hold(self, line: Arguments) -> str:
        """hold TASK [reason=] [operation=]"""
        keywords = line.renamed(operation_id="operation")
        return _operated(self._coordinator.hold_task(task_id=line.word("the task"), reason=line.text("reason") or "", **keywords))

    def do_reopen(self, line: Arguments) -> str:
        """reopen TASK [operation=]"""
        return _operated(self._coordinator.reopen_task(task_id=line.word("the task"), **line.renamed(operation_id="operation")))

    def do_adopt(self, line: Arguments) -> str:
        """adopt TASK [agent/session generation=] from=GENERATION/SESSION [result=TEXT] [operation=]; without who, by an operator"""
        task_id = line.word("the task")
        keywords = line.renamed(operation_id="operation")
        if line.has_word():
            keywords |= {"session_id": line.who()["session_id"], "generation": line.value("generation")}
        answer = self._coordinator.adopt_result(task_id=task_id, refused_id=self._refused_id(task_id, line), **keywords)
        return f"{_submitted(answer)} generation={answer.current_generation}" if answer.accepted else _submitted(answer)

    def do_discard(self, line: Arguments) -> str:
        """discard TASK from=GENERATION/SESSION [result=TEXT]"""
        task_id = line.word("the task")
        self._coordinator.discard_result(task_id=task_id, refused_id=self._refused_id(task_id, line))
        return "done"

    def _refused_id(self, task_id: str, line: Arguments) -> str:
        """The name of a refused result: the script knows whose it is, not its digest."""
        whose, content = line.text("from"), line.text("result")
        found = self._coordinator.list_refused_results(task_id=task_id, include_settled=True)
        for result in found:
            if f"{result.generation}/{result.session_id}" == whose and content in (None, _said(result.result_data)):
                return str(result.id)
        return f"{task_id}/{whose}/0000000000000000"

    def do_session(self, line: Arguments) -> str:
        """session register|heartbeat|end SESSION"""
        act, session = line.word("register, heartbeat or end"), line.word("the session")
        match act:
            case "register":
                return _activity(self._coordinator.register_session(session_id=session))
            case "heartbeat":
                return _activity(self._coordinator.heartbeat_session(session_id=session))
            case "end":
                answer = self._coordinator.end_session(session_id=session)
                return " ".join(["ended", *_listed("released", answer.released)])
            case _:
                raise ScriptError(f"a session does not {act!r}")

    def do_sweep(self, line: Arguments) -> str:
        """sweep"""
        swept = self._coordinator.sweep()
        counts = {name: getattr(swept, name) for name in swept.__struct_fields__}
        return " ".join(f"{name}={count}" for name, count in counts.items() if count) or "nothing"

    def do_epoch(self, line: Arguments) -> str:
        """epoch N"""
        if self._store is None:
            raise ScriptError("nobody handed over the store whose epoch is to rise")
        self._store.set_epoch(int(line.word("the epoch")))
        return "set"

    # Onlookers

    def do_state(self, line: Arguments) -> str:
        """state TASK"""
        state = self._coordinator.get_task_state(task_id=line.word("the task"))
        words = [state.state.value, f"generation={state.generation}"]
        if state.holder is not None:
            words += [f"holder={state.holder.agent}/{state.holder.session}", f"until={self.time(state.holder.expires_at)}"]
            words += [] if state.holder.looks_alive else ["looks_dead"]
        if state.task.assigned_to is not None:
            words.append(f"assigned_to={state.task.assigned_to}")
        words += _listed("unmet", state.unmet_dependencies) + _listed("children", state.unfinished_children)
        if state.result is not None:
            words.append(f"result={state.result.generation}/{state.result.session_id}")
            if state.result.adopted_generation is not None:
                words.append(f"adopted={state.result.adopted_generation}/{state.result.adopted_session}")
        words += [f"refused={state.refused_results}"] if state.refused_results else []
        words += _listed("inputs_changed", state.inputs_changed)
        words += [f"failures={state.failures}"] if state.failures else []
        words += [f"held_until={self.time(state.held_until)}"] if state.held_until is not None else []
        words += [f"({state.hold_reason})"] if state.hold_reason is not None else []
        return " ".join(words)

    def do_ready(self, line: Arguments) -> str:
        """ready [agent=] [tracks=A,B]"""
        found = self._coordinator.ready(agent_id=line.text("agent"), tracks=line.names("tracks"))
        return " ".join(entry.task.id for entry in found) or "none"

    def do_blocked(self, line: Arguments) -> str:
        """blocked"""
        found = self._coordinator.blocked()
        return " ".join(f"{entry.task.id}<{'+'.join(map(_short, entry.blocked_by))}" for entry in found) or "none"

    def do_history(self, line: Arguments) -> str:
        """history TASK"""
        return _told(self._coordinator.get_claim_history(task_id=line.word("the task")))

    def do_lineage(self, line: Arguments) -> str:
        """lineage TASK"""
        lineage = self._coordinator.get_lineage(task_id=line.word("the task"))
        return f"{_told(lineage.generations)} | {_refusals(lineage.refused)}"

    def do_refused(self, line: Arguments) -> str:
        """refused TASK [all]; with `all` also those adopted or discarded"""
        settled = line.flag("all")
        return _refusals(self._coordinator.list_refused_results(task_id=line.word("the task"), include_settled=settled))

    def do_result(self, line: Arguments) -> str:
        """result TASK"""
        return json.dumps(self._coordinator.read_result(task_id=line.word("the task")))

    def do_explain(self, line: Arguments) -> str:
        """explain TASK [agent/session] [lease=]"""
        task_id = line.word("the task")
        keywords = line.renamed(lease_duration_seconds="lease") | (line.who() if line.has_word() else {})
        found = self._coordinator.explain(task_id=task_id, **keywords)
        words = [found.reason.value, *_listed("waits_for", found.waits_for)]
        words += [f"cycle={'>'.join(found.cycle)}"] if found.cycle else []
        return f"{' '.join(words)} ({'; '.join(found.because)})"

    def do_sessions(self, line: Arguments) -> str:
        """sessions [all]; with `all` also those that ended"""
        found = self._coordinator.list_sessions(include_ended=line.flag("all"))
        return " ".join(f"{session.session_id}:{_activity(session)}" for session in found) or "none"

    def do_events(self, line: Arguments) -> str:
        """events TASK: the types of its events, in order"""
        return " ".join(event["event_type"] for event in self._events(line.word("the task"))) or "none"

    def do_event(self, line: Arguments) -> str:
        """event TASK TYPE field …: fields of its last event of this type"""
        task_id, kind = line.word("the task"), line.word("the type")
        fields = [line.word("a field")]
        while line.has_word():
            fields.append(line.word("a field"))
        for event in reversed(self._events(task_id)):
            if event["event_type"] == kind:
                return " ".join(f"{field}={_shown(event.get(field))}" for field in fields)
        return "none"

    def _events(self, task_id: str) -> list[Mapping[str, Any]]:
        return [entry.event for entry in self._coordinator.read_events(task_id=task_id, limit=1000).events]

    def _note(self, reason: StrEnum) -> None:
        # As a pair of texts: NO_CLAIM of one enum equals NO_CLAIM of another.
        self.reasons.add((type(reason).__name__, reason.name))


def _content(line: Arguments, author: str) -> Any:
    """What is submitted: by default something that only this author would hand in."""
    size = line.value("bytes")
    if line.flag("empty"):
        return {}
    if size is not None:
        return {"text": "x" * (size - len('{"text":""}'))}
    return {"said": line.text("result") or f"by {author}"}


def _said(data: Any) -> str | None:
    return data.get("said") if isinstance(data, dict) else None


def _child(text: str) -> dict[str, Any]:
    name, _, depends_on = text.partition("<")
    return {"id": name, "depends_on": depends_on.split("+") if depends_on else []}


def _submitted(answer: SubmissionResult) -> str:
    if answer.accepted:
        return "accepted"
    words = [f"refused {answer.reason.value} current={answer.current_generation}", *_listed("waits_for", answer.waits_for)]
    if answer.work_lost != answer.kept:
        words.append(f"work_lost={answer.work_lost}")
    return " ".join([*words, "kept"] if answer.kept else words)


def _operated(answer: OperatorResult) -> str:
    words = [answer.verdict.value.lower(), answer.state.value, f"generation={answer.generation}"]
    if answer.superseded is not None:
        words.append(f"superseded={answer.superseded.agent}/{answer.superseded.session}")
    return " ".join([*words, *_listed("cascade", answer.cascade)])


def _told(history: Iterable[ClaimHistory]) -> str:
    entries = []
    for entry in history:
        words = [entry.release_reason.value if entry.release_reason else "ACTIVE"]
        words += ["result_accepted"] if entry.result_accepted else []
        words += ["result_rejected"] if entry.result_rejected else []
        entries.append(f"{entry.generation}:{','.join(words)}")
    return " ".join(entries) or "none"


def _refusals(results: Iterable[TaskResult]) -> str:
    shown = (f"{result.generation}/{result.session_id}:{result.rejection_reason}:{result.state}" for result in results)
    return " ".join(shown) or "none"


def _activity(session: Any) -> str:
    if session.ended_at is not None:
        return "ended"
    return "active" if session.active else "gone" if session.process_gone else "silent"


def _listed(name: str, values: Iterable[str]) -> list[str]:
    text = ",".join(map(_short, values))
    return [f"{name}={text}"] if text else []


def _short(waiting: str) -> str:
    """What a task waits for, in one word."""
    return waiting.replace("not before ", "not_before:")


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
