"""SQLite: whose the file is, who may write it, and what is beside it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from genlock.errors import Closed, StoreCorrupt, StoreForeign, StoreReadOnly, StoreUnavailable
from genlock.store import EventQuery
from genlock.stores.sqlite import SQLiteStore, connections
from genlock.stores.sqlite.connections import FORMAT
from genlock.stores.sqlite.open import APPLICATION, filesystem_of, refuse_network
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually

NOBODY = 65534


def output_of(code: str, *arguments: object) -> list[str]:
    """The lines that the code prints when it is run with these arguments in a process of its
    own."""
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    return process.stdout.splitlines()


def test_missing_folders_are_created(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "genlock.db"
    with closing(SQLiteStore(path)) as store:
        store.commit([make_change(make_key())])
    assert path.stat().st_size > 0


def test_an_empty_file_is_taken_as_new(tmp_path: Path) -> None:
    path = tmp_path / "genlock.db"
    path.touch()
    with closing(SQLiteStore(path)) as store:
        assert store.commit([make_change(make_key())])


def test_a_file_whose_creation_was_cut_off_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "genlock.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with closing(SQLiteStore(path)) as store:
        assert store.commit([make_change(make_key())])


SIXTEEN_AT_ONCE = """if True:
    import os, sys
    from genlock.store import EventQuery
    from genlock.stores.sqlite import SQLiteStore
    from genlock.testing.sample import make_change, make_key
    wait, start = os.pipe()
    children = []
    for number in range(16):
        children.append(os.fork())
        if children[-1] == 0:
            os.close(start)
            os.read(wait, 1)
            store = SQLiteStore(sys.argv[1])
            store.commit([make_change(make_key(str(number)))])
            birth = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor[:10]
            os.write(1, f"{birth}\\n".encode())
            store.close()
            sys.exit()
    os.close(start)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 16
"""


def test_sixteen_processes_that_start_at_once_create_one_store(tmp_path: Path) -> None:
    path = tmp_path / "new" / "genlock.db"
    births = output_of(SIXTEEN_AT_ONCE, path)
    assert len(births) == 16
    assert len(set(births)) == 1
    with closing(SQLiteStore(path)) as store:
        assert len(read_feed(store)) == 16


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE song (title)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreForeign, match=r"other\.db is an SQLite database of another program"):
        SQLiteStore(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["other.db"]


@pytest.mark.parametrize("content", [b"x", b"Dear diary,\n" * 500, bytes(8192)])
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "diary.txt"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(StoreForeign, match=r"diary\.txt"):
            SQLiteStore(path, read_only=read_only)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["diary.txt"]


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreForeign, match="is a folder"):
        SQLiteStore(tmp_path)


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "genlock.db"
    SQLiteStore(path).close()
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    for read_only in (False, True):
        with pytest.raises(StoreForeign, match=f"format {FORMAT + 1}.*up to {FORMAT}"):
            SQLiteStore(path, read_only=read_only)


def test_our_files_are_told_from_others_by_their_header(tmp_path: Path) -> None:
    path = tmp_path / "genlock.db"
    SQLiteStore(path).close()
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION
    assert int.from_bytes(header[60:64], "big") == FORMAT


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "genlock.db"
    with closing(SQLiteStore(path)) as store:
        store.commit(
            [make_change(make_key(f"A-{number:03}"), body=bytes(2000)) for number in range(200)]
        )
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with (
        pytest.raises(StoreCorrupt, match=r"genlock\.db is damaged"),
        closing(SQLiteStore(path)) as store,
    ):
        read_feed(store)


def test_a_store_opened_for_reading_reads_and_refuses_to_write(tmp_path: Path) -> None:
    path = tmp_path / "genlock.db"
    with closing(SQLiteStore(path)) as writer, closing(SQLiteStore(path, read_only=True)) as reader:
        assert reader.limits.read_only
        change = make_change(make_key())
        writer.commit([change])
        assert reader.load([change.key]).records[change.key].digest == change.digest
        assert len(read_feed(reader)) == 1
        for write in (
            lambda: reader.commit([make_change(make_key("A-002"))]),
            lambda: reader.purge(change.key, 1, b""),
            lambda: reader.set_epoch(1),
            lambda: reader.payloads().put(change.key, "digest", b"data"),
            lambda: reader.payloads().drop(change.key, "digest"),
        ):
            with pytest.raises(StoreReadOnly, match=r"genlock\.db"):
                write()


def test_what_does_not_exist_cannot_be_opened_for_reading(tmp_path: Path) -> None:
    for path in (tmp_path / "genlock.db", tmp_path / "nowhere" / "genlock.db"):
        with pytest.raises(StoreUnavailable, match="does not exist"):
            SQLiteStore(path, read_only=True)
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreUnavailable, match="is empty"):
        SQLiteStore(tmp_path / "empty.db", read_only=True)
    assert os.listdir(tmp_path) == ["empty.db"]


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755)
    shutil.rmtree(folder)


READ_AS_NOBODY = """if True:
    import os, sys
    from genlock.errors import StoreReadOnly
    from genlock.stores.sqlite import SQLiteStore
    from genlock.testing.sample import make_change, make_key, read_feed
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    store = SQLiteStore(sys.argv[1])
    assert store.limits.read_only
    print(len(read_feed(store)), len(store.load([make_key("A-001"), make_key("A-002")]).records), flush=True)
    try:
        store.commit([make_change(make_key("A-009"))])
    except StoreReadOnly as error:
        print(error)
    store.close()
