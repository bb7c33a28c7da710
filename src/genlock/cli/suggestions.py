"""Where nothing is found or ready: what was perhaps mistyped, why that is so, and what to type."""

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
    """For a verb that has found nothing: says so if that may be because there is no such track in
    the project; an error if there is no such project."""
    if not _is_project_missing(app) and tracks:
        _note_tracks(app, tracks)


class ProjectNotFound(NotFound):
    """There is no project of this name."""


def _is_project_missing(app: App) -> bool:
    """Is nothing in it yet? An error if somebody has named it."""
    from itertools import islice

    from genlock.core.keys import project_key
    from genlock.schemes import is_service

    tenant, project = app.setting("tenant"), app.setting("project")
    if is_service(app.url):
        # A service does not say which projects there are; but in each of them something has
        # happened.
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
    """A store that was made just now has nothing in it, and whoever named nothing has mistyped
    nothing."""
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
    """The one task whose id begins with what was typed; else the error, with the ids that were
    perhaps meant, among the first that the store has."""
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
    """The only id that begins so, or of a task and its subtasks the task. A number is never cut
    short: 0001_t1 does not stand for 0001_t10."""
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
    """What begins with it, else what has its track and number, else what looks like it."""
    from difflib import get_close_matches

    folded = wrong.casefold()
    longer = [name for name in names if name.casefold().startswith(folded)]
    place = _place_in_track(wrong)
    there = [name for name in names if place is not None and _place_in_track(name) == place]
    return longer[:3] or there[:3] or get_close_matches(wrong, names, 3, 0.8)


def _place_in_track(name: str) -> tuple[str, int] | None:
    """The track and number with which a name begins, however many zeros and dashes it has: B-01,
    b1."""
    import re

    found = re.match(r"([A-Za-z]+)-?0*([0-9]{1,4})(?![0-9])", name)
    return (found[1].casefold(), int(found[2])) if found else None


# Where nothing can be claimed: is the plan finished, is somebody at work, or has somebody to see
# to it? And what to type then.


class NothingReady(Struct, gc=False):
    """Why nothing is ready, in one line, and what to type."""

    standing: Progress
    detail: str
    try_next: tuple[tuple[str, ...], ...]


def look_out(app: App, tracks: Collection[str] = (), *, wait: bool = False) -> NothingReady | None:
    """Why nothing is ready; with `wait`, for somebody who could wait for a task. None if that
    cannot be found out."""
    from genlock.core.overview import Progress, ProjectProgress, find_outlook
    from genlock.messages import describe_progress

    try:
        # Who asks while others are at work often asks again and again: that is answered without
        # reading the whole plan.
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
