"""Which process a session is, and whether it is known to be gone.

A pid alone is no identity: it is reused. Host, boot, pid and start time together are. What runs on another host, or ran before
a reboot of an unknown kind, is never *known* to be gone; its lease decides.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from genlock.core.model import Process

_LONGEST_STAT = 4096


class _Own:
    """This process, known without asking the system at every call."""

    def __init__(self) -> None:
        self.pid = os.getpid()


own = _Own()
os.register_at_fork(after_in_child=own.__init__)  # type: ignore[misc]


@cache
def host() -> str:
    """This machine's name."""
    return os.uname().nodename


@cache
def boot() -> str:
    """An id of the present boot, "" where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def identify(pid: int | None = None) -> Process | None:
    """The identity of a process on this machine, or None if there is no such process."""
    pid = os.getpid() if pid is None else pid
    started = start_time(pid)
    return None if started is None else Process(host(), boot(), pid, started)


def start_time(pid: int) -> int | None:
    """When the process started, in the system's own unit; None if it does not exist or is a zombie."""
    if not _has_proc():
        return _start_time_by_ps(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read(_LONGEST_STAT)
    except OSError:
        return None
    # The command's name is in brackets and may itself contain brackets and blanks.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@cache
def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


def _start_time_by_ps(pid: int) -> int | None:
    import subprocess

    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return int.from_bytes(shown.encode()[-20:], "big") % 2**53 if shown else None


def gone(process: Process | None) -> bool:
    """Is it known that this process has ended?"""
    if process is None or process.host != host():
        return False
    if process.boot != boot():
        # The same host after a reboot: nothing of the earlier boot runs any more.
        return bool(process.boot and boot())
    return start_time(process.pid) != process.started
