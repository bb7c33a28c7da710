"""genlock run with worktrees and containers, and what runs after an acceptance."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from tests.isolation.place import COMMIT, Place
from tests.servers import bubblewrap

ISOLATED = {"isolation": "worktree"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "repo", A=ISOLATED, B={}, C={"isolation": "container"})


def test_run_works_in_a_worktree_and_removes_it_when_the_task_is_over(place: Place) -> None:
    look = "pwd; git branch --show-current; echo $GENLOCK_WORKTREE $GENLOCK_BRANCH $GENLOCK_BASE"
    ran = place.run("run", "A", "--status-file", "s", "--", "sh", "-c", f"{look}; {COMMIT}")
    tree = place.trees / "A.gen1"
    assert (ran.code, ran.out.splitlines()) == (
        0,
        [str(tree), "genlock/A/gen1", f"{tree} genlock/A/gen1 main"],
    )
    commit = place.git("rev-parse", "genlock/A/gen1")
    status = json.loads((place.folder / "s").read_text())
    assert (status["commit"], status["kept"]) == (commit, "the branch genlock/A/gen1")
    assert not tree.exists()
    assert not (place.folder / "made.txt").exists()
    with place.fleet() as fleet:
        state = fleet.get_task_state(task_id="A")
    assert state.result is not None
    assert state.result.reference == commit
    assert state.progress is not None
    assert state.progress.worktree_path == str(tree)


def test_a_worktree_without_work_leaves_nothing(place: Place) -> None:
    assert place.run("run", "A", "--", "true").code == 0
    assert list(place.trees.iterdir()) == []
    assert place.branches() == []


def test_uncommitted_work_is_kept_and_named_for_the_successor(place: Place) -> None:
    ran = place.run("run", "A", "--", "sh", "-c", "echo half > half.txt; exit 7")
    tree = place.trees / "A.gen1"
    assert ran.code == 7
    assert f"kept the branch genlock/A/gen1, with uncommitted changes, in {tree}" in ran.err
    assert (tree / "half.txt").read_text() == "half\n"
    with place.fleet() as fleet:
        note = fleet.get_lineage(task_id="A").generations[0].note
    assert note.startswith("exit status 7; work left in the branch genlock/A/gen1")


def test_accepted_work_that_is_not_committed_is_kept_too(place: Place) -> None:
    ran = place.run("run", "A", "--", "touch", "forgotten.txt")
    assert ran.code == 0
    assert "with uncommitted changes" in ran.err
    assert (place.trees / "A.gen1" / "forgotten.txt").exists()


def test_a_result_that_waits_for_a_review_keeps_its_worktree(place: Place) -> None:
    with place.fleet() as fleet:
        fleet.add_tasks(tasks=[{"id": "R", "human_required": True, **ISOLATED}])
    ran = place.run("run", "R", "--on-complete", "touch hook", "--", "sh", "-c", COMMIT)
    assert ran.code == 0
    assert (place.trees / "R.gen1" / "made.txt").exists()
    assert not (place.folder / "hook").exists(), "nobody has accepted it yet"


def test_the_base_is_configured_by_the_project_or_named(place: Place) -> None:
    place.git("branch", "stable")
    place.git("commit", "--quiet", "--allow-empty", "-m", "Go on")
    (place.folder / ".genlock" / "config.toml").write_text('worktree_base = "stable"\n')
    show = ("--", "git", "rev-parse", "HEAD")
    ran = place.run("run", "A", *show)
    assert ran.out.strip() == place.git("rev-parse", "stable")
    ran = place.run("run", "B", "--worktree", "--base", "main", *show)
    assert ran.out.strip() == place.git("rev-parse", "main")


def test_outside_of_a_repository_the_task_is_given_back_and_it_says_why(place: Place) -> None:
    (place.folder / ".git").rename(place.folder / "gone")
    ran = place.run("run", "A", "--", "touch", "ran")
    assert ran.code == 127
    assert "is in no git repository" in ran.err
    assert not (place.folder / "ran").exists()
    with place.fleet() as fleet:
        assert fleet.get_task_state(task_id="A").claim is None


# on_complete

HOOK = "sh -c 'env | grep ^GENLOCK_ > told'"


def told(place: Place) -> dict[str, str]:
    lines = (place.folder / "told").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_on_complete_runs_after_the_acceptance_with_the_task_in_its_environment(
    place: Place,
) -> None:
    ran = place.run("run", "A", "--on-complete", HOOK, "--", "sh", "-c", COMMIT)
    assert ran.code == 0, ran.err
    found = told(place)
    assert {
        name: found[f"GENLOCK_{name}"] for name in ("TASK", "GENERATION", "BRANCH", "BASE")
    } == {
        "TASK": "A",
        "GENERATION": "1",
        "BRANCH": "genlock/A/gen1",
        "BASE": "main",
    }
    assert found["GENLOCK_COMMIT"] == place.git("rev-parse", "genlock/A/gen1")


def test_on_complete_does_not_run_when_the_command_fails(place: Place) -> None:
    assert place.run("run", "A", "--on-complete", HOOK, "--", "false").code == 1
    assert not (place.folder / "told").exists()


def test_an_on_complete_that_fails_changes_nothing_about_the_acceptance(place: Place) -> None:
    words = ("--on-complete", "sh -c 'echo no remote; exit 3'", "--", "true")
    ran = place.run("run", "B", *words)
    assert ran.code == 0
    assert "on_complete: sh failed, exit status 3: no remote" in ran.err
    with place.fleet() as fleet:
        assert fleet.get_task_state(task_id="B").state == "COMPLETED"


@pytest.mark.parametrize("name", ["on_complete", "container"])
def test_a_project_s_file_cannot_set_what_runs_on_the_users_machine(
    place: Place, name: str
) -> None:
    (place.folder / ".genlock" / "config.toml").write_text(f'{name} = "touch owned {{worktree}}"\n')
    ran = place.run("run", "B", "--", "true")
    assert ran.code == 2
    assert f"{name} cannot be set by a project, only by its user" in ran.error()["message"]
    assert not (place.folder / "owned").exists()


def test_the_users_own_settings_may_name_it(place: Place, tmp_path: Path) -> None:
    config = tmp_path / "config"
    env = {"XDG_CONFIG_HOME": str(config)}
    set_ = place.run("config", "set", "--user", "on_complete", HOOK, **env)
    assert set_.code == 0, set_.err
    assert place.run("run", "A", "--", "sh", "-c", COMMIT, **env).code == 0
    assert told(place)["GENLOCK_TASK"] == "A"


# Containers

TINY = """#!/bin/sh
# A container of the tests' own: it notes what it was given, and runs the command.
echo "$@" > "$NOTED"
while [ "$1" != -- ]; do shift; done
shift
cd "$GENLOCK_WORKTREE" && exec "$@"
"""


def test_a_container_is_the_users_template_with_the_worktree_in_it(
    place: Place, tmp_path: Path
) -> None:
    tiny, noted = tmp_path / "tiny", tmp_path / "noted"
    tiny.write_text(TINY)
    tiny.chmod(0o755)
    template = f"{tiny} -v {{worktree}}:/w --bind {{git_folder}} {{git_folder}} -w {{files}} --"
    ran = place.run(
        "run", "C", "--", "sh", "-c", COMMIT, GENLOCK_CONTAINER=template, NOTED=str(noted)
    )
    assert ran.code == 0, ran.err
    assert place.git("log", "-1", "--format=%s", "genlock/C/gen1") == "Make it"
    words = noted.read_text().split()
    git = place.folder / ".git"
    assert words[:2] == ["-v", f"{place.trees / 'C.gen1'}:/w"]
    assert words[2:5] == ["--bind", f"{git}/objects", f"{git}/objects"]
    assert words.count("--bind") == 4
    assert words[words.index("-w") + 1].startswith(os.environ.get("TMPDIR", "/tmp"))


def test_without_bubblewrap_and_template_the_task_is_given_back(
    place: Place, tmp_path: Path
) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    for name in ("git", "sh"):
        (only / name).symlink_to(f"/usr/bin/{name}")
    ran = place.run("run", "C", "--", "true", PATH=str(only))
    assert ran.code == 127
    assert "bubblewrap is not installed: install it, or type: genlock config set" in ran.err
    assert place.branches() == []


def test_none_leaves_the_container_to_the_command(place: Place) -> None:
    ran = place.run("run", "C", "--", "pwd", GENLOCK_CONTAINER="none")
    assert (ran.code, ran.out) == (0, f"{place.folder}\n")


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("podman run {image} {worktree}", "a command with the fields {worktree}, {files}"),
        ("podman run", "has to mount the worktree"),
        ("podman 'run {worktree}", "container is a command, not"),
        ("podman run {worktree} {", "a command with the fields"),
    ],
)
def test_a_template_that_cannot_be_is_refused(place: Place, template: str, told: str) -> None:
    ran = place.run("run", "C", "--", "true", GENLOCK_CONTAINER=template)
    assert (ran.code, told in ran.error()["message"]) == (2, True), ran.err


def test_in_bubblewrap_only_the_worktree_and_its_commits_can_be_written(
    place: Place, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tries = [
        f"touch {shlex.quote(str(outside))}/x",
        f"touch {shlex.quote(str(place.folder))}/x",
        f"touch {shlex.quote(str(place.folder))}/.git/hooks/x",
        "git config core.hooksPath /tmp",
        "git branch -f main HEAD",
    ]
    main = place.git("rev-parse", "main")
    script = f"{COMMIT} || exit 9; {'; '.join(tries)}"
    script += '; echo "[1, 2]" > "$GENLOCK_RESULT"; touch /tmp/genlock-scratch'
    ran = place.run("run", "C", "--", "sh", "-c", script, PATH=bubblewrap.search_path())
    assert ran.code == 0, ran.err
    assert place.git("log", "-1", "--format=%s", "genlock/C/gen1") == "Make it"
    assert list(outside.iterdir()) == []
    assert not (place.folder / "x").exists()
    assert not (place.folder / ".git" / "hooks" / "x").exists()
    assert "hooksPath" not in (place.folder / ".git" / "config").read_text()
    assert place.git("rev-parse", "main") == main
    assert not Path("/tmp/genlock-scratch").exists()
    with place.fleet() as fleet:
        state = fleet.get_task_state(task_id="C")
    assert state.result is not None
    assert state.result.result_data == [1, 2]


def test_settings_that_an_agent_leaves_in_its_worktree_are_not_obeyed(place: Place) -> None:
    owned = place.folder / "owned"
    evil = f"printf '#!/bin/sh\\ntouch {owned}\\n' > m && chmod +x m"
    script = (
        f"{evil}; git init --quiet evil; git -C evil config core.fsmonitor $PWD/m; "
        "echo gitdir: $PWD/evil/.git > .git"
    )
    ran = place.run("run", "A", "--", "sh", "-c", script)
    assert "kept" in ran.err
    assert place.run("worktree", "list").json()["worktrees"][0]["uncommitted"] != []
    assert not owned.exists()
    place.git("status", cwd=place.trees / "A.gen1")
    assert owned.exists(), "git itself would have obeyed"
