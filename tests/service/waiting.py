"""Very many agents that wait for work, in a process of their own. It says when all have asked, and
of each task when it was granted."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from genlock.service.server import room_for
from tests.processes.worker import order, say


class Waiters:
    """Each waits for one task after the other until all are granted."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._port, self._tasks = asked["port"], asked["tasks"]
        self._asked = 0
        self._count = asked["waiters"]
        self.granted: list[str] = []
        self._over = asyncio.Event()

    async def run(self) -> None:
        waiting = [asyncio.create_task(self._wait(number)) for number in range(self._count)]
        await self._over.wait()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        say(fact="finished", granted=self.granted)

    async def _wait(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps(
            {"agent_id": f"w{number}", "session_id": f"w{number}", "wait_seconds": 600}
        ).encode()
        ask = (
            "POST /v1/default/default/claim-next HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
            f"{len(body)}\r\n\r\n"
        ).encode() + body
        try:
            while True:
                writer.write(ask)
                self._asked += 1
                if self._asked == self._count:
                    say(fact="there")
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    line for line in head.split(b"\r\n") if line.startswith(b"content-length:")
                )
                self._got(json.loads(await reader.readexactly(int(length.split()[1]))))
        finally:
            writer.close()

    def _got(self, answer: dict[str, Any]) -> None:
        self.granted.append(answer["task_id"] if answer.get("success") else f"no: {answer}")
        say(fact="granted", task=self.granted[-1], at=time.monotonic())
        if len(self.granted) == self._tasks:
            self._over.set()


def main() -> None:
    asked = order()
    assert asked is not None
    room_for(asked["waiters"] + 100)
    asyncio.run(Waiters(asked).run())


if __name__ == "__main__":
    main()
