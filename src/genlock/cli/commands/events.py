"""The feed: past events, or events as they happen."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from genlock.cli.answers import forget_stdout, reader_gone
from genlock.cli.app import App, verb
from genlock.cli.suggestions import note_missing
from genlock.core.names import listed_with_nearest
from genlock.errors import BadArgument, CursorLost

if TYPE_CHECKING:
    from genlock.core.results import FeedEvent

_PAGE = 1000
_LOOK_SECONDS = 1.0


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Continue with new events; Ctrl-C ends it.")
@click.option(
    "--after",
    metavar="CURSOR",
    help="Only events after this cursor; every event carries its cursor.",
)
@click.option("--task", metavar="TASK", help="Only the events of this task.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only events of this kind, for example CLAIM_ACQUIRED; may be given several times.",
)
@click.option("--limit", type=int, metavar="N", help="End after this many.")
@click.option("--last", type=int, metavar="N", help="Begin with the last so many.")
@verb()
def events(
    app: App,
    follow: bool,
    after: str | None,
    task: str | None,
    types: tuple[str, ...],
    limit: int | None,
    last: int | None,
) -> None:
    """Show the project's events.

    From the beginning, after a cursor, or the last ones; with --follow alone, from now on. Prints
    one JSON object per line when output is not a terminal.
    """
    wanted = {_type(name) for name in types}
    for option, number in (("--limit", limit), ("--last", last)):
        if number is not None and number < 1:
            raise BadArgument(f"{option} is 1 or more, not {number}")
    if last is not None and after is not None:
        raise BadArgument("--last and --after exclude each other: both say where to begin")
    if task is not None:
        app.fleet.get_task_state(task_id=task)

    def suits(event: FeedEvent) -> bool:
        return (task is None or event.event.get("task_id") == task) and (
            not wanted or event.event_type in wanted
        )

    if last is not None:
        after, recent = _last(app, last, suits)
        found = chain(recent, _follow(app, after)) if follow else iter(recent)
    else:
        found = _follow(app, after) if follow else _past(app, after)
    write = _writer(app, flush=follow)
    given, nothing = 0, True
    try:
        for event in found:
            nothing = False
            if suits(event):
                write(event)
                given += 1
                if given == limit:
                    break
        sys.stdout.buffer.flush()
        if nothing and after is None and not follow:
            note_missing(app)
    except CursorLost as lost:
        raise CursorLost(
            f"{lost}; to read from the beginning of what is kept, leave --after out"
        ) from None
    except BrokenPipeError:
        if not follow:
            raise
        # The reader has what it wanted, as in `genlock events --follow --type RESULT_ACCEPTED |
        # head -1`.
        forget_stdout()


def _last(app: App, number: int, suits: Callable[[FeedEvent], bool]) -> tuple[str, list[FeedEvent]]:
    """Returns the last matching events, and the cursor after them. Searches backwards in growing
    steps."""
    back, before = number, -1
    while True:
        after, read = app.fleet.read_events(tail=True, back=back).cursor, 0
        found: deque[FeedEvent] = deque(maxlen=number)
        for event in _past(app, after):
            read, after = read + 1, event.cursor
            if suits(event):
                found.append(event)
        if len(found) == number or read == before:
            return after, list(found)
        back, before = back * 8, read


def _past(app: App, after: str | None) -> Iterator[FeedEvent]:
    while True:
        feed = app.fleet.read_events(after=after, limit=_PAGE)
        yield from feed.events
        if not feed.more:
            return
        after = feed.cursor


def _follow(app: App, after: str | None) -> Iterator[FeedEvent]:
    """Yields events as they happen. During pauses it checks whether the reader has gone, because no
    write would reveal that."""
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

    known = {str(kind.__struct_config__.tag) for kind in Event.__args__}
    wanted = name.upper().replace("-", "_")
    if wanted not in known:
        meant = _OTHER_WORDS.get(wanted, wanted)
        if meant in known:
            raise BadArgument(f"there is no event {name!r}; did you mean {meant}?")
        raise BadArgument(f"there is no event {name!r}; {listed_with_nearest(wanted[:60], known)}")
    return wanted


_OTHER_WORDS: Final = {
    "CLAIMED": "CLAIM_ACQUIRED",
    "GRANTED": "CLAIM_ACQUIRED",
    "SUBMITTED": "RESULT_ACCEPTED",
    "COMPLETED": "RESULT_ACCEPTED",
    "REFUSED": "RESULT_REJECTED",
}
"""Common words for events whose names are different."""


def _writer(app: App, *, flush: bool) -> Callable[[FeedEvent], None]:
    """Returns a function that writes one event in the form for this reader; with `flush`, a pipe's
    reader gets each event at once."""
    from genlock.cli.answers import Style

    if app.answers.style is Style.JSON:
        import msgspec

        encode = msgspec.json.Encoder().encode
        return lambda event: app.answers.write_json(encode(event) + b"\n", flush=flush)
    if app.answers.style is Style.BARE:
        return lambda event: app.answers.write_text(f"{event.cursor}\n", flush=flush)
    from genlock.cli.render.pages import print_event

    console = app.answers.console()

    def write(event: FeedEvent) -> None:
        print_event(console, event)
        if flush:
            sys.stdout.flush()

    return write
