"""All checks, one after the other. What one of them cannot look at for damage is a finding, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from genlock.cli.doctoring.files import check_files
from genlock.cli.doctoring.finding import Finding, Level, trouble
from genlock.cli.doctoring.reactions import check_reactions
from genlock.cli.doctoring.replay import check_replay, check_structure
from genlock.cli.doctoring.tasks import Scan, check_claims, check_people, check_plans
from genlock.cli.doctoring.versions import check_versions
from genlock.core.keys import NOWHERE
from genlock.errors import StoreCorrupt, StoreError, StoreForeign, StoreReadOnly
from genlock.stores.sqlite import SQLiteStore
from genlock.stores.sqlite.inspecting import inspect

Progress = Callable[[int, int | None], None]

_SOUND = frozenset({"open", "structure", "replay"})
"""Trouble in these means that nothing may be written."""


class Report(Struct, frozen=True):
    """What `doctor` answers."""

    url: str
    healthy: bool
    """No trouble; notes do not count."""
    findings: tuple[Finding, ...]
    fixed: tuple[str, ...] = ()
    """What --fix has done."""


class Examination:
    """One look at a store."""

    def __init__(self, url: str, path: Path, progress: Progress) -> None:
        self.url = url
        self.path = path
        self.places: list[tuple[str, str]] = []
        self.findings: list[Finding] = []
        for finding in self._all(progress):
            self.findings.append(finding)

    @property
    def obstacle(self) -> str | None:
        """Why nothing may be fixed, if so."""
        troubles = {finding.check for finding in self.findings if finding.level is Level.TROUBLE}
        if troubles & _SOUND:
            return "a damaged store is not written to"
        return "nobody can write before the gate is free" if "gate" in troubles else None

    def report(self, fixed: list[str]) -> Report:
        """The answer."""
        healthy = all(finding.level is not Level.TROUBLE for finding in self.findings)
        return Report(self.url, healthy, tuple(self.findings), tuple(fixed))

    def _all(self, progress: Progress) -> Iterator[Finding]:
        yield from check_versions()
        yield from check_files(self.path)
        try:
            seen = inspect(self.path)
            yield from check_structure(seen)
            store = SQLiteStore(self.path, instant=True)
        except StoreError as error:
            yield _cannot_open(error, self.path)
            return
        try:
            yield from check_replay(store, self.path, lambda done: progress(done, seen.records))
            self.places = [place for place in sorted(store.audit().places) if place[0] != NOWHERE]
            yield from self._records(store)
        except StoreError as error:
            yield trouble("records", str(error), "what is damaged cannot be looked at further", ["genlock restore BACKUP --force"])
        finally:
            store.close()

    def _records(self, store: SQLiteStore) -> Iterator[Finding]:
        scans = [Scan(store, place) for place in self.places]
        yield from check_claims(scans)
        yield from check_reactions(scans, lambda: SQLiteStore(self.path, instant=True))
        yield from check_plans(scans)
        yield from check_people(scans)


def _cannot_open(error: StoreError, path: Path) -> Finding:
    match error:
        case StoreForeign():
            return trouble(
                "open",
                str(error),
                "it is no store of this version of Genlock",
                ["genlock config show --origin", "genlock init --url sqlite:///OTHER/FILE.db"],
            )
        case StoreCorrupt():
            return trouble("open", str(error), "the file is damaged", ["genlock restore BACKUP --force"])
        case StoreReadOnly():
            return trouble("open", str(error), "you may not write it", [f"ls -l {path}"])
        case _ if path.stat().st_size == 0:
            return trouble("open", str(error), "it was created and never written to", ["genlock init"])
        case _:
            return trouble(
                "open", str(error), "another process keeps it locked, or the system does not let us in", ["genlock doctor, in a while"]
            )
