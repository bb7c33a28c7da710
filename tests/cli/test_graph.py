"""`genlock graph` and `genlock blocking`: who waits for whom, as text, as pictures and as JSON."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import genlock
from genlock.core.commands import EditTask
from genlock.core.keys import TASK, Key
from tests.cli.console import run
from tests.cli.screen import draw

PLAN = r"""
tracks:
  A:
    - id: A-001-core-framework
      description: Initialize core application framework
    - id: A-002-di-container
      depends_on: [A-001-core-framework]
    - id: A-003-event-bus
      title: 'Say "hi" [x] \ & <b> #1; %%'
      depends_on: [A-002-di-container]
    - id: A-004-logging
      depends_on: [A-002-di-container, B-001-schema-design]
  B:
    - id: B-001-schema-design
    - id: B-002-entity-models
      depends_on: [B-001-schema-design, A-001-core-framework]
    - id: B-003-repositories
      depends_on: [B-002-entity-models, A-002-di-container]
tasks:
  - id: 0001
  - {id: 0001_t1, depends_on: [A-001-core-framework]}
"""

TEXT = """\
A (1 of 4 done)
  ✓ A-001-core-framework  completed
  └ ▶ A-002-di-container  in progress, alice
    ├ · A-003-event-bus   blocked
    └ · A-004-logging     blocked  ← B-001

B (0 of 3 done)
  ○ B-001-schema-design     pending
  └ · B-002-entity-models   blocked  ← A-001
    └ · B-003-repositories  blocked  ← A-002

no track (0 of 2 done)
  ○ 0001_t1  pending  ← A-001
  └ · 0001   blocked
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which A-001 is done and alice works on A-002. Nobody changes it."""
    folder = tmp_path_factory.mktemp("graph")
    assert run("init", cwd=folder).code == 0
    with genlock.connect(
        f"sqlite://{folder / '.genlock' / 'genlock.db'}",
        create=True,
        session_id="s",
        agent_id="alice",
    ) as fleet:
        fleet.import_plan(source=PLAN)
        granted = fleet.claim_task(task_id="A-001-core-framework")
        assert granted.claim is not None
        fleet.submit_result(task_id="A-001-core-framework", generation=granted.claim.generation)
        assert fleet.claim_task(task_id="A-002-di-container", lease_duration_seconds=86_400).success
    return folder


def test_the_text_stands_by_track_in_the_order_of_dependencies(folder: Path) -> None:
    ran = run("graph", "--format", "text", cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == TEXT


def test_on_a_terminal_the_text_is_coloured_and_as_wide_as_the_terminal(folder: Path) -> None:
    drawn = draw("graph", cwd=folder)
    assert (drawn.code, drawn.text) == (0, TEXT)
    assert "\x1b[32m  ✓ A-001-core-framework" in drawn.raw
    assert "\x1b[" not in draw("graph", cwd=folder, env={"TERM": "dumb"}).raw
    narrow = draw("graph", cwd=folder, columns=30)
    assert max(map(len, narrow.lines)) <= 30
    assert narrow.lines[1] == "  ✓ A-001-core-fr…  completed"


def test_off_a_terminal_the_graph_is_json(folder: Path) -> None:
    answer = run("graph", cwd=folder).json()
    assert sorted(answer) == ["around", "cycles", "edges", "tasks"]
    assert [task["id"] for task in answer["tasks"]] == [
        "A-001-core-framework",
        "A-002-di-container",
        "A-003-event-bus",
        "B-001-schema-design",
        "A-004-logging",
        "B-002-entity-models",
        "B-003-repositories",
        "0001_t1",
        "0001",
    ]
    assert answer["tasks"][1] == {
        "id": "A-002-di-container",
        "title": "",
        "track": "A",
        "state": "IN_PROGRESS",
        "generation": 1,
        "agent": "alice",
        "parent": None,
        "depends_on": ["A-001-core-framework"],
        "children": [],
        "waits_for": [],
        "distance": 0,
    }
    assert {
        "from": "A-001-core-framework",
        "to": "A-002-di-container",
        "kind": "dependency",
    } in answer["edges"]
    assert {"from": "0001_t1", "to": "0001", "kind": "child"} in answer["edges"]
    assert len(answer["edges"]) == 10
    assert (answer["cycles"], answer["around"]) == ([], None)
    assert run("graph", "--format", "json", cwd=folder).json() == answer
    assert run("graph", "--json", cwd=folder).json() == answer


def test_quiet_is_the_ids_in_order(folder: Path) -> None:
    assert run("graph", "-q", "--track", "B", cwd=folder).out.splitlines() == [
        "B-001-schema-design",
        "B-002-entity-models",
        "B-003-repositories",
    ]


def test_mermaid_can_be_pasted(folder: Path) -> None:
    ran = run("graph", "--format", "mermaid", "--track", "A", cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
flowchart LR
  subgraph track0["A"]
    t0["A-001-core-framework<br/>Initialize core application framework"]:::completed
    t1["A-002-di-container"]:::in_progress
    t2["A-003-event-bus<br/>Say #34;hi#34; #91;x#93; #92; #38; #60;b#62; #35;1#59; #37;#37;"]:::blocked
    t3["A-004-logging"]:::blocked
  end
  t0 --> t1
  t1 --> t2
  t1 --> t3
  classDef blocked fill:#ffffff,stroke:#555555,color:#111111
  classDef completed fill:#c8f0c8,stroke:#555555,color:#111111
  classDef in_progress fill:#fff2b3,stroke:#555555,color:#111111
"""
    )


