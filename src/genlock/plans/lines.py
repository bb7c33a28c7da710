"""Plans as JSON lines: one task a line."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from genlock.core.names import shown
from genlock.core.plan import Found, Path, Reading
from genlock.plans.values import Misread, find_places
from genlock.typed_json import decoder

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
        """Where a line that is no JSON goes wrong."""

    def read(self, reading: Reading) -> None:
        """Reads every line that is not blank."""
        for number, line in enumerate(self._lines, 1):
            try:
                fields = _decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if line.strip():
                    reading.found.append(Found(reading.source, (number,), None, self._complaint(number, line, error)))
                continue
            # A key for each colon after a quote: otherwise some lie deeper, or one stands twice.
            if (self._odd or line.count(b'":') != len(fields)) and (key := _doubled(line)) is not None:
                reading.found.append(Found(reading.source, (number, key), None, f"the key {shown(key)} stands twice in one mapping"))
            else:
                reading.read_task((number,), fields)

    def find(self, wanted: Collection[Path]) -> dict[Path, tuple[int, int]]:
        """Line and column of these paths: each line by itself."""
        places: dict[Path, tuple[int, int]] = {}
        by_line: dict[int, list[Path]] = {}
        for path in wanted:
            if path and isinstance(path[0], int):
                by_line.setdefault(path[0], []).append(path[1:])
        for number, paths in by_line.items():
            line = self._lines[number - 1].decode(errors="replace")
            places[number,] = (number, self._columns.get(number, len(line) - len(line.lstrip()) + 1))
            try:
                within = find_places(line, paths)
            except Misread:
                # JSON that is no YAML, or no JSON at all: the line itself must do.
                continue
            places |= {(number, *path): (number, column) for path, (_, column) in within.items() if path}
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
        return f"this line is no JSON: {_BYTE.sub('', said).removeprefix('JSON is malformed: ')}; write one task a line"


class _Double(Exception):
    """A key that stands twice."""


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
