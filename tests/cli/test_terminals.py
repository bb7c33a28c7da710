"""Answers on terminals: wide, narrow, dumb, without colour; questions; Ctrl-C."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from genlock.project_folder import sqlite_url
from tests.cli.console import run
from tests.cli.stage import Stage
from tests.cli.terminal import Terminal, shown

CORE = "A-001-core-framework"
LONG = "B-001-a-name-that-is-longer-than-any-narrow-terminal"
PLAIN: dict[str, str | None] = {"NO_COLOR": "1", "GENLOCK_SESSION": "dave", "GENLOCK_AGENT": "dave"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A project with long names, foreign letters, a takeover and refused results; the tests only
    look at it."""
    stage = Stage(tmp_path_factory.mktemp("terminals") / "project")
    stage.add(
        {"id": CORE, "title": "The core framework", "priority": "high"},
        {"id": "A-002-api", "title": "The API", "depends_on": [CORE]},
        {
            "id": LONG,
            "title": (
                "A title, too, that is much longer than what a line of eighty columns could "
                "ever hold"
            ),
            "priority": "low",
        },
        {
            "id": "C-001-docs",
            "title": "文档 [bold]and[/] \x1b[31mred\x1b[0m\nlines",
            "description": "word " * 40,
        },
        {"id": "D-001-late", "depends_on": ["A-002-api", LONG]},
    )
    stage.claim(CORE, "alice", ago=3600, lease=60)
    stage.claim(CORE, "bob")
    stage.submit(CORE, 1, "alice", {"by": "alice"})
    with stage.library() as fleet:
        for name in ("ci", LONG):
            fleet.create_key(
                name=name, role="agent", projects="team-*", session_id="s1", expires_in_seconds=60
            )
    return stage


VERBS = [
    ["status"],
    ["ready"],
    ["show", LONG],
    ["show", CORE],
    ["history", CORE],
    ["explain", "D-001-late"],
    ["explain", CORE],
    ["agents"],
    ["sessions"],
    ["events"],
    ["refused"],
    ["keys", "list", "--all-tenants"],
    ["tenant", "list"],
    ["tenant", "show"],
    ["policy", "show"],
    ["claim", CORE],
    ["unlock", CORE],
]


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_what_is_shown_fits_the_terminal(stage: Stage, arguments: list[str], columns: int) -> None:
    code, lines = shown(*arguments, cwd=stage.folder, columns=columns, env=PLAIN)
    assert code == {"claim": 5, "unlock": 4}.get(arguments[0], 0)
    assert lines
    # Commands stay whole, so that they can be copied.
    ours = [line for line in lines if "genlock " not in line]
    assert [line for line in ours if _cells(line) > columns] == []


def test_a_sentence_is_broken_at_blanks_and_its_command_stays_whole(tmp_path: Path) -> None:
    folder = tmp_path / "a-folder-whose-name-is-long"
    folder.mkdir()
    code, lines = shown("status", cwd=folder, columns=len(str(folder)) + 60, env=PLAIN)
    store = folder / ".genlock" / "genlock.db"
    assert (code, lines) == (
        3,
        [f"genlock: there is no store at {store}; to make", "  one, type:", "  genlock init"],
    )
    code, lines = shown("status", cwd=folder, columns=len(str(folder)) + 90, env=PLAIN)
    assert lines == [f"genlock: there is no store at {store}; to make one, type: genlock init"], (
        "what fits stands in one line"
    )


def test_what_only_names_a_command_is_not_broken(stage: Stage) -> None:
    _, lines = shown(
        "claim", CORE, "--session", "another-session", cwd=stage.folder, columns=40, env=PLAIN
    )
    assert f"  genlock explain {CORE} --session another-session" in lines


@pytest.mark.parametrize(
    ("env", "escapes"), [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({}, True)]
)
def test_escape_codes_are_only_for_terminals_that_want_them(
    stage: Stage, env: dict[str, str | None], escapes: bool
) -> None:
    for arguments in (["ready"], ["history", CORE], ["explain", CORE]):
        _, lines = shown(*arguments, cwd=stage.folder, env=env)
        assert ("\x1b" in "".join(lines)) is escapes