STRING = r'"(?:[^"\\\n]|\\["\\n])*"'
ATTRIBUTES = rf"\[\w+=(?:{STRING}|\w+)(?:, \w+=(?:{STRING}|\w+))*\]"
STATEMENT = re.compile(
    rf"digraph plan \{{|\}}|rankdir=LR;|node {ATTRIBUTES};|subgraph cluster_\d+ \{{|label={STRING};"
    rf"|{STRING} {ATTRIBUTES};|{STRING} -> {STRING}(?: {ATTRIBUTES})?;"
)


def test_every_line_for_graphviz_is_a_statement_of_its_language(folder: Path) -> None:
    ran = run("graph", "--format", "dot", cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    lines = [line.strip() for line in ran.out.splitlines()]
    assert [line for line in lines if not STATEMENT.fullmatch(line)] == []
    assert sum(line.endswith("{") for line in lines) == lines.count("}") == 3
    assert (
        r'"A-003-event-bus" [label="A-003-event-bus\nSay \"hi\" [x] \\ & <b> #1; %%", '
        r'fillcolor="#ffffff"];'
    ) in lines
    assert '"A-001-core-framework" -> "A-002-di-container";' in lines
    assert '"0001_t1" -> "0001" [style=dashed];' in lines


def test_around_a_task_lies_what_is_so_many_steps_away(folder: Path) -> None:
    def around(*options: object) -> list[str]:
        return sorted(
            run("graph", "-q", "--around", "A-002-di-container", *options, cwd=folder).out.split()
        )

    near = [
        "A-001-core-framework",
        "A-002-di-container",
        "A-003-event-bus",
        "A-004-logging",
        "B-003-repositories",
    ]
    assert around("--depth", 1) == around() == near
    assert around("--depth", 0) == ["A-002-di-container"]
    behind = run("graph", "--around", "A-001-core-framework", "--depth", 2, cwd=folder).json()
    assert {task["id"]: task["distance"] for task in behind["tasks"]} == {
        "A-001-core-framework": 0,
        "A-002-di-container": 1,
        "B-002-entity-models": 1,
        "0001_t1": 1,
        "A-003-event-bus": 2,
        "A-004-logging": 2,
        "B-003-repositories": 2,
        "0001": 2,
    }


def test_blocking_says_what_a_task_waits_for_and_what_waits_for_it(folder: Path) -> None:
    answer = run("blocking", "B-002-entity-models", cwd=folder).json()
    assert sorted(answer) == ["cycles", "task", "waited_for_by", "waits_for"]
    assert (answer["task"]["id"], answer["task"]["state"]) == ("B-002-entity-models", "BLOCKED")
    assert [(task["id"], task["state"], task["distance"]) for task in answer["waits_for"]] == [
        ("A-001-core-framework", "COMPLETED", -1),
        ("B-001-schema-design", "PENDING", -1),
    ]
    assert [(task["id"], task["distance"]) for task in answer["waited_for_by"]] == [
        ("B-003-repositories", 1)
    ]
    assert run("blocking", "B-002-entity-models", "-q", cwd=folder).out.split() == [
        "A-001-core-framework",
        "B-001-schema-design",
    ]


def test_blocking_on_a_terminal_is_two_trees(folder: Path) -> None:
    assert draw("blocking", "B-003-repositories", cwd=folder).lines == [
        "  · B-003-repositories  blocked",
        "waits for:",
        "  ├ · B-002-entity-models     blocked",
        "  │ ├ ○ B-001-schema-design   pending",
        "  │ └ ✓ A-001-core-framework  completed",
        "  └ ▶ A-002-di-container      in progress, alice",
        "    └ ✓ A-001-core-framework  as above",
        "is waited for by: nothing",
    ]
    assert draw("blocking", "0001_t1", cwd=folder).lines[-2:] == [
        "is waited for by:",
        "  └ · 0001  blocked",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (
            ["graph", "--depth", "3"],
            2,
            "--depth says how far to go from a task: name it with --around",
        ),
        (["graph", "--format", "svg"], 2, "'svg' is not one of 'text', 'mermaid', 'dot', 'json'"),
        (
            ["graph", "--track", "c0re"],
            2,
            "track 'C0RE': character 2 is '0'; allowed are the letters A-Z",
        ),
        (
            ["graph", "--around", "A-002-di-container", "--depth", "-1"],
            2,
            "depth is a whole number from 0 to 1,000, not -1",
        ),
        (["graph", "--around", "nobody"], 3, "there is no task 'nobody'"),
        (["blocking", "nobody"], 3, "there is no task 'nobody'"),
        (["blocking", "a b"], 2, "character 2 is ' ' (whitespace)"),
        (["blocking"], 2, "Missing argument 'TASK'"),
    ],
)
def test_a_call_that_is_wrong_says_what_is_wrong(
    folder: Path, arguments: list[str], code: int, complaint: str
) -> None:
    ran = run(*arguments, cwd=folder)
    assert (ran.code, ran.out) == (code, "")
    assert complaint in ran.err


