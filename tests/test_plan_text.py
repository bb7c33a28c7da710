"""Plans as text: what YAML is read as, what is said of YAML that is broken, and that hostile text
is only refused."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scanner import Scanner

from genlock.core.model import Task
from genlock.core.plan import Definition, Plan, check_graph
from genlock.errors import BadArgument, GenlockError, PlanInvalid
from genlock.plans import (
    PlanFile,
    check_plan_alone,
    load_yaml,
    read_plan_source,
    write_lines,
    write_yaml,
)
from genlock.plans.quick import UNREAD, read_quickly
from genlock.plans.values import MOST_NESTING, _Scanner, find_places

# GC 3.7, with the indentation that the document's text has lost.
ECOMMERCE = """\
# Project Plan Example
project: ecommerce-rebuild
tracks:
  A:
    - id: A-001-core-framework
      description: "Initialize core application framework"
      depends_on: []

    - id: A-002-di-container
      description: "Setup dependency injection container"
      depends_on: [A-001-core-framework]

    - id: A-003-event-bus
      description: "Implement event bus for async communication"
      depends_on: [A-002-di-container]

  B:
    - id: B-001-schema-design
      description: "Design database schema"
      depends_on: []

    - id: B-002-entity-models
      description: "Create entity models from schema"
      depends_on: [B-001-schema-design, A-001-core-framework] # Cross-track!

    - id: B-003-repositories
      description: "Implement repository pattern"
      depends_on: [B-002-entity-models, A-002-di-container] # Cross-track!
"""

ECOMMERCE_PLAN = Plan(
    project="ecommerce-rebuild",
    tracks=None,
    tasks=tuple(
        Definition(
            Task(
                id=name,
                track=name[0],
                sequence=int(name[2:5]),
                description=description,
                depends_on=depends_on,
            )
        )
        for name, description, depends_on in [
            ("A-001-core-framework", "Initialize core application framework", ()),
            (
                "A-002-di-container",
                "Setup dependency injection container",
                ("A-001-core-framework",),
            ),
            (
                "A-003-event-bus",
                "Implement event bus for async communication",
                ("A-002-di-container",),
            ),
            ("B-001-schema-design", "Design database schema", ()),
            (
                "B-002-entity-models",
                "Create entity models from schema",
                ("B-001-schema-design", "A-001-core-framework"),
            ),
            (
                "B-003-repositories",
                "Implement repository pattern",
                ("B-002-entity-models", "A-002-di-container"),
            ),
        ]
    ),
)


def test_the_documents_example_is_read() -> None:
    plan = read_plan_source(ECOMMERCE)
    assert plan == ECOMMERCE_PLAN
    assert check_graph([definition.task for definition in plan.tasks], []) == []


def test_a_mapping_and_json_are_read_alike() -> None:
    mapping = load_yaml(ECOMMERCE)
    assert read_plan_source(mapping) == ECOMMERCE_PLAN
    assert read_plan_source(json.dumps(mapping)) == ECOMMERCE_PLAN
    assert read_plan_source(json.dumps(mapping, indent="\t")) == ECOMMERCE_PLAN


def test_ids_keep_their_digits() -> None:
    text = """
tasks:
  - {id: 0001, count: 0012, metadata: {id: 0003}}
  - id: &second 0002
    parent: 0001
    depends_on: [0001, '0003', 1.10]
  - id: 1017
    requires: [*second, 0x1F]
