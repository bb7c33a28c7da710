"""Roles, patterns and the text of a key: what each admits, and that a secret is repeated
nowhere."""

from __future__ import annotations

import re
import string
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genlock.core import commands as c
from genlock.core import keys
from genlock.core.index import Index
from genlock.core.key_roles import (
    FRESH_BYTES,
    KeyText,
    Role,
    check_key_id,
    check_pattern,
    check_role,
    check_scope,
    compose,
    digest_of,
    matches,
    parse_key,
    same_digest,
    write_key,
)
from genlock.core.model import KeyRecord
from genlock.core.reasons import KeyState
from genlock.core.records.api_key import opens, state_of_key
from genlock.core.rules import index_of
from genlock.errors import BadArgument
from tests.core.world import World

KEY = compose(bytes(range(FRESH_BYTES)))
TEXT = write_key(KEY)
SCANNED = "glk_[a-z2-7]{12}_[a-z2-7]{32}_[0-9a-f]{8}"
ROOT = Path(__file__).parent.parent.parent


# Texts


@given(st.binary(min_size=FRESH_BYTES, max_size=FRESH_BYTES))
def test_a_key_that_is_written_reads_back_as_itself(fresh: bytes) -> None:
    key = compose(fresh)
    assert parse_key(write_key(key)) == key
    assert re.fullmatch(SCANNED, write_key(key))


def test_every_bit_that_is_used_makes_another_key() -> None:
    made = {compose((1 << bit).to_bytes(FRESH_BYTES)) for bit in range(8 * FRESH_BYTES)}
    # Of 224 bits 220 are used: 44 characters of five.
    assert len(made) == 220 + 1


def test_a_rotated_key_has_the_same_id_and_another_secret() -> None:
    again = compose(b"\xff" * FRESH_BYTES, KEY.id)
    assert again.id == KEY.id
    assert again.secret != KEY.secret


@pytest.mark.parametrize("size", [0, FRESH_BYTES - 1, FRESH_BYTES + 1])
def test_a_key_is_made_of_exactly_so_much_randomness(size: int) -> None:
    with pytest.raises(ValueError, match="random bytes"):
        compose(bytes(size))


@pytest.mark.parametrize(
    "page", ["docs/how-to/keys-and-tenants.md", "docs/adr/0020-a-key-is-a-record-of-its-own.md"]
)
def test_the_pattern_that_the_documents_give_to_scanners_finds_keys(page: str) -> None:
    assert SCANNED in (ROOT / page).read_text(encoding="utf-8")


def test_whatever_one_character_is_changed_to_the_key_is_refused_without_being_repeated() -> None:
    for at, other in product(range(len(TEXT)), string.ascii_letters + string.digits + "_- é"):
        if TEXT[at] != other:
            typed = TEXT[:at] + other + TEXT[at + 1 :]
            with pytest.raises(BadArgument) as refused:
                parse_key(typed)
            assert not leaks(typed, str(refused.value))


def test_two_characters_that_changed_places_are_refused() -> None:
    for at in range(len(TEXT) - 1):
        swapped = TEXT[:at] + TEXT[at + 1] + TEXT[at] + TEXT[at + 2 :]
        if swapped != TEXT:
            with pytest.raises(BadArgument):
                parse_key(swapped)


def leaks(text: str, message: str) -> bool:
    """Is anything of what may be a secret in the message? Six characters in a row are no
    accident."""
    secret = text[17:]
    return any(secret[at : at + 6] in message for at in range(len(secret) - 5))


WRONG = {
    "": "does not start with glk_",
    "hunter2-hunter2": "does not start with glk_",
    TEXT.upper(): "does not start with glk_",
    TEXT + "\n": "there are blanks around it",
    " " + TEXT: "there are blanks around it",
    TEXT[:-9]: "it has 3 parts, not 4",
    TEXT + "_more": "it has 5 parts, not 4",
    TEXT[:-1]: "its sum has 7 characters, not 8",
    "glk_short_" + TEXT[17:]: "its id has 5 characters, not 12",
    TEXT[:20] + TEXT[21:]: "its secret has 31 characters, not 32",
    TEXT[:20] + "1" + TEXT[21:]: "a character in it that no key has",
    TEXT[:-1] + ("0" if TEXT[-1] != "0" else "1"): "its last part does not fit the rest",
    TEXT * 100_000: "parts, not 4",
}


