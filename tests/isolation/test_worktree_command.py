"""genlock worktree add, list, remove and prune, on a real repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.isolation.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "repo", A={}, B={}, C={})


def added(place: Place, task: str, session: str = "s1") -> int:
    generation = place.claim(task, session)
    ran = place.run("worktree", "add", task, "-g", generation, as_=session)
    assert ran.code == 0, ran.err
    return generation


def listed(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = place.run("worktree", "list").json()["worktrees"]
    return found


def test_add_makes_a_worktree_and_enters_its_path_into_the_record(place: Place) -> None:
    generation = place.claim("A")
    ran = place.run("worktree", "add", "A", "-g", generation, "--base", "main")
    path = str(place.trees / "A.gen1")
    assert (ran.code, ran.json()) == (
        0,
        {"task": "A", "generation": 1, "path": path, "branch": "genlock/A/gen1"},
    )
    with place.fleet() as fleet:
        progress = fleet.get_task_state(task_id="A").progress
        (agent,) = fleet.list_agents()
    assert progress is not None
    assert (progress.generation, progress.worktree_path, agent.worktree) == (1, path, path)
    again = place.run("worktree", "add", "A", "-g", generation, "--quiet")
    assert (again.code, again.out) == (0, f"{path}\n"), "what is there is answered again"


def test_add_by_a_zombie_is_refused_and_makes_nothing(place: Place) -> None:
    old = place.claim("A")
    with place.fleet() as fleet:
        fleet.force_release(task_id="A", take_over=True)
    place.claim("A", "s2")
    ran = place.run("worktree", "add", "A", "-g", old)
    assert (ran.code, ran.json()["reason"]) == (5, "GENERATION_MISMATCH")
    assert "moved on" in ran.json()["message"]
    assert not (place.trees / "A.gen1").exists()
    assert place.branches() == []
    with place.fleet() as fleet:
        assert fleet.get_task_state(task_id="A").progress is None


def test_list_says_what_is_in_each_and_whether_its_generation_is_current(place: Place) -> None:
    added(place, "A")
    place.commit("A", 1)
    (place.trees / "A.gen1" / "notes.txt").write_text("not committed")
    with place.fleet() as fleet:
        fleet.force_release(task_id="A", take_over=True)
    added(place, "A", "s2")
    found = listed(place)
    names = ("task", "generation", "branch", "commits", "merged", "current", "live", "state")
    assert [tuple(one[name] for name in names) for one in found] == [
        ("A", 1, "genlock/A/gen1", 1, False, False, False, "IN_PROGRESS"),
        ("A", 2, "genlock/A/gen2", 0, True, True, True, "IN_PROGRESS"),
    ]
    assert [one["uncommitted"] for one in found] == [["notes.txt"], []]
    shown = place.run("worktree", "list", "--text").out
    assert "notes.txt" in shown
    assert "at work" in shown


def test_remove_refuses_to_lose_work_and_force_says_what_is_lost(place: Place) -> None:
    generation = added(place, "A")
    commit = place.commit("A", 1)
    (place.trees / "A.gen1" / "notes.txt").write_text("not committed")
    held = place.run("worktree", "remove", "A")
    assert held.code == 4
    assert "A is held at generation 1, and its holder works in" in held.error()["message"]
    with place.fleet() as fleet:
        fleet.release_claim(task_id="A", generation=generation)
    refused = place.run("worktree", "remove", "A")
    assert refused.code == 4
    assert "has uncommitted changes: notes.txt; to lose that, type: " in refused.error()["message"]
    (place.trees / "A.gen1" / "notes.txt").unlink()
    refused = place.run("worktree", "remove", "A")
    assert "genlock/A/gen1 has 1 commits that are not in main" in refused.error()["message"]
    (place.trees / "A.gen1" / "notes.txt").write_text("not committed")
    ran = place.run("worktree", "remove", "A", "--force")
    assert ran.code == 0
    assert ran.json()["lost"] == {
        "uncommitted": ["notes.txt"],
        "commits": [f"{commit[:7]} Write work.txt"],
    }
    assert place.branches() == []
    place.git(*ran.json()["get_back"][1:])
    assert place.git("rev-parse", "genlock/A/gen1") == commit


def test_remove_names_the_generations_to_choose_from(place: Place) -> None:
    added(place, "A")
    with place.fleet() as fleet:
        fleet.force_release(task_id="A", take_over=True)
    added(place, "A", "s2")
    ran = place.run("worktree", "remove", "A")
    assert (ran.code, "generations 1, 2; choose one with -g" in ran.error()["message"]) == (2, True)
    assert place.run("worktree", "remove", "A", "-g", 1).code == 0
    assert place.run("worktree", "remove", "B").code == 2


def test_prune_keeps_uncommitted_work_and_whoever_is_at_work(place: Place) -> None:
    for task in "ABC":
        added(place, task)
    place.commit("A", 1)
    place.commit("B", 1)
    (place.trees / "B.gen1" / "notes.txt").write_text("not committed")
    with place.fleet() as fleet:
        for task in "AB":
            fleet.submit_result(task_id=task, generation=1, result_data="done")
    ran = place.run("worktree", "prune")
    assert ran.code == 0
    assert ran.json()["removed"] == [str(place.trees / "A.gen1")]
    assert [(one["task"], one["uncommitted"]) for one in ran.json()["kept"]] == [
        ("B", ["notes.txt"])
    ]
    assert sorted(path.name for path in place.trees.iterdir()) == ["B.gen1", "C.gen1"]
    assert place.branches() == ["genlock/A/gen1", "genlock/B/gen1", "genlock/C/gen1"], (
        "the commits of A are not merged, so their branch stays"
    )
    place.git("merge", "--quiet", "genlock/A/gen1")
    assert place.run("worktree", "prune").json()["branches"] == ["genlock/A/gen1"]
    assert place.branches() == ["genlock/B/gen1", "genlock/C/gen1"]


def test_prune_keeps_commits_of_a_task_that_is_not_over(place: Place) -> None:
    generation = added(place, "A")
    place.commit("A", 1)
    with place.fleet() as fleet:
        fleet.release_claim(task_id="A", generation=generation)
    assert place.run("worktree", "prune").json()["removed"] == []
    place.git("merge", "--quiet", "genlock/A/gen1")
    ran = place.run("worktree", "prune", "--text")
    assert "removed: the branch genlock/A/gen1" in ran.out
    assert not (place.trees / "A.gen1").exists()


def test_a_successor_begins_at_its_predecessors_last_commit_if_policy_says_so(
    place: Place,
) -> None:
    added(place, "A")
    commit = place.commit("A", 1)
    with place.fleet() as fleet:
        fleet.force_release(task_id="A", take_over=True)
    added(place, "A", "s2")
    assert place.git("rev-parse", "genlock/A/gen2") == place.git("rev-parse", "main")
    assert place.run("worktree", "remove", "A", "-g", 2, "--force").code == 0
    with place.fleet() as fleet:
        fleet.force_release(task_id="A", take_over=True)
        fleet.set_policy(policy={"worktree_start": "predecessor"})
    added(place, "A", "s3")
    assert place.git("rev-parse", "genlock/A/gen3") == commit, "generation 2 has left nothing"
    (one,) = [one for one in listed(place) if one["generation"] == 3]
    assert (one["commits"], one["merged"]) == (1, False), "the work is not in the base yet"


def test_a_successor_whose_predecessor_was_merged_begins_at_the_base(place: Place) -> None:
    with place.fleet() as fleet:
        fleet.set_policy(policy={"worktree_start": "predecessor"})
    added(place, "A")
    place.commit("A", 1)
    place.git("merge", "--quiet", "genlock/A/gen1")
    place.git("commit", "--quiet", "--allow-empty", "-m", "Go on")
    with place.fleet() as fleet:
        fleet.force_release(task_id="A", take_over=True)
    added(place, "A", "s2")
    assert place.git("rev-parse", "genlock/A/gen2") == place.git("rev-parse", "main")


def test_a_predecessor_that_worked_elsewhere_is_found_in_the_remote_repository(
    place: Place, tmp_path: Path
) -> None:
    place.git("clone", "--quiet", "--bare", str(place.folder), str(tmp_path / "shared.git"))
    place.git("remote", "add", "origin", str(tmp_path / "shared.git"))
    with place.fleet() as fleet:
        fleet.set_policy(policy={"worktree_start": "predecessor"})
    added(place, "A")
    commit = place.commit("A", 1)
    place.git("push", "--quiet", "origin", "genlock/A/gen1")
    assert place.run("worktree", "remove", "A", "--force").code == 0
    with place.fleet() as fleet:
        fleet.force_release(task_id="A", take_over=True)
    added(place, "A", "s2")
    assert place.git("rev-parse", "genlock/A/gen2") == commit


def test_outside_of_a_repository_it_says_so(tmp_path: Path) -> None:
    place = Place(tmp_path / "repo", A={})
    ran = place.run("worktree", "list", GIT_CEILING_DIRECTORIES=str(tmp_path))
    assert ran.json() == {"worktrees": []}
    (place.folder / ".git").rename(place.folder / "gone")
    ran = place.run("worktree", "list")
    assert (ran.code, "is in no git repository" in ran.error()["message"]) == (2, True)
