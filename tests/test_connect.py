"""Opening a coordinator: which store is found, which are refused and how, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import apsw
import pytest

import genlock
import genlock.aio
from genlock.engine.processes import identify
from genlock.errors import BadArgument, Closed, StoreError, StoreForeign, StoreMissing
from genlock.stores.memory import MemoryStore
from genlock.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's own environment says does not count."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "GENLOCK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


def git(folder: Path, *arguments: str) -> None:
    identity = [
        "-c",
        "user.name=nobody",
        "-c",
        "user.email=nobody@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def mark(name: str) -> None:
    """Leaves a task in whatever store is found from here, made if there is none."""
    with genlock.connect(create=True) as fleet:
        fleet.add_tasks(tasks=[name])


def marks() -> set[str]:
    """The tasks in whatever store is found from here."""
    with genlock.connect() as fleet:
        return {line.task.id for line in fleet.ready()}


# Which store


def _connect(url: str | None) -> None:
    genlock.connect(url)


def _connect_in_a_loop(url: str | None) -> None:
    async def connect() -> None:
        genlock.aio.connect(url)

    asyncio.run(connect())


def _open_store(url: str | None) -> None:
    genlock.open_store(url)


@pytest.mark.parametrize("opening", [_connect, _connect_in_a_loop, _open_store])
@pytest.mark.parametrize("repository", [True, False])
def test_opening_in_the_wrong_folder_makes_nothing_and_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opening: Callable[[str | None], None],
    repository: bool,
) -> None:
    if repository:
        git(tmp_path, "init")
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    before = sorted(tmp_path.rglob("*"))
    looked_in = tmp_path if repository else tmp_path / "src"
    with pytest.raises(StoreMissing) as raised:
        opening(None)
    assert (
        str(raised.value)
        == f"there is no store at {looked_in}/.genlock/genlock.db; to make one, type: genlock init"
    )
    with pytest.raises(StoreMissing) as raised:
        opening(f"sqlite://{tmp_path}/a/other.db")
    assert str(raised.value) == (
        f"there is no store at {tmp_path}/a/other.db; to make one, type: genlock init --url "
        f"sqlite://{tmp_path}/a/other.db"
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("opening", [_connect, _connect_in_a_loop, _open_store])
def test_an_empty_file_is_no_store(tmp_path: Path, opening: Callable[[str | None], None]) -> None:
    (tmp_path / "genlock.db").touch()
    with pytest.raises(StoreMissing) as raised:
        opening(f"sqlite://{tmp_path}/genlock.db")
    assert str(raised.value) == (
        f"there is no store in {tmp_path}/genlock.db, which is an empty file; to make one, type: "
        f"genlock init --url sqlite://{tmp_path}/genlock.db"
    )
    assert (tmp_path / "genlock.db").stat().st_size == 0
    assert [path.name for path in tmp_path.iterdir()] == ["genlock.db"]


def test_a_store_in_memory_is_always_new() -> None:
    with genlock.connect("memory://") as fleet, genlock.connect("memory://", create=True) as other:
        fleet.add_tasks(tasks=["task"])
        assert other.ready() == ()


def test_without_a_repository_the_store_is_made_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mark("here")
    assert (tmp_path / ".genlock" / "genlock.db").is_file()


def test_the_store_is_found_from_a_subfolder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    mark("above")
    monkeypatch.chdir(below)
    mark("below")
    assert marks() == {"above", "below"}
    assert not (below / ".genlock").exists()


def test_all_worktrees_of_a_repository_have_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, worktree = tmp_path / "repository", tmp_path / "elsewhere"
    (repository / "src").mkdir(parents=True)
    git(repository, "init")
    git(repository, "commit", "--allow-empty", "--message", "first")
    git(repository, "worktree", "add", "--detach", str(worktree))
    (worktree / "src").mkdir()
    for number, folder in enumerate((worktree / "src", repository / "src", worktree, repository)):
        monkeypatch.chdir(folder)
        mark(f"from-{number}")
    assert marks() == {"from-0", "from-1", "from-2", "from-3"}
    assert [file.parent.parent for file in tmp_path.rglob("genlock.db")] == [repository]


def test_the_environment_may_name_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENLOCK_URL", f"sqlite://{tmp_path}/named.db")
    mark("named")
    assert (tmp_path / "named.db").is_file()
    assert not (tmp_path / ".genlock").exists()
    with genlock.connect(f"sqlite://{tmp_path}/other.db", create=True) as fleet:
        assert fleet.ready() == (), "what is passed counts more than the environment"


def test_a_name_with_blanks_and_percents_is_taken_as_written(tmp_path: Path) -> None:
    with genlock.connect(f"sqlite://{tmp_path}/a%20b%25.db", create=True) as fleet:
        fleet.add_tasks(tasks=["task"])
    assert (tmp_path / "a b%.db").is_file()


@pytest.mark.parametrize("name", ["[a", "[a]", "[::1]", "a\tb", "a\nb", "a[1]"])
def test_a_files_name_may_have_brackets_and_tabs_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    genlock.connect(f"sqlite://{name}/genlock.db", create=True).close()
    genlock.connect(f"sqlite://{name}.db", create=True).close()
    assert (tmp_path / name / "genlock.db").is_file()
    assert (tmp_path / f"{name}.db").is_file()


def test_a_store_is_one_store_by_whichever_link_it_is_named(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/disk/genlock.db"
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "disk" / "genlock.db")
    large = {"text": "x" * 2_000_000}
    with (
        genlock.connect(f"sqlite://{link}", create=True, session_id="s", agent_id="a") as by_link,
        genlock.connect(url, create=True, session_id="t") as fleet,
    ):
        by_link.add_tasks(tasks=["task"])
        by_link.claim_task(task_id="task")
        by_link.submit_result(task_id="task", generation=1, result_data=large)
        assert fleet.read_result(task_id="task") == large
    assert sorted(file.name for file in tmp_path.iterdir()) == ["disk", "link.db"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    with genlock.connect(f"sqlite://{tmp_path}/a/b/c.db", create=True) as fleet:
        fleet.add_tasks(tasks=["task"])
    assert (tmp_path / "a" / "b" / "c.db").is_file()


# Whose process


def test_the_session_is_the_process_that_connects(tmp_path: Path) -> None:
    with genlock.connect(
        f"sqlite://{tmp_path}/genlock.db", create=True, session_id="s1", agent_id="alice"
    ) as fleet:
        fleet.add_tasks(tasks=["task"])
        fleet.claim_task(task_id="task")
        (session,) = fleet.list_sessions()
        assert (session.pid, session.process_gone) == (os.getpid(), False)


def test_a_connection_may_speak_for_another_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            with genlock.connect(
                f"sqlite://{tmp_path}/genlock.db",
                create=True,
                session_id="s1",
                agent_id="alice",
                process=identify(other.pid),
            ) as fleet:
                fleet.add_tasks(tasks=["task"])
                fleet.claim_task(task_id="task")
                assert fleet.list_sessions()[0].pid == other.pid
                assert (
                    fleet.claim_task(task_id="task", session_id="s2").reason
                    == "DENIED_ACTIVE_CLAIM"
                )
                other.kill()
                other.wait()
                assert fleet.claim_task(task_id="task", session_id="s2").success
        finally:
            other.kill()


def test_a_process_that_is_not_known_is_never_known_to_be_gone(tmp_path: Path) -> None:
    with genlock.connect(
        f"sqlite://{tmp_path}/genlock.db",
        create=True,
        session_id="s1",
        agent_id="alice",
        process=None,
    ) as fleet:
        fleet.add_tasks(tasks=["task"])
        fleet.claim_task(task_id="task")
        (session,) = fleet.list_sessions()
        assert (session.pid, session.process_gone) == (None, False)


def test_a_forked_child_still_speaks_for_the_process_that_was_named(tmp_path: Path) -> None:
    program = f"""
