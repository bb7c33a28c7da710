"""Every state of a task × every command, and the same for the other records: the answer, the
events, and what is after them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import keys
from genlock.core.agent_roles import AgentRoles, EdgeRule
from genlock.core.decision import Decision
from genlock.core.key_roles import Role
from genlock.core.manifest import digest_of
from genlock.core.model import (
    AccessRecord,
    CounterRecord,
    FeatureRecord,
    KeyRecord,
    Manifest,
    Process,
    Product,
    ProjectRecord,
    PromotionRecord,
    Record,
    RefusedRecord,
    SessionRecord,
    SettledRecord,
    Task,
    TaskRecord,
    TenantRecord,
)
from genlock.core.policy import Agents, Expired, Order, Policy, TenantLimits
from genlock.core.reasons import ClaimState, ReleaseReason, SpawnMode, Status
from genlock.core.records.refused_result import REVIEW_REJECTED
from genlock.errors import GenlockError
from tests.core.world import START, World, by, content, key_of

T = key_of("T")
HOLDER, COLLEAGUE, STRANGER, OPERATOR = (
    by("s1", "alice"),
    by("s1", "bob"),
    by("s2", "bob"),
    by("", ""),
)
REFUSED = by("s9", "zed")


# The states. Whoever has or had the claim is alice in session s1; the lease is 60 s.

STATES: dict[str, Callable[[], World]] = {}


def state(name: str) -> Callable[[Callable[[], World]], Callable[[], World]]:
    def keep(build: Callable[[], World]) -> Callable[[], World]:
        STATES[name] = build
        return build

    return keep


def begun(**settings: Any) -> World:
    """Sessions s1 and s2 are known, task D exists and waits for nothing."""
    world = World(**settings)
    for name in ("s1", "s2"):
        world.ask(c.RegisterSession(key_of(name, keys.SESSION), by(name)))
    world.add("D")
    return world


def claimed(**settings: Any) -> World:
    world = begun(**settings)
    world.add("T")
    world.claim("T")
    return world


def expired(**settings: Any) -> World:
    world = claimed(**settings)
    world.pass_time(61)
    world.ask(c.CheckDue(T))
    return world


@state("absent")
def _absent() -> World:
    return begun()


@state("PENDING, new")
def _new() -> World:
    world = begun()
    world.add("T")
    return world


@state("PENDING, released")
def _released() -> World:
    world = claimed()
    world.ask(c.ReleaseClaim(T, HOLDER, generation=1))
    return world


@state("PENDING, the claim has expired")
def _expired() -> World:
    return expired()


@state("PENDING, superseded")
def _superseded() -> World:
    world = claimed()
    world.ask(c.ForceRelease(T, take_over=True))
    return world


@state("PENDING, reserved for alice")
def _reserved() -> World:
    world = begun()
    world.add("T")
    world.ask(c.AssignTask(T, OPERATOR, agent="alice", hours=1.0, take_over=True))
    return world


@state("PENDING, the reservation for alice is over")
def _lapsed() -> World:
    world = _reserved()
    world.pass_time(3600)
    return world


@state("PENDING, granted as often as is allowed")
def _used_up() -> World:
    world = claimed(limits=TenantLimits(max_generations_per_task=1))
    world.ask(c.ReleaseClaim(T, HOLDER, generation=1))
    return world


@state("PENDING, for architects")
def _for_architects() -> World:
    world = begun()
    world.add("T", roles=("architect",))
    return world


@state("PENDING, for architects, one agent works alone")
def _for_architects_alone() -> World:
    world = begun(policy=Policy(agents=Agents.SINGLE))
    world.add("T", roles=("architect",))
    return world


@state("BACKLOG")
def _backlog() -> World:
    world = begun()
    world.add("T", backlog=True)
    return world


@state("BLOCKED by a dependency")
def _dependent() -> World:
    world = begun()
    world.add("T", depends_on=("D",))
    world.settle()
    return world


@state("BLOCKED, the dependency is done but nobody has told it")
def _untold() -> World:
    world = _dependent()
    world.finish("D")
    return world


@state("BLOCKED by a child")
def _parent() -> World:
    world = claimed()
    spawn = c.SpawnSubtasks(
        T, HOLDER, generation=1, children=(Task(id="T::1", parent="T", depth=1),)
    )
    world.ask(spawn)
    world.settle()
    return world


@state("BLOCKED until its time")
def _early() -> World:
    world = begun()
    world.add("T", not_before=START + timedelta(seconds=100))
    return world


@state("BLOCKED, its time has come")
def _due() -> World:
    world = _early()
    world.pass_time(100)
    return world


@state("BLOCKED, the claim has expired")
def _expired_and_blocked() -> World:
    world = begun()
    world.add("T", depends_on=("D",))
    world.finish("D")
    world.settle()
    world.claim("T")
    world.ask(c.ResetTask(key_of("D")))
    world.settle()
    world.pass_time(61)
    world.ask(c.CheckDue(T))
    return world


@state("IN_PROGRESS")
def _live() -> World:
    return claimed()


@state("IN_PROGRESS, the lease is over")
def _overdue() -> World:
    world = claimed()
    world.pass_time(60)
    return world


@state("IN_PROGRESS, the lease is over, within the grace")
def _grace() -> World:
    world = claimed(policy=Policy(expired=Expired.GRACE, grace_seconds=30.0))
    world.pass_time(89)
    return world


@state("IN_PROGRESS, the clock has stepped back")
def _stepped() -> World:
    world = claimed()
    world.pass_time(-86400)
    return world


@state("IN_PROGRESS, the session has ended")
def _orphaned() -> World:
    world = claimed()
    world.ask(c.EndSession(key_of("s1", keys.SESSION), HOLDER))
    return world


@state("IN_PROGRESS, the process is gone")
def _gone() -> World:
    world = claimed()
    world.gone.add("s1")
    return world


@state("IN_PROGRESS, silent for long")
def _silent() -> World:
    world = begun(policy=Policy(stale_threshold_seconds=20.0))
    world.add("T")
    world.claim("T")
    world.pass_time(21)
    return world


@state("IN_PROGRESS, the lease is over, a person decides")
def _human() -> World:
    world = claimed(policy=Policy(expired=Expired.HUMAN))
    world.pass_time(60)
    return world


@state("IN_PROGRESS, the lease is over for the second time of two")
def _breaking() -> World:
    world = expired(policy=Policy(breaker_threshold=2))
    world.claim("T")
    world.pass_time(60)
    return world


@state("IN_PROGRESS, both the lease and the reservation are over")
def _reserved_and_overdue() -> World:
    world = _reserved()
    world.claim("T")
    world.pass_time(3600)
    return world


@state("IN_PROGRESS, the reservation is over")
def _reserved_and_live() -> World:
    world = _reserved()
    world.claim("T", lease=7200.0)
    world.pass_time(3600)
    world.ask(c.RenewLease(T, HOLDER, generation=1))
    return world


@state("IN_PROGRESS, with a child")
def _kept_parent() -> World:
    world = claimed()
    spawn = c.SpawnSubtasks(
        T, HOLDER, generation=1, children=(Task(id="T::1", parent="T", depth=1),), keep=True
    )
    world.ask(spawn)
    world.settle()
    return world


@state("IN_PROGRESS, the dependency has been reset")
def _inputs_changed() -> World:
    world = begun()
    world.add("T", depends_on=("D",))
    world.finish("D")
    world.settle()
    world.claim("T")
    world.ask(c.ResetTask(key_of("D")))
    world.settle()
    return world


def alone(**settings: Any) -> World:
    """One agent works alone: alice's claim has no lease, and ten days pass."""
    world = claimed(policy=Policy(agents=Agents.SINGLE, **settings))
    world.pass_time(10 * 86400)
    return world


@state("IN_PROGRESS, without a lease")
def _alone() -> World:
    return alone()


@state("IN_PROGRESS, without a lease, the clock has stepped back")
def _alone_stepped() -> World:
    world = alone()
    world.pass_time(-20 * 86400)
    return world


@state("IN_PROGRESS, without a lease, the session has ended")
def _alone_ended() -> World:
    world = alone()
    world.ask(c.EndSession(key_of("s1", keys.SESSION), HOLDER))
    return world


@state("IN_PROGRESS, without a lease, the process is gone")
def _alone_gone() -> World:
    world = alone()
    world.gone.add("s1")
    return world


