"""What can be asked of a store's tables, and done to them, whatever format they are of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from genlock.stores.migrations import About, Migrated, applied_of, migrated
from genlock.stores.mysql.faults import Broken, Refused, Unreachable, commit_fault_of
from genlock.stores.mysql.link import Link, open_link
from genlock.stores.mysql.opening import examine, missing, run_migrations
from genlock.stores.mysql.queries import FORMAT, migrations_for, queries_for
from genlock.stores.mysql.settings import Settings, settings_of

_HOUR = 3600.0
"""Seconds that one step of a migration may take."""


def about(url: str) -> About:
    """What the tables say of themselves; nothing is changed."""
    settings = settings_of(url)
    with _linked(settings) as link:
        found = examine(link, settings)
        rows = link.rows(queries_for(settings.prefix)["migrations"]) if found.format > 1 else ()
    if not found.format:
        raise missing(settings)
    name = "MariaDB" if "mariadb" in found.version.lower() else "MySQL"
    applied = applied_of((number, title.decode(), at, by.decode()) for number, title, at, by in rows)
    return About(f"{name} {found.version}", found.format, FORMAT, applied)


def migrate(url: str) -> Migrated:
    """Brings the tables up to date. Of two who do it at once one has nothing left to do."""
    settings = settings_of(url)._replace(statement_timeout=_HOUR)
    with _linked(settings) as link:
        found = examine(link, settings)
        if not found.format:
            raise missing(settings)
        before = FORMAT if found.format == FORMAT else run_migrations(link, settings, found, upgrade=True)
    return migrated(before, migrations_for(settings.prefix))


@contextmanager
def _linked(settings: Settings) -> Iterator[Link]:
    """A connection for as long as the block lasts, and out of it only errors of ours."""
    try:
        link = open_link(settings)
        try:
            yield link
        finally:
            link.close()
    except (Refused, Broken, Unreachable) as error:
        raise commit_fault_of(error, settings.where) from error
