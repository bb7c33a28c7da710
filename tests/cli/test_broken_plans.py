"""Broken plans, and what is said of each: file, line and column, what is wrong, what to do. Every
line is looked at as it is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genlock.errors import PlanInvalid
from genlock.plans import PlanFile, check_plan_alone
from tests.cli.console import run

BROKEN: list[tuple[str, str, list[str]]] = [
    (
        "plan.yaml",
        "",
        [
            "plan.yaml:1:1: a plan is a mapping with project, tracks and tasks, not nothing",
        ],
    ),
    (
        "plan.yaml",
        "- A-001-core\n",
        [
            "plan.yaml:1:1: a plan is a mapping with project, tracks and tasks, not a list",
        ],
    ),
    (
        "plan.yaml",
        "project: shop\n",
        [
            "plan.yaml:1:1: the plan has neither tracks nor tasks",
        ],
    ),
    (
        "plan.yaml",
        "taks:\n  - id: a\n",
        [
            (
                "plan.yaml:1:1: there is no key 'taks' in a plan; there are project, tracks, tasks, "
                "roles, edges and x-…"
            ),
            "plan.yaml:1:1: the plan has neither tracks nor tasks",
        ],
    ),
    (
        "plan.yaml",
        "tracks:\n  A:\n    - id: A-001-core\n   - id: A-002-x\n",
        [
            (
                "plan.yaml:4:4: while parsing a block mapping, expected <block end>, but found "
                "'<block sequence start>'; indent it like its neighbours"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n\t- id: a\n",
        [
            (
                "plan.yaml:2:1: while scanning for the next token, found character '\\t' that "
                "cannot start any token; indent with blanks, not with tabs"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    title: it's: broken\n",
        [
            (
                "plan.yaml:3:16: mapping values are not allowed here; put a text that has ': ' in "
                "it in quotes"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks: [{id: a}, {id: b}\n",
        [
            (
                "plan.yaml:2:1: while parsing a flow sequence, expected ',' or ']', but got "
                "'<stream end>'; close the bracket or brace, and put commas between the items"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    title: one\n    title: two\n",
        [
            "plan.yaml:4:5: the key 'title' stands twice in one mapping; leave one of them out",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n---\ntasks: []\n",
        [
            (
                "plan.yaml:3:1: a second document starts here; one is wanted; put the rest into a "
                "file of its own; several files make one plan"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - !python/object {id: a}\n",
        [
            "plan.yaml:2:5: the tag '!python/object' is not known here; leave it out",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    depends_on: *first\n",
        [
            (
                "plan.yaml:3:17: nothing is called &first above this alias; name the value above "
                "it with & first"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tracks:\n  c0re:\n    - id: a\n",
        [
            "plan.yaml:2:3: track 'C0RE': character 2 is '0'; allowed are the letters A-Z",
        ],
    ),
    (
        "plan.yaml",
        "tracks:\n  A: A-001-core\n",
        [
            "plan.yaml:2:3: tracks.A must be a list of tasks, not 'A-001-core'",
        ],
    ),
    (
        "plan.yaml",
        "tracks:\n  A:\n    owner: me\n    tasks: []\n",
        [
            "plan.yaml:3:5: there is no key 'owner' in a track; there are purpose and tasks",
        ],
    ),
    (
        "plan.yaml",
        "tracks:\n  - A\n",
        [
            "plan.yaml:1:1: tracks must be a mapping from tracks to their tasks, not a list",
        ],
    ),
    (
        "plan.yaml",
        "tracks:\n  A:\n    - id: B-001-schema\n",
        [
            (
                "plan.yaml:3:7: B-001-schema: belongs to track 'B', but stands under 'A'; move it "
                "there"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - A-001-core\n",
        [
            "plan.yaml:2:5: a task is a mapping with at least an id, not 'A-001-core'",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - title: no id\n",
        [
            "plan.yaml:2:5: id is missing: every task has one",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: has blanks\n",
        [
            (
                "plan.yaml:2:5: has blanks: id: task id 'has blanks': character 4 is ' ' "
                "(whitespace); an id is TRACK-001-description, feature:edge, 0001_t1.1 or a slug "
                "of at most 128 of A-Z a-z 0-9 . _ -, and may be followed by ::1"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n  - id: b\n  - id: a\n",
        [
            "plan.yaml:4:5: a: the id stands already at plan.yaml:2:5",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    depends_on: b\n  - id: b\n",
        [
            (
                "plan.yaml:3:5: a: depends_on must be a list of strings, not the string 'b'; put "
                "it in brackets"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    depends_on: [a]\n",
        [
            "plan.yaml:3:18: a: depends_on[0] is the task itself",
        ],
    ),
    (
        "plan.yaml",
        (
            "tasks:\n  - id: B-003-repositories\n  - id: c\n    depends_on:\n      - B-003\n      - "
            "nobody\n"
        ),
        [
            (
                "plan.yaml:5:9: c: depends on 'B-003', which does not exist; did you mean "
                "'B-003-repositories'?"
            ),
            "plan.yaml:6:9: c: depends on 'nobody', which does not exist",
        ],
    ),
    (
        "plan.yaml",
        (
            "tasks:\n  - id: a\n    depends_on: [b]\n  - id: b\n    depends_on: [c]\n  - id: c\n    "
            "depends_on: [a]\n"
        ),
        [
            (
                "plan.yaml:3:5: these wait for each other: a → b → c → a; remove one of these "
                "dependencies"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    depends_on: [b]\n    requires: [b]\n  - id: b\n",
        [
            "plan.yaml:4:5: a: depends_on and requires mean the same: give one of them",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: '0001_t1'\n",
        [
            "plan.yaml:2:5: 0001_t1: its parent '0001' does not exist",
        ],
    ),
    (
        "plan.yaml",
        (
            "tasks:\n  - id: 0001\n    depends_on: [0001_t1]\n  - id: 0001_t1\n    depends_on: "
            "[0001]\n"
        ),
        [
            (
                "plan.yaml:3:5: these wait for each other: 0001 → 0001_t1 → 0001; remove one of "
                "these dependencies"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    priority: urgent\n",
        [
            "plan.yaml:3:5: a: priority must be one of critical, high, medium, low, not 'urgent'",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    not_before: 2026-01-31T09:00:00\n",
        [
            (
                "plan.yaml:3:5: a: not_before 2026-01-31T09:00:00 has no time zone; add Z or an "
                "offset such as +02:00"
            ),
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    state: FINISHED\n",
        [
            (
                "plan.yaml:3:5: a: state must be one of backlog, todo, ready, active, waiting, "
                "done, cancelled, not 'FINISHED'"
            ),
        ],
    ),
    (
        "plan.yaml",
        (
            "tasks:\n  - id: a\n    lease_seconds: -5\n    human_required: maybe\n    isolation: "
            "jail\n    metadata: [1]\n"
        ),
        [
            "plan.yaml:3:5: a: lease_seconds must be from 0 to 3,155,760,000, not -5",
            "plan.yaml:4:5: a: human_required must be true or false, not 'maybe'",
            "plan.yaml:5:5: a: isolation must be one of none, worktree, container, not 'jail'",
            "plan.yaml:6:5: a: metadata must be a mapping, not a list",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: A-001-core\n    track: B\n    sequence: 7\n",
        [
            "plan.yaml:3:5: A-001-core: track 'B' contradicts the id, which says 'A'",
            "plan.yaml:4:5: A-001-core: sequence follows from the id, which says 1, not 7",
        ],
    ),
    (
        "plan.yaml",
        "tasks:\n  - id: a\n    description: " + "x" * 17_000 + "\n",
        [
            (
                "plan.yaml:2:5: a: the definition of task 'a' has 17,027 bytes, at most 16,384 are "
                "kept; put the long text into a file and name it"
            ),
        ],
    ),
    (
        "plan.yaml",
        "project: a/b\ntasks: []\n",
        [
            (
                "plan.yaml:1:1: project 'a/b': character 2 is '/' (a slash); allowed are A-Z a-z "
                "0-9 . _ -"
            ),
        ],
    ),
    (
        "plan.json",
        '{"tasks": [{"id": "a", "tags": "x"}]}',
        [
            (
                "plan.json:1:24: a: tags must be a list of strings, not the string 'x'; put it in "
                "brackets"
            ),
        ],
    ),
    (
        "plan.jsonl",
        '{"id": "a"}\n{"id": "b",}\n',
        [
            (
                "plan.jsonl:2:12: this line is no JSON: trailing comma in object; write one task a "
                "line"
            ),
        ],
    ),
    (
        "plan.jsonl",
        '{"id": "a"}\n"b"\n',
        [
            'plan.jsonl:2:1: a line is a task, a mapping in braces: {"id": …}',
        ],
    ),
    (
        "plan.jsonl",
        '{"id": 7}\n',
        [
            (
                "plan.jsonl:1:2: id must be a string, not 7; quote it in YAML, as in '0001', to "
                "keep its digits"
            ),
        ],
    ),
    (
        "plan.jsonl",
        '{"id": "a", "title": "x", "title": "y"}\n',
        [
            "plan.jsonl:1:13: the key 'title' stands twice in one mapping",
        ],
    ),
    (
        "plan.jsonl",
        '{"id": "a", "depends_on": ["b"]}\n{"id": "b", "depends_on": ["a"]}\n{"id": "a"}\n',
        [
            (
                "plan.jsonl:1:13: these wait for each other: a → b → a; remove one of these "
                "dependencies"
            ),
            "plan.jsonl:3:2: a: the id stands already at plan.jsonl:1:2",
        ],
    ),
]


@pytest.mark.parametrize(
    ("name", "text", "faults"),
    BROKEN,
    ids=[f"{at}-{text[:30]!a}" for at, (_, text, _) in enumerate(BROKEN)],
)
def test_a_broken_plan_is_refused_with_the_place_of_each_fault(
    name: str, text: str, faults: list[str]
) -> None:
    with pytest.raises(PlanInvalid) as caught:
        check_plan_alone([PlanFile(name, text.encode())])
    assert [str(fault) for fault in caught.value.faults] == faults


def test_there_are_more_than_thirty() -> None:
    assert len(BROKEN) > 30


MANY = {
    "one.yaml": """\
