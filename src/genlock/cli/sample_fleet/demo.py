"""`genlock demo`: the plan, the fleet, its accidents, and whether every promise was kept.

Five agents share one plan. One is killed at work. One is stopped until its lease has run out and
comes back as a zombie. An operator takes a task from a third and then adopts its result. One task
is split among several agents. At the end the demo checks the recorded events against everything
that Genlock promises.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from genlock.cli.sample_fleet.crew import Crew
from genlock.cli.sample_fleet.plan import CRASHED, DEMO_PLAN, RESERVED, ZOMBIE, short
from genlock.cli.sample_fleet.screen import BAD, WARNING, Line, Stage, ticker_line, when
from genlock.coordinator import Coordinator
from genlock.core.results import FeedEvent, Lineage, TaskState
from genlock.errors import StoreError
from genlock.open import connect
from genlock.transfer.verification import replay_faults

USERS = {"ada": "alice", "bob": "alice", "cleo": "alice", "dora": "ben", "erik": "ben"}
"""The agents, and on whose behalf each works."""

LONGEST_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.05


class Finding(Struct, frozen=True):
    """One guarantee and its violations; none if it held."""

    promise: str
    faults: list[str]


class Outcome(Struct, frozen=True):
    """The answer of `demo`."""

    held: bool
    """Was every promise kept?"""
    invariants: tuple[Finding, ...]
    lineages: tuple[Lineage, ...]
    seconds: float
    store: str | None = None
    """The store's URL, if it was kept."""


def play(folder: Path, stage: Stage, pace: float) -> Outcome:
    """Plays it in this folder."""
    began = time.monotonic()
    url = f"sqlite://{folder}/genlock.db"
    with connect(
        url, create=True, session_id="sess-desk", agent_id="olga", user_id="olga"
    ) as fleet:
        added = fleet.import_plan(source=DEMO_PLAN).added
        stage.tell(Line(f"olga imports a plan of {len(added)} tasks; five workers set out"))
        options = ["--steady", str(pace)]
        with Crew(url, USERS, kind="demo", options=options, logs=folder) as crew:
            story = Story(fleet, crew, stage.tell, pace)
            with stage.open():
                states = perform(fleet, crew, story, stage)
            complaints = crew.send_home()
        findings = (
            Finding(
                "all that was scripted has happened",
                story.missed if story.over else ["the time was over before it had"],
            ),
            *examine(fleet, states),
            Finding("every worker that was not killed ended in order", complaints),
        )
        lineages = _lineages(fleet)
    return Outcome(
        not any(finding.faults for finding in findings),
        findings,
        lineages,
        round(time.monotonic() - began, 1),
    )


def _lineages(fleet: Coordinator) -> tuple[Lineage, ...]:
    """Returns the lineages of tasks whose results were refused; none if they cannot be read, which
    the report says."""
    try:
        return tuple(fleet.get_lineage(task_id=task) for task in (ZOMBIE, RESERVED))
    except StoreError:
        return ()


def perform(fleet: Coordinator, crew: Crew, story: Story, stage: Stage) -> dict[str, TaskState]:
    """Follows the feed and shows it, until the plan is done or the time is over. Returns the last
    states of all tasks."""
    cursor: str | None = None
    tasks: list[str] = []
    states: dict[str, TaskState] = {}
    end = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < end:
        # States are read before events: when all tasks are done, the events read afterwards include
        # the last one.
        states = fleet.batch_get_states(task_ids=tasks)
        page = fleet.read_events(after=cursor, limit=500)
        cursor = page.cursor
        for happened in page.events:
            if happened.event_type == "TASK_ADDED":
                tasks.append(happened.id)
            story.hear(happened)
            line = ticker_line(happened)
            if line is not None:
                stage.tell(line, when(happened.event))
        story.go_on()
        stage.draw(states, crew.condition)
        if states and story.over and all(state.state == "COMPLETED" for state in states.values()):
            break
        time.sleep(LOOK_EVERY_SECONDS)
    return states


