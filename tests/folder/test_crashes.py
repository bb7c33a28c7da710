"""A folder store after a crash: kills at every write, torn journals, full disks, read-only
folders."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from genlock.engine.replay_check import check
from genlock.errors import (
    BadArgument,
    Closed,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
)
from genlock.store import Committed, Conflict
from genlock.stores.folder import open_folder
from genlock.stores.folder.entries import MARK
from genlock.testing.contract_base import commit
from genlock.testing.sample import facts_of, make_change, make_key, read_feed, recorded_of
from tests.folder.journals import filled, journal_of, opened
from tests.folder.workspace import Workspace, granted, kinds_of, ready, state_of, submitted

CLAIM = """if True:
    import sys, genlock
    fleet = genlock.connect(sys.argv[1], create=True, session_id="killed", agent_id="killed")
    print("claims", flush=True)
    claim = fleet.claim_task(task_id="task").claim
    print("claimed", flush=True)
    fleet.submit_result(task_id="task", generation=claim.generation, result_data={"x": 1})
    print("submitted", flush=True)
"""


def run_until_killed(workspace: Workspace, failpoint: str) -> list[str]:
    """Claims and submits `task` in another process, and gives what it said before it was killed."""
    done = subprocess.run(
        [sys.executable, "-c", CLAIM, workspace.url],
        env={
            **os.environ,
            "GENLOCK_FAILPOINT": failpoint,
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, (failpoint, done.returncode, done.stdout)
    return done.stdout.split()


# The journal entries of the child: the new task, the claim with its session, the result. Each
# failpoint is counted over all of them.
CLAIM_KILLED = {
    "journal.intended:1": "PENDING",
    "journal.reserved:2": "PENDING",
    "journal.piece:2": "IN_PROGRESS",
    "journal.written:2": "IN_PROGRESS",
    "journal.synced:2": "IN_PROGRESS",
    "journal.committed:2": "IN_PROGRESS",
    "journal.projected:2": "IN_PROGRESS",
}


@pytest.mark.parametrize("failpoint", CLAIM_KILLED)
def test_claim_that_is_killed_at_any_write_is_made_or_not_made(
    workspace: Workspace, failpoint: str
) -> None:
    workspace.add("task", x_mine="kept")
    said = run_until_killed(workspace, failpoint)
    assert said == ["claims"], said
    fleet = workspace.connect()
    ready(fleet)  # whoever comes next repairs
    fleet.add_tasks(tasks=["another"])
    state = CLAIM_KILLED[failpoint]
    lock, values = workspace.lock_of("task"), workspace.values("task")
    assert values["x_mine"] == "kept"
    if state == "PENDING":
        assert (lock, values["state"]) == (None, "todo")
    else:
        assert lock is not None
        assert (lock["worker"], values["state"], values["assigned_to"]) == (
            "killed",
            "active",
            "killed",
        )
    # The process is gone, so whoever comes next has the task; and nothing looks like an edit.
    generation = granted(fleet, "task")
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    events = [event.event_type for event in fleet.read_events(limit=1000).events]
    assert "EXTERNAL_CHANGE" not in events
    assert check(fleet.engine.store) == []


@pytest.mark.parametrize("failpoint", ["journal.synced:3", "journal.projected:3"])
def test_result_that_is_killed_behind_its_journal_entry_is_in_the_file(
    workspace: Workspace, failpoint: str
) -> None:
    workspace.add("task")
    assert run_until_killed(workspace, failpoint) == ["claims", "claimed"]
    fleet = workspace.connect()
    assert state_of(fleet, "task") == "COMPLETED"
    fleet.add_tasks(tasks=["another"])
    assert workspace.values("task")["state"] == "done"
    assert workspace.lock_of("task") is None
    assert "EXTERNAL_CHANGE" not in [
        event.event_type for event in fleet.read_events(limit=1000).events
    ]


def test_lock_of_a_killed_claim_is_foreign_once_another_tool_has_refreshed_it(
    workspace: Workspace,
) -> None:
    workspace.add("task")
    run_until_killed(workspace, "journal.reserved:2")
    workspace.lock("task", "killed")  # gptodo lock -w killed: the same worker, another time
    denied = workspace.connect().claim_task(task_id="task")
    assert (denied.reason, denied.current_holder) == ("DENIED_ACTIVE_CLAIM", "killed")


# Torn journals


def test_torn_tail_is_cut_off_at_any_byte(tmp_path: Path) -> None:
    changes = filled(tmp_path)
    path, dice = journal_of(tmp_path), random.Random(3)
    whole = path.read_bytes()
    starts = [at for at in range(len(whole)) if whole.startswith(MARK, at)]
    for _ in range(200):
        cut = dice.randrange(starts[1], len(whole))
        kept = sum(start <= cut for start in starts[1:]) - 1
        kept += cut == len(whole)
        torn = whole[:cut]
        if dice.random() < 0.3:
            torn += bytes(dice.randrange(1, 400))  # the length was written, and not the data
        path.write_bytes(torn)
        store = opened(tmp_path)
        assert facts_of(read_feed(store)) == recorded_of(changes[:kept])
        late = make_change(make_key("late"))
        commit(store, late)
        assert facts_of(read_feed(store)) == recorded_of([*changes[:kept], late])
        store.close()


def test_damage_before_a_sound_entry_is_an_error_and_nothing_is_cut_off(tmp_path: Path) -> None:
    filled(tmp_path)
    path = journal_of(tmp_path)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    store = opened(tmp_path)
    with pytest.raises(StoreCorrupt, match="damaged at byte"):
        store.load([])
    with pytest.raises(StoreCorrupt):
        store.commit([make_change(make_key("late"))])
    store.close()
    assert path.read_bytes() == bytes(whole)


def test_journal_that_was_put_back_to_an_older_copy_is_noticed(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    older = journal_of(tmp_path).read_bytes()
    store = opened(tmp_path)
    commit(store, make_change(make_key("late")))
    journal_of(tmp_path).write_bytes(older)
    with pytest.raises(StoreCorrupt, match="older copy"):
        store.load([])
    store.close()


# Disks


def test_full_disk_is_named_and_nothing_is_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    ready(fleet)
    pwrite = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if data.startswith(MARK):
            pwrite(fd, data[: len(data) // 2], at)
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFull, match="no room left"):
        fleet.claim_task(task_id="task")
    assert (workspace.lock_of("task"), workspace.values("task")["state"]) == (None, "todo")
    monkeypatch.setattr(os, "pwrite", pwrite)
    assert granted(fleet, "task") > 0


def test_file_that_cannot_be_written_now_is_written_later(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    ready(fleet)
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if str(target).endswith(".md"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    generation = granted(fleet, "task")
    assert workspace.values("task")["state"] == "todo"
    assert fleet.renew_lease(task_id="task", generation=generation).success
    assert state_of(fleet, "task") == "IN_PROGRESS"
    monkeypatch.setattr(os, "replace", replace)
    fleet.add_tasks(tasks=["another"])
    assert workspace.values("task")["state"] == "active"
    assert submitted(fleet, "task", generation) == "ACCEPTED"


def test_sync_that_fails_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    commit(store, make_change(make_key("one")))

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutcomeUnknown):
        store.commit([make_change(make_key("two"))])
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_can_be_read(tmp_path: Path) -> None:
    changes = filled(tmp_path)
    state = journal_of(tmp_path).parent
    for path in state.iterdir():
        path.chmod(0o400 if path.is_file() else 0o500)
    state.chmod(0o500)
    try:
        store = opened(tmp_path)
        assert facts_of(read_feed(store)) == recorded_of(changes)
        with pytest.raises(StoreReadOnly):
            store.commit([make_change(make_key("late"))])
        store.close()
    finally:
        state.chmod(0o700)


# Files


def test_files_are_for_this_user_alone(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    granted(fleet, "task")
    state = workspace.root / "state" / "genlock"
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in state.rglob("*")
        if path.name not in (".gitignore", "task")
    }
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
    assert modes["journal"] == 0o600


@pytest.mark.parametrize("name", ["tasks", "state", "state/locks", "state/genlock"])
def test_folder_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / name).parent.mkdir(parents=True)
    elsewhere.mkdir()
    (root / name).symlink_to(elsewhere)
    with pytest.raises(StoreForeign, match="symbolic link"):
        open_folder(f"folder://{root}?layout=gptodo")
    assert list(elsewhere.iterdir()) == []


def test_task_file_that_is_a_link_is_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("---\nstate: todo\ntitle: secret\n---\n")
    (workspace.tasks / "link.md").symlink_to(secret)
    workspace.add("task")
    assert ready(workspace.connect()) == ["task"]


def test_journal_that_is_a_link_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    path = journal_of(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreForeign):
        opened(tmp_path).load([])


# Without flock


def test_writer_that_was_stopped_cannot_overwrite_what_others_have_written(tmp_path: Path) -> None:
    """Its lock was broken meanwhile: both believe to be alone."""
    one, two = opened(tmp_path, lock="link"), opened(tmp_path, lock="link")
    first = make_change(make_key())
    commit(one, first)
    two.load([])
    append, others = type(two._journal).append, iter([make_change(make_key(), first, mark="won")])

    def late(self: Any, entry: Any) -> None:
        for change in others:
            (tmp_path / "state" / "genlock" / "lock.link").unlink()
            commit(one, change)
        append(self, entry)

    two._journal.append = late.__get__(two._journal)  # type: ignore[method-assign]
    answers = two.commit([make_change(make_key(), first, mark="lost")])
    assert [type(answer) for answer in answers] == [Conflict]
    assert isinstance(two.commit([make_change(make_key("other"))])[0], Committed)
    assert len(read_feed(one)) == 3
    one.close()
    two.close()


def test_left_over_lock_of_a_dead_process_is_broken(tmp_path: Path) -> None:
    code = """if True:
        import os, signal, sys
        from genlock.stores.folder import open_folder
        store = open_folder(sys.argv[1])
        store.lock._acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    url = f"folder://{tmp_path}?layout=none&lock=link"
    subprocess.run(
        [sys.executable, "-c", code, url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert (tmp_path / "state" / "genlock" / "lock.link").exists()
    store = opened(tmp_path, lock="link")
    commit(store, make_change(make_key()))
    store.close()


# URLs


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("folder://relative", "names no folder"),
        ("folder:///tmp?layout=spoon", "no layout"),
        ("folder:///tmp/no-such-folder", "layout"),
        ("folder:///tmp?layout=none&colour=red", "no option 'colour'"),
        ("folder:///tmp?layout=gptodo&unclaimed_state=red", "unclaimed_state"),
    ],
)
def test_url_that_cannot_be_meant_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        open_folder(url)


