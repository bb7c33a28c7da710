"""Exit codes that a script can trust."""

from __future__ import annotations

from typing import Final

from genlock import errors

OK: Final = 0
ERROR: Final = 1
"""An error of the store or the machine."""
USAGE: Final = 2
"""The call is wrong as typed; nothing was changed."""
NOT_FOUND: Final = 3
"""No such task, session, result or project; for `next`: nothing is ready."""
NOT_ALLOWED: Final = 4
"""The state of the record does not allow the act, or the key does not, or a key is missing."""
CONFLICT: Final = 5
"""A claim was denied, or a renewal, release or submission was refused: another worker has the
right."""

ALREADY_HELD: Final = 6
"""The session and agent hold the claim already: another worker of theirs may be working on the
task."""

CLAIM_LOST: Final = 120
"""`run`: the claim was lost, and the command was ended."""
RESULT_REFUSED: Final = 121
"""`run`: the command succeeded, and its result was refused and kept."""
UNREACHABLE: Final = 122
"""`run`: no coordinator was reached."""

BROKEN_OFF: Final = 130
"""Interrupted by Ctrl-C."""
NOBODY_READS: Final = 141
"""The reader of the answer has gone, as in `genlock events | head -1`: the code that a shell
reports for a program ended by SIGPIPE."""

_CODES: Final[tuple[tuple[type[errors.GenlockError], int], ...]] = (
    (errors.BadArgument, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.NotAllowed, NOT_ALLOWED),
    (errors.AccessRefused, NOT_ALLOWED),
)


def code_of(error: errors.GenlockError) -> int:
    """Returns the exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ERROR)
