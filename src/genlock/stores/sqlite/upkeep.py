"""What can be asked of a file, and done to it, whatever format it is of."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import apsw

from genlock.stores.migrations import About, Migrated, applied_of, migrated
from genlock.stores.sqlite.connections import Settings, open_reader, open_writer
from genlock.stores.sqlite.faults import translated
from genlock.stores.sqlite.gate import Gate
from genlock.stores.sqlite.opening import format_of, make_place, missing, open_for_reading, prepare
from genlock.stores.sqlite.queries import FORMAT, MIGRATIONS, QUERIES

_SECONDS = 5.0


def about(path: Path) -> About:
    """What the file says of itself; nothing is changed."""
    with translated(path):
        if not path.exists() or not path.stat().st_size:
            raise missing(path)
        make_place(path, read_only=True)
        db = open_reader(open_for_reading(_settings(path), older=True))
        try:
            found = format_of(db, path)
            applied = applied_of(db.execute(QUERIES["migrations"])) if db.execute(QUERIES["has_migrations"]).get else ()
        finally:
            db.close()
    return About(f"SQLite {apsw.sqlite_lib_version()}", found, FORMAT, applied)


def migrate(path: Path) -> Migrated:
    """Brings the file up to date. Of two who do it at once one has nothing left to do."""
    with translated(path):
        if not path.exists():
            raise missing(path)
        make_place(path, read_only=False)
        db = open_writer(_settings(path))
        try:
            if not format_of(db, path):
                raise missing(path)
            gate = Gate(Path(f"{path}.gate"), _SECONDS)
            try:
                before = gate.pass_through(partial(prepare, db, path))
            finally:
                gate.close()
        finally:
            db.close()
    return migrated(before, MIGRATIONS)


def _settings(path: Path) -> Settings:
    return Settings(path, None, "FULL", _SECONDS)
