"""A Redis server of the tests' own: on a free loopback port, in a temporary folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis as driver

from tests.eventually import eventually
from tests.servers import debian

SECONDS_TO_START = 60
_PACKAGE = "redis-server"

_ADDRESS = "GENLOCK_TEST_REDIS"
"""How processes that a test starts find the server."""

_SETTINGS = {
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "bind": "127.0.0.1",
    "repl_diskless_sync_delay": "0",
}


class Redis:
    """One server. What is in it lasts from one start to the next, and goes with its folder."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = _SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def start(self, *, wait: bool = True, **settings: str) -> None:
        """Returns when it takes commands, or at once. The port stays the same."""
        binary = debian.program(_PACKAGE, "redis-server")
        if binary is None:
            pytest.fail("there is no redis-server on this machine: `make servers` gets it")
        settings = {"port": str(self.port), "dir": str(self._folder), **self._settings, **settings}
        command = [
            str(binary),
            *(
                word
                for name, value in settings.items()
                for word in (f"--{name.replace('_', '-')}", value)
            ),
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=debian.environment(_PACKAGE), stdout=log, stderr=log, cwd=self._folder
            )
        if wait:
            eventually(self._answers, "redis-server to start", seconds=SECONDS_TO_START)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (
            f"redis-server ended: {(self._folder / 'log').read_text()[-2000:]}"
        )
        with suppress(driver.RedisError), self.client() as client:
            return bool(client.ping())
        return False

    def stop(self) -> None:
        """Ends it as a crash would."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None

    def kill(self) -> None:
        """The same by another name: a server that syncs has nothing to finish."""
        self.stop()

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @contextmanager
    def client(self) -> Iterator[Any]:
        """The driver's own client, for what a store does not do."""
        with driver.Redis(port=self.port, socket_timeout=10, protocol=2) as client:
            yield client

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._folder

    def tell(self, *command: str | int) -> Any:
        """One command."""
        with self.client() as client:
            return client.execute_command(*command)

    @property
    def address(self) -> str:
        """A URL without options."""
        return f"redis://127.0.0.1:{self.port}/0"

    def url(self, place: Path | str, **options: str | float) -> str:
        """The URL of the store that belongs to this name."""
        return _url(self.address, place, **options)

    def store_url(self, place: Path, port: int | None = None) -> str:
        """The store that belongs to this path, on a server that syncs and stands alone; by way of
        another port with less patience."""
        impatient = {"socket_timeout": 2.0} if port else {}
        return _url(
            f"redis://127.0.0.1:{port or self.port}/0",
            place,
            durability="always",
            alone="on",
            **impatient,
        )


def _url(address: str, place: Path | str, **options: str | float) -> str:
    prefix = "t" + hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    return "&".join(
        [f"{address}?prefix={prefix}", *(f"{name}={value}" for name, value in options.items())]
    )


@contextmanager
def running(**settings: str) -> Iterator[Redis]:
    """A server that runs as long as the block. Without its program the test fails, and says how to
    get it."""
    folder = Path(tempfile.mkdtemp(prefix="genlock-redis-"))
    server = Redis(folder, **settings)
    try:
        server.start()
        yield server
    finally:
        if server.is_running:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def syncing() -> AbstractContextManager[Redis]:
    """The same; it syncs every write."""
    return running(appendfsync="always")


@contextmanager
def replicated(**settings: str) -> Iterator[tuple[Redis, Redis]]:
    """A master and a replica that has all that the master has."""
    with (
        running(**settings) as master,
        running(replicaof=f"127.0.0.1 {master.port}", **settings) as replica,
    ):
        await_replica(master, replica)
        yield master, replica


def await_replica(master: Redis, replica: Redis) -> None:
    """Returns when the replica has all that the master has."""
    with master.client() as here, replica.client() as there:
        eventually(
            lambda: (
                there.info("replication").get("master_link_status") == "up"
                and there.info("replication")["slave_repl_offset"]
                >= here.info("replication")["master_repl_offset"]
                and here.info("replication")["connected_slaves"]
                and here.info("replication")["slave0"]["state"] == "online"
            ),
            "the replica to catch up",
            seconds=SECONDS_TO_START,
        )


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """The server that most tests share. Tests of durability, and those that stop a server, have
    their own."""
    with running() as server:
        os.environ[_ADDRESS] = server.address
        yield server
        del os.environ[_ADDRESS]


def url_for(place: Path) -> str:
    """The URL of the store that belongs to this folder, in whatever process: the server is that of
    the fixture."""
    return _url(os.environ[_ADDRESS], place, payloads=f"file://{quote(str(place))}.payloads")


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody else has signed, and its key."""
    openssl = debian.program("openssl", "openssl")
    if openssl is None:
        pytest.fail("there is no openssl on this machine: `make servers` gets it")
    made, key = folder / "tls.crt", folder / "tls.key"
    options = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
        "/CN=127.0.0.1 -addext"
    )
    command = [
        str(openssl),
        *options.split(),
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(made),
    ]
    subprocess.run(command, check=True, capture_output=True, env=debian.environment("openssl"))
    return made, key


def is_there() -> bool:
    """Can it be started here?"""
    return debian.program(_PACKAGE, "redis-server") is not None


def ready() -> str:
    """Where the programs are; Debian's packages are fetched and unpacked if need be."""
    places = []
    for package, name in ((_PACKAGE, "redis-server"), ("openssl", "openssl")):
        found = debian.program(package, name)
        if found is None:
            debian.unpack(package)
            found = debian.program(package, name)
        if found is None:
            raise debian.NotToBeHad(f"Debian's package {package} has no program {name}")
        places.append(f"{name} in {found.parent}")
    return ", ".join(places)
