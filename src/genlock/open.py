"""Opening a coordinator by URL.

genlock.connect()                        the project's .genlock/genlock.db, or $GENLOCK_URL; it is
                                         not made, unless with create=True
genlock.connect("sqlite:///path/x.db")   that file
genlock.connect("postgresql://…")        that database; ?schema=… if not in the schema genlock
genlock.connect("mysql://…")             that database, MySQL or MariaDB; ?prefix=… (genlock_)
genlock.connect("redis://…")             that server; rediss:// with TLS; ?prefix=… (genlock)
genlock.connect("dynamodb://table?…")    that table, made by `genlock db create`
genlock.connect("http://host:8420")      that service; https:// too; several with commas; api_key=…
genlock.connect("memory://")             nothing that lasts; for tests
genlock.connect("other://…")             a store that was installed beside Genlock; see schemes.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.coordinator.arguments import check_number, check_profile, check_whole
from genlock.coordinator.base import Identity
from genlock.core.model import Process
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.engine.engine import DEADLINE_SECONDS, Engine
from genlock.engine.observer import Observer
from genlock.engine.processes import host, identify
from genlock.errors import BadArgument, GenlockError, StoreError, StoreMissing
from genlock.project_folder import FILE, make_folder, project_folder, sqlite_url
from genlock.schemes import is_service, scheme_of
from genlock.settings import Setting, check_key
from genlock.store import Clock, Store
from genlock.trust import trusted_settings
from genlock.worker.fleet import Origin

if TYPE_CHECKING:
    from genlock.client.transport import Transport
    from genlock.credentials import Keys
    from genlock.products.access import ProductAccess
    from genlock.stores.migrations import About
    from genlock.stores.migrations import Migrated as Migrated


class _Own(Enum):
    PROCESS = "the process that calls"


MOST_LANES: Final = 64
OWN_PROCESS: Final = _Own.PROCESS
"""The session is the current process; after a fork, the child is a session of its own."""


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
    create: bool = False,
    lanes: int = 1,
    observer: Observer | None = None,
    service: bool = False,
    api_key: str | Keys | None = None,
    ca_file: str | None = None,
) -> Coordinator:
    """Opens a coordinator on the store at `url`, or connects to the service there. The arguments
    are the defaults of every call.

    Without `session_id` and `agent_id` each call names its own, and a call that names none is
    refused. The command line derives them from its parent process. A library does not: one process
    may have several workers, and workers that share a session and an agent would all be told that
    they hold the same task. `next_task`, `claim` and `worker` therefore create a session for each
    connection.

    `process` is the process whose end makes the session's claims overdue: the current one by
    default. None means unknown, and then only the lease decides. A missing store raises
    `StoreMissing`, unless `create` is true: then it is created. A memory store is always new.
    `lanes` is how many projects are worked on in parallel, where the store gains by it: a service
    uses four on a server. An `observer` is called after every batch (see engine/observer.py). With
    `service`, claims that fell due while the service or its store was unavailable get a grace
    period (see engine/outage_grace.py).

    If `url` is a service's, `api_key` is sent with each request: a key, or a function from an
    address to its key. The default is $GENLOCK_API_KEY, else the key that `genlock login` stored
    for this address (see credentials.py). The certificates in `ca_file` replace the system's.
    """
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id, process)
    setting = _url_setting(url, create=create)
    origin = None if clock else _origin(url, setting, profile, deadline_seconds, api_key, ca_file)
    url = setting.value
    if is_service(url):
        from genlock.client.coordinator import RemoteCoordinator

        remote: Any = RemoteCoordinator(
            _link(setting, identity, api_key, ca_file, deadline_seconds, clock, monitor)
        )
        coordinator: Coordinator = remote  # has the same methods: a test compares the signatures
        coordinator._origin = origin
        coordinator._open_products = partial(_product_access, url, promotes=False)
        return coordinator
    with short_remedy(own=setting.source == "default"):
        coordinator = Coordinator(
            _opener(
                url, clock, profile, monitor, deadline_seconds, create, lanes, observer, service
            ),
            identity,
        )
    coordinator._origin = origin
    coordinator._open_products = partial(_product_access, url, promotes=not service)
    return coordinator


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
    create: bool = False,
    lanes: int = 1,
    observer: Observer | None = None,
    service: bool = False,
    api_key: str | Keys | None = None,
    ca_file: str | None = None,
) -> AsyncCoordinator:
    """Like `connect`, for event loops."""
    identity = _identity(tenant_id, project_id, session_id, agent_id, user_id, process)
    setting = _url_setting(url, create=create)
    origin = None if clock else _origin(url, setting, profile, deadline_seconds, api_key, ca_file)
    url = setting.value
    if is_service(url):
        from genlock.client.coordinator import AsyncRemoteCoordinator

        remote: Any = AsyncRemoteCoordinator(
            _link(setting, identity, api_key, ca_file, deadline_seconds, clock, monitor)
        )
        coordinator: AsyncCoordinator = remote
        coordinator._origin = origin
        coordinator._open_products = partial(_product_access, url, promotes=False)
        return coordinator
    with short_remedy(own=setting.source == "default"):
        coordinator = AsyncCoordinator(
            _opener(
                url, clock, profile, monitor, deadline_seconds, create, lanes, observer, service
            ),
            identity,
        )
    coordinator._origin = origin
    coordinator._open_products = partial(_product_access, url, promotes=not service)
    return coordinator


def _product_access(url: object, *, promotes: bool) -> ProductAccess:
    """Returns the access to product areas. Imports late: most programs have no products."""
    from genlock.products.access import ProductAccess

    return ProductAccess(url, promotes=promotes)


def _origin(
    url: str | Store | None,
    setting: Setting,
    profile: str,
    deadline_seconds: float,
    api_key: str | Keys | None,
    ca_file: str | None,
) -> Origin | None:
    """Returns how a helper process opens the same store, if it can. It gets only the program's
    arguments, so it finds settings and keys as this process did."""
    if not isinstance(setting.value, str) or setting.value.startswith("memory://"):
        return None
    if api_key is not None and not isinstance(api_key, str):
        return None  # a function of this process
    told = {"url": url, "profile": profile, "deadline_seconds": deadline_seconds}
    try:
        folder = os.getcwd()
    except OSError:
        return None
    return Origin(told | {"api_key": api_key, "ca_file": ca_file}, folder)


def _link(
    url: Setting,
    identity: Identity,
    key: str | Keys | None,
    ca_file: str | None,
    deadline_seconds: float,
    clock: Clock | None,
    monitor: bool,
) -> Transport:
    """Returns the transport to a service."""
    from importlib import import_module

    from genlock.client.addresses import Authorization
    from genlock.client.transport import Transport

    version = import_module("genlock").__version__  # the package itself, which sees all of us
    check_number("deadline_seconds", deadline_seconds, 0, 86400)
    if clock is not None or monitor:
        raise BadArgument(
            "clock and monitor are the service's own business; leave them out for a service's "
            "address"
        )
    folders = _token_folders()
    return Transport(
        url.value,
        identity,
        authorization=Authorization(_keys(url, key, folders), folders),
        deadline_seconds=deadline_seconds,
        ca_file=ca_file,
        version=version,
        identify=identify,
    )


def _token_folders() -> list[Path]:
    """Returns the folders in which a service may have left a token. A program that names its
    service need not be in a project."""
    from genlock import token_files

    try:
        return token_files.folders(project_folder())
    except GenlockError:
        return token_files.folders(None)


def _keys(url: Setting, key: str | Keys | None, token_folders: Sequence[Path]) -> Keys:
    """Returns a function from each address of this URL to its key."""
    if isinstance(key, str):
        given = check_key(key)
        return lambda address: given
    if callable(key):
        return key
    if key is not None:
        raise BadArgument(
            f"api_key is a key, or a function from an address to its key, not {type(key).__name__}"
        )
    from genlock.credentials import keys_for

    return keys_for(url, token_folders)


def open_store(
    url: str | None = None, *, clock: Clock | None = None, create: bool = False
) -> Store:
    """Opens the store at `url`. A missing one raises `StoreMissing`, unless `create` is true: then
    it is created."""
    setting = _url_setting(url, create=create)
    with short_remedy(own=setting.source == "default"):
        return scheme_of(setting.value).open(setting.value, clock=clock, create=create)


@contextmanager
def short_remedy(*, own: bool) -> Iterator[None]:
    """Shortens the advice if the project's own store is missing: `genlock init` needs no URL
    then."""
    try:
        yield
    except StoreMissing as error:
        what, remedy, _ = str(error).rpartition("; to make one, type: ")
        if not own or not remedy:
            raise
        raise StoreMissing(f"{what}{remedy}genlock init") from error


def create_store(url: str) -> bool:
    """Creates the store at `url`. False if it exists already; it is not changed."""
    try:
        open_store(url).close()
    except StoreMissing:
        make = scheme_of(url).create
        if make is not None:
            make(url)
        else:
            open_store(url, create=True).close()
        return True
    return False


def about_store(url: str) -> About | None:
    """Returns the format of the store, supported or not; None for stores without formats."""
    about = scheme_of(url).about
    return None if about is None else about(url)


def migrate_store(url: str) -> Migrated:
    """Migrates the store to the current format. A current one is not changed."""
    migrate = scheme_of(url).migrate
    if migrate is None:
        raise BadArgument(
            f"stores of {url.partition('://')[0]}:// have no format that could be older: there is "
            "nothing to migrate"
        )
    return migrate(url)


def raise_epoch(url: str) -> tuple[int, int]:
    """Begins a new epoch of the store. Returns the previous epoch and the new one."""
    from genlock.stores.epoch_guard import EpochNumber

    store = open_store(url)
    try:
        before = store.load([]).epoch
        after = EpochNumber().above(before)
        store.set_epoch(after)
    finally:
        store.close()
    return before, after


def default_url() -> str:
    """Returns the URL in the settings, else that of the project's own store. Neither need exist."""
    url: str = _url_setting(None, create=False).value
    return url


def _url_setting(url: str | Store | None, *, create: bool) -> Setting:
    """Returns the program's URL, else the one in the settings, else that of the project's own
    store, whose folder is created with `create`."""
    if url is not None:
        return Setting(url, "argument url", "argument")
    folder = project_folder()
    named = trusted_settings({}, folder)["url"]
    if named.value is not None:
        return named
    if create and not folder.is_dir():
        with suppress(OSError):  # opening the store gives the better error message
            make_folder(folder)
    return named._replace(value=sqlite_url(folder / FILE))


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
        raise BadArgument(
            "clock is something whose now() gives the time with its zone, not "
            f"{type(clock).__name__}"
        )
    if isinstance(url, str):
        given = url
        home = os.getpid()

        def open_it() -> Store:
            if given.startswith("memory://") and os.getpid() != home:
                raise StoreError(
                    "memory:// does not survive a fork; use a file if processes share work"
                )
            return open_store(given, clock=clock, create=create)
    else:
        store: Store = url
        home = os.getpid()

        def open_it() -> Store:
            if os.getpid() != home:
                raise StoreError(
                    "a store that was handed to connect() does not survive a fork; give its URL "
                    "instead"
                )
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
            from genlock.engine.engine import Monitor

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
