"""The files of a store: private, durable, and either whole or not there.

**Private.** A cloned repository can hold symbolic links, so a `.genlock` folder, or a file in it,
may lead to one of the user's own files. A store therefore opens its files by names that are no
links, and an error says which name is one. New files have the permissions 0600 and new folders
0700. To let a group use a store, give its folder and everything in it those permissions
(`chmod -R g+rwX`): files that are made later beside the store's file have the file's.

**Whole.** What is to become a file is first written in a folder beside it, which is removed when
the work is over. If its process is killed, the next process that makes such a folder for the same
file removes it. It knows the folder by its name, and that its process is gone by a lock on it,
which ends with the process. The folder is locked and not a file in it, because SQLite and network
filesystems have their own ideas about locks on files. Where folders cannot be locked, no folder is
ever known to be left over. There it has another name and stays.
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
    """`StoreForeign` if this name is a symbolic link."""
    if path.is_symlink():
        with suppress(OSError):
            raise StoreForeign(
                f"{path} is a symbolic link, to {os.readlink(path)!r}, and nothing of a store is "
                "reached through one: look where it leads, "
                "and whether you or a repository put it there; to remove the link, type: rm "
                f"{quote(str(path))}"
            )


def refuse_links_in(folder: Path) -> None:
    """`StoreForeign` if this folder is a symbolic link, or one is in it."""
    refuse_link(folder)
    for each in links_in(folder):
        refuse_link(each)


def links_in(folder: Path) -> list[Path]:
    """The symbolic links in a folder; none if there is no folder, or none that can be read."""
    try:
        with os.scandir(folder) as found:
            return sorted(Path(entry.path) for entry in found if entry.is_symlink())
    except OSError:
        return []


def links_beside(path: Path) -> list[Path]:
    """The symbolic links among a store's file and the files beside it."""
    return [each for end in BESIDE if (each := Path(f"{path}{end}")).is_symlink()]


def refuse_links_beside(path: Path) -> None:
    """`StoreForeign` if a store's file, or one beside it, is a symbolic link, or a pipe or device:
    opening one of these may wait for ever."""
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
    """The permissions of a new file beside this one: the same, as SQLite gives them to its log;
    0600 if there is no such file."""
    try:
        return FILE_MODE | path.lstat().st_mode & 0o066
    except OSError:
        return FILE_MODE


def folder_mode(mode: int) -> int:
    """The permissions of a folder whose files have these: their readers may enter it."""
    return FOLDER_MODE | mode | (mode & 0o044) >> 2


def ensure_file(path: Path, mode: int = FILE_MODE) -> None:
    """An empty file, if there is nothing of this name."""
    with suppress(FileExistsError):
        os.close(create_file(path, mode))


def open_file(path: str | Path, flags: int, *, folder: int | None = None) -> int:
    """A descriptor of a file that is there; an error of the system's (ELOOP) if the name is a
    link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


@contextmanager
def opened_folder(
    path: Path, *, within: int | None = None, make: int | None = None
) -> Iterator[int]:
    """A descriptor of a folder for as long as the block lasts, made with the permissions `make` if
    it is missing.

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
    """Makes a folder; False if the name is taken."""
    try:
        os.mkdir(name, mode, dir_fd=within)
    except FileExistsError:
        return False
    with suppress(
        OSError
        # The umask takes bits away; the folder above may hand its group down
    ):
        os.chmod(name, os.stat(name, dir_fd=within).st_mode & stat.S_ISGID | mode, dir_fd=within)
    return True


def _sync(folder: Path | int) -> None:
    """Makes a new name in it durable."""
    if isinstance(folder, int):
        os.fsync(folder)
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Creates the folder and what is above it, durably, for this user alone."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def make_ignored_folder(folder: Path) -> None:
    """The same, out of git's sight: what is in it belongs to this machine. A folder that is there
    stays as it is."""
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
    """Our error for one of the operating system's."""
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return StoreReadOnly(f"{path} cannot be written ({error.strerror})")
        case _:
            return shortage_of(_about(error, path)) or StoreUnavailable(f"{path}: {error.strerror}")


def _about(error: OSError, path: Path) -> OSError:
    """The same error, about what our caller works on."""
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
            continue  # somebody is at work on it, or it may not be removed
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
