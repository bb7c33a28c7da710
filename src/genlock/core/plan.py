"""A plan: its tasks read into definitions (GC 3.7), and the graph of their dependencies.

    project: ecommerce-rebuild
    tracks:
      A:                                  # a track as a list of tasks …
        - id: A-001-core-framework
      B:                                  # … or with its purpose
        purpose: Data Layer
        tasks: [{id: B-001-schema-design}]
    tasks:                                # tasks whose id names no track
      - id: write-the-announcement
    x-anything: ignored                   # a place for YAML anchors

Reading finds every fault of a plan before anything is written. Missing dependencies and cycles can
only be found together with the existing tasks: `check_graph`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from genlock.core.agent_roles import NO_ROLES, AgentRoles, check_agent_roles
from genlock.core.definition import (
    Complaint,
    Definition,
    define_task,
    examine_task,
    guess_field,
    in_sequence,
    means_dependencies,
)
from genlock.core.fields import check_text as check_field
from genlock.core.fields import describe_value
from genlock.core.ids import LONGEST_ID, Grammar, TaskId, explain_slug
from genlock.core.model import Task
from genlock.core.names import DEFAULT_PROJECT, check_project, check_track, shown
from genlock.core.plan_faults import Fault
from genlock.core.task.spawn import lacks_room
from genlock.errors import BadArgument, PlanInvalid

__all__ = [
    "Definition",
    "Fault",
    "Found",
    "Plan",
    "Reading",
    "check_families",
    "check_graph",
    "define_task",
    "find_cycle",
    "find_cycles",
    "note_task",
    "read_plan",
]

MOST_CYCLES: Final = 10
MOST_GUESSES: Final = 20
"""The limit of unknown names for which a similar name is searched, because each search takes
time."""
_LONGEST_PATH: Final = 20
_WAITS_FOR = " → "

Path: TypeAlias = tuple[str | int, ...]
"""A position in a plan: `("tracks", "A", 2, "title")`."""


class Plan(NamedTuple):
    """A plan after reading. `tracks` is its table of tracks and their purposes, if it has one."""

    project: str | None
    tracks: dict[str, str] | None
    tasks: tuple[Definition, ...]
    notes: tuple[Fault, ...] = ()
    """Warnings: not faults, but perhaps not intended."""
    agent_roles: AgentRoles | None = None
    """The table of roles (`roles` and `edges`), if it has one."""


class Found(NamedTuple):
    """A fault with its position: the number of the plan's text, and the path in that text."""

    source: int
    path: Path
    task: str | None
    text: str
    other: tuple[int, Path] | None = None
    """A second position that belongs to the fault. Its name is appended to the text."""

    def unplaced(self) -> Fault:
        """Returns the fault without line numbers, with its path in words."""
        place = path_text(self.path)
        said = f"{place} ({self.task})" if place and self.task else place or self.task
        text = self.text if self.other is None else f"{self.text} at {path_text(self.other[1])}"
        return Fault(None, None, None, None, f"{said}: {text}" if said else text)


def read_plan(source: Mapping[str, Any], *, hierarchical: bool = False) -> Plan:
    """Reads the plan in this mapping. Raises PlanInvalid with every fault and its position."""
    reading = Reading(hierarchical=hierarchical)
    reading.read(source)
    if reading.found:
        raise PlanInvalid([found.unplaced() for found in reading.found])
    return reading.plan()


def note_task(fields: Mapping[str, Any]) -> list[Fault]:
    """Returns the warnings for a plan with only this task, for callers that add a task without a
    plan."""
    reading = Reading()
    reading.read_task((), fields)
    reading.note_slugs()
    return [Fault(None, None, None, note.task, note.text) for note in reading.notes]


def path_text(path: Path) -> str:
    """Returns the path to a task in words, `tracks.A[2]`. The fault itself names the key within the
    task."""
    words = ""
    for at, step in enumerate(path):
        if isinstance(step, int):
            return f"{words}[{step}]"
        words += f".{step}" if at else step
    return words


class Misplaced(NamedTuple):
    """A fault of a task's place among the others; `at` is the key that causes it. A cycle belongs
    to more than one task."""

    task: str
    text: str
    at: Path
    alone: bool = True