@state("IN_PROGRESS, without a lease, the session has ended, a person decides")
def _alone_ended_human() -> World:
    world = alone(expired=Expired.HUMAN)
    world.ask(c.EndSession(key_of("s1", keys.SESSION), HOLDER))
    return world


@state("IN_PROGRESS, without a lease, a fleet since")
def _alone_no_more() -> World:
    world = alone()
    world.policy = Policy()
    return world


@state("IN_PROGRESS, with a lease, one agent works alone since")
def _alone_since() -> World:
    world = claimed()
    world.policy = Policy(agents=Agents.SINGLE)
    return world


@state("IN_PROGRESS, the lease is over, one agent works alone since")
def _alone_since_overdue() -> World:
    world = _alone_since()
    world.pass_time(60)
    return world


@state("IN_PROGRESS, a person must look at the result")
def _human_required() -> World:
    world = begun()
    world.add("T", human_required=True)
    world.claim("T")
    return world


@state("IN_REVIEW")
def _in_review() -> World:
    world = _human_required()
    world.submit("T", "s1", 1)
    return world


@state("IN_REVIEW, of an adopted result")
def _adopted_in_review() -> World:
    world = _human_required()
    world.ask(_adopt(HOLDER, 1))
    return world


@state("IN_REVIEW, an evaluator has not passed")
def _not_evaluated() -> World:
    table = AgentRoles(edges={"design": EdgeRule(evaluators=("lint",))})
    world = begun(agent_roles=table)
    world.add("T", feature="F", edge="design")
    world.claim("T")
    world.submit("T", "s1", 1)
    return world


@state("IN_REVIEW, with a child that was added since")
def _parent_in_review() -> World:
    world = _in_review()
    world.ask(c.AnnounceChildren(T, OPERATOR, children=(Task(id="T::1", parent="T", depth=1),)))
    world.settle()
    return world


@state("PENDING, its result was rejected")
def _rejected() -> World:
    world = _in_review()
    world.ask(c.RejectReview(T, OPERATOR, 1, DONE, "too short"))
    world.settle()
    return world


@state("COMPLETED")
def _completed() -> World:
    world = claimed()
    world.submit("T", "s1", 1)
    return world


@state("COMPLETED by its children")
def _fanned_in() -> World:
    world = claimed()
    children = (Task(id="T::1", parent="T", depth=1),)
    world.ask(
        c.SpawnSubtasks(T, HOLDER, generation=1, children=children, mode=SpawnMode.FAN_OUT_FAN_IN)
    )
    world.settle()
    world.finish("T::1")
    world.settle()
    return world


@state("COMPLETED after a review")
def _approved() -> World:
    world = _in_review()
    world.ask(_approve(world.task("T").generation))
    return world


@state("CANCELLED")
def _cancelled() -> World:
    world = claimed()
    world.ask(c.CancelTask(T, take_over=True))
    return world


@state("CANCELLED from the backlog")
def _cancelled_from_backlog() -> World:
    world = _backlog()
    world.ask(c.CancelTask(T, take_over=True))
    return world


@state("HELD")
def _held() -> World:
    world = begun()
    world.add("T")
    world.ask(c.HoldTask(T))
    return world


@state("HELD, with a live claim")
def _held_live() -> World:
    world = claimed()
    world.ask(c.HoldTask(T))
    return world


@state("HELD, with a claim without a lease")
def _held_alone() -> World:
    world = alone()
    world.ask(c.HoldTask(T))
    return world


@state("HELD, with a claim whose lease is over")
def _held_overdue() -> World:
    world = _held_live()
    world.pass_time(60)
    return world


@state("HELD for a while, with an expired claim")
def _held_until() -> World:
    return expired(policy=Policy(expired=Expired.HUMAN, claim_ttl_seconds=100.0))


@state("HELD for a while that is over")
def _held_until_over() -> World:
    world = _held_until()
    world.pass_time(99)
    return world


@state("HELD, the children of a fan-out are done")
def _held_fan_out() -> World:
    world = claimed()
    children = (Task(id="T::1", parent="T", depth=1),)
    world.ask(
        c.SpawnSubtasks(T, HOLDER, generation=1, children=children, mode=SpawnMode.FAN_OUT_FAN_IN)
    )
    world.settle()
    world.ask(c.HoldTask(T))
    world.finish("T::1")
    world.settle()
    return world


DONE = content("done").digest


def _approve(generation: int, digest: str = DONE) -> c.Command:
    return c.ApproveReview(T, OPERATOR, generation, digest)


# The commands. "stale" is one generation below the present one, "future" one above.


def _adopt(caller: c.Caller, generation: int | None, *, take_over: bool = False) -> c.Command:
    return c.AdoptResult(
        T,
        caller,
        "T/1/s9/abc",
        generation,
        content("found"),
        "wp-T-gen1-abc",
        1,
        "s9",
        take_over=take_over,
    )


def _submit(caller: c.Caller, generation: int, value: Any = "done") -> c.Command:
    return c.SubmitResult(T, caller, generation=generation, content=content(value))


def _spawn(caller: c.Caller, generation: int, *, keep: bool = False) -> c.Command:
    return c.SpawnSubtasks(
        T,
        caller,
        generation=generation,
        children=(Task(id="T::2", parent="T", depth=1),),
        keep=keep,
    )


def _all_others(record: TaskRecord | None) -> tuple[tuple[str, int], ...]:
    return (("D", 0), *((name, 0) for name in record.children)) if record else (("D", 0),)


def _waiting(record: TaskRecord | None) -> str:
    """The digest of what waits for a review, or else of what was submitted."""
    return record.review.result.digest if record and record.review else DONE


COMMANDS: dict[str, Callable[[TaskRecord | None, int], c.Command]] = {
    "add again": lambda record, g: c.AddTask(T, task=record.task if record else Task(id="T")),
    "add another": lambda record, g: c.AddTask(T, task=Task(id="T", title="another")),
    "edit": lambda record, g: c.EditTask(T, changes={"title": "new"}),
    "edit to wait for D": lambda record, g: c.EditTask(T, changes={"depends_on": ("D",)}),
    "reorder": lambda record, g: c.ReorderTask(T, order=Order.LEAF_FIRST),
    "reorder as it is": lambda record, g: c.ReorderTask(T, order=Order.TRACK),
    "announce": lambda record, g: c.AnnounceChildren(
        T, OPERATOR, children=(Task(id="T::9", parent="T", depth=1),)
    ),
    "claim": lambda record, g: c.ClaimTask(T, HOLDER, 60.0),
    "claim (colleague)": lambda record, g: c.ClaimTask(T, COLLEAGUE, 60.0),
    "claim (stranger)": lambda record, g: c.ClaimTask(T, STRANGER, 60.0),
    "claim (too short)": lambda record, g: c.ClaimTask(T, HOLDER, 0.5),
    "renew": lambda record, g: c.RenewLease(T, HOLDER, g),
    "renew (stranger)": lambda record, g: c.RenewLease(T, STRANGER, g),
    "renew (stale)": lambda record, g: c.RenewLease(T, HOLDER, g - 1),
    "report": lambda record, g: c.ReportProgress(T, HOLDER, g, 0.5, "half", {"usd": 1.0}),
    "report (stranger)": lambda record, g: c.ReportProgress(T, STRANGER, g, 0.5),
    "report (stale)": lambda record, g: c.ReportProgress(T, HOLDER, g - 1, 0.5),
    "report nothing": lambda record, g: c.ReportProgress(T, HOLDER, g),
    "release": lambda record, g: c.ReleaseClaim(T, HOLDER, g),
    "release in error": lambda record, g: c.ReleaseClaim(T, HOLDER, g, ReleaseReason.ERROR),
    "release (stranger)": lambda record, g: c.ReleaseClaim(T, STRANGER, g),
    "release (stale)": lambda record, g: c.ReleaseClaim(T, HOLDER, g - 1),
    "submit": lambda record, g: _submit(HOLDER, g),
    "submit other content": lambda record, g: _submit(HOLDER, g, "other"),
    "submit (stranger)": lambda record, g: _submit(STRANGER, g),
    "submit (stale)": lambda record, g: _submit(HOLDER, g - 1),
    "submit nothing (stale)": lambda record, g: _submit(HOLDER, g - 1, {}),
    "submit (future)": lambda record, g: _submit(HOLDER, g + 1),
    "spawn": lambda record, g: _spawn(HOLDER, g),
    "spawn and keep": lambda record, g: _spawn(HOLDER, g, keep=True),
    "spawn (stranger)": lambda record, g: _spawn(STRANGER, g),
    "spawn (stale)": lambda record, g: _spawn(HOLDER, g - 1),
    "adopt": lambda record, g: _adopt(HOLDER, g),
    "adopt (stranger)": lambda record, g: _adopt(STRANGER, g),
    "adopt (stale)": lambda record, g: _adopt(HOLDER, g - 1),
    "adopt (operator)": lambda record, g: _adopt(OPERATOR, None),
    "adopt (operator by force)": lambda record, g: _adopt(OPERATOR, None, take_over=True),
    "adopt (refused session by force)": lambda record, g: _adopt(REFUSED, None, take_over=True),
    "unlock": lambda record, g: c.ForceRelease(T),
    "unlock by force": lambda record, g: c.ForceRelease(T, take_over=True),
    "assign to bob": lambda record, g: c.AssignTask(T, OPERATOR, agent="bob"),
    "assign to bob by force": lambda record, g: c.AssignTask(
        T, OPERATOR, agent="bob", take_over=True
    ),
    "reset": lambda record, g: c.ResetTask(T),
    "reset by force": lambda record, g: c.ResetTask(T, take_over=True),
    "cancel": lambda record, g: c.CancelTask(T),
    "cancel by force": lambda record, g: c.CancelTask(T, take_over=True),
    "hold": lambda record, g: c.HoldTask(T),
    "reopen": lambda record, g: c.ReopenTask(T),
    "approve": lambda record, g: _approve(g, _waiting(record)),
    "approve (stale)": lambda record, g: _approve(g - 1, _waiting(record)),
    "approve another": lambda record, g: _approve(g, content("other").digest),
    "reject": lambda record, g: c.RejectReview(T, OPERATOR, g, _waiting(record), "too short"),
    "reject (stale)": lambda record, g: c.RejectReview(T, OPERATOR, g - 1, _waiting(record)),
    "reject another": lambda record, g: c.RejectReview(T, OPERATOR, g, content("other").digest),
    "pass": lambda record, g: c.ReportEvaluation(T, STRANGER, g, _waiting(record), "lint", True),
    "fail": lambda record, g: c.ReportEvaluation(T, STRANGER, g, _waiting(record), "lint", False),
    "pass (stale)": lambda record, g: c.ReportEvaluation(
        T, STRANGER, g - 1, _waiting(record), "lint", True
    ),
    "check": lambda record, g: c.CheckDue(T),
    "hear": lambda record, g: c.CheckRelated(T, others=_all_others(record)),
    # What was edited is in the facts, and here nothing was: tests/folder has a test of each edit.
    "observe": lambda record, g: c.ObserveTask(T),
}


