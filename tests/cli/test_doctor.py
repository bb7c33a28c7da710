"""The doctor, by the real command: it names what is wrong, says what to type, and changes nothing
unless told to."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import genlock
from genlock.core import events as e
from genlock.testing.clock import ManualClock
from tests.cli.console import Ran, environment, run
from tests.cli.terminal import shown
from tests.engine.gated_store import Home, writing

WORKER = Path(__file__).with_name("busy_worker.py")
NOBODY = 65534
CHECKS = [
    *(
        "versions",
        "file",
        "filesystem",
        "log",
        "gate",
        "permissions",
        "users",
        "format",
        "structure",
        "replay",
        "payloads",
    ),
    *("claims", "clock", "reactions", "dependencies", "held", "reviews", "refused"),
]
"""What is looked at in a healthy store, in this order."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def connect(store: Path, **options: Any) -> genlock.Coordinator:
    return genlock.connect(
        f"sqlite://{store}", create=True, **{"session_id": "s1", "agent_id": "ada", **options}
    )


def doctor(store: Path, *options: str, **more: Any) -> Ran:
    return run("doctor", "--url", f"sqlite://{store}", *options, **more)


def found(ran: Ran, check: str) -> dict[str, Any]:
    """The finding of one check."""
    (finding,) = [finding for finding in ran.json()["findings"] if finding["check"] == check]
    return dict(finding)


def not_ok(ran: Ran) -> list[tuple[str, str]]:
    return [
        (finding["check"], finding["level"])
        for finding in ran.json()["findings"]
        if finding["level"] != "ok"
    ]


def sql(store: Path, statement: str) -> None:
    """A change behind Genlock's back."""
    db = apsw.Connection(str(store))
    db.execute(statement)
    db.close()


