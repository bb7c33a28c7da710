"""Plans: how they are read, that every fault is found and placed, and that cycles are found and
shown."""

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genlock.core.definition import examine_task
from genlock.core.model import Task
from genlock.core.plan import (
    Definition,
    Misplaced,
    Plan,
    check_graph,
    find_cycle,
    find_cycles,
    read_plan,
)
from genlock.errors import PlanInvalid

# GC 3.7
ECOMMERCE: dict[str, Any] = {
    "project": "ecommerce-rebuild",
    "tracks": {
        "A": [
            {
                "id": "A-001-core-framework",
                "description": "Initialize core application framework",
                "depends_on": [],
            },
            {
                "id": "A-002-di-container",
                "description": "Setup dependency injection container",
                "depends_on": ["A-001-core-framework"],
            },
        ],
        "B": [{"id": "B-001-schema-design", "depends_on": ["A-001-core-framework"]}],
    },
}


def test_tasks_are_read_track_by_track() -> None:
    assert read_plan(ECOMMERCE) == Plan(
        project="ecommerce-rebuild",
        tracks=None,
        tasks=(
            Definition(
                Task(
                    id="A-001-core-framework",
                    track="A",
                    sequence=1,
                    description="Initialize core application framework",
                )
            ),
            Definition(
                Task(
                    id="A-002-di-container",
                    track="A",
                    sequence=2,
                    description="Setup dependency injection container",
                    depends_on=("A-001-core-framework",),
                )
            ),
            Definition(
                Task(
                    id="B-001-schema-design",
                    track="B",
                    sequence=1,
                    depends_on=("A-001-core-framework",),
                )
            ),
        ),
    )


def test_a_track_may_say_what_it_is_for_and_then_the_plan_has_a_table() -> None:
    plan = read_plan(
        {
            "tracks": {
                "OPS": {"purpose": "Keep it running", "tasks": [{"id": "OPS-001-pager"}]},
                "B": [],
                "Q": None,
                "C": {"tasks": [{"id": "C-001-routes", "state": "backlog"}]},
            }
        }
    )
    assert plan.project is None
    assert plan.tracks == {"OPS": "Keep it running", "B": "", "Q": "", "C": ""}
    assert plan.tasks == (
        Definition(Task(id="OPS-001-pager", track="OPS", sequence=1)),
        Definition(Task(id="C-001-routes", track="C", sequence=1), backlog=True),
    )


def test_a_task_whose_id_names_no_track_gets_the_one_it_stands_under() -> None:
    plan = read_plan(
        {
            "tracks": {"A": [{"id": "0001"}, {"id": "AUTH:design"}]},
            "tasks": [{"id": "announce"}, {"id": "B-001-x"}],
        }
    )
    assert [(task.id, task.track) for task, *_ in plan.tasks] == [
        ("0001", "A"),
        ("AUTH:design", "A"),
        ("announce", None),
        ("B-001-x", "B"),
    ]


@pytest.mark.parametrize(
    "source", [{"tracks": {}}, {"tracks": None}, {"tasks": []}, {"tasks": None, "x-note": "empty"}]
)
def test_a_plan_may_have_no_tasks(source: dict[str, Any]) -> None:
    assert read_plan(source) == Plan(None, None, ())


