"""Sign-ins: a browser exchanges a key for a ticket, because it cannot send a key by itself.

The browser sends the ticket as a cookie: `<key's id>.<end>.<seal>`. It contains nothing of the
key's secret. The seal is an HMAC over id, end and the digest of the key's secret, under a secret of
the service. So someone who can only read the store has the digests, but cannot make a ticket. A
ticket ends at its time or with its key: when the key is revoked, expires or gets another secret,
the ticket ends within half a second, on every replica with the same secret.

Browsers also send cookies with requests that another site's page has caused. Hence a looking ticket
is valid for GET and HEAD only, as an observer, whatever the key's role is. An acting ticket
(`acting_sign_ins`) lets a page of ours act as well.

The user who started a service on loopback has a token instead of a key. The token ends with the
service, and so do its tickets. Browsers send a cookie to all ports of a host, so the cookie's name
contains the port: services do not overwrite each other's cookies.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from hmac import compare_digest
from typing import Final

from msgspec.structs import replace

from genlock.core.key_roles import Role, digest_of, parse_key
from genlock.core.records.api_key import opens
from genlock.errors import BadArgument
from genlock.service.auth.key_cache import KeyCache
from genlock.service.auth.permissions import OPEN, Grant
from genlock.token_files import PREFIX

COOKIE: Final = "genlock_sign_in"
LIFE_SECONDS: Final = 12 * 3600
LEAST_SECRET_BYTES: Final = 32
LOOKS: Final = frozenset({"GET", "HEAD"})
"""The methods that a looking ticket admits."""

_SHAPE: Final = re.compile(r"([a-z2-7]{12})\.([0-9]{1,12})\.([0-9a-f]{64})")
_IN_HEADER: Final = re.compile(rf"(?:^|;)[ \t]*{COOKIE}(?:_[0-9]{{1,5}})?=([^;]*)")
_LOCAL: Final = "localservice"
"""Takes the place of the key's id in tickets for the token."""
_MOST_TICKETS: Final = 20


class BrowserSessions:
    """Issues and verifies tickets. Replicas share `secret`; without one the service makes its
    own."""

    def __init__(
        self,
        key_cache: KeyCache,
        secret: bytes | None = None,
        token: LocalToken | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if secret is not None and len(secret) < LEAST_SECRET_BYTES:
            raise BadArgument(
                f"the secret by which sign-ins are sealed has {len(secret)} bytes; it needs "
                f"{LEAST_SECRET_BYTES} at least"
            )
        self._keyring = key_cache
        self._secret = os.urandom(LEAST_SECRET_BYTES) if secret is None else secret
        self._token, self._now = token, now

    async def begin(self, text: str) -> tuple[str, Grant] | None:
        """Issues a ticket for this key, with its permissions; None if the key is unknown, expired
        or revoked. BadArgument if the text is not a key."""
        key, digest = parse_key(text), ""
        known = await self._keyring.look(key.id)
        if known is None or not opens(known.record, digest := digest_of(key.secret), known.now):
            return None
        end = int((known.now + timedelta(seconds=LIFE_SECONDS)).timestamp())
        return f"{key.id}.{end}.{self._seal(key.id, end, digest)}", _looking(known.grant)

    def begin_local(self) -> str:
        """Issues a ticket for the user who started the service."""
        assert self._token is not None
        end = int(self._now()) + LIFE_SECONDS
        return f"{_LOCAL}.{end}.{self._seal(_LOCAL, end, self._token.digest)}"

    async def find(self, ticket: str) -> Grant | None:
        """The permissions of this ticket; None if it is not valid, or no longer."""
        found = _SHAPE.fullmatch(ticket)
        if found is not None and found[1] == _LOCAL:
            return self._find_local(int(found[2]), found[3])
        known = None if found is None else await self._keyring.look(found[1])
        if found is None or known is None:
            return None
        id, end, seal = found[1], int(found[2]), found[3]
        if known.now.timestamp() >= end:
            return None
        for digest in (known.record.digest, known.record.previous):
            sealed = digest is not None and hmac.compare_digest(self._seal(id, end, digest), seal)
            if digest is not None and sealed and opens(known.record, digest, known.now):
                return _looking(known.grant)
        return None

    def _find_local(self, end: int, seal: str) -> Grant | None:
        if self._token is None or self._now() >= end:
            return None
        return (
            _looking(OPEN)
            if hmac.compare_digest(self._seal(_LOCAL, end, self._token.digest), seal)
            else None
        )

    def _seal(self, id: str, end: int, digest: str) -> str:
        return hmac.digest(self._secret, f"{id}.{end}.{digest}".encode(), "sha256").hex()


def _looking(grant: Grant) -> Grant:
    return replace(grant, role=Role.OBSERVER, session=None)


def tickets_of(headers: dict[bytes, bytes]) -> list[str]:
    """The tickets in a request's cookies, which may include those of services at other ports."""
    cookies = headers.get(b"cookie")
    return (
        []
        if cookies is None
        else [
            found.strip() for found in _IN_HEADER.findall(cookies.decode("latin-1"))[:_MOST_TICKETS]
        ]
    )


def cookie(
    ticket: str,
    *,
    encrypted: bool,
    port: int | None = None,
    name: str = COOKIE,
    life: int = LIFE_SECONDS,
) -> str:
    """The header that sets the cookie; an empty ticket deletes it. Scripts cannot read the cookie,
    and browsers do not send it for other sites."""
    named = name if port is None else f"{name}_{port}"
    kept = life if ticket else 0
    return f"{named}={ticket}; Max-Age={kept}; Path=/; HttpOnly; SameSite=Strict" + (
        "; Secure" if encrypted else ""
    )


# The token of one start of a service on loopback. Only the user who started the service can read
# its file, so the token admits to everything.
#
# A browser cannot read files. It gets a link with a code, good once and for a minute, and exchanges
# the code for a ticket.


CODE_SECONDS: Final = 60.0
_MOST_CODES: Final = 100


class LocalToken:
    """The token, and the codes that were issued. Used in one event loop."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.text: Final = PREFIX + secrets.token_hex(32)
        self.digest: Final = digest_of(self.text)
        self._header = b"Bearer " + self.text.encode()
        self._monotonic = monotonic
        self._codes: dict[str, float] = {}
        """The end of each code, by the code's digest."""

    def __repr__(self) -> str:
        return "LocalToken()"

    def is_sent(self, headers: dict[bytes, bytes]) -> bool:
        """Does the request have the token in the form that our client uses?"""
        given = headers.get(b"authorization")
        return given is not None and compare_digest(given, self._header)

    def is_same(self, text: str) -> bool:
        """Is this the token? Compared in constant time."""
        return compare_digest(text.encode(), self.text.encode())

    def make_code(self) -> str:
        """Issues a new code."""
        code = secrets.token_urlsafe(32)
        self._codes[digest_of(code)] = self._monotonic() + CODE_SECONDS
        if len(self._codes) > _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def redeem(self, code: str) -> bool:
        """Was the code valid? Redeeming ends it."""
        until = self._codes.pop(digest_of(code), None)
        return until is not None and self._monotonic() < until