def test_a_terminal_that_knows_only_ascii_is_shown_what_it_can_show(stage: Stage) -> None:
    ascii_only: dict[str, str | None] = {"PYTHONIOENCODING": "ascii", **PLAIN}
    code, lines = shown("history", CORE, cwd=stage.folder, env=ascii_only)
    assert (code, next(line for line in lines if "REJECTED" in line)[:9]) == (0, "?? alice ")


def test_what_others_wrote_is_shown_as_text(stage: Stage) -> None:
    for arguments in (["ready"], ["show", "C-001-docs"]):
        code, lines = shown(*arguments, cwd=stage.folder, env={})
        text = "\n".join(lines)
        assert code == 0
        assert r"文档 [bold]and[/] \x1b[31mred\x1b" in text
        assert "\x1b[31m" not in text


def test_ready_is_a_table_on_a_terminal(stage: Stage) -> None:
    code, lines = shown("ready", cwd=stage.folder, env=PLAIN)
    assert (code, lines) == (
        0,
        [
            "task                                priority  title",
            r"C-001-docs                          medium    文档 [bold]and[/] \x1b[31mred\x1b…",
            "B-001-a-name-that-is-longer-than-…  low       A title, too, that is much longer…",
            "",
            "2 tasks blocked:",
            "task        waits for",
            "A-002-api   A-001-core-framework",
            "D-001-late  A-002-api, B-001-a-name-that-is-longer-than-any-narrow-terminal",
        ],
    )


def test_history_is_the_lineage_with_the_rejected_submissions_below(stage: Stage) -> None:
    code, lines = shown("history", CORE, cwd=stage.folder, env=PLAIN)
    told = [
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d", "WHEN", line) for line in lines
    ]
    told = [re.sub(r"[0-9a-f]{16}", "DIGEST", re.sub(" +", " ", line)) for line in told]
    assert (code, told) == (
        0,
        [
            f"{CORE}, IN_PROGRESS, generation 2; times are UTC",
            "Generation Session Acquired Released Result",
            " 1 alice WHEN WHEN EXPIRED",
            " 2 bob WHEN at work",
            "",
            "Rejected submissions:",
            "└─ alice submitted at WHEN → REJECTED (gen 1 < current 2)",
            f" genlock adopt {CORE} 1/alice/DIGEST",
        ],
    )