FAULTS: list[tuple[Any, list[str]]] = [
    (None, ["a plan is a mapping with project, tracks and tasks, not nothing"]),
    ([], ["a plan is a mapping with project, tracks and tasks, not a list"]),
    ({}, ["the plan has neither tracks nor tasks"]),
    (
        {"task": [], "x-defaults": {}},
        [
            "task: there is no key 'task' in a plan; there are project, tracks, tasks, roles, edges and x-…",
            "the plan has neither tracks nor tasks",
        ],
    ),
    (
        {5: 1, "tasks": []},
        ["there is no key 5 in a plan; there are project, tracks, tasks, roles, edges and x-…"],
    ),
    (
        {"project": "a/b", "tasks": []},
        ["project: project 'a/b': character 2 is '/' (a slash); allowed are A-Z a-z 0-9 . _ -"],
    ),
    ({"tracks": []}, ["tracks: must be a mapping from tracks to their tasks, not a list"]),
    ({"tracks": {"A": "x"}}, ["tracks.A: must be a list of tasks, not 'x'"]),
    ({"tasks": {"id": "x"}}, ["tasks: must be a list of tasks, not a mapping"]),
    (
        {"tracks": {"a1": []}},
        ["tracks.a1: track 'A1': character 2 is '1'; allowed are the letters A-Z"],
    ),
    ({"tracks": {1: []}}, ["tracks: track must be a string, not int"]),
    (
        {"tracks": {"A": {"owner": "bob"}}},
        ["tracks.A.owner: there is no key 'owner' in a track; there are purpose and tasks"],
    ),
    ({"tracks": {"A": {"purpose": 5}}}, ["tracks.A.purpose: purpose must be a string, not 5"]),
    ({"tracks": {"A": {"tasks": [{}]}}}, ["tracks.A.tasks[0]: id is missing: every task has one"]),
    ({"tasks": ["x"]}, ["tasks[0]: a task is a mapping with at least an id, not 'x'"]),
    (
        {"tracks": {"A": [{"id": "B-001-x"}]}},
        ["tracks.A[0] (B-001-x): belongs to track 'B', but stands under 'A'; move it there"],
    ),
    (
        {"tracks": {"A": [{"id": "x", "track": "B"}]}},
        ["tracks.A[0] (x): belongs to track 'B', but stands under 'A'; move it there"],
    ),
    (
        {"tracks": {"A": [{"id": "A-001-x"}]}, "tasks": [{"id": "A-001-x"}]},
        ["tasks[0] (A-001-x): the id stands already at tracks.A[0]"],
    ),
    (
        {
            "project": "_",
            "tracks": {
                "A": [{"id": 7}, {"id": "A-001-x", "title": 5, "tags": "t"}, {"id": "A-001-x"}]
            },
        },
        [
            "project: project '_' is reserved; '.', '..' and '_' are no names",
            (
                "tracks.A[0]: id must be a string, not 7; quote it in YAML, as in '0001', to keep "
                "its digits"
            ),
            "tracks.A[1] (A-001-x): title must be a string, not 5",
            (
                "tracks.A[1] (A-001-x): tags must be a list of strings, not the string 't'; put it "
                "in brackets"
            ),
            "tracks.A[2] (A-001-x): the id stands already at tracks.A[1]",
        ],
    ),
]


@pytest.mark.parametrize(("source", "faults"), FAULTS)
def test_all_faults_of_a_plan_are_found_with_their_place(source: Any, faults: list[str]) -> None:
    with pytest.raises(PlanInvalid) as caught:
        read_plan(source)
    assert [str(fault) for fault in caught.value.faults] == faults


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["A", "B", "id", "tasks", "purpose", "depends_on"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    source=st.fixed_dictionaries(
        {}, optional={"project": json_values, "tracks": json_values, "tasks": json_values}
    )
)
def test_whatever_stands_in_a_plan_it_is_read_or_refused(source: dict[str, Any]) -> None:
    with suppress(PlanInvalid):
        read_plan(source)


class Word(str):
    """As YAML readers hand them out."""

    __slots__ = ()


words = st.sampled_from(
    [
        "a",
        "b",
        "A-001-x",
        "A-001-x::1",
        "0001_t1",
        "AUTH:x",
        "",
        "a b",
        "null",
        "x" * 17_000,
        "\ud800",
        Word("a"),
        Word("c"),
    ]
)
listed = st.lists(words | st.none() | st.integers(0, 3), max_size=3)
simple_fields = st.fixed_dictionaries(
    {"id": words},
    optional={
        "title": words | st.none() | st.integers(),
        "description": words,
        "depends_on": listed | listed.map(tuple) | listed.map(frozenset) | words | st.none(),
        "tags": listed | listed.map(frozenset),
        "modules": listed,
        "phase": words,
        "repo": words,
    },
)


@settings(max_examples=500)
@given(fields=simple_fields)
def test_the_shorter_way_to_a_definition_leads_to_the_same(fields: dict[str, Any]) -> None:
    # Only what is a dict itself may go the shorter way.
    short, long = examine_task(fields), examine_task(MappingProxyType(fields))
    assert short == long
    if short.definition is not None:
        task = short.definition.task
        assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
        assert type(task.id) is str
        assert all(type(item) is str for item in (*task.depends_on, *task.tags, *task.modules))


def said(faults: list[Misplaced]) -> list[str]:
    return [
        f"{fault.task}: {fault.text}"
        if fault.alone
        else fault.text.removesuffix("; remove one of these dependencies")
        for fault in faults
    ]


def task(name: str, *depends_on: str, parent: str | None = None) -> Task:
    return Task(id=name, depends_on=depends_on, parent=parent)