@pytest.mark.parametrize("text", WRONG, ids=WRONG.values())
def test_what_is_no_key_is_told_what_is_wrong_with_it_and_never_what_it_was(text: str) -> None:
    with pytest.raises(BadArgument, match=re.escape(WRONG[text])) as refused:
        parse_key(text)
    assert not leaks(text, str(refused.value))
    assert "hunter2" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("given", [None, 5, b"glk_", ["glk_"]])
def test_a_key_is_a_text(given: object) -> None:
    with pytest.raises(BadArgument, match="a key is a text"):
        parse_key(given)


def test_no_secret_is_shown_by_whoever_prints_its_parts() -> None:
    assert KEY.secret not in repr(KEY)
    assert KEY.secret not in f"{KEY}"
    assert KeyText("an-id", "hunter2").__repr__() == "KeyText(id='an-id')"


def test_a_text_given_as_an_id_is_refused_and_not_repeated() -> None:
    assert check_key_id(KEY.id) == KEY.id
    with pytest.raises(BadArgument, match="between the first two underscores") as refused:
        check_key_id(TEXT)
    assert not leaks(TEXT, str(refused.value))


def test_what_is_kept_of_a_secret_is_its_sha256() -> None:
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert same_digest(digest_of("abc"), digest_of("abc"))
    assert not same_digest(digest_of("abc"), digest_of("abd"))


# Roles and patterns


def test_each_role_covers_itself_and_those_before_it() -> None:
    order = ["observer", "agent", "operator", "admin"]
    assert list(Role) == order
    for (one, role), (other, needed) in product(enumerate(order), repeat=2):
        assert check_role(role).covers(needed) == (one >= other)


MATCHES = [
    ("*", "anything", True),
    ("shop", "shop", True),
    ("shop", "shops", False),
    ("shop", "Shop", False),
    ("team-*", "team-", True),
    ("team-*", "team-a", True),
    ("team-*", "team", False),
    ("team-*", "Team-a", False),
    ("*-prod", "shop-prod", True),
    ("*-prod", "shop-prod-2", False),
    ("a*a", "a", False),
    ("a*a", "aa", True),
    ("a*b*c", "abc", True),
    ("a*b*c", "a-c-b-c", True),
    ("a*b*c", "acb", False),
    ("**", "x", True),
    ("a.b", "aXb", False),
]


@pytest.mark.parametrize(("pattern", "project", "expected"), MATCHES)
def test_a_pattern_names_a_project_or_does_not(pattern: str, project: str, expected: bool) -> None:
    assert matches(check_pattern(pattern), project) is expected


patterns = st.text("ab*", min_size=1, max_size=8)
names = st.text("ab", min_size=1, max_size=8)


def fillings(pattern: str, characters: str) -> st.SearchStrategy[str]:
    """Texts made of the pattern by putting something in the place of each star."""
    first, *rest = pattern.split("*")
    filling = st.text(characters, max_size=3)
    return st.tuples(*(filling for _ in rest)).map(
        lambda filled: (
            first + "".join(text + piece for text, piece in zip(filled, rest, strict=True))
        )
    )


def test_patterns_mean_what_a_shell_means_by_them() -> None:
    matched: list[bool] = []

    @settings(max_examples=500)
    @given(
        patterns.flatmap(
            lambda pattern: st.tuples(st.just(pattern), names | fillings(pattern, "ab"))
        )
    )
    def compare(drawn: tuple[str, str]) -> None:
        pattern, project = drawn
        assert matches(pattern, project) == fnmatchcase(project, pattern)
        matched.append(matches(pattern, project))

    compare()
    assert matched.count(True) >= len(matched) / 4
    assert matched.count(False) >= len(matched) / 10


def test_pattern_that_covers_another_covers_all_projects_of_the_other() -> None:
    """`matches` is transitive. The narrower pattern comes from the wider one in three of four
    draws, and the project always comes from the narrower one."""
    covered: list[bool] = []

    @settings(max_examples=500)
    @given(st.data(), patterns, st.integers(0, 3))
    def compare(data: st.DataObject, wide: str, other: int) -> None:
        narrow = data.draw(fillings(wide, "ab*") if other else patterns)
        project = data.draw(fillings(narrow, "ab"))
        assert matches(narrow, project)
        if other:
            assert matches(wide, narrow)
        covered.append(matches(wide, narrow) and narrow != wide)
        if matches(wide, narrow):
            assert matches(wide, project)

    compare()
    assert covered.count(True) >= len(covered) / 4


def test_a_pattern_made_to_take_long_is_decided_at_once() -> None:
    assert not matches("*a" * 32, "a" * 63 + "b")


