"""What stores written in SQL have in common: named statements, and the numbered migrations that lead from one format to the next.

A migration is a file `NNNN_name.sql`, with the same numbers and names in every store, whatever its dialect. It is never changed once it
has been released. All that are missing run in one transaction where the database can do that. What was applied, when and by which
version, stands in the table `migration` since format 2. See docs/adr/0016.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from genlock.errors import StoreForeign, StoreOutdated

_STATEMENT = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Migration(NamedTuple):
    """A script, and the format that it leads to."""

    number: int
    name: str
    script: str

    @property
    def title(self) -> str:
        """As its file is called."""
        return f"{self.number:04}_{self.name}"


class Applied(Struct, frozen=True):
    """A migration that a store has had. What was applied before anybody wrote it down counts as applied when that began."""

    number: int
    name: str
    applied_at: datetime
    applied_by: str
    """The version of Genlock."""


class About(Struct, frozen=True):
    """What a store says of its making. It can be asked of a store of any format."""

    server: str
    """What it runs on, and of which version."""
    format: int
    """0 if there is none yet."""
    newest: int
    """The format that this version of Genlock works with."""
    migrations: tuple[Applied, ...] = ()


class Migrated(Struct, frozen=True):
    """From which format to which, and what was run."""

    before: int
    after: int
    applied: tuple[str, ...] = ()


def named_statements(text: str) -> dict[str, str]:
    """Statements by name, without their comments."""
    _, *parts = _STATEMENT.split(text)
    return {name: without_comments(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def without_comments(text: str) -> str:
    """A statement, or several, as the server needs them."""
    return _COMMENT.sub("", text).strip().rstrip(";")


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """All of a folder, in order. A number that is missing, or there twice, is a mistake of ours."""
    found = []
    for file in sorted(folder.glob("*.sql")):
        match = _FILE.fullmatch(file.name)
        assert match, f"{file.name} is not called like a migration"
        found.append(Migration(int(match[1]), match[2], file.read_text("utf-8")))
    assert [migration.number for migration in found] == list(range(1, len(found) + 1)), f"{folder} has a gap or a double"
    return tuple(found)


def newest_of(migrations: Iterable[Migration]) -> int:
    """The format of a store that has had them all."""
    return max(migration.number for migration in migrations)


def migrated(before: int, migrations: Iterable[Migration]) -> Migrated:
    """The account of a run that began at this format and went to the end."""
    missing = [migration for migration in migrations if migration.number > before]
    after = missing[-1].number if missing else before
    return Migrated(before, after, tuple(migration.title for migration in missing))


def applied_of(rows: Iterable[tuple[Any, ...]]) -> tuple[Applied, ...]:
    """From the rows of the table `migration`: number, name, microseconds, version."""
    return tuple(Applied(number, name, _EPOCH + timedelta(microseconds=at), by) for number, name, at, by in rows)


def this_version() -> str:
    """The version of Genlock that runs, for whoever meets a store that it has made."""
    from importlib.metadata import version  # dear, and only needed when something is migrated

    return version("genlock")


def refuse_newer(where: object, found: int, newest: int, made_by: str | None) -> None:
    """`StoreForeign` if the format is one that this version does not know. `made_by` is the version that made it so, if that is known."""
    if found > newest:
        wanted = f"install genlock {made_by} or later" if made_by else "use the newer version that wrote it"
        raise StoreForeign(f"{where} is of format {found}, and this version of Genlock knows formats up to {newest}: {wanted}")


def outdated(where: object, found: int, newest: int, url: str = "URL") -> StoreOutdated:
    """The error for a store of an older format that its opener is not to change."""
    return StoreOutdated(
        f"{where} is of format {found}, and this version of Genlock works with format {newest};"
        f" to bring it up to date, type: genlock db migrate {url}"
    )
