"""One task as a user gives it: what is derived, what is taken, and what is said about what is
not."""

import dataclasses
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from genlock.core.definition import Definition, define_task
from genlock.core.model import Task
from genlock.core.reasons import Isolation, SpawnMode
from genlock.errors import BadArgument

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
FORMS = (
    "an id is TRACK-001-description, feature:edge, 0001_t1.1 or a slug of at most 128 of A-Z "
    "a-z 0-9 . _ -, and may be followed by ::1"
)


def defined(**fields: Any) -> Task:
    return define_task({"id": "some-task", **fields}).task


@pytest.mark.parametrize(
    ("fields", "task"),
    [
        ({"id": "A-001-core"}, Task(id="A-001-core", track="A", sequence=1)),
        (
            {"id": "A-001-core::2"},
            Task(id="A-001-core::2", track="A", sequence=1, parent="A-001-core", depth=1),
        ),
        ({"id": "AUTH:design"}, Task(id="AUTH:design", feature="AUTH", edge="design")),
        (
            {"id": "AUTH:design", "track": "C"},
            Task(id="AUTH:design", feature="AUTH", edge="design", track="C"),
        ),
        (
            {"id": "AUTH:design", "feature": "AUTH"},
            Task(id="AUTH:design", feature="AUTH", edge="design"),
        ),
        ({"id": "fix-it", "feature": "AUTH"}, Task(id="fix-it", feature="AUTH")),
        ({"id": "0001_t1.2"}, Task(id="0001_t1.2", parent="0001_t1", depth=2)),
        ({"id": "fix-it"}, Task(id="fix-it")),
        ({"id": "fix-it", "track": "Z"}, Task(id="fix-it", track="Z")),
        ({"id": "fix-it", "parent": "A-001-core"}, Task(id="fix-it", parent="A-001-core", depth=1)),
        (
            {"id": "A-001-core", "track": "A", "sequence": 1, "depth": 0},
            Task(id="A-001-core", track="A", sequence=1),
        ),
        ({"id": "x", "parent": "y", "depth": 1}, Task(id="x", parent="y", depth=1)),
    ],
)
def test_place_is_read_from_the_id_and_given_only_where_the_id_is_silent(
    fields: dict[str, Any], task: Task
) -> None:
    assert define_task(fields) == Definition(task, backlog=False)


def test_every_field_that_can_be_set_is_taken() -> None:
    fields = {
        "id": "A-002-di",
        "title": "DI",
        "description": "Set up dependency injection",
        "phase": "foundation",
        "priority": "HIGH",
        "tags": ["core", "core"],
        "requires": ["A-001-core", "0001", "A-001-core"],
        "modules": ("src/di.py",),
        "repo": "backend",
        "roles": ["architect", "full stack"],
        "human_required": True,
        "estimate_seconds": 90,
        "lease_seconds": 600,
        "parallelizable": True,
        "isolation": "worktree",
        "worktree_path": "/tmp/di",
        "coordination_mode": "fan-out-fan-in",
        "assigned_to": "alice",
        "waiting_for": "the review",
        "not_before": "2026-01-31T13:00:00+01:00",
        "lock_timeout_hours": 2,
        "metadata": {"points": 3},
    }
    assert define_task(fields).task == Task(
        id="A-002-di",
        track="A",
        sequence=2,
        title="DI",
        description="Set up dependency injection",
        phase="foundation",
        priority="high",
        tags=("core", "core"),
        depends_on=("A-001-core", "0001"),
        modules=("src/di.py",),
        repo="backend",
        roles=("architect", "full stack"),
        human_required=True,
        estimate_seconds=90.0,
        lease_seconds=600.0,
        parallelizable=True,
        isolation=Isolation.WORKTREE,
        worktree_path="/tmp/di",
        coordination_mode=SpawnMode.FAN_OUT_FAN_IN,
        assigned_to="alice",
        waiting_for="the review",
        not_before=NOON,
        lock_timeout_hours=2.0,
        metadata={"points": 3},
    )


def test_no_field_of_a_task_is_forgotten() -> None:
    refused = []
    for name in Task.__struct_fields__:
        with pytest.raises(BadArgument) as caught:
            define_task({"id": "x", name: object()})
        refused.append(str(caught.value).startswith(name))
    assert all(refused)


