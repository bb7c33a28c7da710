"""The files in which a service on loopback leaves its token, and where clients of the same user
find it.

    127.0.0.1:8420.token      the token, glt_…
    127.0.0.1:8420.header     Authorization: Bearer glt_…      for curl -H @FILE

They lie in the user's state folder ($XDG_STATE_HOME/genlock, else ~/.local/state/genlock). The
folder is 0700 and the files 0600. The service writes a fresh token at each start and removes the
files when it stops. A file that a killed service left behind opens nothing.

If the user cannot write a state folder (no home, or a read-only one), the token is in
`.genlock/state` of the project. In all other cases clients ignore that folder: a clone can bring
files of these names.

Clients read a token only from a file that belongs to their user and that no other user can read,
and send it only to the address in the file's name. `localhost` may resolve to another address,
where another user's process may listen. So with a token, clients connect to the address in the
file's name.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from genlock.errors import BadArgument
from genlock.private_files import make_private_folder
from genlock.shortages import NO_DESCRIPTORS

PREFIX: Final = "glt_"
_TOKEN: Final = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")
_LONGEST: Final = 200


class Written(NamedTuple):
    """Where a token was written."""

    token: Path
    header: Path


class Found(NamedTuple):
    """A token and its address."""

    url: str
    token: str


def folders(project_folder: Path | None) -> list[Path]:
    """Returns the folders for tokens: the service writes into the first that it can create, clients
    search all. The project's folder is included only if the user's own cannot be written."""
    own = list(_of_user())
    if project_folder is None or any(map(_can_write, own)):
        return own
    return [*own, project_folder / "state"]


def _can_write(folder: Path) -> bool:
    """Could the user write files into this folder, after creating it if need be?"""
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _of_user() -> Iterator[Path]:
    given = os.environ.get("XDG_STATE_HOME", "")
    home = os.path.expanduser("~")
    if os.path.isabs(given):
        yield Path(given) / "genlock"
    elif os.path.isabs(home):  # an account without a home, and no HOME: "~" is not expanded
        yield Path(home) / ".local" / "state" / "genlock"


# The service's side


def write(url: str, token: str, places: Iterable[Path]) -> Written:
    """Writes the token of the service at `url`. BadArgument if there is no folder for it."""
    faults = []
    for folder in places:
        try:
            with _private(folder) as descriptor:
                name = _names(url)[0]
                _write(descriptor, f"{name}.token", f"{token}\n")
                _write(descriptor, f"{name}.header", f"Authorization: Bearer {token}\n")
                return Written(folder / f"{name}.token", folder / f"{name}.header")
        except OSError as error:
            faults.append(f"{folder}: {error.strerror or error}")
    raise BadArgument(
        f"there is no folder for the service's token, by which it knows you ({'; '.join(faults)}); "
        "set XDG_STATE_HOME to a folder of "
        "yours, or ask for keys with --keys. If nobody else uses this machine, --trust-local lets "
        "all its users in without a token"
    )


def remove(written: Written, token: str) -> None:
    """Removes the files unless they have a newer token: another service may have started at the
    same address."""
    if _read(written.token) == token:
        for path in written:
            with suppress(OSError):
                path.unlink()


@contextmanager
def _private(folder: Path) -> Iterator[int]:
    """Opens the folder, creating it if need be. It must be ours, and is made private to us."""
    make_private_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            raise PermissionError(0, "the folder belongs to another user")
        if about.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(folder: int, name: str, text: str) -> None:
    """Writes a file atomically; other users can never read it."""
    beside = f".{name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    descriptor = os.open(
        beside,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
        dir_fd=folder,
    )
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)


# The client's side


def find(url: str, places: Iterable[Path]) -> Found | None:
    """Returns the token of the service at `url`, if that is on loopback and our user started it."""
    names = _names(url)
    for folder in places if names else ():
        for name in names:
            token = _read(folder / f"{name}.token")
            if token is not None:
                return Found(urlsplit(url)._replace(netloc=name).geturl(), token)
    return None


def _names(url: str) -> list[str]:
    """Returns the file names for the service at this address; none if it is not on loopback."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    if parts.scheme != "http":
        return []
    if host == "localhost":
        return [f"127.0.0.1:{port}", f"[::1]:{port}"]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return []
    return (
        [f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"]
        if address.is_loopback
        else []
    )


def _read(path: Path) -> str | None:
    """Reads the token in a file, if no other user can have written or read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise  # the token may exist; without it the service would refuse us wrongly
        return None
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
            return None
        text = file.read(_LONGEST).decode("ascii", errors="replace").strip()
    return text if _TOKEN.fullmatch(text) else None
