"""A file system for SQLite that remembers which writes were never synced, so that the power can be
cut after any of them.

Everything passes through to real files, where the running store reads it. Beside that, each
operation is logged. `Disk` plays a log back up to the cut and says what the files could look like
when the power returns: what was synced is there; of the rest, any part may be, and any write may be
torn. Shared memory is gone, as it is after a restart.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import apsw

SECTOR = 512


class Operation(NamedTuple):
    """One thing done to one file: create, write, truncate, sync or delete."""

    kind: str
    file: str
    offset: int = 0
    data: bytes = b""


class ForgetfulFile(apsw.VFSFile):
    """A file of which every write is logged."""

    def __init__(
        self, vfs: ForgetfulVFS, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self.log = vfs.log
        self.name = Path(name if isinstance(name, str) else name.filename() if name else "").name
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        super().xWrite(data, offset)
        self.log.append(Operation("write", self.name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self.log.append(Operation("truncate", self.name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        # The real file need not survive anything: syncing it would only cost time.
        self.log.append(Operation("sync", self.name))


class ForgetfulVFS(apsw.VFS):
    """Logs what happens to the files of one store; register under a name of one's own, and
    unregister in the end."""

    def __init__(self, name: str) -> None:
        self.log: list[Operation] = []
        self.name = name
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        if filename and not Path(filename).exists():
            self.log.append(Operation("create", Path(filename).name))
        return ForgetfulFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.log.append(Operation("delete", Path(filename).name))


class Disk:
    """What is certain to be on the disk, and what was done since without a sync."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.synced: dict[str, bytes] = dict(files)
        self.pending: dict[str, list[Operation]] = {}
        self.created: set[str] = set()

    def do(self, operation: Operation) -> None:
        """Plays one operation."""
        waiting = self.pending.setdefault(operation.file, [])
        if operation.kind == "create":
            self.created.add(operation.file)
        elif operation.kind != "sync":
            waiting.append(operation)
        else:
            self._settle(operation.file, len(waiting))
            if operation.file in self.created and operation.file.endswith(("-wal", "-journal")):
                # With the first sync of a new log or journal SQLite syncs the folder, and so what
                # was deleted before stays so.
                for name, done in self.pending.items():
                    self._settle(
                        name,
                        max(
                            (at for at, each in enumerate(done, 1) if each.kind == "delete"),
                            default=0,
                        ),
                    )
            self.created.discard(operation.file)

    def _settle(self, name: str, count: int) -> None:
        """The first so many pending operations on a file are on the disk for good."""
        content = self.synced.pop(name, None)
        for operation in self.pending[name][:count]:
            content = _done(content, operation)
        if content is not None:
            self.synced[name] = content
        del self.pending[name][:count]

    def after_power_loss(self, dice: random.Random) -> dict[str, bytes]:
        """The files as they may be found."""
        found = {}
        for name in self.synced.keys() | self.pending.keys():
            content = self.synced.get(name)
            for operation in _survivors(self.pending.get(name, []), dice):
                content = _done(content, operation)
            if content is not None:
                found[name] = content
        return found


def _done(content: bytes | None, operation: Operation) -> bytes | None:
    """The file's content after the operation; None is no file."""
    if operation.kind == "delete":
        return None
    content = content or b""
    if operation.kind == "truncate":
        return content[: operation.offset].ljust(operation.offset, b"\0")
    end = operation.offset + len(operation.data)
    return (
        content[: operation.offset].ljust(operation.offset, b"\0") + operation.data + content[end:]
    )


def _survivors(pending: list[Operation], dice: random.Random) -> list[Operation]:
    """Those of the unsynced operations that reached the disk, some of them in part."""
    fashion = dice.choice(("none", "all", "all but the last", "prefix", "any", "any"))
    if fashion == "none":
        return []
    if fashion == "all":
        return pending
    if fashion != "any":
        count = dice.randint(0, len(pending)) if fashion == "prefix" else max(0, len(pending) - 1)
        return pending[:count] + [
            torn for cut in pending[count : count + 1] for torn in _torn(cut, dice)
        ]
    kept: list[Operation] = []
    for operation in pending:
        fate = dice.random()
        if operation.kind == "delete":
            if fate < 0.5:
                # The old file is still the one with this name: what was done to the new one is
                # nowhere
                break
            kept.append(operation)
        elif fate < 0.4:
            kept.append(operation)
        elif fate < 0.7:
            kept += _torn(operation, dice)
    return kept


def _torn(operation: Operation, dice: random.Random) -> list[Operation]:
    """The pieces of one write that reached the disk: its beginning, or some of its sectors."""
    if operation.kind != "write":
        return []
    data = operation.data
    if len(data) <= SECTOR or dice.random() < 0.5:
        return [operation._replace(data=data[: dice.randrange(len(data))])]
    sectors = [at for at in range(0, len(data), SECTOR) if dice.random() < 0.5]
    return [
        operation._replace(offset=operation.offset + at, data=data[at : at + SECTOR])
        for at in sectors
    ]
