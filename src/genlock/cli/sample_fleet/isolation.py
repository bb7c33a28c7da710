"""`genlock demo --isolation`: five agents, one repository, and a guard before it.

Each agent works in a worktree of its own and pushes the branch of its generation. One is stopped
until its lease has run out; when it comes back, the repository refuses its push. One task needs a
person: it reaches `main` only after olga has approved it. At the end the demo checks that `main`
has accepted commits and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from genlock.cli.sample_fleet.coder import OWN_SETTINGS, PUSHES, git, push
from genlock.cli.sample_fleet.crew import Crew
from genlock.cli.sample_fleet.demo import (
    LOOK_EVERY_SECONDS,
    USERS,
    Finding,
    examine,
    read_all,
)
from genlock.cli.sample_fleet.plan import ISOLATION_PLAN, REVIEWED, ZOMBIE, short
from genlock.cli.sample_fleet.screen import (
    BAD,
    GOOD,
    WARNING,
    Line,
    Stage,
    ticker_line,
    when,
)
from genlock.coordinator import Coordinator
from genlock.core.results import FeedEvent, Lineage, TaskState
from genlock.errors import GenlockError
from genlock.isolation.guard import install
from genlock.isolation.survey import prune
from genlock.isolation.worktrees import Worktrees
from genlock.open import connect

_OLGA: Final = ("-c", "user.name=olga", "-c", "user.email=olga@example.org")
_ACCEPTED: Final = "accepted"
_EARLY: Final = "early"
_LONGEST_SECONDS: Final = 100.0
"""The time limit, for a busy machine; usually it takes less than half a minute."""
_HELD_SECONDS: Final = 0.8
"""The duration of a review."""


class IsolationOutcome(Struct, frozen=True):
    """The answer of `demo --isolation`."""

    held: bool
    invariants: tuple[Finding, ...]
    lineages: tuple[Lineage, ...]
    main: tuple[str, ...]
    """The merges into main, the newest first."""
    refused_pushes: tuple[dict[str, Any], ...]
    seconds: float
    store: str | None = None
    """The store's folder, if it was kept."""


def play_isolation(folder: Path, stage: Stage, pace: float) -> IsolationOutcome:
    """Plays it in this folder."""
    if shutil.which("git") is None:
        raise GenlockError("git is not installed, and this demo needs it")
    os.environ.update(OWN_SETTINGS)
    began = time.monotonic()
    url = f"sqlite://{folder}/genlock.db"
    with connect(
        url, create=True, session_id="sess-desk", agent_id="olga", user_id="olga"
    ) as fleet:
        fleet.import_plan(source=ISOLATION_PLAN)
        repository = Repository(folder, url)
        stage.tell(Line("olga guards shared.git: main takes accepted commits only"))
        options = ["--steady", str(pace), "--folder", str(folder)]
        with Crew(url, USERS, kind="demo", options=options, logs=folder, program="coder") as crew:
            scene = Scene(fleet, crew, repository, stage, pace)
            with stage.open():
                states = scene.perform()
            complaints = crew.send_home()
        pruned = prune(repository.trees, lambda tasks: fleet.batch_get_states(task_ids=tasks))
        findings = (
            Finding("all that was scripted has happened", scene.missing()),
            Finding("the zombie's push was refused: STALE_GENERATION", scene.not_refused()),
            Finding("every commit on main is of an accepted result", repository.faults(fleet)),
            Finding("each generation worked in a worktree of its own", list(_shared_places(fleet))),
            Finding(
                "no worktree is left, and none had uncommitted work",
                [f"{one.path} was kept" for one in pruned.kept],
            ),
            *examine(fleet, states),
            Finding("every worker ended in order", complaints),
        )
        lineages = (fleet.get_lineage(task_id=ZOMBIE),)
        main = tuple(repository.log())
    return IsolationOutcome(
        not any(finding.faults for finding in findings),
        findings,
        lineages,
        main,
        tuple(each for each in scene.pushes if not each["ok"]),
        round(time.monotonic() - began, 1),
    )