"""
    assert [task for task, *_ in read_plan_source(text).tasks] == [
        Task(id="0001", metadata={"count": 12, "id": 3}),
        Task(id="0002", parent="0001", depth=1, depends_on=("0001", "0003", "1.10")),
        Task(id="1017", depends_on=("0002", "0x1F")),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing", None),
        ("\ufeffa: b", {"a": "b"}),
        ("[~, null, NULL, '']", [None, None, None, ""]),
        ("a:\nb: ''", {"a": None, "b": ""}),
        ("[true, True, FALSE, yes, off, 'true']", [True, True, False, "yes", "off", "true"]),
        ("[1, -1, +1, 007, 0x1F, 0o17, '1']", [1, -1, 1, 7, 31, 15, "1"]),
        ("[1.5, 1., .5, 1e3, -.inf]", [1.5, 1.0, 0.5, 1000.0, float("-inf")]),
        (
            "[2026-01-31, 2026-01-31T09:00:00Z, 12:30]",
            ["2026-01-31", "2026-01-31T09:00:00Z", "12:30"],
        ),
        (
            "[!!str 5, ! 5, !!int 5, !!float 5, !!null '', !!timestamp 2026-01-31]",
            ["5", "5", 5, 5, None, "2026-01-31"],
        ),
        (
            "!!map {1: a, true: b, null: c, 2.50: !!seq [d]}",
            {"1": "a", "true": "b", "null": "c", "2.50": ["d"]},
        ),
        ("a: |\n  two\n  lines\nb: >-\n  one\n  line", {"a": "two\nlines\n", "b": "one line"}),
        (
            "a: &x {k: 1}\nb: *x\nc: [*x, *x]",
            {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}, {"k": 1}]},
        ),
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}", {"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}}),
        ("a: &x {k: 1}\nb: {<<: [{k: 2}, *x]}", {"a": {"k": 1}, "b": {"k": 2}}),
        ("{'<<': 1}", {"<<": 1}),
        (r'"\ud83d\ude00 \/ \u00e9"', "😀 / é"),
        ("%YAML 1.1\n---\nyes", "yes"),
    ],
)
def test_values_are_those_of_yamls_core_schema(text: str, value: Any) -> None:
    assert load_yaml(text) == value


LAUGHS = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)

BROKEN = [
    ("a: [", ("line 1, column 5: while parsing a flow node, expected the node content, but found "
             "'<stream end>'")),
    ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
    ("a:\n\t- x", ("line 2, column 1: while scanning for the next token, found character '\\t' "
                   "that "
                  "cannot start any token")),
    ("- 'a", "line 1, column 5: while scanning a quoted scalar, found unexpected end of stream"),
    ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' stands twice in one mapping"),
    ("{a: {b: 1, 'b': 2}}", "line 1, column 12: the key 'b' stands twice in one mapping"),
    ("{1: a, '1': b}", "line 1, column 8: the key '1' stands twice in one mapping"),
    ("{<<: {}, <<: {}}", "line 1, column 10: the key '<<' stands twice in one mapping"),
    ("<<: 5", "line 1, column 5: what << merges must be a mapping or a list of mappings, not 5"),
    ("<<: [{}, 5]", ("line 1, column 5: what << merges must be a mapping or a list of mappings, "
                     "not "
                    "a list")),
    ("a: \0", "line 1, column 4: the character '\\x00' is not allowed in YAML"),
    ("a: é\nb: \x07", "line 2, column 4: the character '\\x07' is not allowed in YAML"),
    ("a: \ud800", "line 1, column 4: the character '\\ud800' is not allowed in YAML"),
    (r'a: "\ud800"', "line 1, column 4: an escape stands for half a character"),
    (r'- "\U99999999"', ("line 1, column 1: what follows has an escape or a directive without "
                        "meaning")),
    ("%YAML 1.9\n---\na", ("line 1, column 1: what follows has an escape or a directive without "
                          "meaning")),
    ("a\n---\nb", "line 2, column 1: a second document starts here; one is wanted"),
    ("? [a]\n: b", "line 1, column 3: a key is text, not a mapping or a list"),
    ("&a a: 1\n*a : 2", "line 2, column 1: a key is text, not an alias"),
    ("[*a]", "line 1, column 2: nothing is called &a above this alias"),
    ("a: &a [*a]", "line 1, column 8: the alias *a stands inside what it stands for"),
    (LAUGHS, ("line 5, column 50: the alias *a3 stands for 11,111 values, which with those before "
             "it is too much")),
    ("[" * 100_000, "line 1, column 101: this is nested more than 100 levels deep"),
    ("- " * 100_000, "line 1, column 201: this is nested more than 100 levels deep"),
    ("a: " + "9" * 5000, "line 1, column 4: a number has at most 400 digits"),
    ("!!int x", "line 1, column 1: 'x' is no int, as its tag says"),
    (("!!python/name:os.system "
     "[ls]"), ("line 1, column 1: the tag "
                                     "'tag:yaml.org,2002:python/name:os.system' is not known "
                                     "here")),
    ("- !!binary aGk=", "line 1, column 3: the tag 'tag:yaml.org,2002:binary' is not known here"),
    ("!mine {a: 1}", "line 1, column 1: the tag '!mine' is not known here"),
    ("!e!x a", "line 1, column 1: while parsing a node, found undefined tag handle '!e!'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=lambda value: ascii(value[:40]))
def test_broken_yaml_is_refused_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(BadArgument) as caught:
        load_yaml(text)
    assert str(caught.value) == message


def test_a_path_is_not_opened(tmp_path: Path) -> None:
    path: Any = tmp_path / "plan.yaml"
    path.write_text(ECOMMERCE)
    with pytest.raises(BadArgument, match=r"^YAML must be a string, not a PosixPath$"):
        load_yaml(path)


def test_faults_in_text_have_the_line_and_column_of_what_is_wrong() -> None:
    text = """