# One block a state: `answer [events] state after them, and by how much the generation has risen:
# the commands that are answered so`. Without events nothing has changed. `!` is an exception;
# `+kept` says that the refused result goes to a record of its own. A state that differs little from
# another one says which, and where.

TABLE = """
## absent
DONE [TASK_ADDED] PENDING +0: add again, add another
!TaskNotFound: edit, edit to wait for D, claim, claim (colleague), claim (stranger), claim (too short), renew, renew (stranger),
    renew (stale), release, release in error, release (stranger), release (stale), submit, submit other content, submit (stranger),
    submit (stale), submit nothing (stale), submit (future), spawn, spawn and keep, spawn (stranger), spawn (stale), adopt,
    adopt (stranger), adopt (stale), adopt (operator), adopt (refused session by force), adopt (operator by force), unlock,
    unlock by force, assign to bob, assign to bob by force, reset, reset by force, cancel, cancel by force, hold, reopen, announce,
    report, report (stranger), report (stale), report nothing, approve, approve (stale), approve another, reject, reject (stale), reject another,
    pass, fail, pass (stale)
UNCHANGED: reorder, reorder as it is, check, hear, observe

## PENDING, new
STALE_REVIEW: approve, approve (stale), approve another, reject, reject (stale), reject another, pass, fail, pass (stale)
ANNOUNCED T::9 [CHILDREN_ANNOUNCED] BLOCKED +0: announce
UNCHANGED: add again, reorder as it is, unlock, unlock by force, reopen, check, hear, observe
!TaskExists: add another
DONE [TASK_EDITED] PENDING +0: edit
DONE [TASK_EDITED] BLOCKED +0: edit to wait for D
DONE [TASK_REORDERED] PENDING +0: reorder
GRANTED [CLAIM_ACQUIRED] IN_PROGRESS +1: claim, claim (colleague), claim (stranger)
DENIED_LIMIT: claim (too short)
NO_CLAIM: renew, renew (stranger), release, release in error, release (stranger), spawn, spawn and keep, spawn (stranger), adopt,
    adopt (stranger), report, report (stranger), report nothing
GENERATION_MISMATCH: renew (stale), release (stale), report (stale)
NO_CLAIM +kept: submit, submit other content, submit (stranger)
STALE_GENERATION +kept: submit (stale)
STALE_GENERATION: submit nothing (stale), spawn (stale), adopt (stale)
FUTURE_GENERATION +kept: submit (future)
ACCEPTED [CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator), adopt (operator by force)
DONE [TASK_ASSIGNED] PENDING +0: assign to bob, assign to bob by force
DONE [TASK_RESET] PENDING +1: reset, reset by force
DONE [TASK_CANCELLED] CANCELLED +1: cancel, cancel by force
DONE [TASK_HELD] HELD +0: hold
!NotAllowed: adopt (refused session by force)

## PENDING, released (as PENDING, new, but)

## PENDING, the claim has expired (as PENDING, new, but)
ALREADY_EXPIRED: renew, report, report nothing
SESSION_MISMATCH: renew (stranger), release (stranger), spawn (stranger), adopt (stranger), report (stranger)
RELEASED [CLAIM_RELEASED] PENDING +0: release, release in error
ACCEPTED [RESULT_ACCEPTED] COMPLETED +0: submit, submit other content, adopt
SESSION_MISMATCH +kept: submit (stranger)
ACCEPTED [SUBTASKS_SPAWNED] BLOCKED +0: spawn, spawn and keep
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator), adopt (operator by force)
DONE [CLAIM_SUPERSEDED] PENDING +1: unlock, unlock by force
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] PENDING +1: assign to bob, assign to bob by force

## PENDING, superseded (as PENDING, new, but)
GRANTED [CLAIM_ACQUIRED] IN_PROGRESS +0: claim, claim (colleague), claim (stranger)
ACCEPTED [CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +0: adopt (operator), adopt (operator by force)
DONE [TASK_RESET] PENDING +0: reset, reset by force
DONE [TASK_CANCELLED] CANCELLED +0: cancel, cancel by force

## PENDING, reserved for alice (as PENDING, new, but)
DENIED_ASSIGNED: claim (colleague), claim (stranger)

## PENDING, the reservation for alice is over (as PENDING, new, but)
GRANTED [ASSIGNMENT_LAPSED CLAIM_ACQUIRED] IN_PROGRESS +1: claim, claim (colleague), claim (stranger)
DENIED_LIMIT [ASSIGNMENT_LAPSED] PENDING +0: claim (too short)
DONE [ASSIGNMENT_LAPSED] PENDING +0: check

## PENDING, granted as often as is allowed (as PENDING, new, but)
DENIED_HELD [TASK_HELD] HELD +0: claim, claim (colleague), claim (stranger)

## PENDING, for architects (as PENDING, new, but)
DENIED_ROLE: claim, claim (colleague), claim (stranger), claim (too short)

## PENDING, for architects, one agent works alone (as PENDING, new, but)

## BACKLOG (as PENDING, new, but)
DONE [TASK_EDITED] BACKLOG +0: edit
DONE [TASK_REORDERED] BACKLOG +0: reorder
DONE [TASK_ASSIGNED] BACKLOG +0: assign to bob, assign to bob by force
DONE [TASK_RESET] BACKLOG +1: reset, reset by force
DONE [TASK_REOPENED] PENDING +0: reopen

## BLOCKED by a dependency (as PENDING, new, but)
DONE [TASK_EDITED] BLOCKED +0: edit
UNCHANGED: edit to wait for D
DONE [TASK_REORDERED] BLOCKED +0: reorder
DENIED_BLOCKED: claim, claim (colleague), claim (stranger), claim (too short)
DONE [TASK_ASSIGNED] BLOCKED +0: assign to bob, assign to bob by force
DONE [TASK_RESET] BLOCKED +1: reset, reset by force

## BLOCKED, the dependency is done but nobody has told it (as BLOCKED by a dependency, but)
GRANTED [DEPENDENCY_MET CLAIM_ACQUIRED] IN_PROGRESS +1: claim, claim (colleague), claim (stranger)
DENIED_LIMIT [DEPENDENCY_MET] PENDING +0: claim (too short)
DONE [DEPENDENCY_MET] PENDING +0: check, hear

## BLOCKED by a child (as BLOCKED by a dependency, but)
DONE [TASK_EDITED] BLOCKED +0: edit to wait for D
CHILDREN_UNFINISHED: adopt (operator), adopt (operator by force)

## BLOCKED until its time (as BLOCKED by a dependency, but)
DONE [TASK_EDITED] BLOCKED +0: edit to wait for D

## BLOCKED, its time has come (as BLOCKED until its time, but)
GRANTED [TASK_DUE CLAIM_ACQUIRED] IN_PROGRESS +1: claim, claim (colleague), claim (stranger)
DENIED_LIMIT [TASK_DUE] PENDING +0: claim (too short)
DONE [TASK_DUE] PENDING +0: check

## BLOCKED, the claim has expired (as PENDING, the claim has expired, but)
DONE [TASK_EDITED] BLOCKED +0: edit
UNCHANGED: edit to wait for D
DONE [TASK_REORDERED] BLOCKED +0: reorder
DENIED_BLOCKED: claim, claim (colleague), claim (stranger), claim (too short)
RELEASED [CLAIM_RELEASED] BLOCKED +0: release, release in error
DONE [CLAIM_SUPERSEDED] BLOCKED +1: unlock, unlock by force
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] BLOCKED +1: assign to bob, assign to bob by force
DONE [TASK_RESET] BLOCKED +1: reset, reset by force

## IN_PROGRESS
STALE_REVIEW: approve, approve (stale), approve another, reject, reject (stale), reject another, pass, fail, pass (stale)
ANNOUNCED T::9 [CHILDREN_ANNOUNCED] IN_PROGRESS +0: announce
UNCHANGED: add again, reorder as it is, reopen, check, hear, observe
!TaskExists: add another
DONE [TASK_EDITED] IN_PROGRESS +0: edit, edit to wait for D
DONE [TASK_REORDERED] IN_PROGRESS +0: reorder
GRANTED [LEASE_RENEWED] IN_PROGRESS +0: claim
DENIED_ACTIVE_CLAIM: claim (colleague), claim (stranger)
DENIED_LIMIT: claim (too short)
RENEWED [LEASE_RENEWED] IN_PROGRESS +0: renew
SESSION_MISMATCH: renew (stranger), release (stranger), spawn (stranger), adopt (stranger), report (stranger)
GENERATION_MISMATCH: renew (stale), release (stale), report (stale)
RELEASED [CLAIM_RELEASED] PENDING +0: release, release in error
ACCEPTED [RESULT_ACCEPTED] COMPLETED +0: submit, submit other content, adopt
SESSION_MISMATCH +kept: submit (stranger)
STALE_GENERATION +kept: submit (stale)
STALE_GENERATION: submit nothing (stale), spawn (stale), adopt (stale)
FUTURE_GENERATION +kept: submit (future)
ACCEPTED [SUBTASKS_SPAWNED] BLOCKED +0: spawn
ACCEPTED [SUBTASKS_SPAWNED] IN_PROGRESS +0: spawn and keep
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator by force)
DONE [CLAIM_SUPERSEDED] PENDING +1: unlock by force
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] PENDING +1: assign to bob by force
DONE [TASK_RESET] PENDING +1: reset by force
DONE [TASK_CANCELLED] CANCELLED +1: cancel by force
DONE [TASK_HELD] HELD +0: hold
!LiveClaim: adopt (operator), unlock, assign to bob, reset, cancel
!NotAllowed: adopt (refused session by force)
RECORDED [PROGRESS_REPORTED] IN_PROGRESS +0: report
RECORDED: report nothing

## IN_PROGRESS, the lease is over (as IN_PROGRESS, but)
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator)
DONE [CLAIM_SUPERSEDED] PENDING +1: unlock
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] PENDING +1: assign to bob
DONE [TASK_RESET] PENDING +1: reset
DONE [TASK_CANCELLED] CANCELLED +1: cancel
GRANTED [CLAIM_EXPIRED CLAIM_ACQUIRED] IN_PROGRESS +1: claim, claim (colleague), claim (stranger)
DENIED_LIMIT [CLAIM_EXPIRED] PENDING +0: claim (too short)
ALREADY_EXPIRED: renew, report, report nothing
DONE [CLAIM_EXPIRED] PENDING +0: check

## IN_PROGRESS, the lease is over, within the grace (as IN_PROGRESS, but)

## IN_PROGRESS, the clock has stepped back (as IN_PROGRESS, the lease is over, but)

## IN_PROGRESS, the session has ended (as IN_PROGRESS, the lease is over, but)
!SessionEnded: claim, claim (colleague), claim (too short)
GRANTED [CLAIM_ORPHANED CLAIM_ACQUIRED] IN_PROGRESS +1: claim (stranger)
DONE [CLAIM_ORPHANED] PENDING +0: check

## IN_PROGRESS, the process is gone (as IN_PROGRESS, but)
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator)
DONE [CLAIM_SUPERSEDED] PENDING +1: unlock
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] PENDING +1: assign to bob
DONE [TASK_RESET] PENDING +1: reset
DONE [TASK_CANCELLED] CANCELLED +1: cancel
GRANTED [CLAIM_ORPHANED CLAIM_ACQUIRED] IN_PROGRESS +1: claim (stranger)
DONE [CLAIM_ORPHANED] PENDING +0: check

## IN_PROGRESS, silent for long (as IN_PROGRESS, but)
DONE [CLAIM_STALE] IN_PROGRESS +0: check

## IN_PROGRESS, the lease is over, a person decides (as IN_PROGRESS, the lease is over, but)
DENIED_HELD [CLAIM_EXPIRED TASK_HELD] HELD +0: claim, claim (colleague), claim (stranger), claim (too short)
DONE [CLAIM_EXPIRED TASK_HELD] HELD +0: check

## IN_PROGRESS, the lease is over for the second time of two (as IN_PROGRESS, the lease is over, a person decides, but)
RELEASED [CLAIM_RELEASED TASK_HELD] HELD +0: release in error

## IN_PROGRESS, both the lease and the reservation are over (as IN_PROGRESS, the lease is over, but)
GRANTED [CLAIM_EXPIRED ASSIGNMENT_LAPSED CLAIM_ACQUIRED] IN_PROGRESS +1: claim, claim (colleague), claim (stranger)
DENIED_LIMIT [CLAIM_EXPIRED ASSIGNMENT_LAPSED] PENDING +0: claim (too short)
DONE [CLAIM_EXPIRED ASSIGNMENT_LAPSED] PENDING +0: check

## IN_PROGRESS, the reservation is over (as IN_PROGRESS, but)

## IN_PROGRESS, with a child (as IN_PROGRESS, but)
RELEASED [CLAIM_RELEASED] BLOCKED +0: release, release in error
CHILDREN_UNFINISHED +kept: submit, submit other content
CHILDREN_UNFINISHED: adopt, adopt (operator by force)
DONE [CLAIM_SUPERSEDED] BLOCKED +1: unlock by force
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] BLOCKED +1: assign to bob by force
DONE [TASK_RESET] BLOCKED +1: reset by force

## IN_PROGRESS, the dependency has been reset (as IN_PROGRESS, with a child, but)
UNCHANGED: edit to wait for D
ACCEPTED [RESULT_ACCEPTED] COMPLETED +0: submit, submit other content, adopt
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator by force)

## IN_PROGRESS, without a lease (as IN_PROGRESS, but)

## IN_PROGRESS, without a lease, the clock has stepped back (as IN_PROGRESS, without a lease, but)

## IN_PROGRESS, without a lease, the session has ended (as IN_PROGRESS, the session has ended, but)

## IN_PROGRESS, without a lease, the process is gone (as IN_PROGRESS, the process is gone, but)

## IN_PROGRESS, without a lease, the session has ended, a person decides (as IN_PROGRESS, the session has ended, but)
DENIED_HELD [CLAIM_ORPHANED TASK_HELD] HELD +0: claim (stranger)
DONE [CLAIM_ORPHANED TASK_HELD] HELD +0: check

## IN_PROGRESS, without a lease, a fleet since (as IN_PROGRESS, but)

## IN_PROGRESS, with a lease, one agent works alone since (as IN_PROGRESS, but)

## IN_PROGRESS, the lease is over, one agent works alone since (as IN_PROGRESS, the lease is over, but)

## IN_PROGRESS, a person must look at the result (as IN_PROGRESS, but)
CONVERGENCE_ESCALATED [CONVERGENCE_ESCALATED] IN_REVIEW +0: submit, submit other content, adopt
CONVERGENCE_ESCALATED [CLAIM_SUPERSEDED CLAIM_ACQUIRED CONVERGENCE_ESCALATED] IN_REVIEW +1: adopt (operator by force)

## IN_REVIEW (as PENDING, new, but)
DONE [TASK_EDITED] IN_REVIEW +0: edit, edit to wait for D
DONE [TASK_REORDERED] IN_REVIEW +0: reorder
ANNOUNCED T::9 [CHILDREN_ANNOUNCED] IN_REVIEW +0: announce
DENIED_HELD: claim, claim (colleague), claim (stranger), claim (too short)
CONVERGENCE_ESCALATED: submit
TASK_ALREADY_COMPLETED +kept: submit other content, submit (stranger)
TASK_ALREADY_COMPLETED: spawn, spawn and keep, spawn (stranger), adopt, adopt (stranger)
!NotAllowed: adopt (operator), adopt (operator by force), hold
DONE [TASK_ASSIGNED] IN_REVIEW +0: assign to bob, assign to bob by force
DONE [REVIEW_REJECTED TASK_RESET] PENDING +1: reset, reset by force
DONE [REVIEW_REJECTED TASK_CANCELLED] CANCELLED +1: cancel, cancel by force
APPROVED [RESULT_ACCEPTED] COMPLETED +0: approve
REJECTED [REVIEW_REJECTED] PENDING +1: reject
!BadArgument: pass, fail

## IN_REVIEW, of an adopted result (as IN_REVIEW, but)
TASK_ALREADY_COMPLETED +kept: submit
CONVERGENCE_ESCALATED: adopt, adopt (stranger), adopt (stale), adopt (operator), adopt (operator by force),
    adopt (refused session by force)

## IN_REVIEW, an evaluator has not passed (as IN_REVIEW, but)
EVALUATED [EVALUATION_REPORTED RESULT_ACCEPTED] COMPLETED +0: pass
EVALUATED [EVALUATION_REPORTED] IN_REVIEW +0: fail

## IN_REVIEW, with a child that was added since (as IN_REVIEW, but)
DONE [REVIEW_REJECTED TASK_RESET] BLOCKED +1: reset, reset by force
CHILDREN_UNFINISHED: approve
REJECTED [REVIEW_REJECTED] BLOCKED +1: reject

## PENDING, its result was rejected (as PENDING, superseded, but)
CONVERGENCE_ESCALATED [CLAIM_ACQUIRED CONVERGENCE_ESCALATED] IN_REVIEW +0: adopt (operator), adopt (operator by force)
REJECTED: reject (stale)

## COMPLETED
STALE_REVIEW: approve, approve (stale), approve another, reject, reject (stale), reject another, pass, fail, pass (stale)
ANNOUNCED T::9 [CHILDREN_ANNOUNCED] COMPLETED +0: announce
UNCHANGED: add again, reorder as it is, unlock, unlock by force, check, hear, observe
!TaskExists: add another
DONE [TASK_EDITED] COMPLETED +0: edit, edit to wait for D
DONE [TASK_REORDERED] COMPLETED +0: reorder
DENIED_COMPLETED: claim, claim (colleague), claim (stranger), claim (too short)
NO_CLAIM: renew, renew (stranger), release, release in error, release (stranger), report, report (stranger), report nothing
GENERATION_MISMATCH: renew (stale), release (stale), report (stale)
ACCEPTED: submit
TASK_ALREADY_COMPLETED +kept: submit other content, submit (stranger)
STALE_GENERATION +kept: submit (stale)
STALE_GENERATION: submit nothing (stale), spawn (stale), adopt (stale)
FUTURE_GENERATION +kept: submit (future)
TASK_ALREADY_COMPLETED: spawn, spawn and keep, spawn (stranger), adopt, adopt (stranger)
!NotAllowed: adopt (operator), adopt (operator by force), assign to bob, assign to bob by force, cancel, cancel by force, hold, reopen
DONE [TASK_RESET] PENDING +1: reset, reset by force
!NotAllowed: adopt (refused session by force)

## COMPLETED by its children (as COMPLETED, but)
TASK_ALREADY_COMPLETED +kept: submit

## COMPLETED after a review (as COMPLETED, but)
APPROVED: approve
EVALUATED: pass

## CANCELLED (as COMPLETED by its children, but)
ANNOUNCED T::9 [CHILDREN_ANNOUNCED] CANCELLED +0: announce
DONE [TASK_EDITED] CANCELLED +0: edit, edit to wait for D
DONE [TASK_REORDERED] CANCELLED +0: reorder
DONE [TASK_RESET] PENDING +0: reset, reset by force
UNCHANGED: cancel, cancel by force

## CANCELLED from the backlog (as CANCELLED, but)
DONE [TASK_RESET] BACKLOG +0: reset, reset by force

## HELD (as PENDING, new, but)
ANNOUNCED T::9 [CHILDREN_ANNOUNCED] HELD +0: announce
DONE [TASK_EDITED] HELD +0: edit, edit to wait for D
DONE [TASK_REORDERED] HELD +0: reorder
DENIED_HELD: claim, claim (colleague), claim (stranger), claim (too short)
DONE [TASK_ASSIGNED] HELD +0: assign to bob, assign to bob by force
UNCHANGED: hold
DONE [TASK_REOPENED] PENDING +0: reopen

## HELD, with a live claim
STALE_REVIEW: approve, approve (stale), approve another, reject, reject (stale), reject another, pass, fail, pass (stale)
ANNOUNCED T::9 [CHILDREN_ANNOUNCED] HELD +0: announce
UNCHANGED: add again, reorder as it is, hold, check, hear, observe
!TaskExists: add another
DONE [TASK_EDITED] HELD +0: edit, edit to wait for D
DONE [TASK_REORDERED] HELD +0: reorder
DENIED_HELD: claim, claim (colleague), claim (stranger), claim (too short)
RENEWED [LEASE_RENEWED] HELD +0: renew
SESSION_MISMATCH: renew (stranger), release (stranger), spawn (stranger), adopt (stranger), report (stranger)
GENERATION_MISMATCH: renew (stale), release (stale), report (stale)
RELEASED [CLAIM_RELEASED] HELD +0: release, release in error
ACCEPTED [RESULT_ACCEPTED] COMPLETED +0: submit, submit other content, adopt
SESSION_MISMATCH +kept: submit (stranger)
STALE_GENERATION +kept: submit (stale)
STALE_GENERATION: submit nothing (stale), spawn (stale), adopt (stale)
FUTURE_GENERATION +kept: submit (future)
ACCEPTED [SUBTASKS_SPAWNED] HELD +0: spawn, spawn and keep
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator by force)
DONE [CLAIM_SUPERSEDED] HELD +1: unlock by force
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] HELD +1: assign to bob by force
DONE [TASK_RESET] PENDING +1: reset by force
DONE [TASK_CANCELLED] CANCELLED +1: cancel by force
DONE [TASK_REOPENED] IN_PROGRESS +0: reopen
!LiveClaim: adopt (operator), unlock, assign to bob, reset, cancel
!NotAllowed: adopt (refused session by force)
RECORDED [PROGRESS_REPORTED] HELD +0: report
RECORDED: report nothing

## HELD, with a claim without a lease (as HELD, with a live claim, but)

## HELD, with a claim whose lease is over (as HELD, with a live claim, but)
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator)
DONE [CLAIM_SUPERSEDED] HELD +1: unlock
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] HELD +1: assign to bob
DONE [TASK_RESET] PENDING +1: reset
DONE [TASK_CANCELLED] CANCELLED +1: cancel
DENIED_HELD [CLAIM_EXPIRED] HELD +0: claim, claim (colleague), claim (stranger), claim (too short)
ALREADY_EXPIRED: renew, report, report nothing
DONE [CLAIM_EXPIRED] HELD +0: check

## HELD for a while, with an expired claim (as HELD, with a live claim, but)
ACCEPTED [CLAIM_SUPERSEDED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: adopt (operator)
DONE [CLAIM_SUPERSEDED] HELD +1: unlock
DONE [CLAIM_SUPERSEDED TASK_ASSIGNED] HELD +1: assign to bob
DONE [TASK_RESET] PENDING +1: reset
DONE [TASK_CANCELLED] CANCELLED +1: cancel
ALREADY_EXPIRED: renew, report, report nothing
DONE [TASK_REOPENED] PENDING +0: reopen
DONE [TASK_HELD] HELD +0: hold

## HELD for a while that is over (as HELD, with a claim whose lease is over, but)
GRANTED [TASK_REOPENED CLAIM_ACQUIRED] IN_PROGRESS +1: claim, claim (colleague), claim (stranger)
DENIED_LIMIT [TASK_REOPENED] PENDING +0: claim (too short)
DONE [TASK_REOPENED] PENDING +0: reopen, check
DONE [TASK_HELD] HELD +0: hold

## HELD, the children of a fan-out are done (as HELD, but)
DONE [TASK_REOPENED CLAIM_ACQUIRED RESULT_ACCEPTED] COMPLETED +1: reopen
"""


