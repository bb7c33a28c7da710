"""Bubblewrap, the container of the tests: a program that puts a command into namespaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.servers import debian

PACKAGE = "bubblewrap"


def ready() -> str:
    """Where the program is; unpacked if need be."""
    found = debian.program(PACKAGE, "bwrap")
    if found is None:
        debian.unpack(PACKAGE)
        found = debian.program(PACKAGE, "bwrap")
    return str(found)


def search_path() -> str:
    """A PATH on which it is."""
    program: Path | None = debian.program(PACKAGE, "bwrap")
    if program is None:
        pytest.fail("there is no bubblewrap on this machine: `make servers` gets it")
    tried = subprocess.run(
        [program, "--ro-bind", "/", "/", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.fail(f"bubblewrap does not work here, it needs namespaces: {tried.stderr.strip()}")
    return f"{program.parent}:{os.environ['PATH']}"
