"""Git worktrees, one for each generation of a task: create, list, look into, remove.

    trees = Worktrees.around(Path.cwd(), folder)
    tree = trees.create("A-001", 3, base="main")     # branch genlock/A-001/gen3
    trees.state(tree)                                # uncommitted changes, commits, merged
    trees.remove(tree)                               # refuses to lose work
    trees.retire(tree)                               # the task is over: its commits keep the branch

A generation never writes where another one has written: a zombie may still be at work there. What a
worktree was made for is noted in git's own folder for it, so it goes when the worktree goes.
"""

from __future__ import annotations

import builtins
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from genlock.errors import BadArgument, GenlockError, NotAllowed
from genlock.isolation.branches import BRANCHES, branch_of, generation_of, plain_id
from genlock.private_files import read_regular

_NOTE: Final = "genlock.json"
_LOCK: Final = "genlock-worktrees.lock"
"""In the git folder. It is never removed."""
_OF_A_REPOSITORY: Final = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)
"""Variables that would lead git elsewhere than where it is called, as within a git hook."""
_MOST_NAMES: Final = 20


class WorktreeError(GenlockError):
    """Git could not do it; the message says what git said."""


class WorkWouldBeLost(WorktreeError, NotAllowed):
    """The worktree has work that is nowhere else, so it is not removed."""


class Worktree(NamedTuple):
    """A worktree of one generation."""

    path: Path
    branch: str
    task_id: str
    generation: int
    base: str
    """What the branch should be merged into: a branch's full name, or a commit."""
    start: str
    """The commit of the base at that time."""


class WorktreeState(NamedTuple):
    """What is in a worktree."""

    uncommitted: tuple[str, ...]
    """Files that were changed or added and not committed; at most 20."""
    commits: int
    """Commits on its branch that the base did not have when it began."""
    merged: bool
    """Is every commit in the base, too? True as well if there is none."""
    head: str
    """The last commit."""

    @property
    def is_disposable(self) -> bool:
        """May the worktree be removed, and nothing is lost?"""
        return self.merged and not self.uncommitted


class _Note(msgspec.Struct):
    """What a worktree was made for."""

    task_id: str
    generation: int
    base: str
    start: str


