"""A DynamoDB and an S3 of the tests' own: ministack, in its own environment, on a free port of the
loopback, gone when the tests are."""

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
from urllib.parse import quote, urlencode, urlsplit

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from genlock.stores.dynamodb import create_table
from genlock.stores.dynamodb.connection import make_client, settings_of
from tests.servers.debian import NotToBeHad

PROGRAM = Path(__file__).parents[2] / ".servers" / "ministack" / "bin" / "ministack"
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

    @property
    def port(self) -> int:
        return urlsplit(self.endpoint_url).port or 0

    def store_url(self, place: Path, port: int | None = None) -> str:
        """The table that belongs to this path, by way of another port if one is given."""
        return url_for(place, f"http://127.0.0.1:{port or self.port}")


def ready() -> str:
    """Where the program is."""
    if not PROGRAM.exists():
        raise NotToBeHad("run `make servers`, which brings PyPI's ministack")
    return str(PROGRAM)


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server for as long as the block lasts. It keeps everything in memory."""
    if not PROGRAM.exists():
        pytest.fail(
            f"there is no {PROGRAM.name} to test DynamoDB with: run `make servers`", pytrace=False
        )
    port = free_port()
    keeps_out = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "MINISTACK_", "PYTHON"))
    }
    settings = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "TMPDIR": str(folder),
        "LOG_LEVEL": "ERROR",
        "SERVICES": "dynamodb,s3",
    }
    with (folder / "ministack.log").open("wb") as log:
        process = subprocess.Popen(
            [str(PROGRAM)], cwd=folder, env=keeps_out | settings, stdout=log, stderr=log
        )
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
        assert server.process.returncode is None, (
            f"ministack ended with {server.process.returncode} before it was up"
        )
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


def url_of(table: str, endpoint_url: str, **settings: str) -> str:
    """The URL of a table that need not be there."""
    return f"dynamodb://{table}?{urlencode({'region': REGION, 'endpoint_url': endpoint_url, **settings})}"


def client_of(endpoint_url: str) -> Any:
    return make_client(settings_of(url_of("any", endpoint_url)), connections=8)


def table_of(place: Path) -> str:
    """The name of the table that stands for a path."""
    return "genlock-" + hashlib.sha256(os.fsencode(place)).hexdigest()[:32]


def url_for(place: Path, endpoint_url: str | None = None, **settings: str) -> str:
    """The URL of the table that stands for a path, made if need be, in whatever process: the server
    is that of the fixture."""
    url = url_of(table_of(place), endpoint_url or os.environ[ADDRESS], **settings)
    marker = place.with_name(f"{place.name}.dynamodb")
    if not marker.exists():
        create_table(url)
        marker.touch()
    return url


def bucket_for(place: Path, endpoint_url: str | None = None) -> str:
    """The place for payloads in a bucket that stands for a folder, made if need be."""
    endpoint_url = endpoint_url or os.environ[ADDRESS]
    marker = place / ".bucket"
    if not marker.exists():
        client = boto3.client("s3", region_name=REGION, endpoint_url=endpoint_url)
        client.create_bucket(Bucket=table_of(place))
        client.close()
        marker.touch()
    return f"s3://{table_of(place)}/some/prefix?{urlencode({'region': REGION, 'endpoint_url': endpoint_url})}"


def url_with_payloads(place: Path) -> str:
    """The same with a folder for payloads beside it."""
    return url_for(place, payloads=f"file://{quote(str(place))}.payloads")


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
