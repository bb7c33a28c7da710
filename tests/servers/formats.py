"""Stores of an older format, as the first version of Genlock has left them, and what a database
says of its own structure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import apsw
import psycopg
import pymysql
from pymysql.constants import CLIENT

from genlock.project_folder import sqlite_path
from genlock.stores.mysql import queries as mysql_queries
from genlock.stores.postgres import queries as postgres_queries
from genlock.stores.sqlite import connections

Rows = list[tuple[object, ...]]


class Dialect(NamedTuple):
    """How one kind of database is dealt with behind Genlock's back."""

    make_first: Callable[[str], None]
    """A store of format 1, empty."""
    make_old: Callable[[str], None]
    """Takes back what all but 0001 have added: what is in the store stays."""
    make_newer: Callable[[str, str], None]
    """As if it had been made by a newer version, this one."""
    spoil: Callable[[str], None]
    """The version of the record A-001-x is not what its events amount to."""
    structure: Callable[[str], Rows]
    """The whole catalog: tables, columns, types, indexes, functions."""


def _sqlite(url: str, statement: str) -> Rows:
    db = apsw.Connection(str(sqlite_path(url)))
    try:
        return [tuple(row) for row in db.execute(statement)]
    finally:
        db.close()


def _first_sqlite(url: str) -> None:
    path = sqlite_path(url)
    assert path is not None
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    _sqlite(
        url,
        f"PRAGMA journal_mode = WAL; BEGIN; {connections.MIGRATIONS[0].script}; PRAGMA "
        "user_version = 1; COMMIT",
    )


def _old_sqlite(url: str) -> None:
    _sqlite(url, "BEGIN; DROP TABLE migration; DROP TABLE file; PRAGMA user_version = 1; COMMIT")


def _newer_sqlite(url: str, version: str) -> None:
    _sqlite(
        url,
        "BEGIN; PRAGMA user_version = 99; INSERT INTO migration VALUES (99, 'better', 0, "
        f"'{version}'); COMMIT",
    )


def _spoil_sqlite(url: str) -> None:
    _sqlite(url, "UPDATE record SET version = version + 1 WHERE name = 'A-001-x'")


