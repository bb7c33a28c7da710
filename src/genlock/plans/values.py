"""Parses YAML, and JSON, which is YAML, to plain values.

Only ruamel's parser is used. This module turns its events into plain values, so that no tag can
construct anything, every fault has its line and column, and an id keeps the digits it was written
with. `resolve` has the values of YAML 1.2's core schema; dates stay text. Keys are always text.

The text may be hostile: nesting and the expansion of aliases are bounded, and nothing recurses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
)
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError

from genlock.core.fields import describe_value
from genlock.core.names import shown
from genlock.core.plan import Path
from genlock.errors import BadArgument

MOST_NESTING: Final = 100
_TOO_DEEP: Final = f"this is nested more than {MOST_NESTING} levels deep"
_LONGEST_KEY: Final = 1024
"""YAML's own limit for keys that are not marked by a question mark."""
MOST_ALIASED: Final = 100_000
"""How many values all aliases of a short text may expand to together. A long text may have ten more
for each character."""

ID_KEYS = frozenset({"id", "parent", "depends_on", "requires"})
FREE_KEY = "metadata"
_MERGE = "<<"

_NULL = re.compile(r"(?:~|null|Null|NULL)?")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_NUMBER = re.compile(
    r"(?P<int>[-+]?[0-9]+)|(?P<radix>0o[0-7]+|0x[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<special>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_LONGEST_NUMBER = 400

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}null": (type(None),),
    f"{_TAG}bool": (bool,),
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
}
_TEXT_TAGS = frozenset({"!", f"{_TAG}str", f"{_TAG}timestamp"})
_SURROGATE = re.compile("[\ud800-\udfff]")


class Misread(BadArgument):
    """Invalid YAML, with its position and the reason."""

    def __init__(self, line: int, column: int, complaint: str) -> None:
        self.line = line
        self.column = column
        self.complaint = complaint
        super().__init__(f"line {line}, column {column}: {complaint}")


def load_yaml(text: str) -> Any:
    """Returns the one document in `text` as plain values. Raises BadArgument with the line and
    column of an error.

    Numbers that are ids (under `id`, `parent`, `depends_on` and `requires`, but not within
    `metadata`) stay text as written: `0001` is not 1.
    """
    return _Document(text).value


def find_places(text: str, wanted: Collection[Path]) -> dict[Path, tuple[int, int]]:
    """Returns line and column of these keys and items, and of their parents, if they are in the
    text.

    Values have no positions, so the text is parsed a second time, but only if it has faults.
    """
    sought = {path[:length] for path in wanted for length in range(len(path) + 1)}
    places: dict[Path, tuple[int, int]] = {}
    frames: list[_Frame] = []
    for event in _events(text):
        if isinstance(event, CollectionEndEvent):
            frames.pop()
        elif isinstance(event, (CollectionStartEvent, ScalarEvent, AliasEvent)):
            is_key = bool(frames) and frames[-1].key is None
            if is_key and isinstance(event, CollectionStartEvent):
                # A key that is a mapping or a list: no plan has that, and its value has no path
                return places
            if is_key:
                frames[-1].key = event.value if isinstance(event, ScalarEvent) else ""
            path = frames[-1].path_within() if frames else ()
            if path in sought:
                # A key comes before its value, and the position is the key's.
                places.setdefault(path, (event.start_mark.line + 1, event.start_mark.column + 1))
            if not is_key:
                if frames:
                    frames[-1].move_on()
                if isinstance(event, CollectionStartEvent):
                    frames.append(_Frame(path, None if isinstance(event, MappingStartEvent) else 0))
    return places


class _Frame:
    """A mapping or list on the way to a position. `key` is its present key or index, None where a
    key comes next."""

    def __init__(self, path: Path, key: str | int | None) -> None:
        self._path = path
        self.key = key

    def path_within(self) -> Path:
        return self._path if self.key is None else (*self._path, self.key)

    def move_on(self) -> None:
        self.key = self.key + 1 if isinstance(self.key, int) else None


