"""The git guard, with real repositories, clones and pushes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import genlock
from genlock.coordinator import Coordinator
from genlock.errors import NotAllowed
from tests.cli.console import environment, run

GIT = {
    "GIT_AUTHOR_NAME": "ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "PYTHONPATH": os.pathsep.join(sys.path),
}
TASK = "A-001-log-in"


class Pushed:
    """How a push ended, and what the pusher read."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.ok, self.said = done.returncode == 0, done.stderr


class Shared:
    """A guarded repository, a plan beside it, and clones of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bare = folder, folder / "shared.git"
        self.plan = folder / "plan"
        self.plan.mkdir()
        assert run("init", cwd=self.plan).code == 0
        self.url = f"sqlite://{self.plan / '.genlock' / 'genlock.db'}"
        self.fleet: Coordinator = genlock.connect(self.url)
        self.fleet.add_tasks(tasks=[TASK, "B-001-feature", "C-001-docs"])
        self.git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        seed = self.clone("seed")
        self.commit(seed, "README", "hello")
        assert self.push(seed, "HEAD:refs/heads/main").ok
        installed = run("guard", "install", self.bare, cwd=self.plan)
        assert installed.code == 0, installed.err

    def git(self, where: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *words],
            cwd=where,
            env=environment(GIT),
            capture_output=True,
            text=True,
            timeout=60,
            check=check,
        )

    def clone(self, name: str) -> Path:
        self.git(self.folder, "clone", "--quiet", str(self.bare), name)
        return self.folder / name

    def commit(self, clone: Path, file: str, text: str) -> str:
        (clone / file).write_text(text)
        self.git(clone, "add", "--all")
        self.git(clone, "commit", "--quiet", "--message", f"write {file}")
        return self.git(clone, "rev-parse", "HEAD").stdout.strip()

    def push(self, clone: Path, *refs: str, force: bool = False) -> Pushed:
        words = ["push", "--quiet", *(["--force"] if force else []), "origin", *refs]
        return Pushed(self.git(clone, *words, check=False))

    def claim(self, session: str, task: str = TASK) -> int:
        granted = self.fleet.claim_task(
            task_id=task, session_id=session, agent_id=session, lease_duration_seconds=300
        )
        return granted.require().generation

    def submit(self, session: str, generation: int, commit: str, task: str = TASK) -> str:
        answer = self.fleet.submit_result(
            task_id=task,
            session_id=session,
            agent_id=session,
            generation=generation,
            work_product_ref=f"git:{commit}",
        )
        return answer.reason.value

    def head(self, branch: str) -> str:
        done = self.git(self.bare, "rev-parse", "--verify", f"refs/heads/{branch}", check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    def work(self, name: str, generation: int, task: str = TASK) -> tuple[Path, str, str]:
        """A clone with one commit on the branch of this generation."""
        clone = self.clone(name)
        branch = f"genlock/{task}/gen{generation}"
        self.git(clone, "switch", "--quiet", "--create", branch)
        return clone, branch, self.commit(clone, f"{name}.txt", name)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path)
    yield made
    made.fleet.close()


def test_the_holder_pushes_its_branch_and_its_accepted_commit_reaches_main(shared: Shared) -> None:
    generation = shared.claim("ada")
    clone, branch, commit = shared.work("ada", generation)

    assert shared.push(clone, branch).ok
    early = shared.push(clone, f"{branch}:main")
    assert not early.ok
    assert "NOT_ACCEPTED: this is not the commit of an accepted result" in early.said
    assert shared.submit("ada", generation, commit) == "ACCEPTED"
    assert shared.push(clone, f"{branch}:main").ok
    assert shared.head("main") == commit


def test_a_zombie_s_push_is_refused_and_says_what_happened_and_what_to_type(shared: Shared) -> None:
    old = shared.claim("ada")
    zombie, branch, _ = shared.work("ada", old)
    assert shared.push(zombie, branch).ok
    before = shared.head(branch)
    shared.fleet.force_release(task_id=TASK, take_over=True)
    new = shared.claim("bob")
    shared.commit(zombie, "late.txt", "late")

    refused = shared.push(zombie, branch)
    assert not refused.ok
    assert (
        f"genlock: STALE_GENERATION: {TASK} has moved on to generation {new}: an earlier one no "
        "longer counts. It is held by bob. Stop working on this task, and ask for the next one"
    ) in refused.said.replace("remote: ", "")
    assert "genlock next" in refused.said
    assert shared.head(branch) == before
    assert not shared.push(zombie, f"{branch}:main").ok
    assert not shared.push(zombie, branch, force=True).ok


def test_a_branch_is_frozen_at_the_submitted_commit(shared: Shared) -> None:
    generation = shared.claim("ada")
    clone, branch, commit = shared.work("ada", generation)
    assert shared.submit("ada", generation, commit) == "ACCEPTED"
    after = shared.commit(clone, "more.txt", "more")

    refused = shared.push(clone, branch)
    assert not refused.ok
    assert f"FROZEN: {TASK} was submitted, so its branch is frozen at {commit[:12]}" in refused.said
    assert shared.push(clone, f"{commit}:refs/heads/{branch}").ok
    assert not shared.push(clone, f"{after}:main").ok, "it was not submitted"
    assert shared.push(clone, f"{commit}:main").ok


def test_a_branch_that_was_ahead_of_its_submission_reaches_main_only_at_the_submitted_commit(
    shared: Shared,
) -> None:
    generation = shared.claim("ada")
    clone, branch, commit = shared.work("ada", generation)
    beyond = shared.commit(clone, "more.txt", "more")
    assert shared.push(clone, branch).ok
    assert shared.submit("ada", generation, commit) == "ACCEPTED"

    refused = shared.push(clone, f"{beyond}:main")
    assert not refused.ok
    assert f"NOT_ACCEPTED: this is not the commit of an accepted result of {TASK}: that is " in (
        refused.said
    )
    assert shared.push(clone, f"{commit}:refs/heads/{branch}", force=True).ok
    assert shared.push(clone, f"{commit}:main").ok


@pytest.mark.parametrize(
    ("branch", "reason"),
    [
        (f"genlock/{TASK}/gen2", "FUTURE_GENERATION"),
        (f"genlock/{TASK}/gen0", "STALE_GENERATION"),
        ("genlock/no-such-task/gen1", "UNKNOWN_TASK"),
        ("genlock/C-001-docs/gen0", "NO_CLAIM"),
        ("genlock/elsewhere", "is kept for branches genlock/<task>/gen<N>"),
    ],
)
def test_a_branch_of_no_live_claim_is_refused(shared: Shared, branch: str, reason: str) -> None:
    shared.claim("ada")
    clone = shared.clone("ada")
    commit = shared.commit(clone, "a", "a")

    refused = shared.push(clone, f"{commit}:refs/heads/{branch}")
    assert not refused.ok
    assert reason in refused.said
    assert shared.head(branch) == ""


def test_a_branch_of_a_claim_whose_lease_is_over_is_refused(shared: Shared) -> None:
    shared.fleet.set_policy(limits={"min_lease_duration_seconds": 1})
    generation = (
        shared.fleet.claim_task(
            task_id=TASK, session_id="ada", agent_id="ada", lease_duration_seconds=1
        )
        .require()
        .generation
    )
    clone, branch, _ = shared.work("ada", generation)
    subprocess.run(["sleep", "1.1"], check=True)

    refused = shared.push(clone, branch)
    assert not refused.ok
    assert f"CLAIM_OVERDUE: the lease of {TASK} is over. Claim it again" in refused.said


def test_a_result_that_was_reset_is_not_accepted_any_more(shared: Shared) -> None:
    generation = shared.claim("ada")
    clone, branch, commit = shared.work("ada", generation)
    assert shared.push(clone, branch).ok
    assert shared.submit("ada", generation, commit) == "ACCEPTED"
    shared.fleet.reset_task(task_id=TASK)

    refused = shared.push(clone, f"{branch}:main")
    assert not refused.ok
    assert "is not in the history of an accepted result" in refused.said


def accepted(shared: Shared, name: str, task: str) -> tuple[Path, str]:
    """The commit of an accepted result, on its branch in the shared repository."""
    generation = shared.claim(name, task)
    clone, branch, commit = shared.work(name, generation, task)
    assert shared.push(clone, branch).ok
    assert shared.submit(name, generation, commit, task) == "ACCEPTED"
    return clone, commit


def test_a_clean_merge_of_accepted_work_is_taken_and_one_with_more_in_it_is_not(
    shared: Shared,
) -> None:
    _, first = accepted(shared, "ada", TASK)
    clone, second = accepted(shared, "bob", "C-001-docs")
    shared.git(clone, "fetch", "--quiet")
    shared.git(clone, "switch", "--quiet", "--detach", first)
    shared.git(clone, "merge", "--quiet", "--no-edit", second)
    merge = shared.git(clone, "rev-parse", "HEAD").stdout.strip()
    (clone / "smuggled.txt").write_text("x")
    shared.git(clone, "add", "--all")
    shared.git(clone, "commit", "--quiet", "--amend", "--no-edit")
    smuggled = shared.git(clone, "rev-parse", "HEAD").stdout.strip()

    refused = shared.push(clone, f"{smuggled}:main")
    assert not refused.ok
    assert f"{smuggled[:12]} is not in the history of an accepted result" in refused.said
    assert shared.push(clone, f"{merge}:main").ok
    assert shared.head("main") == merge


def test_a_protected_branch_is_neither_deleted_nor_rewound(shared: Shared) -> None:
    clone, commit = accepted(shared, "ada", TASK)
    assert shared.push(clone, f"{commit}:main").ok
    shared.git(shared.bare, "config", "receive.denyDeleteCurrent", "ignore")

    assert "is not deleted" in shared.push(clone, ":main").said
    rewound = shared.push(clone, f"{commit}^:refs/heads/main", force=True)
    assert "only moves forward" in rewound.said
    assert shared.head("main") == commit


def test_other_branches_and_tags_are_taken_as_ever(shared: Shared) -> None:
    clone = shared.clone("ada")
    shared.commit(clone, "a", "a")
    assert shared.push(clone, "HEAD:refs/heads/try").ok
    assert shared.push(clone, "HEAD:refs/tags/v1").ok


def test_without_a_coordinator_nothing_is_taken(shared: Shared) -> None:
    generation = shared.claim("ada")
    clone, branch, _ = shared.work("ada", generation)
    shared.fleet.close()
    os.rename(shared.plan / ".genlock", shared.plan / "gone")

    refused = shared.push(clone, branch)
    assert not refused.ok
    assert "the push was refused, because the coordinator could not be asked" in refused.said
    assert shared.head(branch) == ""


def test_a_hook_of_others_is_not_touched(shared: Shared, tmp_path: Path) -> None:
    other = tmp_path / "other.git"
    shared.git(tmp_path, "init", "--quiet", "--bare", str(other))
    hook = other / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")

    refused = run("guard", "install", other, cwd=shared.plan)
    assert refused.code == 4
    assert "is there already and is not Genlock's" in refused.err
    assert hook.read_text() == "#!/bin/sh\nexit 0\n"
    assert not (other / "hooks" / "post-receive").exists()
    assert run("guard", "install", other, "--replace", cwd=shared.plan).code == 0
    removed = run("guard", "remove", other, cwd=shared.plan).json()["removed"]
    assert [Path(hook).name for hook in removed] == ["update", "post-receive"]
    assert not hook.exists()


def test_a_folder_that_is_no_repository_is_refused(shared: Shared, tmp_path: Path) -> None:
    refused = run("guard", "install", tmp_path, cwd=shared.plan)
    assert refused.code == 2
    assert "is no git repository" in refused.err


def test_a_push_that_became_stale_meanwhile_is_reported(shared: Shared) -> None:
    generation = shared.claim("ada")
    clone, branch, commit = shared.work("ada", generation)
    assert shared.push(clone, branch).ok
    shared.fleet.force_release(task_id=TASK, take_over=True)
    moved = f"{'0' * 40} {commit} refs/heads/{branch}\n"
    told = subprocess.run(
        [str(shared.bare / "hooks" / "post-receive")],
        cwd=shared.bare,
        env=environment(GIT),
        input=moved,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"refs/heads/{branch} became stale while it was pushed" in told.stderr
    assert "STALE_GENERATION" in told.stderr


_REASON = re.compile(r"genlock: ([A-Z][A-Z_]+):")


class Race:
    """Agents that push to the branches of their generations and to main, while generations move."""

    def __init__(self, shared: Shared, agents: int) -> None:
        self.shared = shared
        self.begin = shared.head("main")
        self.clones = [shared.clone(f"agent-{number}") for number in range(agents)]
        self.counts: Counter[str] = Counter()
        self.accepted: set[str] = set()
        """The commits of accepted results."""

    def run(self, turns: int) -> None:
        """Every agent so many turns of two pushes, and then one of them alone."""
        with ThreadPoolExecutor(len(self.clones)) as pool:
            for done in [pool.submit(self._agent, n, turns) for n in range(len(self.clones))]:
                done.result()
        self._agent(0, 1)

    def _agent(self, number: int, turns: int) -> None:
        shared, clone, name = self.shared, self.clones[number], f"agent-{number}"
        for turn in range(turns):
            task = (TASK, "C-001-docs")[turn % 2]
            shared.fleet.force_release(task_id=task, take_over=True)
            answer = shared.fleet.claim_task(task_id=task, session_id=name, agent_id=name)
            generation = answer.claim.generation if answer.claim is not None else turn + 1
            shared.git(clone, "fetch", "--quiet", "origin", "main")
            shared.git(clone, "reset", "--quiet", "--hard", "FETCH_HEAD")
            commit = shared.commit(clone, f"{name}.txt", f"{turn}")
            branch = f"refs/heads/genlock/{task}/gen{generation}"
            self._count("to its branch", shared.push(clone, f"{commit}:{branch}", force=True))
            if turn % 3 == 0 and shared.submit(name, generation, commit, task) == "ACCEPTED":
                self.accepted.add(commit)
            self._count("to main", shared.push(clone, f"{commit}:refs/heads/main"))
            if turn % 3 == 0:
                with suppress(NotAllowed):  # somebody else has done it
                    shared.fleet.reset_task(task_id=task)

    def _count(self, where: str, pushed: Pushed) -> None:
        reason = _REASON.search(pushed.said)
        if pushed.ok:
            self.counts[f"{where}: taken"] += 1
            self.counts["taken, and stale at the look afterwards"] += "became stale" in pushed.said
        elif reason is not None:
            self.counts[f"{where}: {reason[1]}"] += 1
        elif "is not in the history of an accepted result" in pushed.said:
            self.counts[f"{where}: no accepted result in its history"] += 1
        else:
            self.counts[f"{where}: git itself, main had moved"] += 1

    @property
    def pushes(self) -> int:
        return sum(number for what, number in self.counts.items() if what.startswith("to "))

    @property
    def stale_on_main(self) -> set[str]:
        """Commits on main that are no accepted result's."""
        shown = self.shared.git(self.shared.bare, "rev-list", "main", f"^{self.begin}").stdout
        return set(shown.split()) - self.accepted

    def table(self) -> str:
        lines = [f"{number:5}  {what}" for what, number in sorted(self.counts.items())]
        merged = self.shared.git(self.shared.bare, "rev-list", "--count", f"{self.begin}..main")
        lines.append(f"{int(merged.stdout):5}  commits on main, all accepted")
        lines.append(f"{len(self.stale_on_main):5}  stale commits on main")
        return "\n".join(["", f"{self.pushes:5}  pushes by {len(self.clones)} agents", *lines])


def test_while_generations_move_no_stale_commit_reaches_main(shared: Shared) -> None:
    race = Race(shared, agents=3)
    race.run(turns=3)
    assert race.pushes == 20
    assert race.stale_on_main == set()
    assert race.counts["to main: taken"] > 0, "the last agent was alone"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_of_500_pushes_while_generations_move_no_stale_commit_reaches_main(shared: Shared) -> None:
    race = Race(shared, agents=8)
    race.run(turns=32)
    print(race.table())
    assert race.pushes == 514
    assert race.stale_on_main == set()
    assert race.counts["to main: taken"] > 0
    assert race.counts["to its branch: STALE_GENERATION"] > 0
