"""Edits JSON as text: inserts or removes a member or an item, and leaves the rest unchanged.

Comments and trailing commas are accepted, because several agents allow them in their settings.
`take_out` removes exactly the bytes that `put_in` inserted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from genlock.errors import BadArgument

Path = tuple[str, ...]

_SPACE: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_DEEPEST: Final = 100


class Node(NamedTuple):
    """A value in the text, from `start` to `end`, with its members or items."""

    start: int
    end: int
    value: Any
    members: tuple[tuple[str, int, Node], ...] = ()
    """For an object: each key, its start, and its value."""
    items: tuple[Node, ...] = ()


class BadJson(BadArgument):
    """The text is no JSON; the message says where."""


def parse(text: str) -> Node:
    """Parses the text into a tree. A byte order mark at its beginning is skipped."""
    reader = _Reader(text)
    at = reader.skip(1 if text.startswith("\ufeff") else 0)
    node = reader.value(at, 0)
    if reader.skip(node.end) != len(text):
        raise reader.fault(node.end, "something follows the end")
    return node


def find(root: Node, path: Path) -> Node | None:
    """Returns the value at these keys; of several members with the same name, the last one."""
    for key in path:
        found = [node for name, _, node in root.members if name == key]
        if not found:
            return None
        root = found[-1]
    return root


def put_in(text: str, path: Path, value: Any) -> str:
    """Returns the text with this member; missing parents are created."""
    root, at = parse(text), path
    for depth in range(len(path)):
        node = find(root, path[:depth])
        assert node is not None
        if not isinstance(node.value, dict):
            raise BadJson(f"{'.'.join(path[:depth]) or 'the file'} is no object")
        if find(root, path[: depth + 1]) is None:
            at = path[: depth + 1]
            for key in reversed(path[depth + 1 :]):
                value = {key: value}
            return _inserted(text, node, len(at), f"{json.dumps(at[-1])}: ", value)
    node = find(root, path)
    assert node is not None
    shown = _shown(value, _indent(text), len(path))
    return text[: node.start] + shown + text[node.end :]


def append(text: str, path: Path, item: Any) -> str:
    """Returns the text with this item at the end of the array at `path`, which is created if
    missing."""
    node = find(parse(text), path)
    if node is None:
        return put_in(text, path, [item])
    if not isinstance(node.value, list):
        raise BadJson(f"{'.'.join(path)} is no array")
    return _inserted(text, node, len(path) + 1, "", item)


def take_out(text: str, path: Path) -> str:
    """Returns the text without this member, and without parents that become empty."""
    node = find(parse(text), path[:-1])
    places = (
        [] if node is None else [at for at, one in enumerate(node.members) if one[0] == path[-1]]
    )
    if node is None or not places:
        return text
    spans = [(start, value.end) for _, start, value in node.members]
    return _emptied(_cut(text, node, spans, places[-1], len(path)), path[:-1])


def take_items(text: str, path: Path, is_ours: Callable[[Any], bool]) -> str:
    """Returns the text without these items of the array at `path`, and without parents that become
    empty."""
    while True:
        node = find(parse(text), path)
        places = (
            [] if node is None else [at for at, one in enumerate(node.items) if is_ours(one.value)]
        )
        if node is None or not places:
            return text
        spans = [(item.start, item.end) for item in node.items]
        text = _cut(text, node, spans, places[-1], len(path) + 1)
        if len(spans) == 1:
            return _emptied(text, path)


def _emptied(text: str, path: Path) -> str:
    """Removes the object or array at `path` if it is empty and has no comment."""
    node = find(parse(text), path)
    if not path or node is None or node.value or text[node.start + 1 : node.end - 1].strip():
        return text
    return take_out(text, path)


def _inserted(text: str, node: Node, depth: int, key: str, value: Any) -> str:
    """Returns the text with a value after the last one of this object or array."""
    step = _indent(text)
    shown = key + _shown(value, step, depth)
    line = "\n" + step * depth
    last = _last_end(node)
    if last is None:
        at = node.start + 1
        return text[:at] + line + shown + "\n" + step * (depth - 1) + text[at:]
    return text[:last] + "," + line + shown + text[last:]


def _cut(text: str, node: Node, spans: Sequence[tuple[int, int]], place: int, depth: int) -> str:
    """Returns the text without the value at this index, and without its comma."""
    start, end = spans[place]
    if place:
        between = text[spans[place - 1][1] : start]
        return text[: spans[place - 1][1]] + _comments(between) + text[end:]
    if len(spans) > 1:
        return text[:start] + _comments(text[end : spans[1][0]]).lstrip() + text[spans[1][0] :]
    step = _indent(text)
    before, after = "\n" + step * depth, "\n" + step * (depth - 1)
    if text[:start].endswith(before) and text[end:].startswith(after):
        return text[: start - len(before)] + text[end + len(after) :]
    closing = _Reader(text).skip(end)
    rest = closing + 1 if text[closing] == "," else end
    return text[:start].rstrip() + text[rest:].lstrip()


def _comments(between: str) -> str:
    """Returns the text between two values, without the comma; empty if it is only white space."""
    kept = between.replace(",", "", 1)
    return kept.rstrip(" \t") if kept.strip() else ""


def _last_end(node: Node) -> int | None:
    ends = [value.end for _, _, value in node.members] or [item.end for item in node.items]
    return ends[-1] if ends else None


def _shown(value: Any, step: str, depth: int) -> str:
    shown = json.dumps(value, indent=step, ensure_ascii=False)
    return shown.replace("\n", "\n" + step * depth)


def _indent(text: str) -> str:
    """Returns the indentation step of the text."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found is not None and "*" not in found[0] else "  "


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._decoder = json.JSONDecoder(strict=False)

    def skip(self, at: int) -> int:
        """Returns the position after white space and comments."""
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()

    def fault(self, at: int, what: str) -> BadJson:
        line = self._text.count("\n", 0, at) + 1
        return BadJson(f"line {line}: {what}")

    def value(self, at: int, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self.fault(at, "it is nested too deeply")
        char = self._text[at : at + 1]
        if char == "{":
            return self._object(at, depth)
        if char == "[":
            return self._array(at, depth)
        try:
            value, end = self._decoder.raw_decode(self._text, at)
        except ValueError:
            raise self.fault(at, f"a value is expected, not {char or 'the end'!r}") from None
        return Node(at, end, value)

    def _object(self, start: int, depth: int) -> Node:
        members: list[tuple[str, int, Node]] = []
        at = self.skip(start + 1)
        while self._text[at : at + 1] != "}":
            if self._text[at : at + 1] != '"':
                raise self.fault(at, "a key in quotes or } is expected")
            key = self.value(at, depth)
            at = self._expect(key.end, ":")
            value = self.value(at, depth + 1)
            members.append((key.value, key.start, value))
            at = self._next(value.end, "}")
        return Node(start, at + 1, {key: value.value for key, _, value in members}, tuple(members))

    def _array(self, start: int, depth: int) -> Node:
        items: list[Node] = []
        at = self.skip(start + 1)
        while self._text[at : at + 1] != "]":
            items.append(self.value(at, depth + 1))
            at = self._next(items[-1].end, "]")
        return Node(start, at + 1, [item.value for item in items], (), tuple(items))

    def _expect(self, at: int, char: str) -> int:
        at = self.skip(at)
        if self._text[at : at + 1] != char:
            raise self.fault(at, f"{char} is expected")
        return self.skip(at + 1)

    def _next(self, at: int, closing: str) -> int:
        """Returns the position after the comma, which may be a trailing one, or at the end."""
        at = self.skip(at)
        if self._text[at : at + 1] == ",":
            return self.skip(at + 1)
        if self._text[at : at + 1] != closing:
            raise self.fault(at, f"a comma or {closing} is expected")
        return at
