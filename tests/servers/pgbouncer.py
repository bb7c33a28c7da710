"""PgBouncer before a PostgreSQL server of the tests: transaction pooling, on a free loopback
port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.servers import debian
from tests.servers.postgres import Postgres, free_port, unprivileged
from tests.servers.proxy import Proxy

PACKAGE = "pgbouncer"
SECONDS_TO_START = 20.0

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
ignore_startup_parameters = extra_float_digits,options
"""


def ready() -> str:
    """Where the program is; unpacked if need be. Only the nightly tests need it."""
    try:
        if debian.program(PACKAGE, PACKAGE) is None:
            debian.unpack(PACKAGE)
    except debian.NotToBeHad as error:
        return f"missing; only the nightly tests need it. {error}"
    return str(debian.program(PACKAGE, PACKAGE))


@contextmanager
def pooling(server: Postgres | Proxy) -> Iterator[int]:
    """The port of a pooler before this server, or before the way to one, as long as the block
    runs."""
    program = debian.program(PACKAGE, PACKAGE)
    if program is None:
        pytest.fail("there is no PgBouncer on this machine: `make servers` gets it")
    folder = Path(tempfile.mkdtemp(prefix="genlock-pgbouncer-"))
    folder.chmod(0o755)
    port = free_port()
    here = (
        Path(shutil.copy(program, folder)) if os.geteuid() == 0 else program
    )  # it refuses root, and others may not see ours
    settings = folder / "pgbouncer.ini"
    users = folder / "users"
    users.write_text('"genlock" ""\n')
    settings.write_text(_SETTINGS.format(server=server.port, port=port, users=users))
    command: list[str | Path] = [here, "-q", settings]
    process = subprocess.Popen(
        command,
        user=unprivileged(),
        cwd="/",
        env=debian.environment(PACKAGE),
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    def connects() -> bool:
        assert process.poll() is None, "PgBouncer ended at once"
        socket.create_connection(("127.0.0.1", port)).close()
        return True

    eventually(connects, "PgBouncer to start", seconds=SECONDS_TO_START, retry_on=(OSError,))
