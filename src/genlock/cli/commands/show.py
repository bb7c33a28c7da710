"""Commands that show tasks: ready, list, show, history, explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET, Struct, UnsetType

from genlock.cli.app import App, title_of, verb
from genlock.cli.inputs import SECONDS
from genlock.cli.suggestions import note_missing
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.cli.suggestions import NothingReady
    from genlock.core.results import BlockedTask

_ALL = 100_000
_SCREEN = 100


class ReadyLine(Struct, gc=False):
    """A task that could be claimed, with TD's keys and a title."""

    id: str
    title: str
    track: str | None
    priority: str
    assigned_to: str | None
    parallelizable: bool
    isolation: str


class BlockedLine(Struct, gc=False):
    """A blocked task, with TD's keys and a title."""

    id: str
    title: str
    track: str | None
    blocked_by: tuple[str, ...]


class ReadyAnswer(Struct, gc=False):
    """The output of `ready --json`: TD's shape, and if nothing is ready, the reason."""

    ready_tasks: list[ReadyLine]
    blocked_tasks: list[BlockedLine]
    outlook: NothingReady | UnsetType = UNSET


@click.command()
@click.option(
    "--limit",
    type=int,
    metavar="N",
    help=f"At most this many of each; default: {_SCREEN}, and all with --quiet.",
)
@click.option("--all", "every", is_flag=True, help="Show all.")
@click.option(
    "--track",
    "tracks",
    multiple=True,
    metavar="TRACK",
    help="Only this track; may be given several times.",
)
@click.option(
    "--agent",
    metavar="NAME",
    help="The agent to list for; default: you, if your agent has a name.",
)
@click.option(
    "--role",
    envvar="GENLOCK_ROLE",
    metavar="ROLE",
    help="The role to list for; default: $GENLOCK_ROLE, or else every role.",
)
@verb()
def ready(
    app: App,
    limit: int | None,
    every: bool,
    tracks: tuple[str, ...],
    agent: str | None,
    role: str | None,
) -> None:
    """List the tasks that can be claimed now.

    In the order of `next`; below, the blocked tasks and what blocks them. A note on stderr says if
    there are more. If nothing is ready, it says why: the plan is finished, others are at work, or a
    task needs a person; in JSON as "outlook", as for `next`.
    """
    import gc

    from genlock.cli.answers import Style

    if every and limit is not None:
        raise BadArgument("--all and --limit exclude each other")
    # Ten thousand records are read and none is dropped: garbage collections would take a fifth of
    # the time.
    gc.disable()
    every = every or (limit is None and app.answers.style is Style.BARE)
    most = _ALL if every else _SCREEN if limit is None else limit
    agent_typed = agent is not None
    agent = agent if agent is not None else app.setting("agent")
    # Requests one more than it shows, to know whether there are more.
    asked = most + 1 if 0 < most < _ALL else most
    found = app.fleet.ready(
        limit=asked, tracks=tracks or None, agent_id=agent, agent_role=role or None
    )
    waiting: tuple[BlockedTask, ...] = ()
    outlook: NothingReady | None = None
    if app.answers.style is not Style.BARE:
        if not found:
            from genlock.cli.suggestions import look_out

            outlook = look_out(app, tracks)
        # Filtering by track needs all of them, and so does the count on a terminal.
        whole = bool(tracks) or app.answers.style is Style.TEXT
        waiting = tuple(
            line
            for line in app.fleet.blocked(limit=_ALL if whole else asked)
            if not tracks or line.task.track in tracks
        )

    if not found and not waiting:
        note_missing(app, tracks)

    def text(console: Console) -> None:
        from genlock.cli.render.pages import print_ready

        print_ready(console, found[:most], waiting, outlook)

    lines = [
        ReadyLine(
            t.id, title_of(t), t.track, t.priority, t.assigned_to, t.parallelizable, t.isolation
        )
        for t in (line.task for line in found[:most])
    ]
    blocked = [
        BlockedLine(line.task.id, title_of(line.task), line.task.track, line.blocked_by)
        for line in waiting[:most]
    ]
    app.answers.give(
        ReadyAnswer(lines, blocked, outlook or UNSET),
        text=text,
        bare=(line.task.id for line in found[:most]),
    )
    if len(found) > most or (len(waiting) > most and app.answers.style is Style.JSON):
        only = [word for track in tracks for word in ("--track", track)] + (
            ["--agent", agent] if agent_typed else []
        )
        app.answers.say(f"there are more: {app.command('ready', '--all', *only)}")


