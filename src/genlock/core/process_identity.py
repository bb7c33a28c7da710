"""What the identity of a process may be, and when a process is known to be gone.

A holder that is known to be gone loses its claim at once, so "gone" needs proof. "Not visible" is
none: the process may run in another pid namespace or on another machine of the same name, or
`/proc` may hide it (`hidepid`). Where there is no proof the lease decides.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from genlock.core.model import Process
from genlock.errors import BadArgument

LONGEST_HOST: Final = 255
LONGEST_NAMESPACE: Final = 64
MOST_PID: Final = 2**31 - 1
MOST_STARTED: Final = 2**53 - 1
"""What a double still holds exactly: numbers travel as JSON."""

NO_NAMESPACES: Final = "none"
"""The namespace of every process on a system without namespaces. "" is another matter: nobody knows
the namespace."""


class Observer(NamedTuple):
    """Where somebody looks at processes from."""

    host: str
    boot: str
    namespace: str


class Sight(Enum):
    """What an observer sees of a pid, if not a running process with a start time."""

    ABSENT = auto()
    """The system says that no process has this pid, not even a hidden one."""

    ZOMBIE = auto()
    """All threads of the process have ended. Its parent has not taken note yet."""

    HIDDEN = auto()
    """There may be such a process, and it may not be looked at."""


def is_gone(
    process: Process | None, observer: Observer, *, shared: bool, look: Callable[[int], Sight | int]
) -> bool:
    """Is it known that this process has ended?

    `shared` says whether the store can be reached from other machines. `look` gives the start time
    of the process that has this pid in the observer's namespace, or what else the observer sees of
    it; it is called only if the pid means anything there.
    """
    if process is None or process.host != observer.host or not process.namespace:
        return False
    if not process.boot or not observer.boot:
        return False
    if process.namespace != observer.namespace:
        # Also if the boot differs: a container may have a boot id of its own (systemd-nspawn mounts
        # one), and run on this machine now.
        return False
    if process.boot != observer.boot:
        # A file on one machine: it was restarted, and nothing of the earlier boot runs. Else it may
        # be another machine of this name.
        return not shared
    seen = look(process.pid)
    if isinstance(seen, Sight):
        return seen is not Sight.HIDDEN
    return seen != process.started


def received(process: Process | None, observer: Observer) -> Process | None:
    """A process that reports to the observer now, as it is to be remembered.

    It runs now. So if it reports this host and another boot, it is on another machine of the same
    name (a client of a service, mostly), and the observer can tell nothing of it, neither now nor
    after the next restart.
    """
    if process is None or process.host != observer.host or process.boot == observer.boot:
        return process
    return replace(process, namespace="")


def check_process(process: Any) -> Process:
    """A process's identity, or BadArgument that says which part of it is none."""
    if not isinstance(process, Process):
        raise BadArgument(f"process is a Process, not {process!r:.60}")
    _check_text("host", process.host, LONGEST_HOST)
    _check_text("boot", process.boot, LONGEST_HOST)
    _check_number("pid", process.pid, 1, MOST_PID)
    _check_number("started", process.started, 0, MOST_STARTED)
    _check_text("namespace", process.namespace, LONGEST_NAMESPACE)
    return process


def _check_text(name: str, text: Any, longest: int) -> None:
    if not isinstance(text, str) or len(text) > longest or not text.isprintable():
        said = repr(text[:60]) if isinstance(text, str) else type(text).__name__
        raise BadArgument(
            f"a process's {name} has at most {longest} printable characters, which {said} has not"
        )


def _check_number(name: str, number: Any, least: int, most: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadArgument(f"a process's {name} is a whole number from {least} to {most:,}")