def shown(world: World, command: c.Command) -> str:
    """What a command brings, as the table says it."""
    before = world.cell(command.key).record
    try:
        decision = world.decide(command)
    except GenlockError as error:
        return f"!{type(error).__name__}"
    answer = answer_of(decision)
    if not decision.events:
        assert decision.record is None or decision.record == before
        return answer
    after = decision.record
    risen = after.generation - (before.generation if isinstance(before, TaskRecord) else 0)
    return f"{answer} [{' '.join(tag(event) for event in decision.events)}] {after.state} +{risen}"


def answer_of(decision: Decision) -> str:
    outcome = decision.outcome
    if isinstance(outcome, tuple):
        return f"ANNOUNCED {' '.join(outcome)}".rstrip()
    answer = str(getattr(outcome, "reason", None) or getattr(outcome, "verdict", None) or outcome)
    return answer + " +kept" * sum(
        isinstance(followups, c.KeepRefused) for followups in decision.followups
    )


def tag(event: Any) -> str:
    return str(event.__struct_config__.tag)


def outcomes(name: str) -> dict[str, str]:
    """What each command brings in this state."""
    found = {}
    for command, make in COMMANDS.items():
        world = STATES[name]()
        record = world.cell(T).record
        assert record is None or isinstance(record, TaskRecord)
        found[command] = shown(world, make(record, record.generation if record else 0))
    return found


