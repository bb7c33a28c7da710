"""A MariaDB server of the tests' own: on a free loopback port, in a temporary folder, as a user
that is not root."""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import pymysql
import pytest

from tests.servers import debian

SECONDS_TO_START = 60
PACKAGE = "mariadb-server-core"

_ADDRESS = "GENLOCK_TEST_MARIADB"
"""How processes that a test starts find the server."""

_SETTINGS = {
    "bind-address": "127.0.0.1",
    "max-connections": "300",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "64M",
    "default-time-zone": "+13:00",  # whoever forgets time zones is found out
    "sql-mode": "",  # whoever leans on the server's mode, too
    "character-set-server": "latin1",  # or on its character set
    "skip-name-resolve": "1",
    "performance-schema": "0",
}

_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
USERS = """
CREATE USER genlock@'127.0.0.1' IDENTIFIED BY 'secret';
GRANT ALL ON *.* TO genlock@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE plans;
"""


class MariaDB:
    """One server. `url` has tables of its own for whoever asks; what is in them goes with the
    server."""

    def __init__(self, program: Path, folder: Path, **settings: str) -> None:
        self._user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        self._program = program
        self._share = program.parents[1] / "share" / "mysql"
        self._folder = folder
        self._settings = _SETTINGS | {
            name.replace("_", "-"): value for name, value in settings.items()
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        (folder / "data").mkdir()
        for path in (folder, folder / "data"):
            os.chown(path, -1 if self._user is None else self._user, -1)
        self._make_system_tables()

    def start(self) -> None:
        """Returns when it takes connections. The port stays the same from one start to the next."""
        self.port = self.port or _free_port()
        settings = [
            argument
            for name, value in self._settings.items()
            for argument in self._setting(name, value)
        ]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(f"--port={self.port}", f"--socket={self._folder / 'socket'}", *settings),
                user=self._user, env=self._environment(), cwd="/", stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + SECONDS_TO_START
        while not self._answers():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise AssertionError(
                    f"the server did not start: {(self._folder / 'log').read_text()[-3000:]}"
                )

    def kill(self) -> None:
        """As if it had crashed."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """In good order: connections are broken off."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        self._process = None

    @property
    def address(self) -> str:
        """A URL without options."""
        return f"mysql://genlock:secret@127.0.0.1:{self.port}/plans"

    def url(self, prefix: str | None = None, **options: str) -> str:
        """A URL of tables that nobody else has, or of these."""
        return f"{self.address}?{urlencode({'prefix': prefix or f't{secrets.token_hex(6)}_'} | options)}"

    def store_url(self, place: Path, port: int | None = None) -> str:
        """The store that belongs to this path, by way of another port if one is given: then with
        less patience."""
        impatient = "&statement_timeout=1" if port else ""
        return f"mysql://genlock:secret@127.0.0.1:{port or self.port}/plans?prefix={_prefix_of(place)}{impatient}"

    def run(self, statement: str) -> list[tuple[object, ...]]:
        """One statement, by an operator."""
        with self.connected() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def follow(self, primary: MariaDB) -> None:
        """From now on it is a replica of the other, which has all that it has itself."""
        ((position,),) = primary.run("SELECT @@gtid_binlog_pos")
        if not self.run("SELECT @@gtid_current_pos")[0][0]:
            self.run(f"SET GLOBAL gtid_slave_pos = '{position}'")
        self.run(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, "
            "MASTER_USER = 'genlock', MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos"
        )
        self.run("START SLAVE")

    def waiting(self) -> list[int]:
        """The connections that wait for a lock now."""
        found = self.run(
            "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK "
            "WAIT'"
        )
        return [int(str(number)) for (number,) in found]

    @contextmanager
    def connected(self) -> Iterator[pymysql.Connection]:
        """A connection of an operator."""
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="genlock",
            password="secret",
            database="plans",
            autocommit=True,
        )
        try:
            yield connection
        finally:
            with suppress(pymysql.Error):
                connection.close()

    def _answers(self) -> bool:
        try:
            with self.connected():
                return True
        except pymysql.OperationalError:
            return False

    def _setting(self, name: str, value: str) -> list[str]:
        return [f"--{name}={value}"]

    def _environment(self) -> dict[str, str]:
        return debian.environment(PACKAGE)

    def _command(self, *arguments: str) -> list[str]:
        plain = [
            "--no-defaults",
            f"--datadir={self._folder / 'data'}",
            f"--lc-messages-dir={self._share}",
            f"--tmpdir={self._folder}",
        ]
        return [str(self._program), *plain, *arguments]

    def _make_system_tables(self) -> None:
        script = "CREATE DATABASE mysql;\nUSE mysql;\n" + "".join(
            (self._share / name).read_text() for name in _SYSTEM_TABLES
        )
        done = subprocess.run(
            self._command("--bootstrap", "--innodb-flush-method=nosync", "--innodb-log-file-size=64M"),
            user=self._user, env=self._environment(), cwd="/", capture_output=True, text=True,
            input=f"{script}\nFLUSH PRIVILEGES;\n{USERS}",
        )  # fmt: skip
        assert done.returncode == 0, f"the system tables could not be made: {done.stderr[-3000:]}"


