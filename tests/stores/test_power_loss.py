"""The power fails at any write: nothing acknowledged is lost, nothing is half there, and the store
goes on.

kill -9 cannot show this, since the page cache survives it. Streams of commits run over a file
system that logs every write (`forgetful_vfs`); 500 times the log is played up to a random write,
the unsynced rest is dropped, torn or applied in part, and the files so found are opened by the
ordinary store.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from genlock.store import Change, Committed, EventQuery, Index, Key, Query
from genlock.stores.sqlite import SQLiteStore, file_identity
from genlock.testing.sample import facts_of, keys_of, make_change, make_key, read_feed, recorded_of
from tests.stores.forgetful_vfs import Disk, ForgetfulVFS, Operation

STREAMS = 10
CUTS = 50
COMMITS = 14
PROJECTS = ("apollo", "gemini")
DEPENDENCIES = ("D-1", "D-2", "D-3")


@dataclass
class History:
    """What was committed: by record the changes in order, and which of them were acknowledged."""

    changes: dict[Key, list[Change]] = field(default_factory=dict)
    acknowledged: dict[Key, int] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)

    def copy(self) -> History:
        return History(
            {key: list(changes) for key, changes in self.changes.items()},
            dict(self.acknowledged),
            dict(self.cursors),
        )


@dataclass
class Stream:
    """A log, and for each commit in it: what it wrote and where in the log it began and was
    acknowledged."""

    log: list[Operation]
    commits: list[tuple[int, list[Change], int, dict[str, str]]]


@pytest.fixture(autouse=True)
def _same_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found after a cut is written into new files, which a store would take for copies. On
    a disk they are the same ones."""
    monkeypatch.setattr(file_identity, "inode_of", lambda path: None)


@pytest.fixture
def vfs() -> Iterator[ForgetfulVFS]:
    forgetful = ForgetfulVFS("forgetful")
    yield forgetful
    forgetful.unregister()


def next_batch(history: History, dice: random.Random) -> list[Change]:
    """Some new records and some old ones, small and large."""
    keys = {
        make_key(f"A-{dice.randrange(40):03}", project=dice.choice(PROJECTS))
        for _ in range(dice.randint(1, 5))
    }
    return [
        make_change(
            key,
            history.changes[key][-1] if key in history.changes else None,
            body=dice.randbytes(dice.choice((10, 300, 9000))),
            index=Index(
                state=dice.choice(("PENDING", "BLOCKED")),
                pool="p",
                order=key.id,
                waits_on=(dice.choice(DEPENDENCIES),),
            ),
            events=dice.randint(1, 3),
        )
        for key in sorted(keys)
    ]


def run_stream(
    vfs: ForgetfulVFS, folder: Path, history: History, dice: random.Random, synchronous: str
) -> Stream:
    """Commits, with a checkpoint now and then, and closes the store."""
    vfs.log.clear()
    commits = []
    history = history.copy()
    path = folder / "genlock.db"
    store = SQLiteStore(path, vfs=vfs.name, synchronous=synchronous)
    for _ in range(COMMITS):
        batch = next_batch(history, dice)
        began = len(vfs.log)
        answers = store.commit(batch)
        assert all(isinstance(answer, Committed) for answer in answers)
        acknowledged = len(vfs.log)
        cursors = {
            project: store.read_events(EventQuery("acme", project, tail=True)).cursor
            for project in PROJECTS
        }
        commits.append((began, batch, acknowledged, cursors))
        for change in batch:
            history.changes.setdefault(change.key, []).append(change)
        if dice.random() < 0.3:
            checkpoint(path, vfs, dice, synchronous)
    store.close()
    return Stream(list(vfs.log), commits)


def checkpoint(path: Path, vfs: ForgetfulVFS, dice: random.Random, synchronous: str) -> None:
    """Copies the log into the main file, as another process might at any time."""
    other = apsw.Connection(str(path), vfs=vfs.name)
    other.pragma("synchronous", synchronous)
    other.wal_checkpoint(
        mode=dice.choice(
            (
                apsw.SQLITE_CHECKPOINT_PASSIVE,
                apsw.SQLITE_CHECKPOINT_RESTART,
                apsw.SQLITE_CHECKPOINT_TRUNCATE,
            )
        )
    )
    other.close()


def until(stream: Stream, history: History, cut: int) -> History:
    """The history as it must or may be if the power fails after so many operations."""
    history = history.copy()
    for began, batch, acknowledged, cursors in stream.commits:
        if began <= cut:
            for change in batch:
                history.changes.setdefault(change.key, []).append(change)
                if acknowledged <= cut:
                    history.acknowledged[change.key] = len(history.changes[change.key])
        if acknowledged <= cut:
            history.cursors = cursors
    return history