@click.command()
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only in this state; may be given several times.",
)
@click.option(
    "--track",
    "tracks",
    multiple=True,
    metavar="TRACK",
    help="Only this track; may be given several times.",
)
@click.option("--agent", metavar="NAME", help="Only what this agent holds, has done or is to do.")
@click.option("--tag", metavar="TEXT", help="Only with this tag.")
@click.option(
    "--search", "words", default="", metavar="WORDS", help="Only with each of these words."
)
@click.option(
    "--sort",
    default="order",
    metavar="KEY",
    help="order (of `next`; the default), priority, updated, state or id.",
)
@click.option("--reverse", is_flag=True, help="The last first.")
@click.option(
    "--limit",
    type=int,
    default=_SCREEN,
    metavar="N",
    help=f"At most this many; default: {_SCREEN}.",
)
@click.option("--after", metavar="TOKEN", help='The next page: "next" of the page before.')
@verb()
def list_tasks(app: App, states: tuple[str, ...], tracks: tuple[str, ...], **options: Any) -> None:
    """List tasks: filtered, sorted and by page.

    The words of --search are looked for in ids, titles, tags and descriptions. As JSON: {"tasks",
    "total", "counts" (by state, of all that match the other filters), "next", "cursor", "now"}.
    """
    page = app.fleet.list_tasks(
        states=[state.upper().replace("-", "_") for state in states] or None,
        tracks=tracks or None,
        agent_id=options.pop("agent"),
        text=options.pop("words"),
        **options,
    )

    def text(console: Console) -> None:
        from genlock.cli.render.pages import print_task_rows

        print_task_rows(console, page)

    app.answers.give(page, text=text, bare=(row.id for row in page.tasks))
    if page.next is not None:
        app.answers.say(f"{page.total:,} match; the next page: --after {page.next}")
    if not page.total:
        note_missing(app, tracks)


@click.command()
@click.argument("task")
@click.option("--result", is_flag=True, help="Only the data of its accepted result, however large.")
@click.option(
    "--digest",
    metavar="HEX",
    help="With --result: of another result of it, by the digest that `refused` shows.",
)
@verb()
def show(app: App, task: str, result: bool, digest: str | None) -> None:
    """Show everything about a task."""
    if digest is not None and not result:
        raise BadArgument("--digest goes with --result")
    if result:
        data = app.fleet.read_result(task_id=task, digest=digest)
        _give_data(app, data)
        return
    state = app.fleet.get_task_state(task_id=task)

    def text(console: Console) -> None:
        from genlock.cli.render.pages import print_state

        print_state(console, state, app.command)

    app.answers.give(state, text=text, bare=[state.state])


@click.command()
@click.argument("task")
@verb()
def history(app: App, task: str) -> None:
    """Show a task's generations and its refused results.

    One line for each grant; below, the results that came too late or from the wrong session.
    """
    lineage = app.fleet.get_lineage(task_id=task)

    def text(console: Console) -> None:
        from genlock.cli.render.pages import print_lineage

        print_lineage(
            console, lineage, app.fleet.get_task_state(task_id=task), app.command, app.own_session
        )

    app.answers.give(lineage, text=text, bare=(entry.generation for entry in lineage.generations))


@click.command()
@click.argument("task")
@click.option("--as", "as_agent", metavar="AGENT", help="Explain for this agent.")
@click.option("--lease", type=SECONDS, metavar="SECONDS", help="The lease to ask for.")
@click.option(
    "--role",
    default="",
    envvar="GENLOCK_ROLE",
    metavar="ROLE",
    help="The role to claim in; default: $GENLOCK_ROLE.",
)
@verb(worker=True)
def explain(app: App, task: str, as_agent: str | None, lease: float | None, role: str) -> None:
    """Explain why a task is not ready, and what would change that.

    Says what a claim would be answered now, what the task is waiting for, and what to type.
    """
    from msgspec.structs import replace

    from genlock.cli.inputs import lease_or_default
    from genlock.messages import describe

    # Another agent does not belong to this session: the session distinguishes its claims.
    session = None if as_agent is None else "explain"
    seconds = lease_or_default(app, lease)
    found = app.fleet.explain(
        task_id=task,
        agent_id=as_agent,
        session_id=session,
        lease_duration_seconds=seconds,
        agent_role=role,
    )
    found = replace(found, try_next=describe(found, app.context()).try_next)

    def text(console: Console) -> None:
        from genlock.cli.render.pages import print_explanation

        print_explanation(console, found)

    app.answers.give(found, text=text, bare=[found.reason])


# Rendering


def _give_data(app: App, data: Any) -> None:
    """Prints a result's data: text unchanged, anything else as JSON. It is meant for a program, or
    for its own author."""
    import msgspec

    written = data if isinstance(data, str) else msgspec.json.encode(data).decode()

    def text(console: Console) -> None:
        from genlock.safe_text import safe_line

        for line in (
            written if isinstance(data, str) else msgspec.json.format(written, indent=2)
        ).splitlines():
            console.print(safe_line(line), markup=False, soft_wrap=True)

    app.answers.give(data, text=text, bare=[written])