tracks:
  A:
    - id: A-001-x
    - id: A-001-x
      title: 5
  B:
    tasks:
      - {id: A-002-y}
tasks:
- tags: t
"""
    with pytest.raises(PlanInvalid) as caught:
        read_plan_source(text)
    assert [str(fault) for fault in caught.value.faults] == [
        "line 5, column 7: A-001-x: the id stands already in line 4, column 7",
        "line 6, column 7: A-001-x: title must be a string, not 5",
        "line 9, column 10: A-002-y: belongs to track 'A', but stands under 'B'; move it there",
        "line 11, column 3: id is missing: every task has one",
        "line 11, column 3: tags must be a list of strings, not the string 't'; put it in brackets",
    ]


def test_places_are_those_of_keys_and_items_and_of_what_they_lie_in() -> None:
    text = "a:\n  - b: 1\n    c: [x, {d: *q}, &q y]\n  - [z]\n'e': |\n  text\n"
    assert find_places(
        text.replace("*q", "p"),
        [("a", 0, "c", 1, "d"), ("a", 1, 0), ("e",), ("nothing",), ("a", 7)],
    ) == {
        (): (1, 1),
        ("a",): (1, 1),
        ("a", 0): (2, 5),
        ("a", 0, "c"): (3, 5),
        ("a", 0, "c", 1): (3, 12),
        ("a", 0, "c", 1, "d"): (3, 13),
        ("a", 1): (4, 5),
        ("a", 1, 0): (4, 6),
        ("e",): (5, 1),
    }


def test_several_files_make_one_plan() -> None:
    plan = read_plan_source(
        [
            PlanFile(
                "one.yaml", b"project: shop\ntracks: {A: {purpose: Base, tasks: [{id: A-001-x}]}}"
            ),
            PlanFile("two.yaml", b"project: shop\ntasks: [{id: y, depends_on: [A-001-x]}]"),
            PlanFile(
                "three.jsonl",
                b'{"id": "z", "depends_on": ["y"]}\n\n{"id": "B-001-q", "colour": "blue"}\n',
            ),
        ]
    )
    assert plan == Plan(
        "shop",
        {"A": "Base"},
        (
            Definition(Task(id="A-001-x", track="A", sequence=1)),
            Definition(Task(id="y", depends_on=("A-001-x",))),
            Definition(Task(id="z", depends_on=("y",))),
            Definition(Task(id="B-001-q", track="B", sequence=1, metadata={"colour": "blue"})),
        ),
    )


def test_what_has_a_task_in_its_first_line_is_json_lines_whatever_its_name() -> None:
    lines = b'{"id": "a"}\n{"id": "b"}\n'
    assert [task.id for task, *_ in read_plan_source([PlanFile("<stdin>", lines)]).tasks] == [
        "a",
        "b",
    ]
    assert [
        task.id
        for task, *_ in read_plan_source([PlanFile("<stdin>", b'{"tasks": [{"id": "a"}]}')]).tasks
    ] == ["a"]


# Every field that a plan can give, so that what is written must read back as it was.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
free_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
ID_POOL = [
    "0001",
    "0001_t1",
    "0001_t1.2",
    "A-001-x",
    "A-001-x::1",
    "AUTH:design",
    "1.10",
    "null",
    "true",
    "-",
    "--",
    "a.b",
    "1e3",
]
definitions: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    title=texts,
    description=texts,
    phase=texts,
    priority=st.sampled_from(["critical", "high", "medium", "low"]),
    tags=st.lists(texts, max_size=2),
    modules=st.lists(texts, max_size=2),
    repo=texts,
    feature=st.none() | st.just("F.1"),
    roles=st.lists(st.sampled_from(["architect", "qa lead"]), unique=True, max_size=2),
    human_required=st.booleans(),
    estimate_seconds=st.none() | st.floats(0, 1e6),
    isolation=st.sampled_from(["none", "worktree"]),
    not_before=st.none() | st.just("2026-01-31T09:00:00.000001Z"),
    assigned_to=st.none() | st.just("agent 7"),
    state=st.sampled_from(["backlog", "pending"]),
    metadata=st.dictionaries(texts, free_values, max_size=3),
)


@settings(deadline=None)
@given(fields=st.lists(definitions, min_size=1, max_size=len(ID_POOL)), described=st.booleans())
@example(fields=[{"metadata": {"k" * 2000: {"j" * 2000: 1}}}], described=True)
@example(
    fields=[
        {
            "title": "a: b #c",
            "description": "- x\n\ty\x85\u2028\ufeff\x7f\U0001f600",
            "metadata": {"<<": 1, "id": "0001"},
        }
    ],
    described=False,
)
def test_what_is_written_reads_back_as_the_same_plan(
    fields: list[dict[str, Any]], described: bool
) -> None:
    tasks = [
        {**one, "id": name, "depends_on": ID_POOL[:at][-2:]}
        | ({"feature": None} if ":" in name else {})
        for at, (name, one) in enumerate(zip(ID_POOL, fields, strict=False))
    ]
    source: dict[str, Any] = {"tasks": tasks}
    if described:
        source["tracks"] = {
            "OPS": {"purpose": "keep: it #running", "tasks": [{"id": "slug-in-a-track"}]}
        }
    plan = read_plan_source(source)
    again = read_plan_source("\n".join(write_yaml(plan)))
    assert sorted(again.tasks, key=lambda one: one.task.id) == sorted(
        plan.tasks, key=lambda one: one.task.id
    )
    assert (again.tracks or {}).get("OPS") == (plan.tracks or {}).get("OPS")
    lines = read_plan_source([PlanFile("plan.jsonl", "\n".join(write_lines(plan)).encode())])
    assert lines.tasks == plan.tasks


@pytest.mark.parametrize("text", ["", "just text", "- a", "5"])
def test_text_that_is_no_mapping_is_no_plan(text: str) -> None:
    with pytest.raises(
        PlanInvalid, match="a plan is a mapping with project, tracks and tasks, not "
    ):
        read_plan_source(text)


def test_tasks_may_share_defaults() -> None:
    text = """