def test_progress_and_cost_are_in_show_status_history_and_events(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.add("T")
    stage.claim("T", "alice")
    with stage.library("alice") as fleet:
        told: dict[str, Any] = {"task_id": "T", "generation": 1}
        fleet.report_progress(**told, fraction=0.2, note="outline done", cost={"usd": 0.1})
        fleet.report_progress(**told, fraction=0.4, note="tests pass", cost={"usd": 0.12})
    text = {
        verb[0]: "\n".join(shown(*verb, cwd=stage.folder, env=PLAIN)[1])
        for verb in (["show", "T"], ["status"], ["history", "T"], ["events"])
    }
    assert re.search(r"progress +40%, \S+ ago", text["show"])
    assert re.search(r"cost +0.12 usd", text["show"])
    assert text["show"].index("outline done") < text["show"].index("tests pass")
    assert "40%: tests pass" in text["status"]
    assert "40%: tests pass (0.12 usd)" in text["history"]
    assert text["events"].count("PROGRESS_REPORTED") == 2
    (row,) = stage.run("status").json()["at_work"]
    assert row["progress"]["fraction"] == 0.4
    assert row["progress"]["cost"] == {"usd": 0.12}


def test_whoever_would_adopt_a_result_of_a_finished_task_is_told_to_reset_it_first(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path / "finished")
    stage.add(CORE)
    stage.claim(CORE, "alice", ago=3600, lease=60)
    stage.claim(CORE, "bob")
    stage.submit(CORE, 1, "alice", "late")
    stage.submit(CORE, 2, "bob", "good")
    digests = re.compile("[0-9a-f]{16}")
    told = [
        f"  genlock reset {CORE}",
        f"  genlock adopt {CORE} 1/alice/DIGEST",
        f"  genlock discard {CORE} 1/alice/DIGEST",
    ]
    code, lines = shown("refused", cwd=stage.folder, env=PLAIN)
    assert (code, [digests.sub("DIGEST", line) for line in lines[-3:]]) == (0, told)
    late = shown(
        "submit",
        CORE,
        "-g",
        "1",
        "--text",
        "late",
        "--session",
        "alice",
        cwd=stage.folder,
        env=PLAIN,
    )
    assert (late[0], late[1][-2:]) == (
        5,
        ["  genlock next --session alice", f"  genlock history {CORE}"],
    )
    assert not any("adopt" in line for line in late[1]), "the zombie itself is not told to adopt"


def test_explain_is_told_in_sentences(stage: Stage) -> None:
    code, lines = shown("explain", "D-001-late", cwd=stage.folder, env=PLAIN)
    assert (code, [re.sub(r"\d{4}-\S+", "WHEN", line) for line in lines]) == (
        0,
        [
            "D-001-late is BLOCKED: a claim would be denied, DENIED_BLOCKED",
            "  waits for A-002-api",
            f"  waits for {LONG}",
            "it comes down to:",
            f"  {LONG}, PENDING: ready, nobody",
            "    has claimed it",
            f"  {CORE}, IN_PROGRESS: bob (session bob) is at work, lease until",
            "    WHEN",
            "what you can type:",
            f"  genlock claim {LONG}",
            "  genlock explain A-002-api",
        ],
    )


def test_json_and_quiet_hold_on_a_terminal_too(stage: Stage) -> None:
    assert shown("show", CORE, "--quiet", cwd=stage.folder) == (0, ["IN_PROGRESS"])
    code, lines = shown("ready", "--json", cwd=stage.folder)
    assert (code, len(lines), lines[0][:16]) == (0, 1, '{"ready_tasks":[')


def test_a_long_table_ends_with_how_to_see_the_rest(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "large")
    stage.add(*(f"task-{number:03}" for number in range(150)))
    code, lines = shown("ready", cwd=stage.folder, env=PLAIN)
    assert (code, lines[1], lines[100], lines[101:]) == (
        0,
        "task-000  medium",
        "task-099  medium",
        ["there are more: genlock ready --all"],
    )


# What is to be typed next


def typed(lines: list[str], before: str) -> list[str]:
    """The words of the command that follows these ones, as a shell would read them."""
    (line,) = [line for line in lines if before in line]
    return shlex.split(line.partition(before)[2])


def test_what_is_said_to_be_typed_is_of_the_same_session_and_place(tmp_path: Path) -> None:
    there = Stage(tmp_path / "the project")
    elsewhere = Stage(tmp_path / "elsewhere")
    place = ["--url", f"sqlite://{there.folder}/.genlock/genlock.db", "--project", "shop"]
    assert run("add", "one", *place).code == 0
    wide = {**PLAIN, "GENLOCK_SESSION": "s1"}
    _, lines = shown(
        "next",
        *place,
        "--session",
        "worker 7",
        "--agent",
        "ada",
        cwd=elsewhere.folder,
        columns=300,
        env=wide,
    )
    assert typed(lines, "when done: genlock ") == [
        "submit",
        "one",
        "-g",
        "1",
        *place,
        "--session",
        "worker 7",
    ]
    _, lines = shown(
        "claim",
        "one",
        *place,
        "--session",
        "other",
        "--agent",
        "bob",
        cwd=elsewhere.folder,
        columns=300,
        env=wide,
    )
    asked = typed(lines, "genlock explain ")
    assert asked == ["one", *place, "--session", "other", "--agent", "bob"]
    as_ada = {**wide, "GENLOCK_AGENT": "ada"}
    _, lines = shown(
        "explain",
        "one",
        *place,
        "--session",
        "worker 7",
        cwd=elsewhere.folder,
        columns=300,
        env=as_ada,
    )
    done = typed(lines, "genlock submit ")
    assert run("submit", *done, cwd=elsewhere.folder).json()["reason"] == "ACCEPTED"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["ready", "--limit", "1", "--track", "A"],
            "there are more: genlock ready --all --track A --project shop",
        ),
        (
            ["ready", "--limit", "1", "--agent", "a b"],
            "there are more: genlock ready --all --agent 'a b' --project shop",
        ),
        (
            ["edit", "A-001-x"],
            "name what is to be another: genlock edit A-001-x --title TEXT --project shop",
        ),
        (
            ["spawn", "A-001-x", "-g", "1"],
            "genlock spawn A-001-x -g 1 'first part' 'second part' --project shop",
        ),
        (
            ["graph", "--track", "Z"],
            "to import a plan, type: genlock plan import FILE --project shop",
        ),
        (
            ["plan", "show", "--track", "Z"],
            "to import a plan, type: genlock plan import FILE --project shop",
        ),
    ],
)
def test_what_is_said_to_be_typed_names_the_project(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    stage = Stage(tmp_path / "project")
    for name in ("A-001-x", "A-002-y"):
        assert stage.run("add", name, "--project", "shop").code == 0
    _, lines = shown(*arguments, "--project", "shop", cwd=stage.folder, columns=200, env=PLAIN)
    assert says in "\n".join(lines)


def test_what_is_said_of_a_backup_or_a_copy_can_be_typed_whatever_its_name(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "store")
    stage.add("one")
    names = tmp_path / "it's #1 at 5%25"
    names.mkdir()
    _, lines = shown("backup", names / "b.db", cwd=stage.folder, columns=300, env=PLAIN)
    assert run(*typed(lines, "type: genlock ")).code == 0
    target = sqlite_url(names / "a:b@c.db")
    _, lines = shown("copy", stage.url, target, cwd=stage.folder, columns=300, env=PLAIN)
    assert typed(lines, "export ") == [f"GENLOCK_URL={target}"]


def test_no_password_is_shown_that_stands_in_a_url(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "store")
    subprocess.run(["git", "init", "--quiet", stage.folder / "hidden"], check=True)
    server = "postgresql://ada:secret@127.0.0.1:1/plans?password=secret"
    _, lines = shown("init", "--stealth", "--url", server, cwd=stage.folder / "hidden", env=PLAIN)
    assert "secret" not in "".join(lines)
    assert "postgresql://ada:" in "".join(lines)


# Questions


@pytest.fixture
def chain(tmp_path: Path) -> Stage:
    """Two tasks that are done, the second after the first."""
    stage = Stage(tmp_path / "chain")
    stage.add("first", {"id": "second", "depends_on": ["first"]})
    stage.complete("first")
    stage.complete("second")
    return stage


@pytest.mark.parametrize(
    ("typed", "code", "states"),
    [
        ("y\n", 0, ["PENDING", "BLOCKED"]),
        ("n\n", 1, ["COMPLETED", "COMPLETED"]),
        ("\n", 1, ["COMPLETED", "COMPLETED"]),
    ],
)
def test_a_cascade_lists_what_it_would_reset_and_asks(
    chain: Stage, typed: str, code: int, states: list[str]
) -> None:
    with Terminal("reset", "first", "--cascade", cwd=chain.folder, env=PLAIN) as terminal:
        terminal.wait_for(
            "first and what rests on it, 1 completed task, would be reset:\r\n  second\r\nReset "
            "them? [y/N]: "
        )
        terminal.press(typed)
        assert terminal.end() == code
    assert [chain.run("show", task, "-q").out.strip() for task in ("first", "second")] == states


def test_ctrl_c_at_the_question_changes_nothing(chain: Stage) -> None:
    before = chain.files()
    with Terminal("reset", "first", "--cascade", cwd=chain.folder, env=PLAIN) as terminal:
        terminal.wait_for("[y/N]: ")
        terminal.interrupt()
        # Not even a yes that comes right after it counts; and if Ctrl-C came just before the
        # keyboard was read, the key wakes the reader.
        terminal.press("y\n")
        assert terminal.end() == 130
    assert chain.files() == before


def test_with_yes_nobody_is_asked(chain: Stage) -> None:
    code, lines = shown("reset", "first", "--cascade", "--yes", cwd=chain.folder, env=PLAIN)
    assert (code, lines) == (0, ["first is to be done again, and second: PENDING, generation 2"])


@pytest.mark.parametrize(
    ("typed", "code", "state"),
    [("y\n", 0, "CANCELLED"), ("n\n", 1, "PENDING"), ("\n", 1, "PENDING")],
)
def test_pruning_lists_what_it_would_cancel_and_asks(
    tmp_path: Path, typed: str, code: int, state: str
) -> None:
    stage = Stage(tmp_path / "pruning")
    stage.add("of-another-plan")
    (stage.folder / "plan.yaml").write_text("tasks: [{id: mine}]\n", encoding="utf-8")
    with Terminal(
        "plan", "import", "--prune", "plan.yaml", cwd=stage.folder, env=PLAIN
    ) as terminal:
        terminal.wait_for(
            "1 task of project 'default' not in the plan would be cancelled:\r\n  "
            "of-another-plan\r\nCancel it? [y/N]: "
        )
        terminal.press(typed)
        assert terminal.end() == code
    assert stage.run("show", "of-another-plan", "-q").out.strip() == state
    assert stage.run("show", "mine", "-q").code == (0 if code == 0 else 3), (
        "who does not agree has nothing imported"
    )


def test_what_is_added_while_the_question_stands_is_not_pruned_unasked(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "pruning")
    stage.add("old")
    (stage.folder / "plan.yaml").write_text("tasks: [{id: mine}]\n", encoding="utf-8")
    with Terminal(
        "plan", "import", "--prune", "plan.yaml", cwd=stage.folder, env=PLAIN
    ) as terminal:
        terminal.wait_for("  old\r\nCancel it? [y/N]: ")
        stage.add("new")
        terminal.press("y\n")
        terminal.wait_for(
            "2 tasks of project 'default' not in the plan would be cancelled:\r\n  new\r\n  "
            "old\r\nCancel them? [y/N]: "
        )
        terminal.press("n\n")
        assert terminal.end() == 1
    assert [stage.run("show", task, "-q").out for task in ("old", "new")] == [
        "PENDING\n",
        "PENDING\n",
    ]


def test_ctrl_c_at_the_question_of_an_import_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "pruning")
    stage.add("of-another-plan")
    (stage.folder / "plan.yaml").write_text("tasks: [{id: mine}]\n", encoding="utf-8")
    before = stage.files()
    with Terminal(
        "plan", "import", "--prune", "plan.yaml", cwd=stage.folder, env=PLAIN
    ) as terminal:
        terminal.wait_for("[y/N]: ")
        terminal.interrupt()
        terminal.press("y\n")
        assert terminal.end() == 130
    assert terminal.lines()[-2:] == [
        "genlock: broken off; nothing was written; to import, type:",
        "  genlock plan import --prune plan.yaml",
    ]
    assert stage.files() == before