import os
import genlock
from genlock.engine.processes import identify

fleet = genlock.connect("sqlite://{tmp_path}/genlock.db", create=True, session_id="s1", agent_id="alice", process=identify(os.getppid()))
fleet.add_tasks(tasks=["task"])
if os.fork() == 0:
    fleet.claim_task(task_id="task")
    fleet.close()
    os._exit(0)
os.wait()
print(fleet.list_sessions()[0].pid == os.getppid())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("process", [5, "me", True])
def test_a_process_that_is_none_is_refused(process: object) -> None:
    with pytest.raises(BadArgument, match="process"):
        genlock.connect("memory://", process=process)  # type: ignore[arg-type]


# What is refused


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "URL"),
        ("genlock.db", f"for a file write sqlite://{quote(os.getcwd())}/genlock.db"),
        (
            "my plans/genlock.db",
            f"for a file write sqlite://{quote(os.getcwd())}/my%20plans/genlock.db",
        ),
        (":memory:", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("redis://[::1", "no Redis URL"),
        ("redis://localhost?payloads=s3://[::1", "payloads=s3://[::1: there is no such place"),
        ("dynamodb://[::1", "names no table"),
        ("/tmp/genlock.db", "sqlite:///tmp/genlock.db"),
        ("sqlite", "no URL"),
        ("sqlite:/tmp/x.db", "no URL"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///tmp/", "names no file"),
        ("sqlite:///tmp/x.db?mode=ro", "names no file"),
        ("sqlite:///tmp/x.db#here", "names no file"),
        ("sqlite:///tmp/a%00b.db", "NUL"),
        ("sqlite:///tmp/\ud800.db", "no file's name has"),
        ("ftp://somewhere/x", "ftp://"),
        ("://x", "there is no store"),
        ("SQLITE:///tmp/x.db", "SQLITE://"),
    ],
)
def test_a_wrong_url_is_refused_and_the_message_helps(url: str, says: str) -> None:
    with pytest.raises(BadArgument) as raised:
        genlock.connect(url, create=True)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    "url", [5, True, b"memory://", ["memory://"], 1.5, object()], ids=lambda url: type(url).__name__
)
def test_a_url_that_is_no_text_is_refused(url: object) -> None:
    with pytest.raises(BadArgument, match="URL"):
        genlock.connect(url, create=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [0, -1, 65, 1.0, "4", True, None])