def written(name: str, found: dict[str, str], base: str = "") -> str:
    """A block as the table would have it."""
    lines: dict[str, list[str]] = {}
    for command, answer in found.items():
        lines.setdefault(answer, []).append(command)
    text = [wrapped(f"{answer}: {', '.join(commands)}") for answer, commands in lines.items()]
    return "\n".join([f"## {name}" + (f" (as {base}, but)" if base else ""), *text])


def wrapped(line: str) -> str:
    """Broken between commands, not within their names."""
    glued = re.sub(r"(?<!,) ", "\xa0", line)
    return textwrap.fill(glued, 136, subsequent_indent="    ").replace("\xa0", " ")


def read_table(table: str) -> dict[str, dict[str, str]]:
    """Command and answer of every cell, by state."""
    read: dict[str, dict[str, str]] = {}
    for block in table.strip().split("## ")[1:]:
        heading, *lines = block.strip().replace("\n    ", " ").splitlines()
        name, _, base = heading.removesuffix(", but)").partition(" (as ")
        assert name not in read, f"{name} stands twice in the table"
        read[name] = dict(read[base]) if base else {}
        for line in lines:
            answer, _, commands = line.partition(": ")
            for command in commands.split(", "):
                assert base or command not in read[name], f"{name}: {command} stands twice"
                read[name][command] = answer
    return read


