"""`genlock dev`: a service, a plan and agents that work over HTTP; and nobody is left behind."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from pathlib import Path

import genlock.aio
from genlock.cli.dev.crew import Crew
from genlock.cli.dev.director import Director
from genlock.cli.dev.plan import PROJECT, ROOTS
from genlock.engine.processes import start_time
from tests.cli.terminal import shown
from tests.service.process import PATIENCE_SECONDS, Service, serve

DEMO = "/v1/default/demo"
PLAIN: dict[str, str | None] = {"NO_COLOR": "1"}


def sessions(service: Service, count: int) -> list[dict[str, object]]:
    """The agents' sessions, once there are so many."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        status, found = service.ask("GET", f"{DEMO}/sessions")
        assert status == 200
        if len(found) >= count:
            return list(found)
        assert time.monotonic() < end, "the agents have not begun"
        # Each look waits for the service; the feed says when something has happened.
        service.ask("POST", f"{DEMO}/claim-next", {"agent_id": "x", "session_id": "x", "wait_seconds": 0.1, "tracks": ["Z"]})


def gone(pids: list[int]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while any(start_time(pid) is not None for pid in pids):
        if time.monotonic() > end:
            return False
    return True


def test_agents_work_on_the_plan_and_all_end_with_it(tmp_path: Path) -> None:
    with serve(tmp_path, "--fresh", "--agents", "3", verb="dev") as service:
        found = sessions(service, 3)
        pids = [int(str(session["pid"])) for session in found]
        assert len(pids) == 3
        assert all(start_time(pid) is not None for pid in pids)
        status, plan = service.ask("GET", f"{DEMO}/plan")
        assert (status, len(plan["tasks"])) == (200, 12)
        assert service.end(signal.SIGINT) == 0
        assert gone(pids)
    assert list(tmp_path.glob(".genlock")) == []


def test_agents_do_not_outlive_a_dev_that_is_killed(tmp_path: Path) -> None:
    with serve(tmp_path, "--agents", "1", verb="dev") as service:
        [session] = sessions(service, 1)
        pid = int(str(session["pid"]))
        service.process.kill()
        service.process.wait(PATIENCE_SECONDS)
        assert gone([pid])
    assert (tmp_path / ".genlock" / "genlock.db").exists(), "it was on the project's own store"


def test_if_the_port_is_taken_another_one_is(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with serve(tmp_path, "--fresh", "--agents", "0", "--seconds", "0.2", "--port", port, verb="dev") as service:
            assert service.port != int(port)
            assert service.process.wait(PATIENCE_SECONDS) == 0


def test_when_the_plan_is_done_it_begins_again_and_what_is_held_is_reopened() -> None:
    async def main() -> None:
        async with genlock.aio.connect("memory://", session_id="s", agent_id="a", project_id=PROJECT) as fleet:
            director = Director(fleet, Crew("http://127.0.0.1:1/", 0))
            await director.prepare()
            done = 0
            while (granted := await fleet.claim_next()).claim is not None:
                await fleet.submit_result(task_id=granted.claim.task_id, generation=granted.claim.generation)
                done += 1
            assert done == 12
            await director.look()
            states = await fleet.batch_get_states(task_ids=director.tasks)
            assert {name for name, state in states.items() if state.state == "PENDING"} == set(ROOTS)
            assert all(state.generation == 2 for state in states.values())
            await fleet.hold_task(task_id=ROOTS[0])
            await director.look()
            assert (await fleet.get_task_state(task_id=ROOTS[0])).state == "PENDING"

    asyncio.run(main())


def test_who_is_killed_is_replaced() -> None:
    crew = Crew("http://127.0.0.1:1/", 1)
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


def test_on_a_terminal_it_says_how_to_end_it_and_where_to_look(tmp_path: Path) -> None:
    code, lines = shown("dev", "--fresh", "--agents", "1", "--port", "0", "--seconds", "0.5", cwd=tmp_path, env=PLAIN)
    url = lines[0].removeprefix("Genlock serves at ")
    assert (code, lines[1:]) == (0, ["Ctrl-C ends it. From another terminal:", f"  genlock agents --url {url} --project demo"])
