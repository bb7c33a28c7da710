"""The verbs of scenarios: each performs its act with a coordinator, and returns its outcome in
words."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from genlock.core.results import (
    ClaimResult,
    PromotionInfo,
    ReviewResult,
    SubmissionResult,
)
from genlock.errors import GenlockError
from genlock.store import Store
from genlock.testing.clock import ManualClock
from genlock.testing.script_words import (
    Arguments,
    ScriptError,
    Verb,
    activity_of,
    child_of,
    history_text,
    listed,
    operator_text,
    refusals_text,
    said_in,
    short,
    shown_value,
    submission_text,
    submitted_content,
)

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_FRESH = re.compile(r"(wp-\S+?-gen\d+)-[0-9a-f]{6}\b")


class Player:
    """The language: every method `do_<verb>` is a verb, and its docstring is the verb's syntax."""

    def __init__(self, coordinator: Any, clock: ManualClock, store: Store | None) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._store = store
        self._begin = clock.now()
        self._drafts: dict[str, str] = {}
        """By digest: the word that represents the bytes of a product."""
        self.reasons: set[tuple[str, str]] = set()

    def verbs(self) -> dict[str, Verb]:
        """All verbs by name."""
        return {
            name.removeprefix("do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }

    # Time

    def move_to(self, seconds: float) -> None:
        """Moves the clock to `seconds` after the beginning, before or after the present."""
        self._clock.advance(seconds - (self._clock.now() - self._begin).total_seconds())

    def instant(self, seconds: float) -> datetime:
        return self._begin + timedelta(seconds=seconds)

    def time(self, instant: datetime | None) -> str:
        if instant is None:
            return "never"
        seconds = (instant - self._begin).total_seconds()
        return str(int(seconds)) if seconds.is_integer() else str(seconds)

    def plain(self, outcome: str) -> str:
        """Replaces instants by the script's seconds, and random parts by dots."""
        outcome = _INSTANT.sub(
            lambda found: f"T={self.time(datetime.fromisoformat(found[0]))}", outcome
        )
        return _FRESH.sub(r"\1-...", outcome)

    # Workers

    def do_claim(self, line: Arguments) -> str:
        """claim TASK agent/session [lease=] [role=] [metadata=JSON] [operation=]"""
        task_id = line.word("the task")
        keywords = line.renamed(
            lease_duration_seconds="lease",
            agent_role="role",
            metadata="metadata",
            operation_id="operation",
        )
        return self._claimed(
            self._coordinator.claim_task(task_id=task_id, **line.who(), **keywords)
        )

    def do_batch_claim(self, line: Arguments) -> str:
        """batch_claim TASK,TASK agent/session [lease=]"""
        task_ids = line.word("the tasks").split(",")
        keywords = line.renamed(lease_duration_seconds="lease")
        answers = self._coordinator.batch_claim(task_ids=task_ids, **line.who(), **keywords)
        return " | ".join(
            f"{task} error {answer.code}"
            if isinstance(answer, GenlockError)
            else f"{task} {self._claimed(answer)}"
            for task, answer in answers.items()
        )

    def do_next(self, line: Arguments) -> str:
        """next agent/session [role=] [tracks=A,B] [lease=] [operation=] [held]; with `held` the
        outcome lists what the session holds"""
        tracks, held = line.names("tracks"), line.flag("held")
        keywords = line.renamed(
            lease_duration_seconds="lease", operation_id="operation", agent_role="role"
        )
        answer: ClaimResult = self._coordinator.claim_next(**line.who(), tracks=tracks, **keywords)
        return self._claimed(answer, name=True, held=held)

    def _claimed(self, answer: ClaimResult, *, name: bool = False, held: bool = False) -> str:
        self._note(answer.reason)
        if answer.claim is not None:
            words = [
                "granted",
                *([answer.claim.task_id] if name else []),
                f"generation={answer.claim.generation}",
            ]
            words += ["already_held"] if answer.already_held else []
        else:
            words = ["denied", answer.reason.value]
        if answer.holder is not None:
            words += [
                f"holder={answer.holder.agent}/{answer.holder.session}",
                f"until={self.time(answer.holder.expires_at)}",
            ]
        words += listed("waits_for", answer.waits_for)
        if answer.limit is not None:
            words.append(f"limit={answer.limit}")
        words += listed("inputs_changed", answer.inputs_changed)
        words += (
            listed("held", [f"{ref.task_id}/{ref.generation}" for ref in answer.held])
            if held
            else []
        )
        words += listed("roles", answer.roles)
        words += listed(
            "overlaps", [f"{one.task_id}:{'+'.join(one.modules)}" for one in answer.overlaps]
        )
        if answer.feedback is not None:
            words.append(f"feedback={answer.feedback.generation}:{answer.feedback.text}")
        # The detail of a limit only repeats its name and its value.
        if answer.detail and answer.limit is None and not name:
            words.append(f"({answer.detail})")
        return " ".join(words)

    def do_renew(self, line: Arguments) -> str:
        """renew TASK agent/session generation= [lease=]"""
        task_id, session = line.word("the task"), line.who()["session_id"]
        keywords = line.renamed(generation="generation", lease_duration_seconds="lease")
        answer = self._coordinator.renew_lease(task_id=task_id, session_id=session, **keywords)
        self._note(answer.reason)
        if not answer.success:
            return f"refused {answer.reason.value} current={answer.generation}"
        return " ".join(
            [
                f"renewed until={self.time(answer.new_expiry)}",
                *listed("inputs_changed", answer.inputs_changed),
            ]
        )

    def do_release(self, line: Arguments) -> str:
        """release TASK agent/session generation= [reason=ERROR] [operation=]"""
        task_id, session = line.word("the task"), line.who()["session_id"]
        keywords = line.renamed(generation="generation", reason="reason", operation_id="operation")
        answer = self._coordinator.release_claim(task_id=task_id, session_id=session, **keywords)
        self._note(answer.reason)
        return (
            "released"
            if answer.success
            else f"refused {answer.reason.value} current={answer.generation}"
        )

    def do_submit(self, line: Arguments) -> str:
        """submit TASK agent/session generation= [result=TEXT | bytes=N | empty] [operation=]
        [passed=EVALUATOR,EVALUATOR] [products=PATH,PATH~VERSION]"""
        task_id, who = line.word("the task"), line.who()
        data = submitted_content(line, f"{who.get('agent_id', '')}/{who['session_id']}")
        keywords = line.renamed(generation="generation", operation_id="operation")
        keywords["evaluations"] = dict.fromkeys(line.names("passed") or (), True) or None
        keywords["products"] = [self._drafted(name) for name in line.names("products") or ()]
        answer: SubmissionResult = self._coordinator.submit_result(
            task_id=task_id, **who, result_data=data, **keywords
        )
        self._note(answer.reason)
        return submission_text(answer)

    def do_spawn(self, line: Arguments) -> str:
        """spawn TASK agent/session generation= children=a,b<a+x [mode=] [keep]; `<` names
        dependencies, count=N leaves the ids open"""
        task_id, keep = line.word("the task"), line.flag("keep")
        subtasks = [child_of(child) for child in line.names("children") or ()]
        subtasks += [{"title": f"number {n}"} for n in range(line.value("count") or 0)]
        keywords = line.renamed(generation="generation", mode="mode", operation_id="operation")
        answer = self._coordinator.spawn_subtasks(
            task_id=task_id, **line.who(), subtasks=subtasks, keep=keep, **keywords
        )
        if not answer.success:
            return f"refused {answer.reason.value} current={answer.current_generation}"
        return " ".join(["accepted", *listed("children", answer.children)])

    # Work products

    def _drafted(self, name: str) -> dict[str, Any]:
        """Returns a product whose bytes are the word that represents it: `a.txt`, or `a.txt~2`."""
        digest = hashlib.sha256(name.encode()).hexdigest()
        self._drafts[digest] = name
        return {"path": name.partition("~")[0], "sha256": digest, "size": len(name)}

    def do_promotions(self, line: Arguments) -> str:
        """promotions [TASK] [state=]"""
        task_id = line.word("the task") if line.has_word() else None
        found = self._coordinator.list_promotions(task_id=task_id, state=line.text("state"))
        return " ".join(map(self._promotion, found)) or "none"

    def do_promote(self, line: Arguments) -> str:
        """promote TASK generation= [digest=] [failure=TEXT] [superseded=PATH,PATH]; without a
        digest that of what waits there"""
        task_id, generation = line.word("the task"), line.value("generation")
        digest = line.text("digest")
        if digest is None:
            found = self._coordinator.list_promotions(task_id=task_id)
            digest = next((one.digest for one in found if one.generation == generation), "0" * 64)
        return self._promotion(
            self._coordinator.settle_promotion(
                task_id=task_id,
                generation=generation,
                digest=digest,
                failure=line.text("failure") or "",
                superseded=line.names("superseded") or (),
            )
        )

    def _promotion(self, one: PromotionInfo) -> str:
        """TASK:GENERATION:STATE:AGENT/GENERATION:PRODUCTS, and what else is known."""
        files = ",".join(self._drafts.get(each.sha256, each.path) for each in one.manifest.files)
        drafts = f"{one.manifest.agent}/{one.manifest.generation}"
        words = [f"{one.task_id}:{one.generation}:{one.state}:{drafts}:{files}"]
        words += [f"reason={one.reason}"] if one.reason else []
        return " ".join([*words, *listed("superseded", one.superseded)])

    # Reviewers and evaluators

    def do_approve(self, line: Arguments) -> str:
        """approve TASK generation= [digest=]; without a digest of what waits there"""
        task_id, keywords = self._reviewed(line)
        return self._decided(self._coordinator.approve_review(task_id=task_id, **keywords))

    def do_reject(self, line: Arguments) -> str:
        """reject TASK generation= [digest=] [feedback=TEXT]"""
        task_id, keywords = self._reviewed(line)
        feedback = line.text("feedback") or ""
        return self._decided(
            self._coordinator.reject_review(task_id=task_id, feedback=feedback, **keywords)
        )

    def do_evaluate(self, line: Arguments) -> str:
        """evaluate TASK agent/session EVALUATOR pass|fail generation= [digest=]"""
        task_id, keywords = self._reviewed(line)
        keywords |= line.who()
        name, passed = line.word("the evaluator"), line.word("pass or fail") == "pass"
        return self._decided(
            self._coordinator.report_evaluation(
                task_id=task_id, evaluator=name, passed=passed, **keywords
            )
        )

    def do_reviews(self, line: Arguments) -> str:
        """reviews"""
        return (
            " ".join(
                f"{one.task_id}:{one.generation}/{one.session_id}:{'+'.join(one.causes)}"
                for one in self._coordinator.list_reviews()
            )
            or "none"
        )

    def _reviewed(self, line: Arguments) -> tuple[str, dict[str, Any]]:
        task_id, digest = line.word("the task"), line.text("digest")
        if digest is None:
            state = self._coordinator.get_task_state(task_id=task_id)
            last = state.review or state.result or state.feedback
            digest = last.digest if last is not None else ""
        return task_id, {"digest": digest, **line.renamed(generation="generation")}

    def _decided(self, answer: ReviewResult) -> str:
        self._note(answer.reason)
        words = [answer.reason.value.lower() if answer.success else f"refused {answer.reason}"]
        words += [answer.state.value, f"generation={answer.generation}"]
        words += [f"reviewer={answer.reviewer}"] if answer.reviewer else []
        words += listed("missing", answer.missing_evaluators)
        words += listed("waits_for", answer.waits_for)
        return " ".join([*words, "kept"] if answer.refused_id else words)

    # Planners and operators

    def do_roles(self, line: Arguments) -> str:
        """roles [ROLE=EDGE,EDGE …] [human=EDGE,EDGE] [evaluators:EDGE=NAME,NAME]; none at all
        removes the table"""
        human = line.names("human") or []
        edges: dict[str, dict[str, Any]] = {edge: {"human_required": True} for edge in human}
        roles = {}
        for name, value in line.rest().items():
            names = str(value).split(",")
            word, colon, edge = name.partition(":")
            if colon and word == "evaluators":
                edges.setdefault(edge, {})["evaluators"] = names
            else:
                roles[name] = {"converge_edges": names}
        self._coordinator.set_policy(agent_roles={"roles": roles, "edges": edges})
        return "set"

    def do_task(self, line: Arguments) -> str:
        """task ID [depends_on=A,B] [not_before=SECONDS] [state=backlog] [priority=] [any other
        field=]"""
        fields = self._fields(line) | {"id": line.word("the id")}
        (answer,) = self._coordinator.add_tasks(tasks=[fields])
        return f"{'added' if answer.verdict == 'DONE' else 'unchanged'} {answer.state.value}"

    def do_edit(self, line: Arguments) -> str:
        """edit TASK field=value … [operation=]"""
        task_id, keywords = line.word("the task"), line.renamed(operation_id="operation")
        answer = self._coordinator.edit_task(
            task_id=task_id, changes=self._fields(line), **keywords
        )
        return " ".join(
            [answer.verdict.value.lower(), answer.state.value, *listed("changed", answer.changed)]
        )

    def _fields(self, line: Arguments) -> dict[str, Any]:
        fields = line.rest()
        if "not_before" in fields:
            fields["not_before"] = self.instant(fields["not_before"])
        # `depends_on=` removes the last dependency.
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
        """reset TASK [cascade] [force] [operation=]"""
        keywords = {
            "cascade": line.flag("cascade"),
            "take_over": line.flag("force"),
            **line.renamed(operation_id="operation"),
        }
        return operator_text(
            self._coordinator.reset_task(task_id=line.word("the task"), **keywords)
        )

    def do_preview(self, line: Arguments) -> str:
        """preview TASK: what a cascading reset would reset too"""
        return " ".join(self._coordinator.preview_reset(task_id=line.word("the task"))) or "none"

    def do_cancel(self, line: Arguments) -> str:
        """cancel TASK [reason=] [force] [operation=]"""
        keywords = {"take_over": line.flag("force"), **line.renamed(operation_id="operation")}
        return operator_text(
            self._coordinator.cancel_task(
                task_id=line.word("the task"), reason=line.text("reason") or "", **keywords
            )
        )

    def do_assign(self, line: Arguments) -> str:
        """assign TASK agent [hours=] [force] [operation=]"""
        force, task_id, agent = line.flag("force"), line.word("the task"), line.word("the agent")
        keywords = {"take_over": force, **line.renamed(hours="hours", operation_id="operation")}
        return operator_text(
            self._coordinator.assign_task(task_id=task_id, agent_id=agent, **keywords)
        )

    def do_unlock(self, line: Arguments) -> str:
        """unlock TASK [force] [operation=]"""
        keywords = {"take_over": line.flag("force"), **line.renamed(operation_id="operation")}
        return operator_text(
            self._coordinator.force_release(task_id=line.word("the task"), **keywords)
        )

    def do_hold(self, line: Arguments) -> str:
        """hold TASK [reason=] [operation=]"""
        keywords = line.renamed(operation_id="operation")
        return operator_text(
            self._coordinator.hold_task(
                task_id=line.word("the task"), reason=line.text("reason") or "", **keywords
            )
        )

    def do_reopen(self, line: Arguments) -> str:
        """reopen TASK [operation=]"""
        return operator_text(
            self._coordinator.reopen_task(
                task_id=line.word("the task"), **line.renamed(operation_id="operation")
            )
        )

    def do_adopt(self, line: Arguments) -> str:
        """adopt TASK [agent/session [generation=]] from=GENERATION/SESSION [result=TEXT] [force]
        [operation=]

        Without a generation by an operator, with or without a session."""
        force, task_id = line.flag("force"), line.word("the task")
        keywords = {"take_over": force, **line.renamed(operation_id="operation")}
        if line.has_word():
            keywords |= {
                "session_id": line.who()["session_id"],
                "generation": line.value("generation"),
            }
        answer = self._coordinator.adopt_result(
            task_id=task_id, refused_id=self._refused_id(task_id, line), **keywords
        )
        return (
            f"{submission_text(answer)} generation={answer.current_generation}"
            if answer.accepted
            else submission_text(answer)
        )

    def do_discard(self, line: Arguments) -> str:
        """discard TASK from=GENERATION/SESSION [result=TEXT]"""
        task_id = line.word("the task")
        self._coordinator.discard_result(
            task_id=task_id, refused_id=self._refused_id(task_id, line)
        )
        return "done"

    def _refused_id(self, task_id: str, line: Arguments) -> str:
        """Returns the name of a refused result: the script knows its author, not its digest."""
        whose, content = line.text("from"), line.text("result")
        found = self._coordinator.list_refused_results(task_id=task_id, include_settled=True)
        for result in found:
            if f"{result.generation}/{result.session_id}" == whose and content in (
                None,
                said_in(result.result_data),
            ):
                return str(result.id)
        return f"{task_id}/{whose}/0000000000000000"

    def do_session(self, line: Arguments) -> str:
        """session register|heartbeat|end SESSION"""
        act, session = line.word("register, heartbeat or end"), line.word("the session")
        match act:
            case "register":
                return activity_of(self._coordinator.register_session(session_id=session))
            case "heartbeat":
                return activity_of(self._coordinator.heartbeat_session(session_id=session))
            case "end":
                answer = self._coordinator.end_session(session_id=session)
                return " ".join(["ended", *listed("released", answer.released)])
            case _:
                raise ScriptError(f"a session does not {act!r}")

    def do_sweep(self, line: Arguments) -> str:
        """sweep"""
        swept = self._coordinator.sweep()
        counts = {name: getattr(swept, name) for name in swept.__struct_fields__}
        return " ".join(f"{name}={count}" for name, count in counts.items() if count) or "nothing"

    def do_ids(self, line: Arguments) -> str:
        """ids [parent=] [count=]"""
        ids = self._coordinator.next_id(parent=line.text("parent"), count=line.value("count") or 1)
        return ids if isinstance(ids, str) else " ".join(ids)

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
            words += [
                f"holder={state.holder.agent}/{state.holder.session}",
                f"until={self.time(state.holder.expires_at)}",
            ]
            words += [] if state.holder.looks_alive else ["looks_dead"]
        if state.task.assigned_to is not None:
            words.append(f"assigned_to={state.task.assigned_to}")
        words += listed("unmet", state.unmet_dependencies) + listed(
            "children", state.unfinished_children
        )
        if state.result is not None:
            words.append(f"result={state.result.generation}/{state.result.session_id}")
            if state.result.adopted_generation is not None:
                words.append(
                    f"adopted={state.result.adopted_generation}/{state.result.adopted_session}"
                )
        words += [f"refused={state.refused_results}"] if state.refused_results else []
        words += listed("inputs_changed", state.inputs_changed)
        words += [f"failures={state.failures}"] if state.failures else []
        words += (
            [f"held_until={self.time(state.held_until)}"] if state.held_until is not None else []
        )
        words += [f"({state.hold_reason})"] if state.hold_reason is not None else []
        return " ".join(words)

    def do_ready(self, line: Arguments) -> str:
        """ready [agent=] [tracks=A,B]"""
        found = self._coordinator.ready(agent_id=line.text("agent"), tracks=line.names("tracks"))
        return " ".join(entry.task.id for entry in found) or "none"

    def do_blocked(self, line: Arguments) -> str:
        """blocked"""
        found = self._coordinator.blocked()
        return (
            " ".join(f"{entry.task.id}<{'+'.join(map(short, entry.blocked_by))}" for entry in found)
            or "none"
        )

    def do_history(self, line: Arguments) -> str:
        """history TASK"""
        return history_text(self._coordinator.get_claim_history(task_id=line.word("the task")))

    def do_lineage(self, line: Arguments) -> str:
        """lineage TASK"""
        lineage = self._coordinator.get_lineage(task_id=line.word("the task"))
        return f"{history_text(lineage.generations)} | {refusals_text(lineage.refused)}"

    def do_refused(self, line: Arguments) -> str:
        """refused TASK [all]; with `all` also those adopted or discarded"""
        settled = line.flag("all")
        return refusals_text(
            self._coordinator.list_refused_results(
                task_id=line.word("the task"), include_settled=settled
            )
        )

    def do_result(self, line: Arguments) -> str:
        """result TASK"""
        return json.dumps(self._coordinator.read_result(task_id=line.word("the task")))

    def do_explain(self, line: Arguments) -> str:
        """explain TASK [agent/session] [lease=]"""
        task_id = line.word("the task")
        keywords = line.renamed(lease_duration_seconds="lease") | (
            line.who() if line.has_word() else {}
        )
        found = self._coordinator.explain(task_id=task_id, **keywords)
        words = [found.reason.value, *listed("waits_for", found.waits_for)]
        words += [f"cycle={'>'.join(found.cycle)}"] if found.cycle else []
        return f"{' '.join(words)} ({'; '.join(found.because)})"

    def do_sessions(self, line: Arguments) -> str:
        """sessions [all]; with `all` also those that ended"""
        found = self._coordinator.list_sessions(include_ended=line.flag("all"))
        return (
            " ".join(f"{session.session_id}:{activity_of(session)}" for session in found) or "none"
        )

    def do_events(self, line: Arguments) -> str:
        """events TASK: the types of its events, in order"""
        return (
            " ".join(event["event_type"] for event in self._events(line.word("the task"))) or "none"
        )

    def do_event(self, line: Arguments) -> str:
        """event TASK TYPE field …: fields of its last event of this type"""
        task_id, kind = line.word("the task"), line.word("the type")
        fields = [line.word("a field")]
        while line.has_word():
            fields.append(line.word("a field"))
        for event in reversed(self._events(task_id)):
            if event["event_type"] == kind:
                return " ".join(f"{field}={shown_value(event.get(field))}" for field in fields)
        return "none"

    def _events(self, task_id: str) -> list[Mapping[str, Any]]:
        return [
            entry.event
            for entry in self._coordinator.read_events(task_id=task_id, limit=1000).events
        ]

    def _note(self, reason: StrEnum) -> None:
        # As a pair of texts: NO_CLAIM of one enum equals NO_CLAIM of another.
        self.reasons.add((type(reason).__name__, reason.name))