def check_graph(
    tasks: Iterable[Task],
    known: Collection[str],
    edges_of_known: Mapping[str, Collection[str]] | None = None,
    children_of_known: Mapping[str, Collection[str]] | None = None,
) -> list[Misplaced]:
    """Returns the faults of these tasks' dependencies and parents. `known` has the ids of existing
    tasks.

    `edges_of_known` has the dependencies and children of existing tasks. Its entries for tasks in
    `tasks` are ignored, because those are about to be redefined. `children_of_known` has the tasks
    that wait for existing children, no matter where the parent is defined.
    """
    tasks = list(tasks)
    exists = {task.id for task in tasks}.union(known)
    faults: list[Misplaced] = []
    for task in tasks:
        if not exists.issuperset(task.depends_on):
            for at, other in enumerate(task.depends_on):
                if other not in exists:
                    guess = _guess(other, exists - {task.id}) if len(faults) < MOST_GUESSES else ""
                    faults.append(
                        Misplaced(
                            task.id,
                            f"depends on {other!r}, which does not exist{guess}",
                            ("depends_on", at),
                        )
                    )
        if task.parent is not None and task.parent not in exists:
            guess = (
                _guess(task.parent, exists - _children_of(task.parent, tasks))
                if len(faults) < MOST_GUESSES
                else ""
            )
            faults.append(
                Misplaced(task.id, f"its parent {task.parent!r} does not exist{guess}", ("parent",))
            )
    waits = _waits(tasks, edges_of_known or {}, children_of_known or {})
    return faults + list(islice(_misplaced(_cycles_of(tasks, waits), tasks), MOST_CYCLES))


def check_families(
    tasks: Iterable[Task], children_of_known: Mapping[str, Collection[str]]
) -> list[Misplaced]:
    """Returns the faults of children whose parent has no room for them in its record.
    `children_of_known` has all children of existing tasks."""
    families: dict[str, list[str]] = {}
    for task in tasks:
        if task.parent is not None:
            families.setdefault(task.parent, []).append(task.id)
    faults = []
    for parent, children in families.items():
        lack = lacks_room(parent, {*children, *children_of_known.get(parent, ())})
        if lack is not None:
            faults.append(Misplaced(children[0], lack, ("parent",)))
    return faults


def _children_of(parent: str, tasks: list[Task]) -> set[str]:
    """Returns the tasks that lack the same parent. None of them can be the intended parent, however
    similar their ids are."""
    return {task.id for task in tasks if task.parent == parent}


def _misplaced(cycles: Iterable[tuple[str, ...]], tasks: list[Task]) -> Iterator[Misplaced]:
    """Yields each cycle as a fault of one of these tasks. A cycle that contains none of them is not
    reported."""
    for cycle in cycles:
        members = set(cycle)
        own = {task.id: bool(task.depends_on) for task in tasks if task.id in members}
        first = next((name for name in cycle if name in own), None)
        if first is not None:
            text = (
                f"these wait for each other: {_shown_path(cycle)}; remove one of these dependencies"
            )
            yield Misplaced(first, text, ("depends_on",) if own[first] else (), alone=False)


def _cycles_of(
    tasks: list[Task], waits: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, ...]]:
    """Yields the cycles. A cycle that contains none of these tasks may hide one that does and
    shares an id with it; that one is yielded after it."""
    own = {task.id for task in tasks}
    for cycle in find_cycles(waits):
        yield cycle
        if own.isdisjoint(cycle):
            waited_for_by: dict[str, list[str]] = {}
            for waiting, others in waits.items():
                for other in others:
                    waited_for_by.setdefault(other, []).append(waiting)
            hidden = own & _reached(cycle, waits) & _reached(cycle, waited_for_by)
            if hidden:
                yield _way_back(min(hidden), waits)