# Waiting


def test_what_is_to_be_typed_next_looks_where_this_call_was_told_to_look(tmp_path: Path) -> None:
    """Else the next command would act on another project."""
    stage = Stage(tmp_path / "places")
    place = ["--project", "web"]

    def last(*words: str) -> str:
        return shown(*words, *place, cwd=stage.folder, env=PLAIN, columns=200)[1][-1].strip()

    assert last("status") == (
        "genlock: there is no project 'web' in this store, nor any other of tenant 'default'"
    )
    assert stage.run("add", "a", *place).code == 0
    assert last("explain", "a") == "genlock claim a --project web"
    assert (
        last("claim", "a", "--session", "s1")
        == "when done: genlock submit a -g 1 --project web --session s1"
    )
    assert last("claim", "a", "--session", "s2") == "genlock next --project web --session s2"
    assert last("unlock", "a").endswith(": genlock unlock a --force --project web")
    assert last("unlock", "a", "--force").startswith("its claim was taken away")
    late = last("submit", "a", "-g", "1", "--session", "s1", "--text", "x")
    assert late == "genlock history a --project web"
    assert re.fullmatch(r"genlock adopt a 1/\S+ --project web", last("history", "a"))
    assert re.fullmatch(r"genlock discard a 1/\S+ --project web", last("refused"))
    assert last("status") == "genlock refused --project web"
    assert last("renew", "a", "-g", "1", "--session", "s1") == "genlock history a --project web"
    told = stage.run("reset", "a", "--cascade", *place, "--tenant", "default").error()["message"]
    assert told.endswith("type: genlock reset a --cascade --yes --tenant default --project web")


