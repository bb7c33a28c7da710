"""`genlock dev`: a service, a plan and agents that work over HTTP; and nobody is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import genlock.aio
from genlock.cli.answers import Answers
from genlock.cli.sample_fleet.crew import Crew
from genlock.cli.sample_fleet.dev import Director
from genlock.cli.sample_fleet.plan import DEV_PROJECT, DEV_ROOTS
from genlock.cli.sample_fleet.ticker import Ticker
from genlock.coordinator import AsyncCoordinator
from genlock.engine.processes import start_time
from tests.cli.terminal import shown
from tests.eventually import eventually
from tests.service.process import PATIENCE_SECONDS, Service, serve

DEMO = "/v1/default/demo"
PLAIN: dict[str, str | None] = {"NO_COLOR": "1"}


def sessions(service: Service, count: int) -> list[dict[str, object]]:
    """The agents' sessions, once there are so many."""

    def found() -> list[dict[str, object]]:
        status, sessions = service.ask("GET", f"{DEMO}/sessions")
        assert status == 200
        return list(sessions) if len(sessions) >= count else []

    return eventually(found, f"{count} sessions", seconds=PATIENCE_SECONDS)


def wait_until_gone(pids: list[int]) -> None:
    eventually(
        lambda: all(start_time(pid) is None for pid in pids),
        "the agents to end",
        seconds=PATIENCE_SECONDS,
    )


def test_agents_work_on_the_plan_and_all_end_with_it(tmp_path: Path) -> None:
    with serve(tmp_path, "--fresh", "--agents", "3", verb="dev") as service:
        found = sessions(service, 3)
        pids = [int(str(session["pid"])) for session in found]
        assert len(pids) == 3
        assert all(start_time(pid) is not None for pid in pids)
        status, plan = service.ask("GET", f"{DEMO}/plan")
        assert (status, len(plan["tasks"])) == (200, 22)
        assert service.end(signal.SIGINT) == 0
        wait_until_gone(pids)
    assert list(tmp_path.glob(".genlock")) == []


def test_agents_do_not_outlive_a_dev_that_is_killed(tmp_path: Path) -> None:
    with serve(tmp_path, "--agents", "1", verb="dev") as service:
        [session] = sessions(service, 1)
        pid = int(str(session["pid"]))
        service.process.kill()
        service.process.wait(PATIENCE_SECONDS)
        wait_until_gone([pid])
    assert (tmp_path / ".genlock" / "genlock.db").exists(), "it was on the project's own store"


