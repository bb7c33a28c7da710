"""Plans as text: what YAML is read as, what is said of YAML that is broken, and that hostile text is only refused."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genlock.core.model import Task
from genlock.core.plan import Definition, Plan, check_graph
from genlock.errors import BadArgument, GenlockError, PlanInvalid
from genlock.plan_text import load_yaml, read_plan_source

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
        Definition(Task(id=name, track=name[0], sequence=int(name[2:5]), description=description, depends_on=depends_on))
        for name, description, depends_on in [
            ("A-001-core-framework", "Initialize core application framework", ()),
            ("A-002-di-container", "Setup dependency injection container", ("A-001-core-framework",)),
            ("A-003-event-bus", "Implement event bus for async communication", ("A-002-di-container",)),
            ("B-001-schema-design", "Design database schema", ()),
            ("B-002-entity-models", "Create entity models from schema", ("B-001-schema-design", "A-001-core-framework")),
            ("B-003-repositories", "Implement repository pattern", ("B-002-entity-models", "A-002-di-container")),
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
    assert [task for task, _ in read_plan_source(text).tasks] == [
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
        ("[2026-01-31, 2026-01-31T09:00:00Z, 12:30]", ["2026-01-31", "2026-01-31T09:00:00Z", "12:30"]),
        ("[!!str 5, ! 5, !!int 5, !!float 5, !!null '', !!timestamp 2026-01-31]", ["5", "5", 5, 5, None, "2026-01-31"]),
        ("!!map {1: a, true: b, null: c, 2.50: !!seq [d]}", {"1": "a", "true": "b", "null": "c", "2.50": ["d"]}),
        ("a: |\n  two\n  lines\nb: >-\n  one\n  line", {"a": "two\nlines\n", "b": "one line"}),
        ("a: &x {k: 1}\nb: *x\nc: [*x, *x]", {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}, {"k": 1}]}),
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
    ("a: [", "line 1, column 5: while parsing a flow node, expected the node content, but found '<stream end>'"),
    ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
    ("a:\n\t- x", "line 2, column 1: while scanning for the next token, found character '\\t' that cannot start any token"),
    ("- 'a", "line 1, column 5: while scanning a quoted scalar, found unexpected end of stream"),
    ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' stands twice in one mapping"),
    ("{a: {b: 1, 'b': 2}}", "line 1, column 12: the key 'b' stands twice in one mapping"),
    ("{1: a, '1': b}", "line 1, column 8: the key '1' stands twice in one mapping"),
    ("{<<: {}, <<: {}}", "line 1, column 10: the key '<<' stands twice in one mapping"),
    ("<<: 5", "line 1, column 5: what << merges must be a mapping or a list of mappings, not 5"),
    ("<<: [{}, 5]", "line 1, column 5: what << merges must be a mapping or a list of mappings, not a list"),
    ("a: \0", "line 1, column 4: the character '\\x00' is not allowed in YAML"),
    ("a: é\nb: \x07", "line 2, column 4: the character '\\x07' is not allowed in YAML"),
    ("a: \ud800", "line 1, column 4: the character '\\ud800' is not allowed in YAML"),
    (r'a: "\ud800"', "line 1, column 4: an escape stands for half a character"),
    (r'- "\U99999999"', "line 1, column 1: what follows has an escape or a directive without meaning"),
    ("%YAML 1.9\n---\na", "line 1, column 1: what follows has an escape or a directive without meaning"),
    ("a\n---\nb", "line 2, column 1: a second document starts here; one is wanted"),
    ("? [a]\n: b", "line 1, column 3: a key is text, not a mapping or a list"),
    ("&a a: 1\n*a : 2", "line 2, column 1: a key is text, not an alias"),
    ("[*a]", "line 1, column 2: nothing is called &a above this alias"),
    ("a: &a [*a]", "line 1, column 8: the alias *a stands inside what it stands for"),
    (LAUGHS, "line 5, column 50: the alias *a3 stands for 11,111 values, which with those before it is too much"),
    ("[" * 100_000, "line 1, column 101: this is nested more than 100 levels deep"),
    ("- " * 100_000, "line 1, column 201: this is nested more than 100 levels deep"),
    ("a: " + "9" * 5000, "line 1, column 4: a number has at most 400 digits"),
    ("!!int x", "line 1, column 1: 'x' is no int, as its tag says"),
    ("!!python/name:os.system [ls]", "line 1, column 1: the tag 'tag:yaml.org,2002:python/name:os.system' is not known here"),
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


def test_faults_in_text_have_their_tasks_line() -> None:
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
    assert caught.value.faults == [
        "tracks.A[1] (A-001-x), line 5: title must be a string, not 5",
        "tracks.A[1] (A-001-x), line 5: the id stands already at tracks.A[0], line 4",
        "tracks.B.tasks[0] (A-002-y), line 9: belongs to track 'A', but stands under 'B'",
        "tasks[0], line 11: id is missing: every task has one",
        "tasks[0], line 11: tags must be a list of strings, not the string 't'; put it in brackets",
    ]


@pytest.mark.parametrize("text", ["", "just text", "- a", "5"])
def test_text_that_is_no_mapping_is_no_plan(text: str) -> None:
    with pytest.raises(PlanInvalid, match="a plan is a mapping with project, tracks and tasks, not "):
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
    assert [task for task, _ in read_plan_source(text).tasks] == [
        Task(id="one", priority="high", roles=("architect",)),
        Task(id="two", priority="low", roles=("architect",)),
    ]


# Pieces of YAML, so that what is put together comes far enough to go wrong late.
MARKS = "[]{},:?|>'\"&*!%@`#~-\n\t\r\\\x85\u2028\ufeff😀"
WORDS = ["a", "b: ", "- ", "  ", "    ", "|2", "&a ", "*a", "!!", "!!int ", "!<x>", "---\n", "...\n", " #c\n", "0001", "<<: "]
ODDITIES = ["%YAML 1.1\n", "%YAML 1.99\n", "%TAG ! x\n", "\\U99999999", "\\ud800"]
PLAN_WORDS = ["tracks:\n", "tasks:\n", "A:\n", "- id: ", "A-001-x\n", "depends_on: ", "metadata: ", "state: ", "not_before: 2026-01-31\n"]
pieces = st.lists(st.sampled_from([*MARKS, *WORDS, *ODDITIES, *PLAN_WORDS]), max_size=30).map("".join)


@given(text=st.text() | pieces)
@example(text="- " * 5000)
@example(text="{a: " * 5000)
@example(text=LAUGHS.replace("a9:", "tasks:"))
@example(text="tasks: &a [{id: x, metadata: {loop: *a}}]")
@example(text="tasks: [{id: x, n: " + "9" * 300 + "}]")
def test_whatever_the_text_it_is_read_or_refused(text: str) -> None:
    for read in (load_yaml, read_plan_source):
        with suppress(GenlockError):
            read(text)


# YAML does not allow the one control character that JSON does not escape, nor a key of more than 1,024 characters.
json_text = st.text().filter(lambda text: "\x7f" not in text)
json_keys = json_text.filter(lambda text: len(json.dumps(text)) <= 1000)
json_scalars = st.none() | st.booleans() | st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False) | json_text


@given(value=st.recursive(json_scalars, lambda inner: st.lists(inner) | st.dictionaries(json_keys, inner)))
def test_json_is_read_as_its_values(value: Any) -> None:
    # Within metadata no key stands for an id.
    assert load_yaml(json.dumps({"metadata": value})) == {"metadata": value}
