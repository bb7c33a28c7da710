"""Code shared by the SQL stores: named statements, and the numbered migrations from one format to
the next.

A migration is a file `NNNN_name.sql`, with the same numbers and names in every store, in each
store's dialect. It is never changed after its release. All missing migrations run in one
transaction where the database supports that. Since format 2 the table `migration` records what was
applied, when and by which version. See docs/adr/0016.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from genlock.errors import StoreForeign, StoreMissing, StoreOutdated, StoreReadOnly
from genlock.failpoints import hit
from genlock.stores.connection_pool import Refused
from genlock.stores.cursors import text

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
        """The name of its file."""
        return f"{self.number:04}_{self.name}"


class Applied(Struct, frozen=True):
    """A migration that a store has applied. For migrations older than this table, the time is when
    the table was created."""

    number: int
    name: str
    applied_at: datetime
    applied_by: str
    """The version of Genlock."""


class About(Struct, frozen=True):
    """What a store says of its making. It can be asked of a store of any format."""

    server: str
    """The server and its version."""
    format: int
    """0 if there is none yet."""
    newest: int
    """The format that this version of Genlock works with."""
    migrations: tuple[Applied, ...] = ()


class Migrated(Struct, frozen=True):
    """The result of a migration: the formats before and after, and the migrations that ran."""

    before: int
    after: int
    applied: tuple[str, ...] = ()


def named_statements(text: str) -> dict[str, str]:
    """Statements by name, without their comments."""
    _, *parts = _STATEMENT.split(text)
    return {
        name: without_comments(body) for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


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
    assert [migration.number for migration in found] == list(range(1, len(found) + 1)), (
        f"{folder} has a gap or a double"
    )
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
    return tuple(
        Applied(number, name, _EPOCH + timedelta(microseconds=at), by)
        for number, name, at, by in rows
    )


def this_version() -> str:
    """The version of Genlock that runs, to be noted in a store that it makes."""
    from importlib.metadata import version  # dear, and only needed when something is migrated

    return version("genlock")


def refuse_newer(where: object, found: int, newest: int, made_by: str | None) -> None:
    """`StoreForeign` if the format is one that this version does not know. `made_by` is the version
    that made it so, if that is known."""
    if found > newest:
        wanted = (
            f"install genlock {made_by} or later"
            if made_by
            else "use the newer version that wrote it"
        )
        raise StoreForeign(
            f"{where} is of format {found}, and this version of Genlock knows formats up to "
            f"{newest}: {wanted}"
        )


def outdated(where: object, found: int, newest: int, url: str = "URL") -> StoreOutdated:
    """The error for a store of an older format that its opener is not to change."""
    return StoreOutdated(
        f"{where} is of format {found}, and this version of Genlock works with format {newest};"
        f" to bring it up to date, type: genlock db migrate {url}"
    )


MIGRATION_SECONDS = 3600.0
"""How long one step of a migration may take."""


class MigratedConnection(Protocol):
    """A connection to an SQL server."""

    def rows(self, statement: Any, **values: Any) -> Sequence[tuple[Any, ...]]:
        """One statement with these values; its rows."""

    def command(self, text: str) -> object:
        """Statements without values."""


C = TypeVar("C", bound=MigratedConnection)


class Condition(NamedTuple):
    """What a server says of itself and of a store's tables."""

    is_ours: bool
    objects: int
    """How many tables the database has, including those of other programs."""
    standby: bool
    syncs: bool
    server: str
    """Its name and version."""
    most_bytes: int = 0
    """The size of the largest packet, where there is a limit."""
    format: int = 0
    """0 if there is no store yet, or if its creation was cut off."""


