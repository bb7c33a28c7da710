"""Finding the project: one `.genlock` folder for a repository and all its worktrees.

In a repository, the project is the repository, from whichever folder or worktree you call. Its
folder lies

    beside `.git`           an ordinary repository; so also from every linked worktree
    in the git folder       where that is not called `.git`: a bare repository, a submodule,
                            `--separate-git-dir`
    in `.git`               if it was made there on purpose (`genlock init --stealth`): git never
                            looks at it

Outside of any repository it is the nearest `.genlock` upwards, else a new one in the working
folder. A submodule is a repository of its own. A `.genlock` above a repository belongs to another
project.

Repositories are found as git finds them, but from its files: starting git costs as much as all the
rest of a call. Where the environment asks for something unusual, git is asked.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from genlock.errors import BadArgument, NotFound, StoreError
from genlock.private_files import read_regular
from genlock.stores.files import refuse_link, refuse_links_in

FOLDER = ".genlock"
FILE = "genlock.db"

_IGNORED = """\
# The store belongs to this machine; the settings may be shared.
*
!.gitignore
!config.toml
"""

_ASK_GIT = ("GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_OBJECT_DIRECTORY")


class Repository(NamedTuple):
    """A repository, and how it was found."""

    folder: Path
    """The git folder that all its worktrees share."""
    followed: tuple[Path, ...] = ()
    """The path that led there: the `.git` entry, the folder it is in, and its target. The owner of
    these decides which repository it is. Empty if the user or git itself named the repository."""


class RepositoryBroken(NotFound):
    """A `.git` file, or $GIT_DIR, that leads to no repository, so the project is unknown."""


def project_folder() -> Path:
    """Returns the `.genlock` folder of the project around the working folder, with symbolic links
    resolved. It need not exist."""
    folder = _folder_around(working_folder())
    refuse_links_in(folder)
    return folder


def _folder_around(here: Path) -> Path:
    git = git_folder(here)
    if git is not None:
        return _present(
            [git.parent / FOLDER, git / FOLDER] if git.name == ".git" else [git / FOLDER]
        )
    for folder in (here, *here.parents):
        if (folder / FOLDER).is_dir():
            return folder / FOLDER
    return here / FOLDER


def followed_to(folder: Path) -> tuple[Path, ...]:
    """Returns the `.git` entries that led from the working folder to the project of this `.genlock`
    folder; empty if it was found otherwise."""
    found = find_repository(working_folder())
    if found is None or folder.parent not in (found.folder, found.folder.parent):
        return ()
    return found.followed


def hidden_folder() -> Path | None:
    """Returns the project folder inside the git folder, which git never scans. None outside of a
    repository."""
    git = git_folder(working_folder())
    return None if git is None else git / FOLDER


def make_folder(folder: Path) -> None:
    """Creates the project's folder, with a `.gitignore` that keeps the store out of git. Existing
    files are not changed."""
    refuse_link(folder)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    if not _inside_git(folder):
        try:
            with (folder / ".gitignore").open("x", encoding="utf-8") as file:
                file.write(_IGNORED)
        except FileExistsError:
            pass


def sqlite_url(path: Path) -> str:
    """The URL of a file, whatever its name."""
    from urllib.parse import quote

    return f"sqlite://{quote(os.fsencode(path))}"


def url_from_anywhere(url: str) -> str:
    """The URL for use from any folder, without a password."""
    from genlock.safe_text import without_password

    path = sqlite_path(url)
    return without_password(url) if path is None else sqlite_url(path.absolute())


def sqlite_path(url: str) -> Path | None:
    """The file of a sqlite:// URL; None for any other URL."""
    if not url.startswith("sqlite://"):
        return None
    from urllib.parse import unquote_to_bytes

    # Not parsed with urlsplit: it takes brackets in a file name for an address, and drops a tab.
    name, *more = re.split("[?#]", url.removeprefix("sqlite://"), maxsplit=1)
    try:
        path = os.fsdecode(unquote_to_bytes(name.encode(errors="surrogateescape")))
    except UnicodeEncodeError:
        raise BadArgument(f"{url!r} has a character that no file's name has") from None
    if "\0" in path:
        raise BadArgument(f"{url!r} has a NUL in it, which no file's name has")
    if not path or path.endswith("/") or any(more):
        raise BadArgument(f"{url!r} names no file; write sqlite:///absolute/path/file.db")
    if path in (":memory:", "/:memory:"):
        raise BadArgument(
            f"{url!r} would be a file of that name; for a store in memory write memory://"
        )
    # Links are resolved: the files beside a store are named after the real file, not after a link
    # to it.
    return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)