EXPECTED = read_table(TABLE)


# The other records. After the events: what is special to the record.


S, R, N = key_of("s1", keys.SESSION), key_of("T/1/s1/abc", keys.REFUSED), key_of("T", keys.COUNTER)
P, A, M = (
    key_of("shop", keys.PROJECT),
    key_of("host-1/20260104T06", keys.ACCESS),
    key_of("settled", keys.SETTLED),
)
F = key_of("AUTH", keys.FEATURE)
TENANT = keys.tenant_key("acme")
K = keys.access_key("abcdefgh2345")
CREATE = c.CreateKey(K, name="ci", tenant="acme", role=Role.AGENT, digest="first")
LAPTOP = c.Caller("s1", "alice", process=Process("laptop", "boot", 7, 100))
KEEP = c.KeepRefused(R, HOLDER, "T", 1, 2, "STALE_GENERATION", content("late"), "wp-T-gen1-abc")
OF_REVIEW = replace(KEEP, reason=REVIEW_REJECTED)
MANIFEST = Manifest("alice", 1, (Product("a", "0" * 64, 1),))
OTHER_MANIFEST = Manifest("alice", 1, (Product("a", "1" * 64, 1),))
Q = key_of("T/3", keys.PROMOTION)
REQUEST = c.RequestPromotion(Q, task="T", generation=3, manifest=MANIFEST, accepted_at=START)
COMPLETE = c.SettlePromotion(Q, digest=digest_of(MANIFEST))
FAIL = replace(COMPLETE, failure="torn")
DENIED = c.Denial("T", "s2", "bob", "DENIED_BLOCKED", 3, START)
DENIED_ALSO = c.Denial("T", "s2", "bob", "DENIED_HELD", 1, START)

_SESSION_COMMANDS: dict[str, c.Command] = {
    "register": c.RegisterSession(S, HOLDER),
    "register with more": c.RegisterSession(S, LAPTOP, agent_type="coder", metadata={"a": 1}),
    "register by a claim": c.RegisterSession(S, HOLDER, implied=True),
    "heartbeat": c.HeartbeatSession(S, HOLDER, metadata={"b": 2}),
    "end": c.EndSession(S, HOLDER),
}
_REFUSED_COMMANDS: dict[str, c.Command] = {
    "keep": KEEP,
    "keep what a review rejected": OF_REVIEW,
    "adopt": c.MarkAdopted(R),
    "discard": c.DiscardRefused(R),
}
_PROMOTION_COMMANDS: dict[str, c.Command] = {
    "request": REQUEST,
    "request with another manifest": replace(REQUEST, manifest=OTHER_MANIFEST, generation=4),
    "complete": COMPLETE,
    "complete but for a path": replace(COMPLETE, superseded=("a",)),
    "complete another manifest": replace(COMPLETE, digest=digest_of(OTHER_MANIFEST)),
    "fail": FAIL,
    "fail for another reason": replace(FAIL, failure="gone"),
    "fail another manifest": replace(FAIL, digest=digest_of(OTHER_MANIFEST)),
}
_COUNTER_COMMANDS: dict[str, c.Command] = {
    f"take {n}": c.TakeIds(N, prefix="T", count=n) for n in (1, 3, 0)
}
_PROJECT_COMMANDS: dict[str, c.Command] = {
    "make sure of": c.ChangeProject(P),
    "hold dependents": c.ChangeProject(P, policy={"cancelled_dependency": "hold"}),
    "unknown key": c.ChangeProject(P, policy={"colour": "red"}),
    "wrong value": c.ChangeProject(P, policy={"grace_seconds": "long"}),
    "below zero": c.ChangeProject(P, policy={"grace_seconds": -1}),
    "tracks": c.ChangeProject(P, tracks={"A": "All"}),
    "hear of the epoch": c.NoteEpoch(P),
}
_TENANT_COMMANDS: dict[str, c.Command] = {
    "make sure of": c.ChangeTenant(TENANT),
    "profile default": c.ChangeTenant(TENANT, profile="default"),
    "profile unknown": c.ChangeTenant(TENANT, profile="huge"),
    "at most 7 claims": c.ChangeTenant(TENANT, limits={"max_concurrent_claims": 7}),
    "unknown limit": c.ChangeTenant(TENANT, limits={"max_colours": 7}),
}
_ACCESS_COMMANDS: dict[str, c.Command] = {
    "note": c.NoteDenials(A, denials=(DENIED,)),
    "note two": c.NoteDenials(A, denials=(DENIED, DENIED_ALSO)),
}
_SETTLED_COMMANDS: dict[str, c.Command] = {
    "move from the start": c.MoveSettled(M, cursor="c2"),
    "move from c1": c.MoveSettled(M, cursor="c2", seen="c1"),
    "stay": c.MoveSettled(M, cursor="c1", seen="c1"),
}
_FEATURE_COMMANDS: dict[str, c.Command] = {
    "count no task": c.CountTasks(F, others=(("nowhere", 1),)),
}

