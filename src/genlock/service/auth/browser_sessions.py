"""Signing in: a key for a while, for a browser, which sends no key of itself.

Whoever shows a good key is given a ticket, which the browser sends as a cookie: `<key's
id>.<end>.<seal>`. It has nothing of the secret. The seal is an HMAC over id, end and the digest of
the secret that was shown, under a secret of the service's own: who can only read the store has the
digests, and makes no ticket of them. So a ticket ends with its time, and as soon as its key does:
when that is revoked, expired or given another secret, within half a second like for any request, on
every replica that has the same secret.

A browser sends cookies also with requests that some other page has made it send. Hence a looking
ticket is good for GET and HEAD only, as an observer, whatever the key's role is. An acting ticket
(`acting_sign_ins`) lets a page of ours act as well.

The user who started a service on loopback has a token instead of a key, which ends with the
service, and so do the tickets for it. Browsers send a cookie to all ports of a host. So it is named
by the port: a service does not overwrite what another one has set.
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
"""The methods that a ticket is good for."""

_SHAPE: Final = re.compile(r"([a-z2-7]{12})\.([0-9]{1,12})\.([0-9a-f]{64})")
_IN_HEADER: Final = re.compile(rf"(?:^|;)[ \t]*{COOKIE}(?:_[0-9]{{1,5}})?=([^;]*)")
_LOCAL: Final = "localservice"
"""In place of a key's id, in tickets for the token."""
_MOST_TICKETS: Final = 20


class BrowserSessions:
    """Gives out tickets and knows them again. `secret` is what replicas share; without one it is
    this service's alone."""

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
        """A ticket for this key, and what it lets see; None if it is unknown, expired or revoked.
        BadArgument if it is no key at all."""
        key, digest = parse_key(text), ""
        known = await self._keyring.look(key.id)
        if known is None or not opens(known.record, digest := digest_of(key.secret), known.now):
            return None
        end = int((known.now + timedelta(seconds=LIFE_SECONDS)).timestamp())
        return f"{key.id}.{end}.{self._seal(key.id, end, digest)}", _looking(known.grant)

    def begin_local(self) -> str:
        """A ticket for the user who started the service."""
        assert self._token is not None
        end = int(self._now()) + LIFE_SECONDS
        return f"{_LOCAL}.{end}.{self._seal(_LOCAL, end, self._token.digest)}"

    async def find(self, ticket: str) -> Grant | None:
        """What it lets see; None if it is not good, or no longer."""
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
    """The tickets in a request's cookies: ours, and perhaps those of services at other ports."""
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
    """The header that has a browser keep a ticket; an empty one is forgotten. No page can read it,
    and no other site has it sent."""
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
    """The token, and the codes that are out. Belongs to one event loop."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.text: Final = PREFIX + secrets.token_hex(32)
        self.digest: Final = digest_of(self.text)
        self._header = b"Bearer " + self.text.encode()
        self._monotonic = monotonic
        self._codes: dict[str, float] = {}
        """Until when, by the digest of the code."""

    def __repr__(self) -> str:
        return "LocalToken()"

    def is_sent(self, headers: dict[bytes, bytes]) -> bool:
        """Does a request bring it, in the form in which our client does?"""
        given = headers.get(b"authorization")
        return given is not None and compare_digest(given, self._header)

    def is_same(self, text: str) -> bool:
        """Is this the token? It takes as long whatever they have in common."""
        return compare_digest(text.encode(), self.text.encode())

    def make_code(self) -> str:
        """A new code."""
        code = secrets.token_urlsafe(32)
        self._codes[digest_of(code)] = self._monotonic() + CODE_SECONDS
        if len(self._codes) > _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def redeem(self, code: str) -> bool:
        """Was it good? It is not any more."""
        until = self._codes.pop(digest_of(code), None)
        return until is not None and self._monotonic() < until
