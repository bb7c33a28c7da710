"""Policy `agents: single`: claims without a lease. What each state answers to each command is in
test_state_by_command; how such a claim lives and ends in a fleet's hands, in the scenario
single-agent."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core.agent_roles import AgentRoles, roles_in_force
from genlock.core.facts import OutageGrace
from genlock.core.index import NEVER_DUE
from genlock.core.model import Claim, SessionRecord
from genlock.core.policy import Agents, Expired, Policy, agent_for, change_policy
from genlock.core.reasons import Cause, ClaimState, RenewReason, Status
from genlock.core.results import RenewalResult
from genlock.core.rules import index_of
from genlock.core.task.view import lease_shown, overdue, seems_silent, spared_until
from genlock.errors import BadArgument
from genlock.store import MAX_DUE
from genlock.testing.clock import START
from tests.core.world import World, by, key_of

ALONE = Policy(agents=Agents.SINGLE)
T = key_of("T")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def claim(state: ClaimState = ClaimState.ACTIVE) -> Claim:
    return Claim("claim-1", "s", "primary", 1, at(0), at(0), None, 300.0, state=state)


def session(ended: bool = False) -> SessionRecord:
    return SessionRecord("s", at(0), at(0), ended_at=at(5) if ended else None, orphan_seconds=60.0)


@pytest.mark.parametrize("now", [at(-(10**9)), at(0), at(300), at(10**9)])
def test_a_claim_without_a_lease_ends_with_its_session_or_process_and_never_by_time(
    now: datetime,
) -> None:
    assert overdue(claim(), now) is None
    assert overdue(claim(), now, session()) is None
    assert overdue(claim(), now, session(ended=True)) is Cause.SESSION_ENDED
    assert overdue(claim(), now, session(), gone=True) is Cause.PROCESS_GONE
    assert overdue(claim(ClaimState.EXPIRED), now) is Cause.LEASE_OVER


def test_silence_takes_no_claim_that_has_no_lease() -> None:
    """A session of the session-claiming interface whose process is not known: it is asked to be
    heard, and its lease would be taken for silence."""
    assert overdue(claim(), at(10**6), session(), heard=at(0)) is None
    assert not seems_silent(session(), claim(), at(10**6))
    leased = replace(claim(), expires_at=at(2 * 10**6), lease_seconds=2e6)
    assert overdue(leased, at(10**6), session(), heard=at(0)) is Cause.SESSION_SILENT


def test_an_outage_spares_nothing_where_nothing_runs_out() -> None:
    grace = OutageGrace(since=at(0), back=at(100))
    assert spared_until(claim(), grace) is None
    assert overdue(claim(), at(1000), outage_grace=grace) is None


def test_it_is_found_by_its_due_time_after_all_that_time_changes() -> None:
    """Whoever looks for claims, to show or to check them, looks by due times."""
    assert NEVER_DUE == MAX_DUE
    world = World(policy=ALONE)
    world.add("T")
    assert index_of(world.task("T")).due_at is None
    world.claim("T")
    index = index_of(world.task("T"))
    assert (index.due_at, index.session, index.state) == (NEVER_DUE, "s1", Status.IN_PROGRESS)
    world.ask(c.HoldTask(T))
    assert index_of(world.task("T")).due_at == NEVER_DUE
    world.submit("T", "s1", 1)
    assert index_of(world.task("T")).due_at is None


def test_a_renewal_says_that_there_is_no_end_and_notes_that_the_holder_lives() -> None:
    world = World(policy=ALONE)
    world.add("T")
    world.claim("T", lease=60.0)
    world.pass_time(10**6)
    decision = world.ask(c.RenewLease(T, by("s1"), 1, 30.0))
    assert decision.outcome == RenewalResult(
        True, RenewReason.RENEWED, 1, new_expiry=None, lease_seconds=30.0
    )
    held = world.task("T").claim
    assert held is not None
    assert (held.expires_at, held.renewed_at, held.renewals) == (None, at(10**6), 1)


def test_a_renewal_after_the_change_to_a_fleet_begins_the_lease_that_was_asked_for() -> None:
    world = World(policy=ALONE)
    world.add("T")
    world.claim("T", lease=60.0)
    world.policy = Policy()
    world.pass_time(1000)
    assert not world.claim("T", "s2", "bob").outcome.success
    assert world.ask(c.RenewLease(T, by("s1"), 1)).outcome.new_expiry == at(1060)
    world.pass_time(60)
    assert world.claim("T", "s2", "bob").outcome.claim.generation == 2


def test_nobody_marks_a_silent_holder_stale_where_nobody_need_be_heard() -> None:
    world = World(policy=replace(ALONE, stale_threshold_seconds=20.0))
    world.add("T")
    world.claim("T")
    world.pass_time(10**6)
    assert world.ask(c.CheckDue(T)).events == ()


def test_a_person_decides_from_the_time_at_which_the_session_was_found_ended() -> None:
    world = World(policy=replace(ALONE, expired=Expired.HUMAN, claim_ttl_seconds=100.0))
    world.ask(c.RegisterSession(key_of("s1", "session"), by("s1")))
    world.add("T")
    world.claim("T")
    world.ask(c.EndSession(key_of("s1", "session"), by("s1")))
    world.pass_time(1000)
    world.ask(c.CheckDue(T))
    hold = world.task("T").hold
    assert hold is not None
    assert hold.until == at(1100)


def test_the_lone_agents_role_takes_and_converges_everything_unless_the_table_says_less() -> None:
    wanted, edge = ("architect",), "design"
    for table in (None, AgentRoles({"architect": ("design",)})):
        lone, fleet = roles_in_force(table, ALONE), roles_in_force(table, Policy())
        assert lone.may_take("full_stack", wanted)
        assert lone.may_converge("full_stack", edge)
        assert not lone.may_take("tester", wanted)
        assert not fleet.may_take("full_stack", wanted)
        # Without a table roles limit nobody's results.
        assert fleet.may_converge("full_stack", edge) is (table is None)
    less = roles_in_force(AgentRoles({"full_stack": ("code",)}), ALONE)
    assert not less.may_take("full_stack", wanted)
    assert not less.may_converge("full_stack", edge)


def test_the_names_of_a_lone_agent_are_filled_in_only_where_none_is_given() -> None:
    assert (ALONE.lone_agent, Policy().lone_agent) == ("primary", None)
    assert [ALONE.role_of(role) for role in ("", "tester")] == ["full_stack", "tester"]
    assert [Policy().role_of(role) for role in ("", "tester")] == ["", "tester"]
    assert agent_for({"agents": "single"}, "bash-17") == "primary"
    assert agent_for({"agents": "fleet"}, "bash-17") == "bash-17"


def test_the_policy_takes_fleet_or_single() -> None:
    assert change_policy(Policy(), {"agents": "single"}).agents is Agents.SINGLE
    with pytest.raises(BadArgument, match="policy agents is one of fleet, single, not 'alone'"):
        change_policy(Policy(), {"agents": "alone"})


def test_a_lease_is_shown_as_its_end_or_as_none() -> None:
    assert lease_shown(None) == "no lease"
    assert lease_shown(at(0)) == "lease until 2026-01-04T06:00:00Z"
