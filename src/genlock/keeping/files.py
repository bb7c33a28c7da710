"""The files that a SQLite store consists of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from genlock.errors import BadArgument, NotAllowed
from genlock.failpoints import hit
from genlock.store import Payloads
from genlock.stores.files import sync_folder
from genlock.stores.payloads import FolderPayloads
from genlock.stores.sqlite.faults import translated
from genlock.stores.unfinished import unfinished

_DATABASE = b"SQLite format 3\0"
"""What every database of SQLite begins with."""


def payload_folder(path: Path) -> Path:
    """Where the store in this file keeps its payloads."""
    return Path(f"{path}.payloads")


def payloads_beside(path: Path) -> Payloads:
    """The payloads of the store in this file, for reading, whether the file is there or not."""
    return FolderPayloads(payload_folder(path), read_only=True)


def check_target(target: Path, example: str, *, force: bool) -> None:
    """An error if no file of ours may have this name; `example` is one that it might have in a folder."""
    with translated(target):
        if target.is_dir():
            raise BadArgument(f"{target} is a folder; name a file in it, for example {target / example}")
        if not target.parent.is_dir():
            raise BadArgument(f"there is no folder {target.parent}; make it, or name another")
        if not target.exists():
            return
        if not target.is_file():
            raise BadArgument(f"{target} is no ordinary file, and would be replaced by one; name another")
        if not force:
            raise NotAllowed(f"{target} exists; --force replaces it")


def refuse_database(target: Path) -> None:
    """An error if a database has this name: of lines that replaced it nobody could make it again.

    To be called before a store is opened: closing a file drops the locks that its process has on it.
    """
    with translated(target):
        if not target.is_file():
            return
        with target.open("rb") as file:
            if file.read(len(_DATABASE)) == _DATABASE:
                raise NotAllowed(f"{target} is a database, which an export never replaces; name another file")


def write_lines(target: Path, lines: Iterable[bytes]) -> None:
    """The lines as a file, which appears when it is whole and durable."""
    with translated(target), unfinished(target) as folder:
        written = folder / "lines"
        with written.open("wb") as file:
            for line in lines:
                file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        hit("export.before_name")
        written.replace(target)
        sync_folder(target.parent)
