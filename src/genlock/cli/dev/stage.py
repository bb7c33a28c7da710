"""The service with the plan, the agents and the director beside it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from genlock.cli.answers import Style
from genlock.cli.dev.crew import Crew
from genlock.cli.dev.director import Director
from genlock.cli.dev.plan import PROJECT
from genlock.errors import BadArgument
from genlock.places import sqlite_url
from genlock.service.addresses import listen_near
from genlock.service.hosting import Hosted, Options, host
from genlock.service.serving import run

if TYPE_CHECKING:
    from genlock.cli.app import App


def play(app: App, options: Options, *, fresh: bool, agents: int, seconds: float | None) -> None:
    """Until it is told to stop."""
    from genlock.cli.verbs.serving import announce

    def begin(hosted: Hosted) -> None:
        announce(app, hosted)
        if app.answers.style is Style.TEXT:
            app.answers.say(f"Ctrl-C ends it. From another terminal: genlock agents --url {hosted.url} --project {PROJECT}")

    if app.settings["serve_log_level"].origin == "default":
        options = replace(options, log_level="warning")  # one line for every act of every agent would bury the one that counts

    @asynccontextmanager
    async def beside(hosted: Hosted) -> AsyncIterator[None]:
        crew = Crew(hosted.url, agents)
        director = Director(hosted.coordinator, crew)
        await director.prepare()
        directing = asyncio.create_task(director.direct())
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, hosted.server.stop)

        async def send_home() -> None:
            directing.cancel()
            with suppress(asyncio.CancelledError):
                await directing
            await asyncio.to_thread(crew.send_home)

        hosted.server.before_stop.append(send_home)
        try:
            yield
        finally:
            await send_home()

    with _store(app, fresh=fresh) as url:
        listening = listen_near(options.host, options.port)
        run(host(url, options, begin, listening=listening, create=True, profile="local", beside=beside))


@contextmanager
def _store(app: App, *, fresh: bool) -> Iterator[str]:
    """The project's store, or one that is gone afterwards."""
    if not fresh:
        yield _own(app)
        return
    if app.settings["url"].origin.startswith("flag"):
        raise BadArgument("--fresh is a store of its own, and --url names another; leave out one of them")
    folder = Path(tempfile.mkdtemp(prefix="genlock-dev-"))
    try:
        yield sqlite_url(folder / "genlock.db")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _own(app: App) -> str:
    from genlock.cli.verbs.start import make_place

    if app.setting("url") is None:
        make_place(app.project_folder)
    return app.store_url
