"""Roles and reviews in games: whatever fleets do, a review never completes twice, nothing counts
that was not accepted, and an escalated task opens no dependent.

The engine's part, stores and commits, is in the scenarios; here decisions, folds and reactions meet
in any order.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.agent_roles import AgentRoles, EdgeRule
from genlock.core.decision import Decision
from genlock.core.keys import REFUSED
from genlock.core.manifest import digest_with
from genlock.core.model import (
    Actor,
    Manifest,
    Product,
    PromotionRecord,
    RefusedRecord,
    Task,
    TaskRecord,
)
from genlock.core.policy import Policy
from genlock.core.reasons import ReviewReason, SpawnMode, Status, SubmitReason
from genlock.errors import GenlockError
from tests.core.world import World, content, key_of

ROOT = Path(__file__).parents[2]
TABLE = AgentRoles(
    {"architect": ("design",), "full_stack": ("all",)},
    {"code": EdgeRule(evaluators=("lint", "tests")), "uat": EdgeRule(human_required=True)},
)
TASKS: dict[str, dict[str, Any]] = {
    "F:design": {"edge": "design", "feature": "F"},
    "F:code": {"edge": "code", "feature": "F", "depends_on": ("F:design",)},
    "F:uat": {"edge": "uat", "feature": "F", "depends_on": ("F:code",)},
    "P": {"human_required": True},
    "Q": {"depends_on": ("P", "F:uat")},
    "R": {"roles": ("architect",), "depends_on": ("P",)},
}
ROLES = ("", "architect", "full_stack", "janitor")
SESSIONS = ("s1", "s2", "s3")
VALUES: tuple[Any, ...] = ("one", "two", {})


class Game:
    """One random game, and what may never be seen in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(agent_roles=TABLE, policy=Policy(four_eyes=seed % 2 == 0))
        for name, fields in TASKS.items():
            self.world.add(name, **fields)
        self.world.settle()
        self.answers: Counter[str] = Counter()

    def play(self, moves: int) -> None:
        for _ in range(moves):
            name = self.random.choice([*self.world.tasks])
            command = self.random.choice(self._moves(name))
            self._ask(command)
            if self.random.random() < 0.6:
                self._deliver()
            self.world.pass_time(self.random.choice((0, 1, 40)))
            self.check()
        self.world.settle()
        self.world.reload()
        self.check()
        assert set(self._promotions()) == set(self._accepted_products())

    def _moves(self, name: str) -> list[c.Command]:
        key, record = key_of(name), self.world.task(name)
        by = self._caller(record)
        generation = record.generation - (self.random.random() < 0.1)
        digest = self._digest(record)
        result = self._with_products(content(self.random.choice(VALUES)), by.agent, generation)
        child = c.SpawnSubtasks(
            key,
            by,
            generation=generation,
            children=(replace_parent(name, len(record.children) + 1),),
            mode=self.random.choice((SpawnMode.PARALLEL, SpawnMode.FAN_OUT_FAN_IN)),
        )
        claims: list[c.Command] = [
            c.ClaimTask(key, by, 60.0, role=self.random.choice(ROLES)) for _ in range(6)
        ]
        submissions: list[c.Command] = [
            c.SubmitResult(
                key,
                by,
                generation,
                result,
                evaluations={"lint": self.random.random() < 0.5, "tests": True},
            )
        ] * 6
        reviews: list[c.Command] = [
            c.ApproveReview(key, by, generation, digest),
            c.ApproveReview(key, by, generation, digest),
            c.RejectReview(key, by, generation, digest, "again"),
            c.ReportEvaluation(key, by, generation, digest, "lint", self.random.random() < 0.7),
            c.ReportEvaluation(key, by, generation, digest, "tests", True),
        ]
        rare: list[c.Command] = [
            self.random.choice((*claims, *submissions, *reviews)),
            c.CheckDue(key),
            c.ReleaseClaim(key, by, generation),
            self.random.choice((c.ResetTask(key, take_over=True), c.HoldTask(key))),
            c.CancelTask(key) if self.random.random() < 0.1 else c.ReopenTask(key),
            c.ForceRelease(key, take_over=True),
            c.EditTask(key, changes={"human_required": self.random.random() < 0.5}),
            *([child] if record.task.depth < 1 else []),
            *self._adoptions(key, by, generation),
        ]
        if self.random.random() < 0.2:
            return rare
        if record.review is not None:
            return reviews
        return submissions if record.claim is not None else claims

    def _with_products(self, result: c.Content, agent: str, generation: int) -> c.Content:
        """Sometimes a result has a product, as the coordinator packs it."""
        if self.random.random() < 0.4:
            return result
        made = Product("a", self.random.choice("01") * 64, 1)
        manifest = Manifest(agent, generation, (made,))
        digest = digest_with(bytes(result.data), manifest)
        return replace(result, digest=digest, empty=False, manifest=manifest)

    def _adoptions(self, key: Any, by: c.Caller, generation: int) -> list[c.Command]:
        found = [
            (at, cell.record)
            for at, cell in self.world.cells.items()
            if at.kind == REFUSED
            and isinstance(cell.record, RefusedRecord)
            and cell.record.task == key.id
        ]
        if not found:
            return []
        at, refused = self.random.choice(found)
        given = c.Content(refused.digest, refused.size, refused.data, manifest=refused.manifest)
        return [
            c.AdoptResult(
                key,
                by,
                at.id,
                self.random.choice((generation, None)),
                given,
                refused.work_product_ref,
                refused.generation,
                refused.session,
                take_over=True,
            )
        ]

    def _caller(self, record: TaskRecord) -> c.Caller:
        session = self.random.choice(SESSIONS)
        if record.claim is not None and self.random.random() < 0.7:
            session = record.claim.session
        return c.Caller(session, f"agent-{session}", actor=Actor(user_id=f"user-{session}"))

    def _digest(self, record: TaskRecord) -> str:
        if record.review is not None and self.random.random() < 0.8:
            return record.review.result.digest
        return content("one").digest

    def _ask(self, command: c.Command) -> None:
        before = self.world.cell(command.key).record
        try:
            decision: Decision = self.world.ask(command)
        except GenlockError:
            return
        outcome = decision.outcome
        self.answers[str(getattr(outcome, "reason", ""))] += 1
        if isinstance(command, c.ApproveReview | c.RejectReview | c.ReportEvaluation):
            stale = outcome.reason is ReviewReason.STALE_REVIEW
            assert not stale or not decision.events
            if decision.events and isinstance(before, TaskRecord):
                assert before.state is Status.IN_REVIEW
        if getattr(outcome, "reason", None) is SubmitReason.CONVERGENCE_ESCALATED:
            record = self.world.task(command.key.id)
            assert decision.events == () or record.state is Status.IN_REVIEW

    def _deliver(self) -> None:
        while self.world.undelivered and self.random.random() < 0.8:
            at = self.random.randrange(len(self.world.undelivered))
            if self.random.random() < 0.2:  # a reaction may be repeated
                self.world.undelivered.append(self.world.undelivered[at])
            self.world.deliver(at)

    # What may never be seen

    def check(self) -> None:
        for name, record in self.world.tasks.items():
            events = self.world.cell(key_of(name)).events
            self._check_acceptances(events)
            self._check_review(record)
            self._check_dependencies(record)
        accepted = self._accepted_products()
        for which, manifest in self._promotions().items():
            assert accepted.get(which) == manifest, "promoted, and not accepted"

    def _promotions(self) -> dict[tuple[str, int], Manifest]:
        """What is promoted, or is to be, by task and generation."""
        return {
            (cell.record.task, cell.record.generation): cell.record.manifest
            for cell in self.world.cells.values()
            if isinstance(cell.record, PromotionRecord)
        }

    def _accepted_products(self) -> dict[tuple[str, int], Manifest]:
        """The manifest of each acceptance that has one."""
        return {
            (name, event.generation): event.manifest
            for name in self.world.tasks
            for event in self.world.cell(key_of(name)).events
            if isinstance(event, e.ResultAccepted) and event.manifest is not None
        }

    def _check_acceptances(self, events: list[e.Event]) -> None:
        """Between two acceptances lies a reset, and each is of the generation that was granted
        last. A reviewed one is what was escalated."""
        open_, waiting, granted = True, None, 0
        for event in events:
            match event:
                case e.ClaimAcquired():
                    granted = event.generation
                case e.TaskReset():
                    open_, waiting = True, None
                case e.ConvergenceEscalated():
                    assert open_
                    assert waiting is None
                    waiting = event
                case e.ReviewRejected():
                    assert waiting is not None
                    assert event.generation > waiting.generation
                    waiting = None
                case e.ResultAccepted():
                    assert open_, "completed twice"
                    assert event.generation == granted
                    if waiting is not None:
                        assert event.author_session_id == waiting.session_id
                        assert event.digest == waiting.digest
                        assert event.manifest == waiting.manifest
                        assert event.generation == waiting.generation
                    else:
                        assert not event.author_session_id
                    open_, waiting = False, None
                case _:
                    pass

    def _check_review(self, record: TaskRecord) -> None:
        assert (record.review is not None) == (record.state is Status.IN_REVIEW)
        if record.state is Status.IN_REVIEW:
            assert record.claim is None
            assert record.result is None

    def _check_dependencies(self, record: TaskRecord) -> None:
        """What counts as finished was finished: nothing rests on a result that waits."""
        for heard in (*record.dependencies.values(), *record.children.values()):
            assert not heard.finished or heard.status in (Status.COMPLETED, Status.CANCELLED)
        for other, heard in record.dependencies.items():
            if heard.finished:
                ends = [
                    event
                    for event in self.world.cell(key_of(other)).events
                    if isinstance(event, e.ResultAccepted | e.TaskCancelled)
                ]
                assert ends, f"{record.task.id} counts {other} as finished"


