"""The compaction of a journal, and reading only what is needed of one that was compacted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from genlock.errors import StoreCorrupt
from genlock.store import Change, EventQuery, Query
from genlock.stores.folder import compacted_part
from genlock.testing.contract_base import commit, must_conflict
from genlock.testing.sample import facts_of, make_change, make_key, read_feed, recorded_of
from tests.folder.journals import filled, journal_of, opened
from tests.folder.workspace import Workspace, granted, ready


def test_compaction_keeps_everything_and_other_handles_follow(tmp_path: Path) -> None:
    changes = filled(tmp_path)
    one, two = opened(tmp_path), opened(tmp_path)
    cursor = two.read_events(EventQuery("acme", "apollo")).cursor
    before = read_feed(two)
    one.compact()
    late = make_change(changes[-1].key, changes[-1])
    commit(two, late)
    must_conflict(one, make_change(changes[-1].key, changes[-1], mark="too late"))
    for store in (one, two, opened(tmp_path)):
        events = read_feed(store)
        assert events[:-1] == before
        assert facts_of(events[-1:]) == recorded_of([late])
        assert facts_of(read_feed(store, after=cursor)) == recorded_of([late])
        assert store.load([late.key]).records[late.key].digest == late.digest
        store.close()


def test_large_journal_is_compacted_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genlock.stores.folder.store._COMPACT_BYTES", 20_000)
    store, other = opened(tmp_path), opened(tmp_path)
    change: Change | None = None
    for _ in range(300):
        change = make_change(make_key(), change, body=bytes(1000))
        commit(store, change)
    assert journal_of(tmp_path).stat().st_size < 150_000
    assert len(read_feed(other)) == 300
    store.close()
    other.close()


@pytest.mark.parametrize("failpoint", ["journal.compacted", "journal.replaced"])
def test_compaction_that_is_killed_loses_nothing(tmp_path: Path, failpoint: str) -> None:
    changes = filled(tmp_path)
    code = "import sys; from genlock.stores.folder import open_folder; open_folder(sys.argv[1]).compact()"
    done = subprocess.run(
        [sys.executable, "-c", code, f"folder://{tmp_path}?layout=none"],
        env={
            **os.environ,
            "GENLOCK_FAILPOINT": failpoint,
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    store = opened(tmp_path)
    assert facts_of(read_feed(store)) == recorded_of(changes)
    commit(store, make_change(make_key("late")))
    store.close()


# Reading what was compacted


def test_claim_in_a_new_process_reads_little_of_a_large_journal(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(600):
        workspace.add(f"task-{number}")
    workspace.connect().sweep()
    workspace.close()
    size = (workspace.root / "state" / "genlock" / "journal").stat().st_size
    read: list[int] = []
    pread = os.pread

    def counted(fd: int, length: int, at: int) -> bytes:
        data = pread(fd, length, at)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    fleet = workspace.connect("s2", "a2")
    generation = granted(fleet, "task-300")
    fleet.release_claim(task_id="task-300", generation=generation)
    assert size > 400_000
    assert sum(read) < 60_000
    assert len(ready(fleet)) == 100  # of the first page; to know the order takes all
    assert sum(read) > 400_000


def test_records_of_a_compacted_journal_are_the_same_however_they_are_read(tmp_path: Path) -> None:
    changes = filled(tmp_path)
    latest = {change.key: change for change in changes}
    store = opened(tmp_path)
    store.compact()
    store.close()

    one = opened(tmp_path)
    key = changes[-1].key
    assert one.load([key, make_key("none")]).records.keys() == {key}
    late = make_change(key, latest[key])
    commit(one, late)
    one.purge(make_key("A-0"), 2, b"base")
    other = opened(tmp_path)
    for each in (one, other):
        found = each.find(Query("acme", "apollo")).records
        assert {row.key: row.version for row in found} == {
            **{known: change.version for known, change in latest.items()},
            key: late.version,
        }
        events = each.read_events(EventQuery("acme", "apollo", record=make_key("A-0")))
        assert (events.base, [event.version for event in events.events]) == (b"base", [2])
        assert len(read_feed(each)) == 6
    one.compact()
    assert read_feed(opened(tmp_path)) == read_feed(other)
    for each in (one, other):
        each.close()


def test_record_whose_hash_another_one_has_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = filled(tmp_path)
    monkeypatch.setattr(compacted_part, "_hash", lambda text: 7)
    store = opened(tmp_path)
    store.compact()
    store.close()
    store = opened(tmp_path)
    for change in changes[-3:]:
        assert store.load([change.key]).records[change.key].digest == change.digest
    assert store.load([make_key("none")]).records == {}
    store.close()


def test_damage_in_the_compacted_part_is_an_error_for_whoever_needs_it(tmp_path: Path) -> None:
    change = make_change(make_key("A-0"), body=b"a body to be found" * 3)
    store = opened(tmp_path)
    commit(store, change)
    commit(store, make_change(make_key("A-1")))
    store.compact()
    store.close()
    path = journal_of(tmp_path)
    whole = path.read_bytes()
    at = whole.index(b"a body to be found")
    path.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    store = opened(tmp_path)
    assert make_key("A-1") in store.load([make_key("A-1")]).records
    with pytest.raises(StoreCorrupt, match="damaged at byte"):
        store.load([make_key("A-0")])
    with pytest.raises(StoreCorrupt, match="damaged at byte"):
        store.find(Query("acme", "apollo"))
    store.close()


@pytest.mark.parametrize("cut", [30, 200])
def test_compacted_journal_that_was_cut_off_is_an_error(tmp_path: Path, cut: int) -> None:
    filled(tmp_path)
    store = opened(tmp_path)
    store.compact()
    store.close()
    path = journal_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    store = opened(tmp_path)
    with pytest.raises(StoreCorrupt, match="damaged at byte"):
        store.load([])
    with pytest.raises(StoreCorrupt):
        store.commit([make_change(make_key("late"))])
    store.close()


def test_descriptors_of_replaced_journals_are_given_back(tmp_path: Path) -> None:
    filled(tmp_path)
    one, two = opened(tmp_path), opened(tmp_path)
    for _ in range(3):
        one.compact()
        two.load([make_key("A-0")])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        one.compact()
        two.load([make_key("A-0")])
    assert len(os.listdir("/proc/self/fd")) == before
    one.close()
    two.close()