def verify(folder: Path, history: History) -> History:
    """Opens what was found after the cut: all that was acknowledged is there, nothing is half
    there, and it goes on. What is there."""
    path = folder / "genlock.db"
    store = SQLiteStore(path, synchronous="OFF")  # the power will not fail again while we look
    try:
        records = store.load(list(history.changes), with_index=True).records
        found: dict[Key, list[Change]] = {}
        for key, changes in history.changes.items():
            least = history.acknowledged.get(key, 0)
            version = records[key].version if key in records else 0
            there = [change for change in changes if change.version <= version]
            assert len(there) >= least, f"{key}: an acknowledged change is lost"
            if there:
                last = there[-1]
                assert records[key][:4] == (key, last.version, last.digest, last.body)
                assert records[key].index == last.index
                found[key] = there
        kept = [change for changes in found.values() for change in changes]
        for project in PROJECTS:
            for other in DEPENDENCIES:
                waiting = sorted(
                    key
                    for key, changes in found.items()
                    if key.project == project and changes[-1].index.waits_on == (other,)
                )
                assert keys_of(store.find(Query("acme", project, waits_on=(other,)))) == waiting
            feed = read_feed(store, project=project)
            assert sorted(facts_of(feed)) == sorted(
                recorded_of(change for change in kept if change.key.project == project)
            )
            positions = [event.position for event in feed]
            assert positions == sorted(set(positions))
            if history.cursors:
                later = facts_of(read_feed(store, project=project, after=history.cursors[project]))
                done = [
                    change
                    for changes in history.changes.values()
                    for change in changes[: history.acknowledged.get(changes[0].key, 0)]
                ]
                assert not set(later) & set(recorded_of(done)), (
                    "an acknowledged event has another position"
                )
        again = make_change(make_key("after the cut"))
        assert isinstance(store.commit([again])[0], Committed)
    finally:
        store.close()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    return History(found, {key: len(changes) for key, changes in found.items()})


def put_files(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def cut_points(stream: Stream, dice: random.Random, cuts: int) -> list[int]:
    """Anywhere, and one in five where all of a commit is written and nothing of it synced. The last
    one is never at the very end."""
    before_the_sync = [acknowledged - 1 for _, _, acknowledged, _ in stream.commits]
    return sorted(
        dice.choice(before_the_sync)
        if dice.random() < 0.2
        else dice.randint(1, len(stream.log) - 1)
        for _ in range(cuts)
    )


def cut_off(
    vfs: ForgetfulVFS, place: Path, *, synchronous: str, streams: int, cuts: int, seed: int
) -> tuple[list[str], dict[str, int]]:
    """Runs streams and cuts each of them; the faults found, and how the cuts fell. Every stream
    goes on from its forerunner's last cut."""
    dice = random.Random(seed)
    faults: list[str] = []
    seen = dict.fromkeys(
        ("cuts", "unsynced", "in flight and done", "in flight and not done", "creating"), 0
    )
    history, files = History(), dict[str, bytes]()
    last = (files, history)
    for number in range(streams):
        put_files(place / "running", files)
        stream = run_stream(vfs, place / "running", history, dice, synchronous)
        disk, played = Disk(files), 0
        for cut in cut_points(stream, dice, cuts):
            for operation in stream.log[played:cut]:
                disk.do(operation)
            played = cut
            found = disk.after_power_loss(dice)
            expected = until(stream, history, cut)
            put_files(place / "cut", found)
            seen["cuts"] += 1
            seen["unsynced"] += any(disk.pending.values())
            seen["creating"] += not expected.changes
            try:
                there = verify(place / "cut", expected)
            except Exception as error:  # noqa: BLE001 - however it shows itself, it is a fault
                faults.append(
                    f"seed {seed}, stream {number}, cut at {cut} of {len(stream.log)}: "
                    f"{type(error).__name__}: {error}"
                )
                continue
            for began, (change, *_), acknowledged, _ in stream.commits:
                if began < cut < acknowledged:
                    seen[
                        "in flight and done"
                        if change in there.changes.get(change.key, [])
                        else "in flight and not done"
                    ] += 1
            last = (found, there)
        if faults:
            break
        files, history = last
    return faults, seen


def test_nothing_acknowledged_is_lost_when_the_power_fails(
    vfs: ForgetfulVFS, tmp_path: Path
) -> None:
    faults, seen = cut_off(vfs, tmp_path, synchronous="FULL", streams=STREAMS, cuts=CUTS, seed=20)
    assert not faults, "\n".join(faults[:5])
    assert seen["cuts"] == 500
    # The cuts fell where it matters: on unsynced writes, inside commits that then were done or not
    # done, and at the birth of the file.
    assert seen["unsynced"] > 250
    assert seen["in flight and done"] > 5
    assert seen["in flight and not done"] > 50
    assert seen["creating"] > 0


@pytest.mark.parametrize(("synchronous", "least"), [("OFF", 25), ("NORMAL", 1)])
def test_with_less_syncing_the_same_cuts_do_lose_what_was_acknowledged(
    vfs: ForgetfulVFS, tmp_path: Path, synchronous: str, least: int
) -> None:
    faults, _ = cut_off(vfs, tmp_path, synchronous=synchronous, streams=1, cuts=CUTS, seed=21)
    assert len(faults) >= least
    assert any("an acknowledged change is lost" in fault for fault in faults)
