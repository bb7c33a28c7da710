"""All checks, one after the other. What one of them cannot look at for damage is a finding, and the others go on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from genlock.cli.doctoring.files import check_files
from genlock.cli.doctoring.finding import Finding, Level, trouble
from genlock.cli.doctoring.reactions import check_reactions
from genlock.cli.doctoring.replay import Tell, check_replay, check_structure, restore_by
from genlock.cli.doctoring.servers import check_clocks, check_promises, check_server
from genlock.cli.doctoring.tasks import Scan, check_claims, check_people, check_plans
from genlock.cli.doctoring.versions import check_versions
from genlock.cli.opening import open_instant
from genlock.cli.wording import without_password
from genlock.core.keys import NOWHERE
from genlock.errors import StoreCorrupt, StoreError, StoreForeign, StoreOutdated, StoreReadOnly
from genlock.places import sqlite_path
from genlock.store import Store

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

    def __init__(self, url: str, tell: Tell) -> None:
        self.url = url
        self.path = sqlite_path(url)
        self.places: list[tuple[str, str]] = []
        self.findings: list[Finding] = []
        self._records: int | None = None
        """How many there are, if that is known before they are looked at."""
        for finding in self._all(tell):
            self.findings.append(finding)

    @property
    def obstacle(self) -> str | None:
        """Why nothing may be fixed, if so."""
        troubles = {finding.check for finding in self.findings if finding.level is Level.TROUBLE}
        if troubles & _SOUND:
            return "a damaged store is not written to"
        return "nobody can write before the gate is free" if "gate" in troubles else None

    def report(self, fixed: list[str], told: Sequence[str] = ()) -> Report:
        """The answer. What is to be typed has the options by which the doctor was `told` where to look: else it would be done elsewhere."""
        healthy = all(finding.level is not Level.TROUBLE for finding in self.findings)
        findings = tuple(replace(each, try_next=tuple(_there(line, told) for line in each.try_next)) for each in self.findings)
        return Report(without_password(self.url), healthy, findings, tuple(fixed))

    def _all(self, tell: Tell) -> Iterator[Finding]:
        yield from check_versions()
        if self.path is not None:
            yield from check_files(self.path)
        try:
            yield from check_server(self.url) if self.path is None else self._structure(self.path)
            store = open_instant(self.url)
        except StoreError as error:
            yield _cannot_open(error, self.path)
            return
        try:
            if self.path is None:
                yield from check_promises(store)
                yield from check_clocks(store)
            yield from check_replay(store, self.path, tell, self._records)
            self.places = [place for place in sorted(store.audit().places) if place[0] != NOWHERE]
            yield from self._meaning(store)
        except StoreError as error:
            yield trouble("records", str(error), "what is damaged cannot be looked at further", [restore_by(self.path)])
        finally:
            store.close()

    def _structure(self, path: Path) -> Iterator[Finding]:
        from genlock.stores.sqlite.inspecting import inspect

        seen = inspect(path)
        self._records = seen.records
        yield from check_structure(seen)

    def _meaning(self, store: Store) -> Iterator[Finding]:
        scans = [Scan(store, place) for place in self.places]
        yield from check_claims(scans)
        yield from check_reactions(scans, lambda: open_instant(self.url))
        yield from check_plans(scans)
        yield from check_people(scans)


def _there(line: str, told: Sequence[str]) -> str:
    """Every command in the line with these options; a comma ends one, and what is said about it follows."""
    options = "".join(f" {quote(word)}" for word in told)
    return re.sub(r"\bgenlock (?!init)[^,]*", lambda found: found[0] + options, line)


def _cannot_open(error: StoreError, path: Path | None) -> Finding:
    match error:
        case StoreForeign():
            other = "sqlite:///OTHER/FILE.db" if path else "OTHER_URL"
            means = "it is no store of this version of Genlock"
            return trouble("open", str(error), means, ["genlock config show --origin", f"genlock init --url {other}"])
        case StoreOutdated():
            means = "an older version of Genlock has made it, and may still be at work"
            return trouble("format", str(error), means, ["genlock db migrate"])
        case StoreCorrupt():
            return trouble("open", str(error), "the file is damaged" if path else "the tables are damaged", [restore_by(path)])
        case StoreReadOnly() if path is not None:
            return trouble("open", str(error), "you may not write it", [f"ls -l {path}"])
        case _ if path is not None and not os.access(path, os.R_OK):
            return trouble("open", str(error), "its owner may let you", [f"ls -l {path}"])
        case _ if path is not None and path.stat().st_size == 0:
            return trouble("open", str(error), "it was created and never written to", ["genlock init"])
        case _:
            means = (
                "another process keeps it locked, or the system does not let us in"
                if path
                else "the server cannot be reached, or refuses us"
            )
            return trouble("open", str(error), means, ["genlock doctor, in a while"])
