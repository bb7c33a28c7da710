"""Foreign text made safe to show."""

from __future__ import annotations

import json

import pytest

from genlock.safe_text import is_safe_line, safe_json, safe_line, safe_text
from tests.hostile_text import HOSTILE, obeyed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 任务, עברית", "plain, größer, 任务, עברית"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("\x7f\x80\x9b\x9f", "\\x7f\\x80\\x9b\\x9f"),
        ("a\r\nb\rc", "a\\x0d\nb\\x0dc"),
        ("a\tb\n", "a\tb\n"),
        (
            "\u202a\u202e\u2066\u2069\u200e\u200f\u061c",
            "\\u202a\\u202e\\u2066\\u2069\\u200e\\u200f\\u061c",
        ),
        ("\u2028\u2029\u200b\u2060\ufeff\xad", "\\u2028\\u2029\\u200b\\u2060\\ufeff\\xad"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\udcff"),
        ("👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, shown: str) -> None:
    assert safe_text(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nforged: b", "a forged: b"),
        ("a\x85b\u2028c", "a b c"),
        ("a \t\n b", "a b"),
        (None, ""),
        (7, "7"),
    ],
)
def test_one_line_stays_one(text: object, shown: str) -> None:
    assert safe_line(text) == shown


def test_what_is_safe_is_told_from_what_is_not() -> None:
    assert [is_safe_line(text) for text in ("A-001-x", "A\nB", "A\x1b")] == [True, False, False]


def test_json_keeps_its_value_and_has_nothing_to_obey() -> None:
    made = safe_json(json.dumps({HOSTILE: [HOSTILE, "größer"]}, ensure_ascii=False).encode())
    assert json.loads(made) == {HOSTILE: [HOSTILE, "größer"]}
    assert obeyed(made.decode()) == []
    assert (
        safe_json('"\x9b\U000e0041\u202eü"'.encode()) == '"\\u009b\\udb40\\udc41\\u202eü"'.encode()
    )


def test_every_character_that_is_spelled_out_in_text_is_escaped_in_json() -> None:
    for code in range(0x20, 0x110000):
        if not 0xD800 <= code <= 0xDFFF and chr(code) not in '"\\':
            char = chr(code)
            assert (safe_text(char) != char) == (
                safe_json(f'"{char}"'.encode()) != f'"{char}"'.encode()
            ), hex(code)