@pytest.mark.parametrize(
    "name", sorted(set(Task.__struct_fields__) - {"id"} | {"state", "requires"})
)
def test_an_empty_value_means_that_the_field_was_not_given(name: str) -> None:
    assert define_task({"id": "x", name: None}) == Definition(Task(id="x"))


@pytest.mark.parametrize("text", ["backlog", "BACKLOG", "Backlog"])
def test_a_task_may_start_in_the_backlog(text: str) -> None:
    assert define_task({"id": "x", "state": text}) == Definition(Task(id="x"), backlog=True)


@pytest.mark.parametrize("text", ["pending", "PENDING", "todo", "Ready"])
def test_open_states_say_nothing(text: str) -> None:
    assert define_task({"id": "x", "state": text}) == Definition(Task(id="x"), backlog=False)


def test_keys_that_are_no_fields_are_kept_in_metadata_and_yield_to_it() -> None:
    task = defined(assignee="bob", points=3, note=None, metadata={"points": 5})
    assert task.metadata == {"assignee": "bob", "note": None, "points": 5}
    assert task.assigned_to is None


@pytest.mark.parametrize(
    "key",
    [
        "dependencies",
        "blocked_by",
        "needs",
        "deps",
        "after",
        "depend_on",
        "dependsOn",
        "Depends",
        "depends-on",
        "depnds_on",
    ],
)
def test_a_key_that_surely_means_depends_on_is_a_fault(key: str) -> None:
    with pytest.raises(
        BadArgument, match=rf"there is no field '{key}': what a task waits for is its depends_on"
    ):
        define_task({"id": "b", key: ["a"]})
    assert define_task({"id": "b", f"x-{key}": ["a"], "metadata": {key: 1}}).task.metadata == {
        f"x-{key}": ["a"],
        key: 1,
    }


@pytest.mark.parametrize(
    "key",
    ["deployment", "department", "dependents", "aftermath", "description_de", "owner", "needed_by"],
)
def test_a_key_that_only_sounds_like_depends_on_is_kept(key: str) -> None:
    assert define_task({"id": "b", key: "x"}).task.metadata == {key: "x"}


def test_a_bare_root_with_letters_is_hierarchical_only_in_a_project_that_counts_so() -> None:
    assert (
        define_task({"id": "A000_t1", "depends_on": ["B000"]}, hierarchical=True).task.parent
        == "A000"
    )
    assert define_task({"id": "A000"}, hierarchical=True) == define_task({"id": "A000"})


@pytest.mark.parametrize(
    "given_time",
    [
        NOON,
        NOON.astimezone(timezone(timedelta(hours=5))),
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00Z",
        "2026-01-31 07:00:00-05:00",
        "20260131T120000Z",
    ],
)
def test_a_time_becomes_plain_utc(given_time: object) -> None:
    instant = defined(not_before=given_time).not_before
    assert instant == NOON
    assert instant is not None
    assert instant.tzinfo is UTC


@dataclasses.dataclass
class Point:
    x: int


def test_metadata_becomes_what_its_json_reads_back_as() -> None:
    metadata = {
        "when": NOON,
        "day": date(2026, 1, 31),
        "uuid": UUID(int=1),
        "set": {"b", "a", "c"},
        "tuple": (1, 2.5),
        "point": Point(1),
        "mode": SpawnMode.PARALLEL,
    }
    assert defined(metadata=metadata).metadata == {
        "when": "2026-01-31T12:00:00Z",
        "day": "2026-01-31",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "set": ["a", "b", "c"],
        "tuple": [1, 2.5],
        "point": {"x": 1},
        "mode": "parallel",
    }


ROUND_TRIP = """
id: "A-001-core"
title: 'quoted'
description: |
  a block
tags: [a, "b"]
human_required: &yes true
lease_seconds: 0x10
estimate_seconds: 1.50
not_before: 2026-01-31T12:00:00Z
depends_on: [A-002-x]
metadata: {flag: *yes, n: 0o17, f: 1e3, when: 2026-01-31, nested: {list: [one, "two"]}, set: !!set {b, a}}
owner: >
  folded
"""


