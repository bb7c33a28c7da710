"""`python -m bench.http.alone [keys]`: the event loop's share of a single claim, without sockets
and without the lane.

The service's own connections and application, on transports that only take note and an engine that
answers at once, all that came together in one go. What is left is what Python does between a
request's bytes and its answer's; it is the same from run to run where the rate over sockets is not.
To compare two states of the code, run them in turn and take the least of each.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import uvloop

import genlock.aio
from bench.http.serving import SERVER_CORE, pin
from genlock.engine.jobs import Job, resolve_all
from genlock.service.compose import Choices, build
from genlock.service.http.protocol import Bounds
from genlock.service.logs import Log
from genlock.service.metrics import Metrics
from genlock.service.server import Server, spare_the_collector

CONNECTIONS = 64
ROUNDS, PARTS = 20, 40
TASK = "A-001-core-framework"


class _Wire(asyncio.Transport):
    """Takes note that something was written."""

    def __init__(self, written: list[bytes]) -> None:
        super().__init__({"peername": ("127.0.0.1", 5555), "sockname": ("127.0.0.1", 80)})
        self._written = written

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self._written.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        """Nobody is there."""


def _request(head: str) -> bytes:
    body = b'{"agent_id":"agent-0","session_id":"session-0"}'
    first = f"POST /v1/default/default/tasks/{TASK}/claim HTTP/1.1\r\nhost: localhost\r\n{head}"
    return (
        f"{first}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def _filled(what: list[Any]) -> None:
    while len(what) < CONNECTIONS:  # noqa: ASYNC110 - an event would be part of what is measured
        await asyncio.sleep(0)


async def _measure(keys: bool) -> tuple[float, float]:
    """Microseconds of a core a claim: the least of many parts, and that in the middle."""
    metrics, written, asked = Metrics(), list[bytes](), list[Job]()
    coordinator = genlock.aio.connect("memory://", process=None, service=True, observer=metrics)
    await coordinator.add_tasks(tasks=[TASK])
    answer = await coordinator.claim_task(task_id=TASK, agent_id="agent-0", session_id="session-0")
    head = ""
    if keys:
        head = (
            "authorization: Bearer "
            f"{(await coordinator.create_key(name='bench', role='agent')).text}\r\n"
        )
    choices = Choices(keys=keys, requests_a_second=10**9 if keys else None)
    app = build(
        coordinator, choices, Log(form="json", file=os.open(os.devnull, os.O_WRONLY)), metrics
    )
    server = Server(app, Bounds(CONNECTIONS))
    server.config.load()
    make: Any = server.config.http_protocol_class
    protocols = [
        make(config=server.config, server_state=server.server_state, app_state={})
        for _ in range(CONNECTIONS)
    ]
    for protocol in protocols:
        protocol.connection_made(_Wire(written))
    for lane in coordinator.engine._lanes:
        setattr(lane, "submit", asked.append)  # noqa: B010 - no lane has this done to it elsewhere
    spare_the_collector()
    request = _request(head)

    async def go_round() -> None:
        for protocol in protocols:
            protocol.data_received(request)
        await _filled(asked)
        jobs = asked.copy()
        asked.clear()
        for job in jobs:
            job.results[0] = answer
        resolve_all(jobs)
        await _filled(written)
        assert all(data.startswith(b"HTTP/1.1 200 OK") for data in written), written[0]
        written.clear()

    parts = []
    for _ in range(PARTS):
        start = time.thread_time()
        for _ in range(ROUNDS):
            await go_round()
        parts.append((time.thread_time() - start) / (ROUNDS * CONNECTIONS) * 1e6)
    return min(parts), sorted(parts)[PARTS // 2]


def main() -> None:
    pin(SERVER_CORE)
    least, middle = uvloop.run(_measure("keys" in sys.argv[1:]))
    print(f"{least:.1f} µs of the event loop a claim at least, {middle:.1f} in the middle")


if __name__ == "__main__":
    main()