_KEY_COMMANDS: dict[str, c.Command] = {
    "create": CREATE,
    "create of another secret": replace(CREATE, digest="other"),
    "create everywhere": replace(CREATE, tenant="*"),
    "create for an observer's session": replace(CREATE, role=Role.OBSERVER, session="s1"),
    "create an admin of some projects": replace(CREATE, role=Role.ADMIN, projects="team-*"),
    "create ended": replace(CREATE, expires_at=START),
    "create with two ends": replace(
        CREATE, expires_at=START + timedelta(days=1), expires_in_seconds=1
    ),
    "create for no time": replace(CREATE, expires_in_seconds=0),
    "rotate": c.RotateKey(K, tenant="acme", digest="second"),
    "rotate as anyone's": c.RotateKey(K, tenant="*", digest="second"),
    "rotate to the same": c.RotateKey(K, tenant="acme", digest="first"),
    "rotate with an overlap": c.RotateKey(K, tenant="acme", digest="second", overlap_seconds=60),
    "rotate with a long overlap": c.RotateKey(
        K, tenant="acme", digest="second", overlap_seconds=86_401
    ),
    "rotate for a minute": c.RotateKey(K, tenant="acme", digest="second", expires_in_seconds=60),
    "rotate another's": c.RotateKey(K, tenant="umbrella", digest="second"),
    "revoke": c.RevokeKey(K, tenant="acme"),
    "revoke as anyone's": c.RevokeKey(K, tenant="*"),
    "revoke another's": c.RevokeKey(K, tenant="umbrella"),
}

OTHER_STATES: dict[str, tuple[tuple[c.Command, ...], dict[str, c.Command]]] = {
    "session, absent": ((), _SESSION_COMMANDS),
    "session, active": ((c.RegisterSession(S, HOLDER),), _SESSION_COMMANDS),
    "session, ended": ((c.RegisterSession(S, HOLDER), c.EndSession(S, HOLDER)), _SESSION_COMMANDS),
    "refused, absent": ((), _REFUSED_COMMANDS),
    "refused, kept": ((KEEP,), _REFUSED_COMMANDS),
    "refused, adopted": ((KEEP, c.MarkAdopted(R)), _REFUSED_COMMANDS),
    "refused, discarded": ((KEEP, c.DiscardRefused(R)), _REFUSED_COMMANDS),
    "refused, rejected by a review and discarded": (
        (OF_REVIEW, c.DiscardRefused(R)),
        _REFUSED_COMMANDS,
    ),
    "promotion, absent": ((), _PROMOTION_COMMANDS),
    "promotion, pending": ((REQUEST,), _PROMOTION_COMMANDS),
    "promotion, failed": ((REQUEST, FAIL), _PROMOTION_COMMANDS),
    "promotion, promoted": ((REQUEST, COMPLETE), _PROMOTION_COMMANDS),
    "counter, absent": ((), _COUNTER_COMMANDS),
    "counter at 7": ((c.TakeIds(N, prefix="T", count=7),), _COUNTER_COMMANDS),
    "project, absent": ((), _PROJECT_COMMANDS),
    "project, holds dependents": (
        (c.ChangeProject(P, policy={"cancelled_dependency": "hold"}),),
        _PROJECT_COMMANDS,
    ),
    "tenant, absent": ((), _TENANT_COMMANDS),
    "tenant, default": ((c.ChangeTenant(TENANT, profile="default"),), _TENANT_COMMANDS),
    "denials, none": ((), _ACCESS_COMMANDS),
    "denials, some": ((c.NoteDenials(A, denials=(DENIED,)),), _ACCESS_COMMANDS),
    "settled, absent": ((), _SETTLED_COMMANDS),
    "settled at c1": ((c.MoveSettled(M, cursor="c1"),), _SETTLED_COMMANDS),
    "feature, absent": ((), _FEATURE_COMMANDS),
    "key, absent": ((), _KEY_COMMANDS),
    "key, active": ((CREATE,), _KEY_COMMANDS),
    "key, rotated": (
        (CREATE, c.RotateKey(K, tenant="acme", digest="third", overlap_seconds=60)),
        _KEY_COMMANDS,
    ),
    "key, expired": ((replace(CREATE, expires_in_seconds=0.5),), _KEY_COMMANDS),
    "key, revoked": ((CREATE, c.RevokeKey(K, tenant="acme")), _KEY_COMMANDS),
}

OTHERS = """
## session, absent
DONE [SESSION_REGISTERED] heard 1 - {}: register, register by a claim
DONE [SESSION_REGISTERED] heard 1 coder {"a":1}: register with more
!SessionNotFound: heartbeat, end

## session, active
UNCHANGED: register, register by a claim
DONE [SESSION_REGISTERED] heard 1 coder {"a":1}: register with more
DONE [SESSION_HEARTBEAT] heard 1 - {"b":2}: heartbeat
DONE [SESSION_ENDED] heard 0 - {} ended: end

## session, ended
!SessionEnded: register, register with more, heartbeat
UNCHANGED: register by a claim, end

## refused, absent
KEPT [RESULT_REJECTED] KEPT "late": keep, keep what a review rejected
!ResultNotFound: adopt, discard

## refused, kept
KEPT: keep, keep what a review rejected
DONE [RESULT_ADOPTED] ADOPTED "late": adopt
DISCARDED [RESULT_DISCARDED] DISCARDED null: discard

## refused, adopted
ADOPTED: keep, keep what a review rejected
UNCHANGED: adopt
!NotAllowed: discard

## refused, discarded
KEPT [RESULT_REJECTED] KEPT "late": keep, keep what a review rejected
DISCARDED: discard
UNCHANGED: adopt

## refused, rejected by a review and discarded
KEPT [RESULT_REJECTED] KEPT "late": keep
DISCARDED: keep what a review rejected, discard
UNCHANGED: adopt

## promotion, absent
PENDING [PROMOTION_REQUESTED] T/3 PENDING 0: request
PENDING [PROMOTION_REQUESTED] T/4 PENDING 1: request with another manifest
!PromotionNotFound: complete, complete but for a path, complete another manifest, fail,
    fail for another reason, fail another manifest

## promotion, pending
PENDING: request, request with another manifest
PROMOTED [PROMOTION_COMPLETED] T/3 PROMOTED 0: complete
PROMOTED [PROMOTION_COMPLETED] T/3 PROMOTED a 0: complete but for a path
FAILED [PROMOTION_FAILED] T/3 FAILED torn 0: fail
FAILED [PROMOTION_FAILED] T/3 FAILED gone 0: fail for another reason
!NotAllowed: complete another manifest, fail another manifest

## promotion, failed
FAILED: request, request with another manifest, fail
PROMOTED [PROMOTION_COMPLETED] T/3 PROMOTED 0: complete
PROMOTED [PROMOTION_COMPLETED] T/3 PROMOTED a 0: complete but for a path
FAILED [PROMOTION_FAILED] T/3 FAILED gone 0: fail for another reason
!NotAllowed: complete another manifest, fail another manifest

## promotion, promoted
PROMOTED: request, request with another manifest, complete, complete but for a path, fail,
    fail for another reason
!NotAllowed: complete another manifest, fail another manifest

## counter, absent
1 [IDS_TAKEN] T 1: take 1
3 [IDS_TAKEN] T 3: take 3
!BadArgument: take 0

## counter at 7
8 [IDS_TAKEN] T 8: take 1
10 [IDS_TAKEN] T 10: take 3
!BadArgument: take 0

## project, absent
SETTINGS [PROJECT_CHANGED] met: make sure of
SETTINGS [PROJECT_CHANGED] hold: hold dependents
!BadArgument: unknown key, wrong value, below zero
SETTINGS [PROJECT_CHANGED] met A=All: tracks
UNCHANGED: hear of the epoch

## project, holds dependents
SETTINGS: make sure of, hold dependents
!BadArgument: unknown key, wrong value, below zero
SETTINGS [PROJECT_CHANGED] hold A=All: tracks
UNCHANGED: hear of the epoch

## tenant, absent
SETTINGS [TENANT_CHANGED] acme local None: make sure of
SETTINGS [TENANT_CHANGED] acme default 100: profile default
!BadArgument: profile unknown, unknown limit
SETTINGS [TENANT_CHANGED] acme local 7: at most 7 claims

## tenant, default
SETTINGS: make sure of, profile default
!BadArgument: profile unknown, unknown limit
SETTINGS [TENANT_CHANGED] acme default 7: at most 7 claims

## denials, none
DONE [CLAIM_DENIED] DENIED_BLOCKED=3: note
DONE [CLAIM_DENIED CLAIM_DENIED] DENIED_BLOCKED=3 DENIED_HELD=1: note two

## denials, some
DONE [CLAIM_DENIED] DENIED_BLOCKED=6: note
DONE [CLAIM_DENIED CLAIM_DENIED] DENIED_BLOCKED=6 DENIED_HELD=1: note two

## settled, absent
DONE [SETTLED] c2: move from the start, move from c1
DONE [SETTLED] c1: stay

## settled at c1
UNCHANGED: move from the start, stay
DONE [SETTLED] c2: move from c1

## feature, absent
UNCHANGED: count no task

## key, absent
SETTINGS [KEY_CREATED] agent first: create
SETTINGS [KEY_CREATED] agent other: create of another secret
!BadArgument: create everywhere, create for an observer's session, create an admin of some projects, create ended, create with two ends,
    create for no time
!KeyNotFound: rotate, rotate as anyone's, rotate to the same, rotate with an overlap, rotate with a long overlap, rotate for a minute,
    rotate another's, revoke, revoke as anyone's, revoke another's

## key, active
SETTINGS: create, create ended, create with two ends, create for no time, rotate to the same
!NotAllowed: create of another secret
!BadArgument: create everywhere, create for an observer's session, create an admin of some projects, rotate with a long overlap
SETTINGS [KEY_ROTATED] agent second: rotate, rotate as anyone's
SETTINGS [KEY_ROTATED] agent second first until 61: rotate with an overlap
SETTINGS [KEY_ROTATED] agent second ends 61: rotate for a minute
!KeyNotFound: rotate another's, revoke another's
SETTINGS [KEY_REVOKED] agent first revoked: revoke, revoke as anyone's

## key, rotated
!NotAllowed: create, create of another secret, create ended, create with two ends, create for no time
!BadArgument: create everywhere, create for an observer's session, create an admin of some projects, rotate with a long overlap
SETTINGS [KEY_ROTATED] agent second: rotate, rotate as anyone's
SETTINGS [KEY_ROTATED] agent first: rotate to the same
SETTINGS [KEY_ROTATED] agent second third until 61: rotate with an overlap
SETTINGS [KEY_ROTATED] agent second ends 61: rotate for a minute
!KeyNotFound: rotate another's, revoke another's
SETTINGS [KEY_REVOKED] agent third revoked: revoke, revoke as anyone's

## key, expired
SETTINGS: create, create ended, create with two ends, create for no time, rotate to the same
!NotAllowed: create of another secret, rotate, rotate as anyone's, rotate with an overlap
!BadArgument: create everywhere, create for an observer's session, create an admin of some projects, rotate with a long overlap
SETTINGS [KEY_ROTATED] agent second ends 61: rotate for a minute
!KeyNotFound: rotate another's, revoke another's
SETTINGS [KEY_REVOKED] agent first ends 0.5 revoked: revoke, revoke as anyone's

## key, revoked
SETTINGS: create, create ended, create with two ends, create for no time, revoke, revoke as anyone's
!NotAllowed: create of another secret, rotate, rotate as anyone's, rotate to the same, rotate with an overlap,
    rotate with a long overlap, rotate for a minute
!BadArgument: create everywhere, create for an observer's session, create an admin of some projects
!KeyNotFound: rotate another's, revoke another's
"""


