"""Reads plans from mappings, texts and files, and reports each fault with its file, line and
column.

Reading records no positions, which would cost more than the values. Texts with faults are read
again to find the positions.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from genlock.core.model import Task
from genlock.core.names import shown
from genlock.core.plan import Fault, Found, Misplaced, Path, Plan, Reading, check_graph, path_text
from genlock.errors import PlanInvalid
from genlock.plans.quick import UNREAD, read_quickly
from genlock.plans.values import Misread, find_places, load_yaml
from genlock.typed_json import decoder

# Plans as JSON lines: one task per line.


_decode = decoder(dict[str, Any]).decode
_BYTE = re.compile(r" \(byte ([0-9]+)\)$")
_ODD_COLON = re.compile(rb'"[ \t\r]+:')


class Lines:
    """A text of JSON lines; a task's path is the number of its line."""

    def __init__(self, name: str | None, data: bytes) -> None:
        self.name = name
        self._lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        self._odd = _ODD_COLON.search(data) is not None
        self._columns: dict[int, int] = {}
        """The columns of errors in lines that are not valid JSON."""

    def read(self, reading: Reading) -> None:
        """Reads every line that is not blank."""
        for number, line in enumerate(self._lines, 1):
            try:
                fields = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if line.strip():
                    reading.found.append(
                        Found(reading.source, (number,), None, self._complaint(number, line, error))
                    )
                continue
            # Plain lines have one key for each colon after a quote: otherwise some keys are nested,
            # or one is duplicated.
            if (self._odd or line.count(b'":') != len(fields)) and (
                key := _doubled(line)
            ) is not None:
                reading.found.append(
                    Found(
                        reading.source,
                        (number, key),
                        None,
                        f"the key {shown(key)} stands twice in one mapping",
                    )
                )
            else:
                reading.read_task((number,), fields)

    def find(self, wanted: Collection[Path]) -> dict[Path, tuple[int, int]]:
        """Returns line and column of these paths, searching each line by itself."""
        places: dict[Path, tuple[int, int]] = {}
        by_line: dict[int, list[Path]] = {}
        for path in wanted:
            if path and isinstance(path[0], int):
                by_line.setdefault(path[0], []).append(path[1:])
        for number, paths in by_line.items():
            line = self._lines[number - 1].decode(errors="replace")
            places[number,] = (
                number,
                self._columns.get(number, len(line) - len(line.lstrip()) + 1),
            )
            try:
                within = find_places(line, paths)
            except Misread:
                # JSON that is not valid YAML, or not JSON at all: report the line itself.
                continue
            places |= {
                (number, *path): (number, column) for path, (_, column) in within.items() if path
            }
        return places

    def _complaint(self, number: int, line: bytes, error: Exception) -> str:
        if isinstance(error, msgspec.ValidationError):
            return 'a line is a task, a mapping in braces: {"id": …}'
        if isinstance(error, RecursionError):
            return "this is nested too deep"
        if isinstance(error, UnicodeDecodeError):
            return "this is not UTF-8; save the file as UTF-8"
        said = str(error)
        if found := _BYTE.search(said):
            self._columns[number] = len(line[: int(found[1])].decode(errors="replace")) + 1
        return (
            f"this line is no JSON: {_BYTE.sub('', said).removeprefix('JSON is malformed: ')}; "
            "write one task a line"
        )


class _Double(Exception):
    """A duplicate key."""


