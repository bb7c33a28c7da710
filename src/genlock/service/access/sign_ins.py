"""Signing in: a key for a while, for a browser, which sends no key of itself.

Whoever shows a good key is given a ticket, which the browser sends as a cookie: `<key's id>.<end>.<seal>`. It has nothing of the secret.
The seal is an HMAC over id, end and the digest of the secret that was shown, under a secret of the service's own: who can only read the
store has the digests, and makes no ticket of them. So a ticket ends with its time, and as soon as its key does: when that is revoked,
expired or given another secret, within half a second like for any request, on every replica that has the same secret.

A browser sends cookies also with requests that some other page has made it send. Hence a ticket lets in only who looks: GET and HEAD, as
an observer, whatever the key's role is.
"""

from __future__ import annotations

import hmac
import os
import re
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from genlock.core.access import Role, digest_of, parse_key
from genlock.core.api_keys import opens
from genlock.errors import BadArgument
from genlock.service.access.grant import Grant
from genlock.service.access.keyring import Keyring

COOKIE: Final = "genlock_sign_in"
LIFE_SECONDS: Final = 12 * 3600
LEAST_SECRET_BYTES: Final = 32
LOOKS: Final = frozenset({"GET", "HEAD"})
"""The methods that a ticket is good for."""

_SHAPE: Final = re.compile(r"([a-z2-7]{12})\.([0-9]{1,12})\.([0-9a-f]{64})")
_IN_HEADER: Final = re.compile(rf"(?:^|;)[ \t]*{COOKIE}=([^;]*)")


class SignIns:
    """Gives out tickets and knows them again. `secret` is what replicas share; without one it is this service's alone."""

    def __init__(self, keyring: Keyring, secret: bytes | None = None) -> None:
        if secret is not None and len(secret) < LEAST_SECRET_BYTES:
            raise BadArgument(f"the secret by which sign-ins are sealed has {len(secret)} bytes; it needs {LEAST_SECRET_BYTES} at least")
        self._keyring = keyring
        self._secret = os.urandom(LEAST_SECRET_BYTES) if secret is None else secret

    async def begin(self, text: str) -> tuple[str, Grant] | None:
        """A ticket for this key, and what it lets see; None if it is unknown, expired or revoked. BadArgument if it is no key at all."""
        key, digest = parse_key(text), ""
        known = await self._keyring.look(key.id)
        if known is None or not opens(known.record, digest := digest_of(key.secret), known.now):
            return None
        end = int((known.now + timedelta(seconds=LIFE_SECONDS)).timestamp())
        return f"{key.id}.{end}.{self._seal(key.id, end, digest)}", _looking(known.grant)

    async def find(self, ticket: str) -> Grant | None:
        """What it lets see; None if it is not good, or no longer."""
        found = _SHAPE.fullmatch(ticket)
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

    def _seal(self, id: str, end: int, digest: str) -> str:
        return hmac.digest(self._secret, f"{id}.{end}.{digest}".encode(), "sha256").hex()


def _looking(grant: Grant) -> Grant:
    return replace(grant, role=Role.OBSERVER, session=None)


def ticket_of(headers: dict[bytes, bytes]) -> str | None:
    """The ticket in a request's cookies."""
    cookies = headers.get(b"cookie")
    found = None if cookies is None else _IN_HEADER.search(cookies.decode("latin-1"))
    return None if found is None else found[1].strip()


def cookie(ticket: str, *, encrypted: bool) -> str:
    """The header that has a browser keep a ticket; an empty one is forgotten. No page can read it, and no other site has it sent."""
    life = LIFE_SECONDS if ticket else 0
    return f"{COOKIE}={ticket}; Max-Age={life}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if encrypted else "")
