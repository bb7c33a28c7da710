"""Acting tickets: they let a browser do what an operator may, for as long as a person is there.

An acting ticket is a second cookie beside the looking ticket of `browser_sessions`: `<key's
id>.<idle end>.<end>.<nonce>.<seal>`. It ends with its key, after `IDLE_SECONDS` without a renewal,
and after `LIFE_SECONDS` in any case.

1. Only an operator's or admin's key makes one, or on loopback the token of the service. It admits
   an operator, never an admin: no browser creates keys.
2. The cookie alone does nothing. A request that acts also sends the ticket's proof in a header, and
   the browser's Origin. The proof is given out once, in the fragment of the address that a sign-in
   leads to. So neither a page of another site, nor a service at another port of the same host,
   which is sent the cookie, can act with it.
3. The proof is an HMAC over the nonce, so it is not in the cookie. A ticket that is renewed keeps
   its nonce, and the page keeps its proof.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from genlock.core.key_roles import Role, digest_of, parse_key
from genlock.core.records.api_key import opens
from genlock.service.auth.browser_sessions import LIFE_SECONDS, LocalToken
from genlock.service.auth.key_cache import KeyCache, KnownKey
from genlock.service.auth.permissions import OPEN, Grant

COOKIE: Final = "genlock_act"
PROOF_HEADER: Final = "x-genlock-proof"
IDLE_SECONDS: Final = 15 * 60

_SHAPE: Final = re.compile(
    r"([a-z2-7]{12})\.([0-9]{1,12})\.([0-9]{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})"
)
_IN_HEADER: Final = re.compile(rf"(?:^|;)[ \t]*{COOKIE}(?:_[0-9]{{1,5}})?=([^;]*)")
_LOCAL: Final = "localservice"
_MOST_TICKETS: Final = 20


class NewSignIn(NamedTuple):
    """A ticket for the cookie, and the proof for the page."""

    text: str
    proof: str


class Acting(NamedTuple):
    """A valid ticket: its permissions, its remaining time, and the ticket that renews it."""

    grant: Grant
    seconds: int
    renewed: str


class ActingSignIns:
    """Issues and verifies acting tickets. Replicas share the secret."""

    def __init__(
        self,
        key_cache: KeyCache,
        secret: bytes,
        token: LocalToken | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._key_cache, self._secret = key_cache, secret
        self._token, self._now = token, now

    async def begin(self, text: str) -> NewSignIn | None:
        """Issues a ticket for this key; None if the key is not valid, or not an operator's."""
        key = parse_key(text)
        known = await self._key_cache.look(key.id)
        digest = digest_of(key.secret)
        if known is None or not opens(known.record, digest, known.now):
            return None
        if not known.grant.role.covers(Role.OPERATOR):
            return None
        return self._new(key.id, digest, int(known.now.timestamp()))

    def begin_local(self) -> NewSignIn:
        """Issues a ticket for the user who started the service."""
        assert self._token is not None
        return self._new(_LOCAL, self._token.digest, int(self._now()))

    async def find(self, ticket: str) -> Acting | None:
        """The permissions of this ticket; None if it is not valid, or no longer."""
        found = _SHAPE.fullmatch(ticket)
        if found is None:
            return None
        if found[1] == _LOCAL:
            return self._find_local(found)
        known = await self._key_cache.look(found[1])
        if known is None or not known.grant.role.covers(Role.OPERATOR):
            return None
        now = int(known.now.timestamp())
        for digest in _digests(known, known.now):
            acting = self._opened(found, digest, now, known.grant)
            if acting is not None:
                return acting
        return None

    async def admit(self, ticket: str, proof: str) -> Grant | None:
        """The permissions of a request with this ticket and this proof; None if it has none."""
        found = _SHAPE.fullmatch(ticket)
        if found is None or not hmac.compare_digest(
            self._proof(found[1], found[4]).encode(), proof.encode()
        ):
            return None
        acting = await self.find(ticket)
        return None if acting is None else acting.grant

    def _find_local(self, found: re.Match[str]) -> Acting | None:
        if self._token is None:
            return None
        return self._opened(found, self._token.digest, int(self._now()), OPEN)

    def _opened(self, found: re.Match[str], digest: str, now: int, grant: Grant) -> Acting | None:
        id, idle_end, end, nonce, seal = found.groups()
        good = hmac.compare_digest(self._seal(id, int(idle_end), int(end), nonce, digest), seal)
        until = min(int(idle_end), int(end))
        if not good or now >= until:
            return None
        renewed = self._text(id, digest, min(now + IDLE_SECONDS, int(end)), int(end), nonce)
        return Acting(replace(grant, role=Role.OPERATOR, session=None), until - now, renewed)

    def _new(self, id: str, digest: str, now: int) -> NewSignIn:
        nonce = secrets.token_hex(16)
        text = self._text(id, digest, now + IDLE_SECONDS, now + LIFE_SECONDS, nonce)
        return NewSignIn(text, self._proof(id, nonce))

    def _text(self, id: str, digest: str, idle_end: int, end: int, nonce: str) -> str:
        return f"{id}.{idle_end}.{end}.{nonce}.{self._seal(id, idle_end, end, nonce, digest)}"

    def _seal(self, id: str, idle_end: int, end: int, nonce: str, digest: str) -> str:
        return self._hmac(f"act {id}.{idle_end}.{end}.{nonce}.{digest}")

    def _proof(self, id: str, nonce: str) -> str:
        return self._hmac(f"proof {id}.{nonce}")

    def _hmac(self, text: str) -> str:
        return hmac.digest(self._secret, text.encode(), "sha256").hex()


def acting_tickets_of(headers: dict[bytes, bytes]) -> list[str]:
    """The acting tickets in a request's cookies, which may include those of services at other
    ports."""
    cookies = headers.get(b"cookie", b"").decode("latin-1")
    return [found.strip() for found in _IN_HEADER.findall(cookies)[:_MOST_TICKETS]]


def _digests(known: KnownKey, now: datetime) -> list[str]:
    """The digests of the key's valid secrets. After a rotation there may be two."""
    both = (known.record.digest, known.record.previous)
    return [digest for digest in both if digest is not None and opens(known.record, digest, now)]
