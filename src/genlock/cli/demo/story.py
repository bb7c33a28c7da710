"""The story: what is made to happen to the fleet, and when.

Nobody is told which task to take. A cue names an event of the feed; some time after it, the worker that the event is about has its
accident, whoever that is. The accidents are real: signals to processes, and the calls that an operator would make.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from genlock.cli.demo.crew import Crew
from genlock.cli.demo.plan import CRASHED, RESERVED, ZOMBIE, short
from genlock.cli.demo.words import BAD, WARNING, Line
from genlock.coordinator import Coordinator
from genlock.core.results import FeedEvent

Event = Mapping[str, Any]


class Cue(NamedTuple):
    """So many seconds after this event of this task at this generation, `act` is called with the event."""

    task: str
    event_type: str
    generation: int
    seconds: float
    act: Callable[[Event], None]


class Story:
    """The cues that have not been played, and what is to be done soon."""

    def __init__(self, fleet: Coordinator, crew: Crew, tell: Callable[[Line], None], pace: float) -> None:
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
            # Right after a renewal: the worker is at its work then, and not inside a commit, where it would stop the others too.
            Cue(ZOMBIE, "LEASE_RENEWED", 1, 0.15, self._fall_asleep),
            Cue(ZOMBIE, "CLAIM_ACQUIRED", 2, 1.0, self._wake_up),
            Cue(ZOMBIE, "RESULT_REJECTED", 1, 0.0, self._nothing_more),
        ]

    @property
    def over(self) -> bool:
        """Has everything happened that was to happen?"""
        return not self._cues and not self._soon

    def hear(self, happened: FeedEvent) -> None:
        """Looks whether the event is one that a cue waits for."""
        event = happened.event
        for cue in list(self._cues):
            if (event.get("task_id"), happened.event_type, event.get("generation")) == (cue.task, cue.event_type, cue.generation):
                self._cues.remove(cue)
                self._soon.append((time.monotonic() + cue.seconds * self._pace, cue, event))
        if happened.event_type == "RESULT_ACCEPTED" and event["generation"] == 1:
            self._give_up(event["task_id"])

    def go_on(self) -> None:
        """Does what is due."""
        due = [entry for entry in self._soon if entry[0] <= time.monotonic()]
        self._soon = [entry for entry in self._soon if entry not in due]
        for _, cue, event in due:
            cue.act(event)

    def _give_up(self, task: str) -> None:
        """The task was done before anything could happen to it: so slow a machine needs a slower pace."""
        given_up = [cue for cue in self._cues if cue.task == task]
        self._cues = [cue for cue in self._cues if cue.task != task]
        if given_up:
            self.missed.append(f"{task} was completed before its accident")

    def _reserve(self, event: Event) -> None:
        self._fleet.assign_task(task_id=event["task_id"], agent_id="frank")

    def _adopt(self, event: Event) -> None:
        refused = self._fleet.list_refused_results(task_id=event["task_id"])
        self._fleet.adopt_result(task_id=event["task_id"], refused_id=refused[0].id)

    def _crash(self, event: Event) -> None:
        agent = event["agent_id"]
        self._crew.kill(agent)
        self._tell(Line(f"kill -9 {agent}, in the middle of {short(event['task_id'])}", BAD))

    def _fall_asleep(self, event: Event) -> None:
        agent = event["agent_id"]
        self._crew.stop(agent)
        self._tell(Line(f"kill -STOP {agent}, in the middle of {short(event['task_id'])}: it no longer renews", BAD))

    def _wake_up(self, event: Event) -> None:
        for agent in self._crew.stopped():
            self._crew.wake(agent)
            self._tell(Line(f"kill -CONT {agent}: a zombie that believes it still holds {short(event['task_id'])}", WARNING))

    def _nothing_more(self, event: Event) -> None:
        """The zombie's result was refused: that is all we waited for."""
