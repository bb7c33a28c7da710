"""A service as a process of its own: `python service.py STORE_URL PORT`; it says its port when it
answers, and stops on SIGTERM."""

from __future__ import annotations

import asyncio
import sys

import genlock.aio
from genlock.service.server import listen, server
from tests.logs import build


async def main(url: str, port: int) -> None:
    coordinator = genlock.aio.connect(url, create=True, process=None)
    listening = listen("127.0.0.1", port)
    uvicorn = server(build(coordinator))
    uvicorn.on_started = lambda: print(listening.getsockname()[1], flush=True)
    await uvicorn.serve(sockets=[listening])
    await coordinator.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