def _reached(start: Iterable[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    """Returns these ids and all that can be reached from them along the edges."""
    seen = set(start)
    todo = list(seen)
    while todo:
        new = set(edges.get(todo.pop(), ())) - seen
        seen |= new
        todo += new
    return seen


def find_cycle(edges: Mapping[str, Collection[str]]) -> tuple[str, ...] | None:
    """Returns a path along the edges from an id back to itself, if there is one."""
    return next(find_cycles(edges), None)


def find_cycles(edges: Mapping[str, Collection[str]]) -> Iterator[tuple[str, ...]]:
    """Yields cycles that have no id in common. Each is searched for on demand."""
    edges = _without_settled(edges)
    if not edges:
        return
    # Rarely needed, so imported here.
    from graphlib import CycleError, TopologicalSorter

    while edges:
        sorter = TopologicalSorter(edges)
        try:
            sorter.prepare()
        except CycleError as error:
            cycle = _shortest(edges, error.args[1])
        else:
            return
        yield cycle
        # Ids that can be sorted are on no cycle, and a cycle is not yielded twice.
        settled = set(cycle)
        while ready := sorter.get_ready():
            settled.update(ready)
            sorter.done(*ready)
        edges = {waiting: others for waiting, others in edges.items() if waiting not in settled}


_MOST_PASSES = 16


def _without_settled(edges: Mapping[str, Collection[str]]) -> Mapping[str, Collection[str]]:
    """Removes tasks that wait for nothing, then tasks that wait only for those, and so on. Returns
    the rest.

    Most plans are written in order, so a few passes leave nothing, at a tenth of the cost of
    sorting. The passes alternate in direction. The sorter gets the rest.
    """
    settled = set[str]().union(*edges.values()).difference(edges)
    left: list[str] = list(edges)
    for _ in range(_MOST_PASSES):
        left = []
        for waiting, others in edges.items():
            if settled.issuperset(others):
                settled.add(waiting)
            else:
                left.append(waiting)
        if not left or len(left) == len(edges):
            break
        edges = {waiting: edges[waiting] for waiting in reversed(left)}
    return {waiting: edges[waiting] for waiting in left}


def _guess(wrong: str, names: Collection[str]) -> str:
    """Returns the name that was perhaps meant."""
    from difflib import get_close_matches

    longer = [name for name in names if name.startswith(f"{wrong}-")]
    if len(longer) != 1:
        lower, end = wrong[:2].lower(), wrong[-4:].lower()
        alike = sorted(
            name for name in names if name[:2].lower() == lower or name[-4:].lower() == end
        )
        longer = get_close_matches(wrong, alike[:_MOST_ALIKE], 1, 0.75)
    return f"; did you mean {longer[0]!r}?" if longer else ""


_MOST_ALIKE = 5000


def _waits(
    tasks: list[Task],
    edges_of_known: Mapping[str, Collection[str]],
    children_of_known: Mapping[str, Collection[str]],
) -> dict[str, Collection[str]]:
    """Returns what each task waits for: its dependencies, and for a parent also its children."""
    waits = {**edges_of_known, **{task.id: task.depends_on for task in tasks}}
    children = {parent: list(below) for parent, below in children_of_known.items()}
    for task in tasks:
        if task.parent is not None:
            children.setdefault(task.parent, []).append(task.id)
    return waits | {parent: [*waits.get(parent, ()), *below] for parent, below in children.items()}


def _shortest(edges: Mapping[str, Collection[str]], cycle: list[str]) -> tuple[str, ...]:
    """Returns the shortest cycle through the lowest id that uses only ids of this cycle:
    depth-first search finds long ones."""
    members = set(cycle)
    return _way_back(
        min(cycle),
        {name: [other for other in edges.get(name, ()) if other in members] for name in members},
    )


def _way_back(first: str, edges: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Returns the shortest path from an id on a cycle back to itself."""
    before: dict[str, str] = {}
    queue = deque([first])
    while first not in before:
        here = queue.popleft()
        for other in edges.get(here, ()):
            if other not in before:
                before[other] = here
                queue.append(other)
    path = [first, before[first]]
    while path[-1] != first:
        path.append(before[path[-1]])
    return tuple(reversed(path))


def _shown_path(cycle: tuple[str, ...]) -> str:
    if len(cycle) <= _LONGEST_PATH:
        return _WAITS_FOR.join(cycle)
    half = _LONGEST_PATH // 2
    between = f"({len(cycle) - 2 * half:,} more)"
    return _WAITS_FOR.join((*cycle[:half], between, *cycle[-half:]))


class Reading:
    """A plan while it is read, from one text or several: its faults, its tasks and their positions,
    in the order of the plan."""

    def __init__(self, *, hierarchical: bool = False) -> None:
        self.found: list[Found] = []
        self.tasks: list[Definition] = []
        self.notes: list[Found] = []
        self._guesses: dict[str, str | None] = {}
        self.outlines: list[Task] = []
        """The place in the graph of each task with faults."""
        self.places: dict[str, tuple[int, Path]] = {}
        """The first position of each id, including tasks with faults."""
        self.source = 0
        """The number of the text being read."""
        self._hierarchical = hierarchical
        self._project: str | None = None
        self._project_source = 0
        self._purposes: dict[str, str] = {}
        self._agent_roles: AgentRoles | None = None
        self._described = False
        self._known: dict[str, TaskId] = {}
        self._slugs: dict[tuple[str, str], list[tuple[int, Path, str]]] = {}
        """Ids that look as if they named a track or parent but do not, by the missing part and the
        reason."""

    def plan(self) -> Plan:
        """Returns the plan after everything is read."""
        return Plan(
            self._project,
            self._purposes if self._described else None,
            tuple(in_sequence(self.tasks)),
            agent_roles=self._agent_roles,
        )

    def ask_for(self, project: str) -> None:
        """Reports a plan that belongs to another project than the one it is imported into. Call it
        after everything is read.

        That is a fault if the caller named a project. If not, it is only a warning: in a store with
        one plan, users do not type the project with every command.
        """
        name = self._project
        if name in (None, project):
            return
        place = (self._project_source, ("project",), None)
        if project == DEFAULT_PROJECT:
            text = (
                f"the plan is of project {name!r}, but goes into {project!r}, as no other was "
                f"asked for; to ask for it: --project {name}"
            )
            self.notes.append(Found(*place, text))
        else:
            ask = f"ask for {name!r} (--project {name}), or leave this line out"
            text = f"the plan is of project {name!r}, but {project!r} was asked for; {ask}"
            self.found.append(Found(*place, text))

    def read(self, source: object) -> None:
        """Reads a whole plan."""
        if not isinstance(source, Mapping):
            self._fault(
                (),
                f"a plan is a mapping with project, tracks and tasks, not {describe_value(source)}",
            )
            return
        for key, value in source.items():
            match key:
                case "project":
                    self._read_project(value)
                case "tracks":
                    self._read_tracks(value)
                case "tasks":
                    self._read_tasks(("tasks",), value, None)
                case "roles" | "edges":
                    self._read_roles(key, value)
                case str() if key.startswith("x-"):
                    pass
                case _:
                    text = (
                        f"there is no key {describe_value(key)} in a plan; there are project, "
                        "tracks, tasks, roles, edges and x-…"
                    )
                    self._fault((key,) if isinstance(key, str) and key.isprintable() else (), text)
        if not {"tracks", "tasks"} & source.keys():
            lone = "; to import a table of roles: genlock roles import FILE"
            advice = lone if "roles" in source else ""
            self._fault((), f"the plan has neither tracks nor tasks{advice}")

    def read_task(self, path: Path, fields: object, track: str | None = None) -> None:
        """Reads one task at this position, in this track."""
        definition, complaints, outline = examine_task(
            fields, hierarchical=self._hierarchical, known=self._known
        )
        place = (self.source, path)
        in_place = definition is not None and (track is None or track == definition.task.track)
        if (
            definition is not None
            and in_place
            and self.places.setdefault(definition.task.id, place) is place
        ):
            # The common case: no fault, and nothing to add.
            self._keep(path, definition)
            if definition.task.metadata:
                self._look_for_slips(path, definition.task.id, fields)
            return
        name = fields.get("id") if isinstance(fields, Mapping) else None
        name = (
            str.__str__(name)
            if isinstance(name, str) and len(name) <= LONGEST_ID and name.isprintable()
            else None
        )
        if definition is not None and track is not None:
            said = definition.task.track
            if said is None:
                definition = definition._replace(task=replace(definition.task, track=track))
            elif said != track:
                complaints.append(
                    Complaint(
                        f"belongs to track {shown(said)}, but stands under {shown(track)}; move it "
                        "there",
                        ("id",),
                    )
                )
        for text, at in complaints:
            self._fault(path + at, text, name)
        self._look_for_slips(path, name, fields)
        if name is not None and (first := self.places.setdefault(name, place)) != place:
            self._fault((*path, "id"), "the id stands already", name, first)
        elif outline is not None:
            self.outlines.append(outline)
        elif definition is not None:
            self._keep(path, definition)

    def _keep(self, path: Path, definition: Definition) -> None:
        self.tasks.append(definition)
        task = definition.task
        if (
            task.sequence is None
            and task.edge is None
            and (meant := explain_slug(self._known[task.id])) is not None
        ):
            grammar, why = meant
            lost = (
                "parent"
                if grammar is Grammar.HIERARCHICAL
                else f"number in track {task.track}"
                if task.track
                else "track"
            )
            if lost != "parent" or task.parent is None:
                self._slugs.setdefault((lost, why), []).append(
                    (self.source, (*path, "id"), task.id)
                )

    def note_slugs(self) -> None:
        """Warns of ids that were perhaps meant to name a track or a parent, once for each kind of
        mistake. Call it after everything is read."""
        for (lost, why), places in self._slugs.items():
            others = f" (nor have {len(places) - 1:,} others)" if len(places) > 1 else ""
            source, path, task = places[0]
            self.notes.append(
                Found(source, path, task, f"by this id the task has no {lost}{others}: {why}")
            )

    def _look_for_slips(self, path: Path, task: str | None, fields: object) -> None:
        """Warns of keys that resemble a field's name, once for each such key. They are kept like
        any other unknown key."""
        for key in fields if isinstance(fields, Mapping) else ():
            if isinstance(key, str) and key not in self._guesses:
                guess = self._guesses[key] = guess_field(key)
                if guess is not None and not means_dependencies(key):
                    text = (
                        f"there is no field {shown(key)}, so it is kept in metadata; did you "
                        f"mean {guess}?"
                    )
                    self.notes.append(Found(self.source, (*path, key), task, text))

    def _read_project(self, value: object) -> None:
        try:
            name = None if value is None else check_project(value)
        except BadArgument as fault:
            self._fault(("project",), str(fault))
            return
        if name is not None and self._project not in (None, name):
            self._fault(
                ("project",),
                f"this is project {name!r}, but a file before it is of project {self._project!r}",
            )
        if name is not None and self._project is None:
            self._project, self._project_source = name, self.source

    def _read_roles(self, key: str, value: object) -> None:
        """Reads `roles` and `edges`, the table of roles. All of it must be in one file."""
        known = self._agent_roles or NO_ROLES
        if getattr(known, key):
            self._fault((key,), f"a file before this one has {key} already")
            return
        try:
            found = check_agent_roles({key: value})
        except BadArgument as fault:
            self._fault((key,), str(fault))
            return
        self._agent_roles = replace(known, **{key: getattr(found, key)})

    def _read_tracks(self, value: object) -> None:
        if not isinstance(value, Mapping):
            if value is not None:
                self._fault(
                    ("tracks",),
                    f"must be a mapping from tracks to their tasks, not {describe_value(value)}",
                )
            return
        for key, section in value.items():
            path: Path = (
                ("tracks", key)
                if isinstance(key, str) and len(key) <= LONGEST_ID and key.isprintable()
                else ("tracks",)
            )
            try:
                track: str | None = check_track(key)
            except BadArgument as fault:
                self._fault(path, str(fault))
                track = None
            if isinstance(section, Mapping):
                self._read_section(path, section, track)
            else:
                self._read_tasks(path, section, track)
            if track is not None:
                self._purposes.setdefault(track, "")

    def _read_section(self, path: Path, section: Mapping[Any, Any], track: str | None) -> None:
        for key, value in section.items():
            if key == "tasks":
                self._read_tasks((*path, "tasks"), value, track)
            elif key != "purpose":
                at = (*path, key) if isinstance(key, str) and key.isprintable() else path
                self._fault(
                    at,
                    f"there is no key {describe_value(key)} in a track; there are purpose and "
                    "tasks",
                )
            elif value is not None:
                try:
                    purpose = check_field("purpose", value)
                except BadArgument as fault:
                    self._fault((*path, "purpose"), str(fault))
                else:
                    self._described = True
                    self._purposes[track or ""] = purpose

    def _read_tasks(self, path: Path, value: object, track: str | None) -> None:
        if isinstance(value, (list, tuple)):
            for at, fields in enumerate(value):
                self.read_task((*path, at), fields, track)
        elif value is not None:
            self._fault(path, f"must be a list of tasks, not {describe_value(value)}")

    def _fault(
        self, path: Path, text: str, task: str | None = None, other: tuple[int, Path] | None = None
    ) -> None:
        self.found.append(Found(self.source, path, task, text, other))
