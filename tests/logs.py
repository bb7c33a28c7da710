"""What the services that tests start have logged: all of it is kept at debug level, and scanned
when the run is over.

A service in a thread writes into its process's own file, one that is a process hands its file over
when it has ended. Whoever has begun the run reads them all, also those of the processes that ran
tests for it, and a key, an authorization or a planted text in any of them fails the run.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.service.logscan import leaks

if TYPE_CHECKING:
    from genlock.coordinator import AsyncCoordinator
    from genlock.service.app import App
    from genlock.service.compose import Choices
    from genlock.service.logs import Log
    from genlock.service.request import HttpExchange

FOLDER = "TESTS_LOG_FOLDER"
"""The variable by which all processes of a run know where."""

PLANTED = "result-body-7f3a9c-do-not-log"
"""Tests put it into results and whatever else is nobody's business: no log may have it."""

_NEVER = {
    "a key": re.compile(r"glk_[A-Za-z0-9]{6,}"),
    "the secret of a key": re.compile(r"[a-z2-7]{32}_[0-9a-f]{8}"),
    "a sign-in": re.compile(r"[a-z2-7]{12}\.[0-9]{6,12}\.[0-9a-f]{64}"),
    "a token": re.compile(r"glt_[0-9a-f]{6,}"),
    "the code of a link": re.compile(r"(?i)\bcode\W{1,6}[A-Za-z0-9_-]{40,}"),
    "an authorization": re.compile(r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/._=-]{6,}"),
    "a header": re.compile(r"(?i)\b(?:authorization|x-api-key|cookie)\W{1,4}[A-Za-z0-9]"),
}


def begin() -> None:
    """Says where the logs of this run go. Once, by whoever begins it."""
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="genlock-logs-")


@cache
def log() -> Log:
    """The log of all services in this process."""
    from genlock.service.logs import Log

    file = os.open(
        Path(os.environ[FOLDER]) / f"{os.getpid()}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT
    )
    kept = Log(level="debug", form="json", file=file, terminal=False)
    atexit.register(kept.close)
    return kept


def watch(what: HttpExchange) -> None:
    """For an application that a test puts together by itself."""
    log().request(what)


def build(coordinator: AsyncCoordinator, choices: Choices | None = None) -> App:
    """A service whose log is kept."""
    from genlock.service import compose

    return compose.build(coordinator, choices or compose.Choices(), log())


def keep(file: Path) -> None:
    """What a service that was a process has written to stderr."""
    with (
        tempfile.NamedTemporaryFile(dir=os.environ[FOLDER], suffix=".log", delete=False) as copy,
        file.open("rb") as written,
    ):
        shutil.copyfileobj(written, copy)


def end() -> None:
    """Writes what is left of this process's own."""
    if log.cache_info().currsize:
        log().close()


def found() -> list[str]:
    """What no log may have, with the line that has it; the logs are gone then."""
    folder = Path(os.environ[FOLDER])
    try:
        return [fault for file in sorted(folder.iterdir()) for fault in _faults(file)]
    finally:
        shutil.rmtree(folder)


def _faults(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8", errors="backslashreplace")
    for secret in leaks(text, [PLANTED]):
        yield f"{file.name} has the planted {secret!r}"
    for what, pattern in _NEVER.items():
        for match in pattern.finditer(text):
            start, stop = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            yield f"{file.name} has {what}: {text[start : stop if stop >= 0 else None][:300]}"
