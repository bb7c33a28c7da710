"""The files in which a service on loopback leaves its token, and where clients of the same user
find it.

    127.0.0.1:8420.token      the token, glt_…
    127.0.0.1:8420.header     Authorization: Bearer glt_…      for curl -H @FILE

They lie in the user's state folder ($XDG_STATE_HOME/genlock, else ~/.local/state/genlock). The
folder is 0700 and the files 0600. The service writes a fresh token at each start and removes the
files when it stops. A file that a killed service left behind opens nothing.

Only a user who can write no state folder (no home, or a read-only one) has the token in
`.genlock/state` of the project. Nobody else looks there: a clone can bring files of these names.

A token is read only from a file that belongs to us and that nobody else can read, and is sent only
to the address that it is named by. `localhost` may lead to another address, at which somebody else
listens: so where a token is sent, the address in the file's name is connected to.
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
    """A token, and the address that it is for."""

    url: str
    token: str


def folders(project_folder: Path | None) -> list[Path]:
    """Where tokens may lie: the service writes into the first that it can make, clients look in
    all. The project's is among them only where the user's own cannot be written."""
    own = list(_of_user())
    if project_folder is None or any(map(_can_write, own)):
        return own
    return [*own, project_folder / "state"]


def _can_write(folder: Path) -> bool:
    """Could the user write files into this folder, once it is made?"""
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _of_user() -> Iterator[Path]:
    given = os.environ.get("XDG_STATE_HOME", "")
    home = os.path.expanduser("~")
    if os.path.isabs(given):
        yield Path(given) / "genlock"
    elif os.path.isabs(home):  # an account without a home, and no HOME: "~" stays as it is
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
    """Removes what was written, if it is still there: another service may have begun at the same
    address."""
    if _read(written.token) == token:
        for path in written:
            with suppress(OSError):
                path.unlink()


@contextmanager
def _private(folder: Path) -> Iterator[int]:
    """The folder, made if need be: ours, and open to us alone."""
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
    """A file that is there as a whole or not at all, and that was never readable by others."""
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
    """The token of the service at `url`, if that is on loopback and we are the user who started
    it."""
    names = _names(url)
    for folder in places if names else ():
        for name in names:
            token = _read(folder / f"{name}.token")
            if token is not None:
                return Found(urlsplit(url)._replace(netloc=name).geturl(), token)
    return None


def _names(url: str) -> list[str]:
    """What the files of the service at this address are called; nothing if it is not on
    loopback."""
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
    """The token in a file, if nobody else can have written or read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise  # it may be there; without it we would be told that we may not do what we may
        return None
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
            return None
        text = file.read(_LONGEST).decode("ascii", errors="replace").strip()
    return text if _TOKEN.fullmatch(text) else None
