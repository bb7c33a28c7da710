"""Counters: roots run from 0001 to ZZZ9, children from 1, and every child's id reads back as its
parent's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core.ids import (
    LAST_CHILD,
    LAST_ROOT,
    Grammar,
    child_id,
    format_root,
    parse_root,
    parse_task_id,
)
from genlock.errors import BadArgument, CounterExhausted

TABLE = [
    (1, "0001"),
    (9_999, "9999"),
    (10_000, "A000"),
    (10_999, "A999"),
    (11_000, "B000"),
    (35_999, "Z999"),
    (36_000, "AA00"),
    (36_100, "AB00"),
    (38_599, "AZ99"),
    (38_600, "BA00"),
    (103_599, "ZZ99"),
    (103_600, "AAA0"),
    (103_610, "AAB0"),
    (279_359, "ZZZ9"),
]

roots = st.integers(1, LAST_ROOT)
numbers = st.integers(1, LAST_CHILD)


@pytest.mark.parametrize(("value", "text"), TABLE)
def test_a_root_is_written_and_read_by_the_tier_its_value_falls_in(value: int, text: str) -> None:
    assert format_root(value) == text
    assert parse_root(text) == value


def test_every_root_reads_back_as_its_value_and_no_two_are_alike() -> None:
    texts = [format_root(value) for value in range(1, LAST_ROOT + 1)]
    assert [parse_root(text) for text in texts] == list(range(1, LAST_ROOT + 1))
    assert len(set(texts)) == LAST_ROOT
    assert {len(text) for text in texts} == {4}


@given(
    text=st.from_regex(r"[A-Z]{0,3}[0-9]{1,4}", fullmatch=True).filter(
        lambda t: len(t) == 4 and t != "0000"
    )
)
def test_every_text_of_a_roots_form_is_the_root_of_its_value(text: str) -> None:
    assert format_root(parse_root(text)) == text


@given(first=roots, second=roots)
def test_roots_compare_by_value_where_text_would_err(first: int, second: int) -> None:
    assert (first < second) == (parse_root(format_root(first)) < parse_root(format_root(second)))


def test_text_order_would_put_the_second_tier_before_the_end_of_the_first() -> None:
    assert "AA00" < "Z999"
    assert parse_root("AA00") == parse_root("Z999") + 1


@pytest.mark.parametrize("value", [LAST_ROOT + 1, 10**6, pytest.param(10**5000, id="huge")])
def test_after_the_last_root_the_counter_says_that_it_is_used_up(value: int) -> None:
    with pytest.raises(CounterExhausted, match="end at ZZZ9, which is number 279359"):
        format_root(value)
    with pytest.raises(CounterExhausted, match="end at ZZZ9"):
        child_id(None, value)


@pytest.mark.parametrize("value", [0, -1, pytest.param(-(10**5000), id="huge")])
def test_counting_starts_at_one(value: int) -> None:
    with pytest.raises(BadArgument, match="starts at 1"):
        format_root(value)
    with pytest.raises(BadArgument, match="starts at 1"):
        child_id("0001", value)


@pytest.mark.parametrize("value", [None, "1", 1.0, True, b"1", [1]])
def test_a_number_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(BadArgument, match="is an integer, not"):
        format_root(value)
    with pytest.raises(BadArgument, match="is an integer, not"):
        child_id("0001", value)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "0000",
        "1",
        "001",
        "00001",
        "a000",
        "AAAA",
        "0A00",
        "A0A0",
        "00-1",
        "0001 ",
        "0001\n",
        "１２３４",
        "🙂000",
        "..",
        "/\0",
    ],
)
def test_a_text_that_is_no_root_is_refused(bad: str) -> None:
    with pytest.raises(BadArgument):
        parse_root(bad)


@pytest.mark.parametrize("bad", [None, 1, b"0001", ["0001"]])
def test_a_root_that_is_not_a_string_is_refused(bad: Any) -> None:
    with pytest.raises(BadArgument, match="must be a string"):
        parse_root(bad)


@pytest.mark.parametrize(
    ("parent", "value", "child"),
    [
        (None, 1, "0001"),
        (None, 10_000, "A000"),
        ("0001", 1, "0001_t1"),
        ("0001", 12, "0001_t12"),
        ("0001_t1", 1, "0001_t1.1"),
        ("A000_t1", 2, "A000_t1.2"),
        ("0001_t1.2", 3, "0001_t1.2.3"),
        ("B-003-implement-user-dashboard", 1, "B-003-implement-user-dashboard::1"),
        ("B-003-implement-user-dashboard::1", 2, "B-003-implement-user-dashboard::1::2"),
        ("AUTH-LOGIN:design_code", 4, "AUTH-LOGIN:design_code::4"),
        ("implement-feature-x", 7, "implement-feature-x::7"),
        ("0001::2", 1, "0001::2::1"),
        ("0001_t1::2", 1, "0001_t1::2::1"),
        ("0001_t1", LAST_CHILD, f"0001_t1.{LAST_CHILD}"),
    ],
)
def test_a_childs_id_is_its_parents_with_a_number(
    parent: str | None, value: int, child: str
) -> None:
    assert child_id(parent, value) == child


def test_a_bare_root_with_letters_has_hierarchical_children_only_where_ids_are_counted_so() -> None:
    assert child_id("A000", 1) == "A000::1"
    assert child_id("A000", 1, hierarchical=True) == "A000_t1"


def test_children_end_at_fifteen_nines() -> None:
    with pytest.raises(CounterExhausted, match="no child of 0001_t1 is left"):
        child_id("0001_t1", LAST_CHILD + 1)


@pytest.mark.parametrize("bad", ["", "..", "a/b", "a\0", "🙂", "x" * 500, "a::0"])
def test_a_malformed_parent_has_no_children(bad: str) -> None:
    with pytest.raises(BadArgument):
        child_id(bad, 1)


def test_a_child_too_long_to_be_an_id_is_refused_when_it_is_named() -> None:
    parent = "f" * 100 + ":" + "e" * 99
    assert parse_task_id(parent).text == parent
    with pytest.raises(BadArgument, match="too long: 203 characters"):
        child_id(parent, 1)


@given(root=roots, path=st.lists(st.integers(1, 10**6), max_size=6))
def test_a_hierarchical_child_reads_back_with_its_parent_and_depth(
    root: int, path: list[int]
) -> None:
    text = child_id(None, root)
    for depth, number in enumerate(path, start=1):
        parent, text = text, child_id(text, number, hierarchical=True)
        read = parse_task_id(text, hierarchical=True)
        assert (read.grammar, read.parent, read.depth, read.subtask_index) == (
            Grammar.HIERARCHICAL,
            parent,
            depth,
            None,
        )


@given(
    base=st.sampled_from(["B-003-repositories", "AUTH:code", "slug", "0001_t1::1", "A000", "0000"]),
    path=st.lists(numbers, min_size=1, max_size=5),
)
def test_a_subtask_reads_back_with_its_parent_depth_and_index(base: str, path: list[int]) -> None:
    text, start = base, parse_task_id(base)
    for depth, number in enumerate(path, start=start.depth + 1):
        parent, text = text, child_id(text, number)
        read = parse_task_id(text)
        assert (read.parent, read.depth, read.subtask_index) == (parent, depth, number)
        assert (read.grammar, read.track, read.feature) == (
            start.grammar,
            start.track,
            start.feature,
        )