class TestAHealthyStore:
    def test_every_check_says_ok(self, store: Path) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x", {"id": "A-002-y", "depends_on": ["A-001-x"]}])
        ran = doctor(store)
        assert (ran.code, ran.err) == (0, "")
        answer = ran.json()
        assert [(finding["check"], finding["level"]) for finding in answer["findings"]] == [
            (check, "ok") for check in CHECKS
        ]
        assert list(answer) == ["url", "healthy", "findings", "fixed"]
        assert (answer["url"], answer["healthy"], answer["fixed"]) == (
            f"sqlite://{store}",
            True,
            [],
        )
        assert list(answer["findings"][0]) == [
            "check",
            "level",
            "what",
            "means",
            "try_next",
            "items",
        ]
        assert found(ran, "replay")["what"] == "4 records are what their events amount to"
        assert found(ran, "dependencies")["what"] == "2 tasks, no circle, none missing"

    def test_it_is_not_changed_by_being_looked_at(self, store: Path) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
        before = store.read_bytes()
        assert doctor(store).code == 0
        assert store.read_bytes() == before
        assert not Path(f"{store}-wal").exists() or Path(f"{store}-wal").stat().st_size == 0

    def test_no_alarm_is_raised_while_a_process_works(self, store: Path) -> None:
        command = [sys.executable, str(WORKER), f"sqlite://{store}", "w1"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "at work\n"
            seen = [doctor(store) for _ in range(3)]
            assert worker.poll() is None
            worker.communicate(timeout=60)
        assert [ran.code for ran in seen] == [0, 0, 0], seen[-1].out
        assert (
            found(seen[0], "users")["what"] == f"process {worker.pid} has it open, and maybe others"
        )

    def test_quiet_says_nothing_of_it(self, store: Path) -> None:
        connect(store).close()
        ran = doctor(store, "--quiet")
        assert (ran.code, ran.out, ran.err) == (0, "", "")

    @pytest.mark.parametrize("columns", [80, 40])
    def test_on_a_terminal_it_fits(self, store: Path, columns: int) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
            fleet.hold_task(
                task_id="A-001-x",
                reason="a question that is long enough to need more than one line of a narrow "
                "terminal",
            )
        code, lines = shown(
            "doctor",
            "--url",
            f"sqlite://{store}",
            cwd=store.parent,
            columns=columns,
            env={"NO_COLOR": "1"},
        )
        assert code == 0
        assert f"  type: genlock reopen A-001-x --url sqlite://{store}" in lines, (
            "what is copied is whole"
        )
        assert max(len(line) for line in lines if str(store) not in line) <= columns
        assert lines[-1].strip() == "troubles: 0, notes: 1"
        assert any(line.startswith("note  held") for line in lines)

    def test_on_a_terminal_the_id_of_a_refused_result_stands_in_one_piece(
        self, store: Path
    ) -> None:
        task = "A-001-a-task-whose-name-is-rather-long-as-they-often-are"
        with connect(store) as fleet:
            fleet.add_tasks(tasks=[task])
            refused = fleet.submit_result(
                task_id=task, generation=1, session_id="s", result_data="x"
            ).refused_id
        assert refused is not None
        for columns in (len(refused) + 6, 80, 40):
            _, lines = shown(
                "doctor",
                "--url",
                f"sqlite://{store}",
                cwd=store.parent,
                columns=columns,
                env={"NO_COLOR": "1"},
            )
            assert f"  - {refused}" in lines


class TestWhatIsNoStore:
    def test_an_absent_one_is_not_found_and_nothing_is_made(self, tmp_path: Path) -> None:
        ran = doctor(tmp_path / "none" / "s.db")
        assert (ran.code, ran.out) == (3, "")
        assert ran.error() == {
            "code": "STORE_MISSING",
            "message": (
                f"there is no store at {tmp_path}/none/s.db; to make one, type: genlock "
                f"init --url sqlite://{tmp_path}/none/s.db"
            ),
            "try_next": [["genlock", "init", "--url", f"sqlite://{tmp_path}/none/s.db"]],
        }
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (b"Dear diary", "{} is not an SQLite database: name another file"),
            (b"", "{} is empty: there is nothing to read yet"),
        ],
    )
    def test_any_other_file_is_named(self, store: Path, content: bytes, what: str) -> None:
        store.write_bytes(content)
        ran = doctor(store)
        assert (ran.code, found(ran, "open")["what"]) == (1, what.format(store))
        assert store.read_bytes() == content

    def test_a_database_of_another_program_is_named(self, store: Path) -> None:
        sql(store, "CREATE TABLE mine (a)")
        ran = doctor(store, "--fix")
        assert (ran.code, found(ran, "open")["what"]) == (
            1,
            f"{store} is an SQLite database of another program: name another file",
        )
        assert ran.err == "nothing was fixed: a damaged store is not written to\n"

    def test_a_store_of_a_newer_format_is_named(self, store: Path) -> None:
        connect(store).close()
        sql(store, "PRAGMA user_version = 99")
        ran = doctor(store)
        assert ran.code == 1
        assert f"{store} is of format 99" in found(ran, "open")["what"]

    def test_what_does_not_last_is_noted(self) -> None:
        ran = run("doctor", "--url", "memory://")
        assert (ran.code, not_ok(ran)) == (0, [("durable", "note")])


