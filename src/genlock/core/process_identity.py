"""Identities of processes, and the proof that a process is gone.

A holder that is known to be gone loses its claim at once, so "gone" needs proof. "Not visible" is
not a proof: the process may run in another pid namespace or on another machine of the same name, or
`/proc` may hide it (`hidepid`). Without proof the lease decides.
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
"""The largest integer that a double holds exactly: numbers travel as JSON."""

NO_NAMESPACES: Final = "none"
"""The namespace of every process on a system without namespaces. "" is different: it means that the
namespace is unknown."""


class Observer(NamedTuple):
    """The place from which processes are observed."""

    host: str
    boot: str
    namespace: str


class Sight(Enum):
    """An observer's view of a pid that is not a running process with a start time."""

    ABSENT = auto()
    """The system says that no process has this pid, not even a hidden one."""

    ZOMBIE = auto()
    """All threads of the process have ended. Its parent has not reaped it yet."""

    HIDDEN = auto()
    """Such a process may exist, but the observer may not inspect it."""


def is_gone(
    process: Process | None, observer: Observer, *, shared: bool, look: Callable[[int], Sight | int]
) -> bool:
    """Is it known that this process has ended?

    `shared` says whether the store can be reached from other machines. `look` returns the start
    time of the process with this pid in the observer's namespace, or a `Sight`. It is called only
    if the pid has a meaning there.
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
        # A file on one machine: the machine was restarted, and no process of the earlier boot runs.
        # If the store is shared, it may be another machine of this name.
        return not shared
    seen = look(process.pid)
    if isinstance(seen, Sight):
        return seen is not Sight.HIDDEN
    return seen != process.started


def received(process: Process | None, observer: Observer) -> Process | None:
    """Returns the identity to store for a process that reports to the observer now.

    The process runs now. So if it reports this host and another boot, it is on another machine of
    the same name (usually a client of a service). The observer can never tell whether it is gone,
    neither now nor after the next restart.
    """
    if process is None or process.host != observer.host or process.boot == observer.boot:
        return process
    return replace(process, namespace="")


def check_process(process: Any) -> Process:
    """Returns a process's identity. Raises BadArgument that names the invalid part."""
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