def test_what_ruamels_round_trip_reader_gives_becomes_plain() -> None:
    task = define_task(YAML(typ="rt").load(ROUND_TRIP)).task
    assert types_in(msgspec.structs.asdict(task)) <= {
        str,
        int,
        float,
        bool,
        dict,
        list,
        tuple,
        datetime,
        type(None),
        Isolation,
    }
    assert task == Task(
        id="A-001-core",
        track="A",
        sequence=1,
        title="quoted",
        description="a block\n",
        tags=("a", "b"),
        human_required=True,
        lease_seconds=16.0,
        estimate_seconds=1.5,
        not_before=NOON,
        depends_on=("A-002-x",),
        metadata={
            "flag": True,
            "n": 15,
            "f": 1000.0,
            "when": "2026-01-31",
            "nested": {"list": ["one", "two"]},
            "set": ["a", "b"],
            "owner": "folded\n",
        },
    )
    assert task.metadata["flag"] is True


def types_in(value: Any) -> set[type]:
    inner = (
        [*value.keys(), *value.values()]
        if isinstance(value, dict)
        else value
        if isinstance(value, (list, tuple))
        else []
    )
    return {type(value)}.union(*map(types_in, inner))


INSTANT = "not_before must be a time in ISO 8601, such as 2026-01-31T09:00:00Z, not "
STATES = "backlog, todo, ready, active, waiting, done, cancelled"

