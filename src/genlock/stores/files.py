"""The files of a store: private, durable, and either whole or not there.

**Private.** A cloned repository can hold symbolic links, so a `.genlock` folder, or a file in it,
may point to one of the user's own files. A store therefore opens its files without following links,
and an error names the link. New files have the permissions 0600 and new folders 0700. To let a
group use a store, give its folder and everything in it those permissions (`chmod -R g+rwX`): files
created later beside the store's file get its permissions.

**Whole.** A new file is first written in a temporary folder beside its final place. The folder is
removed when the work is done. If the process is killed, the next process that creates such a folder
for the same file removes the old one. It recognises the folder by its name, and knows from the
folder's lock, which ends with the process, that the process is gone. The lock is on the folder
rather than on a file in it, because SQLite and network filesystems handle locks on files in their
own ways. Where folders cannot be locked, an abandoned folder cannot be recognised. There it has
another name and stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from genlock.errors import StoreError, StoreForeign, StoreReadOnly, StoreUnavailable
from genlock.private_files import FILE_MODE as FILE_MODE
from genlock.private_files import create_file as create_file
from genlock.shortages import shortage_of

FOLDER_MODE = 0o700

BESIDE = ("", "-wal", "-shm", "-journal", ".gate", ".payloads", ".restoring")
"""The endings of a store's file and of the files beside it."""


def refuse_link(path: Path) -> None:
    """Raises `StoreForeign` if this name is a symbolic link."""
    if path.is_symlink():
        with suppress(OSError):
            raise StoreForeign(
                f"{path} is a symbolic link, to {os.readlink(path)!r}, and nothing of a store is "
                "reached through one: look where it leads, "
                "and whether you or a repository put it there; to remove the link, type: rm "
                f"{quote(str(path))}"
            )


def refuse_links_in(folder: Path) -> None:
    """Raises `StoreForeign` if this folder is a symbolic link or contains one."""
    refuse_link(folder)
    for each in links_in(folder):
        refuse_link(each)


def links_in(folder: Path) -> list[Path]:
    """Returns the symbolic links in a folder; none if the folder is missing or cannot be read."""
    try:
        with os.scandir(folder) as found:
            return sorted(Path(entry.path) for entry in found if entry.is_symlink())
    except OSError:
        return []


def links_beside(path: Path) -> list[Path]:
    """Returns the symbolic links among a store's file and the files beside it."""
    return [each for end in BESIDE if (each := Path(f"{path}{end}")).is_symlink()]


def refuse_links_beside(path: Path) -> None:
    """Raises `StoreForeign` if a store's file, or one beside it, is a symbolic link, a pipe or a
    device: opening a pipe or device may block for ever."""
    for each in links_beside(path):
        refuse_link(each)
    for each in (Path(f"{path}{end}") for end in BESIDE):
        with suppress(OSError):
            mode = each.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise StoreForeign(
                    f"{each} is no regular file, and nothing of a store is kept in one that is "
                    f"not; to remove it, type: rm {quote(str(each))}"
                )


def mode_like(path: Path) -> int:
    """Returns the permissions for a new file beside this one: the same, as SQLite gives them to its
    log; 0600 if the file does not exist."""
    try:
        return FILE_MODE | path.lstat().st_mode & 0o066
    except OSError:
        return FILE_MODE


def folder_mode(mode: int) -> int:
    """Returns the permissions for a folder whose files have these, so that their readers may enter
    it."""
    return FOLDER_MODE | mode | (mode & 0o044) >> 2


def ensure_file(path: Path, mode: int = FILE_MODE) -> None:
    """Creates an empty file unless the name exists."""
    with suppress(FileExistsError):
        os.close(create_file(path, mode))


