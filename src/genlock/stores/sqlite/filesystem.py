"""What SQLite wants from the filesystem: that it is a local one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from genlock.errors import StoreUnavailable

MOUNTS = Path("/proc/self/mounts")

_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs",
    "smb2", "smb3", "smbfs", "fuse.ceph", "fuse.cifs", "fuse.davfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs",
    "fuse.nfs", "fuse.rclone", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
})  # fmt: skip


def refuse_network(folder: Path, mounts: Path = MOUNTS) -> None:
    """`StoreUnavailable` if the folder is on another machine: the log of SQLite needs memory that all its users share."""
    try:
        table = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return  # not Linux: nothing is known
    kind = filesystem_of(os.path.realpath(folder), table)
    if is_network(kind):
        raise StoreUnavailable(
            f"{folder} is on a network filesystem ({kind}), where SQLite cannot be shared safely: "
            "keep the file on a local disk, or use a server (postgresql://…) for several machines"
        )


def is_network(kind: str | None) -> bool:
    """Is a filesystem of this type on another machine?"""
    return kind in _NETWORK


def filesystem_of(folder: str, table: str) -> str | None:
    """The type of the filesystem that a folder is on, by a table like /proc/mounts."""
    best, found = "", None
    for line in table.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one
            best, found = point, kind
    return found
