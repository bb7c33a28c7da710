"""A process with ten agents that behave: each claims a task, submits it, and rests a little.

An order says which tasks; the answer, how long each call took.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from tests.processes.worker import order, say

AGENTS = 10
REST_SECONDS = 0.02
BASE = "/v1/good/default/tasks"


class Agent:
    """One connection, one session."""

    def __init__(self, asked: dict[str, Any], number: int) -> None:
        self._port, self._key, self._session = asked["port"], asked["key"], f"good-{number}"
        self.times: list[float] = []
        self.faults: list[str] = []

    async def work(self, tasks: list[str]) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        never = asyncio.Event()
        for task in tasks:
            await self._ask(f"{task}/claim", {"agent_id": "a", "session_id": self._session})
            await self._ask(
                f"{task}/submit",
                {
                    "session_id": self._session,
                    "generation": 1,
                    "result_data": {"by": self._session},
                },
            )
            try:
                await asyncio.wait_for(never.wait(), REST_SECONDS)
            except TimeoutError:
                continue
        self._writer.close()

    async def _ask(self, path: str, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        head = (
            f"POST {BASE}/{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer "
            f"{self._key}\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        began = time.perf_counter()
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.split(b"\r\n") if line.startswith(b"content-length:"))
        said = await self._reader.readexactly(int(length.split()[1]))
        self.times.append((time.perf_counter() - began) * 1000)
        if not answer.startswith(b"HTTP/1.1 200"):
            self.faults.append(f"{answer[:15]!r} {said[:300]!r}")


async def work(asked: dict[str, Any]) -> None:
    agents = [Agent(asked, number) for number in range(AGENTS)]
    await asyncio.gather(
        *(agent.work(asked["tasks"][number::AGENTS]) for number, agent in enumerate(agents))
    )
    times = sorted(one for agent in agents for one in agent.times)
    say(fact="worked", times=times, faults=[fault for agent in agents for fault in agent.faults])


def main() -> None:
    while (asked := order()) is not None:
        asyncio.run(work(asked))


if __name__ == "__main__":
    main()
