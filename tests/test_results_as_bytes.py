"""Results as canonical bytes: the ones that Python's own encoder writes, and its errors."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from json import encoder
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.coordinator import arguments
from genlock.errors import BadArgument

_usual = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_keys = st.text() | st.integers() | st.booleans() | st.none() | st.floats()
_values = st.recursive(
    _scalars | st.binary(max_size=2) | st.just({1, 2}),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(_keys, inner)
        | st.dictionaries(st.text(), inner)
    ),
    max_leaves=20,
)


def told(encode: Callable[[Any], str], value: Any) -> bytes | str:
    """The bytes, or what is said instead."""
    try:
        return encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"result_data cannot be written as JSON: {error}"


def packed(value: Any) -> bytes | str:
    try:
        return arguments.pack(value)[1]
    except BadArgument as error:
        return str(error)


@given(_values.filter(lambda value: value is not None))
def test_a_result_has_the_bytes_that_python_s_encoder_writes_or_its_error(value: Any) -> None:
    assert packed(value) == told(_usual, value)


class Color(IntEnum):
    RED = 3


class Word(str):
    __slots__ = ()


class Table(dict[Any, Any]):
    pass


def circle(kind: Callable[[list[Any]], Any]) -> Any:
    inside: list[Any] = []
    value = kind(inside)
    inside.append(value)
    return value


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


SPECIAL: dict[str, Any] = {
    "a text": 'é"\\\n\x00\x7f\u2028😀',
    "a lone surrogate": "\ud800",
    "a lone surrogate inside": {"a": ["\udfff"]},
    "a word of its own class": Word("é"),
    "keys of a class of its own": {Word("b"): 1, Word("a"): 2},
    "an enumeration": [Color.RED, {Color.RED: True}],
    "subclasses": OrderedDict([("b", Table(z=1, a=2)), ("a", ())]),
    "large and small numbers": [10**40, 1e16, 1e-7, -0.0, 5e-324],
    "infinity": [float("inf")],
    "no number": {"a": float("nan")},
    "a key that is no number": {float("nan"): 1},
    "keys that cannot be compared": {"a": 1, 2: 3},
    "a key that is none": {(1, 2): 3},
    "bytes": [b"a"],
    "an object": {"a": object},
    "a circle of lists": circle(lambda inside: [inside]),
    "a circle through a tuple": circle(lambda inside: (inside,)),
    "a circle through a mapping": circle(lambda inside: {"a": 1, "b": inside}),
    "a circle through numbers": circle(lambda inside: {1: inside}),
    "deep": nested(200),
    "too deep": nested(100_000),
}


@pytest.mark.parametrize("value", SPECIAL.values(), ids=SPECIAL)
def test_what_is_special_is_written_or_refused_as_python_s_encoder_does(value: Any) -> None:
    assert packed(value) == told(_usual, value)


def test_an_error_leaves_nothing_behind_that_a_later_result_is_mistaken_for() -> None:
    value: dict[str, Any] = {"a": [object]}
    for _ in range(3):
        with pytest.raises(BadArgument, match="not JSON serializable"):
            arguments.pack(value)
    value["a"][0] = 1
    assert arguments.pack(value)[1] == b'{"a":[1]}'


def test_where_python_has_no_encoder_in_c_the_bytes_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = {"b": ["é", 1.5, None], "a": {}}
    with_c = packed(value)
    monkeypatch.setattr(encoder, "c_make_encoder", None)
    arguments._canonical.cache_clear()
    try:
        assert packed(value) == with_c == told(_usual, value)
    finally:
        arguments._canonical.cache_clear()
