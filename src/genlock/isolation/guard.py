"""The git guard: a shared repository that takes no stale work.

Two hooks ask the coordinator. `update` runs before git moves a branch, `post-receive` after:

1. A branch `genlock/<task>/gen<N>` takes commits only while generation N of the task is the highest
   and its claim is live; from the submission on it is frozen at the submitted commit.
2. A protected branch takes only accepted commits: everything that is new on it must be in the
   history of the commit of an accepted result, or be a merge of such work that git makes by itself,
   without a conflict and with nothing added. It is never rewound or deleted.
3. Other branches and tags are none of the guard's business.
4. The hooks fail closed: if the coordinator does not answer, nothing is taken.

Between a hook's question and the move of the branch a generation may rise. Git offers no way to
close that gap. What slips through lands in the branch of its own generation, which is dead by then:
nobody continues it, and no protected branch takes it. `post-receive` asks again and reports it.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from genlock.core.results import PushVerdict
from genlock.errors import BadArgument, GenlockError, NotAllowed
from genlock.isolation.branches import BRANCHES, generation_of

HOOKS: Final = ("update", "post-receive")
MARK: Final = "# Made by genlock guard install."
DEFAULT_PROTECTED: Final = ("main", "master")
_PROTECTED: Final = "genlock.protected"
_HEADS: Final = "refs/heads/"
_NOTHING: Final = re.compile(r"0+")
_MOST_COMMITS: Final = 10_000


class Refusal(NamedTuple):
    """Why a push is not taken."""

    ref: str
    text: str
    verdict: PushVerdict | None = None


Ask = Callable[[str, int, str, bool], PushVerdict]
"""Asks the coordinator: task, generation, commit, and whether the branch is protected."""


class Guard:
    """One repository, and the coordinator that knows its tasks."""

    def __init__(self, repository: Path, protected: Sequence[str], ask: Ask) -> None:
        self.repository, self.protected, self._ask = repository, protected, ask

    def refusal(self, ref: str, old: str, new: str) -> Refusal | None:
        """Why this move of a branch is not allowed; None if it is."""
        if not ref.startswith(_HEADS):
            return None
        branch = ref.removeprefix(_HEADS)
        owner = generation_of(branch)
        if owner is not None:
            return self._of_generation(ref, owner, new)
        if branch.startswith(f"{BRANCHES}/"):
            return Refusal(ref, f"{BRANCHES}/ is kept for branches {BRANCHES}/<task>/gen<N>")
        if any(fnmatchcase(branch, pattern) for pattern in self.protected):
            return self._of_protected(ref, old, new)
        return None

    def _of_generation(self, ref: str, owner: tuple[str, int], new: str) -> Refusal | None:
        if _is_nothing(new):
            return None  # a dead or merged branch may go
        verdict = self._ask(*owner, new, False)
        return None if verdict.allowed else Refusal(ref, "", verdict)

    def _of_protected(self, ref: str, old: str, new: str) -> Refusal | None:
        if _is_nothing(new):
            return Refusal(ref, "a protected branch is not deleted")
        if _is_nothing(old):
            base: list[str] = []
        elif self._git("merge-base", "--is-ancestor", old, new) is None:
            return Refusal(ref, "a protected branch only moves forward")
        else:
            base = [f"^{old}"]
        last: PushVerdict | None = None
        accepted = []
        for commit, owner in self._branches_in(new, old):
            verdict = self._ask(*owner, commit, True)
            if verdict.allowed:
                accepted.append(commit)
            else:
                last = verdict
        left = self._lines(
            "rev-list", f"--max-count={_MOST_COMMITS}", new, *base, *(f"^{one}" for one in accepted)
        )
        for commit in left:
            if not self._is_clean_merge(commit):
                told = f"{commit[:12]} is not in the history of an accepted result"
                return Refusal(ref, told, last)
        return None

    def _branches_in(self, new: str, old: str) -> Iterator[tuple[str, tuple[str, int]]]:
        """The branches of generations whose last commit this push would bring in."""
        words = ["for-each-ref", "--format=%(objectname) %(refname)", f"--merged={new}"]
        if not _is_nothing(old):
            words.append(f"--no-merged={old}")
        for line in self._lines(*words, f"{_HEADS}{BRANCHES}/"):
            commit, _, ref = line.partition(" ")
            owner = generation_of(ref.removeprefix(_HEADS))
            if owner is not None:
                yield commit, owner

    def _is_clean_merge(self, commit: str) -> bool:
        """Is this what git makes of its two parents by itself?"""
        parents = (self._git("rev-list", "--parents", "--max-count=1", commit) or "").split()[1:]
        if len(parents) != 2:
            return False
        tree = self._git("rev-parse", f"{commit}^{{tree}}")
        merged = self._git("merge-tree", "--write-tree", *parents)
        return merged is not None and merged == tree

    def _lines(self, *words: str) -> list[str]:
        return (self._git(*words, check=True) or "").splitlines()

    def _git(self, *words: str, check: bool = False) -> str | None:
        return run_git(self.repository, *words, check=check)


def _is_nothing(commit: str) -> bool:
    return _NOTHING.fullmatch(commit) is not None


# Installing


def install(
    repository: Path,
    protected: Sequence[str],
    command: Sequence[str],
    options: Sequence[str],
    *,
    replace: bool = False,
) -> list[Path]:
    """Puts the hooks into a repository, and the protected branches into its configuration. The
    hooks call `command` with `options`, which name the coordinator. Hooks of others are not
    touched: NotAllowed, unless `replace` is set."""
    folder = hooks_folder(repository)
    for name in HOOKS:
        if _is_foreign(folder / name) and not replace:
            raise NotAllowed(
                f"{folder / name} is there already and is not Genlock's; call `genlock guard "
                f"{name}` from it with the same arguments and input, or use --replace"
            )
    run_git(repository, "config", "--unset-all", _PROTECTED)
    for pattern in protected:
        run_git(repository, "config", "--add", _PROTECTED, pattern, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name in HOOKS:
        _write_hook(folder / name, [*command, "guard", name, *options])
    return [folder / name for name in HOOKS]


def remove(repository: Path) -> list[Path]:
    """Takes the guard's hooks out again; which there were."""
    folder = hooks_folder(repository)
    found = [folder / name for name in HOOKS if (folder / name).exists()]
    ours = [hook for hook in found if not _is_foreign(hook)]
    for hook in ours:
        hook.unlink()
    return ours