GRAPHS: list[tuple[list[Task], list[str], dict[str, list[str]], list[str]]] = [
    ([task("a", "b"), task("b")], [], {}, []),
    ([task("a", "b")], ["b"], {}, []),
    (
        [task("a", "b", "c"), task("d", parent="e")],
        ["b"],
        {},
        ["a: depends on 'c', which does not exist", "d: its parent 'e' does not exist"],
    ),
    ([task("a", "a")], [], {}, ["these wait for each other: a → a"]),
    (
        [task("c", "a"), task("a", "b"), task("b", "c")],
        [],
        {},
        ["these wait for each other: a → b → c → a"],
    ),
    # A parent waits for its children, so a child that depends on its parent never starts.
    ([task("a"), task("b", "a", parent="a")], [], {}, ["these wait for each other: a → b → a"]),
    ([task("b", "a", parent="a")], ["a"], {}, ["these wait for each other: a → b → a"]),
    (
        [task("a", parent="b"), task("b", parent="a")],
        [],
        {},
        ["these wait for each other: a → b → a"],
    ),
    ([task("a", "b")], ["a", "b"], {"b": ["a"]}, ["these wait for each other: a → b → a"]),
    # What was known of a task that is defined anew no longer counts.
    ([task("a", "b"), task("b")], ["a", "b"], {"b": ["a"]}, []),
    # A known parent waits for its new child too.
    (
        [task("c", "d", parent="p")],
        ["p", "d"],
        {"p": ["x"], "d": ["p"]},
        ["these wait for each other: c → d → p → c"],
    ),
    (
        [task("a", "b"), task("b", "a"), task("c", "d"), task("d", "c"), task("e", "a")],
        [],
        {},
        ["these wait for each other: a → b → a", "these wait for each other: c → d → c"],
    ),
    # Shown is the short way round.
    (
        [task("a", "b"), task("b", "c", "a"), task("c", "d"), task("d", "a")],
        [],
        {},
        ["these wait for each other: a → b → a"],
    ),
]


@pytest.mark.parametrize(("tasks", "known", "edges", "faults"), GRAPHS)
def test_the_graphs_faults_are_named(
    tasks: list[Task], known: list[str], edges: dict[str, list[str]], faults: list[str]
) -> None:
    assert said(check_graph(tasks, known, edges)) == faults
    assert said(check_graph(iter(tasks), frozenset(known), edges)) == faults


def test_a_fault_of_the_graph_points_at_the_key_that_says_it() -> None:
    tasks = [task("a", "b", "c"), task("b", parent="d"), task("e", "f"), task("f", "e")]
    assert check_graph(tasks, []) == [
        Misplaced("a", "depends on 'c', which does not exist", ("depends_on", 1)),
        Misplaced("b", "its parent 'd' does not exist", ("parent",)),
        Misplaced(
            "e",
            "these wait for each other: e → f → e; remove one of these dependencies",
            ("depends_on",),
            alone=False,
        ),
    ]


def test_a_cycle_through_children_that_exist_is_found_and_one_among_others_is_not_the_plans() -> (
    None
):
    # p waits for its child c, which waits for d, which is now to wait for p.
    (fault,) = check_graph([task("p"), task("d", "p")], ["c"], {"c": ["d"]}, {"p": ["c"]})
    assert (
        fault.text == "these wait for each other: c → d → p → c; remove one of these dependencies"
    )
    assert fault.task == "d"
    assert check_graph([task("p")], ["x", "y"], {"x": ["y"], "y": ["x"]}) == []


@pytest.mark.parametrize(
    ("wrong", "names", "guess"),
    [
        ("A-001", ["A-001-core", "A-002-core"], "; did you mean 'A-001-core'?"),
        ("A-001-cor", ["A-001-core", "B-001-core"], "; did you mean 'A-001-core'?"),
        ("a-001-core", ["A-001-core", "zebra"], "; did you mean 'A-001-core'?"),
        ("A-001", ["A-001-core", "A-001-else"], ""),
        ("nothing-like-it", ["A-001-core"], ""),
    ],
)
def test_a_name_that_was_perhaps_meant_is_named(wrong: str, names: list[str], guess: str) -> None:
    (fault,) = check_graph([task("t", wrong)], names)
    assert fault.text == f"depends on {wrong!r}, which does not exist{guess}"


def test_neither_a_task_itself_nor_one_that_lacks_the_same_parent_was_meant() -> None:
    alone = check_graph([task("A-001-x::1", parent="A-001-x")], [])
    assert said(alone) == ["A-001-x::1: its parent 'A-001-x' does not exist"]
    siblings = check_graph([task(f"A-001-x::{n}", parent="A-001-x") for n in (1, 2)], ["A-001-xy"])
    assert {fault.text for fault in siblings} == {
        "its parent 'A-001-x' does not exist; did you mean 'A-001-xy'?"
    }
    itself = check_graph([task("A-001-core", "A-001")], [])
    assert said(itself) == ["A-001-core: depends on 'A-001', which does not exist"]


