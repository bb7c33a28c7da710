"""`isolation: container`: the words before a command that put it into a container, with its
worktree mounted.

The words come from a template of the user's. Those with {git_folder} in them are repeated for each
folder of git's that a commit writes to, together with the option before them:

    podman run --rm -v {worktree}:{worktree} -v {git_folder}:{git_folder} -w {worktree} IMAGE

Without a template it is bubblewrap, if that is there: everything can be read, and only the worktree
and the places that a commit and the result need can be written. The network is as outside, because
agents need their model's service.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from genlock.errors import BadArgument
from genlock.work_settings import FIELD
from genlock.worker.workspace import Workspace

BUBBLEWRAP: Final = (
    "bwrap --die-with-parent --unshare-pid --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp "
    "--ro-bind {git} {git} --bind {git_folder} {git_folder} --bind {files} {files} "
    "--bind {worktree} {worktree} --chdir {worktree} --"
)
_EACH: Final = "{git_folder}"


def container_words(template: str, workspace: Workspace, **fields: str) -> tuple[str, ...]:
    """The words before a command in this workspace; `fields` are the others that a template may
    have. BadArgument if there is no template, and no bubblewrap."""
    if not template and shutil.which("bwrap") is None:
        raise BadArgument(
            "the task asks for a container, and bubblewrap is not installed: install it, or type: "
            "genlock config set --user container 'COMMAND'"
        )
    values = fields | {"worktree": workspace.folder, "branch": workspace.branch}
    words = _repeated(shlex.split(template or BUBBLEWRAP), workspace.git_folders)
    return tuple(_filled(word, values | {"git_folder": folder}) for word, folder in words)


def _filled(word: str, values: Mapping[str, str]) -> str:
    return FIELD.sub(lambda found: values[found[1]], word)


def _repeated(words: Sequence[str], folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word, and the folder that it stands for: the words with {git_folder}, and the option
    before them, come once for each folder."""
    groups = [(each, list(found)) for each, found in groupby(words, lambda word: _EACH in word)]
    option: list[str] = []
    for number, (each, found) in enumerate(groups):
        if each:
            for folder in folders:
                yield from ((word, folder) for word in (*option, *found))
            option = []
            continue
        is_followed = number + 1 < len(groups) and found[-1].startswith("-")
        option = found[-1:] if is_followed else []
        yield from ((word, "") for word in found[: len(found) - len(option)])
