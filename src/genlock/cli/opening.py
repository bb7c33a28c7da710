"""Opening the fleet for a verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genlock.errors import NotFound
from genlock.open import connect
from genlock.places import sqlite_path as sqlite_path
from genlock.settings import login_name

if TYPE_CHECKING:
    from genlock.cli.app import App
    from genlock.coordinator import Coordinator


class NoProject(NotFound):
    """There is no store here yet."""


def open_fleet(app: App) -> Coordinator:
    """The coordinator for this call. Only a worker's verb needs to know on whose behalf it runs."""
    url = app.url
    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise NoProject(f"there is no store at {path}; to make one, type: genlock init" + (f" --url {url}" if app.setting("url") else ""))
    who = app.who if app.worker else None
    return connect(
        url,
        tenant_id=app.setting("tenant"),
        project_id=app.setting("project"),
        session_id=who.session if who else app.setting("session"),
        agent_id=app.setting("agent") or (who.agent if who else None),
        user_id=app.setting("user") or login_name(),
        process=who.process if who else None,
    )
