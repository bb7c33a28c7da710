"""`genlock plan`: check, import, diff, show and export, as real processes on real files."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import genlock
from genlock.core.graph import Graph
from tests.cli.console import COMMAND, environment, run
from tests.cli.screen import draw
from tests.cli.terminal import shown

PLAN = """\
tracks:
  A:
    - id: A-001-core-framework
      description: "Initialize core application framework"
      depends_on: []
    - id: A-002-di-container
      title: Setup dependency injection container
      depends_on: [A-001-core-framework]
  B:
    - id: B-001-schema-design
    - id: B-002-entity-models
      depends_on: [B-001-schema-design, A-001-core-framework]
tasks:
  - id: 0001
    colour: blue
    metadata: {id: 0002, nested: [1, 2.5, null, {a: "b: #c"}]}
    state: backlog
  - id: 0001_t1
    priority: high
    tags: ["- x", "null"]
    not_before: 2099-01-31T09:00:00+02:00
"""
IDS = [
    "A-001-core-framework",
    "A-002-di-container",
    "B-001-schema-design",
    "B-002-entity-models",
    "0001",
    "0001_t1",
]
LEFT = (
    "unfinished task not in the plan, and left as before; to cancel what is gone, type: "
    "genlock plan import --prune plan.yaml\n"
)
NOTHING = {
    "added": [],
    "changed": {},
    "unchanged": 0,
    "gone": [],
    "cancelled": [],
    "still_cancelled": [],
    "notes": [],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a store and a plan that is not imported."""
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    assert run("init", cwd=tmp_path).code == 0
    return tmp_path


@contextmanager
def fleet_of(folder: Path) -> Iterator[genlock.Coordinator]:
    with genlock.connect(f"sqlite://{folder / '.genlock' / 'genlock.db'}", create=True) as fleet:
        yield fleet


def graph_of(folder: Path) -> Graph:
    with fleet_of(folder) as fleet:
        return fleet.get_graph()