x-defaults: &defaults
  priority: high
  roles: [architect]
tasks:
  - {<<: *defaults, id: one}
  - {<<: *defaults, id: two, priority: low}
"""
    assert [task for task, *_ in read_plan_source(text).tasks] == [
        Task(id="one", priority="high", roles=("architect",)),
        Task(id="two", priority="low", roles=("architect",)),
    ]


# Pieces of YAML, so that what is put together comes far enough to go wrong late.
MARKS = "[]{},:?|>'\"&*!%@`#~-\n\t\r\\\x85\u2028\ufeff😀"
WORDS = [
    "a",
    "b: ",
    "- ",
    "  ",
    "    ",
    "|2",
    "&a ",
    "*a",
    "!!",
    "!!int ",
    "!<x>",
    "---\n",
    "...\n",
    " #c\n",
    "0001",
    "<<: ",
]
ODDITIES = ["%YAML 1.1\n", "%YAML 1.99\n", "%TAG ! x\n", "\\U99999999", "\\ud800"]
PLAN_WORDS = [
    "tracks:\n",
    "tasks:\n",
    "A:\n",
    "- id: ",
    "A-001-x\n",
    "depends_on: ",
    "metadata: ",
    "state: ",
    "not_before: 2026-01-31\n",
]
pieces = st.lists(st.sampled_from([*MARKS, *WORDS, *ODDITIES, *PLAN_WORDS]), max_size=30).map(
    "".join
)


@settings(deadline=None)
@given(text=st.text() | pieces)
@example(text="? :")
@example(text="- " * 5000)
@example(text="{a: " * 5000)
@example(text=LAUGHS.replace("a9:", "tasks:"))
@example(text="tasks: &a [{id: x, metadata: {loop: *a}}]")
@example(text="tasks: [{id: x, n: " + "9" * 300 + "}]")
def test_whatever_the_text_it_is_read_or_refused(text: str) -> None:
    data = text.encode(errors="surrogatepass")
    for read in (
        lambda: load_yaml(text),
        lambda: read_plan_source(text),
        lambda: check_plan_alone([PlanFile("plan.yaml", data)]),
        lambda: check_plan_alone([PlanFile("plan.jsonl", data), PlanFile("-", data)]),
    ):
        with suppress(GenlockError):
            read()


# Lines as people write them, and such as look like them.
LINE_ENDS = [
    *[
        "",
        " ",
        " # note",
        " #",
        " a",
        " a, b c",
        " it's done",
        " null",
        " True",
        " 0001",
        " 1.5",
        " 12:30",
        " 2026-01-31",
        " x: y",
        " - x",
    ],
    *[
        ' "a: #b"',
        " 'q'",
        " 'it''s'",
        ' "\\n"',
        " [a, 0001, null]",
        " []",
        " [a,b] # c",
        " [a b, c]",
        " {id: 0001, k: [1]}",
    ],
    *[
        " &a x",
        " *a",
        " |",
        " [",
        " 'x",
        " a # b",
        " a#b",
        " -1",
        " ~",
        " !!str 5",
        " <<",
        " é",
        " a:",
        " @x",
        ' "x" y',
    ],
]
KEYS = [
    "id",
    "depends_on",
    "metadata",
    "a",
    "b-c",
    "tasks",
    "x_y",
    "null",
    "requires",
    "<<",
    "'q'",
    "é",
]
yaml_lines = st.builds(
    lambda indent, dash, key, end: " " * indent + dash + key + end,
    st.integers(0, 6),
    st.sampled_from(["", "", "- ", "-", "-  "]),
    st.sampled_from(KEYS).map(lambda key: f"{key}:")
    | st.sampled_from(["", "a", "#", "---", "0001", "null"]),
    st.sampled_from(LINE_ENDS),
)


plain_keys = st.sampled_from(["metadata", "a", "b-c", "tasks", "x_y", "null"])
id_keys = st.sampled_from(["id", "depends_on", "requires"])
plain_ends = st.integers(0, 19).flatmap(
    lambda odd: st.sampled_from(LINE_ENDS if odd == 0 else LINE_ENDS[: LINE_ENDS.index(" x: y")])
)
Node = str | tuple[int, list[Any]] | dict[str, Any]


def lists_of(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
    """Lists that begin below their key, or as far out as the key."""
    return st.tuples(st.sampled_from([0, 2]), st.lists(items, min_size=1, max_size=3))


def mappings_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings, whose ids are texts or lists of texts."""
    fields = st.tuples(plain_keys, values) | st.tuples(id_keys, plain_ends | lists_of(plain_ends))
    return st.lists(fields, min_size=1, max_size=3, unique_by=lambda field: field[0]).map(dict)