def test_who_shows_a_generation_that_nobody_was_granted_is_told_to_claim(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "unclaimed")
    stage.add("a")
    for verb, reason in (
        ("submit", "FUTURE_GENERATION"),
        ("renew", "GENERATION_MISMATCH"),
        ("release", "GENERATION_MISMATCH"),
    ):
        code, lines = shown(verb, "a", "-g", "1", cwd=stage.folder, env=PLAIN)
        assert (code, lines[0]) == (
            5,
            f"refused, {reason}: nobody has been granted a yet: claim it first",
        )
        assert lines[-1].endswith("genlock claim a")
    stage.claim("a", "s1")
    for verb, reason in (("submit", "FUTURE_GENERATION"), ("renew", "GENERATION_MISMATCH")):
        _, lines = shown(verb, "a", "-g", "2", cwd=stage.folder, env=PLAIN)
        told = f"refused, {reason}: a has not been at this generation; did you mean 1?"
        assert " ".join(line.strip() for line in lines).startswith(told)


@pytest.mark.parametrize("verb", ["submit", "renew", "release"])
def test_who_is_not_the_session_of_the_claim_is_told_which_one_he_is(
    tmp_path: Path, verb: str
) -> None:
    stage = Stage(tmp_path / "another")
    stage.add("a")
    stage.claim("a", "s1")
    code, lines = shown(verb, "a", "-g", "1", "--session", "s2", cwd=stage.folder, env=PLAIN)
    assert (code, lines[0]) == (
        5,
        "refused, SESSION_MISMATCH: another session holds a at this generation, and you",
    )
    assert lines[1].strip().startswith("are s2")
    typed = "genlock next --session s2" if verb == "submit" else "genlock agents"
    assert f"  {typed}" in lines


