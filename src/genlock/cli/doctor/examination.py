"""Runs all checks in turn. If damage stops a check, that is a finding, and the other checks
continue."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

import apsw
from msgspec import Struct
from msgspec.structs import replace

import genlock
from genlock.cli.doctor.findings import Finding, Level, ok, trouble
from genlock.cli.doctor.replay import check_reactions, check_replay, check_structure, restore_by
from genlock.cli.doctor.stores import (
    check_clocks,
    check_files,
    check_folder,
    check_promises,
    check_server,
)
from genlock.cli.doctor.tasks import Scan, check_claims, check_people, check_plans
from genlock.cli.open_fleet import open_instant
from genlock.core.keys import NOWHERE
from genlock.errors import StoreCorrupt, StoreError, StoreForeign, StoreOutdated, StoreReadOnly
from genlock.open import connect
from genlock.project_folder import sqlite_path
from genlock.reads.reader import StoreReader
from genlock.safe_text import without_password
from genlock.stores.files import links_beside
from genlock.stores.sqlite.inspection import checkpoint, log_bytes
from genlock.task_folders import is_folder
from genlock.transfer.verification import Progress

_SOUND = frozenset({"open", "structure", "replay"})
"""Checks after whose trouble nothing may be written."""


class Report(Struct, frozen=True):
    """The answer of `doctor`."""

    url: str
    healthy: bool
    """No trouble; notes do not count."""
    findings: tuple[Finding, ...]
    fixed: tuple[str, ...] = ()
    """The repairs that --fix made."""


class Examination:
    """One examination of a store."""

    def __init__(self, url: str, tell: Progress) -> None:
        self.url = url
        self.path = sqlite_path(url)
        self.places: list[tuple[str, str]] = []
        self.findings: list[Finding] = []
        self._records: int | None = None
        """The number of records, if known before they are checked."""
        for finding in self._all(tell):
            self.findings.append(finding)

    @property
    def obstacle(self) -> str | None:
        """Returns why nothing may be fixed, if that is the case."""
        troubles = {finding.check for finding in self.findings if finding.level is Level.TROUBLE}
        if troubles & _SOUND:
            return "a damaged store is not written to"
        return "nobody can write before the gate is free" if "gate" in troubles else None

    def report(self, fixed: list[str], url: str | None = None) -> Report:
        """Returns the answer. Suggested commands contain the URL that doctor was called with."""
        told = () if url is None else ("--url", url)
        healthy = all(finding.level is not Level.TROUBLE for finding in self.findings)
        findings = tuple(
            replace(each, try_next=tuple(_there(line, told) for line in each.try_next))
            for each in self.findings
        )
        return Report(without_password(self.url), healthy, findings, tuple(fixed))

    def _all(self, tell: Progress) -> Iterator[Finding]:
        yield from check_versions()
        if self.path is not None:
            yield from check_files(self.path)
        try:
            yield from check_server(self.url) if self.path is None else self._structure(self.path)
            store = open_instant(self.url)
        except StoreError as error:
            yield _cannot_open(error, self.path)
            return
        reader = StoreReader(store)
        try:
            if is_folder(self.url):
                yield from check_folder(self.url)
            if self.path is None:
                yield from check_promises(reader)
                yield from check_clocks(reader)
            yield from check_replay(reader, self.path, tell, self._records)
            self.places = [place for place in sorted(store.audit().places) if place[0] != NOWHERE]
            yield from self._meaning(reader)
        except StoreError as error:
            yield trouble(
                "records",
                str(error),
                "what is damaged cannot be looked at further",
                [restore_by(self.path)],
            )
        finally:
            store.close()

    def _structure(self, path: Path) -> Iterator[Finding]:
        from genlock.stores.sqlite.inspection import inspect

        seen = inspect(path)
        self._records = seen.records
        yield from check_structure(seen)

    def _meaning(self, reader: StoreReader) -> Iterator[Finding]:
        scans = [Scan(reader, place) for place in self.places]
        yield from check_claims(scans)
        yield from check_reactions(scans, lambda: StoreReader(open_instant(self.url)))
        yield from check_plans(scans)
        yield from check_people(scans)


def _there(line: str, told: Sequence[str]) -> str:
    """Adds these options to every command in the line; a comma ends a command, and an explanation
    follows."""
    options = "".join(f" {quote(word)}" for word in told)
    return re.sub(r"\bgenlock (?!init)[^,]*", lambda found: found[0] + options, line)


def _cannot_open(error: StoreError, path: Path | None) -> Finding:
    match error:
        case StoreForeign() if path is not None and (links := links_beside(path)):
            means = "somebody may want you to write or show another file of yours"
            return trouble("links", str(error), means, [f"rm {quote(str(link))}" for link in links])
        case StoreForeign():
            other = "sqlite:///OTHER/FILE.db" if path else "OTHER_URL"
            means = "it is no store of this version of Genlock"
            return trouble(
                "open",
                str(error),
                means,
                ["genlock config show --origin", f"genlock init --url {other}"],
            )
        case StoreOutdated():
            means = "an older version of Genlock has made it, and may still be at work"
            return trouble("format", str(error), means, ["genlock db migrate"])
        case StoreCorrupt():
            return trouble(
                "open",
                str(error),
                "the file is damaged" if path else "the tables are damaged",
                [restore_by(path)],
            )
        case StoreReadOnly() if path is not None:
            return trouble("open", str(error), "you may not write it", [f"ls -l {path}"])
        case _ if path is not None and not os.access(path, os.R_OK):
            return trouble("open", str(error), "its owner may let you", [f"ls -l {path}"])
        case _ if path is not None and path.stat().st_size == 0:
            return trouble(
                "open", str(error), "it was created and never written to", ["genlock init"]
            )
        case _:
            means = (
                "another process keeps it locked, or the system does not let us in"
                if path
                else "the server cannot be reached, or refuses us"
            )
            return trouble("open", str(error), means, ["genlock doctor, in a while"])


# Repairs that need no question: record what is due, repeat interrupted reactions, empty the log.
# Nothing is ever removed.


def fix(url: str, path: Path | None, places: Sequence[tuple[str, str]]) -> list[str]:
    """Makes the repairs. Returns sentences about them."""
    done: list[str] = []
    with connect(url) as fleet:
        for tenant, project in places:
            swept = fleet.sweep(tenant_id=tenant, project_id=project)
            parts = {
                "claims expired": swept.expired,
                "claims orphaned": swept.orphaned,
                "claims marked as stale": swept.stale,
                "events from reactions that were cut off": swept.settled,
                "events past their retention dropped": swept.purged,
            }
            said = ", ".join(f"{number} {what}" for what, number in parts.items() if number)
            if said:
                done.append(f"swept {tenant}/{project}: {said}")
    log = log_bytes(path) if path is not None else 0
    if path is not None and log and checkpoint(path):
        done.append(f"emptied the log: {log:,} bytes went into the file")
    return done


# Versions of the software below.


_SAFE_SQLITE = (3, 51, 3)
"""In earlier versions, two connections that write and checkpoint a WAL database at once can corrupt
it."""


def check_versions() -> Iterator[Finding]:
    """Checks Python, Genlock, SQLite and its driver."""
    sqlite = apsw.sqlite_lib_version()
    line = (
        f"genlock {genlock.__version__}, Python {platform.python_version()}, SQLite {sqlite}, "
        f"apsw {apsw.apsw_version()}"
    )
    if tuple(int(part) for part in sqlite.split(".")[:3]) < _SAFE_SQLITE:
        safe = ".".join(map(str, _SAFE_SQLITE))
        yield trouble(
            "versions",
            line,
            f"SQLite before {safe} can corrupt a store under load",
            [f"pip install 'apsw>={safe}.0'"],
        )
    else:
        yield ok("versions", line)