def protected_branches(repository: Path) -> tuple[str, ...]:
    """The branches, or patterns of them, that take accepted commits only."""
    found = run_git(repository, "config", "--get-all", _PROTECTED)
    return tuple(found.splitlines()) if found else DEFAULT_PROTECTED


def hooks_folder(repository: Path) -> Path:
    """Where this repository has its hooks."""
    shown = run_git(repository, "rev-parse", "--git-path", "hooks", check=True) or "hooks"
    return (repository / shown).resolve()


def find_repository(path: Path) -> Path:
    """The folder of a repository, bare or not; BadArgument if there is none."""
    if run_git(path, "rev-parse", "--git-dir") is None:
        raise BadArgument(f"{str(path)!r} is no git repository")
    return path.resolve()


def _is_foreign(hook: Path) -> bool:
    try:
        return MARK not in hook.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False


def _write_hook(path: Path, words: Sequence[str]) -> None:
    text = f'#!/bin/sh\n{MARK}\nexec {shlex.join(words)} -- "$@"\n'
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    os.replace(beside, path)


def run_git(repository: Path, *words: str, check: bool = False) -> str | None:
    """What git answers in this repository; None if it fails and `check` is not set. Within a hook
    git's own variables name the repository, and they stay as they are."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=repository,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise GenlockError("git is not installed, and the guard needs it") from None
    if done.returncode == 0:
        return os.fsdecode(done.stdout).removesuffix("\n")
    if not check:
        return None
    said = os.fsdecode(done.stderr).strip() or f"exit status {done.returncode}"
    raise GenlockError(f"git {words[0]} failed: {said}")