def test_who_follows_the_events_is_told_that_they_are_awaited(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "events")
    stage.add("before")
    with Terminal("events", "--follow", "--limit", 1, cwd=stage.folder, env=PLAIN) as terminal:
        terminal.wait_for("what comes is shown as it happens; Ctrl-C ends it")
        stage.add("after")
        assert terminal.end() == 0
        assert [line.split()[1:] for line in terminal.lines()[1:]] == [
            ["TASK_ADDED", "after", "s1"]
        ]


def test_next_waits_for_a_task_that_comes(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "empty")
    with Terminal("next", "--wait", 50, cwd=stage.folder, env=PLAIN) as terminal:
        terminal.wait_for("waiting up to 50 s for a task; Ctrl-C ends it")
        stage.add({"id": "fresh", "title": "Fresh"})
        assert terminal.end() == 0
        assert "title       Fresh" in terminal.lines()
    assert stage.run("agents", "-q").out == "dave\n"


def test_ctrl_c_while_waiting_leaves_nothing_claimed(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "empty")
    with Terminal("next", "--wait", 50, cwd=stage.folder, env=PLAIN) as terminal:
        terminal.wait_for("waiting up to 50 s")
        terminal.interrupt()
        assert terminal.end() == 130
        assert terminal.lines()[-1].endswith("genlock: broken off")
    stage.add("fresh")
    assert stage.run("show", "fresh").json()["generation"] == 0
    assert stage.run("next", "-q").out == "fresh\n1\n"


def test_events_are_followed_on_a_terminal_until_ctrl_c(stage: Stage) -> None:
    with Terminal(
        "events",
        "--follow",
        "--after",
        stage.run("events", "-q", "--limit", 1).out.strip(),
        cwd=stage.folder,
        env=PLAIN,
    ) as terminal:
        terminal.wait_for("REJECTED")
        terminal.interrupt()
        assert terminal.end() == 130
        assert re.fullmatch(rf"\d\d:\d\d:\d\d  TASK_ADDED  {CORE}  s1", terminal.lines()[0])


def _cells(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)