def test_a_wrong_number_of_lanes_is_refused(lanes: object) -> None:
    with pytest.raises(BadArgument, match="lanes is a whole number from 1 to 64"):
        genlock.connect("memory://", lanes=lanes)  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", ["nonsense", "", None, 5, ["local"]])
def test_an_unknown_profile_is_refused(profile: object) -> None:
    with pytest.raises(BadArgument, match="profile"):
        genlock.connect("memory://", profile=profile)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1, float("nan"), True, "5", None, [5]])
def test_a_wrong_deadline_is_refused(seconds: object) -> None:
    with pytest.raises(BadArgument, match="deadline_seconds"):
        genlock.connect("memory://", deadline_seconds=seconds)  # type: ignore[arg-type]


def test_a_folder_is_not_taken_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreForeign, match="folder"):
        genlock.connect(f"sqlite://{tmp_path}/folder.db", create=True)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n" * 1000)
    with pytest.raises(StoreForeign, match=r"notes\.txt"):
        genlock.connect(f"sqlite://{file}", create=True)
    assert file.read_text() == "my notes\n" * 1000


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    other = apsw.Connection(str(file))
    other.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
    other.close()
    before = file.read_bytes()
    with pytest.raises(StoreForeign, match="another program"):
        genlock.connect(f"sqlite://{file}", create=True)
    assert file.read_bytes() == before


def test_a_store_of_a_newer_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "genlock.db"
    with genlock.connect(f"sqlite://{file}", create=True) as fleet:
        fleet.add_tasks(tasks=["task"])
    db = apsw.Connection(str(file))
    db.execute("PRAGMA user_version = 99; INSERT INTO migration VALUES (99, 'better', 0, '7.8.9')")
    db.close()
    before = file.read_bytes()
    with pytest.raises(StoreForeign, match=r"format 99.*install genlock 7\.8\.9 or later"):
        genlock.connect(f"sqlite://{file}", create=True)
    assert file.read_bytes() == before


def test_a_record_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "genlock.db"
    with genlock.connect(
        f"sqlite://{file}", create=True, session_id="s1", agent_id="alice"
    ) as fleet:
        fleet.add_tasks(tasks=["task", "other"])
        db = apsw.Connection(str(file))
        db.execute(
            "UPDATE record SET body = CAST(('2' || substr(CAST(body AS TEXT), 2)) AS BLOB) WHERE "
            "name = 'task' AND kind = 'task'"
        )
        db.close()
        with pytest.raises(StoreForeign, match="format 2"):
            fleet.get_task_state(task_id="task")
        with pytest.raises(StoreForeign, match="format 2"):
            fleet.claim_task(task_id="task")
        assert fleet.claim_task(task_id="other").success, "one bad record has stopped the others"


