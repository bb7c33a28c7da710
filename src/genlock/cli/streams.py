"""When nobody reads any more."""

from __future__ import annotations

import os
import sys


def reader_gone() -> bool:
    """Has whoever reads our pipe closed it? Nothing else would tell before the next line is written."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(found & select.POLLERR for _, found in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def forget_stdout() -> None:
    """What was not written yet shall not be written, nor tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