# The story: what is made to happen to the fleet, and when.
#
# No agent is told which task to take. A cue names an event of the feed; some time after it, the
# agent of that event has its accident. The accidents are real: signals to processes, and the calls
# that an operator would make.

Event = Mapping[str, Any]


class Cue(NamedTuple):
    """Calls `act` with this event of this task at this generation, some seconds after it
    happened."""

    task: str
    event_type: str
    generation: int
    seconds: float
    act: Callable[[Event], None]


class Story:
    """The cues that have not been played, and the acts that are scheduled."""

    def __init__(
        self, fleet: Coordinator, crew: Crew, tell: Callable[[Line], None], pace: float
    ) -> None:
        self._fleet = fleet
        self._crew = crew
        self._tell = tell
        self._pace = pace
        self.missed: list[str] = []
        self._soon: list[tuple[float, Cue, Event]] = []
        self._cues = [
            Cue(RESERVED, "CLAIM_ACQUIRED", 1, 0.8, self._reserve),
            Cue(RESERVED, "RESULT_REJECTED", 1, 1.2, self._adopt),
            Cue(CRASHED, "CLAIM_ACQUIRED", 1, 1.0, self._crash),
            # Right after a renewal: the worker is at its work then, and not inside a commit, where
            # it would stop the others too.
            Cue(ZOMBIE, "LEASE_RENEWED", 1, 0.15, self._fall_asleep),
            Cue(ZOMBIE, "CLAIM_ACQUIRED", 2, 1.0, self._wake_up),
            Cue(ZOMBIE, "RESULT_REJECTED", 1, 0.0, self._nothing_more),
        ]

    @property
    def over(self) -> bool:
        """Have all cues been played?"""
        return not self._cues and not self._soon

    def hear(self, happened: FeedEvent) -> None:
        """Schedules the cues that wait for this event."""
        event = happened.event
        for cue in list(self._cues):
            if (event.get("task_id"), happened.event_type, event.get("generation")) == (
                cue.task,
                cue.event_type,
                cue.generation,
            ):
                self._cues.remove(cue)
                self._soon.append((time.monotonic() + cue.seconds * self._pace, cue, event))
        if happened.event_type == "RESULT_ACCEPTED" and event["generation"] == 1:
            self._give_up(event["task_id"])

    def go_on(self) -> None:
        """Carries out the acts that are due."""
        due = [entry for entry in self._soon if entry[0] <= time.monotonic()]
        self._soon = [entry for entry in self._soon if entry not in due]
        for _, cue, event in due:
            cue.act(event)

    def _give_up(self, task: str) -> None:
        """Drops the cues of a task that was completed before its accident: a machine this slow
        needs a slower pace."""
        given_up = [cue for cue in self._cues if cue.task == task]
        self._cues = [cue for cue in self._cues if cue.task != task]
        if given_up:
            self.missed.append(f"{task} was completed before its accident")

    def _reserve(self, event: Event) -> None:
        self._fleet.assign_task(task_id=event["task_id"], agent_id="frank", take_over=True)

    def _adopt(self, event: Event) -> None:
        refused = self._fleet.list_refused_results(task_id=event["task_id"])
        self._fleet.adopt_result(task_id=event["task_id"], refused_id=refused[0].id, take_over=True)

    def _crash(self, event: Event) -> None:
        agent = event["agent_id"]
        self._crew.kill(agent)
        self._tell(Line(f"kill -9 {agent}, in the middle of {short(event['task_id'])}", BAD))

    def _fall_asleep(self, event: Event) -> None:
        agent = event["agent_id"]
        self._crew.stop(agent)
        self._tell(
            Line(
                f"kill -STOP {agent}, in the middle of {short(event['task_id'])}: it no longer "
                "renews",
                BAD,
            )
        )

    def _wake_up(self, event: Event) -> None:
        for agent in self._crew.stopped():
            self._crew.wake(agent)
            self._tell(
                Line(
                    f"kill -CONT {agent}: a zombie that believes it still holds "
                    f"{short(event['task_id'])}",
                    WARNING,
                )
            )

    def _nothing_more(self, event: Event) -> None:
        """Does nothing: the cue only waits for the refusal of the zombie's result."""