nodes: st.SearchStrategy[Node] = st.recursive(
    plain_ends,
    lambda inner: mappings_of(inner) | lists_of(plain_ends | mappings_of(inner)),
    max_leaves=8,
)


def lines_of(node: Node, indent: int) -> list[str]:
    """The lines of a mapping or a list as people indent them, or the rest of its key's line."""
    if isinstance(node, str):
        return [node]
    lines: list[str] = []
    if isinstance(node, dict):
        for key, value in node.items():
            inner = lines_of(value, indent + (value[0] if isinstance(value, tuple) else 2))
            on_its_line = inner.pop(0) if isinstance(value, str) else ""
            lines += [f"{' ' * indent}{key}:{on_its_line}", *inner]
    else:
        for item in node[1]:
            inner = lines_of(item, indent + 2)
            lines += [f"{' ' * indent}- {inner[0].lstrip()}", *inner[1:]]
    return lines


@st.composite
def nearly_plain_texts(draw: st.DrawFn) -> str:
    """Plain block YAML. One text in three has an added line, or a line that is indented further."""
    lines = lines_of(draw(mappings_of(nodes)), 0)
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.integers(0, 5)):
        case 0:
            lines.insert(at, draw(yaml_lines))
        case 1:
            lines[at] = f" {lines[at]}"
        case _:
            pass
    return "\n".join(lines)