class Worktrees:
    """The worktrees of one repository that were made for tasks."""

    def __init__(self, repository: Path, folder: Path) -> None:
        """`repository` is a folder in it; `folder` is where new worktrees are put."""
        self.repository = repository
        self.folder = folder

    @classmethod
    def around(cls, here: Path, folder: Path) -> Worktrees:
        """Those of the repository around `here`."""
        if _git(here, "rev-parse", "--git-dir", check=False) is None:
            raise BadArgument(f"{here} is in no git repository, so there can be no worktrees")
        root = _git(here, "rev-parse", "--show-toplevel", check=False)
        return cls(Path(root) if root else here, folder)

    def check_base(self, base: str) -> str:
        """The full name of this branch, or the commit; BadArgument if there is no such thing."""
        commit = self._commit(base)
        if commit is None:
            empty = base == "HEAD"
            raise BadArgument(
                "the repository has no commit yet: a worktree begins at one"
                if empty
                else f"there is no branch or commit {base!r} for worktrees to begin at"
            )
        name = _git(
            self.repository, "rev-parse", "--symbolic-full-name", "--verify", base, check=False
        )
        return name if name and name.startswith("refs/") else commit

    def create(
        self,
        task_id: str,
        generation: int,
        *,
        base: str = "HEAD",
        after: str = "",
        copy: Sequence[str] = (),
    ) -> Worktree:
        """A worktree with a branch for this generation, which begins at the base or, if it is not
        in the base yet, at the commit `after`. `copy` names files that git does not track and that
        are needed all the same, such as `.env`."""
        base = self.check_base(base)
        start = self._commit(base) or base
        begin = start if not after or self._is_merged(after, base) else after
        branch = branch_of(task_id, generation)
        path = self.folder / f"{plain_id(task_id)}.gen{generation}"
        with self._alone():
            self._clear_leftover(branch, path)
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            _git(
                self.repository, "worktree", "add", "--quiet", "--no-track",
                "-b", branch, str(path), begin,
            )  # fmt: skip
            note = _Note(task_id, generation, base, start)
            self._note_file(path).write_bytes(msgspec.json.encode(note))
        tree = Worktree(path, branch, task_id, generation, base, start)
        for name in copy:
            self._copy(name, path)
        return tree

    def predecessor(self, task_id: str, generation: int) -> str:
        """The last commit of the highest generation below this one that has a branch here or in a
        remote repository, as far as it was fetched; "" if none has. Of a generation that has both,
        the branch here: its agent worked here."""
        shown = _git(
            self.repository, "for-each-ref", "--format=%(objectname) %(refname)",
            f"refs/heads/{BRANCHES}/{plain_id(task_id)}/",
            f"refs/remotes/*/{BRANCHES}/{plain_id(task_id)}/*",
        )  # fmt: skip
        found: dict[tuple[int, bool], str] = {}
        for line in (shown or "").splitlines():
            commit, _, ref = line.partition(" ")
            owner = generation_of("/".join(ref.rsplit("/", 3)[1:]))
            if owner is not None and owner[0] == task_id and owner[1] < generation:
                found[owner[1], ref.startswith("refs/heads/")] = commit
        return found[max(found)] if found else ""

    def list(self) -> list[Worktree]:
        """All that there are, also those of other processes and those at work."""
        with self._alone():
            return self._list()

    def _list(self) -> builtins.list[Worktree]:
        shown = _git(self.repository, "worktree", "list", "--porcelain", "-z") or ""
        found = []
        for entry in shown.split("\0\0"):
            fields = dict(line.partition(" ")[::2] for line in entry.strip("\0").split("\0"))
            branch = fields.get("branch", "").removeprefix("refs/heads/")
            path = Path(fields.get("worktree", ""))
            if branch.startswith(f"{BRANCHES}/") and path.is_dir():
                tree = self._noted(path, branch)
                found += [tree] if tree is not None else []
        return found

    def find(self, task_id: str, generation: int) -> Worktree | None:
        """That of this generation, if there is one."""
        same = (
            tree for tree in self.list() if (tree.task_id, tree.generation) == (task_id, generation)
        )
        return next(same, None)

    def state(self, tree: Worktree) -> WorktreeState:
        """What is in it now."""
        head = self._inside(tree.path, "rev-parse", "HEAD")
        commits = int(self._inside(tree.path, "rev-list", "--count", f"{tree.start}..HEAD") or 0)
        merged = commits == 0 or self._is_merged(head, tree.base)
        return WorktreeState(self.uncommitted(tree), commits, merged, head)

    def uncommitted(self, tree: Worktree) -> tuple[str, ...]:
        """Files with changes that are in no commit, and files that git does not know and does not
        ignore; at most 20. A submodule that is checked out counts as one: to look into it, git
        would obey the settings in it."""
        words = ("status", "--porcelain", "-z", "--untracked-files=normal")
        shown = self._inside(tree.path, *words, "--ignore-submodules=dirty")
        names = [entry[3:] for entry in shown.split("\0") if len(entry) > 3 and entry[2] == " "]
        names += [name for name in self._submodules(tree) if name not in names]
        return tuple(names[:_MOST_NAMES])

    def _submodules(self, tree: Worktree) -> Iterator[str]:
        shown = self._inside(tree.path, "ls-files", "--stage", "-z")
        for entry in shown.split("\0"):
            about, _, name = entry.partition("\t")
            if about.startswith("160000 ") and os.path.lexists(tree.path / name / ".git"):
                yield name

    def has_uncommitted_work(self, tree: Worktree) -> bool:
        """Are there such files?"""
        return bool(self.uncommitted(tree))

    def commits(self, tree: Worktree) -> builtins.list[str]:
        """The commits that are not in its base, the newest first, each with its subject; at most
        20."""
        words = ("log", f"--max-count={_MOST_NAMES}", "--format=%h %s", "HEAD", f"^{tree.base}")
        return self._inside(tree.path, *words).splitlines()

    def common_folder(self) -> str:
        """Git's own folder, which all worktrees share."""
        words = ("rev-parse", "--path-format=absolute", "--git-common-dir")
        return _git(self.repository, *words) or ".git"

    def commit_folders(self, tree: Worktree) -> tuple[str, ...]:
        """The folders of git's to which a commit in the worktree writes: what a sandbox has to let
        it write, besides the worktree. It cannot change another branch there, or git's settings."""
        common, own = self.common_folder(), self._own_folder(tree.path)
        names = ("objects", f"refs/heads/{BRANCHES}", f"logs/refs/heads/{BRANCHES}")
        found = [*(os.path.join(common, name) for name in names), str(own)]
        return tuple(each for each in found if os.path.isdir(each))

    def remove(self, tree: Worktree, *, force: bool = False) -> None:
        """Removes the worktree and its branch. Without `force` this raises WorkWouldBeLost if it
        has uncommitted changes or commits that are not in its base."""
        with self._alone():
            self._remove(tree, force=force)

    def retire(self, tree: Worktree) -> bool:
        """Removes the worktree of a task that is over. Its branch goes, too, if all of it is in the
        base; was the branch kept? Raises WorkWouldBeLost if there are uncommitted changes."""
        with self._alone():
            self._refuse_uncommitted(tree)
            merged = self.state(tree).merged if tree.path.is_dir() else self._is_in_base(tree)
            self._remove_folder(tree)
            if merged:
                self._remove_branch(tree.branch)
        return not merged

    def remove_merged_branches(
        self, base: str, may_go: Callable[[str, int], bool]
    ) -> builtins.list[str]:
        """Removes branches of generations that have no worktree any more and are in the base;
        which."""
        words = ("for-each-ref", "--format=%(refname:lstrip=2)", f"--merged={base}")
        with self._alone():
            shown = _git(self.repository, *words, f"refs/heads/{BRANCHES}/") or ""
            in_use = {tree.branch for tree in self._list()}
            gone = []
            for branch in shown.splitlines():
                owner = generation_of(branch)
                if owner is not None and branch not in in_use and may_go(*owner):
                    gone += [branch] if self._remove_branch(branch) else []
        return gone

    def _remove(self, tree: Worktree, *, force: bool = False) -> None:
        if tree.path.is_dir() and not force:
            self._refuse_uncommitted(tree)
            state = self.state(tree)
            if not state.merged:
                base = short_name(tree.base)
                raise WorkWouldBeLost(
                    f"{tree.branch} has {state.commits} commits that are not in {base}"
                )
        self._remove_folder(tree)
        self._remove_branch(tree.branch)

    def _refuse_uncommitted(self, tree: Worktree) -> None:
        uncommitted = self.uncommitted(tree) if tree.path.is_dir() else ()
        if uncommitted:
            raise WorkWouldBeLost(
                f"{tree.path} has uncommitted changes: {', '.join(uncommitted[:5])}"
            )

    def _remove_folder(self, tree: Worktree) -> None:
        if tree.path.is_dir():
            # Files that git ignores, such as build output, are not work.
            _git(self.repository, "worktree", "remove", "--force", "--force", str(tree.path))
        else:
            _git(self.repository, "worktree", "prune")

    def _remove_branch(self, branch: str) -> bool:
        words = ("branch", "--quiet", "-D", branch)
        return _git(self.repository, *words, check=False) is not None

    def _is_in_base(self, tree: Worktree) -> bool:
        commit = self._commit(f"refs/heads/{tree.branch}")
        return commit is None or self._is_merged(commit, tree.base)

    # The rest

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While one process adds a worktree, git in another one trips over the half of it. So what
        adds, lists or removes them takes turns."""
        with open(Path(self.common_folder()) / _LOCK, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _commit(self, name: str) -> str | None:
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return _git(self.repository, *words, check=False) or None

    def _is_merged(self, commit: str, base: str) -> bool:
        words = ("merge-base", "--is-ancestor", commit, base)
        return _git(self.repository, *words, check=False) is not None

    def _noted(self, path: Path, branch: str) -> Worktree | None:
        try:
            note = msgspec.json.decode(self._note_file(path).read_bytes(), type=_Note)
        except (OSError, msgspec.MsgspecError, WorktreeError):
            return None  # somebody else made a worktree with such a branch
        if note.start.startswith("-") or note.base.startswith("-"):
            return None  # an agent can write there, and git would take it for an option
        return Worktree(path, branch, note.task_id, note.generation, note.base, note.start)

    def _note_file(self, path: Path) -> Path:
        return self._own_folder(path) / _NOTE

    def _own_folder(self, path: Path) -> Path:
        """Git's own folder for the worktree at this path."""
        for pointer in Path(self.common_folder(), "worktrees").glob("*/gitdir"):
            with suppress(OSError):
                if os.fsdecode(pointer.read_bytes()).strip() == str(path / ".git"):
                    return pointer.parent
        raise WorktreeError(f"git knows no worktree at {path}")

    def _inside(self, path: Path, *words: str) -> str:
        """What git answers in this worktree. Where its settings are is not asked of the worktree:
        what an agent writes there, perhaps in a sandbox, must not become a command of ours."""
        common = self.common_folder()
        with _without_settings(self._own_folder(path), Path(common)) as own:
            return _git(
                path, "-c", "core.fsmonitor=false", *words,
                GIT_DIR=str(own),
                GIT_COMMON_DIR=common,
                GIT_WORK_TREE=str(path),
            ) or ""  # fmt: skip

    def _clear_leftover(self, branch: str, path: Path) -> None:
        """A worktree of the same name, if a process was killed while it made one, or the store was
        made again. It goes if there is nothing in it."""
        for tree in self._list():
            if tree.branch == branch:
                self._remove(tree)
                return
        commit = self._commit(f"refs/heads/{branch}")
        if commit is not None and self._is_merged(commit, "HEAD"):
            _git(self.repository, "worktree", "prune")
            self._remove_branch(branch)
        elif commit is not None:
            raise WorkWouldBeLost(
                f"there is a branch {branch} already, with commits that are not in HEAD; merge it, "
                f"or delete it: git branch -D {branch}"
            )
        if path.is_dir():
            with suppress(OSError):
                path.rmdir()  # only if it is empty; else git says that it exists

    def _copy(self, name: str, path: Path) -> None:
        source = self.repository / check_copied(name)
        target = path / name
        if not source.exists():
            return
        try:
            _refuse_links(path, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                for folder, folders, files in os.walk(source):
                    for each in (*folders, *files):
                        below = Path(folder, each).relative_to(self.repository)
                        _refuse_links(path, str(below))
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target, follow_symlinks=False)
        except (OSError, shutil.Error) as error:
            raise WorktreeError(f"{source} cannot be copied to {target}: {error}") from None


