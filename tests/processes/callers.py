"""A process with many agents in it, each a thread with a session and a remote client of its own.

Orders and facts are as in `coordinator.py`.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

import genlock
from tests.processes.coordinator import Agent
from tests.processes.worker import order, say


def main() -> None:
    say(fact="here")
    asked = order()
    assert asked is not None
    sessions = [f"{asked['session']}.{number}" for number in range(asked["agents"])]
    with ExitStack() as stack:
        fleets = [
            stack.enter_context(
                genlock.connect(asked["url"], create=True, deadline_seconds=asked["deadline"])
            )
            for _ in sessions
        ]
        say(fact="ready")
        assert order() == {"do": "go"}
        agents = [
            Agent(fleet, session, asked, threading.Event())
            for fleet, session in zip(fleets, sessions, strict=True)
        ]
        threads = [threading.Thread(target=agent.run) for agent in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    say(fact="finished", session=asked["session"])


if __name__ == "__main__":
    main()