# The guarantees, checked against the recorded events


def read_all(fleet: Coordinator) -> Iterator[FeedEvent]:
    """Yields every event of the project, from the first."""
    cursor: str | None = None
    while True:
        page = fleet.read_events(after=cursor, limit=500)
        yield from page.events
        if not page.more:
            return
        cursor = page.cursor


def examine(fleet: Coordinator, states: Mapping[str, TaskState]) -> list[Finding]:
    """Checks all guarantees. Returns each with its violations."""
    replay = Finding(
        "replaying the events gives the records",
        [f"{fault.where}: {fault.what}" for fault in replay_faults(fleet.reader.store)],
    )
    try:
        feed = list(read_all(fleet))
    except StoreError as error:
        return [Finding("every event can be read", [str(error)]), replay]
    return [
        Finding(
            "every task is completed",
            [
                f"{name} is {state.state}"
                for name, state in states.items()
                if state.state != "COMPLETED"
            ],
        ),
        Finding(
            "each completed task has one accepted result, of its highest generation",
            list(_accepted_once(feed)),
        ),
        Finding("no generation was granted twice", list(_granted_twice(feed))),
        Finding("generations only rise", list(_fallen(feed))),
        Finding("nothing refused was lost", list(_lost(fleet, feed))),
        replay,
    ]


def _of(feed: Iterable[FeedEvent], event_type: str) -> Iterator[Mapping[str, Any]]:
    return (happened.event for happened in feed if happened.event_type == event_type)


def _accepted_once(feed: list[FeedEvent]) -> Iterator[str]:
    accepted = Counter(event["task_id"] for event in _of(feed, "RESULT_ACCEPTED"))
    yield from (
        f"{task} has {number} accepted results" for task, number in accepted.items() if number != 1
    )
    highest: dict[str, int] = {}
    for happened in feed:
        if happened.kind == "task":
            highest[happened.id] = max(
                highest.get(happened.id, 0), happened.event.get("generation", 0)
            )
    for event in _of(feed, "RESULT_ACCEPTED"):
        if event["generation"] != highest[event["task_id"]]:
            yield (
                f"{event['task_id']} took a result of generation {event['generation']}, its "
                f"highest is {highest[event['task_id']]}"
            )


def _granted_twice(feed: list[FeedEvent]) -> Iterator[str]:
    grants = Counter(
        (event["task_id"], event["generation"]) for event in _of(feed, "CLAIM_ACQUIRED")
    )
    yield from (
        f"{task} granted generation {generation} {n} times"
        for (task, generation), n in grants.items()
        if n > 1
    )


def _fallen(feed: list[FeedEvent]) -> Iterator[str]:
    last: dict[str, int] = {}
    for happened in feed:
        if happened.kind == "task":
            generation = happened.event.get("generation", 0)
            if generation < last.get(happened.id, 0):
                yield f"{happened.id} went from generation {last[happened.id]} to {generation}"
            last[happened.id] = generation


def _lost(fleet: Coordinator, feed: list[FeedEvent]) -> Iterator[str]:
    kept = {
        (result.task_id, result.digest): result
        for result in fleet.list_refused_results(include_settled=True)
    }
    for event in _of(feed, "RESULT_REJECTED"):
        result = kept.get((event["task_id"], event["digest"]))
        if result is None or not result.result_data:
            yield (
                f"{event['task_id']}: what {event['agent_id']} submitted at generation "
                f"{event['generation']} cannot be read any more"
            )
