"""Opening a database: whose the schema is, of which format, and bringing it up to date."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, NamedTuple

from genlock.errors import StoreError, StoreForeign, StoreReadOnly
from genlock.failpoints import hit
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


def open_schema(link: Link, settings: Settings) -> Condition:
    """A schema of the present format: created or migrated if need be. Two who open it at once are no trouble."""
    condition = _look(link, settings)
    if condition.encoding != "UTF8":
        raise StoreForeign(f"{settings.where}: the database is in {condition.encoding}, and Genlock needs UTF8")
    if condition.number < OLDEST_SERVER:
        raise StoreForeign(f"{settings.where}: the server is of version {condition.number // 10000}, and Genlock needs 15 or later")
    if not _is_ready(link, settings, condition):
        if condition.standby:
            raise StoreReadOnly(f"{settings.where} is a standby without a store of this format: open the primary once")
        _migrate(link, settings)
    return condition


def _look(link: Link, settings: Settings) -> Condition:
    rows: list[Any] = link.rows(queries_for(settings.schema)["look"], settings.schema)
    return Condition(*rows[0])


def _is_ready(link: Link, settings: Settings, condition: Condition) -> bool:
    """Is it ours and of the present format? `StoreForeign` if it is somebody else's, or of a newer one."""
    if not condition.is_ours:
        if condition.objects:
            raise StoreForeign(f"{settings.where}: the schema belongs to another program: name another one (?schema=…)")
        return False
    rows: list[Any] = link.rows(queries_for(settings.schema)["format"])
    if not rows:
        raise StoreForeign(f"{settings.where}: the schema does not say of which format it is")
    found, made_by = rows[0]
    if found > FORMAT:
        raise StoreForeign(
            f"{settings.where} is of format {found}, and this version of Genlock knows formats up to {FORMAT}:"
            f" install genlock {made_by} or later"
        )
    return bool(found == FORMAT)


def _migrate(link: Link, settings: Settings) -> None:
    """Runs the migrations that are missing, in one transaction. Whoever comes second finds nothing left to do."""
    queries = queries_for(settings.schema)
    link.script("BEGIN")
    try:
        link.rows(queries["lock_opening"], settings.schema)
        condition = _look(link, settings)
        if not _is_ready(link, settings, condition):
            found: Any = link.rows(queries["format"])[0][0] if condition.is_ours else 0
            link.script(f'CREATE SCHEMA IF NOT EXISTS "{settings.schema}"')
            for number, script in migrations_for(settings.schema).items():
                if number > found:
                    link.script(script)
            link.rows(queries["set_format"], FORMAT, version("genlock"))
        hit("postgres.open.before_commit")
        link.script("COMMIT")
    except Refused as refused:
        link.script("ROLLBACK")
        if refused.state == "42501":
            raise StoreReadOnly(f"{settings.where}: {refused}; let somebody open it once who may create the schema") from refused
        raise
    except StoreError:
        link.script("ROLLBACK")
        raise
    hit("postgres.open.after_commit")