def test_of_many_cycles_ten_are_shown() -> None:
    pairs = [task(f"a{n}", f"b{n}") for n in range(12)] + [
        task(f"b{n}", f"a{n}") for n in range(12)
    ]
    faults = said(check_graph(pairs, []))
    assert len(faults) == 10
    assert faults[0] == "these wait for each other: a0 → b0 → a0"


def test_a_long_cycle_is_shown_by_its_ends() -> None:
    ring = [task(f"t{n:03}", f"t{(n + 1) % 100:03}") for n in range(100)]
    (fault,) = said(check_graph(ring, []))
    assert fault.startswith("these wait for each other: t000 → t001 → t002 → ")
    assert " → t008 → t009 → (81 more) → t091 → t092 → " in fault
    assert fault.endswith(" → t098 → t099 → t000")


def test_a_hundred_thousand_tasks_are_looked_through() -> None:
    rng = random.Random(1)
    tasks = [
        task(f"t{n}", *{f"t{rng.randrange(n)}" for _ in range(3)} if n else ())
        for n in range(100_000)
    ]
    tasks += [
        task(f"late{n}", f"late{n - 1}" if n else "t7", "t99999", "t50000") for n in range(100)
    ]
    assert check_graph(tasks, []) == []
    tasks.append(task("x", "late99"))
    tasks[-100] = task("late1", "x")
    (fault,) = said(check_graph(tasks, []))
    assert fault.startswith("these wait for each other: late1 → x → late99 → late98 → ")
    assert fault.endswith(" → late3 → late2 → late1")


def test_a_chain_of_a_hundred_thousand_does_not_recurse() -> None:
    edges = {f"t{n}": [f"t{n + 1}"] for n in range(100_000)}
    assert find_cycle(edges) is None
    edges["t100000"] = ["t0"]
    cycle = find_cycle(edges)
    assert cycle is not None
    assert len(cycle) == 100_002


nodes = st.integers(0, 9).map(str)
graphs = st.dictionaries(nodes, st.lists(nodes, max_size=3))
# Edges to lower numbers only: whatever is drawn, it is no cycle.
acyclic_graphs = graphs.map(
    lambda edges: {
        node: [other for other in others if other < node] for node, others in edges.items()
    }
)


def naively_reachable(edges: Mapping[str, Collection[str]], start: str) -> set[str]:
    found: set[str] = set()
    grown = set(edges.get(start, ()))
    while grown - found:
        found |= grown
        grown = {other for node in found for other in edges.get(node, ())}
    return found


def naive_has_cycle(edges: Mapping[str, Collection[str]]) -> bool:
    return any(node in naively_reachable(edges, node) for node in edges)


def as_tasks(edges: Mapping[str, Collection[str]]) -> Iterator[Task]:
    for node in map(str, range(10)):
        yield task(node, *edges.get(node, ()))


@given(edges=acyclic_graphs)
def test_a_graph_without_a_cycle_has_no_fault(edges: dict[str, list[str]]) -> None:
    assert check_graph(as_tasks(edges), []) == []


@given(edges=graphs)
def test_cycles_are_found_exactly_where_a_search_from_every_node_finds_them(
    edges: dict[str, list[str]],
) -> None:
    assert bool(check_graph(as_tasks(edges), [])) == naive_has_cycle(edges)
    assert (find_cycle(edges) is not None) == naive_has_cycle(edges)


@given(edges=graphs)
def test_cycles_follow_the_edges_share_nothing_and_leave_no_other(
    edges: dict[str, list[str]],
) -> None:
    cycles = list(find_cycles(edges))
    for cycle in cycles:
        assert cycle[0] == cycle[-1] == min(cycle)
        assert len(set(cycle)) == len(cycle) - 1
        assert all(after in edges[before] for before, after in pairwise(cycle))
    members = [node for cycle in cycles for node in cycle[1:]]
    assert len(members) == len(set(members))
    assert not naive_has_cycle(
        {node: others for node, others in edges.items() if node not in members}
    )


@given(edges=graphs, parents=st.dictionaries(nodes, nodes))
def test_parents_and_dependencies_make_one_graph(
    edges: dict[str, list[str]], parents: dict[str, str]
) -> None:
    tasks = [
        Task(id=one.id, depends_on=one.depends_on, parent=parents.get(one.id))
        for one in as_tasks(edges)
    ]
    waits = {
        node: {
            *edges.get(node, ()),
            *(child for child, parent in parents.items() if parent == node),
        }
        for node in map(str, range(10))
    }
    assert bool(check_graph(tasks, [])) == naive_has_cycle(waits)