def test_what_is_read_quickly_is_what_the_whole_of_yaml_says() -> None:
    read: list[bool] = []

    @settings(deadline=None, max_examples=400)
    @given(text=nearly_plain_texts())
    @example(text="a:\n- b: 1\n  c:\n  - d\n- e: 2\nf: 3")
    @example(text="a:\n  b:\n    - c\n    d: e")
    @example(text="a: b\n  c: d")
    @example(text="depends_on:\n  - n: 0001\n  - null\n  - 0002")
    @example(text="metadata:\n  id: 0001\n  depends_on: [0002]\n  a: {id: 0003}")
    def compare(text: str) -> None:
        quick = read_quickly(text)
        read.append(quick is not UNREAD and "\n" in text)
        if quick is not UNREAD:
            assert json.dumps(quick) == json.dumps(load_yaml(text))

    compare()
    assert read.count(True) >= len(read) / 6, "hardly any text of several lines was read quickly"


def test_plans_as_people_write_them_are_read_quickly() -> None:
    assert read_quickly(ECOMMERCE) == load_yaml(ECOMMERCE)
    text = "\n".join(
        write_yaml(
            read_plan_source(ECOMMERCE + "tasks:\n- {id: 0001, tags: [x, y], colour: blue}\n")
        )
    )
    assert read_quickly(text) == load_yaml(text)
    assert read_quickly("a: &x 1\nb: *x") is UNREAD


# YAML does not allow the one control character that JSON does not escape, nor a key of more than
# 1,024 characters.
json_text = st.text().filter(lambda text: "\x7f" not in text)
json_keys = json_text.filter(lambda text: len(json.dumps(text)) <= 1000)
json_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | json_text
)


@given(
    value=st.recursive(
        json_scalars, lambda inner: st.lists(inner) | st.dictionaries(json_keys, inner)
    )
)
def test_json_is_read_as_its_values(value: Any) -> None:
    # Within metadata no key stands for an id.
    assert load_yaml(json.dumps({"metadata": value})) == {"metadata": value}


def test_brackets_within_brackets_are_given_up_at_the_limit_and_not_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = 0
    usual = Scanner.fetch_more_tokens

    def counting(self: Any) -> Any:
        nonlocal tokens
        tokens += 1
        return usual(self)

    monkeypatch.setattr(Scanner, "fetch_more_tokens", counting)
    for text in ("[" * 5000, "[a, " * 2000, "{" * 5000, "tasks: " + "[" * 5000):
        tokens = 0
        with pytest.raises(BadArgument, match="nested more than 100 levels deep"):
            load_yaml(text)
        assert tokens < 5 * MOST_NESTING


@pytest.mark.parametrize(
    "text",
    [
        "a: [[1, 2], [3, {b: c}]]\n? [x, y]\n: z\n",
        "[[a, b]: c, {d: e, f: [g]}, 'h': i, ? j : k]",
        "{a: {b: {c: [d, e: f]}}, 'g h': [i]}",
        "[" * 60 + "a: b, c" + "]" * 60,
        "- [" + "x, " * 600 + "y]: z\n- {" + "a" * 1100 + ": b}\n",
        "[a\n, b]: c\n",
        "a: {b\n: c}\n",
    ],
)
def test_the_scanner_finds_what_ruamel_s_own_finds(text: str) -> None:
    def events(scanner: type[Scanner]) -> list[str] | str:
        reader = YAML(typ="safe", pure=True)
        reader.Scanner = scanner
        try:
            return [f"{event} {event.start_mark}" for event in reader.parse(text)]
        except YAMLError as error:
            return str(error)

    assert events(_Scanner) == events(Scanner)