@contextmanager
def _without_settings(own: Path, common: Path) -> Iterator[Path]:
    """Git's own folder for a worktree or, where a worktree may have settings of its own, a copy
    without them: an agent can write there, too."""
    if b"worktreeconfig" not in (common / "config").read_bytes().lower():
        yield own
        return
    with tempfile.TemporaryDirectory(prefix="genlock-") as folder:
        for source in (own / "HEAD", own / "index", *own.glob("sharedindex.*")):
            _copy_regular(source, Path(folder, source.name))
        Path(folder, "commondir").write_bytes(os.fsencode(common) + b"\n")
        yield Path(folder)


def _copy_regular(source: Path, target: Path) -> None:
    """Copies a file with its time, by which git knows what may have changed since."""
    try:
        target.write_bytes(read_regular(source, follow=False))
        found = source.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise WorktreeError(f"{source} cannot be read: {error}") from None
    os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))


def _refuse_links(path: Path, name: str) -> None:
    """A commit of an agent may have put a link where something is to be copied."""
    for part in (Path(name), *Path(name).parents):
        if (path / part).is_symlink():
            raise WorktreeError(f"{path / part} is a symbolic link, so nothing is copied there")


def check_copied(name: str) -> str:
    """A path within the repository, or BadArgument."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or ".git" in parts:
        raise BadArgument(f"{name!r} is no path within the repository, such as .env")
    return name


def short_name(base: str) -> str:
    """A base as people write it."""
    return base.removeprefix("refs/heads/").removeprefix("refs/")


def _git(folder: Path, *words: str, check: bool = True, **given: str) -> str | None:
    """What git answers, with these variables. None if it fails and `check` is not set."""
    env = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            env=env | {"LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0"} | given,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise WorktreeError("git is not installed, and worktrees need it") from None
    if done.returncode == 0:
        return os.fsdecode(done.stdout).removesuffix("\n")
    if not check:
        return None
    said = os.fsdecode(done.stderr).strip() or f"exit status {done.returncode}"
    named = " ".join(word for word in words if "=" not in word and word != "-c")
    raise WorktreeError(f"git {' '.join(named.split()[:2])} failed: {said}")
