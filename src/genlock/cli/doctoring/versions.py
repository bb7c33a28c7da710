"""What it all runs on."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import apsw

import genlock
from genlock.cli.doctoring.finding import Finding, ok, trouble

_SAFE_SQLITE = (3, 51, 3)
"""Before it, two connections that write and checkpoint a WAL database at once can corrupt it."""


def check_versions() -> Iterator[Finding]:
    """Python, Genlock, SQLite and its driver."""
    sqlite = apsw.sqlite_lib_version()
    line = f"genlock {genlock.__version__}, Python {platform.python_version()}, SQLite {sqlite}, apsw {apsw.apsw_version()}"
    if tuple(int(part) for part in sqlite.split(".")[:3]) < _SAFE_SQLITE:
        safe = ".".join(map(str, _SAFE_SQLITE))
        yield trouble("versions", line, f"SQLite before {safe} can corrupt a store under load", [f"pip install 'apsw>={safe}.0'"])
    else:
        yield ok("versions", line)
