"""Opening a coordinator by URL.

genlock.connect()                        the project's .genlock/genlock.db, or $GENLOCK_URL
genlock.connect("sqlite:///path/x.db")   that file
genlock.connect("postgresql://…")        that database; ?schema=… if not in the schema genlock
genlock.connect("mysql://…")             that database, of MySQL or MariaDB; ?prefix=… if its tables do not begin with genlock_
genlock.connect("redis://…")             that server; rediss:// with TLS, ?prefix=… if not under genlock
genlock.connect("dynamodb://table?…")    that table, made by `genlock db create`
genlock.connect("http://host:8420")      the service there, or https://; api_key=… if it wants one; several on one store with commas
genlock.connect("memory://")             nothing that lasts; for tests
genlock.connect("other://…")             a store that was installed beside Genlock; see schemes.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.coordinator.arguments import check_number, check_profile, check_whole
from genlock.coordinator.base import Identity
from genlock.core.model import Process
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.engine.engine import DEADLINE_SECONDS, Engine
from genlock.engine.observing import Observer
from genlock.engine.processes import host, identify
from genlock.errors import BadArgument, StoreError, StoreMissing
from genlock.places import FILE, make_folder, project_folder, sqlite_url
from genlock.schemes import is_service, scheme_of
from genlock.settings import check_key, resolve
from genlock.store import Clock, Store

if TYPE_CHECKING:
    from genlock.remote.link import Link
    from genlock.stores.migrations import About, Migrated


class _Own(Enum):
    PROCESS = "the process that calls"


MOST_LANES: Final = 64
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
    create: bool = True,
    lanes: int = 1,
    observer: Observer | None = None,
    service: bool = False,
    api_key: str | None = None,
    ca_file: str | None = None,
) -> Coordinator:
    """A coordinator on the store at `url`, or that of the service there. What is given here is the default of every call.

    `process` is the one whose end makes the session's claims over-due: this one, unless another is named; None if it is not known, and
    then only the lease decides. With `create` false, a store that is not there is `StoreMissing`; otherwise it is made.
    `lanes` is how many projects may be worked on at once, where the store gains by it: a service uses four on a server. An
    `observer` is told of every batch (see engine/observing.py). A `service`, on which a fleet depends, spares for a while the claims that
    fell due while it or its store was away (see engine/outages.py).

    If `url` is a service's, `api_key` (else $GENLOCK_API_KEY, else the settings') is sent along, and with `ca_file` the certificates in
    it count instead of the system's.
    """
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id, process)
    url = url if url is not None else default_url()
    if is_service(url):
        from genlock.remote.coordinator import RemoteCoordinator

        remote: Any = RemoteCoordinator(_link(url, identity, api_key, ca_file, deadline_seconds, clock, monitor))
        coordinator: Coordinator = remote  # by its methods: a test holds the signatures of both together
        return coordinator
    return Coordinator(_opener(url, clock, profile, monitor, deadline_seconds, create, lanes, observer, service), identity)


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
    create: bool = True,
    lanes: int = 1,
    observer: Observer | None = None,
    service: bool = False,
    api_key: str | None = None,
    ca_file: str | None = None,
) -> AsyncCoordinator:
    """The same for event loops."""
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id, process)
    url = url if url is not None else default_url()
    if is_service(url):
        from genlock.remote.coordinator import AsyncRemoteCoordinator

        remote: Any = AsyncRemoteCoordinator(_link(url, identity, api_key, ca_file, deadline_seconds, clock, monitor))
        coordinator: AsyncCoordinator = remote
        return coordinator
    return AsyncCoordinator(_opener(url, clock, profile, monitor, deadline_seconds, create, lanes, observer, service), identity)


def _link(
    url: str, identity: Identity, key: str | None, ca_file: str | None, deadline_seconds: float, clock: Clock | None, monitor: bool
) -> Link:
    """The way to a service."""
    from importlib import import_module

    from genlock.remote.link import Link

    version = import_module("genlock").__version__  # the package itself, which sees all of us
    check_number("deadline_seconds", deadline_seconds, 0, 86400)
    if clock is not None or monitor:
        raise BadArgument("clock and monitor are the service's own business; leave them out for a service's address")
    key = check_key(key) if key is not None else resolve({}, project_folder())["api_key"].value
    return Link(url, identity, api_key=key, deadline_seconds=deadline_seconds, ca_file=ca_file, version=version, identify=identify)


def open_store(url: str | None = None, *, clock: Clock | None = None, create: bool = True) -> Store:
    """The store at `url`. With `create` false, `StoreMissing` if it is not there; otherwise it is made."""
    url = url if url is not None else default_url()
    return scheme_of(url).open(url, clock=clock, create=create)


def create_store(url: str) -> bool:
    """Makes the store at `url`, ready to be opened; False if it was there, and is as it was."""
    try:
        open_store(url, create=False).close()
    except StoreMissing:
        make = scheme_of(url).create
        if make is not None:
            make(url)
        else:
            open_store(url).close()
        return True
    return False


def about_store(url: str) -> About | None:
    """What the store says of its format, whichever it is; None where there are no formats."""
    about = scheme_of(url).about
    return None if about is None else about(url)


def migrate_store(url: str) -> Migrated:
    """Brings the store up to date; nothing is done to one that is."""
    migrate = scheme_of(url).migrate
    if migrate is None:
        raise BadArgument(f"stores of {url.partition('://')[0]}:// have no format that could be older: there is nothing to migrate")
    return migrate(url)


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


def _opener(
    url: str | Store,
    clock: Clock | None,
    profile: str,
    monitor: bool,
    deadline_seconds: float,
    create: bool,
    lanes: int,
    observer: Observer | None,
    service: bool,
) -> Callable[[], Engine]:
    check_number("deadline_seconds", deadline_seconds, 0, 86400)
    check_whole("lanes", lanes, 1, MOST_LANES)
    if not isinstance(url, str) and not hasattr(url, "limits"):
        raise BadArgument(f"connect takes a URL or a store, not {url!r}")
    check_profile(profile)
    if clock is not None and not callable(getattr(clock, "now", None)):
        raise BadArgument(f"clock is something whose now() gives the time with its zone, not {type(clock).__name__}")
    if isinstance(url, str):
        given = url
        home = os.getpid()

        def open_it() -> Store:
            if given.startswith("memory://") and os.getpid() != home:
                raise StoreError("memory:// does not survive a fork; use a file if processes share work")
            return open_store(given, clock=clock, create=create)
    else:
        store: Store = url
        home = os.getpid()

        def open_it() -> Store:
            if os.getpid() != home:
                raise StoreError("a store that was handed to connect() does not survive a fork; give its URL instead")
            return store

    def open_engine() -> Engine:
        opened = open_it()
        engine = Engine(
            opened,
            lanes=lanes,
            profile=profile,
            deadline_seconds=deadline_seconds,
            observer=observer,
            service=service,
            lent=not isinstance(url, str),
        )
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
