"""Looking at the fleet: agents, sessions, refused results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb
from genlock.cli.slips import note_missing

if TYPE_CHECKING:
    from rich.console import Console

_ALL = 100_000


@click.command()
@verb()
def agents(app: App) -> None:
    """Who is at work."""
    found = app.fleet.list_agents()
    if not found:
        note_missing(app)

    def text(console: Console) -> None:
        from genlock.cli.tables import Column, from_now, print_lines, print_table

        if not found:
            print_lines(console, "nobody is at work")
            return
        states = app.fleet.batch_get_states(task_ids=[task for line in found for task in line.tasks])
        columns = [
            Column("agent", least=8, style="bold"),
            Column("session", 1, least=10),
            Column("task", least=16),
            Column("gen", 2, least=3, right=True),
            Column("lease ends", 4, least=9),
            Column("looks", 3, least=4),
        ]
        rows: list[tuple[object, ...]] = []
        for line in found:
            session = line.session_id if line.session_id != line.agent_id else ""
            for task in line.tasks:
                state = states.get(task)
                holder = state.holder if state else None
                ends, alive = (from_now(holder.expires_at), "alive" if holder.looks_alive else "lost") if holder else ("", "")
                rows.append((line.agent_id, session, task, state.generation if state else "", ends, alive))
        print_table(console, columns, rows)

    app.answers.give({"agents": found}, text=text, bare=(line.agent_id for line in found))


@click.command()
@click.option("--all", "every", is_flag=True, help="Those that have ended, too.")
@verb()
def sessions(app: App, every: bool) -> None:
    """The sessions, and what they hold."""
    found = app.fleet.list_sessions(include_ended=every, limit=_ALL)

    def text(console: Console) -> None:
        from genlock.cli.tables import Column, from_now, print_lines, print_table

        if not found:
            print_lines(console, "there are no sessions")
            return
        columns = [
            Column("session", least=12),
            Column("user", 1),
            Column("state", least=6),
            Column("last seen", 3, least=8),
            Column("pid", 2),
            Column("holds", 4, least=10),
        ]
        rows = []
        for line in found:
            state = "ended" if line.ended_at else "gone" if line.process_gone else "active" if line.active else "silent"
            held = ", ".join(claim.task_id for claim in line.claims)
            rows.append((line.session_id, line.user_id, state, from_now(line.last_activity), line.pid, held))
        print_table(console, columns, rows)

    app.answers.give({"sessions": found}, text=text, bare=(line.session_id for line in found))


@click.command()
@click.argument("task", required=False)
@click.option("--all", "every", is_flag=True, help="Those adopted or discarded, too.")
@click.option("--limit", type=int, default=100, metavar="N", help="At most so many; default: 100.")
@click.option("--after", metavar="ID", help="Only what comes behind this refused result, the last one seen.")
@verb()
def refused(app: App, task: str | None, every: bool, limit: int, after: str | None) -> None:
    """Refused results that are kept.

    Of one task, or of all. Someone should `adopt` or `discard` each; `show TASK --result --digest HEX` prints one.
    """
    if task is not None:
        # A task that does not exist has no refused results, which would hide a slip of the pen.
        app.fleet.get_task_state(task_id=task)
    found = app.fleet.list_refused_results(task_id=task, include_settled=every, limit=limit, after=after)

    def text(console: Console) -> None:
        from genlock.cli.tables import Column, from_now, print_commands, print_lines, print_table
        from genlock.cli.wording import settle

        if not found:
            print_lines(console, "there are none")
            return
        columns = [
            Column("task", least=16),
            Column("gen", right=True, least=3),
            Column("by", 3, least=8),
            Column("why", 4, least=10),
            Column("when", 2, least=7),
            Column("bytes", 1, right=True),
            Column("state", 1),
        ]
        rows = [
            (
                line.task_id,
                line.generation,
                line.agent_id or line.session_id,
                line.rejection_reason,
                from_now(line.submitted_at),
                line.size,
                line.state.value.lower() if line.state and every else "",
            )
            for line in found
        ]
        print_table(console, columns, rows)
        kept = [line for line in found if line.state is not None and line.state.value == "KEPT"]
        if kept:
            print_lines(console, "", "to make one count, or to give it up:", style="dim")
            for line in kept[:10]:
                print_commands(console, settle("adopt", line.task_id, line.id))
            print_commands(console, settle("discard", kept[0].task_id, kept[0].id))

    app.answers.give({"refused": found}, text=text, bare=(line.id for line in found))
