"""Opening a coordinator by URL.

genlock.connect()                        the project's .genlock/genlock.db, or $GENLOCK_URL
genlock.connect("sqlite:///path/x.db")   that file
genlock.connect("dynamodb://table?region=eu-west-1")   a table; made by `genlock db create`
genlock.connect("memory://")             nothing that lasts; for tests
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.coordinator.arguments import check_number, check_profile
from genlock.coordinator.base import Identity
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.engine.engine import DEADLINE_SECONDS, Engine
from genlock.engine.monitor import Monitor
from genlock.engine.processes import host, identify
from genlock.errors import BadArgument, StoreError
from genlock.store import Clock, Store

_FOLDER = ".genlock"
_FILE = "genlock.db"


def connect(
    url: str | Store | None = None,
    *,
    clock: Clock | None = None,
    tenant_id: str = "default",
    project_id: str = "default",
    session_id: str | None = None,
    agent_id: str | None = None,
    user_id: str | None = None,
    profile: str = "local",
    monitor: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Coordinator:
    """A coordinator on the store at `url`. What is given here is the default of every call."""
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id)
    return Coordinator(_opener(url, clock, profile, monitor, deadline_seconds), identity)


def connect_async(
    url: str | Store | None = None,
    *,
    clock: Clock | None = None,
    tenant_id: str = "default",
    project_id: str = "default",
    session_id: str | None = None,
    agent_id: str | None = None,
    user_id: str | None = None,
    profile: str = "local",
    monitor: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> AsyncCoordinator:
    """The same for event loops."""
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id)
    return AsyncCoordinator(_opener(url, clock, profile, monitor, deadline_seconds), identity)


def open_store(url: str | None = None, *, clock: Clock | None = None) -> Store:
    """The store at `url`."""
    url = url if url is not None else os.environ.get("GENLOCK_URL") or f"sqlite://{project_file()}"
    if not isinstance(url, str):
        raise BadArgument(f"a store's URL is a text, not {url!r}")
    scheme, colon, _ = url.partition("://")
    if not colon:
        raise BadArgument(f"{url!r} is no URL; for a file write sqlite:///{url.lstrip('/')}")
    opener = _SCHEMES.get(scheme)
    if opener is None:
        raise BadArgument(f"there is no store for {scheme}://; there are: {', '.join(f'{name}://' for name in _SCHEMES)}")
    return opener(url, clock)


def project_file() -> Path:
    """The store of the project around the working folder: one for all worktrees of a repository."""
    common = _git_common_dir()
    root = common.parent if common is not None and common.name == ".git" else common
    for folder in [Path.cwd(), *Path.cwd().parents] if root is None else [root]:
        if (folder / _FOLDER).is_dir():
            return folder / _FOLDER / _FILE
    return (root or Path.cwd()) / _FOLDER / _FILE


def _git_common_dir() -> Path | None:
    try:
        shown = subprocess.run(
            ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return Path(shown.stdout.strip())


def _opener(url: str | Store | None, clock: Clock | None, profile: str, monitor: bool, deadline_seconds: float) -> Callable[[], Engine]:
    check_number("deadline_seconds", deadline_seconds, 0, 86400)
    if url is not None and not isinstance(url, str) and not hasattr(url, "limits"):
        raise BadArgument(f"connect takes a URL or a store, not {url!r}")
    check_profile(profile)
    if url is None or isinstance(url, str):
        given = url if url is not None else os.environ.get("GENLOCK_URL") or f"sqlite://{project_file()}"
        home = os.getpid()

        def open_it() -> Store:
            if given.startswith("memory://") and os.getpid() != home:
                raise StoreError("memory:// does not survive a fork; use a file if processes share work")
            return open_store(given, clock=clock)
    else:
        store: Store = url
        home = os.getpid()

        def open_it() -> Store:
            if os.getpid() != home:
                raise StoreError("a store that was handed to connect() does not survive a fork; give its URL instead")
            return store

    def open_engine() -> Engine:
        opened = open_it()
        engine = Engine(opened, profile=profile, deadline_seconds=deadline_seconds)
        subscribe: Any = getattr(clock, "subscribe", None)
        if subscribe is not None:
            subscribe(engine.poke)
        if monitor:
            Monitor(engine).start()
        return engine

    return open_engine


def _identity(tenant_id: str, project_id: str, session_id: str | None, agent_id: str | None, user_id: str | None) -> Identity:
    return Identity(
        tenant_id=check_tenant(tenant_id),
        project_id=check_project(project_id),
        session_id=None if session_id is None else check_session(session_id),
        agent_id=None if agent_id is None else check_agent(agent_id),
        user_id="" if user_id is None else check_user(user_id),
        host=host(),
        process=identify(),
    )


def _open_memory(url: str, clock: Clock | None) -> Store:
    from genlock.stores.memory import MemoryStore

    return MemoryStore(clock=clock)


def _open_sqlite(url: str, clock: Clock | None) -> Store:
    from genlock.stores.sqlite import SQLiteStore

    parts = urlsplit(url)
    path = unquote(parts.netloc + parts.path)
    if "\0" in path:
        raise BadArgument(f"{url!r} has a NUL in it, which no file's name has")
    if not path or path.endswith("/") or parts.query or parts.fragment:
        raise BadArgument(f"{url!r} names no file; write sqlite:///absolute/path/file.db")
    return SQLiteStore(Path(path), clock=clock)


def _open_dynamodb(url: str, clock: Clock | None) -> Store:
    parts = urlsplit(url)
    try:
        settings = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise BadArgument(f"{url!r}: {error}") from error
    table = unquote(parts.netloc + parts.path)
    if not table or "/" in table or parts.fragment:
        raise BadArgument(f"{url!r} names no table; write dynamodb://table?region=…")
    unknown = settings.keys() - {"region", "endpoint_url", "payloads"}
    if unknown:
        raise BadArgument(f"{url!r}: there is no setting {min(unknown)!r}; there are: region, endpoint_url, payloads")
    if "payloads" in settings:
        raise BadArgument(f"{url!r}: payloads cannot be kept elsewhere yet; leave payloads= out, and submit references to large results")

    from genlock.stores.dynamodb import DynamoDBStore

    return DynamoDBStore(table, region=settings.get("region"), endpoint_url=settings.get("endpoint_url"), clock=clock)


_SCHEMES: dict[str, Callable[[str, Clock | None], Store]] = {"sqlite": _open_sqlite, "dynamodb": _open_dynamodb, "memory": _open_memory}
