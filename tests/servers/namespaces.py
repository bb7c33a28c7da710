"""Real namespaces for tests: what a process is started with so that it sees other pids, another
clock, or less of /proc."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

SANDBOX = ("--pid", "--fork", "--kill-child", "--mount-proc")
"""A pid namespace with its own /proc, as a container has one."""

BORROWED_PROC = ("--pid", "--fork", "--kill-child")
"""A pid namespace that sees the /proc of the one above."""

LATER_CLOCK = ("--time", "--boottime", "100000", "--fork", "--kill-child")
"""A clock of its own, in the same pid namespace."""

HIDEPID = ("--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")
"""The same pids, where nobody but root sees the processes of others."""


def into(*options: str) -> list[str]:
    """What stands before a command that is to run there."""
    if shutil.which("unshare") is None:
        pytest.fail("there is no unshare on this machine: install util-linux")
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    tried = subprocess.run(
        ["unshare", *as_root, "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.fail(
            f"this machine makes no namespaces ({tried.stderr.strip()}): run the tests as root, or "
            "allow user namespaces"
        )
    return ["unshare", *as_root, *options]


def need_root() -> None:
    """For tests that become another user. Where a missing server is a failure, so is this."""
    if os.geteuid() == 0:
        return
    if os.environ.get("CI") == "true":
        pytest.fail("this test becomes another user, which only root can: run the tests as root")
    pytest.skip("this test becomes another user, which only root can")
