"""A DynamoDB of the tests' own: ministack, in its own environment, on a free port of the loopback, gone when the tests are."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from genlock.store import Clock
from genlock.stores.dynamodb import DynamoDBStore, create_table
from genlock.stores.dynamodb.driver import make_client
from genlock.stores.memory import MemoryStore

PROGRAM = Path(__file__).parent.parent.parent / ".tools" / "ministack" / "bin" / "ministack"
REGION = "us-east-1"
UP_SECONDS = 60.0

ADDRESS = "GENLOCK_TEST_DYNAMODB"
"""The variable by which processes that the tests start find the server."""


# Made up: the server lets everyone in. And nothing of the host's own configuration is read.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], endpoint_url: str) -> None:
        self.process = process
        self.endpoint_url = endpoint_url

    def url(self, table: str) -> str:
        """The store's URL."""
        return f"dynamodb://{table}?region={REGION}&endpoint_url={self.endpoint_url}"


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server for as long as the block lasts. It keeps everything in memory."""
    if not PROGRAM.exists():
        pytest.fail(f"there is no {PROGRAM.name} to test DynamoDB with: run `make servers`", pytrace=False)
    port = free_port()
    keeps_out = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MINISTACK_", "PYTHON"))}
    settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "TMPDIR": str(folder), "LOG_LEVEL": "ERROR", "SERVICES": "dynamodb"}
    with (folder / "ministack.log").open("wb") as log:
        process = subprocess.Popen([str(PROGRAM)], cwd=folder, env=keeps_out | settings, stdout=log, stderr=log)
    server = Server(process, f"http://127.0.0.1:{port}")
    try:
        await_up(server)
        yield server
    finally:
        stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_up(server: Server) -> None:
    """Asks until it answers."""
    client = client_of(server.endpoint_url)
    deadline = time.monotonic() + UP_SECONDS
    while not is_up(client):
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(0.05)
        assert server.process.returncode is None, f"ministack ended with {server.process.returncode} before it was up"
        assert time.monotonic() < deadline, f"ministack is not up after {UP_SECONDS} s"
    client.close()


def is_up(client: Any) -> bool:
    try:
        client.list_tables()
    except (BotoCoreError, ClientError):
        return False
    return True


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def client_of(endpoint_url: str) -> Any:
    return make_client(region=REGION, endpoint_url=endpoint_url, connections=8)


def table_of(place: Path) -> str:
    """The name of the table that stands for a folder."""
    return "genlock-" + hashlib.sha256(str(place).encode()).hexdigest()[:32]


def made(endpoint_url: str, place: Path) -> str:
    """The table that stands for a folder, made if need be."""
    table = table_of(place)
    marker = place / ".dynamodb"
    if not marker.exists():
        client = client_of(endpoint_url)
        create_table(client, table)
        client.close()
        marker.touch()
    return table


def opened(place: Path, clock: Clock | None = None) -> DynamoDBStore:
    """A handle on the table that stands for a folder. Also for processes that the tests start."""
    endpoint_url = os.environ[ADDRESS]
    return DynamoDBStore(made(endpoint_url, place), region=REGION, endpoint_url=endpoint_url, clock=clock)


PAYLOADS: dict[Path, MemoryStore] = {}


def with_payloads(place: Path, clock: Clock | None = None) -> DynamoDBStore:
    """The same with a place for payloads, shared by the handles of one folder in this process."""
    endpoint_url, payloads = os.environ[ADDRESS], PAYLOADS.setdefault(place, MemoryStore()).payloads()
    return DynamoDBStore(made(endpoint_url, place), region=REGION, endpoint_url=endpoint_url, payloads=payloads, clock=clock)


@pytest.fixture(scope="session")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that all tests share; each has tables of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with running(tmp_path_factory.mktemp("ministack")) as server:
            patch.setenv(ADDRESS, server.endpoint_url)
            yield server
