"""A store of many tasks, copied around through the kinds of store that there are and back to the
first: seconds, events a second.

`python -m bench copy [TASKS] [STORE …]`, `make bench-copy ARGS="100000 postgres dynamodb"`. Ten
events a task: it is added, claimed, renewed six times, completed, and its completion is heard of by
the one that waits for it. DynamoDB is the tests' own server, or whatever is at
GENLOCK_TEST_DYNAMODB.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import genlock
from bench.plans import ids_of, tasks_of
from bench.report import Line, show
from genlock.core.keys import KINDS, SETTLED
from genlock.engine.scan import pages_of, records_of
from genlock.store import Store
from genlock.transfer.copy import Copied, copy
from tests.servers import ministack, postgres

TASKS = 10_000
RENEWALS = 6
AT_ONCE = 500
"""So many are claimed, renewed and completed at a time; each waits for one of those before."""
TELL_EVERY_SECONDS = 10.0


def fill(url: str, tasks: int) -> None:
    """A store with a history, by real operations."""
    ids = ids_of(tasks)
    with genlock.connect(
        url, create=True, deadline_seconds=600, session_id="builder", agent_id="builder"
    ) as fleet:
        for start in range(0, tasks, AT_ONCE):
            plan = tasks_of(ids[start : start + AT_ONCE])
            for task, other in zip(
                plan, ids[start - AT_ONCE : start] if start else (), strict=False
            ):
                task["depends_on"] = [other]
            fleet.add_tasks(tasks=plan)
        for start in range(0, tasks, AT_ONCE):
            _work_off(fleet, ids[start : start + AT_ONCE])


def _work_off(fleet: genlock.Coordinator, chunk: list[str]) -> None:
    generations = dict.fromkeys(chunk, 1)
    claimed = fleet.batch_claim(task_ids=chunk)
    assert all(
        isinstance(answer, genlock.ClaimResult) and answer.success for answer in claimed.values()
    )
    for _ in range(RENEWALS):
        fleet.batch_renew(generations=generations)
    fleet.batch_submit(
        results=[
            {"task_id": name, "generation": 1, "result_data": {"done": name}} for name in chunk
        ]
    )


def sum_of(store: Store) -> str:
    """One digest of all records and feeds, whatever their positions; but for how far each store is
    settled, which is its own."""
    total = hashlib.sha256()
    for place in sorted(store.audit().places):
        for kind in KINDS:
            for stored in records_of(store, *place, kind) if kind != SETTLED else ():
                total.update(repr(stored[:4]).encode())
        for page in pages_of(store, place, limit=2000):
            for recorded in page.events:
                total.update(repr(recorded[:4]).encode() if recorded.key.kind != SETTLED else b"")
    return total.hexdigest()


def around(names: list[str], folder: Path, stack: ExitStack) -> Iterator[tuple[str, str]]:
    """The stores to copy to, in turn, by name and URL."""
    for name in names:
        if name == "postgres":
            yield name, stack.enter_context(postgres.running()).url()
        elif name == "dynamodb":
            os.environ.update(ministack.ENVIRONMENT)
            endpoint = (
                os.environ.get(ministack.ADDRESS)
                or stack.enter_context(ministack.running(folder)).endpoint_url
            )
            yield name, ministack.url_for(folder / name, endpoint)
        else:
            raise SystemExit(
                f"there is no store {name!r} to copy to; there are: postgres, dynamodb"
            )
    yield "sqlite", f"sqlite://{folder / 'last.db'}"


class Told:
    """Says on stderr how far it is, now and then: a million events take a while."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def line(self, line: Line) -> Line:
        """One figure that is known."""
        print(
            f"{time.monotonic() - self._began:7.0f} s  {line.what}: {line.value}",
            file=sys.stderr,
            flush=True,
        )
        return line

    def progress(self, what: str, done: int, total: int | None) -> None:
        """What a copy tells."""
        if time.monotonic() > self._last + TELL_EVERY_SECONDS:
            self._last = time.monotonic()
            self.line(Line(f"    {what}", f"{done:,}" + (f" of {total:,}" if total else "")))


def copied(source: str, target: str, told: Told) -> tuple[Copied, Copied, str]:
    """Both steps apart: the copy, and its verification; and the sum of the target."""
    stores = genlock.open_store(source), genlock.open_store(target, create=True)
    try:
        return (
            copy(*stores, verify=False, progress=told.progress),
            copy(*stores, progress=told.progress),
            sum_of(stores[1]),
        )
    finally:
        for store in stores:
            store.close()


def main() -> None:
    arguments = sys.argv[1:]
    tasks = int(next((text for text in arguments if text.isdigit()), TASKS))
    names = [text for text in arguments if not text.isdigit() and text != "copy"] or ["postgres"]
    lines: list[Line] = []
    told = Told()

    def tell(what: str, value: str, target: str = "", met: bool | None = None) -> None:
        lines.append(told.line(Line(what, value, target, met)))

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        source = f"sqlite://{folder}/first.db"
        began = time.monotonic()
        fill(source, tasks)
        tell("made, by real operations", f"{time.monotonic() - began:.1f} s")
        store = genlock.open_store(source)
        sums = [sum_of(store)]
        store.close()
        last = "sqlite"
        for name, url in around(names, Path(folder), stack):
            made, verified, total = copied(source, url, told)
            tell(
                f"{last} → {name}: {made.tasks:,} tasks, {made.events:,} events",
                f"{made.seconds:.1f} s",
            )
            tell("  events a second", f"{made.events / made.seconds:,.0f}")
            tell("  comparison and replay", f"{verified.seconds:.1f} s")
            sums.append(total)
            source, last = url, name
    tell("records and feeds at the end", sums[-1][:16], "as at first", len(set(sums)) == 1)
    show("copy", lines)


if __name__ == "__main__":
    main()
