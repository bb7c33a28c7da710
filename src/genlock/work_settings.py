"""The settings of `genlock run` and `genlock work`, with a check for each value.

Two of them are commands that run on the user's machine, so only the user sets them: a project's
file, which comes with a clone, cannot.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, Final

from genlock.errors import BadArgument

NO_CONTAINER: Final = "none"
"""As `container`: the command makes its own container."""
CONTAINER_FIELDS: Final = ("worktree", "files", "git", "git_folder", "task", "branch")
FIELD: Final = re.compile(r"\{([^{}]*)\}")


def check_base(value: object) -> str:
    """Checks the name of a branch or commit. Whether it exists shows when a worktree is made."""
    if not isinstance(value, str) or not value.isprintable() or value.startswith("-"):
        raise BadArgument(
            f"worktree_base is the branch that worktrees begin at, such as main, not {value!r}"
        )
    return value


def check_on_complete(value: object) -> str:
    """Checks a command; empty for none."""
    _words("on_complete", value)
    return str(value)


def check_container(value: object) -> str:
    """Checks a template; `none`, or empty for bubblewrap."""
    words = _words("container", value)
    text = " ".join(words)
    unknown = [name for name in FIELD.findall(text) if name not in CONTAINER_FIELDS]
    if unknown or re.search(r"[{}]", FIELD.sub("", text)):
        fields = ", ".join("{" + name + "}" for name in CONTAINER_FIELDS)
        raise BadArgument(
            f"container is {NO_CONTAINER}, or a command with the fields {fields}, not {value!r}"
        )
    if words and words != [NO_CONTAINER] and "{worktree}" not in text:
        raise BadArgument(f"container has to mount the worktree, {{worktree}}, not {value!r}")
    return str(value)


def _words(name: str, value: object) -> list[str]:
    try:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError("it is no text")
        return shlex.split(value)
    except ValueError as error:
        raise BadArgument(f"{name} is a command, not {value!r}: {error}") from None


CHECKS: Final[dict[str, Callable[[object], Any]]] = {
    "worktree_base": check_base,
    "on_complete": check_on_complete,
    "container": check_container,
}

DEFAULTS: Final[dict[str, Any]] = {"worktree_base": "HEAD", "on_complete": "", "container": ""}
"""An empty `container` means bubblewrap, if it is installed."""