def test_if_the_port_is_taken_another_one_is(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with serve(
            tmp_path, "--fresh", "--agents", "0", "--seconds", "0.2", "--port", port, verb="dev"
        ) as service:
            assert service.port != int(port)
            assert service.process.wait(PATIENCE_SECONDS) == 0


async def _do_all(fleet: AsyncCoordinator) -> int:
    """Does whatever can be done, and counts it."""
    done = 0
    while (granted := await fleet.claim_next()).claim is not None:
        await fleet.submit_result(
            task_id=granted.claim.task_id, generation=granted.claim.generation
        )
        done += 1
    return done


def test_when_the_plan_is_done_it_begins_again() -> None:
    async def main() -> None:
        async with genlock.aio.connect(
            "memory://", session_id="s", agent_id="a", project_id=DEV_PROJECT
        ) as fleet:
            director = Director(fleet, Crew("http://127.0.0.1:1/", []), lambda line: None)
            await director.prepare()
            assert await _do_all(fleet) == 20
            reviewed = await fleet.get_task_state(task_id="A-004-plugin-loader")
            assert reviewed.state == "IN_REVIEW"
            await director.look()
            reviewed = await fleet.get_task_state(task_id="A-004-plugin-loader")
            assert reviewed.state == "COMPLETED", "it was approved when nothing else went on"
            assert await _do_all(fleet) == 2
            await director.look()
            states = await fleet.batch_get_states(task_ids=director.tasks)
            assert {name for name, state in states.items() if state.state == "PENDING"} == set(
                DEV_ROOTS
            )
            assert all(states[root].generation == 2 for root in DEV_ROOTS)

    asyncio.run(main())


def test_a_held_task_is_reopened_when_nothing_else_is_left_to_do() -> None:
    async def main() -> None:
        async with genlock.aio.connect(
            "memory://", session_id="s", agent_id="a", project_id=DEV_PROJECT
        ) as fleet:
            director = Director(fleet, Crew("http://127.0.0.1:1/", []), lambda line: None)
            await director.prepare()
            await director.look()
            held = await fleet.get_task_state(task_id="C-003-checkout-page")
            assert held.state == "HELD"
            while (granted := await fleet.claim_next()).claim is not None:
                assert (await fleet.get_task_state(task_id="C-003-checkout-page")).state == "HELD"
                await fleet.submit_result(
                    task_id=granted.claim.task_id, generation=granted.claim.generation
                )
                if granted.claim.task_id == "B-001-schema-design":
                    await director.look()
            await director.look()
            assert (await fleet.get_task_state(task_id="C-003-checkout-page")).state == "PENDING"

    asyncio.run(main())


class Seen(NamedTuple):
    """What has happened in the feed and is kept in the store."""

    refused: set[str]
    taken_over: set[str]
    held: set[str]
    kept: set[str]


def seen(service: Service) -> Seen:
    status, page = service.ask("GET", f"{DEMO}/events?limit=1000")
    assert status == 200
    events = [happened["event"] for happened in page["events"]]
    lost: set[str] = set()
    taken_over: set[str] = set()
    for event in events:
        if event["event_type"] in ("CLAIM_EXPIRED", "CLAIM_ORPHANED"):
            lost.add(event["task_id"])
        if event["event_type"] == "CLAIM_ACQUIRED" and event["generation"] > 1:
            taken_over |= lost & {event["task_id"]}
    status, kept = service.ask("GET", f"{DEMO}/refused")
    assert status == 200
    return Seen(
        {
            event["task_id"]
            for event in events
            if event.get("rejection_reason") == "STALE_GENERATION"
        },
        taken_over,
        {event["task_id"] for event in events if event["event_type"] == "TASK_HELD"},
        {result["task_id"] for result in kept if result["result_data"]},
    )


def test_it_shows_a_takeover_a_refused_zombie_a_kept_result_and_a_held_task(
    tmp_path: Path,
) -> None:
    """With leases of two seconds. The agents' real ones are six, and two minutes are allowed."""
    with serve(tmp_path, "--fresh", "--quick", verb="dev") as service:
        found = eventually(
            lambda: (now := seen(service)).kept & now.refused & now.taken_over and now,
            "a zombie whose result was refused and kept",
            seconds=120,
        )
        assert isinstance(found, Seen)
        assert found.held == {"C-003-checkout-page"}
        assert service.end(signal.SIGINT) == 0
        assert service.process.stdout is not None
        lines = [json.loads(line) for line in service.process.stdout]
    told = {(line["kind"], line["task_id"]) for line in lines}
    [zombie, *_] = found.kept & found.refused & found.taken_over
    assert {(kind, zombie) for kind in ("grant", "pause", "lost", "takeover", "refusal")} <= told
    assert ("hold", "C-003-checkout-page") in told
    refusal = next(line for line in lines if line["kind"] == "refusal")
    assert re.fullmatch(
        r"\w+ is refused: its result is of generation 1, [\w-]+ is at 2\. The result is kept",
        refusal["text"],
    )


def test_a_reader_that_does_not_read_does_not_stop_it() -> None:
    """A full pipe: the line is dropped."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 65536)
    os.set_blocking(write, True)
    code = (
        "from genlock.cli.answers import Answers\n"
        "from genlock.cli.sample_fleet.ticker import Ticker, TickerLine\n"
        "Ticker(Answers(as_json=True)).tell(TickerLine('grant', 'a line'))\n"
    )
    subprocess.run([sys.executable, "-c", code], stdout=write, check=True, timeout=30)
    os.close(read)
    os.close(write)


def test_a_result_that_is_reviewed_is_told_with_its_author(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'genlock.db'}"
    with (
        genlock.connect(url, session_id="s", agent_id="ada", create=True) as fleet,
        genlock.connect(url, session_id="r", agent_id="olga") as reviewer,
    ):
        fleet.add_tasks(tasks=[{"id": "A-004", "human_required": True}])
        fleet.claim_task(task_id="A-004")
        fleet.submit_result(task_id="A-004", generation=1, result_data="plugins")
        found = fleet.get_review(task_id="A-004")
        reviewer.approve_review(task_id="A-004", generation=1, digest=found.digest)
        ticker = Ticker(Answers(as_json=True))
        lines = [ticker.line_of(happened) for happened in fleet.read_events().events]
    assert [(line.kind, line.agent_id, line.text) for line in lines if line is not None] == [
        ("grant", "ada", "ada is granted A-004, generation 1"),
        ("review", "ada", "ada hands in A-004, generation 1: it waits for a review"),
        ("result", "ada", "the result of ada for A-004 is approved, generation 1"),
    ]


def test_who_is_killed_is_replaced() -> None:
    crew = Crew("http://127.0.0.1:1/", ["ada"])
    try:
        crew.start()
        first = crew._processes["ada"]
        crew.kill("ada")
        crew.start()
        second = crew._processes["ada"]
        assert (first.returncode, second.poll()) == (-9, None)
        crew.start()
        assert crew._processes["ada"] is second
    finally:
        crew.send_home()
    assert isinstance(second, subprocess.Popen)
    assert second.returncode is not None


def test_on_a_terminal_it_prints_a_link_says_how_to_end_it_and_where_to_look(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    code, lines = shown(
        "dev",
        "--fresh",
        "--agents",
        "1",
        "--port",
        "0",
        "--seconds",
        "0.5",
        cwd=tmp_path,
        env={**PLAIN, "XDG_STATE_HOME": str(state)},
    )
    link = re.fullmatch(
        r"Genlock serves at (http://(127.0.0.1:\d+)/)sign-in\?code=[\w-]{43}", lines[0]
    )
    assert link is not None
    said = " ".join(line.strip() for line in lines[1:])
    assert said.startswith(
        "The link signs a browser in, once and within a minute. For a new one: genlock link --url "
        f"{link[1]} For curl: -H @{state}/genlock/{link[2]}.header Ctrl-C ends it. From another "
        f"terminal: genlock agents --url {link[1]} --project demo"
    )
    assert code == 0
