"""A plan: its tasks read into definitions (GC 3.7), and the graph of who waits for whom.

    project: ecommerce-rebuild
    tracks:
      A:                                  # tasks by track …
        - id: A-001-core-framework
      B:                                  # … or with what the track is for
        purpose: Data Layer
        tasks: [{id: B-001-schema-design}]
    tasks:                                # those whose id names no track
      - id: write-the-announcement
    x-anything: ignored                   # a place for YAML anchors

Reading finds every fault of a plan before anything is written. Whether dependencies exist and form no cycle can only be
said together with the tasks that are there already: `check_graph`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from genlock.core.definition import Definition, check_text, define_task, describe_value, examine_task
from genlock.core.ids import LONGEST_ID
from genlock.core.model import Task
from genlock.core.names import check_project, check_track, shown
from genlock.core.policy import STANDARD_TRACKS
from genlock.errors import BadArgument, PlanInvalid

__all__ = ["Definition", "Plan", "check_graph", "define_task", "find_cycle", "find_cycles", "read_plan"]

MOST_CYCLES: Final = 10
_LONGEST_PATH: Final = 20
_WAITS_FOR = " → "


class Plan(NamedTuple):
    """A plan that has been read; `tracks` is its table of tracks and their purposes, if it gives one."""

    project: str | None
    tracks: dict[str, str] | None
    tasks: tuple[Definition, ...]


def read_plan(source: Mapping[str, Any], *, hierarchical: bool = False, lines: Mapping[str, int] | None = None) -> Plan:
    """The plan in this mapping, or PlanInvalid with every fault and where it is.

    `lines` says in which line of its text a place such as `tracks.A[2]` stands, for whoever knows.
    """
    if not isinstance(source, Mapping):
        raise PlanInvalid([f"a plan is a mapping with project, tracks and tasks, not {describe_value(source)}"])
    reading = _Reading(hierarchical, lines or {})
    reading.read(source)
    if reading.faults:
        raise PlanInvalid(reading.faults)
    return Plan(reading.project, reading.table(), tuple(reading.tasks))


def check_graph(tasks: Iterable[Task], known: Collection[str], edges_of_known: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """The faults of these tasks' dependencies and parents, `known` being the ids of tasks that exist already.

    `edges_of_known` says what existing tasks wait for: their dependencies and their children. What it says of a task that
    is among `tasks` does not count, for that one is about to be defined anew.
    """
    tasks = list(tasks)
    exists = {task.id for task in tasks}.union(known)
    faults: list[str] = []
    for task in tasks:
        faults += [f"{task.id}: depends on {other!r}, which does not exist" for other in task.depends_on if other not in exists]
        if task.parent is not None and task.parent not in exists:
            faults.append(f"{task.id}: its parent {task.parent!r} does not exist")
    cycles = find_cycles(_waits(tasks, edges_of_known or {}))
    return faults + [f"these wait for each other: {_path(cycle)}" for cycle in islice(cycles, MOST_CYCLES)]


def find_cycle(edges: Mapping[str, Collection[str]]) -> tuple[str, ...] | None:
    """A path along the edges from an id back to itself, if there is one."""
    return next(find_cycles(edges), None)


def find_cycles(edges: Mapping[str, Collection[str]]) -> Iterator[tuple[str, ...]]:
    """Cycles that have no id in common; looked for one by one, as they are asked for."""
    while True:
        sorter = TopologicalSorter(edges)
        try:
            sorter.prepare()
        except CycleError as error:
            cycle = _shortest(edges, error.args[1])
        else:
            return
        yield cycle
        # What can be put in order is on no cycle, and what was shown is not shown again.
        settled = set(cycle)
        while ready := sorter.get_ready():
            settled.update(ready)
            sorter.done(*ready)
        edges = {waiting: others for waiting, others in edges.items() if waiting not in settled}


def _waits(tasks: list[Task], edges_of_known: Mapping[str, Collection[str]]) -> dict[str, Collection[str]]:
    """Who waits for whom: a task for its dependencies, a parent for its children."""
    waits = {**edges_of_known, **{task.id: task.depends_on for task in tasks}}
    children: dict[str, list[str]] = {}
    for task in tasks:
        if task.parent is not None:
            children.setdefault(task.parent, []).append(task.id)
    return waits | {parent: [*waits.get(parent, ()), *below] for parent, below in children.items()}


def _shortest(edges: Mapping[str, Collection[str]], cycle: list[str]) -> tuple[str, ...]:
    """The shortest way from the cycle's lowest id back to it that uses no other ids: depth-first search finds long ones."""
    first = min(cycle)
    members = set(cycle)
    before: dict[str, str] = {}
    queue = deque([first])
    while first not in before:
        here = queue.popleft()
        for other in edges.get(here, ()):
            if other in members and other not in before:
                before[other] = here
                queue.append(other)
    path = [first, before[first]]
    while path[-1] != first:
        path.append(before[path[-1]])
    return tuple(reversed(path))


