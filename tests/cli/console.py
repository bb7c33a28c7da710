"""The command line as a test sees it: a real process, a clean environment, what it wrote and how it
ended."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SESSION = "test-session"
"""The session of every call that does not name another."""

COMMAND = [sys.executable, "-m", "genlock.cli"]
"""How the command is started; not by the script beside the interpreter, which need not be
installed."""


@dataclass(frozen=True)
class Ran:
    """A call that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The answer; one JSON document and nothing else."""
        return json.loads(self.out)

    def error(self) -> Any:
        """The error for machines: {"code", "message", …}, the last line on stderr."""
        return json.loads(self.err.splitlines()[-1])["error"]


def run(
    *args: object,
    cwd: str | Path | None = None,
    env: Mapping[str, str | None] | None = None,
    input: str | None = None,
    timeout: float = 60,
) -> Ran:
    """Call `genlock` with these arguments, in `cwd` (else in an empty folder of no project);
    `input` is its stdin, else there is none."""
    ended = subprocess.run(
        [*COMMAND, *map(str, args)],
        cwd=home() if cwd is None else cwd,
        env=environment(env),
        input="" if input is None else input,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The environment of a call: nothing of Genlock's or git's, a home of its own, a fixed session;
    with `changes`, None removes.

    The state folder is the tests' own, so that they find the tokens of the services that they
    start.
    """
    clean = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "HOME": str(home()),
        "XDG_CONFIG_HOME": str(home() / ".config"),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
        "GENLOCK_SESSION": SESSION,
        "PYTHONWARNINGS": "error",
    }
    merged: dict[str, str | None] = {**clean, **(changes or {})}
    return {name: value for name, value in merged.items() if value is not None}


_home: Path | None = None


def home() -> Path:
    """An empty folder for this run of the tests, removed at its end."""
    global _home
    if _home is None:
        _home = Path(tempfile.mkdtemp(prefix="genlock-home-"))
        atexit.register(shutil.rmtree, _home, ignore_errors=True)
    return _home
