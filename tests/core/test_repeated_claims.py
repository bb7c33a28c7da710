"""A claim of what the caller's own session holds already."""

from __future__ import annotations

from genlock.core import commands as c
from genlock.core.decision import Decision
from genlock.core.events import LeaseRenewed
from genlock.core.reasons import ClaimReason, ReleaseAnswer
from tests.core.world import World, by, key_of

T = key_of("T")


def held() -> World:
    """A task that agent a1 of session s1 holds, by operation op."""
    world = World()
    world.add("T")
    assert world.ask(c.ClaimTask(T, by("s1", "a1"), operation="op")).outcome.success
    return world


def noted(decision: Decision) -> bool:
    """Is the repeat written, so that a service which granted the claim to nobody sees it?"""
    return [type(event) for event in decision.events] == [LeaseRenewed]


def test_claim_next_never_grants_what_the_session_holds() -> None:
    """Its search may have found the task before the session got it."""
    decision = held().decide(c.ClaimTask(T, by("s1", "a1"), operation="other", next=True))
    assert decision.outcome.success is False
    assert decision.outcome.reason is ClaimReason.DENIED_ACTIVE_CLAIM
    assert decision.events == ()


def test_claim_next_under_the_operation_id_of_the_grant_returns_the_first_answer() -> None:
    decision = held().decide(c.ClaimTask(T, by("s1", "a1"), operation="op", next=True))
    assert (decision.outcome.success, decision.outcome.already_held) == (True, False)
    assert noted(decision)


def test_claim_under_the_operation_id_of_the_grant_is_not_marked_as_already_held() -> None:
    world = held()
    granted = world.task("T").claim
    assert granted is not None
    world.pass_time(10)
    decision = world.decide(c.ClaimTask(T, by("s1", "a1"), operation="op"))
    assert (decision.outcome.success, decision.outcome.already_held) == (True, False)
    assert decision.outcome.claim.expires_at == granted.expires_at
    assert noted(decision)
    assert decision.record.claim.expires_at == granted.expires_at


def test_claim_under_another_operation_id_is_marked_as_already_held() -> None:
    decision = held().decide(c.ClaimTask(T, by("s1", "a1"), operation="other"))
    assert (decision.outcome.success, decision.outcome.already_held) == (True, True)
    assert decision.outcome.claim.generation == 1
    assert [type(event) for event in decision.events] == [LeaseRenewed]


def test_claim_by_another_agent_of_the_session_is_denied() -> None:
    decision = held().decide(c.ClaimTask(T, by("s1", "a2")))
    assert decision.outcome.reason is ClaimReason.DENIED_ACTIVE_CLAIM


def test_overdue_claim_of_ones_own_is_granted_at_a_new_generation() -> None:
    world = held()
    world.pass_time(301)
    decision = world.decide(c.ClaimTask(T, by("s1", "a1")))
    assert (decision.outcome.success, decision.outcome.already_held) == (True, False)
    assert decision.outcome.claim.generation == 2


def test_release_of_a_grant_that_nobody_was_told_of() -> None:
    world = held()
    decision = world.decide(c.ReleaseClaim(T, by("s1", "a1"), generation=1, renewals=0))
    assert decision.outcome.success


def test_release_of_a_grant_that_nobody_was_told_of_is_refused_once_it_was_repeated() -> None:
    world = held()
    world.ask(c.ClaimTask(T, by("s1", "a1"), operation="op"))
    decision = world.decide(c.ReleaseClaim(T, by("s1", "a1"), generation=1, renewals=0))
    assert decision.outcome.reason is ReleaseAnswer.NO_CLAIM
    assert decision.events == ()
    assert world.decide(c.ReleaseClaim(T, by("s1", "a1"), generation=1)).outcome.success
