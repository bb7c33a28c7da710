"""Tickets of browsers: what they let see, how long, and that nobody makes one who has not shown the
key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from genlock.core.key_roles import digest_of, parse_key
from genlock.core.results import NewKey
from genlock.errors import BadArgument, KeyRefused
from genlock.reads.reader import Reader
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.browser_sessions import (
    COOKIE,
    LIFE_SECONDS,
    BrowserSessions,
    cookie,
    tickets_of,
)
from genlock.service.auth.key_cache import FRESH_SECONDS, KeyCache
from genlock.service.auth.permissions import Grant
from tests.engine.gated_store import Home
from tests.service.keyed import Keyed

SECRET = b"shared by all replicas, 32 bytes"
R = TypeVar("R")


class Stage(Keyed):
    """Sign-ins on a store. Each look is a new service's, so that nothing is known from before."""

    def key(self, name: str = "ann", role: str = "operator", **scope: Any) -> NewKey:
        return super().key(name, role, **{"projects": "web-*"} | scope)

    def sign_in(self, text: str, secret: bytes = SECRET) -> str | None:
        begun = self._run(BrowserSessions(KeyCache(Reader(self.engine)), secret).begin(text))
        return None if begun is None else begun[0]

    def sees(self, ticket: str, secret: bytes = SECRET) -> Grant | None:
        return self._run(BrowserSessions(KeyCache(Reader(self.engine)), secret).find(ticket))

    def admits(self, headers: dict[bytes, bytes], method: str) -> Grant:
        key_cache = KeyCache(Reader(self.engine))
        return self._run(
            Authenticator(
                key_cache.find, None, key_cache, BrowserSessions(key_cache, SECRET).find
            ).admit(headers, method)
        )

    def _run(self, asked: Awaitable[R]) -> R:
        async def run() -> R:
            return await asked

        return asyncio.run(run())


@pytest.fixture
def stage(home: Home) -> Stage:
    return Stage(home)


def test_a_ticket_lets_see_what_its_key_lets_see_and_do_nothing(stage: Stage) -> None:
    key = stage.key()
    ticket = stage.sign_in(key.text)
    assert ticket is not None
    assert stage.sees(ticket) == Grant(key.key.key_id, "ann", "acme", "web-*", "observer")  # type: ignore[arg-type]


def test_a_ticket_of_a_session_s_key_does_not_act_for_the_session(stage: Stage) -> None:
    ticket = stage.sign_in(stage.key(role="agent", session_id="s1").text)
    assert ticket is not None
    seen = stage.sees(ticket)
    assert seen is not None
    assert seen.session is None


def test_a_ticket_has_nothing_of_the_secret_nor_of_its_digest(stage: Stage) -> None:
    key = stage.key()
    ticket = stage.sign_in(key.text) or ""
    secret = parse_key(key.text).secret
    assert ticket
    assert not any(secret[at : at + 6] in ticket for at in range(len(secret) - 5))
    assert digest_of(secret)[:16] not in ticket


def test_a_ticket_ends_with_its_time(stage: Stage) -> None:
    ticket = stage.sign_in(stage.key().text) or ""
    stage.home.clock.advance(LIFE_SECONDS - 2)
    assert stage.sees(ticket)
    stage.home.clock.advance(2)
    assert stage.sees(ticket) is None


def test_a_ticket_ends_with_its_key(stage: Stage) -> None:
    revoked, expiring = (
        stage.key(),
        stage.admin.create_key(name="b", role="observer", expires_in_seconds=60),
    )
    tickets = [stage.sign_in(key.text) or "" for key in (revoked, expiring)]
    assert all(map(stage.sees, tickets))
    stage.admin.revoke_key(key_id=revoked.key.key_id)
    stage.home.clock.advance(60)
    assert list(map(stage.sees, tickets)) == [None, None]
    assert [stage.sign_in(key.text) for key in (revoked, expiring)] == [None, None]