def working_folder() -> Path:
    """Returns the working folder."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise StoreError("the working folder does not exist any more; go to another one") from None


def git_folder(here: Path) -> Path | None:
    """The git folder that all worktrees of the repository around `here` share; None if there is no
    repository."""
    found = find_repository(here)
    return None if found is None else found.folder


def main_worktree(folder: Path) -> tuple[Path, Path | None]:
    """The same folder in the repository's main worktree, and the index that git writes when it
    checks files out there; None outside of a repository."""
    if not folder.is_dir():
        return folder, None
    found = find_repository(folder)
    if found is None or found.folder.name != ".git":
        return folder, None
    index = found.folder / "index"
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if top is None or top == found.folder.parent:
        return folder, index
    return found.folder.parent / folder.relative_to(top), index


def find_repository(here: Path) -> Repository | None:
    """The repository around `here`, if there is one."""
    if any(os.environ.get(name) for name in _ASK_GIT):
        said = _as_git_says(here)  # git checks the owners itself
        return None if said is None else Repository(said)
    given = os.environ.get("GIT_DIR")
    if given:
        found = _followed(here / given)
        if found is None:
            raise RepositoryBroken(
                f"GIT_DIR is {given}, which is no git folder; unset GIT_DIR, or name the store "
                "with GENLOCK_URL"
            )
        return Repository(found)
    device = here.stat().st_dev
    for folder in (here, *here.parents):
        if folder.stat().st_dev != device:
            return None
        found = _followed(folder / ".git")
        if found is not None:
            return Repository(found, (folder, *_trail(folder / ".git")))
        if is_git_folder(folder):
            return Repository(_common(folder), _trail(folder))
    return None


def _trail(entry: Path) -> tuple[Path, ...]:
    """Returns a git folder, or a file or link that leads to one, with its target and the
    `commondir` file there, if it exists."""
    names = [entry]
    if entry.is_symlink():
        names.append(Path(os.path.realpath(entry)))
    if entry.is_file():
        names.append(_target(entry))
    common = names[-1] / "commondir"
    return (*names, common) if os.path.lexists(common) else tuple(names)


def _followed(path: Path) -> Path | None:
    """The shared git folder that `.git` is or, as a file, leads to; None if it is neither."""
    if path.is_dir():
        return _common(path) if is_git_folder(path) else None
    if not path.is_file():
        return None
    return _common(_target(path))


def _target(path: Path) -> Path:
    """The git folder that a `.git` file names."""
    text = os.fsdecode(read_regular(path))
    target = path.parent / text.removeprefix("gitdir:").strip()
    if not text.startswith("gitdir:") or not is_git_folder(target):
        raise RepositoryBroken(
            f"{path} leads to no repository: it says {text.strip()[:200]!r}; if the repository was "
            "moved, type there: git worktree repair; or name the store with GENLOCK_URL"
        )
    return target


def is_git_folder(folder: Path) -> bool:
    """Uses git's criterion: a HEAD, and in the shared folder objects and refs."""
    if not os.path.lexists(folder / "HEAD"):
        return False
    common = _common(folder)
    return (common / "objects").is_dir() and (common / "refs").is_dir()


def _common(folder: Path) -> Path:
    """The folder that a worktree's git folder shares with the others, or itself; always by the same
    name."""
    shared = os.environ.get("GIT_COMMON_DIR") if os.environ.get("GIT_DIR") else None
    if shared is None:
        try:
            shared = os.fsdecode(read_regular(folder / "commondir")).strip()
        except OSError:
            shared = ""
        return Path(os.path.realpath(folder / shared))
    return Path(os.path.realpath(shared))


def _as_git_says(here: Path) -> Path | None:
    import subprocess

    command = ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"]
    try:
        shown = subprocess.run(command, cwd=here, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return Path(os.path.realpath(os.fsdecode(shown.removesuffix(b"\n"))))


def _present(folders: list[Path]) -> Path:
    """Returns the folder that has a store, else one that exists, else the first."""
    for folder in folders:
        if (folder / FILE).is_file():
            return folder
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def _inside_git(folder: Path) -> bool:
    return is_git_folder(folder.parent)
