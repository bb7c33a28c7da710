"""SQLite files that are copied, restored and put back: two histories of one store never grant the
same generation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import genlock
from genlock.errors import CursorLost, StoreForeign
from genlock.store import Store
from genlock.stores.sqlite import SQLiteStore, write_lock
from genlock.testing.concurrency import together
from genlock.transfer.backup import backup
from genlock.transfer.copy import copy
from genlock.transfer.restore import restore
from tests.servers import namespaces, stores

TASKS = ("T", "U")
REFUSED = ("STALE_GENERATION", "FUTURE_GENERATION", "NO_CLAIM")
ME: dict[str, Any] = {"session_id": "s1", "agent_id": "ada"}


def url_of(file: Path) -> str:
    return f"sqlite://{file}"


def epoch_of(file: Path) -> int:
    with closing(SQLiteStore(file, read_only=True)) as store:
        return store.load([]).epoch


@pytest.fixture(name="saved")
def _saved(tmp_path: Path) -> Path:
    """A backup of a store that is lost since; there are two tasks in it, and nobody has claimed
    any."""
    lost = tmp_path / "lost" / "genlock.db"
    with genlock.connect(url_of(lost), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    backup(lost, tmp_path / "saved.db")
    shutil.rmtree(lost.parent)
    return tmp_path / "saved.db"


def work_in(url: str) -> tuple[int, str]:
    """What a worker is granted there, always as the same session, and the cursor at the feed's
    end."""
    with genlock.connect(url, create=False, **ME) as fleet:
        claim = fleet.claim_task(task_id="T").claim
        assert claim is not None
        return claim.generation, fleet.read_events(tail=True).cursor


def assert_parted(urls: list[str]) -> None:
    """Each of these histories grants another generation, and knows nothing of the others' results
    and cursors."""
    granted = {url: work_in(url) for url in urls}
    assert len({generation for generation, _ in granted.values()}) == len(urls), granted
    for url in urls:
        with genlock.connect(url, create=False, **ME) as fleet:
            for other, (generation, cursor) in granted.items():
                if other != url:
                    assert fleet.submit_result(task_id="T", generation=generation).reason in REFUSED
                    assert fleet.submit_result(task_id="U", generation=generation).reason in REFUSED
                    with pytest.raises(CursorLost):
                        fleet.read_events(after=cursor)
            assert fleet.submit_result(task_id="T", generation=granted[url][0]).accepted


# Backups


def test_one_backup_restored_twice_after_file_loss_grants_no_generation_twice(
    saved: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here" / "genlock.db"
    restore(saved, here)
    first = work_in(url_of(here))
    kept = tmp_path / "kept"
    here.parent.rename(kept)  # gone, for all that the next restore can see
    restore(saved, here)
    second = work_in(url_of(here))
    assert first[0] != second[0]
    with genlock.connect(url_of(here), create=False, **ME) as fleet:
        assert fleet.submit_result(task_id="T", generation=first[0]).reason in REFUSED
        with pytest.raises(CursorLost):
            fleet.read_events(after=first[1])
        assert fleet.submit_result(task_id="T", generation=second[0]).accepted


def test_one_backup_restored_on_two_machines_grants_no_generation_twice(
    saved: Path, tmp_path: Path
) -> None:
    files = [tmp_path / name / "genlock.db" for name in ("one", "two", "three")]
    for file in files:
        restore(saved, file)
    assert_parted([url_of(file) for file in files])


def test_a_restore_over_a_store_parts_from_the_restore_before(saved: Path, tmp_path: Path) -> None:
    here = tmp_path / "here" / "genlock.db"
    epochs = [restore(saved, here, force=True).epoch for _ in range(3)]
    assert epochs == sorted(set(epochs))
    assert epoch_of(here) == epochs[-1]


def test_a_restored_store_is_opened_without_another_rise(saved: Path, tmp_path: Path) -> None:
    here = tmp_path / "here" / "genlock.db"
    for _ in range(2):  # under a name that is free, and over a store
        epoch = restore(saved, here, force=True).epoch
        work_in(url_of(here))
        assert epoch_of(here) == epoch


@pytest.mark.parametrize("way", ["copied", "opened", "copied and opened"])
def test_a_backup_that_becomes_a_store_by_another_way_parts_from_the_original(
    way: str, tmp_path: Path
) -> None:
    original, saved = tmp_path / "it" / "genlock.db", tmp_path / "saved.db"
    with genlock.connect(url_of(original), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    backup(original, saved)
    files = [original, saved]
    if "copied" in way:
        files.append(tmp_path / "copy of it.db")
        shutil.copy2(saved, files[-1])
    if way == "copied":
        files.remove(saved)
    assert_parted([url_of(file) for file in files])
    assert epoch_of(original) == 0, "nothing has happened to the original"


def test_a_backup_of_an_older_version_that_is_opened_as_the_store_parts_too(tmp_path: Path) -> None:
    """Older ones have no mark, but neither have they a log."""
    original, saved = tmp_path / "it" / "genlock.db", tmp_path / "saved.db"
    with genlock.connect(url_of(original), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    backup(original, saved)
    with closing(apsw.Connection(str(saved))) as db:
        db.execute(
            "DROP TABLE file; DELETE FROM migration WHERE number = 6; PRAGMA user_version = 5"
        )
    assert_parted([url_of(original), url_of(saved)])


def test_a_backup_is_not_changed_by_who_reads_it(saved: Path) -> None:
    before = saved.read_bytes()
    with closing(SQLiteStore(saved, read_only=True)) as store:
        assert store.load([]).epoch == 0
    assert saved.read_bytes() == before
    assert {file.name for file in saved.parent.iterdir()} == {"saved.db"}


@pytest.mark.parametrize("kind", stores.LASTING)
def test_copies_of_one_backup_grant_no_generation_twice(
    kind: str, saved: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    stores.need(request, kind)
    urls = [stores.LASTING[kind].url(tmp_path / f"{number}.db") for number in range(2)]
    for url in urls:
        with (
            closing(SQLiteStore(saved, read_only=True)) as source,
            closing(genlock.open_store(url, create=True)) as target,
        ):
            made = copy(source, target)
            assert made.epoch == target.load([]).epoch > 444_000_000
    assert_parted(urls)


def test_a_copy_of_a_live_store_parts_from_it(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    with genlock.connect(url_of(source), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
        with (
            closing(genlock.open_store(url_of(source), create=True)) as opened,
            closing(genlock.open_store(url_of(target), create=True)) as other,
        ):
            copy(opened, other)
    assert_parted([url_of(source), url_of(target)])


# Files


def copy_beside(file: Path, target: Path) -> None:
    """As `cp file file-wal …` does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for ending in ("", "-wal"):
        if Path(f"{file}{ending}").exists():
            shutil.copy2(f"{file}{ending}", f"{target}{ending}")


