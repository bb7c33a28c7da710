"""A process is killed at every place where it touches the store: each step is done or not done,
never half.

The children are forked by this file run as a program. Each does a few steps of every kind and says
so after each; a failpoint kills it inside one of them. Then what it had acknowledged must be there,
the step under way be whole or absent, and another process go on at once.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from genlock import failpoints
from genlock.errors import ResultNotFound
from genlock.store import Change, Committed, Conflict, EventQuery, Index, Query, Store
from genlock.stores.sqlite import SQLiteStore
from genlock.testing.sample import (
    facts_of,
    keys_of,
    make_change,
    make_key,
    read_feed,
    read_record,
    recorded_of,
)

PAYLOAD = bytes(range(256)) * 400
DIGEST = hashlib.sha256(PAYLOAD).hexdigest()
AT_ONCE = 4.0
"""Seconds: less than anybody waits for a gate that is shut, and much more than a commit takes."""


class Step(NamedTuple):
    """Something to do, and whether it was done; asking raises an error if it was done by half."""

    do: Callable[[Store], object]
    is_done: Callable[[Store], bool]
    checked: range = range(100)
    """After how many acknowledged steps it can be told: a later step may undo it."""


def batch(number: int, before: list[Change] | None = None) -> list[Change]:
    """New records, or the same once more, with entries in every index."""
    changes = []
    for at in range(4):
        key = make_key(f"B{number}-{at}", project="apollo" if at % 2 else "gemini")
        old = before[at] if before else None
        index = Index(
            state="PENDING",
            pool=f"pool {number}",
            order="1",
            session=f"s{number}",
            parent="P",
            waits_on=("D-1", f"D-{number}"),
        )
        changes.append(make_change(old.key if old else key, old, index=index, events=3))
    return changes


FIRST, SECOND = batch(1), batch(2)
THIRD = batch(3, FIRST)
STALE = make_change(FIRST[0].key, mark="too late", events=2)
MIXED = [*batch(4, SECOND), STALE]


def write(changes: list[Change], store: Store) -> None:
    answers = store.commit(changes)
    assert [type(answer) for answer in answers] == [
        Conflict if change is STALE else Committed for change in changes
    ]


def is_written(changes: list[Change], store: Store) -> bool:
    """Is every change there with all that belongs to it? A later version counts too."""
    done = set()
    records = store.load([change.key for change in changes]).records
    for change in changes:
        events = facts_of(read_record(store, change.key))
        feed = facts_of(
            event
            for event in read_feed(store, project=change.key.project)
            if event.key == change.key
        )
        assert events == feed
        record = records.get(change.key)
        assert (events[-1][1] if events else 0) == (record.version if record else 0), (
            "a record and its events differ"
        )
        if change is STALE:
            assert not set(recorded_of([change])) & set(events)
            continue
        there = record is not None and record.version >= change.version
        waiting = keys_of(
            store.find(Query("acme", change.key.project, waits_on=change.index.waits_on[1:2]))
        )
        if record is not None and record.version <= change.version:
            assert (change.key in waiting) == there, "a record and its index differ"
        done.add(there)
    assert len(done) == 1, "some of a transaction was done and some not"
    return done.pop()


def is_purged(store: Store) -> bool:
    page = store.read_events(EventQuery("acme", "gemini", record=FIRST[0].key))
    versions = [event.version for event in page.events]
    assert (versions[:1], page.base) in (([1], None), ([4], b"the base"), ([], None)), (
        "a purge was done by half"
    )
    return page.base is not None


def has_payload(name: str, store: Store) -> bool:
    try:
        with store.payloads().open(make_key(name), DIGEST) as reader:
            assert reader.read() == PAYLOAD
    except ResultNotFound:
        return False
    return True


STEPS = [
    Step(lambda store: None, lambda store: True),  # opening it
    Step(partial(write, FIRST), partial(is_written, FIRST)),
    Step(partial(write, SECOND), partial(is_written, SECOND)),
    Step(partial(write, THIRD), partial(is_written, THIRD)),
    Step(partial(write, MIXED), partial(is_written, MIXED)),
    Step(lambda store: store.purge(FIRST[0].key, 4, b"the base"), is_purged),
    Step(lambda store: store.set_epoch(1), lambda store: store.load([]).epoch == 1),
    Step(
        lambda store: store.payloads().put(make_key("P-1"), DIGEST, PAYLOAD),
        partial(has_payload, "P-1"),
    ),
    Step(
        lambda store: store.payloads().put(make_key("P-2"), DIGEST, PAYLOAD),
        partial(has_payload, "P-2"),
        range(9),
    ),
    Step(
        lambda store: store.payloads().drop(make_key("P-2"), DIGEST),
        lambda store: not has_payload("P-2", store),
        range(9, 11),
    ),
]


def open_store(folder: Path) -> Store:
    return SQLiteStore(folder / "genlock.db")


def child(folder: Path, failpoint: str) -> None:
    """Does the steps and says so; dies at the failpoint, or says the names of all that it comes
    by."""
    os.environ["GENLOCK_FAILPOINT"] = failpoint
    importlib.reload(failpoints)
    for name, module in list(sys.modules.items()):
        if name.startswith("genlock.") and hasattr(module, "hit"):
            # Not every module has one
            setattr(module, "hit", failpoints.hit if failpoint else say_hit)  # noqa: B010
    store = open_store(folder)
    for number, step in enumerate(STEPS):
        step.do(store)
        print("done", number, flush=True)
    store.close()


def say_hit(name: str) -> None:
    print("hit", name, flush=True)


def serve() -> None:
    """Starts a child for every line with a folder and a failpoint. A process that has imported
    everything forks faster than one starts."""
    for line in sys.stdin:
        folder, failpoint = line.rstrip("\n").split("\t")
        pid = os.fork()
        if not pid:
            child(Path(folder), failpoint)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)


class Children:
    """Runs one child after the other."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, folder: Path, failpoint: str) -> tuple[list[str], int]:
        """What the child said, and how it ended."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{folder}\t{failpoint}\n")
        self.process.stdin.flush()
        said: list[str] = []
        for line in self.process.stdout:
            if line.startswith("ended "):
                return said, int(line.split()[1])
            said.append(line.rstrip())
        raise AssertionError("the children's parent is gone")


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    running = Children()
    yield running
    running.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def hits(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often a child that nobody kills comes by each failpoint."""
    said, ended = children.run(tmp_path_factory.mktemp("unharmed"), "")
    assert ended == 0
    assert [line for line in said if line.startswith("done ")] == [
        f"done {number}" for number in range(len(STEPS))
    ]
    return Counter(line.removeprefix("hit ") for line in said if line.startswith("hit "))


