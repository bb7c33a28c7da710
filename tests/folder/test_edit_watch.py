"""Whoever waits on a folder notices what other tools write there, when they write it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.engine import edit_watch, maintenance
from genlock.store import Key
from genlock.stores.folder import folder_watch, open_folder
from genlock.stores.folder.folder_watch import FolderWatch
from genlock.stores.folder.layouts.gptodo import GptodoLayout
from genlock.stores.folder.store import FolderStore
from tests.eventually import eventually
from tests.folder.orchestra import Orchestra
from tests.folder.workspace import GPTODO, Workspace, granted, kinds_of
from tests.servers.service import serving

LONG = 60.0
"""Seconds that nobody waits for."""


class Looks:
    """How often somebody has looked at all files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        scan = FolderStore.scan

        def counted(store: FolderStore, tenant: str, project: str) -> Sequence[Key]:
            found = scan(store, tenant, project)
            self.count += 1
            return found

        monkeypatch.setattr(FolderStore, "scan", counted)

    def await_watcher(self, before: int = 1) -> None:
        """Until the watcher has had its first look, behind those `before` it: then only the folders
        themselves tell of an edit."""
        eventually(lambda: self.count > before, "the first look of the edit watcher")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Nobody looks at all files by the clock."""
    monkeypatch.setattr(edit_watch, "SCAN_SECONDS", 3600.0)
    monkeypatch.setattr(maintenance, "SEARCH_SECONDS", 3600.0)
    return Looks(monkeypatch)


@contextmanager
def waiting(fleet: genlock.Coordinator) -> Iterator[Future[str]]:
    """The task that a call of claim_next gets that waits."""

    def wait() -> str:
        claim = fleet.claim_next(wait_seconds=LONG).claim
        return "" if claim is None else claim.task_id

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(wait)


@pytest.mark.skipif(not GPTODO.exists(), reason="gptodo is not installed")
def test_edit_by_gptodo_wakes_whoever_waits_for_a_task(workspace: Workspace, looks: Looks) -> None:
    workspace.add("first", state="waiting")
    workspace.locks.mkdir(parents=True)
    with waiting(workspace.connect()) as task:
        looks.await_watcher()
        before = looks.count
        workspace.gptodo("edit", "first", "--set", "state", "todo")
        edited = time.monotonic()
        assert task.result(LONG) == "first"
        assert time.monotonic() - edited < 5  # measured: 0.03 on a machine with nothing else to do
    assert looks.count == before


def test_new_task_file_wakes_whoever_waits_for_a_task(workspace: Workspace, looks: Looks) -> None:
    with waiting(workspace.connect()) as task:
        looks.await_watcher()
        workspace.add("first")
        assert task.result(LONG) == "first"


def test_lock_that_is_removed_wakes_whoever_waits_for_the_task(
    workspace: Workspace, looks: Looks
) -> None:
    workspace.add("first")
    workspace.lock("first", "w1")
    with waiting(workspace.connect()) as task:
        looks.await_watcher()
        workspace.unlock("first")
        assert task.result(LONG) == "first"


def test_folder_of_locks_is_watched_as_soon_as_it_is_there(
    workspace: Workspace, looks: Looks
) -> None:
    workspace.add("first", state="someday")
    fleet = workspace.connect()
    with waiting(fleet) as task:
        looks.await_watcher()
        workspace.lock("first", "w1")
        eventually(lambda: "CLAIM_ACQUIRED" in kinds_of(fleet, "first"), "the lock to be noticed")
        workspace.edit("first", state="todo")
        workspace.unlock("first")
        assert task.result(LONG) == "first"


def test_reader_of_events_is_told_of_an_edit_when_it_is_made(
    workspace: Workspace, looks: Looks
) -> None:
    workspace.add("first")
    fleet = workspace.connect()
    granted(fleet, "first")
    seen: list[str] = []

    def read() -> None:
        for event in fleet.watch():
            seen.append(event.event_type)
            if event.event_type == "CLAIM_SUPERSEDED":
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    looks.await_watcher(before=0)
    workspace.edit("first", assigned_to="human")
    thread.join(LONG)
    assert seen[:2] == ["EXTERNAL_CHANGE", "CLAIM_SUPERSEDED"]


def test_service_tells_its_clients_of_an_edit_when_it_is_made(
    workspace: Workspace, looks: Looks
) -> None:
    workspace.add("first", state="someday")
    with (
        serving(workspace.url) as service,
        genlock.connect(service.url, session_id="s1", agent_id="a1") as client,
        waiting(client) as task,
    ):
        looks.await_watcher()
        workspace.edit("first", state="todo")
        assert task.result(LONG) == "first"


def test_move_and_pid_of_a_script_are_noticed_when_they_are_made(
    orchestra: Orchestra, looks: Looks
) -> None:
    fleet = orchestra.connect()
    with waiting(fleet) as task:
        looks.await_watcher()
        folder = orchestra.comms / "claude" / "tasks" / "in_progress" / "0001"
        folder.mkdir()
        (folder / "0001.md").write_text("Do it\n")
        eventually(lambda: state(fleet, "0001") == "HELD", "the task without a pid")
        process = orchestra.process()
        (folder / "0001.md").rename(folder / f"0001.{process.pid}.md")
        eventually(lambda: state(fleet, "0001") == "IN_PROGRESS", "the pid")
        (folder / f"0001.{process.pid}.md").rename(folder / "0001.md")
        orchestra.move("0001", "to_execute")
        assert task.result(LONG) == "0001"


def state(fleet: genlock.Coordinator, id: str) -> str:
    """As the records have it: nobody looks at the file for that."""
    return {row.id: str(row.state) for row in fleet.list_tasks().tasks}.get(id, "")


def test_without_inotify_all_files_are_looked_at_now_and_then(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_watch, "inotify", lambda: None)
    monkeypatch.setattr(edit_watch, "SCAN_SECONDS", 0.05)
    monkeypatch.setattr(edit_watch, "_WAIT_SECONDS", 0.05)
    looks = Looks(monkeypatch)
    with waiting(workspace.connect()) as task:
        looks.await_watcher()
        workspace.add("first")
        assert task.result(LONG) == "first"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watcher_that_has_died_is_replaced_by_the_next_who_waits(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, looks: Looks
) -> None:
    await_edits, died = FolderStore.await_edits, threading.Event()

    def fragile(store: FolderStore, seconds: float) -> Sequence[Key] | None:
        if not died.is_set():
            died.set()
            raise RecursionError("nobody expected this")
        return await_edits(store, seconds)

    monkeypatch.setattr(FolderStore, "await_edits", fragile)
    with workspace.connect() as fleet:
        fleet.claim_next(wait_seconds=0.01)
        assert died.wait(LONG)
        eventually(
            lambda: "genlock-edits" not in {thread.name for thread in threading.enumerate()},
            "the end of the watcher's thread",
        )
        before = looks.count
        with waiting(fleet) as task:
            looks.await_watcher(before)
            workspace.add("first")
            assert task.result(LONG) == "first"


def test_waiting_takes_next_to_no_time_of_the_processor(workspace: Workspace, looks: Looks) -> None:
    for number in range(200):
        workspace.add(f"task-{number}", state="someday")
    fleet = workspace.connect()
    fleet.claim_next(wait_seconds=0.1)
    began = time.process_time()
    fleet.claim_next(wait_seconds=2)
    assert time.process_time() - began < 0.2


def test_what_genlock_writes_itself_is_no_edit(workspace: Workspace) -> None:
    workspace.add("first")
    with closing(open_folder(workspace.url)) as store:
        fleet = workspace.connect()
        fleet.sweep()
        assert store.await_edits(LONG) is None  # the folders are watched from here on
        granted(fleet, "first")
        assert list(store.await_edits(LONG) or ()) == []
        workspace.edit("first", assigned_to="human")
        keys: Sequence[Key] = ()
        while not keys:
            keys = store.await_edits(LONG) or ()
        assert [key.id for key in keys] == ["first"]


def test_folder_that_is_replaced_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    layout = GptodoLayout(tmp_path)
    layout.tasks.mkdir()
    watch = FolderWatch(layout)
    assert watch.wait(LONG) is None
    (layout.tasks / "one.md").touch()
    assert watch.wait(LONG) == {"one"}
    layout.tasks.rename(tmp_path / "old")
    assert watch.wait(LONG) is None
    layout.tasks.mkdir()
    assert watch.wait(LONG) is None
    (layout.tasks / "two.md").touch()
    assert watch.wait(LONG) == {"two"}
    watch.close()


def test_more_events_than_the_kernel_keeps_make_it_look_at_everything(tmp_path: Path) -> None:
    layout = GptodoLayout(tmp_path)
    layout.tasks.mkdir()
    watch = FolderWatch(layout)
    assert watch.wait(LONG) is None
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 50_000:
        pytest.skip(f"the queue takes {most} events")
    names = [f"{layout.tasks}/{number}.md" for number in (1, 2)]
    for number in range(most + 2):
        os.close(os.open(names[number % 2], os.O_WRONLY | os.O_CREAT))
    found: Any = set()
    while found is not None:
        found = watch.wait(LONG)
        assert found != set()
    watch.close()


def test_closing_wakes_the_watcher(workspace: Workspace) -> None:
    store = open_folder(workspace.url)
    store.await_edits(0)
    closed = threading.Thread(target=_await_end, args=(store.await_edits,))
    closed.start()
    store.close()
    closed.join(LONG)
    assert not closed.is_alive()


def _await_end(await_edits: Callable[[float], object]) -> None:
    with suppress(genlock.errors.Closed):
        while True:
            await_edits(LONG)


def test_fleet_that_waited_is_closed_at_once(workspace: Workspace, looks: Looks) -> None:
    fleet = workspace.connect()
    with waiting(fleet) as task:
        looks.await_watcher()
        began = time.monotonic()
        fleet.close()
        assert time.monotonic() - began < 1.5
        with pytest.raises(genlock.errors.Closed):
            task.result(LONG)
