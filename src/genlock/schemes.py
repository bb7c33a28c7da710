"""Finds the store of a URL by its scheme: our own stores, and those installed as plug-ins.

A plug-in is an entry point of the group `genlock.stores`. Its name is the scheme; its value is
called as `(url, clock=…, create=…)` and returns a store. A plug-in cannot replace one of our
schemes: a URL means the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard

from genlock.errors import BadArgument, StoreError
from genlock.extras import needs_extra
from genlock.project_folder import main_worktree, sqlite_path, sqlite_url, working_folder
from genlock.store import Clock, Store

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from genlock.stores.migrations import About, Migrated

GROUP = "genlock.stores"

SERVICES = ("http", "https")
"""The schemes of services. A service has a store, but is none."""


class Opener(Protocol):
    """The minimum of a scheme: a function that opens its stores."""

    def __call__(self, url: str, *, clock: Clock | None, create: bool) -> Store:
        """Opens the store at `url`; with `create` false, a missing one raises `StoreMissing`."""


class Scheme(NamedTuple):
    """What can be done with the stores of one scheme."""

    open: Opener
    create: Callable[[str], None] | None = None
    """Creates the store, if opening does not."""
    about: Callable[[str], About] | None = None
    """Returns the store's format, if it has one."""
    migrate: Callable[[str], Migrated] | None = None


def is_service(url: object) -> TypeGuard[str]:
    """Is it the address of a service?"""
    return isinstance(url, str) and url.partition("://")[0].lower() in SERVICES


def scheme_of(url: str) -> Scheme:
    """Returns the scheme of this URL; `BadArgument` if it is unknown."""
    if not isinstance(url, str):
        raise BadArgument(f"a store's URL is a text, not {url!r}")
    name, separator, _ = url.partition("://")
    if not separator:
        raise BadArgument(_no_url(url))
    if is_service(url):
        raise BadArgument(
            "a service is named, and this needs the store itself: type it where the store can be "
            "reached, with its own URL"
        )
    if name in _OURS:
        if name not in _LOCAL:
            _check_characters(url)
        return _OURS[name]
    return Scheme(_plug_in(name))


def _no_url(url: str) -> str:
    """Returns the error text for a string that is no URL, without showing a possible password."""
    if not url.strip() or "@" in url or url.partition(":")[0] in _OURS:
        return (
            "this is no URL: a store's begins with one of "
            f"{', '.join(f'{name}://' for name in _OURS)}"
        )
    if url == ":memory:":
        return f"{url!r} is no URL; for a store in memory write memory://"
    host, _, port = url.rstrip("/").partition(":")
    if "/" not in host and port.isdecimal():
        return f"{url!r} is no URL; for a service write http://{url}"
    return f"{url!r} is no URL; for a file write {sqlite_url(working_folder() / url)}"


def _check_characters(url: str) -> None:
    """Checks a server's URL. A file may have any name, but here the text after a line break or a
    zero byte would be dropped silently."""
    if any(
        character <= " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff"
        for character in url
    ):
        raise BadArgument(
            "there is a blank, a line break or another character in the URL that no URL has: write "
            "it as % and two hex digits"
        )


def _plug_in(name: str) -> Opener:
    points = _plug_ins()
    found = [point for point in points if point.name == name]
    if not found:
        installed = [
            f"{point.name}:// ({_origin(point)})" for point in points if point.name not in _OURS
        ]
        there_are = ", ".join([*(f"{ours}://" for ours in _OURS), *installed])
        services = " or ".join(f"{service}://" for service in SERVICES)
        raise BadArgument(
            f"there is no store for {name}://; there are: {there_are}; a service's address begins "
            f"with {services}"
        )
    if len(found) > 1:
        raise StoreError(
            f"several packages bring a store for {name}://: {', '.join(map(_origin, found))}; "
            "uninstall all but one"
        )
    return _loaded(found[0])


def _plug_ins() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    # A folder that is on the path twice is listed twice.
    different = {
        (point.name, point.value, _origin(point)): point for point in entry_points(group=GROUP)
    }
    return [different[key] for key in sorted(different)]


