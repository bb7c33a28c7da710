"""A process with many clients of one stream in it. It says when all are there, when all have got an
event, and when."""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

from tests.processes.worker import order, say


class Crowd:
    """Counts what its clients get. They read as little as they can: who measures must not be what
    is measured."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        self._there = 0
        self._got = [0] * asked["clients"]
        self._times: list[list[int]] = [[] for _ in range(asked["events"])]

    async def run(self) -> None:
        begin = asyncio.Semaphore(100)
        await asyncio.gather(
            *(self._read(number, begin) for number in range(self._asked["clients"]))
        )
        say(fact="finished", got=self._got)

    async def _read(self, number: int, begin: asyncio.Semaphore) -> None:
        async with begin:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._asked["port"])
            writer.write(f"GET {self._asked['path']} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await reader.readuntil(b"retry: ")
        self._there += 1
        if self._there == self._asked["clients"]:
            say(fact="there")
        while self._got[number] < self._asked["events"]:
            await reader.readuntil(b"\ndata: ")
            self._note(number)
        writer.close()

    def _note(self, number: int) -> None:
        times = self._times[self._got[number]]
        times.append(time.monotonic_ns())
        self._got[number] += 1
        if len(times) == self._asked["clients"]:
            say(fact="got", times=times if self._asked["times"] else [])


def main() -> None:
    asked = order()
    assert asked is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    asyncio.run(Crowd(asked).run())


if __name__ == "__main__":
    main()