def _doubled(line: bytes) -> str | None:
    import json

    def check(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            keys = [key for key, _ in pairs]
            raise _Double(next(key for key in keys if keys.count(key) > 1))

    try:
        json.loads(line, object_pairs_hook=check)
    except _Double as double:
        return str(double)
    except (ValueError, RecursionError):
        return None
    return None


MOST_FAULTS: Final = 1000
"""The most faults that are shown. A plan with more has one mistake many times."""

_LINE_ENDINGS = (".jsonl", ".ndjson")


class PlanFile(NamedTuple):
    """A file of a plan: its name for messages, and its bytes."""

    name: str
    data: bytes


Source: TypeAlias = Mapping[str, Any] | str | Sequence[PlanFile]


class _Source(Protocol):
    name: str | None

    def read(self, reading: Reading) -> None: ...

    def find(self, wanted: Collection[Path]) -> dict[Path, tuple[int, int]]: ...


class Draft:
    """A plan that has been read, with the faults found so far. `project` is the project it is for,
    if any."""

    def __init__(
        self, source: Source, *, hierarchical: bool = False, project: str | None = None
    ) -> None:
        self._sources = _sources(source)
        self._reading = Reading(hierarchical=hierarchical)
        self._misread: list[tuple[int, Fault]] = []
        for number, one in enumerate(self._sources):
            self._reading.source = number
            try:
                one.read(self._reading)
            except Misread as error:
                self._misread.append(
                    (
                        number,
                        Fault(
                            one.name,
                            error.line,
                            error.column,
                            None,
                            error.complaint + _advice(error.complaint),
                        ),
                    )
                )
        self._reading.note_slugs()
        if project is not None:
            self._reading.ask_for(project)
        self.plan: Plan = self._reading.plan()
        if self._reading.notes:
            self.plan = self.plan._replace(notes=tuple(self._placed(self._reading.notes)))

    @property
    def names(self) -> Collection[str]:
        """Every id in the plan, including those of tasks with faults."""
        return self._reading.places.keys()

    def graph(self) -> list[Task]:
        """Returns all tasks whose dependencies are known."""
        return [*(definition.task for definition in self.plan.tasks), *self._reading.outlines]

    def complain(self, task: str, text: str, at: Path, *, alone: bool = True) -> None:
        """Adds a fault of one of the plan's tasks, at one of its keys. `alone` tells that it
        concerns that task only."""
        source, path = self._reading.places.get(task, (0, ()))
        self._reading.found.append(Found(source, path + at, task if alone else None, text))

    def misplaced(self, faults: Iterable[Misplaced]) -> None:
        """Adds the faults of the graph."""
        for fault in faults:
            self.complain(fault.task, fault.text, fault.at, alone=fault.alone)

    def check(self) -> None:
        """Raises PlanInvalid with every fault, if there is one."""
        if self._misread or self._reading.found:
            raise PlanInvalid(self._faults(), self.plan.notes)

    def _faults(self) -> list[Fault]:
        found = self._reading.found
        more = len(found) - MOST_FAULTS
        ordered = [
            *self._misread,
            *zip((one.source for one in found), self._placed(found[:MOST_FAULTS]), strict=False),
        ]
        ordered.sort(key=lambda entry: (entry[0], entry[1].line or 0, entry[1].column or 0))
        faults = [fault for _, fault in ordered]
        if more > 0:
            faults.append(Fault(None, None, None, None, f"and {more:,} more"))
        return faults

    def _placed(self, found: Sequence[Found]) -> list[Fault]:
        """Returns these faults with their lines and columns."""
        wanted: dict[int, set[Path]] = {}
        for one in found:
            wanted.setdefault(one.source, set()).add(one.path)
            if one.other is not None:
                wanted.setdefault(one.other[0], set()).add((*one.other[1], "id"))
        places = {source: self._sources[source].find(paths) for source, paths in wanted.items()}
        return [self._place(one, places) for one in found]

    def _place(self, found: Found, places: Mapping[int, Mapping[Path, tuple[int, int]]]) -> Fault:
        at = _nearest(places[found.source], found.path)
        if at is None:
            return found.unplaced()
        text = found.text
        if text.startswith("must "):
            text = f"{path_text(found.path)} {text}"
        if found.other is not None:
            first = self._sources[found.other[0]].name
            line, column = _nearest(places[found.other[0]], (*found.other[1], "id")) or (1, 1)
            text += f" at {first}:{line}:{column}" if first else f" in line {line}, column {column}"
        return Fault(self._sources[found.source].name, *at, found.task, text)


def read_plan_source(source: Source, *, hierarchical: bool = False) -> Plan:
    """Reads the plan in a mapping, in YAML text, or in files. A fault in text has its line and
    column."""
    draft = Draft(source, hierarchical=hierarchical)
    draft.check()
    return draft.plan


def _advice(complaint: str) -> str:
    """Returns advice on a complaint of the YAML parser, if there is any."""
    return next((f"; {advice}" for words, advice in _ADVICE.items() if words in complaint), "")


_ADVICE: Final = {
    "found character '\\t'": "indent with blanks, not with tabs",
    "mapping values are not allowed": "put a text that has ': ' in it in quotes",
    "expected <block end>": "indent it like its neighbours",
    "while parsing a flow": "close the bracket or brace, and put commas between the items",
    "while scanning a simple key": "a key is followed by ': '",
    "while scanning a quoted scalar": "close the quotes",
    "found undefined tag handle": "leave the tag out",
    "the tag ": "leave it out",
    "nothing is called &": "name the value above it with & first",
    "stands twice": "leave one of them out",
    "a second document": "put the rest into a file of its own; several files make one plan",
}


def _nearest(places: Mapping[Path, tuple[int, int]], path: Path) -> tuple[int, int] | None:
    """Returns the position of a path, or of its nearest parent."""
    return next(
        (places[path[:length]] for length in range(len(path), -1, -1) if path[:length] in places),
        None,
    )


def _sources(source: object) -> list[_Source]:
    if isinstance(source, str):
        return [_Text(None, source)]
    if (
        isinstance(source, (list, tuple))
        and source
        and all(isinstance(file, PlanFile) for file in source)
    ):
        return [_source(file) for file in source]
    return [_Values(source)]


def _source(file: PlanFile) -> _Source:
    if _has_lines(file):
        return Lines(file.name, file.data)
    try:
        return _Text(file.name, file.data.decode())
    except UnicodeDecodeError as error:
        before = file.data[: error.start]
        line, column = (
            before.count(b"\n") + 1,
            len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1,
        )
        raise PlanInvalid(
            [Fault(file.name, line, column, None, "this is not UTF-8; save the file as UTF-8")]
        ) from None


def _has_lines(file: PlanFile) -> bool:
    """Does the file contain JSON lines? Decided by its name, or by a first line that is a task."""
    if file.name.endswith(_LINE_ENDINGS):
        return True
    data = file.data.removeprefix(BOM_UTF8).lstrip()
    if data[:1] != b"{":
        return False
    import msgspec

    try:
        first = msgspec.json.decode(data.partition(b"\n")[0])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(first, dict) and "id" in first


class _Values:
    """A plan given as a mapping."""

    def __init__(self, value: object) -> None:
        self.name: str | None = None
        self._value = value

    def read(self, reading: Reading) -> None:
        reading.read(self._value)

    def find(self, wanted: Collection[Path]) -> dict[Path, tuple[int, int]]:
        return {}


class _Text:
    """A plan as YAML."""

    def __init__(self, name: str | None, text: str) -> None:
        self.name = name
        self._text = text

    def read(self, reading: Reading) -> None:
        value = read_quickly(self._text)
        reading.read(load_yaml(self._text) if value is UNREAD else value)

    def find(self, wanted: Collection[Path]) -> dict[Path, tuple[int, int]]:
        return {(): (1, 1)} | find_places(self._text, wanted)


def check_plan_alone(source: Source, *, hierarchical: bool = False) -> Plan:
    """Reads a plan without a store. Raises PlanInvalid with every fault, including those of its
    graph."""
    draft = Draft(source, hierarchical=hierarchical)
    draft.misplaced(check_graph(draft.graph(), draft.names))
    draft.check()
    return draft.plan
