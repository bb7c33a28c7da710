"""The report: a task's lineage, and whether everything held that Genlock promises, computed from the events that were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from genlock import Coordinator, TaskState
from genlock.core.results import ClaimHistory, FeedEvent
from genlock.engine.check import check


class Finding(NamedTuple):
    """One promise, and what speaks against it: nothing, if it was kept."""

    promise: str
    faults: list[str]


def read_all(fleet: Coordinator) -> Iterator[FeedEvent]:
    """Every event of the project, from the first."""
    cursor: str | None = None
    while True:
        page = fleet.read_events(after=cursor, limit=500)
        yield from page.events
        if not page.more:
            return
        cursor = page.cursor


def examine(fleet: Coordinator, states: Mapping[str, TaskState]) -> list[Finding]:
    """All promises, each with what speaks against it."""
    feed = list(read_all(fleet))
    return [
        Finding("every task is completed", [f"{name} is {state.state}" for name, state in states.items() if state.state != "COMPLETED"]),
        Finding("each completed task has one accepted result, of its highest generation", list(_accepted_once(feed))),
        Finding("no generation was granted twice", list(_granted_twice(feed))),
        Finding("generations only rise", list(_fallen(feed))),
        Finding("nothing refused was lost", list(_lost(fleet, feed))),
        Finding("replaying the events gives the records", [f"{fault.where}: {fault.what}" for fault in check(fleet.engine.store)]),
    ]


def _of(feed: Iterable[FeedEvent], event_type: str) -> Iterator[Mapping[str, Any]]:
    return (happened.event for happened in feed if happened.event_type == event_type)


def _accepted_once(feed: list[FeedEvent]) -> Iterator[str]:
    accepted = Counter(event["task_id"] for event in _of(feed, "RESULT_ACCEPTED"))
    yield from (f"{task} has {number} accepted results" for task, number in accepted.items() if number != 1)
    highest: dict[str, int] = {}
    for happened in feed:
        if happened.kind == "task":
            highest[happened.id] = max(highest.get(happened.id, 0), happened.event.get("generation", 0))
    for event in _of(feed, "RESULT_ACCEPTED"):
        if event["generation"] != highest[event["task_id"]]:
            yield f"{event['task_id']} took a result of generation {event['generation']}, its highest is {highest[event['task_id']]}"


def _granted_twice(feed: list[FeedEvent]) -> Iterator[str]:
    grants = Counter((event["task_id"], event["generation"]) for event in _of(feed, "CLAIM_ACQUIRED"))
    yield from (f"{task} granted generation {generation} {n} times" for (task, generation), n in grants.items() if n > 1)


def _fallen(feed: list[FeedEvent]) -> Iterator[str]:
    last: dict[str, int] = {}
    for happened in feed:
        if happened.kind == "task":
            generation = happened.event.get("generation", 0)
            if generation < last.get(happened.id, 0):
                yield f"{happened.id} went from generation {last[happened.id]} to {generation}"
            last[happened.id] = generation


def _lost(fleet: Coordinator, feed: list[FeedEvent]) -> Iterator[str]:
    kept = {(result.task_id, result.digest): result for result in fleet.list_refused_results(include_settled=True)}
    for event in _of(feed, "RESULT_REJECTED"):
        result = kept.get((event["task_id"], event["digest"]))
        if result is None or not result.result_data:
            yield f"{event['task_id']}: what {event['agent_id']} submitted at generation {event['generation']} cannot be read any more"


def lineage(fleet: Coordinator, task_id: str) -> RenderableType:
    """The generations of a task, and below them what was refused."""
    found = fleet.get_lineage(task_id=task_id)
    table = Table(box=SIMPLE_HEAD, title=f"Lineage of {task_id}", title_justify="left", title_style="bold", pad_edge=False)
    for column in ("Generation", "Session", "Agent", "User", "Acquired", "Released", "Result"):
        table.add_column(column, no_wrap=True)
    for entry in found.generations:
        acquired, released = _clock(entry.acquired_at), _clock(entry.released_at) if entry.released_at else ""
        table.add_row(str(entry.generation), entry.session_id, entry.agent_id, entry.user_id, acquired, released, _outcome(entry))
    lines = [Text("Rejected submissions:")] if found.refused else []
    for number, refused in enumerate(found.refused, start=1):
        branch = "└─" if number == len(found.refused) else "├─"
        now_at = found.generations[-1].generation
        who = f"{refused.session_id}/{refused.agent_id} submitted at {_clock(refused.submitted_at)}"
        lines.append(Text(f"{branch} {who} → REJECTED (gen {refused.generation} < current {now_at}), {refused.state}"))
    return Group(table, *lines, Text())


def _outcome(entry: ClaimHistory) -> str:
    if entry.result_accepted:
        return "ACCEPTED"
    return entry.release_reason or "HELD"


def _clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}.{instant.microsecond // 100_000}"


def verdict(findings: list[Finding]) -> RenderableType:
    """The promises, one a line, and below each what speaks against it."""
    lines = [Text("Checked against every event that was written:", style="bold")]
    for promise, faults in findings:
        lines.append(Text.assemble(("  no   ", "bold red") if faults else ("  held ", "green"), promise))
        lines += [Text(f"         {fault}", style="red") for fault in faults]
    return Group(*lines)