def await_replica(primary: MariaDB, replica: MariaDB) -> None:
    """Returns when the replica has all that the primary has."""
    ((position,),) = primary.run("SELECT @@gtid_binlog_pos")
    ((timed_out,),) = replica.run(f"SELECT MASTER_GTID_WAIT('{position}', {SECONDS_TO_START})")
    assert timed_out == 0, f"the replica never caught up: {replica.run('SHOW SLAVE STATUS')}"


@contextmanager
def running(**settings: str) -> Iterator[MariaDB]:
    """A server that runs as long as the block. Without its program the test fails, and says how to
    get it."""
    kind, program = _kind()
    folder = Path(tempfile.mkdtemp(prefix="genlock-mariadb-", dir=_place(settings)))
    try:
        server = kind(program, folder, **settings)
        server.start()
        try:
            yield server
        finally:
            if server._process is not None:
                server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kind() -> tuple[type[MariaDB], Path]:
    """What is started, and its program: MariaDB, or who stands in for it."""
    from tests.servers import mysql

    if mysql.is_wanted():
        return mysql.MySQL, _there(debian.program(mysql.PACKAGE, "mysqld"), "MySQL", "test-mysql")
    return MariaDB, _there(debian.program(PACKAGE, "mariadbd"), "MariaDB", "servers")


def _there(program: Path | None, name: str, target: str) -> Path:
    if program is None:
        pytest.fail(f"there is no {name} on this machine: `make {target}` gets it")
    return program


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """The server that most tests share. It does not sync: tests of durability, and those that stop
    a server, have their own."""
    with running(innodb_flush_method="nosync") as server:
        os.environ[_ADDRESS] = server.address
        yield server
        del os.environ[_ADDRESS]


def url_for(place: Path) -> str:
    """The URL of tables that belong to this folder, in whatever process: the server is that of the
    fixture."""
    return f"{os.environ[_ADDRESS]}?prefix={_prefix_of(place)}"


def _prefix_of(place: Path) -> str:
    return f"t{hashlib.sha256(os.fsencode(place)).hexdigest()[:24]}_"


def is_there() -> bool:
    """Can it be started here?"""
    return debian.program(PACKAGE, "mariadbd") is not None


def ready() -> str:
    """Where the program is; it is unpacked if need be."""
    program = debian.program(PACKAGE, "mariadbd")
    if program is None:
        debian.unpack(PACKAGE)
        program = debian.program(PACKAGE, "mariadbd")
    return str(program)


def _place(settings: dict[str, str]) -> str | None:
    """In memory, if nothing need be kept and there is room: to create a table takes many syncs that
    no setting spares."""
    in_memory = "/dev/shm"
    if settings.get("innodb_flush_method") != "nosync" or not os.access(in_memory, os.W_OK):
        return None
    return in_memory if shutil.disk_usage(in_memory).free > 2**30 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
