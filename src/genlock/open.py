"""Opening a coordinator by URL.

genlock.connect()                        the project's .genlock/genlock.db, or $GENLOCK_URL
genlock.connect("sqlite:///path/x.db")   that file
genlock.connect("postgresql://…")        that database; ?schema=… if not in the schema genlock
genlock.connect("mysql://…")             that database, of MySQL or MariaDB; ?prefix=… if its tables do not begin with genlock_
genlock.connect("memory://")             nothing that lasts; for tests
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, Final

from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.coordinator.arguments import check_number, check_profile
from genlock.coordinator.base import Identity
from genlock.core.model import Process
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.engine.engine import DEADLINE_SECONDS, Engine
from genlock.engine.processes import host, identify
from genlock.errors import BadArgument, StoreError
from genlock.places import FILE, make_folder, project_folder, sqlite_path, sqlite_url
from genlock.settings import resolve
from genlock.store import Clock, Store


class _Own(Enum):
    PROCESS = "the process that calls"


OWN_PROCESS: Final = _Own.PROCESS
"""The session is this very process, in a forked child that one."""


def connect(
    url: str | Store | None = None,
    *,
    clock: Clock | None = None,
    tenant_id: str = "default",
    project_id: str = "default",
    session_id: str | None = None,
    agent_id: str | None = None,
    user_id: str | None = None,
    process: Process | _Own | None = OWN_PROCESS,
    profile: str = "local",
    monitor: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Coordinator:
    """A coordinator on the store at `url`. What is given here is the default of every call.

    `process` is the one whose end makes the session's claims over-due: this one, unless another is named; None if it is not known, and
    then only the lease decides.
    """
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id, process)
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
    process: Process | _Own | None = OWN_PROCESS,
    profile: str = "local",
    monitor: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> AsyncCoordinator:
    """The same for event loops."""
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id, process)
    return AsyncCoordinator(_opener(url, clock, profile, monitor, deadline_seconds), identity)


def open_store(url: str | None = None, *, clock: Clock | None = None) -> Store:
    """The store at `url`."""
    url = url if url is not None else default_url()
    if not isinstance(url, str):
        raise BadArgument(f"a store's URL is a text, not {url!r}")
    scheme, colon, _ = url.partition("://")
    if not colon:
        raise BadArgument(f"{url!r} is no URL; for a file write sqlite:///{url.lstrip('/')}")
    opener = _SCHEMES.get(scheme)
    if opener is None:
        raise BadArgument(f"there is no store for {scheme}://; there are: {', '.join(f'{name}://' for name in _SCHEMES)}")
    return opener(url, clock)


def default_url() -> str:
    """The store that the settings name, else the project's own, whose folder is made."""
    folder = project_folder()
    named: str | None = resolve({}, folder)["url"].value
    if named is not None:
        return named
    if not folder.is_dir():
        with suppress(OSError):  # the store itself says best what is wrong with the place
            make_folder(folder)
    return sqlite_url(folder / FILE)


def _opener(url: str | Store | None, clock: Clock | None, profile: str, monitor: bool, deadline_seconds: float) -> Callable[[], Engine]:
    check_number("deadline_seconds", deadline_seconds, 0, 86400)
    if url is not None and not isinstance(url, str) and not hasattr(url, "limits"):
        raise BadArgument(f"connect takes a URL or a store, not {url!r}")
    check_profile(profile)
    if url is None or isinstance(url, str):
        given = url if url is not None else default_url()
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
            from genlock.engine.monitor import Monitor

            Monitor(engine).start()
        return engine

    return open_engine


def _identity(
    tenant_id: str,
    project_id: str,
    session_id: str | None,
    agent_id: str | None,
    user_id: str | None,
    process: Process | _Own | None,
) -> Identity:
    if process is not None and not isinstance(process, (Process, _Own)):
        raise BadArgument(f"process is a Process, or None if it is not known; not {process!r}")
    return Identity(
        tenant_id=check_tenant(tenant_id),
        project_id=check_project(project_id),
        session_id=None if session_id is None else check_session(session_id),
        agent_id=None if agent_id is None else check_agent(agent_id),
        user_id="" if user_id is None else check_user(user_id),
        host=host(),
        process=identify() if isinstance(process, _Own) else process,
        own_process=isinstance(process, _Own),
    )


def _open_memory(url: str, clock: Clock | None) -> Store:
    from genlock.stores.memory import MemoryStore

    return MemoryStore(clock=clock)


def _open_sqlite(url: str, clock: Clock | None) -> Store:
    from genlock.stores.sqlite import SQLiteStore

    path = sqlite_path(url)
    assert path is not None
    return SQLiteStore(path, clock=clock)


def _open_postgres(url: str, clock: Clock | None) -> Store:
    with _driver("psycopg", "postgres"):
        from genlock.stores.postgres import PostgresStore

    return PostgresStore(url, clock=clock)


def _open_mysql(url: str, clock: Clock | None) -> Store:
    with _driver("pymysql", "mysql"):
        from genlock.stores.mysql import MySQLStore

    return MySQLStore(url, clock=clock)


@contextmanager
def _driver(package: str, extra: str) -> Iterator[None]:
    """The block imports a store; without its driver the error says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise StoreError(f"the driver for this store, {package}, is not installed: pip install 'genlock[{extra}]'") from error


_SCHEMES: dict[str, Callable[[str, Clock | None], Store]] = {
    "sqlite": _open_sqlite,
    "memory": _open_memory,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
    "mysql": _open_mysql,
    "mariadb": _open_mysql,
}
