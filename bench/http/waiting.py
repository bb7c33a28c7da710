"""A thousand agents that wait for work: what they cost while there is none, and how soon they have
it when there is.

And the way of a commit to a hundred streams of events.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

import uvloop

from bench.http.load import request
from bench.http.serving import Server, started
from bench.plans import open_plan
from bench.report import Line, at_most, percentile, show

WAITERS = 1_000
WAIT_SECONDS = 120
IDLE_SECONDS = 40
"""Several times as long as the monitor sleeps: of ten seconds some have two of its sweeps and some
three."""
WAKE_UPS = 100
STREAMS = 100
COMMITS = 50
PROJECT = "/v1/default/default"


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.index(b"content-length: ")
    return int(head[9:12]), await reader.readexactly(int(head[at + 16 : head.index(b"\r", at)]))


async def _ask(port: int, asked: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(asked)
    status, body = await _answer(reader)
    assert status == 200, body
    writer.close()
    return body


def _post(path: str, body: object) -> bytes:
    return request("POST", f"{PROJECT}/{path}", json.dumps(body).encode())


class _Waiters:
    """Agents that wait, and again when they have done what they were given."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.granted: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        self.ready = asyncio.Semaphore(0)

    async def wait(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.ready.release()
        while True:
            ask = {
                "agent_id": f"agent-{number}",
                "session_id": f"session-{number}",
                "wait_seconds": WAIT_SECONDS,
            }
            writer.write(_post("claim-next", ask))
            _, body = await _answer(reader)
            now = time.perf_counter()
            answer = json.loads(body)
            if answer["success"]:
                self.granted.put_nowait((answer["task_id"], now))


async def _waiting(server: Server) -> list[Line]:
    waiters = _Waiters(server.port)
    tasks = [asyncio.create_task(waiters.wait(number)) for number in range(WAITERS)]
    for _ in range(WAITERS):
        await waiters.ready.acquire()
    await asyncio.sleep(3)  # until all have asked and found nothing
    before = server.usage()
    await asyncio.sleep(IDLE_SECONDS)
    after = server.usage()
    asked = (after["asked"] - before["asked"]) / IDLE_SECONDS
    busy = (after["cpu"] - before["cpu"]) / IDLE_SECONDS * 100
    wake_ups = []
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for number in range(WAKE_UPS):
        name = f"W-{number + 1:03d}-wake"
        sent = time.perf_counter()
        writer.write(_post("tasks", {"tasks": [name]}))
        await _answer(reader)
        task, at = await asyncio.wait_for(waiters.granted.get(), 10)
        assert task == name, (task, name)
        wake_ups.append(at - sent)
    for waiting in tasks:
        waiting.cancel()
    return [
        at_most(f"{WAITERS:,} agents wait: store queries a second", asked, 5),
        at_most(f"{WAITERS:,} agents wait: CPU", busy, 2, " %"),
        at_most("added to granted, p95", percentile(wake_ups, 0.95) * 1000, 15, " ms"),
        Line("added to granted, median", f"{percentile(wake_ups, 0.5) * 1000:.2f} ms"),
    ]


async def _stream(
    port: int, seen: asyncio.Queue[tuple[str, float]], opened: asyncio.Semaphore
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("GET", f"{PROJECT}/events/stream?type=CLAIM_ACQUIRED"))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    opened.release()
    async for line in reader:
        if line.startswith(b"data: "):
            now = time.perf_counter()
            seen.put_nowait((json.loads(line[6:])["event"]["task_id"], now))


async def _streaming(server: Server) -> list[Line]:
    seen: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    opened = asyncio.Semaphore(0)
    streams = [asyncio.create_task(_stream(server.port, seen, opened)) for _ in range(STREAMS)]
    for _ in range(STREAMS):
        await asyncio.wait_for(opened.acquire(), 10)
    names = [f"S-{number + 1:03d}-stream" for number in range(COMMITS)]
    await _ask(server.port, _post("tasks", {"tasks": names}))
    delays = []
    for name in names:
        await _ask(server.port, _post(f"tasks/{name}/claim", {"agent_id": "a", "session_id": "s"}))
        committed = time.perf_counter()
        for _ in range(STREAMS):
            task, at = await asyncio.wait_for(seen.get(), 10)
            assert task == name
            delays.append(max(0.0, at - committed))
    for stream in streams:
        stream.cancel()
    return [
        at_most(f"commit to {STREAMS} streams, p95", percentile(delays, 0.95) * 1000, 100, " ms"),
        Line("commit to streams, median", f"{percentile(delays, 0.5) * 1000:.2f} ms"),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "plan.db"
        open_plan(path, ["A-001-done"]).close()
        with started("service", f"sqlite://{path}") as server:
            asyncio.run(
                _ask(
                    server.port,
                    _post("tasks/A-001-done/claim", {"agent_id": "a", "session_id": "s"}),
                )
            )
            show("A thousand agents that wait", uvloop.run(_waiting(server)))
            show("Live events", uvloop.run(_streaming(server)))
