"""What was perhaps mistyped, where nothing is found: a project, a track or a task of another name. It costs one look, and only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genlock.errors import GenlockError, TaskNotFound

if TYPE_CHECKING:
    from collections.abc import Collection

    from genlock.cli.app import App

_MOST_NAMED = 10
_MOST_LOOKED_AT = 2000
_PAGE = 500


def note_missing(app: App, tracks: Collection[str] = ()) -> None:
    """For a verb that has found nothing: says so if that may be because there is no such project, or no such track in it."""
    if not _project_missing(app) and tracks:
        _note_tracks(app, tracks)


def _project_missing(app: App) -> bool:
    from genlock.core.keys import PROJECT, project_key
    from genlock.schemes import is_service
    from genlock.store import Query

    tenant, project = app.setting("tenant"), app.setting("project")
    if is_service(app.url):
        # A service does not say which projects there are; but in each of them something has happened.
        missing = not app.fleet.read_events(limit=1).events
        if missing and not _is_default(app):
            app.answers.say(f"nothing has ever happened in project {project!r} of tenant {tenant!r}; is that its name?")
        return missing
    store = app.fleet.engine.store
    if store.load([project_key(tenant, project)]).records:
        return False
    others = [found.key.project for found in store.find(Query(tenant, kind=PROJECT, limit=_MOST_NAMED + 1)).records]
    if others:
        app.answers.say(f"there is no project {project!r} in this store; there are: {_listed(others)}")
    elif not _is_default(app):
        app.answers.say(f"there is no project {project!r} in this store, nor any other of tenant {tenant!r}")
    return True


def _is_default(app: App) -> bool:
    """A store that was made just now has nothing in it, and whoever named nothing has mistyped nothing."""
    return all(app.settings[name].origin == "default" for name in ("tenant", "project"))


def _note_tracks(app: App, tracks: Collection[str]) -> None:
    known = {task.track for task in app.fleet.get_graph().tasks if task.track is not None}
    unknown = [track for track in tracks if track not in known]
    if unknown:
        there_are = f"there are: {_listed(sorted(known))}" if known else "no task has any"
        app.answers.say(f"no task has track {' or '.join(unknown)}; {there_are}")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")


def with_near_task(app: App, task: object, error: TaskNotFound) -> TaskNotFound:
    """The error with the ids that were perhaps meant, among the first that the store has."""
    if not isinstance(task, str) or repr(task) not in str(error):
        return error
    try:
        near = _near(task, _first_ids(app))
    except GenlockError:
        return error
    return TaskNotFound(f"{error}; did you mean {' or '.join(near)}?") if near else error


def _first_ids(app: App) -> list[str]:
    from genlock.schemes import is_service
    from genlock.store import Query

    if is_service(app.url):
        return [task.id for task in app.fleet.get_graph().tasks]
    names: list[str] = []
    after: str | None = None
    while len(names) < _MOST_LOOKED_AT:
        page = app.fleet.engine.store.find(Query(app.setting("tenant"), app.setting("project"), after=after, limit=_PAGE))
        names += [found.key.id for found in page.records]
        after = page.next
        if after is None:
            break
    return names


def _near(wrong: str, names: list[str]) -> list[str]:
    """What begins with it, else what looks like it."""
    from difflib import get_close_matches

    folded = wrong.casefold()
    longer = [name for name in names if name.casefold().startswith(folded)]
    return longer[:3] or get_close_matches(wrong, names, 3, 0.8)