FAULTS: list[tuple[dict[Any, Any], str]] = [
    ({"id": 1}, "id must be a string, not 1; quote it in YAML, as in '0001', to keep its digits"),
    ({"id": True}, "id must be a string, not True"),
    ({"id": None}, "id is missing: every task has one"),
    ({"id": "a b"}, f"id: task id 'a b': character 2 is ' ' (whitespace); {FORMS}"),
    ({"id": ""}, "id: task id is empty; it has 1 to 200 characters"),
    ({"id": "A-001-x", "track": "B"}, "track 'B' contradicts the id, which says 'A'"),
    ({"track": "b1"}, "track 'B1': character 2 is '1'; allowed are the letters A-Z"),
    ({"track": 1}, "track must be a string, not int"),
    ({"id": "x::1", "parent": "y"}, "parent 'y' contradicts the id, which says 'x'"),
    ({"id": "A:x", "feature": "B"}, "feature 'B' contradicts the id, which says 'A'"),
    ({"feature": 7}, "feature must be a string, not int"),
    ({"feature": "a b"}, ("feature 'a b': character 2 is ' ' (whitespace); allowed are A-Z a-z 0-9 "
                          ". _ -")),
    ({"feature": ".."}, "feature '..' is a folder's name for itself or its parent"),
    ({"parent": "x"}, "parent is the task itself"),
    ({"parent": 7}, ("parent must be a string, not 7; quote it in YAML, as in '0001', to keep its "
                    "digits")),
    ({"parent": "a/b"}, f"parent: task id 'a/b': character 2 is '/' (a slash); {FORMS}"),
    ({"sequence": 3}, "sequence follows from the id, which says nothing, not 3"),
    ({"id": "A-001-x", "sequence": 3}, "sequence follows from the id, which says 1, not 3"),
    ({"edge": "code"}, "edge follows from the id, which says nothing, not 'code'"),
    ({"depth": 2}, "depth follows from the id, which says 0, not 2"),
    ({"spawned_from": "y"}, "spawned_from cannot be set: spawning subtasks writes it"),
    ({"assigned_at": NOON}, "assigned_at cannot be set: assigning the task writes it"),
    ({"title": 5}, "title must be a string, not 5"),
    ({"title": 10**80}, "title must be a string, not a number of more than 64 bits"),
    ({"description": ["a"]}, "description must be a string, not a list"),
    ({"repo": {}}, "repo must be a string, not a mapping"),
    ({"phase": "\ud800"}, ("phase cannot be written as UTF-8: character 1 is '\\ud800' (not ASCII: "
                          "unnamed)")),
    ({"tags": "core"}, "tags must be a list of strings, not the string 'core'; put it in brackets"),
    ({"tags": {"core"}}, "tags must be a list of strings, not a set"),
    ({"tags": ["a", 1]}, "tags[1] must be a string, not 1"),
    ({"tags": [""] * 6000}, "tags has 6,000 items, more than a definition holds"),
    ({"depends_on": "y"}, ("depends_on must be a list of strings, not the string 'y'; put it in "
                          "brackets")),
    ({"depends_on": ["y", 1]}, ("depends_on[1] must be a string, not 1; quote it in YAML, as in "
                               "'0001', to keep its digits")),
    ({"requires": ["a/b"]}, f"requires[0]: task id 'a/b': character 2 is '/' (a slash); {FORMS}"),
    ({"depends_on": ["x"]}, "depends_on[0] is the task itself"),
    ({"depends_on": [], "requires": []}, "depends_on and requires mean the same: give one of them"),
    ({"roles": ["a/b"]}, ("roles[0] 'a/b': character 2 is '/' (a slash); allowed are printable "
                         "characters other than '/' and ','")),
    ({"roles": ["a", "b,c"]}, ("roles[1] 'b,c': character 2 is ','; allowed are printable "
                              "characters other than '/' and ','")),
    ({"roles": [""]}, "roles[0] is empty; it has 1 to 64 characters"),
    ({"roles": ["x" * 60] * 20}, "roles have 1,219 bytes together, at most 1,024 are kept"),
    ({"human_required": "yes"}, "human_required must be true or false, not 'yes'"),
    ({"parallelizable": 1}, "parallelizable must be true or false, not 1"),
    ({"lease_seconds": 0}, "lease_seconds: a lease lasts over 0 s and at most 3155760000 s, not 0 s"),
    ({"lease_seconds": "60"}, "lease_seconds must be a number, not '60'"),
    ({"lease_seconds": True}, "lease_seconds must be a number, not True"),
    ({"lease_seconds": -1}, "lease_seconds must be from 0 to 3,155,760,000, not -1"),
    ({"estimate_seconds": float("nan")}, ("estimate_seconds must be from 0 to 3,155,760,000, not "
                                         "nan")),
    ({"lock_timeout_hours": float("inf")}, "lock_timeout_hours must be from 0 to 876,600, not inf"),
    ({"priority": "urgent"}, "priority must be one of critical, high, medium, low, not 'urgent'"),
    ({"priority": 1}, "priority must be a string, not 1"),
    ({"isolation": "vm"}, "isolation must be one of none, worktree, container, not 'vm'"),
    ({"coordination_mode": "race"}, ("coordination_mode must be one of sequential, parallel, "
                                    "fan-out-fan-in, not 'race'")),
    ({"assigned_to": "a/b"}, ("assigned_to: agent 'a/b': character 2 is '/' (a slash); allowed are "
                             "printable characters other than '/'")),
    ({"not_before": "soon"}, f"{INSTANT}'soon'"),
    ({"not_before": 5}, f"{INSTANT}5"),
    ({"not_before": date(2026, 1, 31)}, f"{INSTANT}a date"),
    ({"not_before": "0001-01-01T00:00:00+01:00"}, f"{INSTANT}'0001-01-01T00:00:00+01:00'"),
    ({"not_before": "2026-01-31"}, ("not_before 2026-01-31T00:00:00 has no time zone; add Z or an "
                                   "offset such as +02:00")),
    ({"not_before": datetime(2026, 1, 31)}, (  # noqa: DTZ001
        "not_before 2026-01-31T00:00:00 has no time zone; add "
                                            "Z or an offset such as +02:00")),
    ({"state": "reviewed"}, f"state must be one of {STATES}, not 'reviewed'"),
    ({"state": 1}, "state must be a string, not 1"),
    ({"metadata": ["a"]}, "metadata must be a mapping, not a list"),
    ({"metadata": {1: 2}}, "metadata has the key 1; keys are strings"),
    ({"metadata": {"a": {None: 2}}}, "metadata.a has the key nothing; keys are strings"),
    ({"metadata": {"a": [1, object()]}}, ("metadata.a[1] is an object, which cannot be written as "
                                         "JSON")),
    ({"metadata": {"a": float("nan")}}, "metadata.a is nan, which JSON cannot hold"),
    ({"metadata": {"a": 2**64}}, ("metadata.a is a number of more than 64 bits; write it as a "
                                 "string")),
    ({"metadata": {"\udc00": 1}}, ("a key of metadata cannot be written as UTF-8: character 1 is "
                                  "'\\udc00' (not ASCII: unnamed)")),
    ({"owner": {"x": [float("-inf")]}}, "owner.x[0] is -inf, which JSON cannot hold"),
    ({5: 1}, "a key must be a string, not 5"),
    ({"title": "", "tags": "a", "state": "reviewed"}, "; ".join(
        ["tags must be a list of strings, not the string 'a'; put it in brackets",
         f"state must be one of {STATES}, not 'reviewed'"])),
    ({"description": "x" * 20_000},
     ("the definition of task 'x' has 20,027 bytes, at most 16,384 are kept; put the long text "
      "into "
     "a file and name it")),
    ({"depends_on": [f"t{n}" for n in range(300)]}, ("task 'x' has 300 dependencies, at most 256; "
                                                    "put a task between")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"), FAULTS, ids=lambda value: value[:60] if isinstance(value, str) else ""
)
def test_a_fault_names_its_field_what_was_given_and_what_is_wanted(
    fields: dict[Any, Any], message: str
) -> None:
    with pytest.raises(BadArgument) as caught:
        define_task({"id": "x", **fields})
    assert str(caught.value) == message


def test_what_is_no_mapping_is_no_task() -> None:
    nonsense: Any = "A-001-core"
    with pytest.raises(
        BadArgument, match=r"^a task is a mapping with at least an id, not 'A-001-core'$"
    ):
        define_task(nonsense)


def test_metadata_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    with pytest.raises(
        BadArgument, match="holds too much: at most 16,384 values in 64 levels are kept"
    ):
        defined(metadata={"loop": loop})


def test_metadata_that_repeats_itself_a_billion_times_is_refused() -> None:
    laughs: list[Any] = ["ha"]
    for _ in range(30):
        laughs = [laughs, laughs]
    with pytest.raises(BadArgument, match="holds too much"):
        defined(laughs=laughs)


def test_a_definition_given_again_as_its_own_fields_is_the_same() -> None:
    task = defined(
        id="A-001-core::3", priority="low", not_before=NOON, metadata={"a": [1]}, depends_on=["y"]
    )
    assert define_task(msgspec.to_builtins(task)).task == task


names = st.sampled_from([*Task.__struct_fields__, "state", "requires", "owner"])
text = st.text(max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | text
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(text | st.integers(), inner),
    max_leaves=8,
)
ids = st.from_regex(r"[A-C]-00[1-3]-[a-z]{1,3}(::[1-9])?|[a-z]{2,3}", fullmatch=True)

utf8 = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | utf8,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(utf8, inner, max_size=4),
    max_leaves=8,
)
good_fields = st.fixed_dictionaries(
    {"id": ids},
    optional={
        "title": utf8,
        "priority": st.sampled_from(["low", "Medium", "CRITICAL"]),
        "tags": st.lists(utf8, max_size=4),
        "depends_on": st.lists(st.from_regex(r"[D-F]-00[1-3]-[a-z]", fullmatch=True), max_size=4),
        "human_required": st.booleans(),
        "estimate_seconds": st.integers(0, 10**9) | st.floats(0, 1e9),
        "isolation": st.sampled_from([*Isolation, "container"]),
        "not_before": st.datetimes(datetime(1900, 1, 1), timezones=st.timezones()),  # noqa: DTZ001
        "metadata": st.dictionaries(utf8, json_values, max_size=4),
        "owner": json_values,
    },
)


@given(fields=st.dictionaries(names, values | st.lists(ids)), task_id=ids | values)
def test_any_mapping_is_taken_or_refused_by_name(fields: dict[str, Any], task_id: Any) -> None:
    try:
        task = define_task({**fields, "id": task_id}).task
    except BadArgument:
        return
    assert task.id == task_id


@given(fields=good_fields)
def test_a_task_reads_back_from_its_json_as_itself_and_is_written_alike(
    fields: dict[str, Any],
) -> None:
    task = define_task(fields).task
    encoded = msgspec.json.encode(task)
    read = msgspec.json.decode(encoded, type=Task)
    assert read == task
    assert msgspec.json.encode(read) == encoded
    assert define_task(msgspec.to_builtins(task)).task == task
