"""Opening a database: whose the tables are, of which format, creating them, and bringing them up to date.

The tables belong to many machines. Whoever opens them creates them if they are not there, but brings none up to date: coordinators of
an older version may be at work in them. That is for somebody to decide, by `genlock db migrate`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NamedTuple

from genlock.errors import StoreForeign, StoreMissing, StoreReadOnly, StoreUnavailable
from genlock.failpoints import hit
from genlock.stores.migrations import outdated, refuse_newer, this_version
from genlock.stores.mysql.faults import Refused
from genlock.stores.mysql.link import Link
from genlock.stores.mysql.queries import FORMAT, migrations_for, queries_for, tables_for
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
    format: int = 0
    """0 if there is no store yet, or if somebody began to create one and did not come to an end."""


def open_schema(link: Link, settings: Settings, *, create: bool = True) -> Condition:
    """Tables of the present format, with `create` created if need be. Two who open them at once are no trouble."""
    condition = examine(link, settings)
    if condition.format == FORMAT:
        return condition
    if condition.format:
        raise outdated(settings.where, condition.format, FORMAT)
    if not create:
        raise missing(settings)
    run_migrations(link, settings, condition)
    return condition


def examine(link: Link, settings: Settings) -> Condition:
    """What there is; `StoreForeign` if it is somebody else's or of a newer format, or if the server will not do."""
    look = queries_for(settings.prefix)["look"].filled(meta=f"{settings.prefix}meta", tables=tables_for(settings.prefix))
    server, tables = link.run(look)
    ((standby, syncs, number, most_bytes),), ((ours, objects),) = server.rows, tables.rows
    condition = Condition(bool(ours), objects, bool(standby), bool(syncs), number.decode(), most_bytes)
    _check_version(settings, condition.version)
    if condition.is_ours:
        return condition._replace(format=_format(link, settings))
    if condition.objects:
        raise StoreForeign(f"{settings.where}: the tables of this name belong to another program: name others (?prefix=…)")
    return condition


def missing(settings: Settings) -> StoreMissing:
    """The error where there is no store."""
    return StoreMissing(f"there is no store at {settings.where}; to make one, type: genlock db create URL")


def _check_version(settings: Settings, text: str) -> None:
    name, oldest = ("MariaDB", OLDEST_MARIADB) if "mariadb" in text.lower() else ("MySQL", OLDEST_MYSQL)
    found = _VERSION.match(text)
    if found is None or (int(found[1]), int(found[2])) < oldest:
        raise StoreForeign(f"{settings.where}: the server is {name} {text}, and Genlock needs {oldest[0]}.{oldest[1]} or later")


def _format(link: Link, settings: Settings) -> int:
    for found, made_by in link.rows(queries_for(settings.prefix)["format"]):
        refuse_newer(settings.where, found, FORMAT, made_by.decode())
        return int(found)
    return 0


def run_migrations(link: Link, settings: Settings, condition: Condition, *, upgrade: bool = False) -> int:
    """Runs those that are missing; the format before them. Whoever comes second waits, and finds nothing left to do.

    There are no transactions for tables here. A migration can be repeated, and the format is written when it has been done. Without
    `upgrade` only tables that are not there yet are made.
    """
    if condition.standby:
        raise StoreReadOnly(f"{settings.where} can only be read, and has no store of this format: name the primary")
    queries = queries_for(settings.prefix)
    # A lock is the whole server's, and its name is short.
    name = "genlock " + hashlib.sha256(f"{settings.arguments['database']}/{settings.prefix}".encode()).hexdigest()[:40]
    if link.rows(queries["lock_opening"], name=name, seconds=SECONDS_FOR_OTHERS) != ((1,),):
        raise StoreUnavailable(f"{settings.where}: somebody else has been creating the tables for {SECONDS_FOR_OTHERS} s")
    try:
        found = examine(link, settings).format
        if found and found < FORMAT and not upgrade:
            raise outdated(settings.where, found, FORMAT)
        if found < FORMAT:
            _run(link, settings, found)
    except Refused as refused:
        if refused.code in _DENIED:
            raise StoreReadOnly(f"{settings.where}: {refused}; let somebody do it who may create tables") from refused
        raise
    finally:
        if link.is_alive:
            link.rows(queries["unlock_opening"], name=name)
    hit("mysql.open.after_commit")
    return found


def _run(link: Link, settings: Settings, found: int) -> None:
    queries, migrations = queries_for(settings.prefix), migrations_for(settings.prefix)
    for migration in migrations:
        if migration.number > found:
            link.run(migration.script.encode())
    for migration in migrations:
        link.rows(queries["note_migration"], number=migration.number, name=migration.name, version=this_version())
    hit("mysql.open.before_commit")
    link.rows(queries["set_format"], format=FORMAT, made_by=this_version(), birth=secrets.token_bytes(8))
