"""YAML frontmatter before Markdown: reads it, and changes some of its keys.

Everything else stays unchanged, to the byte: comments, the order of the keys, unknown keys, the
text below. If a key to be changed is not on a line of its own, ruamel.yaml rewrites the whole
frontmatter, with its comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from genlock.errors import BadArgument

_FENCE = re.compile(r"-{3,}[ \t]*\r?$", re.MULTILINE)
_PLAIN_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?:[ \t]+(.*?))?[ \t]*\r?")
_ITEM_LINE = re.compile(r"[ ]*- ([A-Za-z0-9][A-Za-z0-9_./-]*)[ \t]*\r?")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./()+-]*(?: [A-Za-z0-9_./()+-]+)*")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)?")
_QUOTED = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_LIST = re.compile(r"\[((?:[A-Za-z][A-Za-z0-9_./-]*(?:, *[A-Za-z][A-Za-z0-9_./-]*)*)?)\]")
_OTHER_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_MOST_YAML: Final = 65_536
"""The limit of characters for the YAML parser, which needs a second for that many. Plain
frontmatter may be longer."""


class NoFrontmatter(Exception):
    """The text has no frontmatter."""


class Parts(NamedTuple):
    """A file with frontmatter, as three pieces that join to the whole file."""

    head: str
    """Up to and including the first fence."""
    yaml: str
    tail: str
    """From the second fence to the end."""

    @property
    def body(self) -> str:
        """The text below the frontmatter."""
        return self.tail.partition("\n")[2]


def split(text: str) -> Parts:
    """Returns the pieces of a file. Raises `NoFrontmatter` if it has none."""
    stripped = text.lstrip("\ufeff \t\r\n")
    start = len(text) - len(stripped)
    first = _FENCE.match(text, start)
    if first is None:
        raise NoFrontmatter
    begin = first.end() + 1
    second = _FENCE.search(text, begin)
    while second is not None and text[second.start() - 1] != "\n":
        second = _FENCE.search(text, second.end())
    if second is None:
        raise NoFrontmatter
    return Parts(text[:begin], text[begin : second.start()], text[second.start() :])


def read(yaml: str) -> dict[str, Any]:
    """Returns the keys and values. Raises `BadArgument` if this is not a YAML mapping."""
    quick = _read_quickly(yaml)
    if quick is not None:
        return quick
    if len(yaml) > _MOST_YAML:
        raise BadArgument(f"the frontmatter has more than {_MOST_YAML:,} characters")
    from genlock.plans.values import load_yaml  # imported late: most files are plain

    value = load_yaml(yaml) if yaml.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArgument("the frontmatter is no mapping of keys to values")
    return value


def _read_quickly(yaml: str) -> dict[str, Any] | None:
    """The same for files in which every line is surely plain; None for other files."""
    values: dict[str, Any] = {}
    open_list: list[str] | None = None
    open_key = ""
    for line in yaml.split("\n"):
        if not line or line.isspace():
            continue
        item = _ITEM_LINE.fullmatch(line)
        if item is not None:
            if open_list is None or item[1].lower() in _OTHER_WORDS or item[1][0].isdigit():
                return None
            open_list.append(item[1])
            values[open_key] = open_list
            continue
        found = _PLAIN_LINE.fullmatch(line)
        if found is None or found[1] in values:
            return None
        key, text = found.groups()
        open_list, open_key = None, key
        if not text:
            values[key], open_list = None, []
            continue
        value = _plain_value(text)
        if value is None:
            return None
        values[key] = value
    return values


def _plain_value(text: str) -> Any:
    if _WORD.fullmatch(text):
        return None if text.lower() in _OTHER_WORDS else text
    if _TIME.fullmatch(text):
        return text
    if found := _QUOTED.fullmatch(text):
        return found[1] if found[1] is not None else found[2]
    if found := _LIST.fullmatch(text):
        items = [item.strip() for item in found[1].split(",")] if found[1] else []
        return None if any(item.lower() in _OTHER_WORDS for item in items) else items
    return None


def change(parts: Parts, changes: Mapping[str, Any]) -> str:
    """Returns the file with these keys set. A key with the value None is removed."""
    yaml = _change_lines(parts.yaml, changes)
    if yaml is None:
        yaml = _change_whole(parts.yaml, changes)
    return parts.head + yaml + parts.tail


def _change_lines(yaml: str, changes: Mapping[str, Any]) -> str | None:
    """The same line by line; None if one of the keys is not on a line of its own."""
    lines = yaml.splitlines(keepends=True)
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    left = dict(changes)
    made: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        found = _PLAIN_LINE.fullmatch(line.rstrip("\r\n"))
        if found is None or found[1] not in left:
            made.append(line)
            continue
        text = found[2] or ""
        if text[:1] in ("|", ">", "&", "*", "!", "{") or " #" in text:
            return None
        if text[:1] in ("[", "'", '"') and _plain_value(text) is None:
            return None
        items = at
        while items < len(lines) and not text and _ITEM_LINE.fullmatch(lines[items].rstrip("\r\n")):
            items += 1
        if items < len(lines) and lines[items][:1] in (" ", "\t", "-") and lines[items].strip():
            return None  # the value continues on the next line
        at = items
        value = left.pop(found[1])
        if value is not None:
            made.append(_pair(found[1], value) + ending)
    if made and not made[-1].endswith("\n"):
        made[-1] += ending
    made += [_pair(key, value) + ending for key, value in left.items() if value is not None]
    return "".join(made)


def _change_whole(yaml: str, changes: Mapping[str, Any]) -> str:
    """The same by ruamel.yaml, which keeps comments and order."""
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    whole = YAML()
    whole.preserve_quotes = True
    whole.width = 1_000_000
    try:
        values = whole.load(yaml)
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        written = io.StringIO()
        whole.dump(values, written)
    except (YAMLError, ValueError, AttributeError) as error:
        raise BadArgument(f"the frontmatter cannot be written again: {error}") from None
    return written.getvalue()


def _pair(key: str, value: Any) -> str:
    from genlock.plans.writer import scalar  # imported late: only writers need it

    if isinstance(value, (list, tuple)):
        return f"{key}: [{', '.join(map(scalar, value))}]"
    return f"{key}: {scalar(value)}"


def new_file(values: Mapping[str, Any], body: str) -> str:
    """Returns the text of a new file."""
    lines = [_pair(key, value) for key, value in values.items() if value is not None]
    return "\n".join(["---", *lines, "---", "", body.strip("\n"), ""])