def verify(folder: Path, acknowledged: int, store: Store | None) -> None:
    """What the child acknowledged is done, the next step is done or not, and we can write at
    once."""
    began = time.monotonic()
    store = store or open_store(folder)
    assert isinstance(store.commit([make_change(make_key("after the kill"))])[0], Committed)
    assert time.monotonic() - began < AT_ONCE, "the dead still held the store"
    for number, step in enumerate(STEPS):
        if acknowledged in step.checked:
            done = step.is_done(store)
            assert done or number >= acknowledged, f"step {number} was acknowledged and is not done"
            assert not done or number <= acknowledged, f"step {number} was done before its time"
    store.close()
    connection = apsw.Connection(str(folder / "genlock.db"))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


def kill_at(children: Children, folder: Path, failpoint: str) -> int:
    """Kills a child there, and looks; how many steps it had done."""
    folder.mkdir()
    store = None if failpoint.startswith("sqlite.open") else open_store(folder)
    said, ended = children.run(folder, failpoint)
    assert ended == -signal.SIGKILL, f"the child passed {failpoint} unharmed"
    verify(folder, len(said), store)
    return len(said)


def test_the_failpoints_are_known(hits: Counter[str]) -> None:
    for kind in ("sqlite.open.", "sqlite.commit.", "sqlite.purge.", "folder.payload."):
        assert any(name.startswith(kind) for name in hits), f"no failpoint in {kind}"


def test_a_process_killed_at_any_failpoint_leaves_each_step_done_or_not_done(
    children: Children, hits: Counter[str], tmp_path: Path
) -> None:
    turns = [(name, turn) for name, count in hits.items() for turn in range(1, count + 1)]
    reached = {
        kill_at(children, tmp_path / f"{name}-{turn}", f"{name}:{turn}") for name, turn in turns
    }
    assert reached == set(range(len(STEPS))), "there are steps in which nobody was killed"


if __name__ == "__main__":
    serve()
