"""Looking at the fleet: how it stands, agents, sessions, refused results."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from genlock.cli.app import App, verb
from genlock.cli.slips import note_missing
from genlock.core.overview import Stuck

if TYPE_CHECKING:
    from rich.console import Console

_ALL = 100_000
_NEXT = 5
_MOST_TOLD = 10
_MOST_HELD = 100
"""Of so many it is said why they are held: each is one more look."""


class AtWork(Struct, gc=False):
    """Who is on what."""

    task: str
    agent: str
    session: str
    generation: int
    lease_ends: datetime
    looks_alive: bool


class StatusAnswer(Struct, gc=False):
    """What `status --json` prints."""

    project: str
    states: dict[str, int]
    at_work: list[AtWork]
    stuck: tuple[Stuck, ...]
    next: list[str]
    refused_results: int


@click.command()
@verb()
def status(app: App) -> None:
    """How it stands: who is on what, what is stuck, what is next.

    First how many tasks are in which state. What is stuck does not move by itself: `genlock explain TASK` says what to type. As JSON:
    {"project", "states": {…}, "at_work": […], "stuck": […], "next": […], "refused_results"}.
    """
    from genlock.core.overview import count_states, find_stuck
    from genlock.core.reasons import Status

    graph = app.fleet.get_graph()
    if not graph.tasks:
        note_missing(app)
    people = app.fleet.list_agents()
    held = [task.id for task in graph.tasks if task.state is Status.HELD][:_MOST_HELD]
    states = app.fleet.batch_get_states(task_ids=[*held, *(task for line in people for task in line.tasks)])
    policy = app.fleet.get_policy().policy
    stuck = find_stuck(graph, states, offer_backlog=policy["offer_backlog"])
    ready = app.fleet.ready(limit=_NEXT, agent_id=app.setting("agent"))
    refused = len(app.fleet.list_refused_results(limit=_ALL))
    counts = count_states(graph.tasks)

    def text(console: Console) -> None:
        from genlock.cli.pages import print_status

        print_status(console, app, counts, people, states, stuck, ready, refused)

    at_work = [
        AtWork(name, state.holder.agent, state.holder.session, state.generation, state.holder.expires_at, state.holder.looks_alive)
        for name, state in states.items()
        if state.holder is not None
    ]
    app.answers.give(
        StatusAnswer(app.setting("project"), counts, at_work, stuck, [line.task.id for line in ready], refused),
        text=text,
        bare=[f"{state} {number}" for state, number in counts.items()],
    )


@click.command()
@verb()
def agents(app: App) -> None:
    """Who is at work."""
    found = app.fleet.list_agents()
    if not found:
        note_missing(app)

    def text(console: Console) -> None:
        from genlock.cli.pages import print_agents

        print_agents(console, found, app.fleet.batch_get_states(task_ids=[task for line in found for task in line.tasks]))

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
        from genlock.cli.wording import adoption, is_finished, settle

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
            states = app.fleet.batch_get_states(task_ids=list({line.task_id for line in kept[:_MOST_TOLD]}))
            for line in kept[:_MOST_TOLD]:
                finished = is_finished(states.get(line.task_id))
                print_commands(console, *adoption(app.command, line.task_id, line.id, finished=finished))
            print_commands(console, settle(app.command, "discard", kept[0].task_id, kept[0].id))

    app.answers.give({"refused": found}, text=text, bare=(line.id for line in found))