def _loaded(point: EntryPoint) -> Opener:
    """Loads the entry point and wraps it, so that errors in a plug-in name the plug-in."""
    who = f"the store for {point.name}://, {point.value} of {_origin(point)},"
    try:
        opener = point.load()
    except Exception as error:  # its import may raise anything: the plug-in's name is what helps
        raise StoreError(
            f"{who} cannot be loaded: {type(error).__name__}: {error}; repair or uninstall it"
        ) from error
    if not callable(opener):
        raise StoreError(
            f"{who} is no callable that opens a store, but {type(opener).__name__}; repair or "
            "uninstall it"
        )

    def open_it(url: str, *, clock: Clock | None, create: bool) -> Store:
        store: Store = opener(url, clock=clock, create=create)
        if not hasattr(store, "limits"):
            raise StoreError(
                f"{who} gave {type(store).__name__}, which is no store; repair or uninstall it"
            )
        return store

    return open_it


def _origin(point: EntryPoint) -> str:
    return (
        f"{point.dist.name} {point.dist.version}"
        if point.dist is not None
        else "an unknown package"
    )


# Ours. Each module is imported when it is needed: a driver is an extra.


def _open_memory(url: str, *, clock: Clock | None, create: bool) -> Store:
    from genlock.stores.memory import MemoryStore

    return MemoryStore(clock=clock)


def _open_sqlite(url: str, *, clock: Clock | None, create: bool) -> Store:
    from genlock.stores.sqlite import SQLiteStore

    return SQLiteStore(_file(url), clock=clock, create=create)


def _about_sqlite(url: str) -> About:
    from genlock.stores.sqlite.inspection import about

    return about(_file(url))


def _migrate_sqlite(url: str) -> Migrated:
    from genlock.stores.sqlite.inspection import migrate

    return migrate(_file(url))


def _file(url: str) -> Path:
    path = sqlite_path(url)
    assert path is not None
    return path.absolute()


def _open_folder(url: str, *, clock: Clock | None, create: bool) -> Store:
    from genlock.stores.folder.open import folder_path, open_folder

    root, index = main_worktree(folder_path(url))
    return open_folder(url, clock=clock, create=create, root=root, git_index=index)


def _open_postgres(url: str, *, clock: Clock | None, create: bool) -> Store:
    with _driver("psycopg", "postgres"):
        from genlock.stores.postgres import PostgresStore

    return PostgresStore(url, clock=clock, create=create)


def _about_postgres(url: str) -> About:
    with _driver("psycopg", "postgres"):
        from genlock.stores.postgres.open import about

    return about(url)


def _migrate_postgres(url: str) -> Migrated:
    with _driver("psycopg", "postgres"):
        from genlock.stores.postgres.open import migrate

    return migrate(url)


def _open_dynamodb(url: str, *, clock: Clock | None, create: bool) -> Store:
    with _driver("boto3", "dynamodb"):
        from genlock.stores.dynamodb import DynamoDBStore

    return DynamoDBStore(url, clock=clock, create=create)


def _create_dynamodb(url: str) -> None:
    with _driver("boto3", "dynamodb"):
        from genlock.stores.dynamodb import create_table

    create_table(url)


def _open_mysql(url: str, *, clock: Clock | None, create: bool) -> Store:
    with _driver("pymysql", "mysql"):
        from genlock.stores.mysql import MySQLStore

    return MySQLStore(url, clock=clock, create=create)


def _about_mysql(url: str) -> About:
    with _driver("pymysql", "mysql"):
        from genlock.stores.mysql.open import about

    return about(url)


def _migrate_mysql(url: str) -> Migrated:
    with _driver("pymysql", "mysql"):
        from genlock.stores.mysql.open import migrate

    return migrate(url)


def _open_redis(url: str, *, clock: Clock | None, create: bool) -> Store:
    with _driver("redis", "redis"):
        from genlock.stores.redis import RedisStore

    return RedisStore(url, clock=clock, create=create)


def _driver(package: str, extra: str) -> AbstractContextManager[None]:
    """Guards the import of a store: if its driver is missing, the error says how to install it."""
    return needs_extra(extra, package, purpose="the driver for this store", error=StoreError)


_MYSQL = Scheme(_open_mysql, about=_about_mysql, migrate=_migrate_mysql)
_POSTGRES = Scheme(_open_postgres, about=_about_postgres, migrate=_migrate_postgres)

_OURS: dict[str, Scheme] = {
    "sqlite": Scheme(_open_sqlite, about=_about_sqlite, migrate=_migrate_sqlite),
    "memory": Scheme(_open_memory),
    "folder": Scheme(_open_folder),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "redis": Scheme(_open_redis),
    "rediss": Scheme(_open_redis),
    "dynamodb": Scheme(_open_dynamodb, create=_create_dynamodb),
}

_LOCAL = ("folder", "sqlite", "memory")
"""Schemes whose URL is not the address of a server."""