def test_a_service_that_knew_the_key_forgets_a_ticket_of_one_that_is_revoked_as_soon_as_the_key(
    stage: Stage,
) -> None:
    seconds = 1000.0
    key = stage.key()
    sign_ins = BrowserSessions(KeyCache(Reader(stage.engine), lambda: seconds), SECRET)

    async def look() -> list[bool]:
        nonlocal seconds
        begun = await sign_ins.begin(key.text)
        assert begun is not None
        found = [await sign_ins.find(begun[0]) is not None]
        await asyncio.to_thread(stage.admin.revoke_key, key_id=key.key.key_id)
        seconds += FRESH_SECONDS
        return [*found, await sign_ins.find(begun[0]) is not None]

    assert asyncio.run(look()) == [True, False]


def test_a_ticket_outlives_a_rotation_for_the_overlap_alone(stage: Stage) -> None:
    key = stage.key()
    ticket = stage.sign_in(key.text) or ""
    stage.admin.rotate_key(key_id=key.key.key_id, overlap_seconds=60)
    assert stage.sees(ticket)
    stage.home.clock.advance(60)
    assert stage.sees(ticket) is None


def test_who_has_the_store_and_not_the_service_s_secret_makes_no_ticket(stage: Stage) -> None:
    text = stage.key().text
    ticket = stage.sign_in(text) or ""
    assert stage.sees(stage.sign_in(text, b"another secret of some 32 bytes.") or "") is None
    id, end, seal = ticket.split(".")
    other = stage.key().key.key_id
    for forged in (
        f"{id}.{int(end) + 1}.{seal}",
        f"{id}.{'9' * 12}.{seal}",
        f"{id}.0.{seal}",
        f"{other}.{end}.{seal}",
        f"{id}.{end}.{'0' * 64}",
        f"{id}.{end}",
        "",
        text,
    ):
        assert stage.sees(forged) is None


def test_a_secret_that_could_be_guessed_is_refused(stage: Stage) -> None:
    with pytest.raises(BadArgument, match="has 5 bytes; it needs 32 at least"):
        BrowserSessions(KeyCache(Reader(stage.engine)), b"short")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get", ""])
def test_a_ticket_is_good_for_looking_alone(stage: Stage, method: str) -> None:
    headers = {b"cookie": f"{COOKIE}={stage.sign_in(stage.key().text)}".encode()}
    assert stage.admits(headers, "GET").role == "observer"
    assert stage.admits(headers, "HEAD").role == "observer"
    with pytest.raises(KeyRefused, match="a key is needed"):
        stage.admits(headers, method)


def test_a_key_counts_before_a_ticket_also_if_it_is_not_good(stage: Stage) -> None:
    key, other = stage.key(), stage.key(name="bob")
    ticket = f"{COOKIE}={stage.sign_in(key.text)}".encode()
    assert (
        stage.admits(
            {b"cookie": ticket, b"authorization": f"Bearer {other.text}".encode()}, "GET"
        ).name
        == "bob"
    )
    stage.admin.revoke_key(key_id=other.key.key_id)
    with pytest.raises(KeyRefused, match="not good"):
        stage.admits({b"cookie": ticket, b"authorization": f"Bearer {other.text}".encode()}, "GET")


@pytest.mark.parametrize(
    ("cookies", "tickets"),
    [
        (f"{COOKIE}=abc", ["abc"]),
        (f"a=1; {COOKIE}=abc; b=2", ["abc"]),
        (f"{COOKIE}_8420=abc; {COOKIE}_8421=def", ["abc", "def"]),
        (f"{COOKIE}_x=abc", []),
        (f"a=1;{COOKIE}=abc ;b=2", ["abc"]),
        (f"other{COOKIE}=abc", []),
        (f"a={COOKIE}=abc", []),
        ("a=1", []),
        ("\xff;=;;", []),
    ],
)
def test_tickets_are_found_among_other_cookies(cookies: str, tickets: list[str]) -> None:
    assert tickets_of({b"cookie": cookies.encode("latin-1")}) == tickets


def test_a_browser_keeps_it_from_scripts_from_other_sites_and_from_lines_that_are_not_encrypted() -> (
    None
):
    plain = "genlock_sign_in=t; Max-Age=43200; Path=/; HttpOnly; SameSite=Strict"
    assert cookie("t", encrypted=False) == plain
    assert cookie("t", encrypted=True) == plain + "; Secure"
    assert (
        cookie("", encrypted=False)
        == "genlock_sign_in=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict"
    )
