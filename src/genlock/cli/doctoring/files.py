"""The file and what lies beside it: permissions, filesystem, log, gate, and who has it open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from genlock.cli.doctoring.finding import Finding, note, ok, trouble
from genlock.stores.sqlite.backup import user_of
from genlock.stores.sqlite.inspecting import GateState, filesystem, gate_state, log_bytes
from genlock.stores.sqlite.opening import can_write

LARGE_LOG_BYTES = 256 * 1024 * 1024


def check_files(path: Path) -> Iterator[Finding]:
    """All that can be said without opening it. To be called before it is opened: see `user_of`."""
    size = path.stat().st_size
    if can_write(path):
        yield ok("file", f"{path}, {size:,} bytes")
    else:
        means = "the file or its folder is read-only for you: states can be looked at, nothing can be claimed"
        yield note("file", f"{path}, {size:,} bytes, cannot be written", means, [f"ls -ld {path.parent} {path}"])
    kind, network = filesystem(path)
    if network:
        means = "SQLite's log needs memory that all its users share; Genlock refuses to open the store here"
        yield trouble("filesystem", f"{kind}, a network filesystem", means, ["move the store to a local disk, and name it with --url"])
    else:
        yield ok("filesystem", kind or "unknown")
    log = log_bytes(path)
    if log > LARGE_LOG_BYTES:
        means = "someone has been reading for long, or a process was killed; it is emptied when nobody reads"
        yield note("log", f"{log:,} bytes wait in the write-ahead log", means, ["genlock doctor --fix"])
    else:
        yield ok("log", f"{log:,} bytes in the write-ahead log")
    yield _gate(path, gate_state(path))
    if os.access(path, os.R_OK):
        pid = user_of(path)
        yield ok("users", "nobody has it open" if pid is None else f"process {pid} has it open, and maybe others")


def _gate(path: Path, gate: GateState | None) -> Finding:
    if gate is None or not gate.shut:
        return ok("gate", "free")
    if gate.pid is None:
        return note("gate", "shut, and does not say by whom", "whoever writes waits", ["genlock doctor"])
    if gate.state is None:
        means = "it cannot be seen from here: it may be in another container"
        return note("gate", f"process {gate.pid} is inside", means, ["look for it where it runs"])
    if gate.state in "Tt":
        means = "it was stopped inside a commit: nobody can write until it goes on or ends"
        return trouble(
            "gate", f"process {gate.pid} is inside, and stopped", means, [f"kill -CONT {gate.pid}", f"or end it: kill {gate.pid}"]
        )
    return ok("gate", f"process {gate.pid} is inside, at work")
