"""What the system says of processes, also where there is no /proc."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from genlock.core.process_identity import Sight
from genlock.engine import processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def procless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, with the ps that is here."""
    monkeypatch.setattr(processes, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(processes, "_has_proc", lambda: False)
    monkeypatch.setattr(processes, "own", processes._Own())


def test_linux_has_a_namespace_and_a_fork_looks_again() -> None:
    assert processes.namespace() == os.readlink("/proc/self/ns/pid").removeprefix(
        "pid:["
    ).removesuffix("]")
    child = os.fork()
    if child == 0:
        os._exit(0 if processes.own.namespace is None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_pids_that_no_system_has_are_no_proof() -> None:
    assert processes.look(2**40) is Sight.HIDDEN
    assert processes.look(2**22 + 1) is Sight.ABSENT


def test_a_kill_that_is_not_allowed_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert processes.look(2**22 + 1) is Sight.HIDDEN


@pytest.mark.usefixtures("procless")
def test_without_proc_ps_and_kill_decide(child: subprocess.Popen[bytes]) -> None:
    assert processes.namespace() == "none"
    seen = processes.look(child.pid)
    assert isinstance(seen, int)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.look(child.pid) is Sight.ZOMBIE
    child.wait()
    assert processes.look(child.pid) is Sight.ABSENT


@pytest.mark.usefixtures("procless")
def test_ps_shows_one_start_time_in_every_time_zone_and_language(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for zone, language in (("UTC0", "C"), ("Asia/Tokyo", "de_DE.UTF-8"), ("XYZ-7", "fr_FR.UTF-8")):
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("LC_ALL", language)
        seen.add(processes.look(child.pid))
    assert len(seen) == 1


@pytest.mark.usefixtures("procless")
def test_where_ps_cannot_be_run_a_living_process_is_hidden(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert processes.look(child.pid) is Sight.HIDDEN
    assert processes.boot.__wrapped__() == ""


@pytest.mark.usefixtures("procless")
def test_the_boot_of_macos_is_its_boot_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sysctl = tmp_path / "sysctl"
    sysctl.write_text(
        '#!/bin/sh\n[ "$*" = "-n kern.bootsessionuuid" ] && echo '
        "3F2504E0-4F89-11D3-9A0C-0305E82C3301\n"
    )
    sysctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert processes.boot.__wrapped__() == "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
