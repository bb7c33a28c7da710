"""Genlock's own headers, and the encoding of an identity in them.

The identity of a connection (session, agent, user, host, process) is sent with every request. It is
percent-encoded, because a name may have characters that a header may not. Values in the request
itself take precedence.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from genlock.core.model import Process
from genlock.core.process_identity import check_process
from genlock.errors import BadArgument, ServiceMismatch

PROTOCOL: Final = 1
"""The protocol number. It rises when an older client or service would misunderstand the other."""

OLDEST_PROTOCOL: Final = 1
"""The oldest protocol that is still understood."""

PROTOCOL_HEADER: Final = "genlock-protocol"
"""The protocol number, a space, and the name and version of the sender: `1 genlock/0.1.0`."""

REQUEST_HEADER: Final = "x-request-id"
OPERATION_HEADER: Final = "idempotency-key"
SESSION_HEADER: Final = "genlock-session"
AGENT_HEADER: Final = "genlock-agent"
USER_HEADER: Final = "genlock-user"
HOST_HEADER: Final = "genlock-host"
PROCESS_HEADER: Final = "genlock-process"

_MOST_DIGITS: Final = 16
IDENTITY_HEADERS: Final = (SESSION_HEADER, AGENT_HEADER, USER_HEADER, HOST_HEADER, PROCESS_HEADER)


def pack_name(name: str) -> str:
    """Returns a name as the value of a header."""
    return quote(name, safe=" @:+,;=~")


def unpack_name(value: str) -> str:
    """Returns the name in the value of a header."""
    return unquote(value, errors="strict")


def pack_process(process: Process) -> str:
    """Returns a process as the value of a header."""
    texts = [quote(text, safe="") for text in (process.host, process.boot, process.namespace)]
    return f"{texts[0]}/{texts[1]}/{process.pid}/{process.started}/{texts[2]}"


def unpack_process(value: str) -> Process:
    """Returns the process in the value of a header. Older clients do not send the namespace."""
    parts = value.split("/")
    if len(parts) not in (4, 5) or not all(
        number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
        for number in parts[2:4]
    ):
        raise BadArgument(
            f"header {PROCESS_HEADER} is host/boot/pid/start time/pid namespace, not {value[:80]!r}"
        )
    try:
        host, boot, namespace = (
            unquote(part, errors="strict") for part in (*parts[:2], "".join(parts[4:]))
        )
    except UnicodeDecodeError:
        raise BadArgument(
            f"header {PROCESS_HEADER} is percent-encoded UTF-8, which {value[:80]!r} is not"
        ) from None
    return check_process(Process(host, boot, int(parts[2]), int(parts[3]), namespace))


def check_protocol(other: str | None, who: str, version: str) -> None:
    """Raises ServiceMismatch if the other side's protocol is not understood here. `who` names the
    other side, `version` is our own."""
    if other is None:
        return
    said = other.partition(" ")[0][:9]  # longer ones would not be read as numbers
    number = int(said) if said.isascii() and said.isdigit() else 0
    if number > PROTOCOL:
        ours = "service" if who == "client" else "client"
        raise ServiceMismatch(
            f"the {who} speaks protocol {other[:40]!r}, this {ours} (genlock {version}) at most "
            f"{PROTOCOL}: install the newer genlock for the {ours}"
        )
    if number < OLDEST_PROTOCOL:
        raise ServiceMismatch(
            f"the {who} speaks protocol {other[:40]!r}, genlock {version} here needs "
            f"{OLDEST_PROTOCOL} or later: install the newer genlock for the {who}"
        )
