"""Export, backup and restore, by the real command on real files."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import genlock
from genlock.engine.replay_check import check
from genlock.engine.scan import missing_payloads
from genlock.errors import CursorLost
from genlock.store import EventQuery, Query
from genlock.stores.sqlite import SQLiteStore
from genlock.stores.sqlite import backup as copying
from genlock.transfer import backup as keeping
from tests.cli.console import COMMAND, environment, run

WORKER = Path(__file__).with_name("busy_worker.py")
LARGE = "x" * 40_000


def url_of(file: Path) -> str:
    return f"sqlite://{file}"


def faults_of(file: Path) -> list[str]:
    """What the replay check says of a store, and which payloads it lacks."""
    store = SQLiteStore(file, instant=True)
    try:
        faults = [f"{fault.where}: {fault.what}" for fault in check(store)]
        return faults + [f"{key.id} lacks {digest}" for key, digest in missing_payloads(store)]
    finally:
        store.close()


def history_of(file: Path) -> list[tuple[int, str]]:
    """Every event of the usual project: its position and digest."""
    store, cursor, found = SQLiteStore(file, instant=True), None, []
    try:
        while True:
            page = store.read_events(EventQuery("default", "default", after=cursor))
            found += [(event.position, event.digest.hex()) for event in page.events]
            if not page.more:
                return found
            cursor = page.cursor
    finally:
        store.close()


def state_of(file: Path) -> tuple[int, list[str]]:
    """The epoch, and the tasks that there are."""
    store = SQLiteStore(file, instant=True)
    try:
        return store.load([]).epoch, [
            stored.key.id for stored in store.find(Query("default", "default")).records
        ]
    finally:
        store.close()


def everything_in(folder: Path) -> list[str]:
    """The names in a folder, and in those that are in it."""
    return [file.name for file in sorted(folder.rglob("*"))]


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a finished task, whose result is a payload, and one at work."""
    file = tmp_path / "s.db"
    with genlock.connect(url_of(file), create=True, session_id="s1", agent_id="ada") as fleet:
        fleet.add_tasks(tasks=["A-001-old", {"id": "A-002-next", "depends_on": ["A-001-old"]}])
        fleet.claim_task(task_id="A-001-old")
        fleet.submit_result(task_id="A-001-old", generation=1, result_data={"text": LARGE})
        fleet.claim_task(task_id="A-002-next")
    return file


