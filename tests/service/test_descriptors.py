"""A service that may open few files, or suddenly no more."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.cli.console import COMMAND, environment
from tests.service.process import PATIENCE_SECONDS, ask, make_store, serve
from tests.service.usage import usage_of

TASKS = "/v1/default/default/tasks"


def serving_with(folder: Path, files: int) -> subprocess.Popen[str]:
    words = [
        *COMMAND,
        "serve",
        "--trust-local",
        "--json",
        "--port",
        "0",
        "--url",
        make_store(folder),
    ]
    return subprocess.Popen(
        ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment({}),
    )


@pytest.mark.parametrize("files", [12, 64, 91])
def test_with_too_few_files_a_service_does_not_start_and_says_what_to_type(
    tmp_path: Path, files: int
) -> None:
    with serving_with(tmp_path, files) as process:
        try:
            said, complaint = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert said == ""
    assert json.loads(complaint)["error"] == {
        "code": "BAD_ARGUMENT",
        "message": f"a process may have {files} files open here, which is too few for a service: "
        "it needs 64 for itself and more for "
        "connections; allow it more, type: ulimit -n 4096 (in a unit of systemd: "
        "LimitNOFILE=65536), and start it again",
        "try_next": [],
    }


def test_with_few_files_a_service_says_how_many_connections_fit_and_lets_in_so_many(
    tmp_path: Path,
) -> None:
    with serving_with(tmp_path, 128) as process, ExitStack() as stack:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2].rstrip("/"))
            warned = json.loads(process.stderr.readline())
            statuses = []
            for _ in range(60):
                client = stack.enter_context(
                    closing(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS))
                )
                client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
                statuses.append(client.recv(12)[9:])
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)
    assert (warned["level"], warned["asked"], warned["fit"]) == ("warning", 20_000, 49)
    assert (
        warned["event"]
        == "fewer connections fit than were asked for: this process may open too few files"
    )
    assert warned["remedy"].startswith(
        "type ulimit -n 22210 before it is started, or set LimitNOFILE=22210 in the unit of systemd"
    )
    assert statuses == [b"200"] * 49 + [b"503"] * 11


def test_a_service_without_descriptors_neither_spins_nor_breaks_and_goes_on_when_there_are_some_again(
    tmp_path: Path,
) -> None:
    with serve(tmp_path, "--trust-local") as service, ExitStack() as stack:
        kept = stack.enter_context(
            closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_SECONDS))
        )
        assert ask(kept, "POST", TASKS, {"tasks": ["A-001", "A-002"]})[0] == 200
        pid = service.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(
            pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), limits[1])
        )
        used = usage_of(pid).cpu_seconds
        for _ in range(50):
            client = stack.enter_context(closing(service.connect()))
            assert client.recv(1) == b""  # let go again at once
        holder = {"session_id": "s1", "agent_id": "a1"}
        assert ask(kept, "POST", f"{TASKS}/A-001/claim", holder)[1]["reason"] == "GRANTED"
        large = {**holder, "generation": 1, "result_data": "x" * 300_000}
        status, said = ask(
            kept, "POST", f"{TASKS}/A-001/submit", large
        )  # asked for until its deadline
        assert (status, said["code"]) == (503, "STORE_UNAVAILABLE")
        assert "this process has no file descriptor left for " in said["detail"]
        assert "ulimit -n 4096" in said["detail"]
        assert usage_of(pid).cpu_seconds - used < 1.0
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert service.ask("GET", "/healthz")[0] == 200
        assert ask(kept, "POST", f"{TASKS}/A-001/submit", large)[1]["accepted"] is True
