"""Commands that show the fleet: status, agents, sessions, refused results."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from genlock.cli.app import App, verb
from genlock.cli.suggestions import note_missing
from genlock.core.overview import Stuck
from genlock.core.results import TaskProgress

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.dashboard import Need

_ALL = 100_000
_NEXT = 5
_MOST_TOLD = 10


class AgentRow(Struct, gc=False):
    """An agent and its task."""

    task: str
    agent: str
    session: str
    generation: int
    lease_ends: datetime | None
    looks_alive: bool
    progress: TaskProgress | None = None


class StatusAnswer(Struct, gc=False):
    """The output of `status --json`."""

    project: str
    states: dict[str, int]
    at_work: list[AgentRow]
    stuck: tuple[Stuck, ...]
    next: list[str]
    refused_results: int


_watch = click.option("--watch", is_flag=True, help="Show it again whenever it changes.")


@click.command()
@_watch
@verb()
def status(app: App, watch: bool) -> None:
    """Show the plan: who does what, what is stuck, what is next.

    Begins with the number of tasks in each state. A stuck task needs a person: `genlock explain
    TASK` says what to type. As JSON: {"project", "states": {…}, "at_work": […], "stuck": […],
    "next": […], "refused_results"}.
    """
    if watch:
        app.watch(lambda: _show_status(app))
    else:
        _show_status(app)


_HOLDER: Final = ("LOST_HOLDER", "OVERDUE", "NOT_TAKEN_OVER")


def _stuck(needs: Iterable[Need]) -> tuple[Stuck, ...]:
    """Returns the tasks that need a person; those with the most dependents come first. Refused
    results are counted elsewhere."""
    found = [
        Stuck(
            need.task_id,
            need.state,
            f"its holder, {need.agent_id}, looks lost" if need.kind in _HOLDER else need.why,
            need.waited_for_by,
        )
        for need in needs
        if need.kind != "REFUSED_RESULT"
    ]
    return tuple(sorted(found, key=lambda one: (-one.waited_for_by, one.task_id)))


def _show_status(app: App) -> None:
    overview = app.fleet.get_overview(limit=_ALL)
    if not overview.total:
        note_missing(app)
    people = app.fleet.list_agents()
    states = app.fleet.batch_get_states(task_ids=[task for line in people for task in line.tasks])
    stuck = _stuck(overview.needs)
    ready = app.fleet.ready(limit=_NEXT, agent_id=app.setting("agent"))
    refused, counts = overview.refused_results, dict(overview.states)

    def text(console: Console) -> None:
        from genlock.cli.render.pages import print_status

        print_status(console, app, counts, people, states, stuck, ready, refused)

    at_work = [
        AgentRow(
            name,
            state.holder.agent,
            state.holder.session,
            state.generation,
            state.holder.expires_at,
            state.holder.looks_alive,
            state.progress,
        )
        for name, state in states.items()
        if state.holder is not None
    ]
    app.answers.give(
        StatusAnswer(
            app.setting("project"),
            counts,
            at_work,
            stuck,
            [line.task.id for line in ready],
            refused,
        ),
        text=text,
        bare=[f"{state} {number}" for state, number in counts.items()],
    )


@click.command()
@_watch
@verb()
def agents(app: App, watch: bool) -> None:
    """List the agents and what each does.

    An agent is starting, idle, working, waiting, stopping or lost; `genlock session heartbeat
    --status waiting` says so of one's own. As JSON: {"agents": [{"agent_id", "session_id",
    "status", "current_task", "tasks", "tasks_completed", "started", "last_heartbeat", "user_id",
    "instance_type", "workspace", "worktree"}]}.
    """

    def show() -> None:
        found = app.fleet.list_agents(include_idle=True)
        if not found:
            note_missing(app)

        def text(console: Console) -> None:
            from genlock.cli.render.pages import print_agents

            print_agents(
                console,
                found,
                app.fleet.batch_get_states(
                    task_ids=[task for line in found for task in line.tasks]
                ),
            )

        app.answers.give({"agents": found}, text=text, bare=(line.agent_id for line in found))

    app.watch(show) if watch else show()


@click.command()
@click.option("--all", "every", is_flag=True, help="Also list those that have ended.")
@verb()
def sessions(app: App, every: bool) -> None:
    """List the sessions and what they hold."""
    found = app.fleet.list_sessions(include_ended=every, limit=_ALL)
    if not found:
        note_missing(app)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import Column, from_now, print_lines, print_table

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
            state = (
                "ended"
                if line.ended_at
                else "gone"
                if line.process_gone
                else "active"
                if line.active
                else "silent"
            )
            held = ", ".join(claim.task_id for claim in line.claims)
            rows.append(
                (line.session_id, line.user_id, state, from_now(line.last_activity), line.pid, held)
            )
        print_table(console, columns, rows)

    app.answers.give({"sessions": found}, text=text, bare=(line.session_id for line in found))


@click.command()
@click.argument("task", required=False)
@click.option("--all", "every", is_flag=True, help="Also list those adopted or discarded.")
@click.option(
    "--limit", type=int, default=100, metavar="N", help="At most this many; default: 100."
)
@click.option(
    "--after", metavar="ID", help="Only those after this refused result, the last one seen."
)
@verb()
def refused(app: App, task: str | None, every: bool, limit: int, after: str | None) -> None:
    """List the refused results.

    Of one task, or of all. An operator should `adopt` or `discard` each; `show TASK --result
    --digest HEX` prints one.
    """
    if task is not None:
        # Raises TaskNotFound for a mistyped task, which would otherwise just have no refused
        # results.
        app.fleet.get_task_state(task_id=task)
    found = app.fleet.list_refused_results(
        task_id=task, include_settled=every, limit=limit, after=after
    )
    if not found:
        note_missing(app)

    def text(console: Console) -> None:
        from genlock.cli.render.pages import refused_name
        from genlock.cli.render.tables import (
            Column,
            from_now,
            print_commands,
            print_lines,
            print_table,
        )
        from genlock.core.reasons import FINISHED

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
            Column("reference", 1),
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
                line.reference,
            )
            for line in found
        ]
        print_table(console, columns, rows)
        own = app.own_session
        # The session whose result was refused cannot adopt it, so it gets no such advice.
        kept = [
            line
            for line in found
            if line.state is not None and line.state.value == "KEPT" and line.session_id != own
        ]
        if kept:
            print_lines(
                console, "", "for an operator, to make one count, or to give it up:", style="dim"
            )
            states = app.fleet.batch_get_states(
                task_ids=list({line.task_id for line in kept[:_MOST_TOLD]})
            )
            for line in kept[:_MOST_TOLD]:
                state = states.get(line.task_id)
                # A finished task must be reset before another result can count.
                if state is not None and state.state in FINISHED:
                    print_commands(console, app.command("reset", line.task_id))
                print_commands(console, app.command("adopt", line.task_id, refused_name(line)))
            print_commands(console, app.command("discard", kept[0].task_id, refused_name(kept[0])))

    app.answers.give({"refused": found}, text=text, bare=(line.id for line in found))
