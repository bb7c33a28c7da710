"""Room: how much of a task's record its children may take.

A parent keeps a note of each child, and while it is under way or done also the name of each that was reset. What no store
takes could never be written again, and the parent would neither open nor be renewed: so too many are refused where they come in.
Beside its children a record has room for the largest definition, with what was heard of its dependencies, and for either
the largest result or the definitions of subtasks that are still to be made.
"""

from __future__ import annotations

from collections.abc import Iterable

from genlock.core.policy import MAX_CHILDREN_BYTES

_NOTE = len('"":{"version":1000000,"status":"COMPLETED"},"",')
"""What is kept of a child besides its id, which may stand there twice."""


def lacks_room(parent: str, children: Iterable[str]) -> str | None:
    """What is wrong if this task is to have these children, all of them; None if nothing is."""
    size = sum(2 * len(name) + _NOTE for name in children)
    if size <= MAX_CHILDREN_BYTES:
        return None
    return (
        f"the subtasks of {parent!r} could take {size:,} bytes in its record, at most {MAX_CHILDREN_BYTES:,} are kept there; "
        "put a task between, or give them shorter ids"
    )