def replace_parent(parent: str, number: int) -> Any:

    return Task(id=f"{parent}::{number}", parent=parent, depth=1, spawned_from=parent)


SEEN = {
    "CONVERGENCE_ESCALATED",
    "DENIED_ROLE",
    "APPROVED",
    "REJECTED",
    "EVALUATED",
    "STALE_REVIEW",
    "FOUR_EYES",
    "ACCEPTED",
}


@pytest.mark.parametrize("games", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_whatever_fleets_do_a_review_completes_once_and_opens_nothing_before(games: int) -> None:
    answers: Counter[str] = Counter()
    for seed in range(games):
        game = Game(seed)
        try:
            game.play(80)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        answers.update(game.answers)
    assert set(answers) >= SEEN, "the games were not worth playing"


def test_only_completion_writes_that_a_result_is_accepted_or_escalated() -> None:
    """One function decides between the two: no other module makes these events."""
    writers = set()
    for path in sorted((ROOT / "src" / "genlock").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "ResultAccepted" not in source and "ConvergenceEscalated" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call):
                continue
            made = (
                node.func,
                *node.args,
            )  # e.ResultAccepted(…), or draft.emit(e.ResultAccepted, …)
            emits = isinstance(node.func, ast.Attribute) and node.func.attr in ("emit", "add")
            names = {
                part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
                for part in (made if emits else made[:1])
            }
            if names & {"ResultAccepted", "ConvergenceEscalated"}:
                writers.add(path.relative_to(ROOT / "src" / "genlock").as_posix())
    assert writers == {"core/task/completion.py"}