class _Open:
    """A mapping or list whose end has not been reached."""

    def __init__(self, event: CollectionStartEvent, *, free: bool, ids: bool) -> None:
        self.value: dict[str, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
        self.event = event
        self.free = free
        """It is within metadata, where keys have no meaning for us."""
        self.ids = ids
        """Its items are ids."""
        self.key: str | None = None
        self.merged: list[Mapping[str, Any]] | None = None
        self.size = 1


class _Document:
    """Builds a text's value from its events."""

    def __init__(self, text: str) -> None:
        self.value: Any = None
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        """The value of each anchor, and how many values it contains; None until its end."""
        # The parser would take a string for a path, and open it.
        if not isinstance(text, str):
            raise BadArgument(f"YAML must be a string, not {describe_value(text)}")
        self._aliases_left = MOST_ALIASED + 10 * len(text)
        documents = 0
        for event in _events(text):
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _fault(event, "a second document starts here; one is wanted")
            elif isinstance(event, CollectionStartEvent):
                self._start(event)
            elif isinstance(event, CollectionEndEvent):
                self._end()
            elif isinstance(event, ScalarEvent):
                self._scalar(event)
            elif isinstance(event, AliasEvent):
                self._alias(event)

    def _start(self, event: CollectionStartEvent) -> None:
        kind = "map" if isinstance(event, MappingStartEvent) else "seq"
        if event.tag not in (None, "!", _TAG + kind):
            raise _fault(event, f"the tag {shown(str(event.tag))} is not known here")
        if self._awaits_key():
            raise _fault(event, "a key is text, not a mapping or a list")
        if len(self._open) >= MOST_NESTING:
            raise _fault(event, _TOO_DEEP)
        outer = self._open[-1] if self._open else None
        free = outer is not None and (outer.free or outer.key == FREE_KEY)
        self._open.append(_Open(event, free=free, ids=self._expects_id()))
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _end(self) -> None:
        closed = self._open.pop()
        if isinstance(closed.value, dict):
            for merged in closed.merged or ():
                for key, value in merged.items():
                    closed.value.setdefault(key, value)
        self._anchor(closed.event.anchor, closed.value, closed.size)
        self._add(closed.event, closed.value, closed.size)

    def _scalar(self, event: ScalarEvent) -> None:
        text = _check_surrogates(event)
        if self._awaits_key():
            self._anchor(event.anchor, text, 1)
            self._key(event, text)
            return
        value = _value_of(event, text)
        if self._expects_id() and isinstance(value, (int, float)) and not isinstance(value, bool):
            value = text
        self._anchor(event.anchor, value, 1)
        self._add(event, value, 1)

    def _alias(self, event: AliasEvent) -> None:
        name = event.anchor
        if name not in self._anchors:
            raise _fault(event, f"nothing is called &{name} above this alias")
        target = self._anchors[name]
        if target is None:
            raise _fault(event, f"the alias *{name} stands inside what it stands for")
        if self._awaits_key():
            raise _fault(event, "a key is text, not an alias")
        value, size = target
        self._aliases_left -= size
        if self._aliases_left < 0:
            raise _fault(
                event,
                f"the alias *{name} stands for {size:,} values, which with those before it is too "
                "much",
            )
        self._add(event, value, size)

    def _anchor(self, name: str | None, value: Any, size: int) -> None:
        if name is not None:
            self._anchors[name] = value, size

    def _awaits_key(self) -> bool:
        return (
            bool(self._open)
            and isinstance(self._open[-1].value, dict)
            and self._open[-1].key is None
        )

    def _expects_id(self) -> bool:
        if not self._open:
            return False
        here = self._open[-1]
        return here.ids or (not here.free and here.key in ID_KEYS)

    def _key(self, event: ScalarEvent, text: str) -> None:
        here = self._open[-1]
        merge = text == _MERGE and event.style is None
        if text in here.value or (merge and here.merged is not None):
            raise _fault(event, f"the key {shown(text)} stands twice in one mapping")
        here.key = text
        if merge:
            here.merged = []

    def _add(self, event: Event, value: Any, size: int) -> None:
        if not self._open:
            self.value = value
            return
        here = self._open[-1]
        here.size += size
        if isinstance(here.value, list):
            here.value.append(value)
        elif here.key == _MERGE and here.merged is not None:
            here.merged = value if isinstance(value, list) else [value]
            if not all(isinstance(merged, dict) for merged in here.merged):
                raise _fault(
                    event,
                    "what << merges must be a mapping or a list of mappings, not "
                    f"{describe_value(value)}",
                )
        elif here.key is not None:
            here.value[here.key] = value
        here.key = None


class _Scanner(Scanner):
    """ruamel's scanner, with nested brackets as cheap as brackets in a row.

    An opened bracket may turn out to begin a key, so ruamel scans a thousand more characters before
    it decides, and for each token iterates over all open brackets. A few kilobytes of "[[[[" took
    it seconds.
    """

    # Ruamel's name
    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:  # noqa: N803
        if len(self.flow_context) >= MOST_NESTING:
            raise ScannerError(None, None, _TOO_DEEP, self.reader.get_mark())
        super().fetch_flow_collection_start(TokenClass, to_push)

    # There is at most one possible key for each open bracket, in order from the outermost: the
    # first is the oldest.

    def next_possible_simple_key(self) -> Any:
        return next((key.token_number for key in self.possible_simple_keys.values()), None)

    def stale_possible_simple_keys(self) -> None:
        first = next(iter(self.possible_simple_keys.values()), None)
        if first is not None and (
            first.line != self.reader.line or self.reader.index - first.index > _LONGEST_KEY
        ):
            super().stale_possible_simple_keys()


def _events(text: str) -> Iterator[Event]:
    """Yields the parser's events. Raises its errors as BadArgument."""
    last: Event | None = None
    reader = YAML(typ="safe", pure=True)
    reader.Scanner = _Scanner
    try:
        for last in reader.parse(str.__str__(text)):
            yield last
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise Misread(
            line, column, f"the character {text[error.position]!r} is not allowed in YAML"
        ) from None
    except MarkedYAMLError as error:
        parts = (error.context, error.problem)
        raise _at(
            error.problem_mark or error.context_mark, ", ".join(part for part in parts if part)
        ) from None
    except (YAMLError, ValueError, OverflowError, AssertionError):
        # Errors that the parser does not handle: an escape beyond Unicode, a version of YAML that
        # does not exist.
        raise _at(
            last.end_mark if last is not None else None,
            "what follows has an escape or a directive without meaning",
        ) from None


def _at(mark: StreamMark | None, complaint: str) -> Misread:
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return Misread(line, column, complaint)


def _fault(event: Event, complaint: str) -> Misread:
    return _at(event.start_mark, complaint)


def _check_surrogates(event: ScalarEvent) -> str:
    """Returns the scalar's text. JSON writes characters beyond U+FFFF as two escapes, which the
    parser does not combine."""
    text: str = event.value
    if not _SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _fault(event, "an escape stands for half a character") from None


def _value_of(event: ScalarEvent, text: str) -> Any:
    tag = event.tag
    if tag in _TEXT_TAGS or (tag is None and event.style is not None):
        return text
    if tag is not None and tag not in _SCALAR_TAGS:
        raise _fault(event, f"the tag {shown(tag)} is not known here")
    if len(text) > _LONGEST_NUMBER and _NUMBER.fullmatch(text):
        raise _fault(event, f"a number has at most {_LONGEST_NUMBER} digits")
    value = resolve(text)
    if tag is not None and not isinstance(value, _SCALAR_TAGS[tag]):
        raise _fault(event, f"{shown(text)} is no {tag.removeprefix(_TAG)}, as its tag says")
    return value


def resolve(text: str) -> bool | int | float | str | None:
    """Returns the value of a plain scalar in YAML 1.2's core schema."""
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    found = _NUMBER.fullmatch(text)
    match found.lastgroup if found else None:
        case "int":
            return int(text)
        case "radix":
            return int(text, 0)
        case "float":
            return float(text)
        case "special":
            return float(text.replace(".", ""))
        case _:
            return text
