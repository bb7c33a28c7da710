"""A progress bar on stderr for long work, on a terminal only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genlock.cli.answers import Answers


Advance = Callable[[int, int | None], None]
"""Called with the amount done, and the total if known."""

_PATIENCE_SECONDS = 0.5
"""Work that ends within this time needs no bar."""

_MANY = 10_000
"""Work on so many items shows its bar at once, however fast the machine is."""


@contextmanager
def bar(answers: Answers, title: str) -> Iterator[Advance]:
    """Yields a function that reports progress while the block lasts."""
    if answers.quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda done, total: None
        return
    began = time.monotonic()
    shown: list[Callable[[int, int | None], None]] = []
    stop: list[Callable[[], None]] = []

    def advance(done: int, total: int | None) -> None:
        patient = time.monotonic() - began <= _PATIENCE_SECONDS and (total or 0) < _MANY
        if not shown and not patient:
            update, end = _start(answers, title)
            shown.append(update)
            stop.append(end)
        for update in shown:
            update(done, total)

    try:
        yield advance
    finally:
        for end in stop:
            end()


@contextmanager
def bars(answers: Answers) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function that reports progress in several stages, each with a named bar of its
    own."""
    with ExitStack() as stack:
        stage = ""
        advance: Advance | None = None

        def tell(title: str, done: int, total: int | None) -> None:
            nonlocal stage, advance
            if advance is None or title != stage:
                stack.close()
                stage, advance = title, stack.enter_context(bar(answers, title))
            advance(done, total)

        yield tell


def _start(
    answers: Answers, title: str
) -> tuple[Callable[[int, int | None], None], Callable[[], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    progress = Progress(*columns, console=answers.console(stderr=True), transient=True)
    task = progress.add_task(title, total=None)
    progress.start()
    return lambda done, total: progress.update(task, completed=done, total=total), progress.stop
