"""Authentication: decides who a request comes from, before anything is done for it.

A service requires keys. On loopback it also accepts the token of this start, which only the user
who started it can read, and which permits everything. It requires nothing only if that user has
said that all users of the machine are trusted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Final, TypeAlias

from genlock.errors import AccessRefused, BadArgument, HostRefused, KeyRefused
from genlock.service.auth.acting_sign_ins import PROOF_HEADER, ActingSignIns, acting_tickets_of
from genlock.service.auth.browser_sessions import LOOKS, LocalToken, tickets_of
from genlock.service.auth.key_cache import KeyCache
from genlock.service.auth.permissions import OPEN, Grant
from genlock.token_files import PREFIX


def is_token(text: str) -> bool:
    """Does the text have the form of a token, of this start or another?"""
    return text.startswith(PREFIX)


Find: TypeAlias = Callable[[str], Awaitable[Grant | None]]
"""Looks a key up; None if it is not valid."""

NOT_GOOD: Final = "this key is not good: it is unknown, expired or revoked"
_NO_KEY: Final = (
    "a key is needed: in GENLOCK_API_KEY, as connect(api_key=…), or in the header 'authorization: "
    "Bearer glk_…'; `genlock keys create` makes one"
)
_NO_TOKEN: Final = (
    "this service is for the user who started it: that user's command line and clients send its "
    "token by themselves, and curl does with "
    "the header file that `genlock serve` names (curl -H @FILE). Everyone else needs a key, which "
    "`genlock keys create` makes"
)
_OLD_TOKEN: Final = (
    "this token is not the one of this start of the service: each start writes a "
    "new one; read its file again"
)
_NO_PROOF: Final = (
    "a browser acts only from the dashboard: sign in to act, at /sign-in; a program sends a key"
)
ACTING_OVER: Final = (
    "the sign-in to act is over: 15 minutes passed without a sign of you, the service was started "
    "again, or the key is no longer good; sign in to act again, at /sign-in"
)
_PROOF: Final = PROOF_HEADER.encode()
_BEARER: Final = "bearer "
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Authenticator:
    """Authenticates requests by key, token or ticket; admits all where no keys are required."""

    def __init__(
        self,
        find: Find | None,
        hosts: frozenset[str] | None,
        key_cache: KeyCache | None = None,
        find_ticket: Find | None = None,
        token: LocalToken | None = None,
        acting: ActingSignIns | None = None,
    ) -> None:
        self._find, self._keyring, self._find_ticket = find, key_cache, find_ticket
        self._token, self._acting = token, acting
        self._hosts = None if hosts is None else hosts | _LOOPBACK
        """Accepted host names; None accepts any. The check prevents DNS rebinding by a web page."""
        self._last_host: bytes | None = None
        """The last accepted host, because it rarely changes."""

    def check_host(self, headers: dict[bytes, bytes]) -> None:
        """Raises HostRefused, or AccessRefused for a page of another site. Called before all other
        checks."""
        host = headers.get(b"host", b"")
        if host != self._last_host:
            self._check_name(host.decode("latin-1").lower())
            self._last_host = host
        origin = headers.get(b"origin")
        if origin is not None and origin.lower().partition(b"://")[2] != host.lower():
            raise AccessRefused("pages of other sites may not use this service")

    def _check_name(self, host: str) -> None:
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise HostRefused(
                f"this service does not answer for the host {host[:100]!r}; --allow-host names "
                "those it does"
            )

    @property
    def asks_for_keys(self) -> bool:
        """Does a request need a key or the token?"""
        return self._find is not None

    @property
    def takes_token(self) -> bool:
        """Does the service accept its token in place of a key?"""
        return self._token is not None

    def has_token(self, headers: dict[bytes, bytes]) -> bool:
        """Does the request have the token of this start? Without it, a key may still admit it."""
        return self._token is not None and self._token.is_sent(headers)

    async def expect(self, many: Iterable[dict[bytes, bytes]]) -> None:
        """Prefetches the keys of these requests."""
        if self._keyring is not None:
            await self._keyring.expect(
                {text for headers in many if (text := _key_of(headers)) is not None}
            )

    def end_of(self, headers: dict[bytes, bytes]) -> datetime | None:
        """When the key of an admitted request expires; None: never."""
        text = _key_of(headers)
        return (
            None
            if self._keyring is None or text is None or is_token(text)
            else self._keyring.end_of(text)
        )

    async def admit(self, headers: dict[bytes, bytes], method: str = "") -> Grant:
        """The caller's permissions, or KeyRefused. The method decides whether a ticket is enough; a
        key always is."""
        if self._find is None:
            return OPEN
        text = _key_of(headers)
        if (
            text is None
            and method in LOOKS
            and self._find_ticket is not None
            and (tickets := tickets_of(headers))
        ):
            for ticket in tickets:
                seen = await self._find_ticket(ticket)
                if seen is not None:
                    return seen
            raise KeyRefused("this sign-in is over, or its key is no longer good; sign in again")
        if text is None and method not in LOOKS and acting_tickets_of(headers):
            return await self._admit_acting(headers)
        if text is None:
            raise KeyRefused(_NO_KEY if self._token is None else _NO_TOKEN)
        if is_token(text):
            if self._token is not None and self._token.is_same(text):
                return OPEN
            raise KeyRefused(_OLD_TOKEN if self._token is not None else NOT_GOOD)
        try:
            grant = await self._find(text)
        except BadArgument as error:  # its message does not contain the key
            raise KeyRefused(str(error)) from None
        if grant is None:
            raise KeyRefused(NOT_GOOD)
        return grant

    async def _admit_acting(self, headers: dict[bytes, bytes]) -> Grant:
        """Admits a request by an acting ticket, see `acting_sign_ins`, rule 2."""
        proof = headers.get(_PROOF)
        if self._acting is None or proof is None or b"origin" not in headers:
            raise KeyRefused(_NO_PROOF)
        if headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
            raise AccessRefused("pages of other sites may not use this service")
        for ticket in acting_tickets_of(headers):
            grant = await self._acting.admit(ticket, proof.decode("latin-1"))
            if grant is not None:
                return grant
        raise KeyRefused(ACTING_OVER)


def came_by_ticket(headers: dict[bytes, bytes]) -> bool:
    """Was this admitted request authenticated by a ticket?"""
    return _key_of(headers) is None and bool(tickets_of(headers))


def brings_key(headers: dict[bytes, bytes]) -> bool:
    """Does the request have a key or a ticket, valid or not?"""
    return _key_of(headers) is not None or bool(tickets_of(headers))


def _key_of(headers: dict[bytes, bytes]) -> str | None:
    given = headers.get(b"authorization")
    if given is not None:
        text = given.decode("latin-1")
        return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else None
    other = headers.get(b"x-api-key")
    return None if other is None else other.decode("latin-1").strip()


def _without_port(host: str) -> str:
    """The name or address; empty if anything but a port follows it."""
    name, bracket, behind = host.rpartition("]")
    start, _, port = behind.partition(":")
    if not (port.isdecimal() or not port) or (bracket and start):
        return ""
    return name + bracket + start
