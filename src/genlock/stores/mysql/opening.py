"""Opening a database: whose the tables are, of which format, and bringing them up to date."""

from __future__ import annotations

import hashlib
import re
import secrets
from importlib.metadata import version
from typing import NamedTuple

from genlock.errors import StoreForeign, StoreReadOnly, StoreUnavailable
from genlock.failpoints import hit
from genlock.stores.mysql.faults import Refused
from genlock.stores.mysql.link import Link
from genlock.stores.mysql.queries import FORMAT, migrations_for, queries_for
from genlock.stores.mysql.settings import Settings

OLDEST_MYSQL = (8, 4)
OLDEST_MARIADB = (10, 11)
SECONDS_FOR_OTHERS = 30
"""How long one waits for another who is creating the tables."""

_VERSION = re.compile(r"(\d+)\.(\d+)")
_DENIED = (1044, 1142, 1227, 1290)


class Condition(NamedTuple):
    """What a server says of itself."""

    is_ours: bool
    objects: int
    standby: bool
    syncs: bool
    version: str
    most_bytes: int


def open_schema(link: Link, settings: Settings) -> Condition:
    """Tables of the present format: created or migrated if need be. Two who open them at once are no trouble."""
    condition = _look(link, settings)
    _check_version(settings, condition.version)
    if not _is_ready(link, settings, condition):
        if condition.standby:
            raise StoreReadOnly(f"{settings.where} can only be read, and has no store of this format: open the primary once")
        _migrate(link, settings)
    return condition


def _look(link: Link, settings: Settings) -> Condition:
    look = queries_for(settings.prefix)["look"].filled(meta=f"{settings.prefix}meta", prefix=settings.prefix)
    server, tables = link.run(look)
    ((standby, syncs, number, most_bytes),), ((ours, objects),) = server.rows, tables.rows
    return Condition(bool(ours), objects, bool(standby), bool(syncs), number.decode(), most_bytes)


def _check_version(settings: Settings, text: str) -> None:
    name, oldest = ("MariaDB", OLDEST_MARIADB) if "mariadb" in text.lower() else ("MySQL", OLDEST_MYSQL)
    found = _VERSION.match(text)
    if found is None or (int(found[1]), int(found[2])) < oldest:
        raise StoreForeign(f"{settings.where}: the server is {name} {text}, and Genlock needs {oldest[0]}.{oldest[1]} or later")


def _is_ready(link: Link, settings: Settings, condition: Condition) -> bool:
    """Is it ours and of the present format? `StoreForeign` if it is somebody else's, or of a newer one."""
    if not condition.is_ours:
        if condition.objects:
            raise StoreForeign(f"{settings.where}: the tables of this name belong to another program: name others (?prefix=…)")
        return False
    return _format(link, settings) == FORMAT


def _format(link: Link, settings: Settings) -> int:
    """0 if somebody began to create the tables and did not come to an end."""
    for found, made_by in link.rows(queries_for(settings.prefix)["format"]):
        if found > FORMAT:
            raise StoreForeign(
                f"{settings.where} is of format {found}, and this version of Genlock knows formats up to {FORMAT}:"
                f" install genlock {made_by.decode()} or later"
            )
        return int(found)
    return 0


def _migrate(link: Link, settings: Settings) -> None:
    """Runs the migrations that are missing. Whoever comes second waits, and finds nothing left to do.

    There are no transactions for tables here. A migration can be repeated, and the format is written when it has been done.
    """
    queries = queries_for(settings.prefix)
    # A lock is the whole server's, and its name is short.
    name = "genlock " + hashlib.sha256(f"{settings.arguments['database']}/{settings.prefix}".encode()).hexdigest()[:40]
    if link.rows(queries["lock_opening"], name=name, seconds=SECONDS_FOR_OTHERS) != ((1,),):
        raise StoreUnavailable(f"{settings.where}: somebody else has been creating the tables for {SECONDS_FOR_OTHERS} s")
    try:
        condition = _look(link, settings)
        found = _format(link, settings) if condition.is_ours else 0
        for number, script in migrations_for(settings.prefix).items():
            if number > found:
                link.run(script)
                hit("mysql.open.before_commit")
                link.rows(queries["set_format"], format=number, made_by=version("genlock"), birth=secrets.token_bytes(8))
    except Refused as refused:
        if refused.code in _DENIED:
            raise StoreReadOnly(f"{settings.where}: {refused}; let somebody open it once who may create tables") from refused
        raise
    finally:
        if link.is_alive:
            link.rows(queries["unlock_opening"], name=name)
    hit("mysql.open.after_commit")
