"""The feed: events, past ones or as they come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb
from genlock.cli.slips import note_missing
from genlock.cli.streams import forget_stdout, reader_gone
from genlock.errors import BadArgument, CursorLost

if TYPE_CHECKING:
    from genlock.core.results import FeedEvent

_PAGE = 1000
_LOOK_SECONDS = 1.0


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes; Ctrl-C ends it.")
@click.option("--after", metavar="CURSOR", help="What came after this; every event carries its cursor.")
@click.option("--task", metavar="TASK", help="Only what happened to this task.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only such events, as CLAIM_ACQUIRED; may be given several times.")
@click.option("--limit", type=int, metavar="N", help="End after so many.")
@verb()
def events(app: App, follow: bool, after: str | None, task: str | None, types: tuple[str, ...], limit: int | None) -> None:
    """The feed of the project.

    From its beginning, or after a cursor; with --follow alone, from now on. Off a terminal one JSON object a line.
    """
    wanted = {_type(name) for name in types}
    if limit is not None and limit < 1:
        raise BadArgument(f"--limit is 1 or more, not {limit}")
    if task is not None:
        app.fleet.get_task_state(task_id=task)
    found = _follow(app, after) if follow else _past(app, after)
    write = _writer(app, flush=follow)
    given, nothing = 0, True
    try:
        for event in found:
            nothing = False
            if (task is None or event.event.get("task_id") == task) and (not wanted or event.event_type in wanted):
                write(event)
                given += 1
                if given == limit:
                    break
        sys.stdout.buffer.flush()
        if nothing and after is None and not follow:
            note_missing(app)
    except CursorLost as lost:
        raise CursorLost(f"{lost}; to read from the beginning of what is kept, leave --after out") from None
    except BrokenPipeError:
        if not follow:
            raise
        # Whoever reads has what it wanted: so ends `genlock events --follow --type RESULT_ACCEPTED | head -1`.
        forget_stdout()


def _past(app: App, after: str | None) -> Iterator[FeedEvent]:
    while True:
        feed = app.fleet.read_events(after=after, limit=_PAGE)
        yield from feed.events
        if not feed.more:
            return
        after = feed.cursor


def _follow(app: App, after: str | None) -> Iterator[FeedEvent]:
    """Events as they come. In the pauses the reader is looked after: nobody else would notice that it has gone."""
    if after is None:
        after = app.fleet.read_events(tail=True).cursor
        if sys.stdout.isatty() and sys.stderr.isatty():
            app.answers.say("what comes is shown as it happens; Ctrl-C ends it")
    while True:
        for event in app.fleet.watch(after=after, timeout_seconds=_LOOK_SECONDS):
            yield event
            after = event.cursor
        sys.stdout.flush()
        if reader_gone():
            return


def _type(name: str) -> str:
    from genlock.core.events import Event

    known = {kind.__struct_config__.tag for kind in Event.__args__}
    wanted = name.upper().replace("-", "_")
    if wanted not in known:
        raise BadArgument(f"there is no event {name!r}; there are: {', '.join(sorted(map(str, known)))}")
    return wanted


def _writer(app: App, *, flush: bool) -> Callable[[FeedEvent], None]:
    """How one event is written, for this reader; with `flush` a reader at the other end of a pipe has it when it happens."""
    from genlock.cli.answers import Style

    def line(data: bytes) -> None:
        sys.stdout.buffer.write(data + b"\n")
        if flush:
            sys.stdout.buffer.flush()

    if app.answers.style is Style.JSON:
        import msgspec

        encode = msgspec.json.Encoder().encode
        return lambda event: line(encode(event))
    if app.answers.style is Style.BARE:
        return lambda event: line(event.cursor.encode())
    from genlock.cli.pages import print_event

    console = app.answers.console()
    return lambda event: print_event(console, event)