def open_file(path: str | Path, flags: int, *, folder: int | None = None) -> int:
    """Opens an existing file. Raises the system's error (ELOOP) if the name is a link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


@contextmanager
def opened_folder(
    path: Path, *, within: int | None = None, make: int | None = None
) -> Iterator[int]:
    """Opens a folder for the block. If it is missing, creates it with the permissions `make`.

    With `within` only the last part of the name is looked up, in that folder.
    """
    name: str | Path = path if within is None else path.name
    if make is not None and _made(name, within, make):
        _sync(path.parent if within is None else within)
    try:
        fd = open_file(name, os.O_RDONLY | os.O_DIRECTORY, folder=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            refuse_link(path)
        raise
    try:
        yield fd
    finally:
        os.close(fd)


def _made(name: str | Path, within: int | None, mode: int) -> bool:
    """Creates a folder. Returns False if the name is taken."""
    try:
        os.mkdir(name, mode, dir_fd=within)
    except FileExistsError:
        return False
    with suppress(
        OSError
        # The umask clears bits, and the parent folder may pass its group on
    ):
        os.chmod(name, os.stat(name, dir_fd=within).st_mode & stat.S_ISGID | mode, dir_fd=within)
    return True


def _sync(folder: Path | int) -> None:
    """Makes a new name in the folder durable."""
    if isinstance(folder, int):
        os.fsync(folder)
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Creates the folder and its missing parents, durably, for this user alone."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def make_ignored_folder(folder: Path) -> None:
    """Like `make_folder`, but ignored by git, because its content belongs to this machine. An
    existing folder stays unchanged."""
    if folder.is_dir():
        return
    make_folder(folder)
    with suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="utf-8") as file:
        file.write("*\n")


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def os_fault_of(error: OSError, path: Path) -> StoreError:
    """Returns our error for an error of the operating system."""
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return StoreReadOnly(f"{path} cannot be written ({error.strerror})")
        case _:
            return shortage_of(_about(error, path)) or StoreUnavailable(f"{path}: {error.strerror}")


def _about(error: OSError, path: Path) -> OSError:
    """Returns the same error, naming the path that the caller works on."""
    return OSError(error.errno, error.strerror, str(path))


@contextmanager
def os_errors_translated(path: Path) -> Iterator[None]:
    """Lets none of the operating system's errors out of the block."""
    try:
        yield
    except OSError as error:
        raise os_fault_of(error, path) from error


_MARK, _UNLOCKED = ".genlock-unfinished-", ".genlock-unlocked-"


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A folder for a file that gets the name `target` when it is whole."""
    remove_leftovers(target)
    folder, fd = _new_folder(target)
    try:
        yield folder
    finally:
        with suppress(OSError):  # the next one removes what cannot be removed now
            _remove(folder)
        os.close(fd)


def remove_leftovers(target: Path) -> None:
    """Removes the folders that killed processes have left beside this file. Those of running
    processes, and other programs', stay."""
    name = re.compile(re.escape(target.name + _MARK) + "[0-9a-f]{8}")
    for found in [each for each in target.parent.iterdir() if name.fullmatch(each.name)]:
        try:
            fd = _opened(found)
        except OSError:
            continue  # gone meanwhile, a link, or not ours to open
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(found)
        except OSError:
            continue  # still in use, or cannot be removed
        finally:
            os.close(fd)


def _new_folder(target: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor by which it is locked."""
    while True:
        folder = target.with_name(f"{target.name}{_MARK}{os.urandom(4).hex()}")
        folder.mkdir(FOLDER_MODE)
        try:
            fd = _opened(folder)
        except FileNotFoundError:
            continue  # another process removed it as a leftover before it was locked
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            return folder.rename(target.with_name(folder.name.replace(_MARK, _UNLOCKED))), fd
        try:
            if os.path.samestat(os.fstat(fd), folder.lstat()):
                return folder, fd
        except FileNotFoundError:
            pass
        os.close(fd)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove(folder: Path) -> None:
    """Removes the files in it, and the folders of copies of copies. Anything else keeps it
    there."""
    for file in list(folder.iterdir()):
        if stat.S_ISREG(file.lstat().st_mode):
            file.unlink()
        elif _MARK in file.name or _UNLOCKED in file.name:
            _remove(file)
    folder.rmdir()