project: shop
tracks:
  A:
    - id: A-001-core
      title: 5
      depends_on: [A-002-paths]
    - id: A-002-paths
      depends_on: [A-001-core, A-003-nowhere]
""",
    "two.jsonl": """\
{"id": "A-001-core"}
{"id": "z", "depends_on": ["A-002-path"]}
{"id": }
""",
    "three.yaml": "project: other\ntasks: [\n",
}
MANY_FAULTS = [
    "one.yaml:5:7: A-001-core: title must be a string, not 5",
    (
        "one.yaml:6:7: these wait for each other: A-001-core → A-002-paths → A-001-core; remove "
        "one of these dependencies"
    ),
    "one.yaml:8:32: A-002-paths: depends on 'A-003-nowhere', which does not exist",
    "two.jsonl:1:2: A-001-core: the id stands already at one.yaml:4:7",
    "two.jsonl:2:28: z: depends on 'A-002-path', which does not exist; did you mean 'A-002-paths'?",
    "two.jsonl:3:8: this line is no JSON: invalid character; write one task a line",
    (
        "three.yaml:3:1: while parsing a flow node, expected the node content, but found '<stream "
        "end>'; close the bracket or brace, and put commas between the items"
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in MANY.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert run("init", cwd=tmp_path).code == 0
    return tmp_path


@pytest.mark.parametrize("verb", ["check", "diff", "import"])
def test_all_faults_of_all_files_are_printed_at_once_and_nothing_is_written(
    folder: Path, verb: str
) -> None:
    ran = run("plan", verb, *MANY, "--quiet", cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [*MANY_FAULTS, "genlock: 7 faults; nothing was written"]
    assert run("plan", "export", cwd=folder).out == "tasks: []\n"


def test_for_machines_a_fault_is_an_object(folder: Path) -> None:
    ran = run("plan", "import", "one.yaml", "--json", cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    error = json.loads(ran.err)["error"]
    assert error["code"] == "PLAN_INVALID"
    assert error["faults"] == [
        {
            "file": "one.yaml",
            "line": 5,
            "column": 7,
            "task": "A-001-core",
            "message": "title must be a string, not 5",
        },
        {
            "file": "one.yaml",
            "line": 6,
            "column": 7,
            "task": None,
            "message": (
                "these wait for each other: A-001-core → A-002-paths → A-001-core; remove "
                "one of these dependencies"
            ),
        },
        {
            "file": "one.yaml",
            "line": 8,
            "column": 32,
            "task": "A-002-paths",
            "message": "depends on 'A-003-nowhere', which does not exist",
        },
    ]


def test_what_contradicts_the_store_is_a_fault_before_anything_is_written(folder: Path) -> None:
    old = folder / "old.yaml"
    old.write_text(
        "tracks: {A: [{id: a}, {id: b}]}\ntasks: [{id: p}, {id: x, depends_on: [b]}]\n",
        encoding="utf-8",
    )
    assert run("plan", "import", old, cwd=folder).code == 0
    before = run("plan", "export", cwd=folder).out
    (folder / "new.yaml").write_text(
        "tracks:\n  B:\n    - id: a\ntasks:\n  - id: p\n    parent: x\n  - id: b\n    track: A\n   "
        " depends_on: [x]\n  - id: new\n",
        encoding="utf-8",
    )
    ran = run("plan", "import", "new.yaml", "--quiet", cwd=folder)
    assert ran.code == 2
    assert ran.err.splitlines() == [
        (
            "new.yaml:3:7: a: track is 'A' in the store and 'B' here, which no edit can change; "
            "use another id"
        ),
        (
            "new.yaml:6:5: p: parent is None in the store and 'x' here, which no edit can change; "
            "use another id"
        ),
        "new.yaml:9:5: these wait for each other: b → x → b; remove one of these dependencies",
        "genlock: 3 faults; nothing was written",
    ]
    assert run("plan", "export", cwd=folder).out == before


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"tasks:\n  - id: caf\xe9\n", "bad.yaml:2:12: this is not UTF-8; save the file as UTF-8"),
        (
            b'{"id": "a"}\n{"id": "caf\xe9"}\n',
            "bad.yaml:2:1: this is not UTF-8; save the file as UTF-8",
        ),
    ],
)
def test_what_is_not_utf_8_is_said_to_be_so(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "bad.yaml").write_bytes(data)
    ran = run("plan", "check", "bad.yaml", "-q", cwd=tmp_path)
    assert (ran.code, ran.err.splitlines()) == (
        2,
        [complaint, "genlock: 1 fault; nothing was written"],
    )


def test_of_very_many_faults_the_first_thousand_are_shown() -> None:
    lines = "".join(f'{{"id": "t{n}", "title": {n}}}\n' for n in range(1500))
    with pytest.raises(PlanInvalid) as caught:
        check_plan_alone([PlanFile("plan.jsonl", lines.encode())])
    assert len(caught.value.faults) == 1001
    assert str(caught.value.faults[0]) == "plan.jsonl:1:14: t0: title must be a string, not 0"
    assert str(caught.value.faults[-1]) == "and 500 more"
