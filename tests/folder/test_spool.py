"""A folder `ai_comms`, in which shell scripts move tasks around while Genlock works on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

import genlock
from genlock.engine.replay_check import check
from genlock.errors import BadArgument, NotAllowed, StoreForeign
from genlock.stores.folder import open_folder
from tests.eventually import eventually
from tests.folder.orchestra import Orchestra
from tests.folder.workspace import granted, kinds_of, state_of, submitted


def ready(fleet: genlock.Coordinator, agent: str = "claude") -> list[str]:
    return [each.task.id for each in fleet.ready(agent_id=agent)]


# The way of a task


def test_task_that_genlock_works_on_goes_through_the_folders(orchestra: Orchestra) -> None:
    orchestra.add("0001", "# Write the parser\n\nIn one pass.")
    fleet = orchestra.connect()
    assert ready(fleet) == ["0001"]
    task = fleet.get_task_state(task_id="0001").task
    assert (task.title, task.description, task.assigned_to) == (
        "Write the parser",
        "In one pass.",
        "claude",
    )
    generation = granted(fleet, "0001")
    assert orchestra.files() == [f"claude/in_progress/0001.{os.getpid()}.md"]
    assert fleet.renew_lease(task_id="0001", generation=generation).success
    assert submitted(fleet, "0001", generation) == "ACCEPTED"
    assert orchestra.files() == ["claude/completed/0001.md"]
    assert not list(orchestra.comms.rglob("genlock.json"))
    assert "EXTERNAL_CHANGE" not in kinds_of(fleet, "0001")
    assert check(fleet.engine.store) == []


def test_release_puts_the_task_back(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001")
    assert fleet.release_claim(task_id="0001", generation=generation).success
    assert orchestra.files() == ["claude/to_execute/0001.md"]
    assert granted(fleet, "0001") == generation + 1
    assert "EXTERNAL_CHANGE" not in kinds_of(fleet, "0001")


def test_another_session_that_takes_over_puts_its_own_pid_there(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001", seconds=1)
    time.sleep(1.1)
    other = orchestra.connect(session="s2")
    assert granted(other, "0001") == generation + 1
    assert submitted(fleet, "0001", generation) == "STALE_GENERATION"
    assert submitted(other, "0001", generation + 1) == "ACCEPTED"
    assert "EXTERNAL_CHANGE" not in kinds_of(fleet, "0001")


def test_held_task_lies_in_stale_with_the_reason(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    fleet.hold_task(task_id="0001", reason="the customer is asked")
    assert orchestra.files() == ["claude/stale/0001.md", "claude/stale/reason.txt"]
    text = (orchestra.comms / "claude/tasks/stale/0001/reason.txt").read_text()
    assert text.endswith(" the customer is asked\n")
    fleet.reopen_task(task_id="0001")
    assert orchestra.files() == ["claude/to_execute/0001.md"]


def test_new_task_gets_a_folder_in_the_pool_of_its_agent(orchestra: Orchestra) -> None:
    fleet = orchestra.connect()
    fleet.add_tasks(
        tasks=[
            {"id": "0001", "title": "Title", "description": "Text."},
            {"id": "0002", "assigned_to": "codex"},
        ]
    )
    assert orchestra.files() == ["any/to_execute/0001.md", "codex/to_execute/0002.md"]
    path = orchestra.comms / "any/tasks/to_execute/0001/0001.md"
    assert path.read_text() == "# Title\n\nText.\n"
    fleet.edit_task(task_id="0001", changes={"description": "Another text."})
    assert path.read_text() == "# Title\n\nAnother text.\n"
    assert ready(fleet) == ["0001"]
    assert "EXTERNAL_CHANGE" not in kinds_of(fleet, "0001")


def test_nothing_of_theirs_is_changed_before_the_first_claim(orchestra: Orchestra) -> None:
    orchestra.add("0001", "a very long text " * 2000)
    orchestra.add("0002", "# Title #\r\n\r\nText\r\n")
    orchestra.move("0002", "completed")
    orchestra.add("0003", "x")
    orchestra.take("0003", orchestra.process().pid)
    orchestra.add("0004", "x", agent="codex")
    orchestra.move("0004", "stale", "codex")
    before = {
        path: (path.stat().st_ino, path.read_bytes()) for path in orchestra.comms.rglob("*.md")
    }
    fleet = orchestra.connect()
    ready(fleet)
    fleet.sweep()
    after = {
        path: (path.stat().st_ino, path.read_bytes()) for path in orchestra.comms.rglob("*.md")
    }
    assert after == before


# What scripts do is observed


def test_task_that_a_script_completed_is_completed(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    orchestra.add("0001_t1")
    fleet = orchestra.connect()
    assert ready(fleet) == ["0001_t1"]
    orchestra.move("0001_t1", "completed")
    assert ready(fleet) == ["0001"]
    result = fleet.get_task_state(task_id="0001_t1").result
    assert result is not None
    assert result.result_data == {"external": "spool"}


def test_script_that_took_a_task_with_its_pid_holds_the_claim(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    ready(fleet)
    pid = orchestra.process().pid
    orchestra.take("0001", pid)
    denied = fleet.claim_task(task_id="0001")
    assert (denied.reason, denied.current_holder) == ("DENIED_ACTIVE_CLAIM", f"claude-{pid}")
    orchestra.move("0001", "completed")
    assert state_of(fleet, "0001") == "COMPLETED"
    result = fleet.get_task_state(task_id="0001").result
    assert result is not None
    assert (result.session_id, result.agent_id) == (f"spool:claude-{pid}", f"claude-{pid}")


def test_script_between_its_move_and_its_mark_keeps_the_task(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    ready(fleet)
    folder = orchestra.move("0001", "in_progress")
    assert fleet.claim_task(task_id="0001").reason == "DENIED_HELD"
    assert orchestra.files() == ["claude/in_progress/0001.md"]
    pid = orchestra.process().pid
    (folder / "0001.md").rename(folder / f"0001.{pid}.md")
    assert state_of(fleet, "0001") == "IN_PROGRESS"
    assert fleet.claim_task(task_id="0001").reason == "DENIED_ACTIVE_CLAIM"


def test_task_that_a_script_put_back_is_open_again(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001")
    folder = orchestra.move("0001", "to_execute")
    (folder / f"0001.{os.getpid()}.md").rename(folder / "0001.md")
    assert submitted(fleet, "0001", generation) == "STALE_GENERATION"
    assert granted(fleet, "0001") > generation


def test_completed_task_that_a_script_put_back_was_reset(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001")
    assert submitted(fleet, "0001", generation) == "ACCEPTED"
    orchestra.move("0001", "to_execute")
    assert granted(fleet, "0001") > generation
    assert "TASK_RESET" in kinds_of(fleet, "0001")


@pytest.mark.parametrize("state", ["completed", "stale"])
def test_task_that_a_script_moved_away_fences_its_holder(orchestra: Orchestra, state: str) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001")
    orchestra.move("0001", state)
    assert submitted(fleet, "0001", generation) == "STALE_GENERATION"
    expected = {"completed": "COMPLETED", "stale": "HELD"}[state]
    assert state_of(fleet, "0001") == expected
    assert fleet.renew_lease(task_id="0001", generation=generation).success is False


def test_script_that_marks_a_claimed_task_as_its_own_fences_the_holder(
    orchestra: Orchestra,
) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001")
    folder = orchestra.comms / "claude/tasks/in_progress/0001"
    pid = orchestra.process().pid
    (folder / f"0001.{os.getpid()}.md").rename(folder / f"0001.{pid}.md")
    assert submitted(fleet, "0001", generation) == "STALE_GENERATION"
    assert fleet.claim_task(task_id="0001").current_holder == f"claude-{pid}"


def test_folder_in_two_places_is_named_and_blocks_nothing_else(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    orchestra.add("0001", agent="codex")
    orchestra.add("0002")
    fleet = orchestra.connect()
    assert ready(fleet) == ["0002"]
    with pytest.raises(NotAllowed, match=r"two places: claude/to_execute and codex/to_execute"):
        fleet.claim_task(task_id="0001")


def test_folder_whose_file_is_not_written_yet_is_no_task_yet(orchestra: Orchestra) -> None:
    folder = orchestra.comms / "claude/tasks/to_execute/0001"
    folder.mkdir()
    fleet = orchestra.connect()
    assert ready(fleet) == []
    (folder / "0001.md").touch()
    assert ready(fleet) == []
    (folder / "0001.md").write_text("Now\n")
    assert ready(fleet) == ["0001"]


# Processes that are gone


def test_task_of_a_dead_script_goes_to_stale_with_the_reason(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    process = orchestra.process()
    orchestra.take("0001", process.pid)
    assert state_of(fleet, "0001") == "IN_PROGRESS"
    process.kill()
    process.wait()
    assert state_of(fleet, "0001") == "HELD"
    assert orchestra.files() == [f"claude/stale/0001.{process.pid}.md", "claude/stale/reason.txt"]
    text = (orchestra.comms / "claude/tasks/stale/0001/reason.txt").read_text()
    assert f"process {process.pid}, which is gone" in text
    denied = fleet.claim_task(task_id="0001")
    assert denied.reason == "DENIED_HELD"
    fleet.reopen_task(task_id="0001")
    assert orchestra.files() == ["claude/to_execute/0001.md"]
    assert granted(fleet, "0001")


def test_task_of_a_dead_genlock_worker_goes_to_stale(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    code = (
        "import genlock, os, signal, sys\n"
        "f = genlock.connect(sys.argv[1], create=True, session_id='k', agent_id='claude')\n"
        "assert f.claim_task(task_id='0001').success\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, orchestra.url])
    assert process.wait(60) == -signal.SIGKILL
    fleet = orchestra.connect()
    assert state_of(fleet, "0001") == "HELD"
    assert f"claude/stale/0001.{process.pid}.md" in orchestra.files()


def test_stale_tasks_that_a_script_finds_are_held(orchestra: Orchestra) -> None:
    """The script's own search, beside a claim of Genlock's whose process lives."""
    orchestra.add("0001")
    orchestra.add("0002")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001")
    process = orchestra.process()
    orchestra.take("0002", process.pid)
    process.kill()
    process.wait()
    said = orchestra.run("detect_stale_tasks")
    assert said.startswith("STALE: ")
    assert f"(PID {process.pid} dead)" in said
    assert state_of(fleet, "0002") == "HELD"
    assert submitted(fleet, "0001", generation) == "ACCEPTED"


# Crashes


@pytest.mark.parametrize(
    ("failpoint", "claimed"),
    [
        ("spool.noted", False),
        ("spool.moved", False),
        ("journal.reserved:2", False),
        ("journal.synced:2", True),
        ("journal.projected:2", True),
    ],
)
def test_claim_that_is_killed_is_made_or_not_made(
    orchestra: Orchestra, failpoint: str, claimed: bool
) -> None:
    orchestra.add("0001", agent="any")
    code = (
        "import genlock, sys\n"
        "f = genlock.connect(sys.argv[1], create=True, session_id='k', agent_id='claude')\n"
        "f.ready()\n"
        "f.claim_task(task_id='0001')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, orchestra.url],
        env=os.environ | {"GENLOCK_FAILPOINT": failpoint},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    fleet = orchestra.connect()
    fleet.add_tasks(tasks=["another"])  # whoever writes next repairs
    if claimed:
        assert state_of(fleet, "0001") == "HELD"  # its process is gone
        fleet.reopen_task(task_id="0001")
    assert state_of(fleet, "0001") == "PENDING"
    assert "any/to_execute/0001.md" in orchestra.files()
    assert submitted(fleet, "0001", granted(fleet, "0001")) == "ACCEPTED"
    assert check(fleet.engine.store) == []


def test_result_that_is_killed_behind_its_journal_entry_is_in_completed(
    orchestra: Orchestra,
) -> None:
    orchestra.add("0001", agent="any")
    code = (
        "import genlock, sys\n"
        "f = genlock.connect(sys.argv[1], create=True, session_id='k', agent_id='claude')\n"
        "g = f.claim_task(task_id='0001').claim.generation\n"
        "from genlock.failpoints import _armed\n"
        "import genlock.stores.folder.project_files as files\n"
        "files.hit = _armed('journal.committed')\n"
        "f.submit_result(task_id='0001', generation=g, result_data=1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, orchestra.url], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert orchestra.files() == ["any/in_progress/0001.md"]
    fleet = orchestra.connect()
    assert state_of(fleet, "0001") == "COMPLETED"
    fleet.add_tasks(tasks=["another"])
    assert "any/completed/0001.md" in orchestra.files()
    assert "EXTERNAL_CHANGE" not in kinds_of(fleet, "0001")


def test_of_scripts_and_genlock_one_gets_each_task(orchestra: Orchestra) -> None:
    ids = [f"{number:04}" for number in range(1, 41)]
    for id in ids:
        orchestra.add(id)
    fleet = orchestra.connect()
    granted(fleet, ids[-1])
    script = orchestra.shell(
        """
        cd "$AI_ROOT/ai_comms/claude/tasks"
        for id in $(ls to_execute | sort); do
            mv "to_execute/$id" in_progress/ 2>/dev/null || continue
            mv "in_progress/$id/$id.md" "in_progress/$id/$id.$$.md" || echo "LOST $id"
            echo "$id"
        done
        exec sleep 600
        """
    )
    ours = {id for id in reversed(ids[1:]) if fleet.claim_task(task_id=id).success}

    def all_taken() -> bool:
        return not list((orchestra.comms / "claude/tasks/to_execute").iterdir())

    eventually(all_taken, "every task to be taken")
    holders = {id: fleet.get_task_state(task_id=id).holder for id in ids}
    script.kill()
    theirs = script.communicate()[0].split()
    assert "LOST" not in theirs
    assert sorted([*ours, *theirs]) == ids
    for id in ids:
        holder = holders[id]
        assert holder is not None
        assert holder.session == ("s1" if id in ours else f"spool:claude-{script.pid}")


# Pools


def test_task_in_the_pool_of_an_agent_is_reserved_for_it(orchestra: Orchestra) -> None:
    orchestra.add("0001", agent="claude")
    orchestra.add("0002", agent="codex")
    orchestra.add("0003", agent="any")
    claude, codex = orchestra.connect("claude"), orchestra.connect("codex", "s2")
    assert ready(claude, "claude") == ["0003", "0001"]
    assert ready(codex, "codex") == ["0003", "0002"]
    assert claude.claim_task(task_id="0002").reason == "DENIED_ASSIGNED"
    assert granted(codex, "0002")
    assert f"codex/in_progress/0002.{os.getpid()}.md" in orchestra.files()


def test_task_that_is_moved_to_another_pool_is_the_other_agents(orchestra: Orchestra) -> None:
    orchestra.add("0001", agent="claude")
    claude, codex = orchestra.connect("claude"), orchestra.connect("codex", "s2")
    assert ready(claude) == ["0001"]
    orchestra.move("0001", "to_execute", to="codex")
    assert claude.claim_task(task_id="0001").reason == "DENIED_ASSIGNED"
    codex.assign_task(task_id="0001", agent_id="claude")
    assert orchestra.files() == ["claude/to_execute/0001.md"]
    assert granted(claude, "0001")


def test_spawn_may_name_the_agent_of_a_subtask(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    fleet = orchestra.connect()
    generation = granted(fleet, "0001")
    made = fleet.spawn_subtasks(
        task_id="0001",
        generation=generation,
        subtasks=[{"title": "Test it", "assigned_to": "codex"}, "Build it"],
    )
    assert made.children == ("0001_t1", "0001_t2")
    assert orchestra.files() == [
        "any/to_execute/0001_t2.md",
        "claude/to_execute/0001.md",
        "codex/to_execute/0001_t1.md",
    ]


def test_leaves_come_first(orchestra: Orchestra) -> None:
    for id in ("0001", "0001_t1", "0001_t1.1", "0001_t1.2", "0001_t2", "0002"):
        orchestra.add(id)
    fleet = orchestra.connect()
    assert ready(fleet) == ["0001_t1.2", "0001_t1.1", "0001_t2", "0002"]
    assert str(fleet.get_policy().policy["order"]) == "leaf-first"


# Finding the folder


def test_layout_is_found_by_itself(orchestra: Orchestra) -> None:
    store = open_folder(f"folder://{orchestra.root}")
    assert store.files is not None
    assert store.files.layout.name == "spool"
    store.close()
    (orchestra.root / "tasks").mkdir()
    with pytest.raises(BadArgument, match="several layouts"):
        open_folder(f"folder://{orchestra.root}")


def test_ai_root_and_agent_type_say_where_and_who(
    orchestra: Orchestra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestra.add("0001", agent="codex")
    for name in [name for name in os.environ if name.startswith("GENLOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AI_ROOT", str(orchestra.root))
    monkeypatch.setenv("AGENT_TYPE", "codex")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = partial(subprocess.run, timeout=60, check=True, capture_output=True, text=True)
    command = [sys.executable, "-m", "genlock.cli"]
    run([*command, "init"])
    assert not (tmp_path / ".genlock").exists()
    assert json.loads(run([*command, "next", "--json"]).stdout)["claim"]["agent_id"] == "codex"
    assert orchestra.files()[0].startswith("codex/in_progress/0001.")
    locks = tmp_path / ".claude" / "locks"
    locks.mkdir(parents=True)
    (locks / "nightly.lock").write_text(f"{os.getpid()}\n{datetime.now(UTC).isoformat()}\nx\n")
    queue = ["session", "run", "--on-conflict", "queue", "nightly", "--", "make", "all"]
    assert run([*command, *queue]).stdout == "Queued: 0002\n"
    queued = orchestra.comms / "codex/tasks/to_execute/0002/0002.md"
    assert queued.read_text() == "# Queued for session nightly\n\nmake all\n"


@pytest.mark.parametrize("name", ["claude", "claude/tasks", "claude/tasks/stale", "counters"])
def test_folder_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "root/ai_comms" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(StoreForeign, match="symbolic link"):
        open_folder(f"folder://{tmp_path}/root?layout=spool")


def test_task_folder_that_is_a_link_is_not_followed(orchestra: Orchestra, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0001.md").write_text("secret")
    (orchestra.comms / "claude/tasks/to_execute/0001").symlink_to(tmp_path / "elsewhere")
    orchestra.add("0002")
    assert ready(orchestra.connect()) == ["0002"]


def test_text_that_no_definition_can_have_is_left_out(orchestra: Orchestra) -> None:
    orchestra.add("0001", "Title\x00\x1b[31m\nmore")
    fleet = orchestra.connect()
    assert ready(fleet) == ["0001"]
    folder = orchestra.comms / "claude/tasks/to_execute/0002"
    folder.mkdir()
    (folder / "0002.md").write_bytes(b"\xff\xfe")
    orchestra.add("a b")
    assert ready(fleet) == ["0001"]
    with pytest.raises(NotAllowed, match=r"0002 is no UTF-8"):
        fleet.claim_task(task_id="0002")
