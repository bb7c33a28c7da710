"""Names: what each check lets through, and what it says about the rest."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core.names import (
    check_agent,
    check_project,
    check_session,
    check_tenant,
    check_track,
    check_user,
    describe_character,
)
from genlock.errors import BadArgument

Check = Callable[[object], str]

SCOPES = (check_tenant, check_project)
PEOPLE = (check_session, check_agent, check_user)
ALL = (*SCOPES, *PEOPLE, check_track)

WRONG_TYPES: tuple[Any, ...] = (None, 7, 1.5, True, b"acme", ["acme"], {"name": "acme"})


class QuotedScalar(str):
    """A string as a YAML reader may hand it out."""

    __slots__ = ()


def noun(check: Check) -> str:
    return getattr(check, "__name__", "").removeprefix("check_")


@pytest.mark.parametrize("check", SCOPES)
@pytest.mark.parametrize(
    "good",
    [
        "default",
        "acme-corp",
        "ecommerce-rebuild",
        "a",
        "Z",
        "0",
        "a.b_c-d",
        "...",
        "__",
        "-",
        "x" * 64,
    ],
)
def test_a_tenant_or_project_of_plain_characters_is_returned_as_it_is(
    check: Check, good: str
) -> None:
    assert check(good) == good


@pytest.mark.parametrize("check", SCOPES)
@pytest.mark.parametrize("bad", [".", "..", "_"])
def test_a_tenant_or_project_may_not_have_a_reserved_name(check: Check, bad: str) -> None:
    with pytest.raises(BadArgument, match="is reserved"):
        check(bad)


@pytest.mark.parametrize("check", SCOPES)
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("a/b", r"character 2 is '/' \(a slash\)"),
        ("../etc", r"character 3 is '/' \(a slash\)"),
        ("a\\b", r"\(a backslash\)"),
        ("a\0", r"character 2 is '\\x00' \(NUL\)"),
        ("a b", r"\(whitespace\)"),
        ("acme\n", r"character 5 is '\\n' \(whitespace\)"),
        ("a\x1b", r"\(a control character\)"),
        ("café", r"\(not ASCII: LATIN SMALL LETTER E WITH ACUTE\)"),
        ("🙂", r"\(not ASCII: SLIGHTLY SMILING FACE\)"),
        ("a:b", "character 2 is ':'"),
        ("１", "not ASCII: FULLWIDTH DIGIT ONE"),
    ],
)
def test_a_tenant_or_project_with_a_forbidden_character_is_told_which(
    check: Check, bad: str, said: str
) -> None:
    with pytest.raises(BadArgument, match=said) as caught:
        check(bad)
    assert str(caught.value).startswith(noun(check))
    assert "A-Z a-z 0-9 . _ -" in str(caught.value)


@pytest.mark.parametrize("check", PEOPLE)
@pytest.mark.parametrize(
    "good",
    [
        "sess-alice-20260104-001",
        "alice@acme.com",
        "agent-beta",
        "José García",
        "山田",
        "🙂",
        "a:b",
        "_",
        "..",
        "x" * 128,
    ],
)
def test_a_session_agent_or_user_of_printable_characters_is_returned_as_it_is(
    check: Check, good: str
) -> None:
    assert check(good) == good


@pytest.mark.parametrize("check", PEOPLE)
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("alice/s1", r"character 6 is '/' \(a slash\)"),
        ("a\0b", r"character 2 is '\\x00' \(NUL\)"),
        ("alice\n", r"character 6 is '\\n' \(whitespace\)"),
        ("a\tb", r"\(whitespace\)"),
        ("a\x7f", r"\(a control character\)"),
        ("a\x85b", r"\(whitespace\)"),
        ("a\u202eb", "RIGHT-TO-LEFT OVERRIDE"),
        ("a\u200bb", "ZERO WIDTH SPACE"),
        ("a\u00a0b", r"\(whitespace\)"),
        ("a\ud800", r"'\\ud800' \(not ASCII: unnamed\)"),
    ],
)
def test_a_session_agent_or_user_with_a_forbidden_character_is_told_which(
    check: Check, bad: str, said: str
) -> None:
    with pytest.raises(BadArgument, match=said) as caught:
        check(bad)
    assert str(caught.value).startswith(noun(check))
    str(caught.value).encode()


@pytest.mark.parametrize("good", ["A", "Z", "CORE", "A" * 200])
def test_a_track_of_letters_is_returned_in_capitals(good: str) -> None:
    assert check_track(good) == good
    assert check_track(good.lower()) == good


@pytest.mark.parametrize("bad", ["", "a1", "A1", "A-", "A B", "A\n", "É", "Ａ", "A/B", "..", "A\0"])
def test_a_track_of_anything_else_is_refused(bad: str) -> None:
    with pytest.raises(BadArgument, match=r"letters A-Z|is empty"):
        check_track(bad)


@pytest.mark.parametrize("check", ALL)
def test_an_empty_name_is_said_to_be_empty(check: Check) -> None:
    with pytest.raises(BadArgument, match=f"{noun(check)} is empty"):
        check("")


@pytest.mark.parametrize(
    ("check", "longest"),
    [*((c, 64) for c in SCOPES), *((c, 128) for c in PEOPLE), (check_track, 200)],
)
def test_a_name_one_character_too_long_is_told_both_lengths(check: Check, longest: int) -> None:
    with pytest.raises(BadArgument, match=f"too long: {longest + 1} characters, at most {longest}"):
        check("X" * (longest + 1))


@pytest.mark.parametrize("check", ALL)
def test_a_huge_name_makes_a_short_message(check: Check) -> None:
    with pytest.raises(BadArgument) as caught:
        check("X" * 10_000_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("check", ALL)
@pytest.mark.parametrize("bad", WRONG_TYPES)
def test_a_name_that_is_not_a_string_is_refused_by_its_type(check: Check, bad: Any) -> None:
    with pytest.raises(BadArgument, match=f"must be a string, not {type(bad).__name__}"):
        check(bad)


@pytest.mark.parametrize("check", ALL)
def test_a_subclass_of_str_comes_back_as_a_plain_string(check: Check) -> None:
    assert check(QuotedScalar("ACME")) == "ACME"
    assert type(check(QuotedScalar("ACME"))) is str


@pytest.mark.parametrize("check", ALL)
@given(text=st.text(max_size=140))
def test_any_text_is_either_returned_or_refused_with_a_message_that_can_be_sent(
    check: Check, text: str
) -> None:
    try:
        assert check(text) == (text.upper() if check is check_track else text)
    except BadArgument as refusal:
        str(refusal).encode()


def test_a_character_is_counted_from_one() -> None:
    assert describe_character("%a", 0) == "character 1 is '%'"
