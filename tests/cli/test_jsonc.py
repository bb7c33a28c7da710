"""Editing JSON as text: what is put in can be taken out again, and the rest never changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.cli.agents import jsonc
from genlock.cli.agents.jsonc import BadJson

SERVER = {"command": "genlock", "args": ["mcp"]}
HOOK = {"hooks": [{"command": "genlock hook x"}]}
TEXTS = [
    "{}",
    "{}\n",
    "{ }",
    "{\n}\n",
    '{"mcpServers": {"other": {"command": "x"}}}',
    '{\n  "mcpServers": {\n    "other": {}\n  },\n  "theme": "dark"\n}\n',
    '{\n\t"a": 1\n}',
    '{\r\n    "a": 1\r\n}\r\n',
    '\ufeff{"a": 1}',
    '// a comment\n{\n  // another\n  "a": 1, // behind\n  /* long\n  one */ "b": [1, 2,],\n}\n',
    '{"a": 1,}',
    '{"hooks": {"Stop": [{"hooks": []}]}}',
]


def values(text: str) -> Any:
    return jsonc.parse(text).value


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_put_in_is_taken_out_to_the_byte(text: str) -> None:
    with_it = jsonc.put_in(text, ("mcpServers", "genlock"), SERVER)
    with_it = jsonc.append(with_it, ("hooks", "Stop"), HOOK)
    found = values(with_it)
    assert found["mcpServers"]["genlock"] == SERVER
    assert found["hooks"]["Stop"][-1] == HOOK
    without = jsonc.take_items(with_it, ("hooks", "Stop"), lambda item: item == HOOK)
    assert jsonc.take_out(without, ("mcpServers", "genlock")) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(), _JSON, max_size=4),
    st.sampled_from([None, 2, "\t"]),
)
def test_any_document_keeps_its_values(value: dict[str, Any], indent: Any) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not isinstance(value.get("mcpServers", {}), dict):
        return
    with_it = jsonc.put_in(text, ("mcpServers", "genlock"), SERVER)
    wanted = {**value, "mcpServers": {**value.get("mcpServers", {}), "genlock": SERVER}}
    assert values(with_it) == wanted
    assert json.loads(with_it) == wanted


def test_comments_of_others_around_what_is_taken_out_stay() -> None:
    text = jsonc.put_in('{\n  "a": 1\n}\n', ("genlock",), 1)
    changed = text.replace('"a": 1,', '"a": 1, // why\n  // more').replace("\n}", '\n  ,"b": 2\n}')
    without = jsonc.take_out(changed, ("genlock",))
    assert "// why" in without
    assert "// more" in without
    assert values(without) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: a value is expected, not 'the end'"),
        ("{", "line 1: a key in quotes or }"),
        ('{\n"a": 1\n"b": 2}', "line 3: a comma or } is expected"),
        ('{"a" 1}', "line 1: : is expected"),
        ("{} {}", "something follows the end"),
        ('{"a": nope}', "a value is expected"),
        ("[" * 200, "nested too deeply"),
    ],
)
def test_broken_json_is_refused_with_the_place(text: str, told: str) -> None:
    with pytest.raises(BadJson, match=told.replace("}", r"\}")):
        jsonc.parse(text)


def test_a_value_of_another_kind_on_the_way_is_refused() -> None:
    with pytest.raises(BadJson, match="mcpServers is no object"):
        jsonc.put_in('{"mcpServers": []}', ("mcpServers", "genlock"), SERVER)
    with pytest.raises(BadJson, match=r"hooks\.Stop is no array"):
        jsonc.append('{"hooks": {"Stop": {}}}', ("hooks", "Stop"), HOOK)
