"""Opening a database: whose the schema is, of which format, creating it, and bringing it up to date.

A schema belongs to many machines. Whoever opens it creates it if it is not there, but brings none up to date: coordinators of an
older version may be at work in it. That is for somebody to decide, by `genlock db migrate`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from genlock.errors import GenlockError, StoreForeign, StoreMissing, StoreReadOnly
from genlock.failpoints import hit
from genlock.stores.migrations import outdated, refuse_newer, this_version
from genlock.stores.postgres.faults import Refused
from genlock.stores.postgres.link import Link
from genlock.stores.postgres.queries import FORMAT, migrations_for, queries_for
from genlock.stores.postgres.settings import Settings

OLDEST_SERVER = 150000


class Condition(NamedTuple):
    """What a server says of itself."""

    is_ours: bool
    objects: int
    standby: bool
    syncs: bool
    encoding: str
    number: int
    format: int = 0
    """0 if there is no store yet."""


def open_schema(link: Link, settings: Settings, *, create: bool = True) -> Condition:
    """A schema of the present format, with `create` created if need be. Two who open it at once are no trouble."""
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
    rows: list[Any] = link.rows(queries_for(settings.schema)["look"], settings.schema)
    condition = Condition(*rows[0])
    if condition.encoding != "UTF8":
        raise StoreForeign(f"{settings.where}: the database is in {condition.encoding}, and Genlock needs UTF8")
    if condition.number < OLDEST_SERVER:
        raise StoreForeign(f"{settings.where}: the server is of version {condition.number // 10000}, and Genlock needs 15 or later")
    if condition.is_ours:
        return condition._replace(format=_format(link, settings))
    if condition.objects:
        raise StoreForeign(f"{settings.where}: the schema belongs to another program: name another one (?schema=…)")
    return condition


def missing(settings: Settings) -> StoreMissing:
    """The error where there is no store."""
    return StoreMissing(f"there is no store at {settings.where}; to make one, type: genlock db create URL")


def _format(link: Link, settings: Settings) -> int:
    rows: list[Any] = link.rows(queries_for(settings.schema)["format"])
    if not rows:
        raise StoreForeign(f"{settings.where}: the schema does not say of which format it is")
    found, made_by = rows[0]
    refuse_newer(settings.where, found, FORMAT, made_by)
    return int(found)


def run_migrations(link: Link, settings: Settings, condition: Condition, *, upgrade: bool = False) -> int:
    """Runs those that are missing, in one transaction; the format before them. Whoever comes second finds nothing left to do.

    Without `upgrade` only a schema that is not there yet is changed.
    """
    if condition.standby:
        raise StoreReadOnly(f"{settings.where} is a standby without a store of this format: name the primary")
    link.script("BEGIN")
    try:
        link.rows(queries_for(settings.schema)["lock_opening"], settings.schema)
        found = examine(link, settings).format
        if found < FORMAT:
            if found and not upgrade:
                raise outdated(settings.where, found, FORMAT)
            _run(link, settings, found)
        hit("postgres.open.before_commit")
        link.script("COMMIT")
    except Refused as refused:
        link.script("ROLLBACK")
        if refused.state == "42501":
            raise StoreReadOnly(f"{settings.where}: {refused}; let somebody do it who may create the schema and its tables") from refused
        raise
    except GenlockError:
        link.script("ROLLBACK")
        raise
    hit("postgres.open.after_commit")
    return found


def _run(link: Link, settings: Settings, found: int) -> None:
    queries, migrations = queries_for(settings.schema), migrations_for(settings.schema)
    link.script(f'CREATE SCHEMA IF NOT EXISTS "{settings.schema}"')
    for migration in migrations:
        if migration.number > found:
            link.script(migration.script)
    for migration in migrations:
        link.rows(queries["note_migration"], migration.number, migration.name, this_version())
    link.rows(queries["set_format"], FORMAT, this_version())
