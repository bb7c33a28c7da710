"""Very many claims of one tenant at once, from a process of its own: prints how many of COUNT were granted at PORT."""

from __future__ import annotations

import asyncio
import sys

from genlock.service.serving import room_for

BODY = b'{"agent_id":"a","session_id":"s"}'
END = f"\r\nhost: localhost\r\ncontent-length: {len(BODY)}\r\nconnection: close\r\n\r\n".encode() + BODY


async def claim(port: int, task: str) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /v1/noisy/default/tasks/{task}/claim HTTP/1.1".encode() + END)
    try:
        return (await reader.read()).startswith(b"HTTP/1.1 200 ")
    finally:
        writer.close()


async def main() -> None:
    port, count = int(sys.argv[1]), int(sys.argv[2])
    room_for(count)
    print(sum(await asyncio.gather(*(claim(port, f"n{n}") for n in range(count)))))


if __name__ == "__main__":
    asyncio.run(main())
