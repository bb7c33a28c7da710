"""Places where a test kills the process.

`GENLOCK_FAILPOINT=name` kills at the first `hit(name)`, `name:3` at the third: SIGKILL, so that
nothing is tidied up. Without the variable, which is read once at import, `hit` does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable


def _armed(setting: str) -> Callable[[str], None]:
    """Returns a `hit` that counts down and kills the process."""
    import signal

    target, _, count = setting.partition(":")
    left = int(count or 1)

    def count_down(name: str) -> None:
        nonlocal left
        if name == target:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return count_down


def _nothing(name: str) -> None:
    """Does nothing: the `hit` of every ordinary run."""


_setting = os.environ.get("GENLOCK_FAILPOINT")
hit: Callable[[str], None] = _armed(_setting) if _setting else _nothing
"""Marks a failpoint: kills the process if this one is armed."""
