"""Where a service listens: who can reach that address, whether it needs keys, and the error if it
is in use."""

from __future__ import annotations

import errno
import ipaddress
import socket
from pathlib import Path
from typing import Final

from genlock.errors import BadArgument, ServiceError

_LISTENS: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""


class PortTaken(ServiceError):
    """Another process listens on the port."""


def is_loopback(host: str) -> bool:
    """Can only this machine reach the address? An unknown name counts as reachable by others."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def asks_for_keys(host: str, wanted: bool | None) -> bool:
    """Are keys needed? BadArgument if none are wanted and others could reach the service."""
    if is_loopback(host):
        return bool(wanted)
    if wanted is False:
        raise BadArgument(
            f"without keys everybody who reaches {host} could do everything; leave out --no-keys "
            "and type first: genlock keys create me --role admin, or listen at 127.0.0.1"
        )
    return True


def listen(host: str, port: int) -> socket.socket:
    """Opens a listening socket. Port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be TCP by name. Otherwise the event loop does not switch off Nagle's
    # algorithm, which costs 40 ms per answer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(4096)  # at once: another process can still take a port that is only bound
    except OSError as error:
        listening.close()
        raise _said(error, host, port) from None
    return listening


def listen_near(host: str, port: int) -> socket.socket:
    """Listens on this port, or on any free one if it is taken."""
    try:
        return listen(host, port)
    except PortTaken:
        return listen(host, 0)


def url_of(listening: socket.socket) -> str:
    """The URL for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _said(error: OSError, host: str, port: int) -> Exception:
    """The system's error as one that says what to do."""
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"port {port} of {host} is taken{_by_whom(port)}; choose another with --port, or "
            "--port 0 for any that is free"
        )
    if error.errno == errno.EACCES:
        return BadArgument(f"port {port} is not for everyone; choose one from 1024 on with --port")
    return BadArgument(
        f"this machine cannot listen at {host}: {error.strerror or error}; --host 127.0.0.1 is for "
        "this machine alone"
    )


def _by_whom(port: int) -> str:
    """The process that listens on the port, if we are allowed to see it."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in Path("/proc").glob("[0-9]*/fd") if sockets else ():
        try:
            if any(str(link.readlink()) in sockets for link in folder.iterdir()):
                command = (
                    (folder.parent / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                    .strip()
                )
                return f" by process {folder.parent.name} ({command[:80]})"
        except OSError:
            continue  # another user's process, or one that has ended
    return ""


def _inodes(port: int) -> list[str]:
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                found.append(fields[9])
    return found
