"""Reads the plain part of YAML line by line. Large plans use only this part, and it costs a
twentieth of a full YAML parser.

    tracks:
      A:
        - id: A-001-core-framework
          title: "Initialize: core"
          depends_on: [B-001-schema-design, B-002-entity-models]   # a comment

The plain part is block mappings and lists, keys that are words, and values on one line. Any text
that may not be of this kind, or has a fault, is left to the full parser: this module returns the
same values as that one, or none.
"""

from __future__ import annotations

import re
from typing import Any, Final

from genlock.plans.values import FREE_KEY, ID_KEYS, Misread, load_yaml, resolve

UNREAD: Final = object()
"""Returned if the text needs the full parser."""

_ODD = re.compile("[^\n -~\xa1-\u1fff\u2030-\ud7ff\U00010000-\U0010ffff]")
_LINE = re.compile(r"( *)((?:- )?)(?:([A-Za-z_][A-Za-z0-9_-]{0,100}):(?: +(.*))?|([^\s].*))")
_COMMENT = r"(?: +#.*)?"
_PLAIN = re.compile(rf"([A-Za-z][A-Za-z0-9_./()+;'-]*(?:,? [A-Za-z0-9_./()+;'-]+)*){_COMMENT} *")
_QUOTED = re.compile(rf"\"([^\"\\]*)\"{_COMMENT} *|'([^']*)'{_COMMENT} *")
_NUMBER = re.compile(rf"([0-9][A-Za-z0-9._-]{{0,60}}){_COMMENT} *")
_LIST = re.compile(
    rf"\[((?:[A-Za-z0-9][A-Za-z0-9_.-]{{0,120}}(?:, "
    rf"*[A-Za-z0-9][A-Za-z0-9_.-]{{0,120}})*)?)\]{_COMMENT} *"
)
_WORDS: Final = frozenset(
    {"null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE"}
)
_ELSEWHERE: Final = frozenset("|>&*!%@`?")
"""Characters that begin a value that continues on the next line, or that refers to another
value."""
_DEEPEST = 20


class _Unread(Exception):
    """The text is not of the plain kind."""


class _Open:
    """A mapping or list that may continue: its indent, and the key whose value is still missing."""

    __slots__ = ("free", "ids", "indent", "key", "value")

    def __init__(
        self, indent: int, value: dict[str, Any] | list[Any], *, free: bool, ids: bool
    ) -> None:
        self.indent = indent
        self.value = value
        self.key: str | None = None
        self.free = free
        self.ids = ids


def read_quickly(text: str) -> Any:
    """Returns the text's value as `load_yaml` does, or UNREAD."""
    if _ODD.search(text):
        return UNREAD
    try:
        return _Lines().read(text)
    except _Unread:
        return UNREAD


class _Lines:
    """The collections that are open at a line, the outermost first."""

    def __init__(self) -> None:
        self._open = [_Open(0, {}, free=False, ids=False)]

    def read(self, text: str) -> dict[str, Any]:
        root = self._open[0].value
        for line in text.split("\n"):
            bare = line.lstrip(" ")
            if not bare or bare[0] == "#":
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                raise _Unread
            lead, dash, key, value, item = found.groups()
            self._take(len(lead), dash, key, value, item)
        if not root:
            raise _Unread
        return root  # type: ignore[return-value]

    def _take(
        self, indent: int, dash: str, key: str | None, value: str | None, item: str | None
    ) -> None:
        if dash:
            here = self._list(indent)
            if key is None:
                here.value.append(_value(item or "", ids=here.ids))  # type: ignore[union-attr]
                return
            if here.ids:
                raise _Unread
            fields = _Open(indent + 2, {}, free=here.free, ids=False)
            here.value.append(fields.value)  # type: ignore[union-attr]
            self._open.append(fields)
        elif key is None:
            raise _Unread
        else:
            fields = self._mapping(indent)
        assert key is not None
        if key in fields.value:
            raise _Unread
        # An earlier key without a value has the value null.
        fields.key = None
        if value is None or value[:1] in ("", "#"):
            fields.key = key
            fields.value[key] = None  # type: ignore[call-overload]
        else:
            ids = not fields.free and key in ID_KEYS
            fields.value[key] = _value(value, ids=ids, key=key, free=fields.free)  # type: ignore[call-overload]

    def _close_to(self, indent: int) -> _Open:
        while self._open[-1].indent > indent:
            self._open.pop()
        return self._open[-1]

    def _list(self, indent: int) -> _Open:
        """Returns the list that has an item at this indent."""
        here = self._close_to(indent)
        if isinstance(here.value, list):
            if here.indent != indent:
                raise _Unread
            return here
        # A list may begin deeper than its key, or at the same indent.
        return self._begin(here, indent, [])

    def _mapping(self, indent: int) -> _Open:
        """Returns the mapping that has a key at this indent."""
        here = self._close_to(indent)
        if isinstance(here.value, list) and here.indent == indent:
            # The list had the same indent as its key.
            self._open.pop()
            here = self._open[-1]
        if isinstance(here.value, dict) and here.indent == indent:
            return here
        return self._begin(here, indent, {})

    def _begin(self, here: _Open, indent: int, value: dict[str, Any] | list[Any]) -> _Open:
        """Makes `value` the value of the key that still needs one."""
        key = here.key
        if key is None or not isinstance(here.value, dict) or len(self._open) > _DEEPEST:
            raise _Unread
        if indent < here.indent or (indent == here.indent and isinstance(value, dict)):
            raise _Unread
        free = here.free or key == FREE_KEY
        ids = not here.free and key in ID_KEYS
        if ids and isinstance(value, dict):
            raise _Unread
        here.value[key] = value
        here.key = None
        begun = _Open(indent, value, free=free, ids=ids)
        self._open.append(begun)
        return begun


def _value(text: str, *, ids: bool, key: str = "k", free: bool = False) -> Any:
    """Parses a value on one line."""
    if found := _PLAIN.fullmatch(text):
        return resolve(found[1]) if found[1] in _WORDS else found[1]
    if found := _LIST.fullmatch(text):
        items = [item.strip() for item in found[1].split(",")] if found[1] else []
        return [resolve(item) if not ids or item in _WORDS else item for item in items]
    if found := _QUOTED.fullmatch(text):
        return found[1] if found[1] is not None else found[2]
    if found := _NUMBER.fullmatch(text):
        return found[1] if ids else resolve(found[1])
    if text[0] in _ELSEWHERE or " &" in text or " *" in text or (ids and key not in ID_KEYS):
        raise _Unread
    # Any other value that ends on its line is parsed by itself.
    try:
        read = load_yaml(f"metadata:\n  {key}: {text}" if free else f"{key}: {text}")
    except Misread:
        raise _Unread from None
    inner = read["metadata"] if free else read
    if not isinstance(inner, dict) or list(inner) != [key]:
        raise _Unread
    return inner[key]