@contextmanager
def holding(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the store open and does nothing."""
    program = f"""if True:
        import genlock, sys
        with genlock.connect({url_of(file)!r}, create=True):
            # One handle more, closed again, must not make us forget the first.
            genlock.connect({url_of(file)!r}, create=True).close()
            print("open", flush=True)
            sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


class TestBackup:
    def test_it_is_a_store_like_the_one_it_was_made_of(self, store: Path, tmp_path: Path) -> None:
        made = run("backup", tmp_path / "b.db", "--url", url_of(store))
        assert made.code == 0, made.err
        assert made.json() == {
            "source": str(store),
            "target": str(tmp_path / "b.db"),
            "bytes": (tmp_path / "b.db").stat().st_size,
            "epoch": 0,
            "payloads": 1,
            "missing_payloads": [],
        }
        assert history_of(tmp_path / "b.db") == history_of(store)
        assert faults_of(tmp_path / "b.db") == []
        with genlock.connect(url_of(tmp_path / "b.db"), create=True) as copy:
            assert copy.read_result(task_id="A-001-old") == {"text": LARGE}

    def test_a_store_is_copied_with_its_payloads_by_whichever_link_it_is_named(
        self, store: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "link.db").symlink_to(store)
        by_name = run("backup", tmp_path / "a.db", "--url", url_of(store)).json()
        by_link = run("backup", tmp_path / "b.db", "--url", url_of(tmp_path / "link.db"))
        assert (by_link.code, by_link.json()["payloads"], by_link.json()["missing_payloads"]) == (
            0,
            by_name["payloads"],
            [],
        )

    def test_reading_it_leaves_nothing_beside_it(self, store: Path, tmp_path: Path) -> None:
        folder = tmp_path / "kept"
        folder.mkdir()
        run("backup", folder / "b.db", "--url", url_of(store))
        assert run("export", "--url", url_of(folder / "b.db")).code == 0
        assert names_in(folder) == ["b.db", "b.db.payloads"]

    def test_it_may_be_used_as_a_store_and_then_has_a_log(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        with genlock.connect(
            url_of(tmp_path / "b.db"), create=True, session_id="s2", agent_id="bob"
        ) as copy:
            copy.add_tasks(tasks=["B-001-more"])
            assert (tmp_path / "b.db-wal").stat().st_size > 0
        assert faults_of(tmp_path / "b.db") == []

    def test_what_exists_is_replaced_only_by_force(self, store: Path, tmp_path: Path) -> None:
        (tmp_path / "b.db").write_text("precious")
        refused = run("backup", tmp_path / "b.db", "--url", url_of(store))
        assert (refused.code, refused.error()["message"]) == (
            4,
            f"{tmp_path}/b.db exists; --force replaces it",
        )
        assert (tmp_path / "b.db").read_text() == "precious"
        assert run("backup", tmp_path / "b.db", "--force", "--url", url_of(store)).code == 0
        assert faults_of(tmp_path / "b.db") == []

    def test_a_store_in_use_is_not_replaced_even_by_force(
        self, store: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.db"
        with holding(other):
            refused = run("backup", other, "--force", "--url", url_of(store))
        assert (refused.code, refused.error()["message"]) == (
            4,
            f"{other} is in use as a store, which a backup never replaces; name another file",
        )

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            (
                "folder",
                (
                    "{0}/folder is a folder; name a file in it, for example "
                    "{0}/folder/genlock-backup.db"
                ),
            ),
            ("nowhere/b.db", "there is no folder {0}/nowhere; make it, or name another"),
            ("s.db", "{0}/s.db is the store itself; name another file"),
        ],
    )
    def test_a_bad_place_is_refused_and_nothing_is_written(
        self, store: Path, tmp_path: Path, target: str, message: str
    ) -> None:
        (tmp_path / "folder").mkdir()
        before = names_in(tmp_path)
        refused = run("backup", tmp_path / target, "--force", "--url", url_of(store))
        assert (refused.code, refused.error()["message"]) == (2, message.format(tmp_path))
        assert names_in(tmp_path) == before

    def test_without_a_store_there_is_nothing_to_copy_and_nothing_is_made(
        self, tmp_path: Path
    ) -> None:
        refused = run("backup", tmp_path / "b.db", "--url", url_of(tmp_path / "no.db"))
        assert (refused.code, refused.error()["code"]) == (3, "STORE_MISSING")
        assert names_in(tmp_path) == []

    def test_what_is_no_file_is_left_to_its_own_tools(self, tmp_path: Path) -> None:
        refused = run("backup", tmp_path / "b.db", "--url", "memory://")
        assert (refused.code, refused.error()["message"]) == (
            2,
            "only an SQLite store is a file; for memory:// use the server's own tools",
        )

    def test_a_payload_that_was_lost_before_is_named_and_the_rest_is_copied(
        self, store: Path, tmp_path: Path
    ) -> None:
        (payload,) = (tmp_path / "s.db.payloads").glob("??/*")
        payload.unlink()
        made = run("backup", tmp_path / "b.db", "--url", url_of(store))
        digest = hashlib.sha256(
            json.dumps({"text": LARGE}, separators=(",", ":")).encode()
        ).hexdigest()
        assert (made.code, made.json()["missing_payloads"]) == (
            0,
            [f"default/default A-001-old {digest}"],
        )
        assert "the bytes of a result are not there" in made.err

    @pytest.mark.parametrize(
        "place",
        ["sqlite.backup.step", "sqlite.backup.copied", "backup.between", "backup.before_name"],
    )
    def test_one_that_is_killed_leaves_what_had_the_name(
        self, store: Path, tmp_path: Path, place: str
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        before = (tmp_path / "b.db").read_bytes()
        with genlock.connect(url_of(store), create=True) as fleet:
            fleet.add_tasks(tasks=["B-001-since"])
        killed = run(
            "backup",
            tmp_path / "b.db",
            "--force",
            "--url",
            url_of(store),
            env={"GENLOCK_FAILPOINT": place},
        )
        assert killed.code == -signal.SIGKILL
        assert (tmp_path / "b.db").read_bytes() == before
        assert run("backup", tmp_path / "b.db", "--force", "--url", url_of(store)).code == 0
        assert history_of(tmp_path / "b.db") == history_of(store)

    @pytest.mark.parametrize(
        "place",
        [
            "sqlite.backup.payloads",
            "sqlite.backup.step",
            "sqlite.backup.copied",
            "backup.between",
            "backup.before_name",
        ],
    )
    def test_what_one_that_is_killed_leaves_is_removed_by_the_next(
        self, store: Path, tmp_path: Path, place: str
    ) -> None:
        folder = tmp_path / "kept"
        folder.mkdir()
        killed = run(
            "backup", folder / "b.db", "--url", url_of(store), env={"GENLOCK_FAILPOINT": place}
        )
        assert (killed.code, everything_in(folder) != []) == (-signal.SIGKILL, True)
        made = run("backup", folder / "b.db", "--url", url_of(store))
        assert (made.code, made.json()["payloads"]) == (0, 1)
        (payload,) = (tmp_path / "s.db.payloads").glob("??/*")
        assert everything_in(folder) == ["b.db", "b.db.payloads", payload.parent.name, payload.name]


def test_a_payload_that_is_discarded_between_the_copy_and_the_payloads_is_not_missed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str | None] = []

    def copy_file(source: Path, target: Path, progress: object) -> None:
        """The first copy is made when a refused result has just come in, and it is discarded before
        anyone can copy its bytes."""
        with genlock.connect(url_of(store), create=True, session_id="s1", agent_id="ada") as fleet:
            late = (
                None
                if copied
                else fleet.submit_result(
                    task_id="A-002-next", generation=7, result_data={"late": LARGE}
                ).refused_id
            )
            copying.copy_file(source, target)
            copied.append(late)
            if late is not None:
                fleet.discard_result(task_id="A-002-next", refused_id=late)

    monkeypatch.setattr(keeping, "copy_file", copy_file)
    made = keeping.backup(store, tmp_path / "b.db")
    assert (made.missing_payloads, len(copied), copied[1]) == ((), 2, None)
    assert faults_of(tmp_path / "b.db") == []


def test_ten_backups_taken_while_four_processes_work_are_each_whole_and_a_beginning_of_the_history(
    tmp_path: Path,
) -> None:
    store = tmp_path / "s.db"
    with genlock.connect(url_of(store), create=True):
        pass
    command = [sys.executable, str(WORKER), url_of(store)]
    workers = [
        subprocess.Popen(
            [*command, f"w{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "at work\n"
        copies = [tmp_path / f"b{number}.db" for number in range(10)]
        for copy in copies:
            made = run("backup", copy, "--url", url_of(store))
            assert (made.code, made.json()["missing_payloads"]) == (0, []), made.err
        assert [worker.poll() for worker in workers] == [None] * 4
    finally:
        for worker in workers:
            worker.communicate(timeout=60)
    assert [worker.returncode for worker in workers] == [0] * 4
    whole = history_of(store)
    lengths = []
    for copy in copies:
        assert faults_of(copy) == []
        history = history_of(copy)
        assert history == whole[: len(history)]
        lengths.append(len(history))
    # Each has more than the one before: the workers were at work all the time.
    assert lengths == sorted(set(lengths))
    assert lengths[-1] < len(whole)


class TestRestore:
    def test_the_store_is_as_it_was_and_generations_go_on_above_all_that_were_granted(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        with genlock.connect(url_of(store), create=True, session_id="s2", agent_id="bob") as fleet:
            fleet.add_tasks(tasks=["B-001-since"])
            cursor = fleet.read_events(tail=True).cursor
        put = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        assert put.code == 0, put.err
        epoch = put.json()["epoch"]
        assert epoch > 444_000_000, (
            "made of the time, so that two restores of a backup never begin the same one"
        )
        assert put.json() == {
            "source": str(tmp_path / "b.db"),
            "target": str(store),
            "epoch": epoch,
            "kept_aside": f"{store}.before-epoch-{epoch}",
            "records": 5,
            "missing_payloads": [],
        }
        assert state_of(store) == (epoch, ["A-001-old", "A-002-next"])
        assert state_of(Path(f"{store}.before-epoch-{epoch}")) == (
            0,
            ["A-001-old", "A-002-next", "B-001-since"],
        )
        assert [faults_of(store), faults_of(Path(f"{store}.before-epoch-{epoch}"))] == [[], []]
        with genlock.connect(url_of(store), create=True, session_id="s2", agent_id="bob") as fleet:
            with pytest.raises(CursorLost):
                fleet.read_events(after=cursor)
            fleet.force_release(task_id="A-002-next", take_over=True)
            claim = fleet.claim_task(task_id="A-002-next").claim
            assert claim is not None
            assert claim.generation == epoch * 1_000_000 + 1
            late = fleet.submit_result(
                task_id="A-002-next", generation=1, session_id="s1", result_data={"from": "before"}
            )
            assert late.reason == "STALE_GENERATION"
            assert fleet.read_result(task_id="A-001-old") == {"text": LARGE}

    def test_ids_that_were_given_out_after_the_backup_are_not_given_out_again(
        self, store: Path, tmp_path: Path
    ) -> None:
        with genlock.connect(url_of(store), create=True, session_id="s2") as fleet:
            assert fleet.next_id(count=2) == ("0001", "0002")
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        with genlock.connect(url_of(store), create=True, session_id="s2") as fleet:
            assert (fleet.next_id(), fleet.next_id(parent="A-001-old")) == ("0003", "A-001-old::1")
        assert run("restore", tmp_path / "b.db", "--force", "--url", url_of(store)).code == 0
        with genlock.connect(url_of(store), create=True, session_id="s2") as fleet:
            assert [fleet.next_id(), fleet.next_id()] == ["1003", "1004"]
            assert fleet.next_id(parent="A-001-old") == "A-001-old::1001"
        assert faults_of(store) == []

    def test_where_there_is_no_store_it_makes_one_without_force(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        target = tmp_path / "new" / "genlock.db"
        put = run("restore", tmp_path / "b.db", "--url", url_of(target))
        assert (put.code, put.json()["kept_aside"]) == (0, None)
        assert state_of(target) == (put.json()["epoch"], ["A-001-old", "A-002-next"])
        assert faults_of(target) == []

    def test_a_store_that_is_there_is_replaced_only_by_force(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        refused = run("restore", tmp_path / "b.db", "--url", url_of(store))
        message = (
            f"there is a store at {store}; --force puts the backup in its place and keeps "
            "what was there beside it"
        )
        assert (refused.code, refused.error()["message"]) == (4, message)
        assert state_of(store)[0] == 0

    @pytest.mark.parametrize("stopped", [False, True], ids=["idle", "stopped"])
    def test_it_is_refused_while_a_process_has_the_store_open(
        self, store: Path, tmp_path: Path, stopped: bool
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        before = [name for name in names_in(tmp_path) if not name.endswith(("-wal", "-shm"))]
        with holding(store) as process:
            if stopped:
                process.send_signal(signal.SIGSTOP)
            refused = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        message = (
            f"process {process.pid} has {store} open: end it, and whatever else works on "
            "this store, then restore again"
        )
        assert refused.code == 4
        assert refused.error() == {"code": "STORE_IN_USE", "message": message, "try_next": []}
        assert state_of(store)[0] == 0
        assert [
            name for name in names_in(tmp_path) if not name.endswith(("-wal", "-shm"))
        ] == before

    def test_whoever_opens_the_store_meanwhile_waits_and_finds_the_new_one(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        with genlock.connect(url_of(store), create=True) as fleet:
            fleet.add_tasks(tasks=["B-001-since"])
        opening = f"""if True:
            import genlock
            print("opening", flush=True)
            with genlock.connect({url_of(store)!r}, create=True) as fleet:
                print(fleet.batch_get_states(task_ids=["A-001-old", "B-001-since"]).keys(), flush=True)
        """
        program = f"""if True:
            import subprocess, sys
            from genlock.cli.main import main
            from genlock.transfer import restore
            honest = restore.overwrite
            def watched(db, staged):
                global other
                other = subprocess.Popen([sys.executable, "-c", {opening!r}], stdout=subprocess.PIPE, text=True)
                assert other.stdout.readline() == "opening\\n"
                honest(db, staged)
            restore.overwrite = watched
            restore.restore(restore.Path("{tmp_path}/b.db"), restore.Path("{store}"), force=True)
            print(other.communicate()[0], end="")
        """
        ended = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        assert (ended.stdout, ended.stderr) == ("dict_keys(['A-001-old'])\n", "")
        assert faults_of(store) == []

    def test_a_backup_that_was_tampered_with_is_refused_and_nothing_is_changed(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        with apsw.Connection(str(tmp_path / "b.db")) as db:
            db.execute(
                "UPDATE record SET body = CAST(replace(body, 'ada', 'eve') AS BLOB) WHERE name = "
                "'A-002-next'"
            )
        db.close()
        refused = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        assert refused.code == 1
        assert (
            refused.error()["message"].splitlines()[0]
            == f"{tmp_path}/b.db is not whole, and nothing was changed; restore another one:"
        )
        assert "default/default task A-002-next" in refused.error()["message"]
        assert state_of(store)[0] == 0
        assert not list(tmp_path.glob("*restoring*"))

    def test_a_backup_without_a_payload_is_refused(self, store: Path, tmp_path: Path) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        (payload,) = (tmp_path / "b.db.payloads").glob("??/*")
        payload.unlink()
        refused = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        assert (refused.code, refused.error()["message"].endswith("is missing")) == (1, True)

    def test_a_backup_whose_payload_is_damaged_is_refused_and_restored_without_it_only_by_the_word(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        damage_payloads(tmp_path / "b.db")
        call = ["restore", tmp_path / "b.db", "--url", url_of(tmp_path / "new.db")]
        refused = run(*call)
        assert (refused.code, refused.error()["code"], (tmp_path / "new.db").exists()) == (
            1,
            "STORE_CORRUPT",
            False,
        )
        assert (
            "by --incomplete this one without them:\n  default/default task A-001-old: its payload"
            in refused.error()["message"]
        )
        assert refused.error()["message"].endswith("is not what was submitted")
        done = run(*call, "--incomplete")
        assert (
            done.code,
            [name.rpartition(" ")[0] for name in done.json()["missing_payloads"]],
        ) == (0, ["default/default A-001-old"])
        assert "the bytes of a result are not beside the backup, or damaged" in done.err
        assert state_of(tmp_path / "new.db") == (done.json()["epoch"], ["A-001-old", "A-002-next"])

    def test_a_payload_that_was_damaged_in_the_store_is_the_backup_s_again(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        damage_payloads(store)
        done = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        assert (done.code, done.json()["missing_payloads"]) == (0, [])
        with genlock.connect(url_of(store), create=True) as fleet:
            assert fleet.read_result(task_id="A-001-old") == {"text": LARGE}

    def test_what_the_backup_lacks_and_the_store_has_is_not_lost(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        damage_payloads(tmp_path / "b.db")
        done = run("restore", tmp_path / "b.db", "--force", "--incomplete", "--url", url_of(store))
        assert (done.code, done.json()["missing_payloads"]) == (0, [])
        with genlock.connect(url_of(store), create=True) as fleet:
            assert fleet.read_result(task_id="A-001-old") == {"text": LARGE}

    @pytest.mark.parametrize(
        ("content", "code", "error"),
        [(None, 3, "NOT_FOUND"), (b"some text", 1, "STORE_FOREIGN"), (b"", 1, "STORE_UNAVAILABLE")],
    )
    def test_what_is_no_backup_is_refused(
        self, store: Path, tmp_path: Path, content: bytes | None, code: int, error: str
    ) -> None:
        if content is not None:
            (tmp_path / "b.db").write_bytes(content)
        refused = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        assert (refused.code, refused.error()["code"]) == (code, error)
        assert state_of(store)[0] == 0

    def test_a_damaged_store_is_replaced_too_and_kept_as_it_was(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        damaged = b"damaged" + store.read_bytes()[7:]
        store.write_bytes(damaged)
        put = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        assert put.code == 0, put.err
        epoch = put.json()["epoch"]
        assert Path(put.json()["kept_aside"]).read_bytes() == damaged
        assert state_of(store) == (epoch, ["A-001-old", "A-002-next"])
        # The same again: the number cannot be read from the store, and must rise all the same.
        store.write_bytes(damaged)
        assert (
            run("restore", tmp_path / "b.db", "--force", "--url", url_of(store)).json()["epoch"]
            > epoch
        )

    def test_a_database_of_another_program_is_never_replaced(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        other = tmp_path / "other.db"
        db = apsw.Connection(str(other))
        db.execute("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)")
        db.close()
        refused = run("restore", tmp_path / "b.db", "--force", "--url", url_of(other))
        message = f"{other} is an SQLite database of another program: name another file"
        assert (refused.code, refused.error()["message"]) == (4, message)

    def test_a_log_that_belongs_to_nobody_does_not_get_into_the_new_store(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        leave_a_log(store)
        store.unlink()
        put = run("restore", tmp_path / "b.db", "--url", url_of(store))
        assert put.code == 0, put.err
        assert state_of(store) == (put.json()["epoch"], ["A-001-old", "A-002-next"])
        assert faults_of(store) == []

    def test_what_was_only_in_the_log_of_the_old_store_is_kept_aside_with_it(
        self, store: Path, tmp_path: Path
    ) -> None:
        run("backup", tmp_path / "b.db", "--url", url_of(store))
        leave_a_log(store)
        put = run("restore", tmp_path / "b.db", "--force", "--url", url_of(store))
        assert put.code == 0, put.err
        assert state_of(Path(put.json()["kept_aside"])) == (
            0,
            ["A-001-old", "A-002-next", "in-the-log"],
        )
        assert state_of(store) == (put.json()["epoch"], ["A-001-old", "A-002-next"])


def leave_a_log(store: Path) -> None:
    """A process writes one more task and is killed: the task is in the log alone."""
    program = (
        "import genlock, os\nf = "
        f"genlock.connect({url_of(store)!r})\nf.add_tasks(tasks=['in-the-log'])\nos.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert Path(f"{store}-wal").stat().st_size > 0


class TestARestoreThatIsKilled:
    """At every step the old store is there, whole, or the new one."""

    @pytest.fixture(scope="class")
    @classmethod
    def large(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A store and a backup of so many pages that writing them takes several steps."""
        folder = tmp_path_factory.mktemp("large")
        with genlock.connect(
            url_of(folder / "s.db"), create=True, session_id="s1", agent_id="ada"
        ) as fleet:
            fleet.add_tasks(
                tasks=[
                    {"id": f"task-{number}", "description": "y" * 14_000} for number in range(200)
                ]
            )
            fleet.claim_task(task_id="task-1")
            fleet.submit_result(task_id="task-1", generation=1, result_data={"text": LARGE})
        assert run("backup", folder / "b.db", "--url", url_of(folder / "s.db")).code == 0
        with genlock.connect(url_of(folder / "s.db"), create=True) as fleet:
            fleet.add_tasks(tasks=["since"])
        return folder

    @pytest.mark.parametrize(
        ("place", "new"),
        [
            ("sqlite.backup.step:1", False),  # while the backup is copied beside the store
            ("restore.staged", False),
            ("restore.raised", False),
            ("sqlite.backup.named:2", False),  # the old store has been kept aside
            ("restore.kept_aside", False),
            ("restore.payloads", False),
            ("sqlite.backup.step:{steps}", False),  # in the midst of writing pages into the store
            ("sqlite.restore.committed", True),
            ("restore.closed", True),
        ],
    )
    def test_the_old_store_is_there_or_the_new_one(
        self, large: Path, tmp_path: Path, place: str, new: bool
    ) -> None:
        folder = tmp_path / "it"
        subprocess.run(["cp", "-a", large, folder], check=True)
        store = folder / "s.db"
        place = place.format(steps=2 * steps_of(folder / "b.db", store) + 1)
        killed = run(
            "restore",
            folder / "b.db",
            "--force",
            "--url",
            url_of(store),
            env={"GENLOCK_FAILPOINT": place},
        )
        assert killed.code == -signal.SIGKILL
        epoch, tasks = state_of(store)
        assert (epoch > 0, "since" in tasks) == (new, not new)
        assert faults_of(store) == []
        again = run("restore", folder / "b.db", "--force", "--url", url_of(store))
        assert again.code == 0, again.err
        assert (state_of(store)[0] > epoch, "since" in state_of(store)[1], faults_of(store)) == (
            True,
            False,
            [],
        )
        assert not list(folder.glob("*restoring*"))

    @pytest.mark.parametrize(
        ("place", "there"), [("restore.raised", False), ("restore.named", True)]
    )
    def test_where_there_was_no_store_there_is_none_or_the_new_one(
        self, large: Path, tmp_path: Path, place: str, there: bool
    ) -> None:
        new = tmp_path / "new.db"
        killed = run(
            "restore", large / "b.db", "--url", url_of(new), env={"GENLOCK_FAILPOINT": place}
        )
        assert (killed.code, new.exists()) == (-signal.SIGKILL, there)
        if there:
            assert (state_of(new)[0] > 0, faults_of(new)) == (True, [])
        assert run("restore", large / "b.db", "--force", "--url", url_of(new)).code == 0
        assert faults_of(new) == []

    @pytest.mark.parametrize("place", ["restore.raised", "restore.kept_aside", "restore.named"])
    def test_what_was_damaged_beyond_opening_is_there_or_the_new_one_and_kept_in_any_case(
        self, large: Path, tmp_path: Path, place: str
    ) -> None:
        damaged = tmp_path / "it.db"
        damaged.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
        killed = run(
            "restore",
            large / "b.db",
            "--force",
            "--url",
            url_of(damaged),
            env={"GENLOCK_FAILPOINT": place},
        )
        assert killed.code == -signal.SIGKILL, killed.err
        aside = list(tmp_path.glob("it.db.before-epoch-*"))
        assert any(
            file.read_bytes()[16:20] == b"xxxx" for file in [damaged, *aside] if file.is_file()
        )
        if place == "restore.named":
            assert faults_of(damaged) == []
        assert run("restore", large / "b.db", "--force", "--url", url_of(damaged)).code == 0
        assert (state_of(damaged)[0] >= 1, faults_of(damaged)) == (True, [])


def steps_of(*files: Path) -> int:
    """In how many steps the pages of one of these files are copied; more than one, or nothing could
    happen in between."""
    (steps,) = {-(-file.stat().st_size // 4096 // 1000) for file in files}
    assert steps > 1
    return steps


@pytest.mark.parametrize(
    ("arguments", "interrupted"),
    [
        (["backup", "{0}/kept.db"], "genlock.transfer.backup.missing_payloads"),
        (["backup", "{0}/kept.db"], "genlock.stores.sqlite.backup._sync"),
        (["restore", "{0}/b.db", "--force"], "genlock.transfer.restore.check"),
        (["restore", "{0}/b.db", "--force"], "genlock.transfer.restore.overwrite"),
        (["export", "{0}/all.jsonl"], "genlock.transfer.export._payload"),
    ],
)
def test_ctrl_c_in_the_middle_leaves_nothing_half_done(
    store: Path, tmp_path: Path, arguments: list[str], interrupted: str
) -> None:
    run("backup", tmp_path / "b.db", "--url", url_of(store))
    before = [name for name in names_in(tmp_path) if not name.endswith(("-wal", "-shm"))]
    module, _, name = interrupted.rpartition(".")
    program = f"""if True:
        import os, signal, {module} as module
        from genlock.cli.main import main
        module.{name} = lambda *args, **options: os.kill(os.getpid(), signal.SIGINT)
        main({[argument.format(tmp_path) for argument in arguments]!r} + ["--url", {url_of(store)!r}])
    """
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "genlock: broken off\n")
    assert (state_of(store)[0], faults_of(store)) == (0, [])
    left = set(names_in(tmp_path)) - set(before)
    # Payloads never change and are known by their content: one copy more of one does no harm.
    assert {
        name
        for name in left
        if not name.endswith(("-wal", "-shm", ".payloads"))
        and not name.startswith("s.db.before-epoch-")
    } == set()


def damage_payloads(store: Path) -> None:
    """As a disk may do, or who fills it up."""
    for file in Path(f"{store}.payloads").glob("[0-9a-f][0-9a-f]/*"):
        file.write_bytes(file.read_bytes()[:-1])


def test_a_result_whose_bytes_were_damaged_is_named_by_a_backup_and_by_a_copy_and_not_brought_there(
    store: Path, tmp_path: Path
) -> None:
    damage_payloads(store)
    made = run("backup", tmp_path / "b.db", "--url", url_of(store))
    copied = run("copy", url_of(store), url_of(tmp_path / "c.db"))
    for ran in (made, copied):
        assert ran.code == 0, ran.err
        assert [name.rpartition(" ")[0] for name in ran.json()["missing_payloads"]] == [
            "default/default A-001-old"
        ]
        assert "not there, or damaged" in ran.err
    assert not list(Path(f"{tmp_path / 'c.db'}.payloads").glob("[0-9a-f][0-9a-f]/*"))


class TestExport:
    def test_every_record_and_event_is_a_line_in_a_stable_order(self, store: Path) -> None:
        ran = run("export", "--url", url_of(store))
        assert ran.code == 0, ran.err
        lines = [json.loads(line) for line in ran.out.splitlines()]
        assert lines[0] == {
            "type": "store",
            "format": 1,
            "genlock": genlock.__version__,
            "epoch": 0,
        }
        assert lines[-1] == {"type": "end", "records": 5, "events": 9, "payloads": 1}
        assert [(line["kind"], line["id"]) for line in lines if line["type"] == "record"] == [
            ("tenant", "default"),
            ("task", "A-001-old"),
            ("task", "A-002-next"),
            ("session", "s1"),
            ("project", "default"),
        ]
        events = [line for line in lines if line["type"] == "event" and line["tenant"] == "default"]
        assert [line["position"] for line in events] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert run("export", "--url", url_of(store)).out == ran.out

    def test_lines_have_the_documented_shape(self, store: Path) -> None:
        lines = [
            json.loads(line) for line in run("export", "--url", url_of(store)).out.splitlines()
        ]
        task: Any = next(
            line for line in lines if line["type"] == "record" and line["id"] == "A-002-next"
        )
        assert list(task) == [
            "type",
            "tenant",
            "project",
            "kind",
            "id",
            "version",
            "digest",
            "record",
        ]
        assert (task["record"]["state"], task["record"]["claim"]["agent"]) == ("IN_PROGRESS", "ada")
        event: Any = [
            line for line in lines if line["type"] == "event" and line["id"] == "A-002-next"
        ][-1]
        assert list(event) == [
            "type",
            "tenant",
            "project",
            "kind",
            "id",
            "position",
            "version",
            "digest",
            "event",
        ]
        assert (event["event"]["event_type"], event["version"], event["digest"]) == (
            "CLAIM_ACQUIRED",
            task["version"],
            task["digest"],
        )
        payload: Any = next(line for line in lines if line["type"] == "payload")
        assert (payload["task"], payload["data"]) == ("A-001-old", {"text": LARGE})

    @pytest.mark.parametrize("body", [b'1{"a":', b'1{"event":{"a":tru}}', b"1\xff{"])
    @pytest.mark.parametrize("table", ["record", "event"])
    def test_what_is_damaged_is_named_and_never_written_as_it_is(
        self, store: Path, table: str, body: bytes
    ) -> None:
        with closing(apsw.Connection(str(store))) as connection:
            connection.execute(f"UPDATE {table} SET body = ?", (body,))
        ran = run("export", "--url", url_of(store))
        assert (ran.code, ran.error()["code"]) == (1, "STORE_CORRUPT"), ran.err
        assert "is no JSON" in ran.error()["message"]
        for line in ran.out.splitlines():
            json.loads(line)

    def test_a_result_whose_bytes_were_damaged_is_null(self, store: Path) -> None:
        damage_payloads(store)
        lines = [
            json.loads(line) for line in run("export", "--url", url_of(store)).out.splitlines()
        ]
        assert [line["data"] for line in lines if line["type"] == "payload"] == [None]

    def test_to_a_file_it_appears_whole_and_replaces_nothing_unasked(
        self, store: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "all.jsonl"
        ran = run("export", target, "--url", url_of(store))
        assert (ran.code, ran.json()) == (
            0,
            {"target": str(target), "bytes": target.stat().st_size},
        )
        assert target.read_text() == run("export", "--url", url_of(store)).out
        refused = run("export", target, "--url", url_of(store))
        assert (refused.code, refused.error()["message"]) == (
            4,
            f"{target} exists; --force replaces it",
        )
        assert run("export", target, "--force", "--url", url_of(store)).code == 0

    def test_what_one_that_is_killed_leaves_is_removed_by_the_next_to_the_same_place(
        self, store: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / "kept"
        folder.mkdir()
        killed = run(
            "export",
            folder / "all.jsonl",
            "--url",
            url_of(store),
            env={"GENLOCK_FAILPOINT": "export.before_name"},
        )
        (left,) = names_in(folder)
        assert (killed.code, left.partition("-unfinished-")[0]) == (
            -signal.SIGKILL,
            "all.jsonl.genlock",
        )
        assert run("export", folder / "other.jsonl", "--url", url_of(store)).code == 0
        assert names_in(folder) == [left, "other.jsonl"]
        assert run("export", folder / "all.jsonl", "--url", url_of(store)).code == 0
        assert names_in(folder) == ["all.jsonl", "other.jsonl"]

    def test_a_database_is_never_replaced_not_even_by_force(
        self, store: Path, tmp_path: Path
    ) -> None:
        before = run("export", "--url", url_of(store)).out
        assert run("backup", tmp_path / "b.db", "--url", url_of(store)).code == 0
        for target in (store, tmp_path / "b.db"):
            refused = run("export", target, "--force", "--url", url_of(store))
            assert (refused.code, refused.error()["message"]) == (
                4,
                f"{target} is a database, which an export never replaces; name another file",
            )
        assert run("export", "--url", url_of(store)).out == before

    def test_a_place_where_no_file_can_be_is_refused(self, store: Path, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for verb in ("export", "backup"):
            refused = run(verb, tmp_path / "pipe", "--force", "--url", url_of(store))
            assert refused.code == 2
            assert refused.error()["message"] == (
                f"{tmp_path}/pipe is no ordinary file, and would be replaced by one; name another"
            )
        refused = run("export", tmp_path / "nowhere" / "all.jsonl", "--url", url_of(store))
        assert (refused.code, refused.error()["message"]) == (
            2,
            f"there is no folder {tmp_path}/nowhere; make it, or name another",
        )

    def test_it_is_of_one_instant_while_a_process_works(self, tmp_path: Path) -> None:
        store = tmp_path / "s.db"
        command = [sys.executable, str(WORKER), url_of(store), "w1"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "at work\n"
            lines = [
                json.loads(line) for line in run("export", "--url", url_of(store)).out.splitlines()
            ]
            assert worker.poll() is None
            worker.communicate(timeout=60)
        last = {
            (line["kind"], line["id"]): line["digest"] for line in lines if line["type"] == "event"
        }
        assert {
            (line["kind"], line["id"]): line["digest"] for line in lines if line["type"] == "record"
        } == last

    def test_a_reader_that_leaves_early_is_no_disaster(self, store: Path) -> None:
        command = [*COMMAND, "export", "--url", url_of(store)]
        with genlock.connect(url_of(store), create=True) as fleet:
            fleet.add_tasks(
                tasks=[{"id": f"task-{number}", "description": "y" * 5000} for number in range(100)]
            )
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        ) as exporting:
            assert exporting.stdout is not None
            assert exporting.stderr is not None
            exporting.stdout.readline()
            exporting.stdout.close()
            assert exporting.stderr.read() == b""
        assert exporting.returncode == 141

    def test_without_a_store_nothing_is_made(self, tmp_path: Path) -> None:
        refused = run("export", tmp_path / "all.jsonl", "--url", url_of(tmp_path / "no.db"))
        assert (refused.code, refused.error()["code"], names_in(tmp_path)) == (
            3,
            "STORE_MISSING",
            [],
        )
