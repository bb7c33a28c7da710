"""Two services on one PostgreSQL, clients that know both, and kill -9: all go on, nothing is lost,
nothing is done twice."""

from __future__ import annotations

import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import genlock
from tests.processes import callers
from tests.processes.accounts import check_what_was_said
from tests.processes.crew import Fact, Hearing, Member, all_go
from tests.servers.postgres import Postgres, free_port
from tests.service.process import Service, serve

PROGRAM = Path(callers.__file__)
AGENTS = 6
"""In each of two processes."""
TASKS = 600
"""So many that a process that comes late to its work still finds some."""


class Pair:
    """Two services; what is killed is started again at the same port."""

    def __init__(self, folder: Path, store: str, stack: ExitStack) -> None:
        self._folder, self._store, self._stack = folder, store, stack
        self.ports = [free_port(), free_port()]
        self.running = [self.start(number) for number in (0, 1)]

    def start(self, number: int) -> Service:
        folder = self._folder / f"service-{number}"
        folder.mkdir(exist_ok=True)
        options = ("--port", str(self.ports[number]), "--log-level", "error")
        return self._stack.enter_context(serve(folder, *options, url=self._store))

    def kill(self, number: int) -> None:
        assert self.running[number].end(signal.SIGKILL) == -signal.SIGKILL

    def start_again(self, number: int) -> None:
        self.running[number] = self.start(number)

    def answered(self, number: int) -> int:
        """How many claims and submissions this one has answered since it was started."""
        service = self.running[number]
        asked = urllib.request.Request(f"{service.url}metrics", headers=service.token_header)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(
            r'^genlock_http_requests_total\{[^}]*route="(?:claim_next|submit_result)"[^}]*\} (\S+)',
            text,
            re.MULTILINE,
        )
        return int(sum(map(float, found)))


class Work(NamedTuple):
    fleet: genlock.Coordinator
    tasks: list[str]
    pair: Pair
    members: list[Member]
    hearing: Hearing

    def done(self, member: Member) -> int:
        """How many answers its agents have told of so far."""
        return sum(fact["fact"] in ("granted", "submitted") for fact in self.hearing.of(member))

    def until_both_have_done(self, more: int) -> None:
        """Until each process has so many more answers than now."""
        before = [self.done(member) for member in self.members]
        self.hearing.until(
            lambda: all(
                self.done(member) >= first + more
                for member, first in zip(self.members, before, strict=True)
            )
        )

    def check(self) -> list[Fact]:
        facts = self.hearing.end()
        assert [fact for fact in facts if fact["fact"] == "failed"] == [], (
            "a call ended in an error"
        )
        check_what_was_said(self.fleet, self.tasks, facts)
        return facts


@contextmanager
def at_work(postgres: Postgres, folder: Path, tasks: int) -> Iterator[Work]:
    """One process of agents begins with the first service, another one with the second."""
    names = [f"{'ABC'[number % 3]}-{number // 3 + 1:03}-task" for number in range(tasks)]
    store = postgres.url()
    with genlock.connect(store, create=True, deadline_seconds=60) as fleet, ExitStack() as stack:
        fleet.set_policy(policy={"breaker_threshold": 0}, profile="local")
        fleet.add_tasks(tasks=names)
        members = [stack.enter_context(Member(PROGRAM)) for _ in (0, 1)]
        pair = Pair(folder, store, stack)
        urls = [service.url for service in pair.running]
        for member in members:
            member.expect(fact="here")
        order = {"agents": AGENTS, "lease": 1.0, "holds": False, "diligent": False, "deadline": 60}
        all_go(
            members,
            [
                {**order, "url": ",".join(urls[::step]), "session": f"caller {seed}", "seed": seed}
                for seed, step in ((0, 1), (1, -1))
            ],
        )
        yield Work(fleet, names, pair, members, Hearing(members))


def test_clients_of_a_service_that_is_killed_go_on_with_the_other_and_nothing_is_lost_or_doubled(
    postgres: Postgres, tmp_path: Path
) -> None:
    with at_work(postgres, tmp_path, TASKS) as work:
        work.until_both_have_done(AGENTS)
        assert work.pair.answered(0) > 0
        assert work.pair.answered(1) > 0
        work.pair.kill(0)
        work.until_both_have_done(2 * AGENTS)
        work.pair.start_again(0)
        # The first takes part again: with the second gone, it is the one that all the rest is done
        # with.
        work.pair.kill(1)
        work.until_both_have_done(2)
        work.check()
        assert work.pair.answered(0) > 0, "nothing was left for the one that came back"


@pytest.mark.slow
def test_services_that_are_killed_in_turn_again_and_again_lose_nothing_and_double_nothing(
    postgres: Postgres, tmp_path: Path
) -> None:
    with at_work(postgres, tmp_path, 4 * TASKS) as work:
        for kill in range(10):
            work.until_both_have_done(3 * AGENTS)
            work.pair.kill(kill % 2)
            work.until_both_have_done(3 * AGENTS)
            work.pair.start_again(kill % 2)
        work.check()
