"""Completion in the shell: verbs from the table, options from the verb, tasks and tracks from the project's store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from genlock.errors import GenlockError

if TYPE_CHECKING:
    from genlock.cli.app import App

NAME = "genlock"
VARIABLE = "_GENLOCK_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

_MOST_OFFERED = 200
_MOST_LOOKED_AT = 5_000


def script(group: click.Group, shell: str) -> str:
    """What the shell is to be given, once."""
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(group, {}, NAME, VARIABLE)
    # Not by click's `source`, which starts bash to ask for its version: who asks for a script has the shell.
    return str(made.source_template % made.source_vars()).strip() + "\n"


def complete(group: click.Group, instruction: str) -> int:
    """Answer the shell, which asks by `bash_complete` and the like. A shell in mid-line can do nothing with an error."""
    shell, _, what = instruction.partition("_")
    kind = get_completion_class(shell) if shell in SHELLS and what == "complete" else None
    if kind is None:
        return 1
    found = kind(group, {}, NAME, VARIABLE).complete()
    if found:
        print(found)
    return 0


def offer_values(command: click.Command) -> None:
    """Lets a verb's task, tracks, role and profile be completed, also where a verb has several words."""
    for parameter in command.params:
        offered = _OFFERED.get(parameter.name or "")
        if offered is not None:
            parameter.shell_complete = offered  # type: ignore[method-assign, assignment]
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        offer_values(inner)


def _tasks(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    try:
        return [CompletionItem(name) for name in _names(_app(ctx), incomplete)]
    except (GenlockError, OSError):
        return []


def _tracks(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Those that tasks have, with what they are for."""
    app = _app(ctx)
    try:
        found = {task.track for task in app.fleet.get_graph().tasks if task.track is not None}
        purposes = app.fleet.get_policy().tracks if found else {}
    except (GenlockError, OSError):
        return []
    finally:
        app.close()
    return [CompletionItem(track, help=purposes.get(track)) for track in sorted(found) if track.startswith(incomplete)]


def _roles(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from genlock.core.access import Role

    return [CompletionItem(role.value) for role in Role if role.value.startswith(incomplete)]


def _profiles(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from genlock.core.policy import PROFILES

    return [CompletionItem(name) for name in PROFILES if name.startswith(incomplete)]


_OFFERED: Final[dict[str, Callable[[click.Context, str], list[CompletionItem]]]] = {
    "task": _tasks,
    "track": _tracks,
    "tracks": _tracks,
    "role": _roles,
    "profile": _profiles,
}
"""By the name of the parameter."""


def _app(ctx: click.Context) -> App:
    from genlock.cli.app import App

    flags = {name: ctx.params.get(f"set_{name}") for name in ("url", "tenant", "project")}
    return App(as_json=False, quiet=True, flags=flags)


def _names(app: App, incomplete: str) -> list[str]:
    from genlock.schemes import is_service
    from genlock.store import Query

    if is_service(app.url):
        return _names_by_service(app, incomplete)
    place = app.setting("tenant"), app.setting("project")
    found: list[str] = []
    after: str | None = None
    try:
        store = app.fleet.engine.store
        for _ in range(_MOST_LOOKED_AT // 500):
            page = store.find(Query(*place, after=after, limit=500))
            found += [stored.key.id for stored in page.records if stored.key.id.startswith(incomplete)]
            after = page.next
            if after is None or len(found) >= _MOST_OFFERED:
                break
    finally:
        app.close()
    return found[:_MOST_OFFERED]


def _names_by_service(app: App, incomplete: str) -> list[str]:
    try:
        tasks = app.fleet.get_graph().tasks
    finally:
        app.close()
    return [task.id for task in tasks if task.id.startswith(incomplete)][:_MOST_OFFERED]
