"""Very many claims of one tenant at once, from a process of its own: says when all have been sent
once, and how many were granted.

    flood.py PORT AT_ONCE EACH

As many connections, each of which makes so many claims, one after the other.
"""

from __future__ import annotations

import asyncio
import sys

from genlock.service.server import room_for

BODY = b'{"agent_id":"a","session_id":"s"}'
END = f"\r\nhost: localhost\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY


async def claim(port: int, tasks: range, sent: asyncio.Barrier) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    granted = 0
    try:
        for task in tasks:
            writer.write(f"POST /v1/noisy/default/tasks/n{task}/claim HTTP/1.1".encode() + END)
            if task == tasks[0] and await sent.wait() == 0:
                print("sent", flush=True)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                line for line in head.split(b"\r\n") if line.startswith(b"content-length:")
            )
            await reader.readexactly(int(length.split()[1]))
            granted += head.startswith(b"HTTP/1.1 200 ")
        return granted
    finally:
        writer.close()


async def main() -> None:
    port, at_once, each = map(int, sys.argv[1:])
    room_for(at_once)
    sent = asyncio.Barrier(at_once)
    print(
        sum(
            await asyncio.gather(
                *(claim(port, range(n, at_once * each, at_once), sent) for n in range(at_once))
            )
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
