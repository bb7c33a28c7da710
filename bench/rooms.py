"""`python -m bench.rooms`: how the source is cut into files, and how many of them one claim visits.

It prints files, lines, the median file, the size of the port and of each store, and the files of
`src/genlock` that one claim passes through, embedded on SQLite and over HTTP.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import genlock
from bench.report import Line, percentile, show

PACKAGE = str(Path(genlock.__file__).parent)
SERVER_STORES = ("postgres", "mysql", "redis")
OTHER_STORES = ("dynamodb", "sqlite", "memory")
MOST_EMBEDDED, MOST_OVER_HTTP = 28, 45
"""The targets: files that one claim visits."""


class Visits:
    """Notes the files of the package that any thread enters while `recording`.

    A profile function reaches only threads that start after it is installed, so everything that is
    measured must be opened inside of `installed`.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.recording = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watches this thread, and all that start meanwhile."""
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        try:
            yield
        finally:
            self.recording = False
            sys.setprofile(None)
            threading.setprofile(None)

    def of(self, act: Callable[[], Any]) -> list[str]:
        """The files that this act enters, by their path in the package."""
        self.files.clear()
        self.recording = True
        try:
            act()
        finally:
            self.recording = False
        return sorted(name[len(PACKAGE) + 1 :] for name in self.files)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and self.recording:
            name = frame.f_code.co_filename
            if name.startswith(PACKAGE):
                self.files.add(name)


def visited_embedded(folder: Path) -> list[str]:
    """The files that one claim visits on a SQLite store of this process."""
    return _visited(f"sqlite://{folder / 'rooms.db'}", create=True)


def visited_over_http(folder: Path) -> list[str]:
    """The same with a service in between; client and service run in this process."""
    from tests.servers.service import serving

    visits = Visits()
    with visits.installed(), serving(f"sqlite://{folder / 'rooms-http.db'}") as service:
        return _claim_twice(visits, service.url)


def _visited(url: str, **options: Any) -> list[str]:
    visits = Visits()
    with visits.installed():
        return _claim_twice(visits, url, **options)


def _claim_twice(visits: Visits, url: str, **options: Any) -> list[str]:
    """The second claim counts: the first one opens and imports."""
    with genlock.connect(url, agent_id="alice", session_id="s-1", **options) as fleet:
        fleet.add_tasks(tasks=["first", "second"])
        assert fleet.claim_task(task_id="first").success
        return visits.of(lambda: fleet.claim_task(task_id="second"))


def _length(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _methods_of_port(root: Path) -> tuple[int, int]:
    """Methods of `Store`, and those beside it that only some stores have."""
    methods = {
        match[1]: set(re.findall(r"^    def (\w+)", match[2], re.MULTILINE))
        for match in re.finditer(
            r"^class (\w+)\([^\n]*Protocol\):\n((?:(?:    [^\n]*)?\n)+)",
            (root / "store.py").read_text(),
            re.MULTILINE,
        )
    }
    beside = [methods.get(name, set()) for name in ("StartsCalls", "PipelinedStore")]
    return len(methods["Store"]), len(set().union(*beside))


def _at_most(what: str, value: int, target: int) -> Line:
    return Line(what, f"{value:,}", f"≤ {target:,}", value <= target)


def cut() -> list[Line]:
    """Files and lines, the port and the stores."""
    root = Path(PACKAGE)
    sizes = sorted(_length(path) for path in root.rglob("*.py"))
    port, beside = _methods_of_port(root)
    lines = [
        _at_most("source files", len(sizes), 240),
        _at_most("lines", sum(sizes), 55_000),
        Line("median file", f"{median(sizes):.0f}", "150 to 200"),
        _at_most("p90 file", int(percentile([*sizes], 0.9)), 400),
        Line("longest file", f"{sizes[-1]}"),
        Line("methods of the port", f"{port} + {beside}", "10 + 2"),
    ]
    for name in (*SERVER_STORES, *OTHER_STORES):
        files = list((root / "stores" / name).rglob("*.py"))
        length = sum(map(_length, files))
        target = "≤ 1,000 lines, about 6 files" if name in SERVER_STORES else ""
        met = length <= 1000 if target else None
        lines.append(Line(f"{name}: lines, files", f"{length:,}, {len(files)}", target, met))
    files = list((root / "engine").glob("*.py"))
    return [
        *lines,
        Line("engine: files", f"{len(files)}", "about 16"),
        _at_most("engine: lines of lane.py", _length(root / "engine" / "lane.py"), 300),
    ]


def visited() -> list[Line]:
    """How many files one claim visits."""
    from tests import logs

    logs.begin()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        embedded, http = visited_embedded(folder), visited_over_http(folder)
    return [
        _at_most("files visited by one claim on SQLite", len(embedded), MOST_EMBEDDED),
        _at_most("files visited by one claim over HTTP", len(http), MOST_OVER_HTTP),
    ]


def main() -> None:
    show("Rooms", [*cut(), *visited()])


if __name__ == "__main__":
    main()
