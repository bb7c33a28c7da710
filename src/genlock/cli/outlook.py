"""Where nothing can be claimed: is the plan finished, is somebody at work, or has somebody to see to it? And what to type then."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from genlock.core.results import ClaimResult
from genlock.errors import GenlockError

if TYPE_CHECKING:
    from genlock.cli.app import App
    from genlock.core.overview import Outlook, Standing

PATIENCE = 300
"""How many seconds of waiting are proposed to who asked for a next task."""


class NothingReady(Struct, gc=False):
    """Why nothing is ready, in one line, and what to type."""

    standing: Standing
    detail: str
    try_next: tuple[str, ...]


class NothingGranted(ClaimResult, frozen=True, gc=False):
    """What `next --json` prints where nothing is ready."""

    outlook: NothingReady | None = None


def look_out(app: App, tracks: Collection[str] = (), *, wait: bool = False) -> NothingReady | None:
    """Why nothing is ready; with `wait`, for somebody who could wait for a task. None if that cannot be found out."""
    from genlock.core.overview import Standing, find_outlook

    try:
        # Who asks while others are at work often asks again and again: that is answered without reading the whole plan.
        at_work = 0 if tracks else sum(len(line.tasks) for line in app.fleet.list_agents())
        if at_work:
            return NothingReady(Standing.AT_WORK, _at_work(at_work), _to_wait(app, tracks, wait=wait))
        found = find_outlook(app.fleet.get_graph(), tracks)
    except GenlockError:
        return None
    return NothingReady(found.standing, _detail(app, found, tracks), _try_next(app, found, tracks, wait=wait))


def _at_work(number: int) -> str:
    return f"{number:,} {'task is' if number == 1 else 'tasks are'} at work, and no other can be claimed now"


def _detail(app: App, found: Outlook, tracks: Collection[str]) -> str:
    every = f"of track {' or '.join(tracks)} " if tracks else ""
    states = ", ".join(f"{number:,} {state.replace('_', ' ').lower()}" for state, number in found.states.items())
    match found.standing.value:
        case "empty":
            return "there is no such task" if tracks else f"project {app.setting('project')} has no tasks"
        case "finished":
            return f"every task {every}is finished"
        case "reserved":
            return f"what is ready is reserved for another agent: {found.first}"
        case "at_work":
            return _at_work(found.at_work)
        case "waiting":
            return f"what is left waits for other tasks or for its time: {states}"
        case _:
            return f"nobody is at work, and what is left does not open by itself: {states}"


def _try_next(app: App, found: Outlook, tracks: Collection[str], *, wait: bool) -> tuple[str, ...]:
    match found.standing.value:
        case "empty":
            return (app.command("graph"),) if tracks else (app.command("plan import", "FILE"),)
        case "finished":
            return (app.command("status"),)
        case "at_work":
            return _to_wait(app, tracks, wait=wait)
        case _:
            return (app.command("explain", found.first),)


def _to_wait(app: App, tracks: Collection[str], *, wait: bool) -> tuple[str, ...]:
    only = [word for track in tracks for word in ("--track", track)]
    return (app.command("next", "--wait", PATIENCE, *only),) if wait else (app.command("status"),)