def test_check_needs_no_store_and_counts_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    ran = run("plan", "check", "plan.yaml", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.json() == {
        "files": ["plan.yaml"],
        "tasks": 6,
        "tracks": ["A", "B"],
        "dependencies": 3,
        "notes": [],
    }
    assert run("plan", "check", "plan.yaml", "-q", cwd=tmp_path).out == "6\n"
    assert not (tmp_path / ".genlock").exists()


def test_a_plan_is_imported_once_and_the_same_again_writes_nothing(folder: Path) -> None:
    ran = run("plan", "import", "plan.yaml", cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    assert ran.json() == {**NOTHING, "added": IDS}
    with fleet_of(folder) as fleet:
        end = fleet.read_events(tail=True).cursor
    again = run("plan", "import", "plan.yaml", cwd=folder)
    assert (again.code, again.json()) == (0, {**NOTHING, "unchanged": 6})
    with fleet_of(folder) as fleet:
        assert fleet.read_events(after=end).events == ()


def test_importing_again_is_a_diff_that_touches_no_claim(folder: Path) -> None:
    assert run("plan", "import", "plan.yaml", cwd=folder).code == 0
    assert run("claim", "B-001-schema-design", cwd=folder).code == 0
    other = PLAN.replace("Initialize core", "Start the").replace(
        "[B-001-schema-design, A-001-core-framework]", "[A-002-di-container]"
    )
    other = other.replace("  - id: 0001_t1\n", "  - id: write-docs\n")
    (folder / "plan.yaml").write_text(other, encoding="utf-8")
    expected = {
        **NOTHING,
        "added": ["write-docs"],
        "changed": {"A-001-core-framework": ["description"], "B-002-entity-models": ["depends_on"]},
        "unchanged": 3,
        "gone": ["0001_t1"],
    }
    with fleet_of(folder) as fleet:
        before = fleet.read_events(tail=True).cursor
    ran = run("plan", "diff", "plan.yaml", cwd=folder)
    assert (ran.code, ran.err, ran.json()) == (0, "", expected)
    with fleet_of(folder) as fleet:
        assert fleet.read_events(after=before).events == (), "a diff has written something"

    ran = run("plan", "import", "plan.yaml", cwd=folder)
    assert (ran.code, ran.json()) == (0, expected)
    assert ran.err == f"1 {LEFT}"
    with fleet_of(folder) as fleet:
        claimed = fleet.get_task_state(task_id="B-001-schema-design")
        assert (claimed.state, claimed.generation) == ("IN_PROGRESS", 1)
        assert fleet.get_task_state(task_id="0001_t1").state == "BLOCKED"

    pruned = run("plan", "import", "--prune", "--yes", "plan.yaml", cwd=folder)
    assert (pruned.code, pruned.err) == (0, "")
    assert pruned.json() == {
        **NOTHING,
        "unchanged": 6,
        "gone": ["0001_t1"],
        "cancelled": ["0001_t1"],
    }
    with fleet_of(folder) as fleet:
        assert fleet.get_task_state(task_id="0001_t1").state == "CANCELLED"

    (folder / "plan.yaml").write_text(PLAN, encoding="utf-8")
    back = run("plan", "import", "plan.yaml", cwd=folder)
    assert back.json()["still_cancelled"] == ["0001_t1"]
    assert (
        "1 task in the plan but cancelled before; to have one done, type: genlock reset 0001_t1"
        in back.err
    )


def test_pruning_is_proposed_only_where_it_would_cancel_something(folder: Path) -> None:
    with fleet_of(folder) as fleet:
        fleet.add_tasks(tasks=["done", "open"])
        fleet.claim_task(task_id="done", session_id="s", agent_id="a")
        fleet.submit_result(task_id="done", generation=1, session_id="s")
    ran = run("plan", "import", "plan.yaml", cwd=folder)
    assert (ran.json()["gone"], ran.err) == (["done", "open"], f"1 {LEFT}"), (
        "what is done is not counted"
    )
    with fleet_of(folder) as fleet:
        fleet.cancel_task(task_id="open")
    ran = run("plan", "import", "plan.yaml", cwd=folder)
    assert (ran.json()["gone"], ran.err) == (["done"], "")


def test_quiet_prints_what_changes_with_a_sign(folder: Path) -> None:
    assert run("plan", "diff", "plan.yaml", "-q", cwd=folder).out.splitlines() == [
        f"+ {name}" for name in IDS
    ]
    assert run("plan", "import", "plan.yaml", "-q", cwd=folder).out.splitlines() == [
        f"+ {name}" for name in IDS
    ]
    (folder / "plan.yaml").write_text("tasks: [{id: 0001, title: x}]", encoding="utf-8")
    ran = run("plan", "import", "--prune", "--yes", "plan.yaml", "-q", cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "~ 0001",
        *(f"- {name}" for name in sorted(IDS) if name != "0001"),
    ]


def test_pruning_off_a_terminal_lists_what_it_would_cancel_and_needs_yes(folder: Path) -> None:
    assert run("plan", "import", "plan.yaml", cwd=folder).code == 0
    assert run("claim", "B-001-schema-design", "--agent", "ada", cwd=folder).code == 0
    with fleet_of(folder) as fleet:
        fleet.add_tasks(tasks=["done"])
        fleet.claim_task(task_id="done", session_id="s", agent_id="a")
        fleet.submit_result(task_id="done", generation=1, session_id="s")
        before = fleet.read_events(tail=True).cursor
    (folder / "other.yaml").write_text(
        "tasks: [{id: other}, {id: 0001}, {id: 0001_t1}]\n", encoding="utf-8"
    )
    doomed = IDS[:4]
    ran = run("plan", "import", "--prune", "other.yaml", cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error()["message"] == (
        "4 tasks of project 'default' not in the plan would be cancelled:\n"
        "  A-001-core-framework\n  A-002-di-container\n  B-001-schema-design (stays while it is "
        "claimed by ada)\n  B-002-entity-models\n"
        "There is no terminal to ask on; if you mean it, type: genlock plan import --prune --yes "
        "other.yaml"
    )
    told = run(
        "plan",
        "import",
        "--prune",
        "other.yaml",
        "--tenant",
        "default",
        "--project",
        "default",
        cwd=folder,
    ).error()["message"]
    assert told.endswith(
        "type: genlock plan import --prune --yes other.yaml --tenant default --project default"
    ), "and not elsewhere"
    diff = run("plan", "diff", "--prune", "other.yaml", cwd=folder).json()
    assert (diff["cancelled"], diff["gone"]) == (doomed, [*doomed, "done"]), (
        "what is done is not cancelled"
    )
    with fleet_of(folder) as fleet:
        assert fleet.read_events(after=before).events == (), "a question has written something"
    pruned = run("plan", "import", "--prune", "--yes", "other.yaml", cwd=folder)
    assert pruned.json()["cancelled"] == [name for name in doomed if name != "B-001-schema-design"]
    assert pruned.err == (
        "1 task not cancelled, held by a worker or finished meanwhile: B-001-schema-design; "
        "to cancel one that is held, type: genlock cancel B-001-schema-design --force\n"
    )
    assert run("cancel", "B-001-schema-design", "--force", cwd=folder).code == 0
    again = run("plan", "import", "--prune", "other.yaml", cwd=folder)
    assert (again.code, again.json()["cancelled"]) == (0, []), (
        "where nothing is cancelled nobody is asked"
    )


@pytest.mark.parametrize("verb", ["check", "diff", "import"])
def test_a_plan_of_another_project_than_the_one_asked_for_is_a_fault_that_says_what_to_type(
    folder: Path, verb: str
) -> None:
    (folder / "shop.yaml").write_text(f"# A plan.\nproject: shop\n{PLAN}", encoding="utf-8")
    message = (
        "the plan is of project 'shop', but 'blog' was asked for; ask for 'shop' (--project "
        "shop), or leave this line out"
    )
    for words, env in ((["--project", "blog"], {}), ([], {"GENLOCK_PROJECT": "blog"})):
        ran = run("plan", verb, "shop.yaml", *words, cwd=folder, env=env)
        assert (ran.code, ran.out) == (2, "")
        assert ran.error()["faults"] == [
            {"file": "shop.yaml", "line": 2, "column": 1, "task": None, "message": message}
        ]
    code, told = shown("plan", verb, "shop.yaml", "--project", "blog", cwd=folder, columns=200)
    assert (code, told) == (
        2,
        [f"shop.yaml:2:1: {message}", "genlock: 1 fault; nothing was written"],
    )
    assert run("plan", "show", "-q", "--project", "blog", cwd=folder).out == ""
    ran = run("plan", verb, "shop.yaml", "--project", "shop", cwd=folder)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("verb", ["check", "diff", "import"])
def test_a_plan_of_a_project_that_nobody_asked_for_goes_into_the_default_one_and_that_is_said(
    folder: Path, verb: str
) -> None:
    (folder / "shop.yaml").write_text(f"{PLAN}project: shop\n", encoding="utf-8")
    ran = run("plan", verb, "shop.yaml", cwd=folder)
    message = (
        "the plan is of project 'shop', but goes into 'default', as no other was asked for; "
        "to ask for it: --project shop"
    )
    line = len(PLAN.splitlines()) + 1
    assert (ran.code, ran.err) == (0, f"shop.yaml:{line}:1: {message}\n")
    assert ran.json()["notes"] == [
        {"file": "shop.yaml", "line": line, "column": 1, "task": None, "message": message}
    ]


@pytest.mark.parametrize("form", ["yaml", "jsonl"])
def test_what_is_exported_imports_elsewhere_as_the_same_plan(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, form: str
) -> None:
    assert run("plan", "import", "plan.yaml", cwd=folder).code == 0
    exported = run("plan", "export", "--format", form, cwd=folder)
    assert (exported.code, exported.err) == (0, "")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert run("init", cwd=elsewhere).code == 0
    ran = run("plan", "import", "-", cwd=elsewhere, input=exported.out)
    assert sorted(ran.json()["added"]) == sorted(IDS)
    with fleet_of(folder) as here, fleet_of(elsewhere) as there:
        assert here.get_plan() == there.get_plan()
        task = there.get_task_state(task_id="0001").task
        assert task.metadata == {
            "colour": "blue",
            "id": 2,
            "nested": [1, 2.5, None, {"a": "b: #c"}],
        }
        assert there.get_task_state(task_id="0001_t1").task.tags == ("- x", "null")
    # And back: nothing differs.
    assert run("plan", "diff", "-", cwd=folder, input=exported.out).json() == {
        **NOTHING,
        "unchanged": 6,
    }


def test_the_exported_yaml_is_pleasant_to_read(folder: Path) -> None:
    assert run("plan", "import", "plan.yaml", cwd=folder).code == 0
    assert (
        run("plan", "export", cwd=folder).out
        == """\
tracks:
  A:
    - id: A-001-core-framework
      description: Initialize core application framework
    - id: A-002-di-container
      title: Setup dependency injection container
      depends_on: [A-001-core-framework]
  B:
    - id: B-001-schema-design
    - id: B-002-entity-models
      depends_on: [B-001-schema-design, A-001-core-framework]
tasks:
  - id: "0001"
    metadata: {colour: blue, id: 2, nested: [1, 2.5, null, {a: "b: #c"}]}
    state: backlog
  - id: "0001_t1"
    priority: high
    tags: ["- x", "null"]
    not_before: "2099-01-31T07:00:00Z"
"""
    )


def test_cancelled_tasks_and_dependencies_on_them_are_not_exported(folder: Path) -> None:
    assert run("plan", "import", "plan.yaml", cwd=folder).code == 0
    assert run("cancel", "A-001-core-framework", cwd=folder).code == 0
    assert run("cancel", "0001", cwd=folder).code == 0
    lines = [
        json.loads(line)
        for line in run("plan", "export", "--format", "jsonl", cwd=folder).out.splitlines()
    ]
    # 0001 is cancelled too, but 0001_t1 lies below it.
    assert [(line["id"], line.get("depends_on", [])) for line in lines] == [
        ("0001", []),
        ("0001_t1", []),
        ("A-002-di-container", []),
        ("B-001-schema-design", []),
        ("B-002-entity-models", ["B-001-schema-design"]),
    ]


def test_several_files_and_stdin_make_one_plan(folder: Path) -> None:
    (folder / "more.jsonl").write_text('{"id": "x", "depends_on": ["y"]}\n', encoding="utf-8")
    ran = run(
        "plan", "import", "more.jsonl", "-", "plan.yaml", cwd=folder, input="tasks: [{id: y}]"
    )
    assert ran.json()["added"] == ["x", "y", *IDS]


def test_show_has_the_plan_by_track(folder: Path) -> None:
    assert run("plan", "import", "plan.yaml", cwd=folder).code == 0
    ran = run("plan", "show", cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    answer = ran.json()
    assert answer["project"] == "default"
    tracks = answer["tracks"]
    assert [
        (track["track"], track["purpose"], [task["id"] for task in track["tasks"]])
        for track in tracks
    ] == [
        ("A", "", ["A-001-core-framework", "A-002-di-container"]),
        ("B", "", ["B-001-schema-design", "B-002-entity-models"]),
        (None, "", ["0001_t1", "0001"]),
    ]
    assert tracks[0]["tasks"][1] == {
        "id": "A-002-di-container",
        "title": "Setup dependency injection container",
        "track": "A",
        "state": "BLOCKED",
        "generation": 0,
        "agent": None,
        "parent": None,
        "depends_on": ["A-001-core-framework"],
        "children": [],
        "waits_for": ["A-001-core-framework"],
        "distance": 0,
    }
    only = run("plan", "show", "--track", "B", "-q", cwd=folder)
    assert only.out.splitlines() == ["B-001-schema-design", "B-002-entity-models"]
    wrong = run("plan", "show", "--track", "b1", cwd=folder)
    assert wrong.code == 2
    assert wrong.error()["message"] == "track 'B1': character 2 is '1'; allowed are the letters A-Z"


@pytest.mark.parametrize("verb", ["check", "diff", "import"])
def test_a_key_that_is_almost_a_field_is_kept_and_said_once(folder: Path, verb: str) -> None:
    (folder / "slip.yaml").write_text(
        "tasks:\n  - {id: a}\n  - id: b\n    titel: B\n    colour: x\n  - {id: c, titel: C}\n",
        encoding="utf-8",
    )
    ran = run("plan", verb, "slip.yaml", cwd=folder)
    assert ran.code == 0
    message = "there is no field 'titel', so it is kept in metadata; did you mean title?"
    assert ran.err == f"slip.yaml:4:5: b: {message}\n"
    assert ran.json()["notes"] == [
        {"file": "slip.yaml", "line": 4, "column": 5, "task": "b", "message": message}
    ]
    assert run("plan", verb, "slip.yaml", "-q", cwd=folder).err == ""


@pytest.mark.parametrize("verb", ["check", "diff", "import"])
def test_a_key_that_surely_means_depends_on_is_a_fault_that_says_what_to_write(
    folder: Path, verb: str
) -> None:
    (folder / "slip.yaml").write_text(
        "tasks:\n  - {id: a}\n  - id: b\n    titel: B\n    needs: [a]\n", encoding="utf-8"
    )
    ran = run("plan", verb, "slip.yaml", cwd=folder)
    message = (
        "there is no field 'needs': what a task waits for is its depends_on; for a key of "
        "your own write 'x-needs'"
    )
    assert ran.code == 2
    assert ran.error()["faults"] == [
        {"file": "slip.yaml", "line": 5, "column": 5, "task": "b", "message": message}
    ]
    assert [note["line"] for note in ran.error()["notes"]] == [4], (
        "what is merely noted is shown beside a fault"
    )
    told = shown("plan", verb, "slip.yaml", cwd=folder, columns=200)[1]
    assert told[0].startswith("slip.yaml:4:5: b: there is no field 'titel'")
    assert told[1] == f"slip.yaml:5:5: b: {message}"
    assert run("plan", "show", "-q", cwd=folder).out == ""


def test_a_key_of_ones_own_is_kept_whatever_it_sounds_like(folder: Path) -> None:
    (folder / "own.yaml").write_text(
        "tasks:\n  - id: b\n    x-needs: [a]\n    x-depends-on: z\n    metadata: {deps: 1}\n",
        encoding="utf-8",
    )
    assert run("plan", "import", "own.yaml", cwd=folder).json()["notes"] == []
    assert run("show", "b", cwd=folder).json()["task"]["metadata"] == {
        "x-needs": ["a"],
        "x-depends-on": "z",
        "deps": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["check"], 2, "Missing argument 'FILE…'"),
        (["import", "nowhere.yaml"], 2, "'nowhere.yaml' cannot be read: No such file or directory"),
        (["check", "."], 2, "'.' cannot be read: Is a directory"),
        (["export", "--format", "xml"], 2, "'xml' is not one of 'yaml', 'jsonl'"),
        (["devour"], 2, "No such command 'devour'"),
    ],
)
def test_a_call_that_is_wrong_ends_with_2(
    folder: Path, arguments: list[str], code: int, complaint: str
) -> None:
    ran = run("plan", *arguments, cwd=folder)
    assert (ran.code, ran.out) == (code, "")
    assert complaint in ran.err


@pytest.mark.parametrize(
    "arguments", [["import", "plan.yaml"], ["diff", "plan.yaml"], ["show"], ["export"]]
)
def test_without_a_store_the_call_ends_with_3_and_says_what_to_type(
    tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    ran = run("plan", *arguments, cwd=tmp_path)
    assert (ran.code, ran.out) == (3, "")
    assert "genlock init" in ran.err
    assert not (tmp_path / ".genlock").exists()


# On a terminal


def test_on_a_terminal_an_import_says_what_it_did(folder: Path) -> None:
    drawn = draw("plan", "import", "plan.yaml", cwd=folder)
    assert drawn.code == 0
    assert drawn.lines == [*(f"+ {name}" for name in IDS), "6 added"]
    assert "\x1b[32m+ A-001-core-framework" in drawn.raw
    (folder / "plan.yaml").write_text(
        PLAN.replace("Initialize", "Start") + "".join(f"  - id: t{n}\n" for n in range(30)),
        encoding="utf-8",
    )
    plain = draw("plan", "diff", "plan.yaml", cwd=folder, env={"NO_COLOR": "1"})
    assert "\x1b[3" not in plain.raw
    assert plain.lines[0] == "+ t0"
    assert plain.lines[20:] == [
        "+ and 10 more",
        "~ A-001-core-framework: description",
        "30 added, 1 changed, 5 unchanged",
    ]


def test_on_a_terminal_the_plan_is_a_table_that_fits(folder: Path) -> None:
    assert run("plan", "import", "plan.yaml", cwd=folder).code == 0
    wide = draw("plan", "show", cwd=folder)
    assert wide.text.splitlines() == [
        "A (0 of 2 tasks done)",
        "task                  state    title                                  depends on",
        "A-001-core-framework  pending  Initialize core application framework",
        "A-002-di-container    blocked  Setup dependency injection container   A-001",
        "",
        "B (0 of 2 tasks done)",
        "task                 state    depends on",
        "B-001-schema-design  pending",
        "B-002-entity-models  blocked  B-001, A-001",
        "",
        "no track (0 of 2 tasks done)",
        "task     state",
        "0001_t1  blocked",
        "0001     blocked",
    ]
    narrow = draw("plan", "show", cwd=folder, columns=32)
    assert max(map(len, narrow.lines)) <= 32
    assert "A-001-core-framework" in narrow.text


def test_an_empty_plan_says_what_to_type(folder: Path) -> None:
    assert "genlock plan import FILE" in draw("plan", "show", cwd=folder).text


# Cut off


def many(folder: Path, number: int) -> Path:
    """A plan of so many tasks, each waiting for three before it, some below a parent."""
    path = folder / "many.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for at in range(number):
            others = sorted({f"t{at * step % at}" for step in (3, 5, 7)}) if at else []
            fields = {"id": f"t{at}", "title": f"Task {at}", "depends_on": others} | (
                {"parent": "top"} if at % 100 == 99 else {}
            )
            file.write(json.dumps(fields) + "\n")
        file.write('{"id": "top"}\n')
    return path


def uninterrupted(folder: Path, plan: Path) -> Graph:
    # Not inside the project: there it would be found.
    other = folder.with_name(f"{folder.name}-whole")
    other.mkdir()
    assert run("init", cwd=other).code == 0
    assert run("plan", "import", plan, cwd=other).code == 0
    return graph_of(other)


@pytest.mark.parametrize(
    "failpoint",
    ["sqlite.commit.events:4", "sqlite.commit.before_commit:6", "sqlite.commit.after_lock:7"],
)
def test_an_import_that_was_killed_is_finished_by_importing_again(
    folder: Path, failpoint: str
) -> None:
    plan = many(folder, 3000)
    killed = run("plan", "import", plan, cwd=folder, env={"GENLOCK_FAILPOINT": failpoint})
    assert killed.code == -signal.SIGKILL
    written = len(graph_of(folder).tasks)
    assert 0 < written < 3001, "it was not killed in the middle"
    ran = run("plan", "import", plan, cwd=folder)
    assert ran.code == 0
    assert (len(ran.json()["added"]), ran.json()["unchanged"]) == (3001 - written, written)
    assert graph_of(folder) == uninterrupted(folder, plan)


def test_ctrl_c_in_mid_import_says_to_import_again_which_finishes_it(folder: Path) -> None:
    plan = many(folder, 5000)
    with fleet_of(folder) as fleet:
        start = fleet.read_events(tail=True).cursor
        process = subprocess.Popen(
            [*COMMAND, "plan", "import", str(plan)],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert any(
            event.event_type == "TASK_ADDED"
            for event in fleet.watch(after=start, timeout_seconds=60)
        )
        # While the store is locked the import cannot end: the signal comes in the middle.
        lock = apsw.Connection(str(folder / ".genlock" / "genlock.db"))
        lock.set_busy_timeout(30_000)
        lock.execute("BEGIN IMMEDIATE")
        process.send_signal(signal.SIGINT)
        assert process.poll() is None
        lock.execute("ROLLBACK")
        lock.close()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    said = err.splitlines()[-1]
    assert said.startswith("genlock: broken off after ")
    assert said.endswith(f" of 5,001 changes; to finish, type: genlock plan import {plan}")
    written = len(graph_of(folder).tasks)
    assert 0 < written < 5001
    assert len(run("plan", "import", plan, cwd=folder).json()["added"]) == 5001 - written
    assert graph_of(folder) == uninterrupted(folder, plan)


def test_ctrl_c_before_anything_is_written_says_so(folder: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "plan", "import", "-"],
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    # More than the pipe holds: once all is written, the import is reading it.
    process.stdin.write(b"\n" * 1_000_000)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.decode().splitlines() == [
        "genlock: broken off; nothing was written; to import, type: genlock plan import -"
    ]
    assert graph_of(folder).tasks == ()


def test_a_long_import_on_a_terminal_has_a_bar_and_leaves_only_the_answer(folder: Path) -> None:
    plan = many(folder, 12_000)
    drawn = draw("plan", "import", plan, cwd=folder)
    assert drawn.code == 0
    assert "importing" in drawn.raw
    assert "/12001" in drawn.raw
    assert drawn.lines[-1] == "12,001 added"
    assert "importing" not in drawn.text
    quiet = draw("plan", "import", plan, "-q", cwd=folder)
    assert quiet.text == ""
