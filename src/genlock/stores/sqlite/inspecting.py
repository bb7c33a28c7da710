"""What a file says of itself, for a doctor; nothing here writes, but for `checkpoint`."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

import apsw

from genlock.stores.sqlite.connections import Settings, open_reader, open_writer
from genlock.stores.sqlite.faults import translated
from genlock.stores.sqlite.filesystem import MOUNTS, filesystem_of, is_network
from genlock.stores.sqlite.gate import state_of
from genlock.stores.sqlite.opening import make_place, open_for_reading

_SECONDS = 2.0
_MOST_FAULTS = 20


class Inspection(NamedTuple):
    """A file as SQLite sees it."""

    journal: str
    format: int
    records: int
    faults: tuple[str, ...]
    """What SQLite's own check of its structures found."""


def inspect(path: Path) -> Inspection:
    """Looks at all pages of the file; an error if it is none of ours or cannot be opened."""
    with translated(path):
        make_place(path, read_only=True)
        db = open_reader(open_for_reading(Settings(path, None, "FULL", _SECONDS)))
        try:
            journal, version = str(db.execute("PRAGMA journal_mode").get), int(db.execute("PRAGMA user_version").get)
            found = [str(line) for (line,) in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
            records = int(db.execute("SELECT count(*) FROM record").get)
        finally:
            db.close()
    return Inspection(journal, version, records, () if found == ["ok"] else tuple(found))


class GateState(NamedTuple):
    """Who is inside the gate, if anyone: the pid as written there, and the state of that process as ps shows it."""

    shut: bool
    pid: int | None = None
    state: str | None = None


def gate_state(path: Path) -> GateState | None:
    """The gate of the store in this file; None if there is none yet."""
    gate = Path(f"{path}.gate")
    try:
        fd = os.open(gate, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Shared, so that two who only look do not see each other; given back before anyone can notice.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _pid_in(gate)
        return GateState(shut=True, pid=pid, state=None if pid is None else state_of(pid))
    finally:
        os.close(fd)
    return GateState(shut=False)


def _pid_in(gate: Path) -> int | None:
    try:
        return int(gate.read_bytes())
    except (OSError, ValueError):
        return None


def filesystem(path: Path) -> tuple[str | None, bool]:
    """The filesystem that a file is on, if that is known, and whether it is on another machine."""
    try:
        table = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return None, False
    kind = filesystem_of(os.path.realpath(path.parent), table)
    return kind, is_network(kind)


def log_bytes(path: Path) -> int:
    """How large the log beside the file is."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except OSError:
        return 0


def checkpoint(path: Path) -> bool:
    """Writes the log into the file and empties it; False if somebody reads, so that it has to stay."""
    with translated(path):
        db = open_writer(Settings(path, None, "FULL", _SECONDS))
        try:
            busy, _, _ = next(iter(db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        except apsw.BusyError:
            return False
        finally:
            db.close()
    return not busy
