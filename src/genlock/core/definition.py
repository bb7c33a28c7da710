"""One task as a user gives it, checked field by field and made into a `Task`.

1. The id gives track, sequence, feature, edge, parent and depth. A track, feature or parent may be
   given only if the id has none.
2. Every field is checked, whatever is wrong with the others. A fault names its field, the value
   given and the value expected.
3. `None` means that the field was not given: YAML reads an empty value as `None`.
4. The definition holds only plain types, each of which survives a round trip through JSON
   unchanged. A definition is compared with the stored one when it is added again, and a record with
   the fold of its events, byte for byte.
5. Unknown keys are kept in `metadata`. A key that clearly means `depends_on` is a fault, because
   the order would be lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from genlock.core.fields import (
    CHECKS,
    PlainJson,
    StartState,
    check_list,
    check_state,
    check_text,
    describe_value,
    is_state,
)
from genlock.core.ids import TaskId, parse_task_id
from genlock.core.model import Task
from genlock.core.names import check_feature, check_track, shown
from genlock.core.reasons import SpawnMode, Status
from genlock.core.task.operate import check_size
from genlock.errors import BadArgument
from genlock.typed_json import convert

_DERIVED = ("sequence", "edge", "depth")
_WRITTEN_ELSEWHERE = {
    "assigned_at": "assigning the task writes it",
    "spawned_from": "spawning subtasks writes it",
}

T = TypeVar("T")


class Definition(NamedTuple):
    """A task to be added, and the state it starts in."""

    task: Task
    backlog: bool = False
    finished: Status | None = None
    """COMPLETED or CANCELLED: the task is added as finished and never granted."""


class Complaint(NamedTuple):
    """A fault of a task, and the path of its key: `("depends_on", 2)`, or `()` for the task as a
    whole."""

    text: str
    at: tuple[str | int, ...] = ()


def define_task(fields: Mapping[str, Any], *, hierarchical: bool = False) -> Definition:
    """Returns the task that these fields define. Raises BadArgument with all their faults.

    The fields are those of `Task`, and `requires` for `depends_on`. A task with an explicit parent
    gets depth 1: only its caller can read the parent. `hierarchical` says that the project's policy
    is `ids: hierarchical`.
    """
    definition, faults, _ = examine_task(fields, hierarchical=hierarchical)
    if definition is None:
        raise BadArgument("; ".join(fault.text for fault in faults))
    return definition


def in_sequence(definitions: Sequence[Definition]) -> Sequence[Definition]:
    """Returns the tasks. Each child of a parent with `coordination_mode: sequential` depends on the
    child before it.

    If one of the children already depends on another, as in an exported plan, their order is given.
    """
    sequential = {
        task.id for task, *_ in definitions if task.coordination_mode is SpawnMode.SEQUENTIAL
    }
    if not sequential:
        return definitions
    families: dict[str, list[str]] = {}
    for task, *_ in definitions:
        if task.parent in sequential:
            families.setdefault(task.parent, []).append(task.id)
    by_id = {definition.task.id: definition.task for definition in definitions}
    before: dict[str, str] = {}
    for children in families.values():
        if not any(set(by_id[child].depends_on) & set(children) for child in children):
            before |= dict(pairwise(reversed(children)))
    return [
        definition._replace(
            task=replace(
                definition.task,
                depends_on=(*definition.task.depends_on, before[definition.task.id]),
            )
        )
        if definition.task.id in before
        else definition
        for definition in definitions
    ]


class Examined(NamedTuple):
    """The outcome of checking a task's fields: the definition without faults, or all faults without
    a definition.

    `outline` is the known part of a faulty task's place: its id, its parent and its dependencies.
    """

    definition: Definition | None
    faults: list[Complaint]
    outline: Task | None = None


def examine_task(
    fields: object, *, hierarchical: bool = False, known: dict[str, TaskId] | None = None
) -> Examined:
    """Does the same as `define_task`, for callers that collect faults.

    A caller that reads many tasks passes the same `known` each time: the ids read before, because
    most are named again.
    """
    if not isinstance(fields, Mapping):
        return Examined(
            None,
            [Complaint(f"a task is a mapping with at least an id, not {describe_value(fields)}")],
        )
    known = {} if known is None else known
    if type(fields) is dict and _SIMPLE_KEYS.issuperset(fields):
        definition = _define_simple(fields, hierarchical, known)
        if definition is not None:
            return Examined(definition, [])
    examination = _Examination(fields, hierarchical, known)
    definition = examination.definition()
    return Examined(definition, examination.faults, None if definition else examination.outline)


class _Simple(msgspec.Struct, gc=False):
    """The fields that most tasks of a large plan have, and no others."""

    id: str
    title: str = ""
    description: str = ""
    depends_on: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    phase: str = ""
    repo: str = ""


_SIMPLE_KEYS: Final = frozenset(_Simple.__struct_fields__)
_SIMPLE_LISTS: Final = ("depends_on", "tags", "modules")


def _define_simple(
    fields: dict[str, Any], hierarchical: bool, known: dict[str, TaskId]
) -> Definition | None:
    """Returns the same definition faster, for a task without faults. None means that the task must
    be checked field by field."""
    for name in _SIMPLE_LISTS:
        # A set would be accepted too, in an order that differs from run to run.
        if type(fields.get(name, [])) is not list:
            return None
    try:
        given = convert(fields, _Simple)
        named = given.depends_on
        for text in (given.id, *named):
            if text not in known:
                known[text] = parse_task_id(text, hierarchical=hierarchical)
        task_id = known[given.id]
        if given.id in named or len(set(named)) < len(named):
            return None
        task = Task(
            id=given.id,
            title=given.title,
            description=given.description,
            phase=given.phase,
            tags=given.tags,
            track=task_id.track,
            sequence=task_id.sequence,
            feature=task_id.feature,
            edge=task_id.edge,
            parent=task_id.parent,
            depth=task_id.depth,
            depends_on=named,
            modules=given.modules,
            repo=given.repo,
        )
        check_size(task)
    except (msgspec.ValidationError, BadArgument, UnicodeEncodeError, TypeError):
        # TypeError: a subclass of str, which msgspec does not encode.
        return None
    return Definition(task)


class _Examination:
    """The check of one task's fields in turn. A fault is recorded, and the check continues."""

    __slots__ = ("_given", "_hierarchical", "_known", "_unknown", "faults", "outline")

    def __init__(
        self, fields: Mapping[Any, Any], hierarchical: bool, known: dict[str, TaskId]
    ) -> None:
        self.faults: list[Complaint] = []
        self.outline: Task | None = None
        self._hierarchical = hierarchical
        self._known = known
        self._given: dict[str, Any] = {}
        self._unknown: dict[str, Any] = {}
        for key, value in fields.items():
            if not isinstance(key, str):
                self.faults.append(Complaint(f"a key must be a string, not {describe_value(key)}"))
            elif key not in _KEYS:
                self._unknown[key] = value
                if means_dependencies(key):
                    own = shown(f"x-{str.__str__(key)}")
                    text = (
                        f"there is no field {shown(key)}: what a task waits for is its "
                        f"depends_on; for a key of your own write {own}"
                    )
                    self._complain(text, str.__str__(key))
            elif value is not None:
                self._given[str.__str__(key)] = value
        if "state" not in fields and is_state(self._unknown.get("status")):
            # Some tools use this name. If the value is not a task state, it is the user's own
            # key.
            self._given["state"] = self._unknown.pop("status")

    def definition(self) -> Definition | None:
        given = self._given
        task_id = self._id()
        values = self._place(task_id)
        values["depends_on"] = self._dependencies(task_id)
        for name in given:
            check = CHECKS.get(name)
            if check is not None:
                values[name] = self._attempt((name,), check, name, given[name])
        for name, why in _WRITTEN_ELSEWHERE.items():
            if name in given:
                self._complain(f"{name} cannot be set: {why}", name)
        if self._unknown or "metadata" in given:
            values["metadata"] = self._metadata()
        start = self._start()
        if self.faults or task_id is None:
            if task_id is not None:
                self.outline = Task(
                    id=task_id.text, parent=values["parent"], depends_on=values["depends_on"]
                )
            return None
        if start.waiting and not values.get("waiting_for"):
            values["waiting_for"] = _WAITS_FOR_SOMEBODY
        task = Task(id=task_id.text, **values)
        self._attempt((), check_size, task)
        return None if self.faults else Definition(task, start.backlog, start.finished)

    def _start(self) -> StartState:
        """Returns the state in which the task starts."""
        if "state" not in self._given:
            return StartState()
        return self._attempt(("state",), check_state, "state", self._given["state"]) or StartState()

    def _complain(self, text: str, *at: str | int) -> None:
        self.faults.append(Complaint(text, at))

    def _attempt(
        self, at: tuple[str | int, ...], check: Callable[..., T], *arguments: Any
    ) -> T | None:
        try:
            return check(*arguments)
        except BadArgument as fault:
            self.faults.append(Complaint(str(fault), at))
            return None

    def _id(self) -> TaskId | None:
        if "id" not in self._given:
            self._complain("id is missing: every task has one")
            return None
        return self._attempt(("id",), self._parse_id, "id", self._given["id"])

    def _parse_id(self, name: str, value: object) -> TaskId:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            raise BadArgument(
                f"{name} must be a string, not {describe_value(value)}; quote it in YAML, as in "
                "'0001', to keep its digits"
            )
        text = check_text(name, value)
        found = self._known.get(text)
        if found is None:
            try:
                found = self._known[text] = parse_task_id(text, hierarchical=self._hierarchical)
            except BadArgument as fault:
                raise BadArgument(f"{name}: {fault}") from None
        return found

    def _place(self, task_id: TaskId | None) -> dict[str, Any]:
        """Returns the task's place: from the id, or from the given fields if the id has no such
        part."""
        given = self._given
        track = self._attempt(("track",), check_track, given["track"]) if "track" in given else None
        feature = (
            self._attempt(("feature",), check_feature, given["feature"])
            if "feature" in given
            else None
        )
        above = (
            self._attempt(("parent",), self._parse_id, "parent", given["parent"])
            if "parent" in given
            else None
        )
        parent = above.text if above is not None else None
        if task_id is None:
            return {}
        if track is not None and task_id.track not in (None, track):
            self._complain(
                f"track {track!r} contradicts the id, which says {task_id.track!r}", "track"
            )
        if feature is not None and task_id.feature not in (None, feature):
            self._complain(
                f"feature {shown(feature)} contradicts the id, which says {shown(task_id.feature)}",
                "feature",
            )
        if parent is not None and task_id.parent not in (None, parent):
            self._complain(
                f"parent {shown(parent)} contradicts the id, which says {shown(task_id.parent)}",
                "parent",
            )
        if parent == task_id.text:
            self._complain("parent is the task itself", "parent")
        place = {
            "track": task_id.track or track,
            "sequence": task_id.sequence,
            "feature": task_id.feature or feature,
            "edge": task_id.edge,
            "parent": task_id.parent or parent,
            "depth": 1 if task_id.parent is None and parent is not None else task_id.depth,
        }
        for name in _DERIVED:
            if name in given and given[name] != place[name]:
                said = describe_value(place[name])
                self._complain(
                    f"{name} follows from the id, which says {said}, not "
                    f"{describe_value(given[name])}",
                    name,
                )
        return place

    def _dependencies(self, task_id: TaskId | None) -> tuple[str, ...]:
        names = [name for name in ("depends_on", "requires") if name in self._given]
        if len(names) == 2:
            self._complain("depends_on and requires mean the same: give one of them", "requires")
            return ()
        if not names:
            return ()
        name = names[0]
        known = self._known
        items = self._attempt((name,), check_list, name, self._given[name])
        found: dict[str, None] = {}
        for at, item in enumerate(items or ()):
            other = known.get(item) if type(item) is str else None
            if other is None:
                other = self._attempt((name, at), self._parse_id, f"{name}[{at}]", item)
            if other is not None and task_id is not None and other.text == task_id.text:
                self._complain(f"{name}[{at}] is the task itself", name, at)
            elif other is not None:
                found[other.text] = None
        return tuple(found)

    def _metadata(self) -> dict[str, Any]:
        explicit = self._given.get("metadata", {})
        if not isinstance(explicit, Mapping):
            self._complain(
                f"metadata must be a mapping, not {describe_value(explicit)}", "metadata"
            )
            return {}
        plain = PlainJson()
        # If an unknown key is also in the metadata, the metadata wins.
        unknown = {key: value for key, value in self._unknown.items() if key not in explicit}
        return (self._attempt((), plain.members, "", unknown) or {}) | (
            self._attempt(("metadata",), plain.members, "metadata", explicit) or {}
        )