class Repository:
    """The shared repository with its guard, the clone that has the worktrees, and olga's clone, in
    which she merges."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.bare, self._desk = folder, folder / "shared.git", folder / "desk"
        git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        git(folder, "clone", "--quiet", str(self.bare), str(self._desk))
        git(self._desk, "switch", "--quiet", "--create", "main")
        git(self._desk, *_OLGA, "commit", "--quiet", "--allow-empty", "--message", "Begin")
        git(self._desk, "push", "--quiet", "origin", "main")
        git(folder, "clone", "--quiet", str(self.bare), str(folder / "shop"))
        self._first = git(self._desk, "rev-parse", "HEAD")
        command = [sys.executable, "-m", "genlock.cli"]
        install(self.bare, ("main",), command, ["--url", url])
        self.trees = Worktrees.around(folder / "shop", folder / "worktrees")

    def merge(self, task: str, commit: str) -> tuple[bool, str]:
        """Merges this commit and pushes main. Returns whether git accepted it, and why not."""
        git(self._desk, "fetch", "--quiet", "origin")
        git(self._desk, "reset", "--quiet", "--hard", "origin/main")
        author = git(self._desk, "log", "--max-count=1", "--format=%an", commit)
        message = f"Merge {task}, by {author}"
        git(self._desk, *_OLGA, "merge", "--quiet", "--no-ff", "--message", message, commit)
        return push(self._desk, "HEAD:refs/heads/main")

    def log(self) -> list[str]:
        """The merges into main, the newest first."""
        words = ("log", "--first-parent", "--format=%h %s", f"{self._first}..main")
        return git(self.bare, *words).splitlines()

    def faults(self, fleet: Coordinator) -> list[str]:
        """Returns the commits on main that belong to no accepted result."""
        accepted = {
            event["reference"].removeprefix("git:") for event in _events(fleet, "RESULT_ACCEPTED")
        }
        shown = git(self.bare, "rev-list", "--no-merges", "main", f"^{self._first}").split()
        return [
            *(f"{commit[:12]} was never accepted" for commit in set(shown) - accepted),
            *(f"{commit[:12]} is accepted and not on main" for commit in accepted - set(shown)),
        ]


class Scene:
    """The scene: its agents, and the staged accidents."""

    def __init__(
        self, fleet: Coordinator, crew: Crew, repository: Repository, stage: Stage, pace: float
    ) -> None:
        self._fleet, self._crew, self._repository = fleet, crew, repository
        self._stage, self._pace = stage, pace
        self.pushes: list[dict[str, Any]] = []
        self._read = 0
        self._todo = {"stop the zombie", "wake the zombie", "push what nobody has approved"}
        self._merged: set[str] = set()
        self._soon: list[tuple[float, Any, Mapping[str, Any]]] = []
        self._olga = ThreadPoolExecutor(1)
        """The thread in which olga pushes one commit after the other, while the picture moves."""
        self._under_way: list[tuple[str, str, Future[tuple[bool, str]]]] = []

    def perform(self) -> dict[str, TaskState]:
        """Follows the feed and the pushes until all is done, or the time is over."""
        cursor: str | None = None
        tasks: list[str] = []
        states: dict[str, TaskState] = {}
        end = time.monotonic() + _LONGEST_SECONDS
        while time.monotonic() < end:
            states = self._fleet.batch_get_states(task_ids=tasks)
            page = self._fleet.read_events(after=cursor, limit=500)
            cursor = page.cursor
            for happened in page.events:
                if happened.event_type == "TASK_ADDED":
                    tasks.append(happened.id)
                line = ticker_line(happened)
                if line is not None:
                    self._stage.tell(line, when(happened.event))
                self._hear(happened)
            self._read_pushes()
            self._act()
            self._tell_merges()
            self._stage.draw(states, self._crew.condition)
            if states and self._is_over(states):
                break
            time.sleep(LOOK_EVERY_SECONDS)
        return states

    def missing(self) -> list[str]:
        """Returns the expected events that have not happened."""
        return [f"nothing came of: {one}" for one in sorted(self._todo)]

    def not_refused(self) -> list[str]:
        """Returns the faults in the refusal of the zombie's push."""
        zombies = [each for each in self.pushes if each["task"] == ZOMBIE and not each["ok"]]
        if not zombies:
            return ["no push of it was refused"]
        return [each["reason"] for each in zombies if each["reason"] != "STALE_GENERATION"]

    def _is_over(self, states: Mapping[str, TaskState]) -> bool:
        done = all(state.state == "COMPLETED" for state in states.values())
        refused = any(each["task"] == ZOMBIE and not each["ok"] for each in self.pushes)
        rejected = states[ZOMBIE].refused_results > 0 if ZOMBIE in states else False
        return done and refused and rejected and not self._todo and self._merged == set(states)

    def _hear(self, happened: FeedEvent) -> None:
        event, task, kind = happened.event, happened.id, happened.event_type
        generation = event.get("generation")
        if (task, kind, generation) == (ZOMBIE, "LEASE_RENEWED", 1):
            self._once("stop the zombie", 0.1, self._fall_asleep, event)
        elif (task, kind) == (ZOMBIE, "CLAIM_ACQUIRED") and generation != 1:
            self._once("wake the zombie", 1.0, self._wake_up, event)
        elif (task, kind) == (REVIEWED, "CONVERGENCE_ESCALATED"):
            self._once("push what nobody has approved", 0.4, self._merge_early, event)
        elif kind == "RESULT_ACCEPTED":
            self._soon.append((0.0, self._merge, event))

    def _once(self, what: str, seconds: float, act: Any, event: Mapping[str, Any]) -> None:
        if what in self._todo:
            self._todo.remove(what)
            self._soon.append((time.monotonic() + seconds * self._pace, act, event))

    def _act(self) -> None:
        due = [each for each in self._soon if each[0] <= time.monotonic()]
        self._soon = [each for each in self._soon if each not in due]
        for _, act, event in due:
            act(event)

    def _fall_asleep(self, event: Mapping[str, Any]) -> None:
        agent = event["agent_id"]
        self._crew.stop(agent)
        self._stage.tell(Line(f"kill -STOP {agent}, in the middle of {short(ZOMBIE)}", BAD))

    def _wake_up(self, event: Mapping[str, Any]) -> None:
        for agent in self._crew.stopped():
            self._crew.wake(agent)
            text = f"kill -CONT {agent}: a zombie, with work on {short(ZOMBIE)} to push"
            self._stage.tell(Line(text, WARNING))

    def _merge_early(self, event: Mapping[str, Any]) -> None:
        self._push_to_main(_EARLY, event)
        self._soon.append((time.monotonic() + _HELD_SECONDS * self._pace, self._approve, event))

    def _merge(self, event: Mapping[str, Any]) -> None:
        self._push_to_main(_ACCEPTED, event)

    def _push_to_main(self, why: str, event: Mapping[str, Any]) -> None:
        task, commit = event["task_id"], str(event["reference"]).removeprefix("git:")
        future = self._olga.submit(self._repository.merge, task, commit)
        self._under_way.append((why, task, future))

    def _approve(self, event: Mapping[str, Any]) -> None:
        if any(why == _EARLY for why, _, _ in self._under_way):  # she has not pushed yet
            self._soon.append((time.monotonic() + LOOK_EVERY_SECONDS, self._approve, event))
            return
        [review] = [one for one in self._fleet.list_reviews() if one.task_id == REVIEWED]
        self._fleet.approve_review(
            task_id=REVIEWED, generation=review.generation, digest=review.digest
        )

    def _tell_merges(self) -> None:
        for each in [each for each in self._under_way if each[2].done()]:
            self._under_way.remove(each)
            why, task, future = each
            taken, reason = future.result()
            if taken and why == _ACCEPTED:
                self._merged.add(task)
                self._stage.tell(Line(f"olga merges {short(task)} into main", GOOD))
                continue
            if taken:
                self._todo.add("a refusal of what nobody has approved")
            told = "taken" if taken else f"refused, {reason}"
            early = f"olga pushes {short(task)} to main, not approved: {told}"
            self._stage.tell(Line(early if why == _EARLY else f"{short(task)}: {told}", BAD))

    def _read_pushes(self) -> None:
        file = self._repository.folder / PUSHES
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        for line in lines[self._read :]:
            told = json.loads(line)
            self.pushes.append(told)
            name = f"genlock/{short(told['task'])}…/gen{told['generation']}"
            if told["ok"]:
                self._stage.tell(Line(f"{told['agent']} pushes {name}"))
            else:
                text = f"{told['agent']} pushes {name}: refused, {told['reason']}"
                self._stage.tell(Line(text, BAD))
        self._read = len(lines)


def _events(fleet: Coordinator, kind: str) -> Iterator[Mapping[str, Any]]:
    return (happened.event for happened in read_all(fleet) if happened.event_type == kind)


def _shared_places(fleet: Coordinator) -> Iterator[str]:
    """Yields generations that reported no worktree, or the same one as another generation."""
    places: dict[str, tuple[str, int]] = {}
    told = set()
    for event in _events(fleet, "PROGRESS_REPORTED"):
        path, owner = event.get("worktree_path"), (event["task_id"], event["generation"])
        if path and places.setdefault(path, owner) != owner:
            yield f"{path} was used by {places[path]} and {owner}"
        told |= {owner} if path else set()
    for event in _events(fleet, "RESULT_ACCEPTED"):
        owner = (event["task_id"], event["generation"])
        if owner not in told:
            yield f"{owner[0]} at generation {owner[1]} reported none"
