"""The branches of generations: `genlock/<task>/gen<N>`, from task and generation and back."""

from __future__ import annotations

import re
from typing import Final

BRANCHES: Final = "genlock"
"""Branches are called genlock/<task>/gen<N>."""
_BRANCH: Final = re.compile(BRANCHES + r"/([^/]+)/gen(0|[1-9][0-9]{0,18})")


def branch_of(task_id: str, generation: int) -> str:
    """The branch of this generation."""
    return f"{BRANCHES}/{plain_id(task_id)}/gen{generation}"


def generation_of(branch: str) -> tuple[str, int] | None:
    """The task and generation that a branch belongs to; None if it is no such branch."""
    found = _BRANCH.fullmatch(branch)
    if found is None:
        return None
    task_id = found[1].replace("%2E", ".").replace("+", ":")
    return (task_id, int(found[2])) if branch_of(task_id, int(found[2])) == branch else None


def plain_id(task_id: str) -> str:
    """A task's id as part of a branch and as a file's name. Two ids never become the same."""
    text = task_id.replace(":", "+")
    return re.sub(r"\A\.|(?<=\.)\.|\.\Z|\.(?=lock\Z)", "%2E", text)