_KEYS: Final = frozenset(Task.__struct_fields__) | {"requires", "state"}

_WAITS_FOR_SOMEBODY: Final = "somebody, as it was imported"
"""The text that a task waits for if it came with `state: waiting` and nothing more."""


_SYNONYMS: Final = frozenset(
    {
        "after", "blockedby", "blockedon", "dep", "depend", "dependencies", "dependency",
        "dependencyids", "dependon", "depends",
        "dependson", "deps", "need", "needs", "precededby", "predecessor", "predecessors",
        "prereq", "prereqs", "prerequisite",
        "prerequisites", "require", "runafter", "runsafter", "waiton", "waitsfor", "waitson",
    }
)  # fmt: skip
"""The names that other tools use, reduced to lowercase letters."""


@lru_cache(maxsize=1024)
def means_dependencies(key: str) -> bool:
    """Does this unknown key clearly mean `depends_on`: another tool's word for it, or a
    misspelling?"""
    plain = "".join(filter(str.isalpha, key[:40].lower()))
    if key[:2].lower() in ("x-", "x_"):
        return False
    if plain in _SYNONYMS or "dep" not in plain:
        return plain in _SYNONYMS
    from difflib import SequenceMatcher

    return SequenceMatcher(None, plain, "dependson").ratio() >= _NEAR


_NEAR = 0.85


def guess_field(key: str) -> str | None:
    """Returns the field that this unknown key was perhaps meant to be."""
    from difflib import get_close_matches

    plain = key.lower().replace("-", "_")
    found = get_close_matches(plain, sorted(_KEYS), 1, 0.8)
    return found[0] if key not in _KEYS and found and not plain.startswith("x_") else None
