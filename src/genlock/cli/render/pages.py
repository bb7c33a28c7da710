"""Pages about tasks for terminals: all states, ready tasks, one task, its lineage, why it is not
ready."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from genlock.cli.app import title_of
from genlock.cli.render.tables import (
    Column,
    count,
    from_now,
    lease_end,
    print_commands,
    print_fields,
    print_lines,
    print_table,
    stamp,
)
from genlock.core.reasons import FINISHED
from genlock.messages import holder, typed
from genlock.safe_text import safe_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from genlock.cli.app import App, CommandLine
    from genlock.cli.suggestions import NothingReady
    from genlock.core.dashboard import TaskPage, TaskRow
    from genlock.core.model import Task
    from genlock.core.overview import Stuck
    from genlock.core.results import (
        AgentInfo,
        BlockedTask,
        ClaimHistory,
        Explanation,
        FeedEvent,
        Lineage,
        ReadyTask,
        TaskProgress,
        TaskResult,
        TaskState,
    )


_MOST_WAITING = 10
_LONGEST_DATA = 400


def print_ready(
    console: Console,
    found: Sequence[ReadyTask],
    waiting: Sequence[BlockedTask],
    outlook: NothingReady | None = None,
) -> None:
    """Prints the tasks that can be claimed, and the number of those that cannot."""
    if found:
        columns = [
            Column("task", least=16, style="bold"),
            Column("priority", 3, least=8),
            Column("title", 4, least=12),
            Column("reserved for", 2, least=8),
        ]
        print_table(
            console,
            columns,
            [
                (line.task.id, line.task.priority, title_of(line.task), line.task.assigned_to)
                for line in found
            ],
        )
    elif outlook is not None:
        print_lines(console, f"nothing is ready: {outlook.detail}")
        print_commands(console, *map(typed, outlook.try_next))
    else:
        print_lines(console, "nothing is ready")
    if waiting:
        print_lines(console, "", f"{count(len(waiting), 'task')} blocked:", style="dim")
        print_table(
            console,
            [Column("task", least=16), Column("waits for", least=12)],
            [(line.task.id, ", ".join(line.blocked_by)) for line in waiting[:_MOST_WAITING]],
        )
        if len(waiting) > _MOST_WAITING:
            print_lines(console, f"and {len(waiting) - _MOST_WAITING:,} more", style="dim")


def print_agents(
    console: Console, found: Sequence[AgentInfo], states: Mapping[str, TaskState]
) -> None:
    """Prints the agents, what each does, and the rest of its lease."""
    if not found:
        print_lines(console, "nobody is there")
        return
    columns = [
        Column("agent", least=8, style="bold"),
        Column("session", 2, least=10),
        Column("status", least=7),
        Column("task", least=16),
        Column("gen", 3, least=3, right=True),
        Column("lease ends", 4, least=9),
        Column("heard", 1, least=7),
        Column("done", 3, least=4, right=True),
        Column("workspace", 1, least=8),
    ]
    rows: list[tuple[object, ...]] = []
    for line in found:
        session = line.session_id if line.session_id != line.agent_id else ""
        heard = from_now(line.last_heartbeat) if line.last_heartbeat is not None else ""
        done = "" if line.tasks_completed is None else line.tasks_completed
        for task in line.tasks or ("",):
            state = states.get(task)
            ends = lease_end(state.holder.expires_at) if state and state.holder else ""
            generation = state.generation if state else ""
            rows.append(
                (
                    line.agent_id,
                    session,
                    line.status,
                    task,
                    generation,
                    ends,
                    heard,
                    done,
                    line.worktree or line.workspace,
                )
            )
    print_table(console, columns, rows)


def print_holders(
    console: Console, found: Sequence[AgentInfo], states: Mapping[str, TaskState]
) -> None:
    """Prints the holders, what each holds, and the rest of its lease."""
    if not found:
        print_lines(console, "nobody is at work")
        return
    columns = [
        Column("agent", least=8, style="bold"),
        Column("session", 1, least=10),
        Column("task", least=16),
        Column("gen", 2, least=3, right=True),
        Column("lease ends", 4, least=9),
        Column("looks", 3, least=4),
        Column("progress", 2, least=8),
    ]
    rows: list[tuple[object, ...]] = []
    for line in found:
        session = line.session_id if line.session_id != line.agent_id else ""
        for task in line.tasks:
            state = states.get(task)
            holder = state.holder if state else None
            ends, alive = (
                (lease_end(holder.expires_at), "alive" if holder.looks_alive else "lost")
                if holder
                else ("", "")
            )
            generation = state.generation if state else ""
            told = state.progress if state else None
            now = told if told and told.generation == generation else None
            work = _work(now.fraction, now.notes[-1].text if now.notes else "", {}) if now else ""
            rows.append((line.agent_id, session, task, generation, ends, alive, work))
    print_table(console, columns, rows)


def _work(fraction: float | None, note: str, cost: Mapping[str, float]) -> str:
    """Returns a report of progress in a few words."""
    share = "" if fraction is None else f"{fraction:.0%}"
    told = ": ".join(part for part in (share, note) if part)
    return f"{told} ({_cost(cost)})".strip() if cost else told


def _cost(cost: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {unit}" for unit, amount in cost.items())


def print_status(
    console: Console,
    app: App,
    counts: Mapping[str, int],
    people: Sequence[AgentInfo],
    states: Mapping[str, TaskState],
    stuck: Sequence[Stuck],
    ready: Sequence[ReadyTask],
    refused: int,
) -> None:
    """Prints the status of the project."""
    project = app.setting("project")
    total = sum(counts.values())
    if not total:
        print_lines(
            console,
            f"project {project} has no tasks; to import a plan, type: "
            f"{app.command('plan import', 'FILE')}",
        )
        return
    parts = ", ".join(
        f"{number:,} {state.replace('_', ' ').lower()}" for state, number in counts.items()
    )
    print_lines(console, f"project {project}: {count(total, 'task')}: {parts}", style="bold")
    print_lines(console, "")
    print_holders(console, people, states)
    if stuck:
        print_lines(console, "", "stuck:", style="dim")
        columns = [
            Column("task", least=16),
            Column("why", 2, least=12),
            Column("waited for by", 1, right=True),
        ]
        print_table(
            console,
            columns,
            [(one.task_id, one.why, one.waited_for_by or "") for one in stuck[:_MOST_WAITING]],
        )
        if len(stuck) > _MOST_WAITING:
            print_lines(console, f"and {len(stuck) - _MOST_WAITING:,} more", style="dim")
        print_commands(console, app.command("explain", stuck[0].task_id))
    if sum(counts.get(state, 0) for state in FINISHED) == total:
        print_lines(console, "", "every task is finished")
    else:
        print_lines(console, "", "next:", style="dim")
        print_ready(console, ready, ())
    if refused:
        print_lines(
            console,
            "",
            f"{count(refused, 'refused result')} kept, to be adopted or discarded:",
            style="dim",
        )
        print_commands(console, app.command("refused"))


_LOOKS = {
    "STALE": "no sign",
    "OVERDUE": "overdue",
    "SILENT": "silent",
    "ENDED": "ended",
    "GONE": "gone",
}


def print_task_rows(console: Console, page: TaskPage) -> None:
    """Prints a list of tasks, and their number by state."""
    if not page.tasks:
        print_lines(console, "no task matches")
        return
    columns = [
        Column("task", least=16),
        Column("state", 9),
        Column("held by", 8, least=8),
        Column("gen", 4, least=3, right=True),
        Column("lease ends", 6, least=8),
        Column("looks", 7),
        Column("priority", 3),
        Column("waits for", 5, least=10),
        Column("title", 2, least=10),
    ]
    rows = [
        (
            row.id,
            row.state.value.replace("_", " ").lower(),
            row.holder.agent_id if row.holder else "",
            row.generation or "",
            lease_end(row.holder.expires_at) if row.holder else "",
            _LOOKS.get(row.holder.health, "") if row.holder else "",
            row.priority,
            _waits(row),
            row.title,
        )
        for row in page.tasks
    ]
    print_table(console, columns, rows)
    counts = ", ".join(
        f"{number:,} {state.replace('_', ' ').lower()}" for state, number in page.counts.items()
    )
    print_lines(console, "", f"{count(page.total, 'task')}; by state: {counts}", style="dim")


def _waits(row: TaskRow) -> str:
    if row.hold_reason:
        return row.hold_reason
    more = row.waits_for_count - len(row.waits_for)
    return ", ".join((*row.waits_for, *([f"{more:,} more"] if more > 0 else [])))


def print_state(console: Console, state: TaskState, command: CommandLine) -> None:
    """Prints everything about one task: its state, then the fields of its definition that are
    set."""
    task = state.task
    hold = (
        f"{state.hold_reason}{f', until {stamp(state.held_until)}' if state.held_until else ''}"
        if state.hold_reason
        else ""
    )
    print_fields(
        console,
        [
            ("task", task.id),
            ("title", task.title),
            ("state", state.state),
            ("generation", state.generation),
            ("held by", holder(state.holder, datetime.now(UTC)) if state.holder else ""),
            ("held back", hold),
            ("waits for", ", ".join((*state.unmet_dependencies, *state.unfinished_children))),
            ("spawned tasks", ", ".join(state.spawned_tasks)),
            *(_result_fields(state.result, command) if state.result else ()),
            ("refused results", state.refused_results or ""),
            *(_progress_fields(state.progress) if state.progress else ()),
            ("inputs changed", ", ".join(state.inputs_changed)),
            ("failures in a row", state.failures or ""),
            ("added", from_now(state.created_at)),
            ("last change", from_now(state.updated_at)),
            ("priority", task.priority),
            *(
                (name.replace("_", " "), _plain(value))
                for name, value in _said(task)
                if name not in _SHOWN
            ),
        ],
    )


def _progress_fields(progress: TaskProgress) -> list[tuple[str, str]]:
    """Returns progress, cost, and the last notes, the newest last."""
    when = from_now(progress.updated_at)
    share = when if progress.fraction is None else f"{progress.fraction:.0%}, {when}"
    notes = [
        (f"note at generation {note.generation}", note.text)
        for note in progress.notes[-_MOST_NOTES:]
    ]
    works_in = ("works in", progress.worktree_path)
    return [("progress", share), ("cost", _cost(progress.cost)), works_in, *notes]


_MOST_NOTES = 5
_SHOWN = ("id", "title", "priority")


def _said(task: Task) -> list[tuple[str, object]]:
    """Returns the fields of a definition that differ from the default, the long text last."""
    names = sorted(task.__struct_fields__, key=lambda name: name == "description")
    return [
        (name, value)
        for name in names
        if (value := getattr(task, name)) not in (None, "", (), {}, 0, False, "none")
    ]


def _plain(value: object) -> str:
    match value:
        case datetime():
            return f"{stamp(value)} UTC"
        case tuple():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{name}={inner}" for name, inner in value.items())
        case True:
            return "yes"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _result_fields(result: TaskResult, command: CommandLine) -> list[tuple[str, object]]:
    import msgspec

    by = result.agent_id or result.session_id
    data = "" if result.payload else msgspec.json.encode(result.result_data).decode()
    short = len(data) <= _LONGEST_DATA and not result.payload
    return [
        (
            "result",
            (
                f"{result.work_product_ref}, generation {result.generation}, by {by}, "
                f"{from_now(result.submitted_at)}"
            ),
        ),
        ("reference", result.reference),
        (
            "result data",
            data
            if short
            else f"{result.size:,} bytes: {command('show', result.task_id, '--result')}",
        ),
    ]


def print_lineage(
    console: Console, lineage: Lineage, state: TaskState, command: CommandLine, own: str | None
) -> None:
    """Prints GC 9.2: the generations, and the refused submissions below them. The session `own`
    gets no advice to adopt its own refused results."""
    print_lines(
        console,
        f"{lineage.task_id}, {state.state}, generation {state.generation}; times are UTC",
        style="dim",
    )
    entries = lineage.generations
    if entries:
        columns = [
            Column("Generation", least=10, right=True),
            Column("Session", 6, least=8),
            Column("Agent", 5, least=6),
            Column("User", 1, least=5),
            Column("Acquired", 3, least=19),
            Column("Released", 2, least=8),
            Column("Result", least=8),
            Column("Progress", 2, least=8),
        ]
        rows = [
            (
                entry.generation,
                entry.session_id,
                entry.agent_id if entry.agent_id != entry.session_id else "",
                entry.user_id,
                stamp(entry.acquired_at),
                stamp(entry.released_at, entry.acquired_at),
                _ending(entry),
                _work(entry.fraction, entry.note, entry.cost),
            )
            for entry in entries
        ]
        print_table(console, columns, rows)
        print_lines(
            console,
            *(
                f"gen {entry.generation}: {entry.work_product_ref}, {entry.reference}"
                for entry in entries
                if entry.reference
            ),
        )
    else:
        print_lines(console, "nobody has been granted it yet")
    if lineage.refused:
        print_lines(console, "", "Rejected submissions:")
        for at, refused in enumerate(lineage.refused):
            last = at == len(lineage.refused) - 1
            print_lines(
                console, f"{'└─' if last else '├─'} {_rejection(refused, state.generation)}"
            )
            if (
                refused.state is not None
                and refused.state.value == "KEPT"
                and refused.session_id != own
            ):
                # A completed task has its result; to adopt another, it would have to be reset
                # first.
                act = "discard" if state.state.value == "COMPLETED" else "adopt"
                print_commands(
                    console,
                    command(act, lineage.task_id, refused_name(refused)),
                    indent="   " if last else "│  ",
                )


def print_explanation(console: Console, found: Explanation) -> None:
    """Prints the answer that a claim would get, why, and what would change it."""
    own = found.own_generation is not None
    verdict = (
        "you hold it"
        if own
        else "a claim would be granted now"
        if found.ready
        else f"a claim would be denied, {found.reason}"
    )
    print_lines(console, f"{found.task_id} is {found.state}: {verdict}", style="bold")
    told = found.because if own else found.because[found.ready :]
    because = (
        (f"it is held by {holder(found.holder, datetime.now(UTC))}",)
        if found.holder is not None and not own
        else told
    )
    print_lines(console, *(f"  {line}" for line in because))
    if found.roots and not found.cycle:
        print_lines(console, "it comes down to:")
        print_lines(
            console,
            *(
                f"  {root.task_id}, {root.state or 'MISSING'}: {root.because}"
                for root in found.roots
            ),
        )
    if found.try_next:
        print_lines(console, "what you can type:")
        print_commands(console, *map(typed, found.try_next))


def refused_name(refused: TaskResult) -> str:
    """Returns a refused result's name without its task's, which need not be typed twice."""
    return refused.id.removeprefix(f"{refused.task_id}/")


def print_event(console: Console, event: FeedEvent) -> None:
    """Prints an event as one line."""
    from rich.text import Text

    told = event.event
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(str(told.get("timestamp", ""))[11:19], style="dim")
    line.append(f"  {event.event_type}", style="bold")
    words = [told.get("task_id") or event.id]
    if told.get("generation"):
        words.append(f"gen {told['generation']}")
    # The holder that lost its claim by silence matters more than the session that noticed it.
    lost = "" if event.event_type == "CLAIM_DENIED" else told.get("holder_agent_id")
    words.append(lost or told.get("agent_id") or told.get("session_id"))
    words += [told[name] for name in _TELLING if told.get(name)]
    line.append("  " + safe_line("  ".join(str(word) for word in words if word)))
    console.print(line)


_TELLING = (
    "release_reason",
    "stated_reason",
    "rejection_reason",
    "cause",
    "superseded_by",
    "assigned_to",
    "reason",
    "changed",
)
"""Fields of events that contain a reason, or an affected task, agent or session."""


def _ending(entry: ClaimHistory) -> str:
    """Describes how a generation ended, in GC's words."""
    if entry.result_accepted:
        return "ACCEPTED"
    if entry.release_reason is None:
        return "at work"
    if entry.release_reason.value == "COMPLETED":
        return "REJECTED" if entry.result_rejected else "IN REVIEW"
    kind, stated = entry.release_reason.value, entry.stated_reason
    return stated if stated.startswith(kind) else f"{kind}: {stated}" if stated else kind


def _rejection(refused: TaskResult, current: int) -> str:
    by = (
        refused.session_id
        if refused.agent_id in ("", refused.session_id)
        else f"{refused.session_id}/{refused.agent_id}"
    )
    stale = refused.rejection_reason == "STALE_GENERATION"
    why = (
        f"gen {refused.generation} < current {current}"
        if stale
        else f"gen {refused.generation}, {refused.rejection_reason}"
    )
    fate = (
        f", {refused.state.value.lower()}"
        if refused.state and refused.state.value != "KEPT"
        else ""
    )
    return (
        f"{by} submitted at {stamp(refused.submitted_at, datetime.now(UTC))} → REJECTED "
        f"({why}){fate}{f', {refused.reference}' if refused.reference else ''}"
    )