def test_journal_that_is_missing_is_not_made_by_accident(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    with pytest.raises(StoreMissing, match="genlock db create"):
        open_folder(f"folder://{tmp_path}", create=False)
    assert list(tmp_path.iterdir()) == [tmp_path / "tasks"]


def test_journal_beside_existing_tasks_begins_in_an_epoch_never_used(workspace: Workspace) -> None:
    workspace.add("task")
    first = workspace.connect()
    generation = granted(first, "task")
    first.close()

    shutil.rmtree(workspace.root / "state")
    workspace.edit("task", state="todo", assigned_to=None)
    second = workspace.connect("s2", "a2")
    assert granted(second, "task") > generation
    with pytest.raises(Closed):
        submitted(first, "task", generation)
    assert submitted(second, "task", generation) == "STALE_GENERATION"


STOPPED = """if True:
    import os, signal, sys, genlock
    from genlock.stores.folder.journal import NumberedJournal

    link, stops = NumberedJournal._link, [1]

    def stopping(self, number, data):
        if armed and stops.pop():
            print("stopped", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            stops.append(0)
        elif armed:
            stops.append(0)
        link(self, number, data)

    armed = False
    NumberedJournal._link = stopping
    fleet = genlock.connect(sys.argv[1], session_id="s-late", agent_id="late")
    fleet.get_task_state(task_id="task")
    armed = True
    print(fleet.claim_task(task_id="task").reason, flush=True)
"""


@contextmanager
def stopped_at_its_commit(workspace: Workspace) -> Iterator[Callable[[], str]]:
    """A process that claims `task` and has stopped before its journal entry. As on a network drive,
    where nobody knows whether it is still there, its lock is broken. To call what is given lets it
    go on, and gives the answer that it gets."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, workspace.url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        stdout = child.stdout
        assert stdout is not None

        def go_on() -> str:
            child.send_signal(signal.SIGCONT)
            return stdout.readline().strip()

        try:
            assert stdout.readline() == "stopped\n"
            (workspace.root / "state" / "genlock" / "lock.link").unlink()
            yield go_on
        finally:
            child.kill()


@pytest.fixture
def unlocked(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace where files cannot be locked."""
    made = Workspace(tmp_path / "workspace", lock="link")
    made.add("task")
    made.add("other")
    yield made
    made.close()


def test_process_that_was_stopped_at_its_commit_does_not_get_the_task_that_another_has(
    unlocked: Workspace,
) -> None:
    fleet = unlocked.connect()
    fleet.sweep()
    with stopped_at_its_commit(unlocked) as go_on:
        (unlocked.locks / "task.lock").unlink()  # by gptodo
        generation = granted(fleet, "task")
        assert go_on() == "DENIED_ACTIVE_CLAIM"
        lock = unlocked.lock_of("task")
        assert lock is not None
        assert lock["worker"] == "a1"
        assert submitted(fleet, "task", generation) == "ACCEPTED"


def test_lock_that_was_written_for_a_commit_that_lost_a_race_is_taken_back(
    unlocked: Workspace,
) -> None:
    fleet = unlocked.connect()
    fleet.sweep()
    with stopped_at_its_commit(unlocked) as go_on:
        granted(fleet, "other")
        assert go_on() == "GRANTED"
        assert kinds_of(fleet, "task") == ["TASK_ADDED", "CLAIM_ACQUIRED"]


# Another user's folder


def as_nobody(root: Path, act: Callable[[], object]) -> str:
    """What comes of it for a user who owns nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root may become somebody else")
    for folder in (root, *list(root.parents)[:-2]):
        if stat.S_IMODE(folder.stat().st_mode) & 0o005 != 0o005:
            folder.chmod(0o755)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            try:
                said = str(act())
            except StoreError as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        said = answers.read().decode()
    os.waitpid(child, 0)
    return said


def test_workspace_that_another_user_may_only_read_is_read_only(tmp_path: Path) -> None:
    filled(tmp_path)
    state = tmp_path / "state" / "genlock"
    for path in (state.parent, state, *state.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)

    def act() -> object:
        store = opened(tmp_path)
        assert store.limits.read_only
        return store.commit([make_change(make_key("late"))])

    assert "StoreReadOnly" in as_nobody(tmp_path, act)
    state.chmod(0o777)  # and where only the journal is not theirs
    assert "StoreReadOnly" in as_nobody(tmp_path, act)


def test_workspace_that_another_user_may_not_enter_is_named(workspace: Workspace) -> None:
    granted_first = workspace.add("task")
    granted(workspace.connect(), granted_first.stem)
    said = as_nobody(workspace.root, lambda: open_folder(workspace.url))
    assert said.startswith("StoreUnavailable")
    assert "state" in said
    assert "Permission denied" in said
