"""The files of a SQLite store, and the promises and clocks of a server."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from genlock.cli.doctor.findings import Finding, note, ok, trouble
from genlock.open import about_store
from genlock.reads.reader import StoreReader
from genlock.stores.sqlite.backup import user_of
from genlock.stores.sqlite.inspection import LockState, filesystem, lock_state, log_bytes
from genlock.stores.sqlite.open import can_write
from genlock.task_folders import examine

# The file and those beside it: permissions, filesystem, log, write lock, and which processes have
# it open.


LARGE_LOG_BYTES = 256 * 1024 * 1024


def check_files(path: Path) -> Iterator[Finding]:
    """Checks everything that needs no open store. Call it before the store is opened: see
    `user_of`."""
    size = path.stat().st_size
    if can_write(path):
        yield ok("file", f"{path}, {size:,} bytes")
    else:
        means = (
            "the file or its folder is read-only for you: states can be looked at, nothing "
            "can be claimed"
        )
        yield note(
            "file",
            f"{path}, {size:,} bytes, cannot be written",
            means,
            [f"ls -ld {path.parent} {path}"],
        )
    kind, network = filesystem(path)
    if network:
        means = (
            "SQLite's log needs memory that all its users share; Genlock refuses to open the "
            "store here"
        )
        yield trouble(
            "filesystem",
            f"{kind}, a network filesystem",
            means,
            ["move the store to a local disk, and name it with --url"],
        )
    else:
        yield ok("filesystem", kind or "unknown")
    log = log_bytes(path)
    if log > LARGE_LOG_BYTES:
        means = (
            "someone has been reading for long, or a process was killed; it is emptied when "
            "nobody reads"
        )
        yield note(
            "log", f"{log:,} bytes wait in the write-ahead log", means, ["genlock doctor --fix"]
        )
    else:
        yield ok("log", f"{log:,} bytes in the write-ahead log")
    yield _write_lock(path, lock_state(path))
    yield _permissions(path)
    if os.access(path, os.R_OK):
        pid = user_of(path)
        yield ok(
            "users",
            "nobody has it open" if pid is None else f"process {pid} has it open, and maybe others",
        )


def _permissions(path: Path) -> Finding:
    """Checks the permissions of the file and of the folder of its payloads. Access for a group may
    be intended."""
    opened = [
        each
        for each in (path, Path(f"{path}.payloads"))
        if each.exists() and each.stat().st_mode & stat.S_IRWXO
    ]
    if not opened:
        return ok(
            "permissions",
            "only for its user and group"
            if path.stat().st_mode & stat.S_IRWXG
            else "only for its user",
        )
    names = ", ".join(map(str, opened))
    means = (
        "every user of this machine may read what agents wrote; new stores are for their user alone"
    )
    return note(
        "permissions",
        f"open to all users: {names}",
        means,
        [f"chmod -R o-rwx {shlex.join(map(str, opened))}"],
    )


def _write_lock(path: Path, write_lock: LockState | None) -> Finding:
    if write_lock is None or not write_lock.shut:
        return ok("gate", "free")
    if write_lock.pid is None:
        return note(
            "gate", "shut, and does not say by whom", "all writers wait", ["genlock doctor"]
        )
    if write_lock.state is None:
        means = "it cannot be seen from here: it may be in another container"
        return note(
            "gate", f"process {write_lock.pid} is inside", means, ["look for it where it runs"]
        )
    if write_lock.state in "Tt":
        means = "it was stopped inside a commit: nobody can write until it goes on or ends"
        return trouble(
            "gate",
            f"process {write_lock.pid} is inside, and stopped",
            means,
            [f"kill -CONT {write_lock.pid}", f"or end it: kill {write_lock.pid}"],
        )
    return ok("gate", f"process {write_lock.pid} is inside, at work")


# A store that is not a file of this machine: its server, its guarantees, and its clock.


_APART_SECONDS = 5.0


def check_server(url: str) -> Iterator[Finding]:
    """Checks everything that needs no open store."""
    about = about_store(url)
    if about is not None:
        yield ok("server", about.server)
        if about.format == about.newest:
            yield ok("format", f"{about.format}")


def check_folder(url: str) -> Iterator[Finding]:
    """Checks the task files that other tools share."""
    found = examine(url)
    yield ok("folder", f"{found.folder}, layout {found.layout}, {found.tasks:,} tasks")
    if found.locks == "flock":
        yield ok("locks", "by flock")
    else:
        yield note("locks", found.locks, "each commit is a file of its own, and writers are slower")
    if found.checked_out:
        yield note(
            "checkouts",
            "git has put files back to an earlier state",
            "their records stay as they are, and the files are left alone until you decide",
            ["genlock folder restore", "or let them count: genlock folder adopt"],
            found.checked_out,
        )
    if found.missing:
        yield note(
            "deleted files",
            "tasks whose files were deleted",
            "they are held until the file is back",
            ["genlock folder restore TASK", "or: genlock cancel TASK"],
            found.missing,
        )
    if found.unreadable:
        yield note(
            "unreadable files",
            "files that cannot be read as tasks",
            "nobody is granted these tasks, and the others go on",
            ["repair the files"],
            tuple(found.unreadable.values()),
        )
    if found.unwritten:
        yield note(
            "files behind",
            "files that are behind their records",
            "a process died, or the disk was full: the next write repairs them",
            ["genlock folder restore"],
            found.unwritten,
        )
    if found.without_file:
        yield note(
            "no file",
            "tasks that have no file, because of their ids",
            "the other tool would take the id for a number, or not find the file",
            ["give them ids with a letter"],
            found.without_file,
        )


def check_promises(reader: StoreReader) -> Iterator[Finding]:
    """Reports the guarantees that the store declares."""
    limits = reader.store.limits
    if limits.durable:
        yield ok("durable", "an acknowledged commit survives a crash")
    else:
        means = "what was acknowledged may be lost when the machine fails; if so, raise the epoch"
        yield note(
            "durable", "an acknowledged commit may be lost in a crash", means, ["genlock db status"]
        )
    if limits.read_only:
        yield note(
            "writing",
            "cannot be written",
            "states can be looked at, nothing can be claimed",
            ["name the primary with --url"],
        )


def check_clocks(reader: StoreReader) -> Iterator[Finding]:
    """Compares the server's clock with this machine's, as precisely as one round trip allows."""
    if not reader.store.limits.server_clock:
        return
    sent = datetime.now(UTC)
    now = reader.now()
    received = datetime.now(UTC)
    apart = max((sent - now).total_seconds(), (now - received).total_seconds(), 0.0)
    if apart > _APART_SECONDS:
        means = (
            "the server's counts for all, so nothing is wrong; but what this machine says of "
            "times is"
        )
        yield note(
            "server clock", f"{apart:,.0f} s apart from this machine's", means, ["timedatectl"]
        )
    else:
        yield ok("server clock", f"{now:%Y-%m-%dT%H:%M:%SZ}, as this machine's")
