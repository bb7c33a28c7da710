"""What is measured, each in a process of its own on the first core: the service on a store, and a
bare Starlette echo on plain uvicorn.

python -m bench.http.serving service URL      prints its port, serves until its input ends
python -m bench.http.serving echo FILE        answers every request with the bytes of that file
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

SERVER_CORE, CLIENT_CORE = 0, 1


class Counting:
    """A store that counts what is asked of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if name not in ("load", "commit", "find", "read_events"):
            return value

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            return value(*args, **kwargs)

        return counted


def pin(core: int) -> None:
    """Keeps this process on one core, if there are several. Whoever started it may be on one
    himself, and that is inherited."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def _usage(store: Counting | None) -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    named = {thread.name: thread.ident for thread in threading.enumerate()}
    threads = {}
    for name, ident in named.items():
        with contextlib.suppress(OSError, ValueError):
            threads[f"cpu {name}"] = (
                time.clock_gettime(time.pthread_getcpuclockid(ident)) if ident else 0.0
            )
    return {
        "cpu": used.ru_utime + used.ru_stime,
        "asked": float(store.asked if store else 0),
        **threads,
    }


async def _serve(app: Any, store: Counting | None) -> None:
    from genlock.service.server import listen, server, spare_the_collector

    if store is not None:  # the service, which does so itself
        spare_the_collector()
    listening = listen("127.0.0.1", 0)
    running = asyncio.ensure_future(
        (_bare(app) if store is None else server(app)).serve(sockets=[listening])
    )
    print(listening.getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    while await lines.readline():
        import json

        print(json.dumps(_usage(store)), flush=True)
    running.cancel()


def _bare(app: Any) -> Any:
    """uvicorn as it comes: the service's own connections are cheaper, and would make the echo so
    too."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
        )
    )


def _service(url: str) -> tuple[Any, Counting]:
    """As `genlock serve` puts it together: with its monitor, its metrics and its log, which nobody
    reads."""
    import genlock.aio
    from genlock.open import open_store
    from genlock.service.compose import Choices, build
    from genlock.service.logs import Log
    from genlock.service.metrics import Metrics

    store, metrics = Counting(open_store(url, create=True)), Metrics()
    coordinator = genlock.aio.connect(
        store,
        process=None,
        deadline_seconds=60,
        lanes=4,
        service=True,
        monitor=True,
        observer=metrics,
    )
    return build(
        coordinator, Choices(), Log(form="json", file=os.open(os.devnull, os.O_WRONLY)), metrics
    ), store


def _echo(path: str) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    body = Path(path).read_bytes()

    async def echo(request: Request) -> Response:
        await request.body()
        return Response(body, media_type="application/json")

    return Starlette(
        routes=[Route("/v1/{tenant}/{project}/tasks/{task}/claim", echo, methods=["POST"])]
    )


def main() -> None:
    from genlock.service.server import run as run_service

    pin(SERVER_CORE)
    what, given = sys.argv[1:3]

    async def main() -> None:
        await _serve(*_service(given))

    if what == "echo":
        uvloop.run(_serve(_echo(given), None))
    else:
        run_service(main())


class Server:
    """Such a process, seen from the client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline())

    def usage(self) -> dict[str, float]:
        """CPU seconds, in all and by thread, and how much the store has been asked."""
        import json

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        used: dict[str, float] = json.loads(self._process.stdout.readline())
        return used


@contextlib.contextmanager
def started(what: str, given: str) -> Iterator[Server]:
    """The process, until the end of the block."""
    command = [sys.executable, "-m", "bench.http.serving", what, given]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
