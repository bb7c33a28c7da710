"""Three coordinators with eight agents each on one server, and what can go wrong with processes,
connections and servers.

Whatever it is: every task is completed once, no generation is granted twice, nothing acknowledged
is missing, nobody is left with an outcome that is unknown, and every record is what its events make
it.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import genlock
from tests.processes import coordinator
from tests.processes.accounts import check_what_was_said
from tests.processes.crew import PATIENCE, Fact, Hearing, Member, all_go
from tests.servers.proxy import Proxy, between
from tests.servers.stores import Server

COORDINATORS = 3
AGENTS = 8
TASKS = 240
DAY = 86_400.0
TRIES = 10
CUTS = 3
"""So often each is cut off in the midst of a commit."""
PROGRAM = Path(coordinator.__file__)


class Crew(NamedTuple):
    """Coordinators at work on a plan, and one that looks on."""

    fleet: genlock.Coordinator
    tasks: list[str]
    members: list[Member]
    hearing: Hearing

    def check(self) -> tuple[Counter[str], list[Fact]]:
        """Waits for the end, and holds what was said against what is there."""
        facts = self.hearing.end()
        assert [fact for fact in facts if fact["fact"] == "failed"] == [], (
            "a call ended in an error"
        )
        return check_what_was_said(self.fleet, self.tasks, facts), facts

    def work(self, member: Member) -> list[Fact]:
        """What its agents were told so far."""
        return [
            fact
            for fact in self.hearing.of(member)
            if fact["fact"] in ("granted", "renewed", "released", "submitted")
        ]

    def has_finished(self, member: Member) -> bool:
        """Has it found the whole plan completed?"""
        return "finished" in [fact["fact"] for fact in self.hearing.of(member)[-1:]]

    def unfinished(self, member: Member) -> set[tuple[str, int]]:
        """What its agents were granted and have not handed in or given back."""
        granted = {(fact["task"], fact["generation"]) for fact in self.work(member)}
        return granted - {
            (fact["task"], fact["generation"])
            for fact in self.work(member)
            if fact["fact"] in ("submitted", "released")
        }

    def is_committing(self, member: Member) -> bool:
        """Is it inside a commit, as far as has been heard?"""
        commits = [fact for fact in self.hearing.of(member) if fact["fact"] == "commit"]
        return bool(commits and commits[-1]["under_way"])

    def wait_for_work(self, least: int = 2 * AGENTS) -> None:
        """Returns when every coordinator has been told so many things."""
        self.hearing.until(lambda: all(len(self.work(member)) >= least for member in self.members))


@contextmanager
def at_work(
    url: str, through: str | None = None, *, tasks: int = TASKS, **orders: Any
) -> Iterator[Crew]:
    """Lets them begin; each order may be a list, one for each of them."""
    names = [f"{'ABC'[number % 3]}-{number // 3 + 1:03}-task" for number in range(tasks)]
    with genlock.connect(url, create=True, deadline_seconds=60) as fleet, ExitStack() as stack:
        # What is killed or cut counts as a failure of its task; how many come together is not what
        # is tested here.
        fleet.set_policy(policy={"breaker_threshold": 0})
        fleet.add_tasks(tasks=names)
        members = [stack.enter_context(Member(PROGRAM)) for _ in range(COORDINATORS)]
        for member in members:
            member.expect(fact="here")
        all_go(
            members, [order_of(number, through or url, orders) for number in range(COORDINATORS)]
        )
        yield Crew(fleet, names, members, Hearing(members))


def order_of(number: int, url: str, orders: dict[str, Any]) -> Fact:
    usual = {
        "agents": AGENTS,
        "lease": 1.0,
        "holds": False,
        "diligent": False,
        "deadline": 60,
        "clock": "store",
        "clock_off": 0.0,
    }
    given = {
        name: value[number] if isinstance(value, list) else value for name, value in orders.items()
    }
    return {"url": url, "session": f"coordinator {number}", "seed": number, **usual, **given}


def troubles(facts: list[Fact]) -> Counter[str]:
    return Counter(fact["kind"] for fact in facts if fact["fact"] == "trouble")


def test_coordinators_that_are_killed_lose_nothing_and_the_others_finish_their_work(
    server: Server, tmp_path: Path
) -> None:
    with at_work(server.store_url(tmp_path)) as crew:
        for victim in crew.members[:2]:
            crew.hearing.until(
                lambda victim=victim: (  # type: ignore[misc]
                    len(crew.work(victim)) >= 3 * AGENTS and crew.is_committing(victim)
                )
            )
            victim.kill()
            assert victim.process.wait(PATIENCE) == -signal.SIGKILL
        told, facts = crew.check()
        left = [claim for victim in crew.members[:2] for claim in crew.unfinished(victim)]
        assert left, "nobody was killed in the midst of its work"
        assert facts[-1] == {"fact": "finished", "session": "coordinator 2"}
        assert told["STALE_GENERATION"] + told["TASK_ALREADY_COMPLETED"] > 0, (
            "nobody handed anything in too late"
        )


def test_a_coordinator_stopped_past_its_leases_finds_its_results_refused_and_kept(
    server: Server, tmp_path: Path
) -> None:
    with at_work(server.store_url(tmp_path), holds=[True, False, False]) as crew:
        zombie = crew.members[0]
        crew.hearing.until(
            lambda: sum(fact["fact"] == "holding" for fact in crew.hearing.of(zombie)) == AGENTS
        )
        os.kill(zombie.process.pid, signal.SIGSTOP)
        stopped = os.waitid(os.P_PID, zombie.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP
        crew.hearing.until(lambda: all(map(crew.has_finished, crew.members[1:])))
        zombie.tell(do="hand in")
        os.kill(zombie.process.pid, signal.SIGCONT)
        crew.check()
        late = [fact for fact in crew.work(zombie) if fact["fact"] == "submitted"]
        assert [fact["reason"] for fact in late] == ["STALE_GENERATION"] * AGENTS
        kept = {result.id for result in crew.fleet.list_refused_results(limit=1000)}
        assert {fact["refused_id"] for fact in late} <= kept


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_is_restarted_under_load_loses_nothing_and_all_go_on(
    server: Server, tmp_path: Path, end: str
) -> None:
    with at_work(server.store_url(tmp_path)) as crew:
        crew.wait_for_work()
        crew.hearing.until(lambda: any(crew.is_committing(member) for member in crew.members))
        getattr(server, end)()
        server.start()
        back = time.monotonic()
        _, facts = crew.check()
        assert troubles(facts), "it was away, and nobody noticed"
        assert all(map(crew.has_finished, crew.members))
        assert any(fact["fact"] == "submitted" and fact["at"] > back for fact in facts), (
            "nothing was left to do when it came back"
        )


def in_mid_commit(crew: Crew, proxy: Proxy, members: list[Member]) -> Iterator[Member]:
    """One coordinator after the other at moments when it is inside a commit, whose answer is still
    on its way."""
    proxy.delay(20)
    for member in members:
        seen = len(crew.hearing.of(member))
        crew.hearing.until(
            lambda member=member, seen=seen: (
                len(crew.hearing.of(member)) > seen and crew.is_committing(member)
            )  # type: ignore[misc]
        )
        yield member
    proxy.delay(0)


def test_commits_whose_connection_is_cut_are_done_once_or_not_at_all(
    server: Server, tmp_path: Path
) -> None:
    with (
        between(server.port) as proxy,
        at_work(server.store_url(tmp_path), server.store_url(tmp_path, proxy.port)) as crew,
    ):
        crew.wait_for_work(AGENTS)
        for _ in in_mid_commit(crew, proxy, crew.members * CUTS):
            proxy.cut()
        proxy.cut_every(40)
        _, facts = crew.check()
        # What a coordinator says of its commits is a little old when it is heard: now and then one
        # was over already.
        assert troubles(facts)["OUTCOME_UNKNOWN"] >= COORDINATORS * CUTS // 2, (
            "the commits were not cut in the middle"
        )
        assert proxy.lost > 0


def test_commits_that_vanish_in_silence_are_found_out_about(server: Server, tmp_path: Path) -> None:
    with (
        between(server.port) as proxy,
        # So many that there is work left for every try: while one of them waits in silence, the
        # others go on.
        at_work(
            server.store_url(tmp_path), server.store_url(tmp_path, proxy.port), tasks=4 * TASKS
        ) as crew,
    ):
        crew.wait_for_work(AGENTS)
        for _ in range(TRIES):
            for member in in_mid_commit(crew, proxy, crew.members[:1]):
                proxy.fall_silent()
                said = len(crew.hearing.of(member))
            crew.hearing.until(lambda said=said, member=member: len(crew.hearing.of(member)) > said)  # type: ignore[misc]
            if troubles([fact for member in crew.members for fact in crew.hearing.of(member)])[
                "OUTCOME_UNKNOWN"
            ]:
                break
        _, facts = crew.check()
        assert troubles(facts)["OUTCOME_UNKNOWN"] >= 1, "no commit was under way"


@pytest.mark.slow
def test_all_of_it_together_loses_nothing(server: Server, tmp_path: Path) -> None:
    """Cuts, silence, restarts, a stop and a kill, one after the other and all in one plan."""
    with (
        between(server.port) as proxy,
        at_work(
            server.store_url(tmp_path),
            server.store_url(tmp_path, proxy.port),
            tasks=2400,
            deadline=100,
        ) as crew,
    ):
        victim, stopped, _ = crew.members
        crew.wait_for_work()
        proxy.cut_every(100)
        os.kill(stopped.process.pid, signal.SIGSTOP)
        for end in ("kill", "stop"):
            crew.hearing.until(lambda: crew.is_committing(crew.members[2]))
            getattr(server, end)()
            server.start()
            for _ in in_mid_commit(crew, proxy, [crew.members[2]] * CUTS):
                proxy.cut()
        os.kill(stopped.process.pid, signal.SIGCONT)
        crew.hearing.until(lambda: crew.is_committing(victim))
        victim.kill()
        for _ in in_mid_commit(crew, proxy, [crew.members[2]]):
            proxy.fall_silent()
        told, facts = crew.check()
        assert troubles(facts)["OUTCOME_UNKNOWN"] > CUTS
        assert crew.unfinished(victim)
        assert told["STALE_GENERATION"] > 0


# Clocks


def hold_and_work(crew: Crew) -> Counter[str]:
    """One coordinator holds tasks, the others take what is left; when they have, it hands in."""
    holder, *others = crew.members
    crew.hearing.until(
        lambda: sum(fact["fact"] == "holding" for fact in crew.hearing.of(holder)) == AGENTS
    )
    crew.hearing.until(
        lambda: (
            sum(fact["fact"] == "submitted" for other in others for fact in crew.work(other))
            >= TASKS - AGENTS
        )
    )
    holder.tell(do="hand in")
    crew.check()
    return Counter(fact["reason"] for fact in crew.work(holder) if fact["fact"] == "submitted")


OFF: dict[str, Any] = {
    "holds": [True, False, False],
    "lease": 60,
    "diligent": True,
    "clock_off": [-DAY, DAY, 0],
}
"""The holder's host is a day behind, another's a day ahead."""


def test_coordinators_whose_clocks_are_a_day_off_go_by_the_clock_of_the_server(
    server: Server, tmp_path: Path
) -> None:
    with at_work(server.store_url(tmp_path), **OFF) as crew:
        assert hold_and_work(crew)["ACCEPTED"] >= AGENTS
        assert {
            state.generation for state in crew.fleet.batch_get_states(task_ids=crew.tasks).values()
        } == {1}
        events = [
            event
            for task in crew.tasks[:AGENTS]
            for event in crew.fleet.read_events(task_id=task).events
        ]
        assert {event.event_type for event in events} <= {
            "TASK_ADDED",
            "CLAIM_ACQUIRED",
            "LEASE_RENEWED",
            "RESULT_ACCEPTED",
        }
        now = crew.fleet.engine.store.load([]).now
        assert all(
            now - timedelta(hours=1) < datetime.fromisoformat(event.event["timestamp"]) <= now
            for event in events
        )


@pytest.mark.slow
def test_coordinators_that_went_by_their_own_clocks_would_take_each_other_s_tasks(
    server: Server, tmp_path: Path
) -> None:
    with at_work(server.store_url(tmp_path), clock="host", **OFF) as crew:
        assert hold_and_work(crew)["STALE_GENERATION"] >= AGENTS
