"""Processes: the identity of this process, and its view of others.

A pid alone is no identity: it is reused, and it counts in one pid namespace only. Host, boot,
namespace, pid and start time together are one. `genlock.core.process_identity.is_gone` has the
rules for a process that is gone; this module asks the system.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from genlock.core.model import Process
from genlock.core.process_identity import NO_NAMESPACES, Observer, Sight, is_gone
from genlock.core.process_identity import received as received_by

INITIAL_NAMESPACE = "4026531836"
"""The pid namespace that Linux boots into (`PROC_PID_INIT_INO`), with the clock that it boots
with."""

_INITIAL_CLOCK = "4026531834"
_LONGEST_STAT = 4096


class _Own:
    """The identity of this process, cached to avoid system calls. A fork may lead into another
    namespace."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.namespace: str | None = None
        self.sees_its_namespace: bool | None = None


own = _Own()
os.register_at_fork(after_in_child=own.__init__)  # type: ignore[misc]


@cache
def host() -> str:
    """Returns this machine's name."""
    return os.uname().nodename


@cache
def boot() -> str:
    """Returns an id of the present boot, or "" if there is none."""
    if sys.platform == "darwin":
        return _run("sysctl", "-n", "kern.bootsessionuuid")
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace() -> str:
    """Returns the namespace in which this process sees pids and start times; "" if it is
    unknown."""
    if own.namespace is None:
        own.namespace = _namespace()
    return own.namespace


def _namespace() -> str:
    if sys.platform == "darwin":
        return NO_NAMESPACES
    if not sees_its_namespace():
        return ""
    try:
        pids = _inode("pid")
    except OSError:
        return ""
    try:
        clock = _inode("time")
    except OSError:
        return pids  # an older kernel has one clock
    # Start times are shown by the reader's clock.
    return pids if clock == _INITIAL_CLOCK else f"{pids}.{clock}"


def _inode(kind: str) -> str:
    """Returns the number in `pid:[4026531836]`."""
    return os.readlink(f"/proc/self/ns/{kind}").partition("[")[2].rstrip("]")


def sees_its_namespace() -> bool:
    """Does /proc show the processes of our own pid namespace? After `unshare --pid --fork`, or in a
    sandbox, it may show another's."""
    if own.sees_its_namespace is None:
        own.sees_its_namespace = not _has_proc() or _has_own_proc()
    return own.sees_its_namespace


def _has_own_proc() -> bool:
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return (
                        len(line.split()) == 2
                    )  # one pid for each namespace from that of /proc down to ours
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def observer() -> Observer:
    """Returns the place from which this process observes others."""
    return Observer(host(), boot(), namespace())


def identify(pid: int | None = None) -> Process | None:
    """Returns the identity of a process on this machine. None if there is no such process, or if it
    is not visible from here."""
    pid = os.getpid() if pid is None else pid
    started = start_time(pid)
    return None if started is None else Process(host(), boot(), pid, started, namespace())


def start_time(pid: int) -> int | None:
    """Returns the start time of the process, in the system's own unit; None if it does not exist,
    is a zombie or is not visible."""
    seen = look(pid)
    return None if isinstance(seen, Sight) else seen


def look(pid: int) -> Sight | int:
    """Returns the start time of a process, or a `Sight`."""
    if not sees_its_namespace():
        return Sight.HIDDEN
    seen = _look_in_proc(pid) if _has_proc() else _look_by_ps(pid)
    return _look_by_signal(pid) if seen is None else seen


@cache
def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


def _look_in_proc(pid: int) -> Sight | int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read(_LONGEST_STAT)
    except OSError:
        return None
    # The command's name is in brackets and may itself contain brackets and blanks.
    fields = stat[stat.rindex(b")") + 2 :].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    if state in (b"Z", b"X") and threads <= 1:
        return Sight.ZOMBIE
    return started  # even if only the first thread has ended, which looks like a zombie


def _look_by_ps(pid: int) -> Sight | int | None:
    state, _, started = _run("ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)).partition(" ")
    if not started:
        return None
    if state.startswith("Z"):
        return Sight.ZOMBIE
    return int.from_bytes(started.strip().encode()[-20:], "big") % 2**53


def _look_by_signal(pid: int) -> Sight:
    """Distinguishes a process that may not be inspected from one that does not exist: `hidepid`
    does not hide that."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return Sight.ABSENT
    except (OSError, OverflowError):
        pass
    return Sight.HIDDEN


def _run(*command: str) -> str:
    """Returns the output of a command in the C locale and UTC; "" if it cannot be run."""
    import subprocess

    fixed = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=fixed
        ).stdout.strip()
    except OSError:
        return ""


def received(process: Process | None) -> Process | None:
    """Returns the identity to store for a process that reports now."""
    return None if process is None else received_by(process, observer())


def gone(process: Process | None, *, shared: bool) -> bool:
    """Is it known that this process has ended? `shared` is the store's limit of that name."""
    return is_gone(process, observer(), shared=shared, look=look)
