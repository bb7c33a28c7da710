"""Very many claims of one tenant, held at once, from a process of its own: claimed, renewed in
batches and one by one, and submitted.

It says after each what share was as it should be, and how long it took.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.processes.worker import order, say

CONNECTIONS = 32
BATCH = 250
BASE = "/v1/big/default"


def post(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return (
        f"POST {BASE}/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
    ).encode() + data


class Held:
    """The tasks, as many to a session as to a batch."""

    def __init__(self, count: int) -> None:
        self._tasks = [f"b{number}" for number in range(count)]

    def _sessions(self) -> Iterator[tuple[str, list[str]]]:
        for at in range(0, len(self._tasks), BATCH):
            yield f"s{at // BATCH}", self._tasks[at : at + BATCH]

    def claims(self) -> list[bytes]:
        return [
            post(f"tasks/{task}/claim", {"agent_id": "a", "session_id": session})
            for session, tasks in self._sessions()
            for task in tasks
        ]

    def batch_renewals(self) -> list[bytes]:
        return [
            post("batch/renew", {"session_id": session, "generations": dict.fromkeys(tasks, 1)})
            for session, tasks in self._sessions()
        ]

    def renewals(self) -> list[bytes]:
        return [
            post(f"tasks/{task}/renew", {"session_id": session, "expected_generation": 1})
            for session, tasks in self._sessions()
            for task in tasks
        ]

    def submissions(self) -> list[bytes]:
        return [
            post(
                "batch/submit",
                {
                    "session_id": session,
                    "results": [
                        {"task_id": task, "generation": 1, "result_data": task} for task in tasks
                    ],
                },
            )
            for session, tasks in self._sessions()
        ]


async def ask_all(port: int, requests: Sequence[bytes], wanted: bytes) -> tuple[int, list[float]]:
    """How often the word that is wanted was said, and what each request took, in milliseconds."""
    said, times = 0, []

    async def ask(mine: Sequence[bytes]) -> None:
        nonlocal said
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        for request in mine:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                line for line in head.split(b"\r\n") if line.startswith(b"content-length:")
            )
            said += (await reader.readexactly(int(length.split()[1]))).count(wanted)
            times.append((time.perf_counter() - began) * 1000)
        writer.close()

    await asyncio.gather(*(ask(requests[number::CONNECTIONS]) for number in range(CONNECTIONS)))
    return said, sorted(times)


def main() -> None:
    asked = order()
    assert asked is not None
    held = Held(asked["count"])
    steps = {
        "claimed": (held.claims(), b'"GRANTED"'),
        "renewed in batches": (held.batch_renewals(), b'"RENEWED"'),
        "renewed one by one": (held.renewals(), b'"RENEWED"'),
        "submitted in batches": (held.submissions(), b'"ACCEPTED"'),
    }
    for name, (requests, wanted) in steps.items():
        began = time.perf_counter()
        said, times = asyncio.run(ask_all(asked["port"], requests, wanted))
        say(
            fact=name,
            said=said,
            seconds=time.perf_counter() - began,
            p99=times[int(len(times) * 0.99)],
        )
        assert order() == {"do": "go on"}


if __name__ == "__main__":
    main()
