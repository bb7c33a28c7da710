"""What a SQLite store keeps in files: never through a symbolic link, and for its user alone."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import genlock
from genlock.errors import StoreForeign
from genlock.store import Key
from genlock.stores.files import mode_like
from genlock.stores.payloads import FolderPayloads, name_of
from genlock.stores.sqlite import SQLiteStore
from genlock.transfer.backup import backup, write_lines
from genlock.transfer.restore import restore

KEY = Key("t", "p", "task", "A")
DIGEST = "00" * 32
LARGE = "x" * 2_000_000
VICTIM = b"root:x:0:0: precious, and not ours\n"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of the user's that a link leads to; nobody writes to it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "precious").write_bytes(VICTIM)
    yield folder / "precious"
    assert (folder / "precious").read_bytes() == VICTIM
    assert os.listdir(folder) == ["precious"]


@pytest.fixture(autouse=True)
def lax_umask() -> Iterator[None]:
    """The permissions are ours, and not what the user's umask makes of them."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def used(path: Path) -> None:
    """A store with a task, and a result too large for a record."""
    with genlock.connect(f"sqlite://{path}", create=True, session_id="s", agent_id="a") as fleet:
        fleet.add_tasks(tasks=["T"])
        claim = fleet.claim_task(task_id="T").claim
        assert claim is not None
        assert fleet.submit_result(
            task_id="T", generation=claim.generation, result_data=LARGE
        ).accepted


def modes(folder: Path) -> dict[str, str]:
    """The permissions of all files in a folder; of payloads, which have long names, one stands for
    all."""
    found = {}
    for each in sorted(folder.rglob("*")):
        name = str(each.relative_to(folder))
        found[
            "payload" if len(each.name) == 62 else "payloads/xx" if len(each.name) == 2 else name
        ] = oct(stat.S_IMODE(each.lstat().st_mode))
    return found


# Links


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal", ".gate", ".payloads"])
@pytest.mark.parametrize("there", ["before", "dangling", "in a used store"])
def test_a_link_in_the_place_of_a_file_is_refused_by_name(
    tmp_path: Path, victim: Path, end: str, there: str
) -> None:
    path = tmp_path / "store" / "s.db"
    path.parent.mkdir()
    if there == "in a used store":
        used(path)
    link = Path(f"{path}{end}")
    if link.is_dir():
        link.rename(tmp_path / "aside")
    link.unlink(missing_ok=True)
    target = (
        tmp_path / "nowhere"
        if there == "dangling"
        else victim.parent
        if end == ".payloads"
        else victim
    )
    link.symlink_to(target)
    for read_only in (False, True):
        with pytest.raises(StoreForeign) as refused:
            SQLiteStore(path, read_only=read_only)
        assert str(refused.value).startswith(
            f"{link} is a symbolic link, to '{target}', and nothing of a store is reached through "
            "one: "
        )
        assert str(refused.value).endswith(f"; to remove the link, type: rm {link}")
        assert "root:x" not in str(refused.value)
    assert not (tmp_path / "nowhere").exists()


def test_a_store_whose_file_the_user_names_by_a_link_is_the_store_that_it_leads_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "disk").mkdir()
    used(tmp_path / "disk" / "s.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "disk" / "s.db")
    with genlock.connect(f"sqlite://{tmp_path / 'link.db'}", create=True) as fleet:
        assert fleet.get_task_state(task_id="T").state == "COMPLETED"
    assert sorted(os.listdir(tmp_path)) == ["disk", "link.db"]


@pytest.mark.parametrize("which", ["folder", "unfinished", "part", "file"])
def test_no_payload_is_written_or_read_through_a_link(
    tmp_path: Path, victim: Path, which: str
) -> None:
    folder = tmp_path / "payloads"
    name = name_of(KEY, DIGEST)
    places = {
        "folder": folder,
        "unfinished": folder / "unfinished",
        "part": folder / name[:2],
        "file": folder / name[:2] / name[2:],
    }
    link = places[which]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim if which == "file" else victim.parent)
    payloads = FolderPayloads(folder)
    acts: list[Callable[[], object]] = [
        lambda: payloads.put(KEY, DIGEST, b"bytes"),
        *([] if which == "unfinished" else [lambda: payloads.open(KEY, DIGEST).read()]),
    ]
    for act in acts:
        with pytest.raises(StoreForeign) as refused:
            act()
        assert f"{link} is a symbolic link" in str(refused.value)


def test_a_link_that_is_put_there_later_is_not_followed(tmp_path: Path, victim: Path) -> None:
    """After the store was opened, and before its first write."""
    store = SQLiteStore(tmp_path / "s.db")
    write_lock = tmp_path / "s.db.gate"
    write_lock.unlink()
    write_lock.symlink_to(victim)
    store.set_epoch(7)  # through the file that it has open; the fixture looks at the victim
    store.close()
    with pytest.raises(StoreForeign, match=r"s\.db\.gate is a symbolic link"):
        SQLiteStore(tmp_path / "s.db")