@pytest.mark.parametrize("place", ["header", "schema", "middle", "end"])
def test_a_damaged_file_gives_a_clear_error_and_never_a_wrong_answer(
    tmp_path: Path, place: str
) -> None:
    file = tmp_path / "genlock.db"
    tasks = [f"task-{number:03}" for number in range(300)]
    with genlock.connect(f"sqlite://{file}", create=True) as fleet:
        fleet.add_tasks(tasks=tasks)
    content = bytearray(file.read_bytes())
    start = {"header": 0, "schema": 100, "middle": len(content) // 2, "end": len(content) - 4096}[
        place
    ]
    content[start : start + 2048] = b"\xa5" * 2048
    file.write_bytes(content)

    def read_all() -> None:
        with genlock.connect(
            f"sqlite://{file}", create=True, session_id="s1", agent_id="alice"
        ) as fleet:
            for task in tasks:
                assert fleet.get_task_state(task_id=task).task.id == task
            events = [
                event for event in fleet.read_events(limit=1000).events if event.kind == "task"
            ]
            assert [event.id for event in events] == tasks
            assert {line.task.id for line in fleet.ready(limit=1000)} == set(tasks)

    with pytest.raises(StoreError, match=re.escape(str(file))):
        read_all()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "genlock.db").touch()
    with genlock.connect(f"sqlite://{tmp_path}/genlock.db", create=True) as fleet:
        assert len(fleet.add_tasks(tasks=["task"])) == 1


# Only for reading

READER = """
import os, sys
import genlock
from genlock.errors import StoreReadOnly

url, warm_up = sys.argv[1:]
with genlock.connect(warm_up, create=True) as fleet:  # so that all is imported before we may not read it any more
    fleet.add_tasks(tasks=["task"])
    fleet.claim_task(task_id="task", session_id="s1", agent_id="alice")
    fleet.submit_result(task_id="task", generation=1, session_id="s1")
    fleet.get_task_state(task_id="task")
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
with genlock.connect(url, create=True, session_id="s1", agent_id="alice") as fleet:
    assert fleet.get_task_state(task_id="task").state == "PENDING"
    assert [line.task.id for line in fleet.ready()] == ["task"]
    assert fleet.ready(tracks="A") == ()
    assert fleet.explain(task_id="task").ready
    assert len(fleet.read_events().events) > 1
    for call in (
        lambda: fleet.claim_task(task_id="task"),
        lambda: fleet.add_tasks(tasks=["more"]),
        lambda: fleet.next_id(),
        lambda: fleet.submit_result(task_id="task", generation=1, result_data="x" * 100_000),
    ):
        try:
            call()
        except StoreReadOnly as error:
            assert "genlock.db" in str(error), error
        else:
            raise AssertionError("it was written")
    assert fleet.get_task_state(task_id="task").generation == 0
print("read")
"""


