"""Suggestions if nothing is found or ready: possible typing errors, the reason, and what to
type."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from genlock.errors import GenlockError, NotFound, TaskNotFound

if TYPE_CHECKING:
    from collections.abc import Collection

    from genlock.cli.app import App
    from genlock.core.overview import Progress


_MOST_NAMED = 10
_MOST_LOOKED_AT = 2000


def note_missing(app: App, tracks: Collection[str] = ()) -> None:
    """Called when a command has found nothing. Writes a note if the project has no such track;
    raises an error if there is no such project."""
    if not _is_project_missing(app) and tracks:
        _note_tracks(app, tracks)


class ProjectNotFound(NotFound):
    """There is no project of this name."""


def _is_project_missing(app: App) -> bool:
    """Is the project empty? Raises an error if the caller has named it explicitly."""
    from itertools import islice

    from genlock.core.keys import project_key
    from genlock.schemes import is_service

    tenant, project = app.setting("tenant"), app.setting("project")
    if is_service(app.url):
        # A service does not list its projects, but every project has events.
        missing = not app.fleet.read_events(limit=1).events
        if missing and not _is_default(app):
            raise ProjectNotFound(
                f"nothing has ever happened in project {project!r} of tenant {tenant!r}; is that "
                "its name?"
            )
        return missing
    reader = app.fleet.reader
    if reader.records([project_key(tenant, project)]):
        return False
    if _is_default(app):
        return True
    others = [name for _, name in islice(reader.scopes(tenant), _MOST_NAMED + 1)]
    if others:
        raise ProjectNotFound(
            f"there is no project {project!r} in this store; there are: {_listed(others)}"
        )
    raise ProjectNotFound(
        f"there is no project {project!r} in this store, nor any other of tenant {tenant!r}"
    )


def _is_default(app: App) -> bool:
    """Are tenant and project the defaults? Then the name cannot be mistyped: a new store is simply
    empty."""
    return all(app.settings[name].origin == "default" for name in ("tenant", "project"))


def _note_tracks(app: App, tracks: Collection[str]) -> None:
    known = {task.track for task in app.fleet.get_graph().tasks if task.track is not None}
    unknown = [track for track in tracks if track not in known]
    if unknown:
        there_are = f"there are: {_listed(sorted(known))}" if known else "no task has any"
        app.answers.say(f"no task has track {' or '.join(unknown)}; {there_are}")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")


_SHORTEST_PREFIX = 3


def task_meant(app: App, task: object, error: TaskNotFound) -> str:
    """Returns the only task whose id begins with the typed text. Otherwise raises the error, with
    similar ids among the first ones in the store."""
    if not isinstance(task, str) or repr(task) not in str(error):
        raise error
    try:
        ids = _ids(app)
        meant = _only_one(task, ids)
        near = [] if meant else _near(task, ids[:_MOST_LOOKED_AT])
    except GenlockError:
        raise error from None
    if meant is not None:
        return meant
    if near:
        raise TaskNotFound(f"{error}; did you mean {' or '.join(near)}?")
    raise error


def _only_one(typed: str, ids: list[str]) -> str | None:
    """Returns the only id with this prefix; if the matches are a task and its subtasks, the task. A
    number is never abbreviated: 0001_t1 does not match 0001_t10."""
    if len(typed) < _SHORTEST_PREFIX:
        return None
    folded = typed.casefold()
    found = [
        name
        for name in ids
        if name.casefold().startswith(folded)
        and not (typed[-1].isdigit() and name[len(typed) : len(typed) + 1].isdigit())
    ]
    shortest = min(found, key=len, default=None)
    if shortest is None or all(
        name == shortest or name.startswith(f"{shortest}::") for name in found
    ):
        return shortest
    return None


def _ids(app: App) -> list[str]:
    from genlock.schemes import is_service

    if is_service(app.url):
        return [task.id for task in app.fleet.get_graph().tasks]
    scope = app.setting("tenant"), app.setting("project")
    return list(app.fleet.reader.task_ids(scope))


def _near(wrong: str, names: list[str]) -> list[str]:
    """Returns names with this prefix, else those with the same track and number, else similar
    ones."""
    from difflib import get_close_matches

    folded = wrong.casefold()
    longer = [name for name in names if name.casefold().startswith(folded)]
    place = _place_in_track(wrong)
    there = [name for name in names if place is not None and _place_in_track(name) == place]
    return longer[:3] or there[:3] or get_close_matches(wrong, names, 3, 0.8)


def _place_in_track(name: str) -> tuple[str, int] | None:
    """Returns the track and number at the start of a name, ignoring zeros and dashes: B-01, b1."""
    import re

    found = re.match(r"([A-Za-z]+)-?0*([0-9]{1,4})(?![0-9])", name)
    return (found[1].casefold(), int(found[2])) if found else None


# If nothing can be claimed: is the plan finished, are others at work, or does a task need a person?
# And what to type then.


class NothingReady(Struct, gc=False):
    """Why nothing is ready, in one line, and what to type."""

    standing: Progress
    detail: str
    try_next: tuple[tuple[str, ...], ...]


def look_out(app: App, tracks: Collection[str] = (), *, wait: bool = False) -> NothingReady | None:
    """Returns why nothing is ready; with `wait`, for a caller that could wait for a task. None if
    the reason cannot be determined."""
    from genlock.core.overview import Progress, ProjectProgress, find_outlook
    from genlock.messages import describe_progress

    try:
        # A caller that asks while others are at work usually polls, so this case is answered
        # without reading the whole plan.
        at_work = 0 if tracks else sum(len(line.tasks) for line in app.fleet.list_agents())
        found = (
            ProjectProgress(Progress.AT_WORK, {}, at_work=at_work)
            if at_work
            else find_outlook(app.fleet.get_graph(), tracks)
        )
    except GenlockError:
        return None
    told = describe_progress(
        found, app.setting("project"), tracks, wait=wait, context=app.context()
    )
    return NothingReady(found.standing, told.text, told.try_next)