def other_outcomes(name: str) -> dict[str, str]:
    so_far, commands = OTHER_STATES[name]
    found = {}
    for label, command in commands.items():
        world = World()
        for earlier in so_far:
            world.ask(earlier)
        world.pass_time(1)
        found[label] = shown_other(world, command)
    return found


def shown_other(world: World, command: c.Command) -> str:
    before = world.cell(command.key).record
    try:
        decision = world.ask(command)
    except GenlockError as error:
        return f"!{type(error).__name__}"
    after = world.cell(command.key).record
    stated = (RefusedRecord, PromotionRecord)
    outcome = decision.outcome.state if isinstance(decision.outcome, stated) else decision.outcome
    outcome = outcome if isinstance(outcome, (str, int)) else "SETTINGS"
    if not decision.events:
        assert after == before
        return str(outcome)
    assert after is not None
    return f"{outcome} [{' '.join(tag(event) for event in decision.events)}] {summary(after)}"


def summary(record: Record) -> str:
    """What is special to a record, in a few words."""
    match record:
        case SessionRecord():
            ended = " ended" if record.ended_at else ""
            return (
                f"heard {_second(record.heartbeat_at)} {record.agent_type or '-'} "
                f"{msgspec.json.encode(record.metadata).decode()}{ended}"
            )
        case RefusedRecord():
            return f"{record.state} {bytes(record.data).decode()}"
        case PromotionRecord():
            words = [record.state, record.reason, *record.superseded]
            files = [each.sha256[0] for each in record.manifest.files]
            return " ".join([f"{record.task}/{record.generation}", *filter(None, words), *files])
        case CounterRecord():
            return f"{record.prefix} {record.value}"
        case ProjectRecord():
            tracks = record.tracks or {}
            return " ".join(
                [
                    record.policy.cancelled_dependency,
                    *(f"{track}={purpose}" for track, purpose in tracks.items()),
                ]
            )
        case TenantRecord():
            return f"{record.id} {record.profile} {record.limits.max_concurrent_claims}"
        case AccessRecord():
            return " ".join(f"{reason}={count}" for reason, count in record.denials.items())
        case SettledRecord():
            return record.cursor
        case FeatureRecord():
            return f"{record.name} {len(record.unfinished)}"
        case KeyRecord():
            before = (
                f" {record.previous} until {_second(record.previous_until)}"
                if record.previous
                else ""
            )
            end = f" ends {_second(record.expires_at)}" if record.expires_at else ""
            return f"{record.role} {record.digest}{before}{end}{' revoked' if record.revoked_at else ''}"
        case TaskRecord():
            return record.state


def _second(instant: datetime | None) -> str:
    return "never" if instant is None else f"{(instant - START).total_seconds():g}"


EXPECTED_OTHERS = read_table(OTHERS)


@pytest.mark.parametrize("name", OTHER_STATES)
def test_every_other_record_answers_as_its_table_says(name: str) -> None:
    found = other_outcomes(name)
    assert name in EXPECTED_OTHERS, f"the table lacks a state; it would be\n{written(name, found)}"
    assert found == EXPECTED_OTHERS[name]


def test_the_other_table_has_every_state_and_no_other() -> None:
    assert list(EXPECTED_OTHERS) == list(OTHER_STATES)


def test_the_two_tables_have_every_command_there_is() -> None:
    asked = {
        type(command) for _, commands in OTHER_STATES.values() for command in commands.values()
    }
    asked |= {type(make(None, 0)) for make in COMMANDS.values()}
    assert asked == {*c.Command.__subclasses__(), *c.CheckRelated.__subclasses__()}


@pytest.mark.parametrize("name", STATES)
def test_in_this_state_every_command_is_answered_as_the_table_says(name: str) -> None:
    found = outcomes(name)
    assert name in EXPECTED, f"the table lacks a state; it would be\n{written(name, found)}"
    assert found == EXPECTED[name]


def test_the_table_has_every_state_and_every_command_and_nothing_else() -> None:
    assert list(EXPECTED) == list(STATES)
    assert {name: set(block) for name, block in EXPECTED.items()} == {
        name: set(COMMANDS) for name in STATES
    }


def test_the_states_of_the_table_are_all_that_a_task_can_be_in() -> None:
    records = [build().cell(T).record for build in STATES.values()]
    assert {record.state for record in records if isinstance(record, TaskRecord)} == set(Status)
    assert {
        record.claim.state for record in records if isinstance(record, TaskRecord) and record.claim
    } == {
        ClaimState.ACTIVE,
        ClaimState.EXPIRED,
    }


def test_the_commands_of_the_table_are_all_that_can_be_asked_of_a_task() -> None:
    assert {type(make(None, 0)) for make in COMMANDS.values()} == set(get_args(c.TaskCommand))