def copy_folder(file: Path, target: Path) -> None:
    """As `cp -r` does."""
    shutil.copytree(file.parent, target.parent)


def tar_folder(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True)
    archive = target.parent.with_suffix(".tar")
    subprocess.run(["tar", "-C", file.parent, "-cf", archive, "."], check=True)
    subprocess.run(["tar", "-C", target.parent, "-xf", archive], check=True)


@pytest.mark.parametrize("copied", [copy_beside, copy_folder, tar_folder])
def test_a_file_that_is_copied_while_it_is_used_parts_from_the_original(
    copied: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    original, other = tmp_path / "it" / "genlock.db", tmp_path / "other" / "genlock.db"
    with genlock.connect(url_of(original), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
        copied(original, other)
    assert_parted([url_of(original), url_of(other)])
    assert epoch_of(original) == 0


def test_a_folder_that_is_moved_stays_the_same_store(tmp_path: Path) -> None:
    file = tmp_path / "it" / "genlock.db"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
        assert fleet.claim_task(task_id="T").claim is not None
    file.parent.rename(tmp_path / "moved")
    with genlock.connect(url_of(tmp_path / "moved" / "genlock.db"), create=False, **ME) as fleet:
        assert fleet.submit_result(task_id="T", generation=1).accepted
    assert epoch_of(tmp_path / "moved" / "genlock.db") == 0


def in_place(saved: Path, file: Path) -> None:
    """As `cp saved file` does where there is a file: it keeps its inode."""
    file.write_bytes(saved.read_bytes())


def removed_first(saved: Path, file: Path) -> None:
    """Filesystems like to give the number of an inode again at once."""
    file.unlink()
    shutil.copy2(saved, file)


@pytest.mark.parametrize("put_back", [in_place, removed_first])
@pytest.mark.parametrize("killed", [False, True])
def test_an_older_file_that_is_put_back_under_the_name_begins_an_epoch(
    put_back: Callable[[Path, Path], None], killed: bool, tmp_path: Path
) -> None:
    file, saved = tmp_path / "genlock.db", tmp_path / "saved"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    shutil.copy2(file, saved)
    if killed:
        claim = (
            "import sys, os, genlock; genlock.connect(sys.argv[1], session_id='s1', "
            "agent_id='ada').claim_task(task_id='T'); os._exit(9)"
        )
        subprocess.run([sys.executable, "-c", claim, url_of(file)], check=False)
        lost = 1
    else:
        lost = work_in(url_of(file))[0]
    for log in (f"{file}-wal", f"{file}-shm"):
        Path(log).unlink(missing_ok=True)
    put_back(saved, file)
    generation, _ = work_in(url_of(file))
    assert generation > 444_000_000_000_000
    with genlock.connect(url_of(file), create=False, **ME) as fleet:
        assert fleet.submit_result(task_id="T", generation=lost).reason == "STALE_GENERATION"


def test_a_whole_folder_that_is_put_back_begins_an_epoch(tmp_path: Path) -> None:
    """Gate file and all. Both files may have their old inodes' numbers again."""
    file, saved = tmp_path / "it" / "genlock.db", tmp_path / "saved"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    shutil.copytree(file.parent, saved)
    work_in(url_of(file))
    numbers = [each.stat().st_ino for each in (file, Path(f"{file}.gate"))]
    shutil.rmtree(file.parent)
    shutil.copytree(saved, file.parent)
    if [
        each.stat().st_ino for each in (file, Path(f"{file}.gate"))
    ] == numbers and not has_generations(file):
        pytest.skip(
            "this filesystem gives inodes the same numbers again and tells nothing else about them"
        )
    assert work_in(url_of(file))[0] > 444_000_000_000_000


def has_generations(file: Path) -> bool:
    fd = os.open(f"{file}.gate", os.O_RDONLY)
    try:
        return write_lock._identity(fd)[1] != 0
    finally:
        os.close(fd)


def test_with_a_clock_that_was_set_back_an_older_file_begins_an_epoch_above_what_its_gate_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a battery starts in 1970: there an epoch is the last one plus one, and the
    older file knows no last one."""
    file, saved, older = tmp_path / "genlock.db", tmp_path / "saved.db", tmp_path / "older"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    backup(file, saved)
    shutil.copy2(file, older)
    monkeypatch.setattr("genlock.core.epochs.REFERENCE", 2**33)
    assert restore(saved, file, force=True).epoch == 1
    assert work_in(url_of(file))[0] == 1_000_001
    in_place(older, file)
    assert work_in(url_of(file))[0] == 2_000_001


def test_a_file_of_an_older_version_that_is_put_back_after_the_upgrade_begins_an_epoch(
    tmp_path: Path,
) -> None:
    """Nothing has been committed since the upgrade, and the gate notes the place of one project
    only."""
    file, older = tmp_path / "genlock.db", tmp_path / "older"
    for project in ("a", "b"):
        with genlock.connect(url_of(file), project_id=project, create=True, **ME) as fleet:
            fleet.add_tasks(tasks=["T"])
    make_older(file)
    shutil.copy2(file, older)
    with genlock.connect(url_of(file), project_id="a", **ME) as fleet:
        assert fleet.claim_task(task_id="T").claim is not None
    make_older(file)  # as if that had been before the upgrade
    with closing(SQLiteStore(file)):
        pass
    in_place(older, file)
    with genlock.connect(url_of(file), project_id="a", **ME) as fleet:
        claim = fleet.claim_task(task_id="T").claim
        assert claim is not None
        assert claim.generation > 444_000_000_000_000


def make_older(file: Path) -> None:
    """The store as version 5 has left it."""
    with closing(apsw.Connection(str(file))) as db:
        db.execute(
            "DROP TABLE file; DELETE FROM migration WHERE number = 6; PRAGMA user_version = 5"
        )
    Path(f"{file}.gate").write_bytes(b"%-10d\n" % os.getpid())


def test_a_file_with_two_names_is_not_opened_to_write(tmp_path: Path) -> None:
    """Each name would have a log beside it, and who wrote by one would see nothing of the other:
    both were granted the same task."""
    file, other = tmp_path / "genlock.db", tmp_path / "other" / "genlock.db"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    other.parent.mkdir()
    os.link(file, other)
    for name in (file, other):
        with pytest.raises(StoreForeign, match="has another name, by a hard link"):
            SQLiteStore(name)
    other.unlink()
    assert work_in(url_of(file))[0] == 1


def test_what_a_killed_restore_has_left_is_no_other_name(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "genlock.db"
    restore(saved, file)
    Path(f"{file}.restoring").mkdir()
    os.link(file, f"{file}.restoring/store.db")
    assert work_in(url_of(file))[0] > 444_000_000_000_000


def test_a_file_that_is_mounted_by_itself_is_not_opened_to_write(tmp_path: Path) -> None:
    """As by `docker run -v ./genlock.db:/data/genlock.db`: the log would stay in the container."""
    file, inside = tmp_path / "genlock.db", tmp_path / "inside" / "genlock.db"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    inside.parent.mkdir()
    inside.touch()
    opened = (
        f"mount --bind {file} {inside} && exec {sys.executable} -c 'import genlock; "
        f'genlock.open_store("{url_of(inside)}")\''
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        namespaces.into("--mount", "sh", "-c", opened),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "is mounted as a single file" in ended.stderr


def test_a_file_of_the_time_before_a_restore_that_is_put_back_begins_an_epoch(
    tmp_path: Path,
) -> None:
    """Its events reach as far as those of the store that was restored, but it has another birth."""
    file, saved, older = tmp_path / "genlock.db", tmp_path / "saved.db", tmp_path / "older"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    backup(file, saved)
    shutil.copy2(file, older)
    assert work_in(url_of(file))[0] == 1
    epoch = restore(saved, file, force=True).epoch
    in_place(older, file)
    generation, _ = work_in(url_of(file))
    assert generation // 1_000_000 > epoch


def test_without_its_gate_file_a_store_counts_as_a_copy_and_has_one_again(tmp_path: Path) -> None:
    file, write_lock = tmp_path / "genlock.db", tmp_path / "genlock.db.gate"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
        assert fleet.claim_task(task_id="T").claim is not None
    write_lock.unlink()
    with genlock.connect(url_of(file), create=False, **ME) as fleet:
        assert fleet.submit_result(task_id="T", generation=1).accepted, (
            "what is still held may be submitted"
        )
    epoch = epoch_of(file)
    assert epoch > 444_000_000
    assert write_lock.exists()
    with genlock.connect(url_of(file), create=False, **ME) as fleet:
        assert fleet.claim_task(task_id="U").claim is not None
    assert epoch_of(file) == epoch, "once is enough"


def test_of_many_who_open_a_copy_at_once_one_raises_the_epoch(tmp_path: Path) -> None:
    file, other = tmp_path / "it" / "genlock.db", tmp_path / "other" / "genlock.db"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    copy_folder(file, other)

    def opened() -> tuple[int, Store]:
        store = SQLiteStore(other)
        return store.load([]).epoch, store

    runs = together([opened for _ in range(6)])
    epochs = {run.answer[0] for run in runs}
    for run in runs:
        run.answer[1].close()
    assert len(epochs) == 1
    assert min(epochs) > 444_000_000


def test_reading_a_copy_changes_nothing(tmp_path: Path) -> None:
    file, other = tmp_path / "it" / "genlock.db", tmp_path / "other" / "genlock.db"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    copy_folder(file, other)
    before = other.read_bytes()
    with closing(SQLiteStore(other, read_only=True)) as store:
        assert store.load([]).epoch == 0
    assert other.read_bytes() == before


def test_a_store_of_an_older_version_is_opened_without_a_rise_and_known_from_then_on(
    tmp_path: Path,
) -> None:
    file, write_lock = tmp_path / "genlock.db", tmp_path / "genlock.db.gate"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    with closing(apsw.Connection(str(file))) as db:
        db.execute(
            "DROP TABLE file; DELETE FROM migration WHERE number = 6; PRAGMA user_version = 5"
        )
    write_lock.write_bytes(b"%-10d\n" % os.getpid())
    with genlock.connect(url_of(file), create=False, **ME) as fleet:
        assert fleet.claim_task(task_id="T").claim is not None
    assert epoch_of(file) == 0
    copy_beside(file, tmp_path / "other" / "genlock.db")
    assert work_in(url_of(tmp_path / "other" / "genlock.db"))[0] == 1, (
        "what was held when it was copied is held in both"
    )
    assert epoch_of(tmp_path / "other" / "genlock.db") > 444_000_000


def test_a_new_store_beside_the_gate_of_one_that_was_removed_begins_above_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "genlock.db"
    for expected in (False, True):
        with genlock.connect(url_of(file), create=True, **ME) as fleet:
            fleet.add_tasks(tasks=list(TASKS))
            claim = fleet.claim_task(task_id="T").claim
            assert claim is not None
            assert (claim.generation > 1) == expected
        file.unlink()


def test_a_writer_that_is_killed_in_its_commit_leaves_a_store_that_is_not_behind_its_gate(
    tmp_path: Path,
) -> None:
    """The place is noted when the commit is durable."""
    file = tmp_path / "genlock.db"
    with genlock.connect(url_of(file), create=True, **ME) as fleet:
        fleet.add_tasks(tasks=list(TASKS))
    claim = (
        "import sys, genlock; genlock.connect(sys.argv[1], session_id='s1', "
        "agent_id='ada').claim_task(task_id='T')"
    )
    for moment in ("before_commit", "after_commit"):
        environment = {
            "GENLOCK_FAILPOINT": f"sqlite.commit.{moment}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        ended = subprocess.run(
            [sys.executable, "-c", claim, url_of(file)],
            env=os.environ | environment,
            timeout=60,
            check=False,
        )
        assert ended.returncode == -9
        with genlock.connect(url_of(file), create=False, **ME) as fleet:
            fleet.add_tasks(tasks=[f"V-{moment[0]}"])
        assert epoch_of(file) == 0