class Schema(ABC, Generic[C]):
    """The tables of one store: whose they are, of which format, and how they are made and migrated.

    The tables belong to many machines. Opening a store creates them if they are missing, but never
    migrates them: coordinators of an older version may be at work. An operator decides that with
    `genlock db migrate`.
    """

    name: ClassVar[str]
    """Its failpoints begin with it."""
    foreign: ClassVar[str]
    unwritable: ClassVar[str]
    denied: ClassVar[tuple[str | int, ...]]
    """The codes of a server that does not let this user make tables."""
    advice: ClassVar[str]
    """What to do about that."""

    def __init__(
        self, where: str, queries: Mapping[str, Any], migrations: tuple[Migration, ...]
    ) -> None:
        self.where = where
        self._queries = queries
        self._migrations = migrations
        self._newest = newest_of(migrations)

    def open(self, connection: C, *, create: bool = True) -> Condition:
        """Tables of the newest format, created if need be. Two that open them at once are no
        trouble."""
        condition = self.examine(connection)
        if condition.format == self._newest:
            return condition
        if condition.format:
            raise outdated(self.where, condition.format, self._newest)
        if not create:
            raise self._missing()
        self._run_migrations(connection, condition)
        return condition

    def about(self, connection: C) -> About:
        """What the tables say of themselves; nothing is changed."""
        found = self.examine(connection)
        rows = connection.rows(self._queries["migrations"]) if found.format > 1 else ()
        if not found.format:
            raise self._missing()
        applied = applied_of((number, text(name), at, text(by)) for number, name, at, by in rows)
        return About(found.server, found.format, self._newest, applied)

    def migrate(self, connection: C) -> Migrated:
        """Brings the tables up to date. Of two that do it at once one has nothing left to do."""
        found = self.examine(connection)
        if not found.format:
            raise self._missing()
        before = self._newest
        if found.format != self._newest:
            before = self._run_migrations(connection, found, upgrade=True)
        return migrated(before, self._migrations)

    def examine(self, connection: C) -> Condition:
        """What there is. `StoreForeign` if the tables are another program's or of a newer format,
        or if the server will not do."""
        condition = self._look(connection)
        if condition.is_ours:
            for found, made_by in connection.rows(self._queries["format"]):
                refuse_newer(self.where, found, self._newest, text(made_by))
                return condition._replace(format=int(found))
        elif condition.objects:
            raise StoreForeign(f"{self.where}: {self.foreign}")
        return condition

    def _missing(self) -> StoreMissing:
        return StoreMissing(
            f"there is no store at {self.where}; to make one, type: genlock db create URL"
        )

    def _run_migrations(self, connection: C, condition: Condition, *, upgrade: bool = False) -> int:
        """Runs the missing migrations and returns the format before them. Others wait meanwhile.
        Without `upgrade` only tables that are not there yet are made."""
        if condition.standby:
            raise StoreReadOnly(f"{self.where} {self.unwritable}")
        try:
            with self._exclusive(connection):
                found = self.examine(connection).format
                if found and found < self._newest and not upgrade:
                    raise outdated(self.where, found, self._newest)
                if found < self._newest:
                    self._apply(connection, found)
        except Refused as refused:
            if refused.code in self.denied:
                raise StoreReadOnly(f"{self.where}: {refused}; {self.advice}") from refused
            raise
        hit(f"{self.name}.open.after_commit")
        return found

    def _apply(self, connection: C, found: int) -> None:
        for migration in self._migrations:
            if migration.number > found:
                connection.command(migration.script)
        for migration in self._migrations:
            connection.rows(
                self._queries["note_migration"],
                number=migration.number,
                name=migration.name,
                version=this_version(),
            )

    def _made_by(self) -> dict[str, Any]:
        """Format and version, as the values of a statement."""
        return {"format": self._newest, "version": this_version()}

    @abstractmethod
    def _look(self, connection: C) -> Condition:
        """The condition without the format. `StoreForeign` if the server will not do."""

    @abstractmethod
    def _exclusive(self, connection: C) -> AbstractContextManager[None]:
        """Keeps others from migrating as long as the block lasts."""
