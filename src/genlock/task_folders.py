"""Folders of task files, for people: what a folder contains, and whether file or record is right.

The store notices what other tools do to the files (`genlock.stores.folder`). This module serves the
commands by which a person inspects that and decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from genlock.errors import BadArgument, NotFound
from genlock.open import open_store
from genlock.project_folder import main_worktree, working_folder

if TYPE_CHECKING:
    from genlock.stores.folder.store import FolderStore

SCHEME = "folder://"


class FolderState(Struct, frozen=True):
    """The state of a folder store."""

    folder: str
    layout: str
    locks: str
    """How writers exclude each other: flock, or a lock by name."""
    journal_bytes: int
    tasks: int
    edited: tuple[str, ...]
    """Files that other tools have edited; the next read picks them up."""
    checked_out: tuple[str, ...]
    """Files that git has checked out and that differ from the records."""
    unwritten: tuple[str, ...]
    """Files that are behind their records."""
    missing: tuple[str, ...]
    """Tasks whose files were deleted."""
    unreadable: dict[str, str]
    without_file: tuple[str, ...]
    """Tasks whose ids cannot be file names."""


def is_folder(url: str) -> bool:
    """Is it the URL of a folder?"""
    return url.startswith(SCHEME)


def folder_url_of(path: str, layout: str | None = None, unclaimed_state: str | None = None) -> str:
    """Returns the URL of the folder at a path, in the main worktree of its repository."""
    from genlock.stores.folder.open import folder_url

    folder = working_folder() / path
    if not folder.is_dir():
        raise BadArgument(f"{path} is no folder; name the one that has the folder tasks")
    root, _ = main_worktree(folder.resolve())
    return folder_url(root, layout=layout or "", unclaimed_state=unclaimed_state or "")


def layout_of(path: str) -> str:
    """Returns the layout of the folder at a path: gptodo's, unless the content fits only another
    one."""
    from genlock.stores.folder.open import LAYOUTS

    found = [name for name, kind in LAYOUTS.items() if kind.is_at(working_folder() / path)]
    return found[0] if len(found) == 1 else "gptodo"


def examine(url: str) -> FolderState:
    """Checks every file of a folder."""
    from genlock.stores.folder.writer_lock import FlockLock

    with _opened(url) as store:
        report = store.examine()
        return FolderState(
            str(store.folder),
            "none" if store.files is None else store.files.layout.name,
            "flock" if isinstance(store.lock, FlockLock) else "a lock by name: no flock here",
            report.journal_bytes,
            report.tasks,
            report.edited,
            report.checked_out,
            report.unwritten,
            report.missing,
            report.unreadable,
            report.without_file,
        )


def restore_files(url: str, tasks: Sequence[str]) -> list[str]:
    """Writes the files of these tasks from the records. If no task is named, restores all files
    that git has checked out or that were deleted."""
    return _decide(url, tasks, lambda store, id: store.restore_file(id))


def adopt_files(url: str, tasks: Sequence[str]) -> list[str]:
    """Accepts the files of these tasks as edits, although git has checked them out; all such files
    if no task is named."""
    return _decide(url, tasks, lambda store, id: store.adopt_file(id), missing=False)


def _decide(
    url: str,
    tasks: Sequence[str],
    act: Callable[[FolderStore, str], bool],
    *,
    missing: bool = True,
) -> list[str]:
    with _opened(url) as store:
        if store.files is None:
            raise BadArgument("this folder has no task files: its layout is none")
        report = store.examine()
        found = (*report.checked_out, *report.unwritten, *(report.missing if missing else ()))
        unknown = [id for id in tasks if id not in found]
        if unknown:
            raise NotFound(
                f"the file of {unknown[0]} is neither a checkout nor missing; to see which are, "
                "type: genlock folder status"
            )
        return [id for id in (tasks or found) if act(store, id)]


@contextmanager
def _opened(url: str) -> Iterator[FolderStore]:
    from genlock.stores.folder.store import FolderStore

    if not is_folder(url):
        raise BadArgument(
            "the store is no folder of task files; name one: --url folder:///path, or type: "
            "genlock init --folder PATH"
        )
    store = open_store(url)
    assert isinstance(store, FolderStore)
    try:
        yield store
    finally:
        store.close()


def layouts() -> tuple[str, ...]:
    """Returns the names of all layouts."""
    from genlock.stores.folder.open import LAYOUTS

    return tuple(LAYOUTS)