def _path(cycle: tuple[str, ...]) -> str:
    if len(cycle) <= _LONGEST_PATH:
        return _WAITS_FOR.join(cycle)
    half = _LONGEST_PATH // 2
    between = f"({len(cycle) - 2 * half:,} more)"
    return _WAITS_FOR.join((*cycle[:half], between, *cycle[-half:]))


class _Reading:
    """A plan while it is read: faults, tasks and where each id stands, in the order of the plan."""

    def __init__(self, hierarchical: bool, lines: Mapping[str, int]) -> None:
        self.faults: list[str] = []
        self.tasks: list[Definition] = []
        self.project: str | None = None
        self._hierarchical = hierarchical
        self._lines = lines
        self._purposes: dict[str, str] = {}
        self._described = False
        self._places: dict[str, str] = {}

    def table(self) -> dict[str, str] | None:
        return self._purposes if self._described else None

    def read(self, source: Mapping[Any, Any]) -> None:
        for key, value in source.items():
            match key:
                case "project":
                    self._read_project(value)
                case "tracks":
                    self._read_tracks(value)
                case "tasks":
                    self._read_tasks("tasks", value, None)
                case str() if key.startswith("x-"):
                    pass
                case _:
                    self._fault("", f"there is no key {describe_value(key)} in a plan; there are project, tracks, tasks and x-…")
        if not {"tracks", "tasks"} & source.keys():
            self._fault("", "the plan has neither tracks nor tasks")

    def _read_project(self, value: object) -> None:
        try:
            self.project = None if value is None else check_project(value)
        except BadArgument as fault:
            self._fault("project", str(fault))

    def _read_tracks(self, value: object) -> None:
        if not isinstance(value, Mapping):
            if value is not None:
                self._fault("tracks", f"must be a mapping from tracks to their tasks, not {describe_value(value)}")
            return
        for key, section in value.items():
            place = f"tracks.{key}" if isinstance(key, str) and len(key) <= LONGEST_ID and key.isprintable() else "tracks"
            try:
                track: str | None = check_track(key)
            except BadArgument as fault:
                self._fault(place, str(fault))
                track = None
            if isinstance(section, Mapping):
                self._read_section(place, section, track)
            else:
                self._read_tasks(place, section, track)
            if track is not None:
                self._purposes.setdefault(track, STANDARD_TRACKS.get(track, ""))

    def _read_section(self, place: str, section: Mapping[Any, Any], track: str | None) -> None:
        for key, value in section.items():
            if key == "tasks":
                self._read_tasks(f"{place}.tasks", value, track)
            elif key != "purpose":
                self._fault(place, f"there is no key {describe_value(key)} in a track; there are purpose and tasks")
            elif value is not None:
                try:
                    purpose = check_text("purpose", value)
                except BadArgument as fault:
                    self._fault(place, str(fault))
                else:
                    self._described = True
                    self._purposes[track or ""] = purpose

    def _read_tasks(self, place: str, value: object, track: str | None) -> None:
        if isinstance(value, (list, tuple)):
            for at, fields in enumerate(value):
                self._read_task(f"{place}[{at}]", fields, track)
        elif value is not None:
            self._fault(place, f"must be a list of tasks, not {describe_value(value)}")

    def _read_task(self, place: str, fields: object, track: str | None) -> None:
        definition, faults = examine_task(fields, hierarchical=self._hierarchical)
        name = fields.get("id") if isinstance(fields, Mapping) else None
        where = f"{place} ({name})" if isinstance(name, str) and len(name) <= LONGEST_ID and name.isprintable() else place
        if isinstance(name, str):
            first = self._places.setdefault(str.__str__(name), place)
            if first != place:
                faults.append(f"the id stands already at {first}{self._line(first)}")
        if definition is not None and track is not None:
            said = definition.task.track
            if said is None:
                definition = definition._replace(task=replace(definition.task, track=track))
            elif said != track:
                faults.append(f"belongs to track {shown(said)}, but stands under {shown(track)}")
        for fault in faults:
            self._fault(place, fault, where)
        if definition is not None:
            self.tasks.append(definition)

    def _fault(self, place: str, fault: str, where: str = "") -> None:
        self.faults.append(f"{where or place}{self._line(place)}: {fault}" if place else fault)

    def _line(self, place: str) -> str:
        line = self._lines.get(place)
        return "" if line is None else f", line {line}"
