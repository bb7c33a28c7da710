"""Opening a folder by its URL.

    folder:///path?layout=gptodo    a gptodo workspace: tasks as Markdown files
    folder:///path?layout=spool     ai_comms, where scripts move task folders around
    folder:///path?layout=none      the journal alone
    folder:///path                  the layout that the folder has, if it is the only one

Other options: `unclaimed_state=backlog` (the gptodo state of an unclaimed task), `project=…` and
`tenant=…` (the owner of the tasks in the files; default `default`), and `lock=link`, for a
filesystem that has locks but does not enforce them reliably.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote_to_bytes

from genlock.core.epochs import DIGITS, next_epoch
from genlock.core.names import DEFAULT_PROJECT, check_project, check_tenant
from genlock.errors import BadArgument, StoreMissing, StoreUnavailable
from genlock.store import Clock
from genlock.stores.files import (
    make_ignored_folder,
    os_errors_translated,
    refuse_link,
)
from genlock.stores.folder.entries import Born
from genlock.stores.folder.journal import AppendedJournal, Journal, NumberedJournal
from genlock.stores.folder.layout import Layout
from genlock.stores.folder.layouts.gptodo import UNCLAIMED_STATES, GptodoLayout
from genlock.stores.folder.layouts.spool import SpoolLayout
from genlock.stores.folder.project_files import ProjectFiles
from genlock.stores.folder.store import FolderStore
from genlock.stores.folder.writer_lock import FlockLock, NameLock, can_flock
from genlock.stores.options import Options

_OPTIONS = ("layout", "unclaimed_state", "tenant", "project", "lock")


class MakeLayout(Protocol):
    """Makes a layout of a folder."""

    def __call__(self, root: Path, options: Options) -> Layout: ...


class IsAt(Protocol):
    """Does this folder look like a workspace of this layout?"""

    def __call__(self, root: Path) -> bool: ...


class LayoutKind(NamedTuple):
    """A layout that a URL can name."""

    make: MakeLayout
    is_at: IsAt
    versioned: bool = True
    """Are its files under version control? Then a file may be checked out."""


def _gptodo(root: Path, options: Options) -> Layout:
    def unclaimed(text: str) -> str:
        """todo or backlog"""
        if text not in UNCLAIMED_STATES:
            raise ValueError
        return text

    layout = GptodoLayout(root, unclaimed_state=options.read("unclaimed_state", unclaimed, "todo"))
    layout.refuse_links()
    return layout


def _spool(root: Path, options: Options) -> Layout:
    layout = SpoolLayout(root)
    layout.refuse_links()
    return layout


LAYOUTS: dict[str, LayoutKind] = {
    "gptodo": LayoutKind(_gptodo, GptodoLayout.is_at),
    "spool": LayoutKind(_spool, SpoolLayout.is_at, versioned=False),
}


def folder_path(url: str) -> Path:
    """Returns the folder of a folder:// URL."""
    text = url.removeprefix("folder://").partition("?")[0]
    path = os.fsdecode(unquote_to_bytes(text))
    if not path.startswith("/") or "\0" in path:
        raise BadArgument(f"{url!r} names no folder; write folder:///absolute/path")
    return Path(os.path.realpath(path))


def folder_url(path: Path, **options: str) -> str:
    """Returns the URL of a folder, whose name may contain any character."""
    text = "&".join(f"{name}={quote(value)}" for name, value in options.items() if value)
    return f"folder://{quote(os.fsencode(path))}{'?' if text else ''}{text}"


def open_folder(
    url: str,
    *,
    clock: Clock | None = None,
    create: bool = True,
    root: Path | None = None,
    git_index: Path | None = None,
) -> FolderStore:
    """Opens the store of a folder. `root` is the folder if it differs from the URL's: a linked
    worktree uses the journal of the main one. `git_index` is the index of its repository."""
    root = root or folder_path(url)
    options = Options(url, "folder", _OPTIONS)
    if options.rest.partition("?")[2]:
        unknown = options.rest.partition("?")[2].partition("=")[0]
        raise BadArgument(
            f"there is no option {unknown!r} in a folder URL; there are: {', '.join(_OPTIONS)}"
        )
    place = (
        check_tenant(options.get("tenant") or "default"),
        check_project(options.get("project") or DEFAULT_PROJECT),
    )
    try:
        layout = _layout(root, options)
    except PermissionError as error:
        raise StoreUnavailable(
            f"{error.filename} cannot be read ({error.strerror}): it belongs to another user"
        ) from error
    state = root / "state" / "genlock" if layout is None else layout.state_folder
    refuse_link(state.parent)
    refuse_link(state)
    with os_errors_translated(state):
        journal, lock = _opened(url, root, state, layout, create, options.get("lock"), clock)
    if layout is not None and not LAYOUTS[layout.name].versioned:
        git_index = None
    files = (
        None if layout is None else ProjectFiles(layout, place, git_index=git_index, clock=clock)
    )
    return FolderStore(
        state,
        journal,
        lock,
        files=files,
        clock=clock,
        read_only=not (os.access(state, os.W_OK) and os.access(journal.path, os.W_OK)),
    )


def _layout(root: Path, options: Options) -> Layout | None:
    name = options.get("layout")
    if name == "none":
        return None
    if name is None:
        found = [each for each, kind in LAYOUTS.items() if kind.is_at(root)]
        if len(found) != 1:
            raise BadArgument(
                f"{root} {'has several layouts' if found else 'has no layout that is known'}: add "
                f"?layout=… to the URL; there are: {', '.join(LAYOUTS)} and none"
            )
        name = found[0]
    if name not in LAYOUTS:
        raise BadArgument(
            f"{name!r} is no layout of a folder; there are: {', '.join(LAYOUTS)} and none"
        )
    return LAYOUTS[name].make(root, options)


def _opened(
    url: str,
    root: Path,
    state: Path,
    layout: Layout | None,
    create: bool,
    lock: str | None,
    clock: Clock | None,
) -> tuple[Journal, FlockLock | NameLock]:
    if NumberedJournal.exists(state):
        return NumberedJournal(state), NameLock(state)
    if not AppendedJournal.exists(state):
        if not create:
            raise StoreMissing(
                f"there is no journal in {state}; to begin one, type: genlock db create '{url}'"
            )
        make_ignored_folder(state)
        journal: Journal
        if lock == "link" or not can_flock(state):
            journal = NumberedJournal(state)
        else:
            journal = AppendedJournal(state)
        journal.create(Born(secrets.token_bytes(8), _first_epoch(layout, clock)))
        if isinstance(journal, NumberedJournal):
            return journal, NameLock(state)
    return AppendedJournal(state), FlockLock(state)


def _first_epoch(layout: Layout | None, clock: Clock | None) -> int:
    """Returns 0 if there are no task files: no task was ever claimed. Beside task files an earlier
    journal may have existed, and agents may hold its generations; then it returns an epoch that was
    never used."""
    if layout is None or next(iter(layout.ids()), None) is None:
        return 0
    if clock is not None:
        return _epoch_at(clock.now().timestamp())
    now = time.time()
    # The epoch's fraction of a second has passed before anything is granted, so a process that
    # begins another journal here later chooses a higher number.
    time.sleep((int(now * DIGITS) + 1) / DIGITS - now)
    return _epoch_at(now)


def _epoch_at(now: float) -> int:
    return next_epoch(0, int(now), int(now * DIGITS) % DIGITS)