def test_without_tasks_there_is_an_empty_graph(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).code == 0
    assert run("graph", cwd=tmp_path).json() == {
        "tasks": [],
        "edges": [],
        "cycles": [],
        "around": None,
    }
    ran = run("graph", "--format", "text", cwd=tmp_path)
    assert (ran.code, ran.out, ran.err) == (
        0,
        "",
        "there are no tasks here; to import a plan, type: genlock plan import FILE\n",
    )


def test_a_circle_is_drawn_and_named(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).code == 0
    with genlock.connect(f"sqlite://{tmp_path / '.genlock' / 'genlock.db'}", create=True) as fleet:
        fleet.add_tasks(
            tasks=["a", {"id": "b", "depends_on": ["a"]}, {"id": "c", "depends_on": ["b"]}]
        )
        # As two edits at the same time would close it; one alone is refused.
        fleet.engine.submit(
            [EditTask(Key("default", "default", TASK, "a"), changes={"depends_on": ("c",)})]
        ).wait()
    ran = run("graph", "--format", "text", cwd=tmp_path)
    assert (
        ran.out
        == """\
no track (0 of 3 done)
  · a      blocked  ← c
  └ · b    blocked
    └ · c  blocked
these wait for each other: a → c → b → a
"""
    )
    assert run("graph", cwd=tmp_path).json()["cycles"] == [["a", "c", "b", "a"]]
    answer = run("blocking", "b", cwd=tmp_path).json()
    assert [task["id"] for task in answer["waits_for"]] == ["a", "c"]
    assert [task["id"] for task in answer["waited_for_by"]] == ["c"]
    assert answer["cycles"] == [["a", "c", "b", "a"]]
    assert draw("blocking", "b", cwd=tmp_path).lines == [
        "  · b  blocked",
        "waits for:",
        "  └ · a      blocked",
        "    └ · c    blocked",
        "      └ · b  as above",
        "is waited for by:",
        "  └ · c  blocked",
    ]


def test_a_long_chain_stays_within_the_page(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).code == 0
    lines = "".join(
        f"  - {{id: a-rather-long-name-of-a-task-{n}, depends_on: "
        f"[a-rather-long-name-of-a-task-{n - 1}]}}\n"
        for n in range(1, 200)
    )
    ran = run(
        "plan",
        "import",
        "-",
        cwd=tmp_path,
        input=f"tasks:\n  - id: a-rather-long-name-of-a-task-0\n{lines}",
    )
    assert ran.code == 0
    text = run("graph", "--format", "text", cwd=tmp_path).out.splitlines()
    assert len(text) == 201
    assert max(map(len, text)) <= 80
    assert [len(line) - len(line.lstrip()) for line in text[1:15]] == [
        2,
        2,
        4,
        6,
        8,
        10,
        12,
        14,
        16,
        18,
        20,
        22,
        22,
        22,
    ]
    assert text[1].split() == ["○", "a-rather-long-name-of-a-task-0", "pending"]
