"""Task ids: which grammar an id has, what is derived from it, and what is said about a text that is
none."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core.ids import (
    LAST_CHILD,
    LAST_ROOT,
    Grammar,
    TaskId,
    format_root,
    parse_task_id,
    sort_path,
    sort_text,
)
from genlock.errors import BadArgument

DASHBOARD = "B-003-implement-user-dashboard"

# Every id that the documents show as an example of the track form.
DOCUMENTED_TRACKS = [
    "A-001-setup-authentication-module",
    "A-002-implement-oauth-providers",
    "A-003-add-session-management",
    "B-001-design-database-schema",
    "C-002-add-rate-limiting",
    "D-003-routing",
    DASHBOARD,
]

READINGS = [
    TaskId(DASHBOARD, Grammar.TRACK, track="B", sequence=3, description="implement-user-dashboard"),
    TaskId("CORE-999-x", Grammar.TRACK, track="CORE", sequence=999, description="x"),
    TaskId("A-001--", Grammar.TRACK, track="A", sequence=1, description="-"),
    TaskId("A-001-Mixed_Case-2", Grammar.TRACK, track="A", sequence=1, description="Mixed_Case-2"),
    TaskId("A-001-" + "d" * 50, Grammar.TRACK, track="A", sequence=1, description="d" * 50),
    TaskId(
        f"{DASHBOARD}::2",
        Grammar.TRACK,
        track="B",
        sequence=3,
        description="implement-user-dashboard",
        parent=DASHBOARD,
        depth=1,
        subtask_index=2,
    ),
    TaskId(
        f"{DASHBOARD}::2::10",
        Grammar.TRACK,
        track="B",
        sequence=3,
        description="implement-user-dashboard",
        parent=f"{DASHBOARD}::2",
        depth=2,
        subtask_index=10,
    ),
    TaskId("AUTH-LOGIN:design_code", Grammar.EDGE, feature="AUTH-LOGIN", edge="design_code"),
    TaskId("a.b:c.d", Grammar.EDGE, feature="a.b", edge="c.d"),
    TaskId("A-001-x:code", Grammar.EDGE, feature="A-001-x", edge="code"),
    TaskId("0001:code", Grammar.EDGE, feature="0001", edge="code"),
    TaskId("f:1", Grammar.EDGE, feature="f", edge="1"),
    TaskId("...:e", Grammar.EDGE, feature="...", edge="e"),
    TaskId("f:e::1", Grammar.EDGE, feature="f", edge="e", parent="f:e", depth=1, subtask_index=1),
    TaskId("0001", Grammar.HIERARCHICAL),
    TaskId("9999", Grammar.HIERARCHICAL),
    TaskId("0001_t1", Grammar.HIERARCHICAL, parent="0001", depth=1),
    TaskId("0001_t1.1", Grammar.HIERARCHICAL, parent="0001_t1", depth=2),
    TaskId("0001_t1.1.12", Grammar.HIERARCHICAL, parent="0001_t1.1", depth=3),
    TaskId("A000_t1", Grammar.HIERARCHICAL, parent="A000", depth=1),
    TaskId("ZZZ9_t1.2", Grammar.HIERARCHICAL, parent="ZZZ9_t1", depth=2),
    TaskId("0001::1", Grammar.HIERARCHICAL, parent="0001", depth=1, subtask_index=1),
    TaskId("0001_t1.1::3", Grammar.HIERARCHICAL, parent="0001_t1.1", depth=3, subtask_index=3),
    TaskId("implement-feature-x", Grammar.SLUG),
    TaskId("x" * 128, Grammar.SLUG),
    TaskId("x" * 128 + "::1", Grammar.SLUG, parent="x" * 128, depth=1, subtask_index=1),
    TaskId(f"x::{LAST_CHILD}", Grammar.SLUG, parent="x", depth=1, subtask_index=LAST_CHILD),
    TaskId("...", Grammar.SLUG),
    TaskId("a..b", Grammar.SLUG),
    TaskId("-", Grammar.SLUG),
]

# They resemble an earlier grammar and miss it by a little; the slug's grammar admits them, so slugs
# they are.
NEAR_MISSES = [
    "A-1-x",
    "A-01-x",
    "A-0001-x",
    "A-000-x",
    "A-001",
    "A-001-",
    "A-001-a.b",
    "A-001-" + "d" * 51,
    "a-001-x",
    "A1-001-x",
    "0000",
    "0000_t1",
    "001",
    "00001",
    "0001_t0",
    "0001_t01",
    "0001_t",
    "0001_t1.",
    "0001_t1.0",
    "0001_t1_t2",
    "0001.1",
    "0001_T1",
    f"0001_t{LAST_CHILD + 1}",
    "a000_t1",
    "AAAA_t1",
]

LETTERED_ROOTS = ["A000", "Z999", "AA00", "ZZ99", "AAA0", "ZZZ9"]


@pytest.mark.parametrize("text", DOCUMENTED_TRACKS)
def test_the_documents_own_track_ids_are_read_as_such(text: str) -> None:
    read = parse_task_id(text)
    assert read.grammar is Grammar.TRACK
    assert text == f"{read.track}-{read.sequence:03d}-{read.description}"


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.text[:40])
@pytest.mark.parametrize("hierarchical", [False, True])
def test_an_id_is_read_by_the_first_grammar_that_fits(reading: TaskId, hierarchical: bool) -> None:
    assert parse_task_id(reading.text, hierarchical=hierarchical) == reading


@pytest.mark.parametrize("text", NEAR_MISSES)
@pytest.mark.parametrize("hierarchical", [False, True])
def test_an_id_that_only_resembles_another_grammar_is_a_slug(text: str, hierarchical: bool) -> None:
    assert parse_task_id(text, hierarchical=hierarchical) == TaskId(text, Grammar.SLUG)


@pytest.mark.parametrize("text", LETTERED_ROOTS)
def test_a_bare_root_with_letters_is_hierarchical_only_where_ids_are_counted_so(text: str) -> None:
    assert parse_task_id(text) == TaskId(text, Grammar.SLUG)
    assert parse_task_id(text, hierarchical=True) == TaskId(text, Grammar.HIERARCHICAL)
    assert parse_task_id(f"{text}::1").grammar is Grammar.SLUG
    assert parse_task_id(f"{text}::1", hierarchical=True).grammar is Grammar.HIERARCHICAL


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("", "task id is empty"),
        ("x" * 201, "too long: 201 characters, at most 200"),
        ("x" * 129, "too long: 129 characters; a slug has at most 128"),
        ("A-001-" + "d" * 130, "the description in a track id at most 50"),
        ("a\0b", r"character 2 is '\\x00' \(NUL\)"),
        ("a/b", r"character 2 is '/' \(a slash\)"),
        ("/", r"character 1 is '/' \(a slash\)"),
        ("../../etc/passwd", r"character 3 is '/' \(a slash\)"),
        ("a\\b", r"\(a backslash\)"),
        (".", "is a folder's name for itself or its parent"),
        ("..", "is a folder's name for itself or its parent"),
        ("..::1", "is a folder's name for itself or its parent"),
        ("🙂", r"character 1 is '🙂' \(not ASCII: SLIGHTLY SMILING FACE\)"),
        ("task-🙂", "character 6"),
        ("a b", r"character 2 is ' ' \(whitespace\)"),
        (" a", r"character 1 is ' ' \(whitespace\)"),
        ("a\n", r"character 2 is '\\n' \(whitespace\)"),
        ("A-001-x\n", r"character 8 is '\\n' \(whitespace\)"),
        ("0001\n", r"character 5 is '\\n' \(whitespace\)"),
        ("a\t", r"\(whitespace\)"),
        ("a\x1b[0m", r"\(a control character\)"),
        ("A-００１-x", "not ASCII: FULLWIDTH DIGIT ZERO"),
        ("٠٠٠١", "not ASCII: ARABIC-INDIC DIGIT ZERO"),
        ("café", "not ASCII: LATIN SMALL LETTER E WITH ACUTE"),
        ("a\ud800", r"'\\ud800' \(not ASCII: unnamed\)"),
        ("a%2Fb", "character 2 is '%'"),
        ("a;b", "character 2 is ';'"),
        ("::1", "nothing stands before '::'"),
        ("::", "nothing stands before '::'"),
        ("a::", "after '::' comes a number"),
        ("a::0", "after '::' comes a number from 1"),
        ("a::01", "without leading zeros, not '01'"),
        ("a::-1", "after '::' comes a number"),
        ("a::x", "after '::' comes a number"),
        ("a:::1", "after '::' comes a number"),
        ("a::1::", "after '::' comes a number"),
        ("a::1::0", "after '::' comes a number"),
        ("a::1.1", "after '::' comes a number"),
        ("a::1:b", "after '::' comes a number"),
        (f"a::{LAST_CHILD + 1}", f"from 1 to {LAST_CHILD}"),
        (":", "between a feature and an edge"),
        ("a:", "between a feature and an edge"),
        (":b", "between a feature and an edge"),
        ("a:b:c", "between a feature and an edge"),
        ("a:..", "between a feature and an edge"),
        ("..:b", "between a feature and an edge"),
        (".:b", "between a feature and an edge"),
        ("a:.::1", "between a feature and an edge"),
    ],
)
def test_a_text_that_is_no_id_is_refused_with_the_reason(bad: str, said: str) -> None:
    for hierarchical in (False, True):
        with pytest.raises(BadArgument, match=said) as caught:
            parse_task_id(bad, hierarchical=hierarchical)
        str(caught.value).encode()


def test_a_forbidden_character_is_answered_with_what_is_allowed() -> None:
    with pytest.raises(
        BadArgument, match=r"TRACK-001-description, feature:edge, 0001_t1\.1 or a slug"
    ):
        parse_task_id("a/b")


@pytest.mark.parametrize("bad", [None, 1, 1.5, True, b"0001", ["a"], {"id": "a"}, {"a"}, object()])
def test_an_id_that_is_not_a_string_is_refused_by_its_type(bad: Any) -> None:
    with pytest.raises(BadArgument, match=f"must be a string, not {type(bad).__name__}"):
        parse_task_id(bad)


@pytest.mark.parametrize("piece", ["x", "A-001-", "a:", "::1", "0001_t1.", "/"])
def test_a_huge_id_makes_a_short_message(piece: str) -> None:
    with pytest.raises(BadArgument, match="too long") as caught:
        parse_task_id(piece * 1_000_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0001", (1,)),
        ("0001_t1", (1, 1)),
        ("0001_t2.10", (1, 2, 10)),
        ("A000_t2.10", (10_000, 2, 10)),
        ("AA00_t1", (36_000, 1)),
        ("0001_t1::4", (1, 1, 4)),
        (DASHBOARD, (3,)),
        (f"{DASHBOARD}::1::2", (3, 1, 2)),
        ("f:e", ()),
        ("f:e::2", (2,)),
        ("slug", ()),
        ("slug::5", (5,)),
        ("A000", ()),
    ],
)
def test_the_sort_path_of_an_id_is_its_numbers_from_the_root_down(
    text: str, path: tuple[int, ...]
) -> None:
    assert sort_path(parse_task_id(text)) == path


def test_hierarchical_ids_sort_by_value_where_text_would_err() -> None:
    in_order = [
        "0001",
        "0001_t2",
        "0001_t10",
        "0001_t10.9",
        "0001_t10.10",
        "0002",
        "9999",
        "A000",
        "Z999",
        "AA00",
        "ZZ99",
        "AAA0",
    ]
    read = [parse_task_id(text, hierarchical=True) for text in in_order]
    assert sorted(read, key=sort_path) == read
    assert sorted(in_order) != in_order


slugs = st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True).filter(
    lambda text: text not in {".", ".."}
)
parts = st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True).filter(
    lambda text: text not in {".", ".."}
)
tracks = st.builds(
    lambda track, sequence, description: f"{track}-{sequence:03d}-{description}",
    st.from_regex(r"[A-Z]{1,16}", fullmatch=True),
    st.integers(1, 999),
    st.from_regex(r"[A-Za-z0-9_-]{1,50}", fullmatch=True),
)
paths = st.tuples(st.integers(1, LAST_ROOT), st.lists(st.integers(1, 10**6), max_size=6))


def hierarchical_text(root: int, children: list[int]) -> str:
    return format_root(root) + ("_t" if children else "") + ".".join(map(str, children))


ids = st.one_of(
    slugs,
    tracks,
    st.builds("{}:{}".format, parts, parts),
    paths.map(lambda path: hierarchical_text(*path)),
)


@given(base=ids, subtasks=st.lists(st.integers(1, 10**6), max_size=4), hierarchical=st.booleans())
def test_every_id_keeps_its_text_and_its_ancestors_are_ids_one_level_up_each(
    base: str, subtasks: list[int], hierarchical: bool
) -> None:
    text = "::".join([base, *map(str, subtasks)])
    read = parse_task_id(text, hierarchical=hierarchical)
    assert read.text == text
    for depth in itertools.count(read.depth, -1):
        assert read.depth == depth
        if read.parent is None:
            break
        read = parse_task_id(read.parent, hierarchical=hierarchical)
    assert read.depth == 0


@given(text=tracks)
def test_a_track_id_is_rebuilt_from_its_parts(text: str) -> None:
    read = parse_task_id(text)
    assert (read.grammar, f"{read.track}-{read.sequence:03d}-{read.description}") == (
        Grammar.TRACK,
        text,
    )


@given(feature=parts, edge=parts)
def test_a_feature_and_its_edge_are_read_apart(feature: str, edge: str) -> None:
    read = parse_task_id(f"{feature}:{edge}")
    assert (read.grammar, read.feature, read.edge) == (Grammar.EDGE, feature, edge)


@given(first=paths, second=paths)
def test_the_sort_path_gives_back_the_numbers_and_so_their_order(
    first: tuple[int, list[int]], second: tuple[int, list[int]]
) -> None:
    read = [
        sort_path(parse_task_id(hierarchical_text(*path), hierarchical=True))
        for path in (first, second)
    ]
    numbers = [(root, *children) for root, children in (first, second)]
    assert read == numbers
    assert (read[0] < read[1]) == (numbers[0] < numbers[1])


numbers = st.lists(st.integers(1, 120) | st.integers(1, LAST_CHILD), max_size=4)


@given(base=ids, first=numbers, second=numbers)
def test_the_sort_text_of_subtasks_compares_as_bytes_as_their_numbers_do(
    base: str, first: list[int], second: list[int]
) -> None:
    one, other = (
        sort_text("::".join([base, *map(str, path)])).encode() for path in (first, second)
    )
    assert (one < other, one == other) == (first < second, first == second)


@given(root=st.integers(1, LAST_ROOT), first=numbers, second=numbers)
def test_the_sort_text_of_hierarchical_children_compares_as_their_numbers_do(
    root: int, first: list[int], second: list[int]
) -> None:
    one, other = (sort_text(hierarchical_text(root, path)).encode() for path in (first, second))
    assert (one < other, one == other) == (first < second, first == second)


@pytest.mark.parametrize(
    "text", ["A-010-x", "x-10_t10", "f_t12:e", "slug_t1.10", "x::9", "0001_t9.9", "0012"]
)
def test_the_sort_text_of_an_id_without_a_child_s_long_number_is_the_id(text: str) -> None:
    assert sort_text(text) == text


@given(text=st.text(max_size=210) | st.text("A01_t.:-x/", max_size=20))
def test_any_text_is_either_an_id_or_refused_with_a_message_that_can_be_sent(text: str) -> None:
    try:
        assert parse_task_id(text).text == text
    except BadArgument as refusal:
        str(refusal).encode()


def test_an_id_given_as_a_subclass_of_str_is_kept_as_a_plain_string() -> None:
    class QuotedScalar(str):
        __slots__ = ()

    for text in ("seen-in-yaml-first", "seen-in-yaml-first::1"):
        assert type(parse_task_id(QuotedScalar(text)).text) is str
        assert msgspec.json.decode(
            msgspec.json.encode(parse_task_id(text)), type=TaskId
        ) == parse_task_id(text)


def test_a_task_id_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        parse_task_id("slug").text = "other"  # type: ignore[misc]