@pytest.fixture
def folder_for_all() -> Iterator[Path]:
    """A folder that another user can reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="genlock-read-only-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_that_may_only_be_read_opens_for_reading(
    folder_for_all: Path, tmp_path: Path
) -> None:
    with genlock.connect(f"sqlite://{folder_for_all}/genlock.db", create=True) as fleet:
        fleet.add_tasks(tasks=["task"])
    (folder_for_all / "genlock.db").chmod(0o444)
    folder_for_all.chmod(0o555)
    before = sorted(file.name for file in folder_for_all.iterdir())
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            READER,
            f"sqlite://{folder_for_all}/genlock.db",
            f"sqlite://{tmp_path}/warm-up.db",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "read\n", done.stderr
    assert sorted(file.name for file in folder_for_all.iterdir()) == before


# Several, and the end


def test_two_coordinators_of_one_process_share_a_file(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/genlock.db"
    with (
        genlock.connect(url, create=True, session_id="s1", agent_id="alice") as first,
        genlock.connect(url, create=True, session_id="s2", agent_id="bob") as second,
    ):
        first.add_tasks(tasks=["task"])
        assert first.claim_task(task_id="task").success
        answer = second.claim_task(task_id="task")
        assert (answer.reason, answer.current_holder) == ("DENIED_ACTIVE_CLAIM", "alice")
        first.release_claim(task_id="task", expected_generation=1)
        claim = second.claim_task(task_id="task").claim
        assert claim is not None
        assert claim.generation == 2
        first.close()
        assert second.submit_result(task_id="task", generation=2).accepted, (
            "one's end is not the other's"
        )


def test_a_waiting_caller_is_woken_by_another_coordinator_of_the_process(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/genlock.db"
    with (
        genlock.connect(url, create=True, session_id="s1", agent_id="alice") as first,
        genlock.connect(url, create=True, session_id="s2", agent_id="bob") as second,
    ):
        first.add_tasks(tasks=[{"id": "a"}, {"id": "b", "depends_on": ["a"]}])
        first.claim_task(task_id="a")
        answers: list[str | None] = []
        waiter = threading.Thread(
            target=lambda: answers.append(second.claim_next(wait_seconds=30).task_id), daemon=True
        )
        waiter.start()
        first.submit_result(task_id="a", generation=1)
        waiter.join(30)
        assert answers == ["b"]


def test_each_memory_url_is_a_store_of_its_own_and_a_store_can_be_handed_over() -> None:
    with genlock.connect("memory://") as first, genlock.connect("memory://") as second:
        first.add_tasks(tasks=["task"])
        assert second.ready() == ()
    store = MemoryStore(clock=ManualClock())
    with genlock.connect(store) as fleet:
        fleet.add_tasks(tasks=["task"])
        assert fleet.engine.store is store


def test_after_the_end_every_call_says_so(tmp_path: Path) -> None:
    with genlock.connect(
        f"sqlite://{tmp_path}/genlock.db", create=True, session_id="s1", agent_id="alice"
    ) as fleet:
        fleet.add_tasks(tasks=["task"])
    for call in (
        lambda: fleet.claim_task(task_id="task"),
        lambda: fleet.get_task_state(task_id="task"),
        lambda: fleet.claim_next(wait_seconds=10),
        lambda: fleet.read_events(),
        lambda: next(fleet.watch()),
    ):
        with pytest.raises(Closed):
            call()
    fleet.close()


def test_closing_answers_those_who_still_wait(tmp_path: Path) -> None:
    fleet = genlock.connect(
        f"sqlite://{tmp_path}/genlock.db", create=True, session_id="s1", agent_id="alice"
    )
    fleet.add_tasks(tasks=["task"])
    fleet.claim_task(task_id="task")
    errors: list[BaseException] = []
    began = threading.Event()

    def wait() -> None:
        began.set()
        try:
            fleet.claim_next(wait_seconds=60)
        except Closed as error:
            errors.append(error)

    waiters = [threading.Thread(target=wait, daemon=True) for _ in range(5)]
    for waiter in waiters:
        waiter.start()
    assert began.wait(30)
    fleet.close()
    for waiter in waiters:
        waiter.join(30)
        assert not waiter.is_alive()
    assert len(errors) == 5


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/genlock.db"
    with genlock.connect(url, create=True, session_id="s1", agent_id="alice") as fleet:
        fleet.add_tasks(tasks=["task"])
        fleet.claim_task(task_id="task")
        fleet.submit_result(task_id="task", generation=1, result_data={"a": 1})
        before = fleet.get_task_state(task_id="task"), fleet.read_events(limit=1000)
    with genlock.connect(url, create=True) as fleet:
        assert (fleet.get_task_state(task_id="task"), fleet.read_events(limit=1000)) == before


def test_a_program_that_never_closes_ends_all_the_same(tmp_path: Path) -> None:
    program = f"""
import genlock
fleet = genlock.connect("sqlite://{tmp_path}/genlock.db", create=True, session_id="s1", agent_id="alice", monitor=True)
fleet.add_tasks(tasks=["task"])
assert fleet.claim_task(task_id="task").success
assert not fleet.claim_task(task_id="task", session_id="s2").success
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    with genlock.connect(f"sqlite://{tmp_path}/genlock.db", create=True) as fleet:
        kinds = [event.event_type for event in fleet.read_events(limit=1000).events]
        assert "CLAIM_DENIED" in kinds, "what was not written yet is written at the end"
