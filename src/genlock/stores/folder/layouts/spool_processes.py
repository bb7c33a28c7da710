"""The processes that the spool layout identifies by the pid in a file's name."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

_LATE: float = 2.0
"""How many seconds the clocks of a file and of a process may differ."""


@cache
def this_machine() -> str:
    """Identifies host, boot and pid namespace, within which a pid and a start time are valid."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = namespace = sys.platform
    return f"{os.uname().nodename} {boot} {namespace}"


def ticks_at_start(pid: int) -> int | None:
    """Returns when this process started, in ticks since boot; 1 if only its presence can be seen;
    None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError):
        pass
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except OSError:
        pass  # it belongs to another user
    return 1


def pid_gone(pid: int, marked: Path) -> bool:
    """Has the process with this pid ended? A process that started after the file got its name is a
    different one with the same pid."""
    ticks = ticks_at_start(pid)
    if ticks is None:
        return True
    try:
        return ticks > 1 and _started_at(ticks) > os.lstat(marked).st_ctime + _LATE
    except OSError:
        return False


def _started_at(ticks: int) -> float:
    return _boot_time() + ticks / os.sysconf("SC_CLK_TCK")


@cache
def _boot_time() -> float:
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next(float(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, StopIteration):
        return 0.0