class TestDamage:
    def test_a_record_that_was_edited_is_named(self, store: Path) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
        sql(store, "UPDATE record SET state = 'COMPLETED' WHERE name = 'A-001-x'")
        ran = doctor(store)
        assert (ran.code, not_ok(ran)) == (1, [("replay", "trouble")])
        assert found(ran, "replay")["items"] == [
            (
                "default/default task A-001-x: index field state is 'COMPLETED', the record says "
                "'PENDING'"
            ),
        ]
        assert found(ran, "replay")["try_next"] == [
            f"genlock backup COPY --url sqlite://{store}, to keep what there is",
            f"genlock restore BACKUP --force --url sqlite://{store}",
        ]

    def test_nothing_is_written_to_a_damaged_store(self, store: Path) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
        sql(store, "UPDATE record SET state = 'COMPLETED' WHERE name = 'A-001-x'")
        before = store.read_bytes()
        ran = doctor(store, "--fix")
        assert (ran.code, ran.json()["fixed"], store.read_bytes() == before) == (1, [], True)
        assert ran.err == "nothing was fixed: a damaged store is not written to\n"

    def test_damaged_pages_are_found_and_the_doctor_survives_them(self, store: Path) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(
                tasks=[{"id": f"task-{number}", "description": "y" * 3000} for number in range(60)]
            )
        data = bytearray(store.read_bytes())
        for page in range(4, len(data) // 4096, 3):
            data[page * 4096 : page * 4096 + 200] = bytes(200)
        store.write_bytes(data)
        ran = doctor(store)
        assert ran.code == 1
        assert ran.json()["healthy"] is False
        assert {check for check, level in not_ok(ran) if level == "trouble"} & {
            "structure",
            "open",
            "replay",
            "records",
        }

    def test_a_missing_payload_is_named(self, store: Path) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
            fleet.claim_task(task_id="A-001-x")
            fleet.submit_result(task_id="A-001-x", generation=1, result_data={"text": "x" * 40_000})
        shutil.rmtree(f"{store}.payloads")
        ran = doctor(store)
        assert (ran.code, not_ok(ran), found(ran, "payloads")["what"]) == (
            1,
            [("payloads", "trouble")],
            "1 payload is missing",
        )

    def test_payloads_that_nothing_refers_to_are_named_and_others_are_not(
        self, store: Path
    ) -> None:
        """One is the task's result, one counted before a reset, one is a refused result's, and one
        is left over."""
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
            for generation, letter in ((1, "x"), (2, "y")):
                assert fleet.claim_task(task_id="A-001-x").claim is not None
                assert fleet.submit_result(
                    task_id="A-001-x", generation=generation, result_data={"text": letter * 40_000}
                ).accepted
                if generation == 1:
                    fleet.reset_task(task_id="A-001-x")
            assert fleet.submit_result(
                task_id="A-001-x", generation=1, result_data={"text": "z" * 40_000}
            ).kept
        assert len(list(Path(f"{store}.payloads").glob("??/*"))) == 3
        assert not_ok(doctor(store)) == [("refused", "note")]

        left = Path(f"{store}.payloads/ab/{'c' * 62}")
        left.parent.mkdir(exist_ok=True)
        left.write_bytes(b"left over")
        ran = doctor(store)

        assert (ran.code, not_ok(ran)) == (0, [("unused payloads", "note"), ("refused", "note")])
        told = found(ran, "unused payloads")
        assert (told["what"], told["items"]) == ("1 payload that nothing refers to", [str(left)])
        again = f"genlock doctor --url sqlite://{store}"
        assert told["try_next"] == [
            "end whatever works on the store",
            again,
            "remove the files that are still named",
        ]
        assert doctor(store, "--fix").code == 0
        assert left.read_bytes() == b"left over", "nothing is ever removed"

    def test_payloads_whose_bytes_are_not_what_was_submitted_are_named_and_left_as_they_are(
        self, store: Path
    ) -> None:
        tasks = [f"A-00{number}-x" for number in range(1, 5)]
        with connect(store) as fleet:
            fleet.add_tasks(tasks=tasks)
            for task in tasks:
                fleet.claim_task(task_id=task)
                fleet.submit_result(task_id=task, generation=1, result_data={"text": task * 10_000})
        files = {
            file.read_bytes()[9:16].decode(): file
            for file in Path(f"{store}.payloads").glob("??/*")
        }
        cut, changed, gone, whole = (files[task] for task in tasks)
        cut.write_bytes(cut.read_bytes()[:-1])
        changed.write_bytes(changed.read_bytes()[:-1] + b"!")
        gone.unlink()
        before = cut.read_bytes(), changed.read_bytes(), whole.read_bytes()
        ran = doctor(store)
        assert (ran.code, not_ok(ran)) == (1, [("payloads", "trouble")])
        told = found(ran, "payloads")
        assert told["what"] == "1 payload is missing, 2 payloads are damaged"
        assert [re.sub("[0-9a-f]{64}", "…", item) for item in told["items"]] == [
            "default/default A-001-x: its payload … is not what was submitted",
            "default/default A-002-x: its payload … is not what was submitted",
            "default/default A-003-x: its payload … is missing",
        ]
        assert (cut.read_bytes(), changed.read_bytes(), whole.read_bytes()) == before
        checked = run("db", "check", "--url", f"sqlite://{store}")
        assert (checked.code, len(checked.json()["faults"])) == (1, 3)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody(open_place: Path, tmp_path: Path) -> Callable[[], Ran]:
    """`doctor` of a user who may not write in that folder."""
    warm = tmp_path / "warm.db"
    with connect(warm) as other:
        other.add_tasks(tasks=["A-001-x"])
    program = f"""if True:
        import contextlib, io, os, sys
        from genlock.cli.group import run
        # What is imported on the way may lie where nobody may read: so once as whoever we are, on another store.
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            run(["doctor", "--json", "--url", sys.argv[1]])
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid({NOBODY})
            os.setuid({NOBODY})
        sys.exit(run(["doctor", "--json", "--url", sys.argv[2]]))
    """

    def ask() -> Ran:
        open_place.chmod(0o555)
        command = [
            sys.executable,
            "-c",
            program,
            f"sqlite://{warm}",
            f"sqlite://{open_place / 's.db'}",
        ]
        env = environment({"HOME": "/", "XDG_CONFIG_HOME": "/nowhere"})
        ended = subprocess.run(
            command, capture_output=True, text=True, env=env, cwd="/", check=False
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return ask


def test_a_folder_that_cannot_be_written_is_a_note(
    open_place: Path, as_nobody: Callable[[], Ran]
) -> None:
    with connect(open_place / "s.db") as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
    (open_place / "s.db").chmod(0o444)
    ran = as_nobody()
    assert ran.code == 0, ran.err
    assert (not_ok(ran), found(ran, "replay")["level"]) == (
        [("file", "note"), ("permissions", "note")],
        "ok",
    )


def test_a_store_that_may_not_be_read_is_said_to_be_so_and_not_to_be_locked(
    open_place: Path, as_nobody: Callable[[], Ran]
) -> None:
    store = open_place / "s.db"
    connect(store).close()
    store.chmod(0)
    ran = as_nobody()
    trouble = found(ran, "open")
    assert (ran.code, trouble["what"]) == (
        1,
        f"{store} cannot be opened: this user may not read it",
    )
    assert trouble["try_next"] == [f"ls -l {store}"]


def test_a_process_that_was_stopped_inside_the_gate_is_named_with_what_to_type(store: Path) -> None:
    with connect(store, clock=ManualClock(datetime(2020, 1, 1, tzinfo=UTC))) as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
        fleet.claim_task(task_id="A-001-x")
    program = f"""if True:
        import os, signal
        from pathlib import Path
        from genlock.stores.sqlite.write_lock import WriteLock
        WriteLock(Path("{store}.gate"), 5).pass_through(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    """
    with subprocess.Popen([sys.executable, "-c", program]) as inside:
        try:
            os.waitid(os.P_PID, inside.pid, os.WSTOPPED | os.WNOWAIT)
            ran = doctor(store)
            fixing = doctor(store, "--fix")
        finally:
            inside.send_signal(signal.SIGCONT)
    gate = found(ran, "gate")
    assert (ran.code, not_ok(ran)) == (1, [("gate", "trouble"), ("overdue", "note")])
    assert gate["what"] == f"process {inside.pid} is inside, and stopped"
    assert gate["try_next"] == [f"kill -CONT {inside.pid}", f"or end it: kill {inside.pid}"]
    # What can be fixed needs the gate.
    assert (fixing.code, not_ok(fixing), fixing.json()["fixed"]) == (
        1,
        [("gate", "trouble"), ("overdue", "note")],
        [],
    )
    assert fixing.err == "nothing was fixed: nobody can write before the gate is free\n"
    assert doctor(store).code == 0


def test_a_store_that_another_process_keeps_for_itself_is_named(store: Path) -> None:
    connect(store).close()
    program = f"""if True:
        import apsw, sys
        db = apsw.Connection({str(store)!r})
        db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        db.execute("BEGIN EXCLUSIVE")
        print("locked", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        ran = doctor(store)
        other.communicate()
    assert (ran.code, "is locked by another process" in found(ran, "open")["what"]) == (1, True)
    assert found(ran, "users")["what"] == f"process {other.pid} has it open, and maybe others"


class TestClaims:
    def test_a_holder_that_was_killed_is_an_orphan_and_fix_says_so_in_the_history(
        self, store: Path
    ) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
        program = f"""if True:
            import genlock, os
            fleet = genlock.connect("sqlite://{store}", create=True, session_id="s2", agent_id="bob")
            fleet.register_session()
            fleet.claim_task(task_id="A-001-x")
            os.kill(os.getpid(), 9)
        """
        subprocess.run([sys.executable, "-c", program], check=False)
        ran = doctor(store)
        assert (ran.code, not_ok(ran)) == (0, [("orphans", "note")])
        assert found(ran, "orphans")["items"] == [
            "A-001-x: bob (session s2) at generation 1, process gone"
        ]
        fixed = doctor(store, "--fix")
        assert (fixed.code, not_ok(fixed)) == (0, [])
        assert fixed.json()["fixed"][0] == "swept default/default: 1 claims orphaned"
        with connect(store) as fleet:
            assert fleet.get_claim_history(task_id="A-001-x")[0].release_reason == "ORPHANED"

    def test_a_lease_that_is_over_is_a_note(self, store: Path) -> None:
        with connect(store, clock=ManualClock(datetime(2020, 1, 1, tzinfo=UTC))) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
            fleet.claim_task(task_id="A-001-x")
        ran = doctor(store)
        assert (ran.code, not_ok(ran)) == (0, [("overdue", "note")])
        assert found(ran, "overdue")["items"] == [
            "A-001-x: ada (session s1) at generation 1, lease over"
        ]
        assert (
            doctor(store, "--fix").json()["fixed"][0] == "swept default/default: 1 claims expired"
        )

    def test_events_from_the_future_are_trouble(self, store: Path) -> None:
        with connect(store, clock=ManualClock(datetime.now(UTC) + timedelta(days=400))) as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
            fleet.claim_task(task_id="A-001-x")
        ran = doctor(store)
        assert (ran.code, not_ok(ran)) == (1, [("clock", "trouble")])
        assert found(ran, "clock")["items"] == [
            "A-001-x: ada (session s1) at generation 1, clock stepped"
        ]


class TestPlans:
    def test_a_completion_whose_dependents_never_heard_of_it_is_found_and_fixed(
        self, store: Path
    ) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x", {"id": "A-002-y", "depends_on": ["A-001-x"]}])
            fleet.claim_task(task_id="A-001-x")
        program = f"""if True:
            import genlock
            fleet = genlock.connect("sqlite://{store}", create=True, session_id="s1", agent_id="ada")
            fleet.submit_result(task_id="A-001-x", generation=1, result_data=[1])
        """
        env = {**os.environ, "GENLOCK_FAILPOINT": "sqlite.commit.after_commit"}
        assert (
            subprocess.run([sys.executable, "-c", program], env=env, check=False).returncode
            == -signal.SIGKILL
        )
        ran = doctor(store)
        assert (ran.code, not_ok(ran)) == (1, [("reactions", "trouble")])
        assert found(ran, "reactions")["items"] == ["A-002-y waits for A-001-x, which is completed"]
        fixed = doctor(store, "--fix")
        assert (fixed.code, not_ok(fixed)) == (0, [])
        assert (
            fixed.json()["fixed"][0]
            == "swept default/default: 1 events from reactions that were cut off"
        )
        with connect(store) as fleet:
            assert fleet.get_task_state(task_id="A-002-y").state == "PENDING"

    def test_a_circle_of_dependencies_is_shown_as_a_path(self, tmp_path: Path) -> None:
        home = Home("sqlite", tmp_path)
        try:
            gated = home.gated()
            fleet, rival = home.connect(gated), home.connect()
            fleet.add_tasks(tasks=["A", "B", "C", "D"])
            rival.edit_task(task_id="B", changes={"depends_on": ["C"]})
            gated.on(
                "commit",
                when=writing(e.TaskEdited, "A"),
                before=lambda: rival.edit_task(task_id="C", changes={"depends_on": ["A"]}),
            )
            fleet.edit_task(task_id="A", changes={"depends_on": ["B", "D"]})
        finally:
            home.close()
        ran = doctor(home.path)
        assert (ran.code, not_ok(ran)) == (1, [("cycles", "trouble")])
        assert found(ran, "cycles")["items"] == ["A → B → C → A"]
        # What it says to type opens the circle.
        (command,) = found(ran, "cycles")["try_next"]
        assert command == f"genlock edit A --depends-on D --url sqlite://{home.path}"
        assert run(*command.split()[1:]).code == 0
        assert doctor(home.path).code == 0

    def test_what_waits_for_a_person_is_a_note(self, store: Path) -> None:
        with connect(store) as fleet:
            fleet.add_tasks(tasks=["A-001-x", "A-002-y"])
            fleet.hold_task(task_id="A-001-x", reason="a question")
            fleet.claim_task(task_id="A-002-y")
            late = fleet.submit_result(task_id="A-002-y", generation=7, result_data={"by": "ada"})
            fleet.release_claim(task_id="A-002-y", expected_generation=1)
        ran = doctor(store)
        assert (ran.code, not_ok(ran)) == (0, [("held", "note"), ("refused", "note")])
        assert found(ran, "held")["items"] == ["A-001-x: a question"]
        assert found(ran, "held")["try_next"] == [f"genlock reopen A-001-x --url sqlite://{store}"]
        assert run("doctor", env={"GENLOCK_URL": f"sqlite://{store}"}).json()["findings"][-3][
            "try_next"
        ] == ["genlock reopen A-001-x"]
        assert found(ran, "refused")["items"] == [late.refused_id]

    def test_other_projects_are_looked_at_too_and_named(self, store: Path) -> None:
        with connect(store, tenant_id="acme", project_id="apollo") as fleet:
            fleet.add_tasks(tasks=["A-001-x"])
            fleet.hold_task(task_id="A-001-x", reason="a question")
            late = fleet.submit_result(task_id="A-001-x", generation=7, result_data={"by": "ada"})
        ran = run("doctor", env={"GENLOCK_URL": f"sqlite://{store}"})
        held, refused = found(ran, "held"), found(ran, "refused")
        assert held["items"] == ["acme/apollo A-001-x: a question"]
        assert held["try_next"] == ["genlock reopen A-001-x --tenant acme --project apollo"]
        assert refused["items"] == [f"acme/apollo {late.refused_id}"]
        assert refused["try_next"][0] == "genlock refused --tenant acme --project apollo"


def test_fix_removes_no_file_and_no_lock(store: Path) -> None:
    with connect(store) as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
    Path(f"{store}.before-epoch-1").write_text("an older one")
    before = {file.name for file in store.parent.iterdir()}
    assert doctor(store, "--fix").code == 0
    assert before <= {file.name for file in store.parent.iterdir()}


def test_fix_empties_the_log_that_a_killed_process_left(store: Path) -> None:
    program = (
        f"import genlock, os\nf = genlock.connect('sqlite://{store}', "
        "create=True)\nf.add_tasks(tasks=['x'])\nos.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    log = Path(f"{store}-wal")
    size = log.stat().st_size
    assert size > 0
    ran = doctor(store)
    assert (ran.code, found(ran, "log")["what"], log.stat().st_size) == (
        0,
        f"{size:,} bytes in the write-ahead log",
        size,
    )
    assert doctor(store, "--fix").code == 0
    assert not log.exists() or log.stat().st_size == 0