def _structure_of_sqlite(url: str) -> Rows:
    schema = _sqlite(url, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    columns = _sqlite(
        url,
        "SELECT t.name, c.* FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c WHERE t.type "
        "= 'table' ORDER BY 1, 2",
    )
    return [
        *schema,
        *columns,
        *_sqlite(url, "PRAGMA user_version"),
        *_sqlite(url, "PRAGMA application_id"),
    ]


def schema_of(url: str) -> str:
    """The schema that a URL names."""
    return parse_qs(urlsplit(url).query)["schema"][0]


def _postgres(url: str, statement: str) -> Rows:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        cursor = connection.execute(statement.replace("genlock.", f"{schema_of(url)}.").encode())
        return cursor.fetchall() if cursor.description else []


def _first_postgres(url: str) -> None:
    script = postgres_queries.migrations_for(schema_of(url))[0].script
    _postgres(
        url,
        f"BEGIN; CREATE SCHEMA {schema_of(url)}; {script}; UPDATE genlock.meta SET format = 1, "
        "made_by = '0.0.1'; COMMIT",
    )


def _old_postgres(url: str) -> None:
    added = (
        "DROP TABLE genlock.migration, genlock.server; DROP FUNCTION genlock.server_mark, "
        "genlock.heed_server, genlock.begin_epoch"
    )
    _postgres(url, f"BEGIN; {added}; UPDATE genlock.meta SET format = 1, made_by = '0.0.1'; COMMIT")


def _newer_postgres(url: str, version: str) -> None:
    _postgres(url, f"UPDATE genlock.meta SET format = 99, made_by = '{version}'")


def _spoil_postgres(url: str) -> None:
    _postgres(url, "UPDATE genlock.record SET version = version + 1 WHERE name = 'A-001-x'")


_CATALOG = (
    """SELECT table_name, ordinal_position, column_name, column_default, is_nullable, data_type, udt_name, collation_name, is_identity,
        identity_generation FROM information_schema.columns WHERE table_schema = '{schema}' ORDER BY 1, 2""",
    (
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = '{schema}' ORDER "
        "BY 1, 2"
    ),
    """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = '{schema}'::regnamespace ORDER BY 1, 2""",
    (
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace "
        "ORDER BY 1"
    ),
    """SELECT relname, relkind::text, reloptions::text FROM pg_class WHERE relnamespace = '{schema}'::regnamespace ORDER BY 1, 2""",
    """SELECT attrelid::regclass::text, attname::text, attstorage::text FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = '{schema}'::regnamespace AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2""",
)


def _structure_of_postgres(url: str) -> Rows:
    schema = schema_of(url)
    found = [row for query in _CATALOG for row in _postgres(url, query.format(schema=schema))]
    found += _postgres(url, "SELECT format FROM genlock.meta")
    # Schemas differ in their names, and in nothing else.
    return [
        tuple(value.replace(schema, "SCHEMA") if isinstance(value, str) else value for value in row)
        for row in found
    ]


def _mysql(url: str, statements: str) -> Rows:
    """Each is for tables that begin with genlock_."""
    parts = urlsplit(url)
    prefix = parse_qs(parts.query)["prefix"][0]
    connection = pymysql.connect(
        host=str(parts.hostname), port=parts.port or 0, user=str(parts.username), password=parts.password or "", database=parts.path[1:],
        autocommit=True, charset="utf8mb4", client_flag=CLIENT.MULTI_STATEMENTS,
    )  # fmt: skip
    try:
        with connection.cursor() as cursor:
            cursor.execute(statements.replace("genlock_", prefix))
            rows = [tuple(row) for row in cursor.fetchall()]
            while cursor.nextset():
                rows = [tuple(row) for row in cursor.fetchall()]
            return [
                tuple(
                    value.replace(prefix, "genlock_") if isinstance(value, str) else value
                    for value in row
                )
                for row in rows
            ]
    finally:
        connection.close()


def _first_mysql(url: str) -> None:
    script = mysql_queries.migrations_for("genlock_")[0].script
    _mysql(url, f"{script}; INSERT INTO genlock_meta VALUES (1, 1, '0.0.1', 'birthday', 0)")


def _old_mysql(url: str) -> None:
    # The table of 0003 stays: a coordinator of today that is at work looks at it in every commit,
    # which one of then does not.
    _mysql(
        url, "DROP TABLE genlock_migration; UPDATE genlock_meta SET format = 1, made_by = '0.0.1'"
    )


def _newer_mysql(url: str, version: str) -> None:
    _mysql(url, f"UPDATE genlock_meta SET format = 99, made_by = '{version}'")


def _spoil_mysql(url: str) -> None:
    _mysql(url, "UPDATE genlock_record SET version = version + 1 WHERE name = 'A-001-x'")


_MYSQL_CATALOG = (
    """SELECT table_name, ordinal_position, column_name, column_default, is_nullable, column_type, collation_name, column_key, extra
        FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name LIKE 'genlock\\_%' ORDER BY 1, 2""",
    """SELECT table_name, index_name, seq_in_index, non_unique, column_name, sub_part FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name LIKE 'genlock\\_%' ORDER BY 1, 2, 3""",
    """SELECT table_name, engine, row_format, table_collation FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_name LIKE 'genlock\\_%' ORDER BY 1""",
    "SELECT format FROM genlock_meta",
)


def _structure_of_mysql(url: str) -> Rows:
    return [row for query in _MYSQL_CATALOG for row in _mysql(url, query)]


DIALECTS = {
    "sqlite": Dialect(
        _first_sqlite, _old_sqlite, _newer_sqlite, _spoil_sqlite, _structure_of_sqlite
    ),
    "mysql": Dialect(_first_mysql, _old_mysql, _newer_mysql, _spoil_mysql, _structure_of_mysql),
    "postgres": Dialect(
        _first_postgres, _old_postgres, _newer_postgres, _spoil_postgres, _structure_of_postgres
    ),
}
"""By the names of tests/servers/stores.py."""
