"""What can be asked of a schema, and done to it, whatever format it is of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from genlock.stores.links import Unreachable
from genlock.stores.migrations import About, Migrated, applied_of, migrated
from genlock.stores.postgres.faults import Broken, Refused, commit_fault_of
from genlock.stores.postgres.link import Link, prepared_link
from genlock.stores.postgres.opening import examine, missing, run_migrations
from genlock.stores.postgres.queries import FORMAT, migrations_for, queries_for
from genlock.stores.postgres.settings import Settings, settings_of

_HOUR = 3600.0
"""Seconds that one step of a migration may take. The locks it needs it must get as soon as a commit does: others wait behind it."""


def about(url: str) -> About:
    """What the schema says of itself; nothing is changed."""
    settings = settings_of(url)
    with _linked(settings) as link:
        found = examine(link, settings)
        applied = applied_of(link.rows(queries_for(settings.schema)["migrations"])) if found.format > 1 else ()
    if not found.format:
        raise missing(settings)
    return About(f"PostgreSQL {found.number // 10000}.{found.number % 10000}", found.format, FORMAT, applied)


def migrate(url: str) -> Migrated:
    """Brings the schema up to date. Of two who do it at once one has nothing left to do."""
    settings = settings_of(url)._replace(statement_timeout=_HOUR)
    with _linked(settings) as link:
        found = examine(link, settings)
        if not found.format:
            raise missing(settings)
        before = FORMAT if found.format == FORMAT else run_migrations(link, settings, found, upgrade=True)
    return migrated(before, migrations_for(settings.schema))


@contextmanager
def _linked(settings: Settings) -> Iterator[Link]:
    """A connection for as long as the block lasts, and out of it only errors of ours."""
    try:
        link = prepared_link(settings)
        try:
            yield link
        finally:
            link.close()
    except (Refused, Broken, Unreachable) as error:
        raise commit_fault_of(error, settings.where) from error
