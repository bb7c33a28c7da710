"""The files that a SQLite store consists of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from genlock.errors import BadArgument, NotAllowed
from genlock.store import Payloads
from genlock.stores.files import sync_folder
from genlock.stores.payloads import FolderPayloads
from genlock.stores.sqlite.faults import translated


def payload_folder(path: Path) -> Path:
    """Where the store in this file keeps its payloads."""
    return Path(f"{path}.payloads")


def payloads_beside(path: Path) -> Payloads:
    """The payloads of the store in this file, for reading, whether the file is there or not."""
    return FolderPayloads(payload_folder(path), read_only=True)


def drop_database(path: Path) -> None:
    """Removes a file of ours that never got its name, and what SQLite has put beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def write_lines(target: Path, lines: Iterable[bytes], *, force: bool) -> None:
    """The lines as a file, which appears when it is whole and durable."""
    if target.is_dir():
        raise BadArgument(f"{target} is a folder; name a file in it, for example {target / 'genlock.jsonl'}")
    if target.exists() and not force:
        raise NotAllowed(f"{target} exists; --force replaces it")
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    try:
        with translated(target):
            with unfinished.open("wb") as file:
                for line in lines:
                    file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(target)
            sync_folder(target.parent)
    finally:
        unfinished.unlink(missing_ok=True)
