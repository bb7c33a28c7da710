"""A file system for SQLite whose log can be made to fail."""

from __future__ import annotations

import apsw


class FaultyFile(apsw.VFSFile):
    """A file that asks its file system before it writes."""

    def __init__(
        self, vfs: FaultyVFS, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self.vfs = vfs
        self.is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        if self.is_log and self.vfs.on_write:
            raise self.vfs.on_write
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self.is_log and self.vfs.on_sync:
            raise self.vfs.on_sync
        super().xSync(flags)


class FaultyVFS(apsw.VFS):
    """Raises `on_write` when the log is written, and `on_sync` when it is synced."""

    def __init__(self, name: str) -> None:
        self.on_write: Exception | None = None
        self.on_sync: Exception | None = None
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FaultyFile(self, name, flags)