SCOPES = [
    (Role.ADMIN, "*", "*", None, ""),
    (Role.ADMIN, "acme", "*", None, ""),
    (Role.AGENT, "acme", "team-*", "s1", ""),
    (Role.OPERATOR, "acme", "shop", None, ""),
    (Role.OPERATOR, "*", "*", None, "is of one tenant"),
    (Role.OBSERVER, "*", "*", None, ""),
    (Role.AGENT, "*", "*", None, "is of one tenant"),
    (Role.ADMIN, "acme", "team-*", None, "projects is '*'"),
    (Role.ADMIN, "*", "shop", None, "projects is '*'"),
    (Role.OBSERVER, "acme", "*", "s1", "only an agent's key"),
    (Role.OPERATOR, "acme", "*", "s1", "only an agent's key"),
    (Role.ADMIN, "acme", "*", "s1", "only an agent's key"),
]


@pytest.mark.parametrize(("role", "tenant", "projects", "session", "fault"), SCOPES)
def test_a_scope_that_means_less_or_more_than_it_says_is_refused(
    role: Role, tenant: str, projects: str, session: str | None, fault: str
) -> None:
    if fault:
        with pytest.raises(BadArgument, match=re.escape(fault)):
            check_scope(role, tenant, projects, session)
    else:
        check_scope(role, tenant, projects, session)


# What a key is worth

K = keys.access_key(KEY.id)


def record_in(world: World) -> KeyRecord:
    record = world.cell(K).record
    assert isinstance(record, KeyRecord)
    return record


def world_with(**fields: object) -> World:
    world = World()
    world.ask(c.CreateKey(K, name="ci", tenant="acme", role=Role.AGENT, digest="0", **fields))  # type: ignore[arg-type]
    return world


def test_a_key_ends_at_its_end_and_not_before() -> None:
    world = world_with(expires_in_seconds=60)
    world.pass_time(59.999999)
    assert opens(record_in(world), "0", world.now)
    world.pass_time(0.000001)
    assert not opens(record_in(world), "0", world.now)
    assert state_of_key(record_in(world), world.now) is KeyState.EXPIRED


def test_the_text_before_a_rotation_ends_with_the_overlap() -> None:
    world = world_with()
    world.ask(c.RotateKey(K, tenant="acme", digest="1", overlap_seconds=60))
    world.pass_time(59.999999)
    assert opens(record_in(world), "0", world.now)
    world.pass_time(0.000001)
    assert not opens(record_in(world), "0", world.now)
    assert opens(record_in(world), "1", world.now)


def test_an_expired_key_is_not_kept_open_by_an_overlap() -> None:
    world = world_with(expires_in_seconds=30)
    world.ask(c.RotateKey(K, tenant="acme", digest="1", overlap_seconds=60))
    world.pass_time(30)
    assert not opens(record_in(world), "0", world.now)
    assert not opens(record_in(world), "1", world.now)


def test_a_rotation_keeps_the_end_unless_it_brings_another() -> None:
    world = world_with(expires_in_seconds=30)
    end = record_in(world).expires_at
    world.ask(c.RotateKey(K, tenant="acme", digest="1"))
    assert record_in(world).expires_at == end
    world.ask(c.RotateKey(K, tenant="acme", digest="2", expires_in_seconds=300))
    assert record_in(world).expires_at is not None
    assert record_in(world).expires_at != end


def test_a_key_is_found_by_its_tenant_and_by_whether_it_was_revoked() -> None:
    world = world_with()
    assert index_of(record_in(world)) == Index(state="ACTIVE", parent="acme")
    world.ask(c.RevokeKey(K, tenant="acme"))
    assert index_of(record_in(world)) == Index(state="REVOKED", parent="acme")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("rotate"), st.integers(0, 100)),
        st.tuples(st.just("wait"), st.integers(1, 60)),
        st.tuples(st.just("revoke"), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_the_newest_secret_opens_until_the_key_is_revoked_and_the_one_before_it_for_its_overlap(
    steps: list[tuple[str, int]],
) -> None:
    world = world_with()
    newest, until, revoked, second = 0, 0, False, 0
    for what, number in steps:
        if what == "wait":
            world.pass_time(number)
            second += number
        elif what == "revoke":
            world.ask(c.RevokeKey(K, tenant="acme"))
            revoked = True
        elif not revoked:
            newest += 1
            world.ask(c.RotateKey(K, tenant="acme", digest=str(newest), overlap_seconds=number))
            until = second + number
        good = {n for n in range(newest + 1) if opens(record_in(world), str(n), world.now)}
        before = {newest - 1} if newest and second < until else set()
        assert good == (set() if revoked else {newest} | before)