"""


def read_as_nobody(path: Path) -> list[str]:
    """What a user sees who may not write there."""
    return output_of(READ_AS_NOBODY, path, NOBODY)


def refused(path: Path) -> str:
    return f"{path} was opened for reading: this user may not write it, or not in {path.parent}"


OPEN_AS_NOBODY = """if True:
    import os, sys
    from genlock.errors import StoreUnavailable
    from genlock.stores.sqlite import SQLiteStore
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    try:
        SQLiteStore(sys.argv[1])
    except StoreUnavailable as error:
        print(error)
"""


def test_a_store_that_may_neither_be_read_nor_made_is_said_to_be_so(open_place: Path) -> None:
    path = open_place / "genlock.db"
    SQLiteStore(path).close()
    path.chmod(0)
    open_place.chmod(0o555)
    assert output_of(OPEN_AS_NOBODY, path, NOBODY) == [
        f"{path} cannot be opened: this user may not read it"
    ]
    absent = open_place / "folder" / "genlock.db"
    assert output_of(OPEN_AS_NOBODY, absent, NOBODY) == [
        f"{absent} does not exist, and this user may not write in {open_place}"
    ]


def test_a_read_only_folder_opens_for_reading(open_place: Path) -> None:
    path = open_place / "genlock.db"
    with closing(SQLiteStore(path)) as store:
        store.commit([make_change(make_key("A-001")), make_change(make_key("A-002"))])
    path.chmod(0o444)
    open_place.chmod(0o555)
    assert read_as_nobody(path) == ["2 2", refused(path)]
    assert set(os.listdir(open_place)) == {"genlock.db", "genlock.db.gate"}


def test_a_read_only_folder_opens_for_reading_while_another_user_writes(open_place: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs two users")
    path = open_place / "genlock.db"
    SQLiteStore(path).close()
    path.chmod(0o644)  # a log that is made from now on can be read too
    with closing(SQLiteStore(path)) as store:
        store.commit([make_change(make_key("A-001"))])
        assert read_as_nobody(path) == ["1 1", refused(path)]
        store.commit([make_change(make_key("A-002"))])
        assert read_as_nobody(path) == ["2 2", refused(path)]


def test_a_read_only_file_opens_for_reading(open_place: Path) -> None:
    path = open_place / "genlock.db"
    with closing(SQLiteStore(path)) as store:
        store.commit([make_change(make_key("A-001"))])
    path.chmod(0o444)
    open_place.chmod(0o777)
    assert read_as_nobody(path) == ["1 1", refused(path)]


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/vdb /home/local ext4 rw 0 0
//nas/share /mnt/big\\040disk cifs rw 0 0
me@host: /mnt/remote fuse.sshfs rw 0 0
tmpfs /mnt/remote/here tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/homestead", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/project", "nfs4"),
        ("/home/local/project", "ext4"),
        ("/mnt/big disk/project", "cifs"),
        ("/mnt/remote/project", "fuse.sshfs"),
        ("/mnt/remote/here", "tmpfs"),
    ],
)
def test_the_filesystem_is_that_of_the_deepest_mount(folder: str, kind: str) -> None:
    assert filesystem_of(folder, MOUNTS) == kind


def test_a_network_filesystem_is_refused_with_advice(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    for kind in ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"):
        mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver {tmp_path} {kind} rw 0 0\n")
        with pytest.raises(StoreUnavailable, match=f"{kind}.*local disk.*postgresql"):
            refuse_network(tmp_path, mounts)
    mounts.write_text(f"/dev/vda / nfs rw 0 0\n/dev/vdb {tmp_path} ext4 rw 0 0\n")
    refuse_network(tmp_path, mounts)
    refuse_network(tmp_path, tmp_path / "no such table")


def test_a_store_that_is_closed_while_somebody_waits_for_it_leaves_no_log_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BACK_SECONDS", 1000)
    store = SQLiteStore(tmp_path / "genlock.db")
    store.commit([make_change(make_key())])
    cursor = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
    waiting = [
        threading.Thread(target=store.wait, args=([("acme", "apollo")], [cursor], 60))
        for _ in range(8)
    ]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(store._readers.inherited()) >= len(waiting), "all threads to wait")
    store.close()
    assert [file.name for file in tmp_path.glob("genlock.db-*")] == []
    for thread in waiting:
        thread.join(10)
        assert not thread.is_alive()


def test_a_store_is_closed_although_somebody_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BACK_SECONDS", 0.05)
    store = SQLiteStore(tmp_path / "genlock.db")
    with store._readers.lent():
        store.close()
        with pytest.raises(Closed):
            store.load([])
    assert store._readers.inherited() == []


def replaced_by_another(path: Path) -> None:
    SQLiteStore(path.with_name("other.db")).close()
    path.with_name("other.db").replace(path)


@pytest.mark.parametrize(
    "happens",
    [Path.unlink, lambda path: path.rename(path.with_name("moved.db")), replaced_by_another],
)
def test_a_file_that_is_deleted_moved_or_replaced_under_us_is_noticed_and_nothing_is_granted_twice(
    happens: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "genlock.db"
    first, second = make_change(make_key("A-001")), make_change(make_key("A-002"))
    with closing(SQLiteStore(path)) as store:
        store.commit([first])
        happens(path)
        for act in (
            lambda: store.commit([second]),
            lambda: store.load([first.key]),
            lambda: store.purge(first.key, 1, b"{}"),
            lambda: store.set_epoch(7),
        ):
            with pytest.raises(
                StoreForeign,
                match=r"genlock\.db was deleted, moved or replaced while it was open; nothing was "
                r"written",
            ):
                act()


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@pytest.mark.parametrize(
    "happens",
    [
        Path.unlink,
        lambda log: log.rename(log.with_name("moved")),
        lambda log: (log.unlink(), log.touch()),
    ],
)
def test_a_log_that_is_deleted_moved_or_replaced_under_us_is_noticed_and_who_closes_the_store_saves_it(
    happens: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "genlock.db"
    first, second = make_change(make_key("A-001")), make_change(make_key("A-002"))
    with closing(SQLiteStore(path)) as store:
        store.commit([first])
        happens(log_of(path))
        for act in (lambda: store.commit([second]), lambda: store.load([first.key])):
            with pytest.raises(
                StoreForeign,
                match=r"genlock\.db-wal, the log of the store, was deleted, moved or replaced",
            ):
                act()
    with closing(SQLiteStore(path)) as store:
        assert [*store.load([first.key, second.key]).records] == [first.key]
        store.commit([second])


def test_what_was_committed_is_lost_with_who_is_killed_after_his_log_was_deleted(
    tmp_path: Path,
) -> None:
    """Why he must be told: until he is, he goes on committing what nobody will ever see."""
    path = tmp_path / "genlock.db"
    program = f"""if True:
        import os, signal
        from pathlib import Path
        from genlock.stores.sqlite import SQLiteStore
        from genlock.testing.sample import make_change, make_key
        store = SQLiteStore({str(path)!r})
        store.commit([make_change(make_key("A-001"))])
        Path({str(log_of(path))!r}).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert (
        subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    )
    with closing(SQLiteStore(path)) as store:
        assert store.load([make_key("A-001")]).records == {}


def test_a_connection_that_is_opened_anew_may_have_another_log(tmp_path: Path) -> None:
    path = tmp_path / "genlock.db"
    first = make_change(make_key("A-001"))
    with closing(SQLiteStore(path)) as store:
        store.commit([first])
        writer = store._writer
        assert writer is not None
        os.link(
            log_of(path), tmp_path / "kept"
        )  # so that the next one cannot be the same by chance
        writer.db.close()
        assert not log_of(path).exists()
        writer.db = writer._connect()
        store.commit([make_change(first.key, first)])
        assert not log_of(path).samefile(tmp_path / "kept")
        assert [*store.load([first.key]).records] == [first.key]
