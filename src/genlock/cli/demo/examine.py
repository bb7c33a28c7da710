"""Did everything hold that Genlock promises? Computed from the events that were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from genlock.coordinator import Coordinator
from genlock.core.results import FeedEvent, TaskState
from genlock.engine.check import check
from genlock.errors import StoreError


class Finding(Struct, frozen=True):
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
    replay = Finding("replaying the events gives the records", [f"{fault.where}: {fault.what}" for fault in check(fleet.engine.store)])
    try:
        feed = list(read_all(fleet))
    except StoreError as error:
        return [Finding("every event can be read", [str(error)]), replay]
    return [
        Finding("every task is completed", [f"{name} is {state.state}" for name, state in states.items() if state.state != "COMPLETED"]),
        Finding("each completed task has one accepted result, of its highest generation", list(_accepted_once(feed))),
        Finding("no generation was granted twice", list(_granted_twice(feed))),
        Finding("generations only rise", list(_fallen(feed))),
        Finding("nothing refused was lost", list(_lost(fleet, feed))),
        replay,
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