@pytest.mark.parametrize(
    "where", ["source", "part of source", "file of source", "target", "part of target"]
)
def test_a_backup_copies_through_no_link(tmp_path: Path, victim: Path, where: str) -> None:
    used(tmp_path / "s.db")
    (file,) = (tmp_path / "s.db.payloads").glob("[0-9a-f][0-9a-f]/*")
    place = {
        "source": tmp_path / "s.db.payloads", "part of source": file.parent, "file of source": file,
        "target": tmp_path / "b.db.payloads", "part of target": tmp_path / "b.db.payloads" / file.parent.name,
    }[where]  # fmt: skip
    if where.endswith("source"):
        place.rename(tmp_path / "aside")
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(victim if where == "file of source" else victim.parent)
    with pytest.raises(StoreForeign, match="is a symbolic link"):
        backup(tmp_path / "s.db", tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


@pytest.mark.parametrize("end", ["", "-wal", ".gate", ".payloads", ".restoring"])
def test_a_restore_writes_through_no_link(tmp_path: Path, victim: Path, end: str) -> None:
    used(tmp_path / "s.db")
    backup(tmp_path / "s.db", tmp_path / "b.db")
    Path(f"{tmp_path / 'new.db'}{end}").symlink_to(
        victim.parent if end in (".payloads", ".restoring") else victim
    )
    with pytest.raises(StoreForeign, match="is a symbolic link"):
        restore(tmp_path / "b.db", tmp_path / "new.db", force=True)


# Permissions


def test_a_new_store_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "s.db"
    store = SQLiteStore(path)
    store.set_epoch(3)
    assert modes(tmp_path) == {
        "folder": "0o700", "folder/s.db": "0o600", "folder/s.db-shm": "0o600", "folder/s.db-wal": "0o600", "folder/s.db.gate": "0o600",
    }  # fmt: skip
    store.close()
    used(path)
    assert modes(tmp_path) == {
        "folder": "0o700", "folder/s.db": "0o600", "folder/s.db.gate": "0o600", "folder/s.db.payloads": "0o700",
        "folder/s.db.payloads/unfinished": "0o700", "payloads/xx": "0o700", "payload": "0o600",
    }  # fmt: skip


def test_what_is_beside_a_file_that_a_group_shares_is_shared_too(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SQLiteStore(path).close()
    path.chmod(0o660)
    Path(f"{path}.gate").unlink()
    used(path)
    store = SQLiteStore(path)
    store.set_epoch(1_000_000_000)  # without its gate the store counted as a copy
    assert modes(tmp_path) == {
        "s.db": "0o660", "s.db-shm": "0o660", "s.db-wal": "0o660", "s.db.gate": "0o660", "s.db.payloads": "0o770",
        "s.db.payloads/unfinished": "0o770", "payloads/xx": "0o770", "payload": "0o660",
    }  # fmt: skip
    store.close()


def test_a_file_that_is_open_to_more_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SQLiteStore(path).close()
    path.chmod(0o644)
    used(path)
    assert modes(tmp_path)["s.db"] == "0o644"
    assert mode_like(path) == 0o644


def test_backups_restored_stores_and_exports_are_for_their_user_alone(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    used(tmp_path / "old" / "s.db")
    for each in [tmp_path / "old" / "s.db", *(tmp_path / "old" / "s.db.payloads").rglob("*")]:
        each.chmod(0o755 if each.is_dir() else 0o644)
    (tmp_path / "b").mkdir()
    backup(tmp_path / "old" / "s.db", tmp_path / "b" / "b.db")
    kept = {"b.db": "0o600", "b.db.payloads": "0o700", "payloads/xx": "0o700", "payload": "0o600"}
    assert modes(tmp_path / "b") == kept
    (tmp_path / "r").mkdir()
    restore(tmp_path / "b" / "b.db", tmp_path / "r" / "r.db")
    restored = modes(tmp_path / "r")
    assert {restored[name] for name in restored if name in ("r.db", "payload")} == {"0o600"}
    assert restored["r.db.payloads"] == "0o700"
    write_lines(tmp_path / "b" / "lines.jsonl", [b"{}"])
    assert modes(tmp_path / "b")["lines.jsonl"] == "0o600"


def test_a_restore_leaves_the_permissions_of_a_store_as_they_were(tmp_path: Path) -> None:
    used(tmp_path / "s.db")
    backup(tmp_path / "s.db", tmp_path / "b.db")
    (tmp_path / "s.db").chmod(0o660)
    restore(tmp_path / "b.db", tmp_path / "s.db", force=True)
    assert modes(tmp_path)["s.db"] == "0o660"
    (kept,) = [name for name in modes(tmp_path) if re.fullmatch(r"s\.db\.before-epoch-\d+", name)]
    assert modes(tmp_path)[kept] == "0o600"


def journal_naming(victim: Path) -> bytes:
    """A rollback journal of no pages that names this file as its super-journal, as SQLite's file
    format has it."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(victim)
    header = magic + struct.pack(">IIIII", 0, 1, 1, 512, 4096)
    return (
        header.ljust(512, b"\0")
        + struct.pack(">I", 0x40001)
        + name
        + struct.pack(">II", len(name), sum(name))
        + magic
    )


@pytest.mark.parametrize("reading", [False, True])
def test_a_journal_that_names_another_file_is_refused(
    tmp_path: Path, victim: Path, reading: bool
) -> None:
    """SQLite before 3.53 deletes that file when the store is opened."""
    path = tmp_path / "genlock.db"
    used(path)
    journal = tmp_path / "genlock.db-journal"
    journal.write_bytes(journal_naming(victim))
    with pytest.raises(
        StoreForeign, match=f"genlock.db-journal names another file.*type: rm {journal}"
    ):
        SQLiteStore(path, read_only=reading)
    assert journal.exists()


def test_a_restore_over_such_a_journal_is_refused(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "genlock.db"
    used(path)
    backup(path, tmp_path / "backup.db")
    (tmp_path / "genlock.db-journal").write_bytes(journal_naming(victim))
    with pytest.raises(StoreForeign, match="names another file"):
        restore(tmp_path / "backup.db", path, force=True)
