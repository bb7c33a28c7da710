"""Thirty mistakes, typed in one project: each answer names what is wrong and what to type, has an
exit code, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from tests.cli.console import run

TASKS: list[str | dict[str, object]] = [
    "A-001-core",
    "A-002-done",
    "B-001-schema",
    {"id": "B-002-models", "depends_on": ["B-001-schema"]},
]

MISTAKES: dict[str, tuple[int, str]] = {
    "stauts": (
        2,
        "genlock: unknown command 'stauts'. Did you mean 'status'? All commands: genlock --help",
    ),
    "retry A-001-core": (
        2,
        "genlock: unknown command 'retry'. Did you mean 'reset'? All commands: genlock --help",
    ),
    "--json status": (
        2,
        (
            '{"error":{"code":"USAGE","message":"options stand after the command, type: genlock status '
            '--json. To see how: genlock --help","try_next":[["genlock","--help"]]}}'
        ),
    ),
    "claim B-01": (
        3,
        (
            "genlock: there is no task 'B-01' in project 'default' of tenant 'default'; did you mean "
            "B-001-schema?"
        ),
    ),
    "claim b2": (
        3,
        (
            "genlock: there is no task 'b2' in project 'default' of tenant 'default'; did you mean "
            "B-002-models?"
        ),
    ),
    "show B-00": (
        3,
        (
            "genlock: there is no task 'B-00' in project 'default' of tenant 'default'; did you mean "
            "B-001-schema or B-002-models?"
        ),
    ),
    "claim A-001-core --lease soon": (
        2,
        (
            "genlock: Invalid value for '--lease': 'soon' is no length of time: write seconds, or 90s, "
            "5m, 1h30m or 2d. To see how: genlock claim --help"
        ),
    ),
    "claim A-001-core --agent x/y": (
        2,
        (
            "genlock: flag --agent: agent 'x/y': character 2 is '/' (a slash); allowed are printable "
            "characters other than '/'"
        ),
    ),
    "next --track Q": (3, "nothing, NOTHING_READY: there is no task of track Q"),
    "run --next --track Q -- true": (3, "genlock: nothing_ready: there is no task of track Q"),
    "submit A-001-core": (
        2,
        (
            "genlock: the generation of A-001-core is missing: give the number that claim or next "
            "printed, with -g or in GENLOCK_GENERATION"
        ),
    ),
    "submit A-001-core 1": (
        2,
        (
            "genlock: a generation is given with -g, type: genlock submit A-001-core -g 1. To see how: "
            "genlock submit --help"
        ),
    ),
    "submit A-001-core -g one": (
        2,
        (
            "genlock: Invalid value for '--generation' / '-g': 'one' is not a valid integer. To see "
            "how: genlock submit --help"
        ),
    ),
    "submit A-001-core -g 7": (
        5,
        "refused, FUTURE_GENERATION: A-001-core has not been at this generation; did",
    ),
    "submit A-001-core -g 0": (
        5,
        "refused, STALE_GENERATION: A-001-core has not been at this generation; did you",
    ),
    "release A-001-core -g 0": (
        5,
        "refused, GENERATION_MISMATCH: A-001-core has not been at this generation; did",
    ),
    "renew B-001-schema -g 1": (
        5,
        "refused, GENERATION_MISMATCH: nobody has been granted B-001-schema yet: claim",
    ),
    "renew A-001-core -g 1 --session other": (
        5,
        "refused, SESSION_MISMATCH: another session holds A-001-core at this",
    ),
    "submit A-001-core -g 1 --result {bad": (
        2,
        (
            "genlock: --result is no JSON: Expecting property name enclosed in double quotes at "
            "character 2; if it is a plain text, use --text"
        ),
    ),
    "submit A-001-core -g 1 --result @out.json": (
        2,
        (
            "genlock: --result is no JSON: Expecting value at character 1; if it is a file, use "
            "--result-file out.json"
        ),
    ),
    "adopt A-001-core": (
        2,
        (
            "genlock: Missing argument 'REFUSED_ID'; genlock refused lists them. To see how: genlock "
            "adopt --help"
        ),
    ),
    "setup": (
        2,
        "genlock: Missing argument: one of claude, codex, cursor, gemini, gptme, opencode. To see",
    ),
    "unlock A-001-core": (4, "genlock: task 'A-001-core' is held by me (session me) until "),
    "assign A-001-core": (2, "genlock: for which agent? genlock assign A-001-core --to AGENT"),
    "reopen A-002-done": (
        4,
        "genlock: task 'A-002-done' is COMPLETED; to have it done again, reset it",
    ),
    "list --state done": (
        2,
        (
            "genlock: states are of BACKLOG, PENDING, BLOCKED, IN_PROGRESS, IN_REVIEW, COMPLETED, "
            "CANCELLED, HELD; 'DONE' is none of them; did you mean COMPLETED?"
        ),
    ),
    "status --project nope": (
        3,
        "genlock: there is no project 'nope' in this store; there are: default",
    ),
    "ready --url postgre://x": (2, "genlock: there is no store for postgre://; there are: "),
    "ready --url sqlite:///no/such.db": (
        3,
        (
            "genlock: there is no store at /no/such.db; to make one, type: genlock init --url "
            "sqlite:///no/such.db"
        ),
    ),
    "plan import bad.yaml": (
        2,
        (
            "bad.yaml:4:3: C-002-b: there is no field 'dependson': what a task waits for is its "
            "depends_on; for a key of your own write 'x-dependson'"
        ),
    ),
    "policy set expired human": (
        2,
        "genlock: policy 'expired' has no '=': write expired=human",
    ),
    "tenant set max_concurrent_claims=9": (
        2,
        (
            "genlock: which tenant? Its name stands before its limits, type: genlock tenant set "
            "default max_concurrent_claims=9"
        ),
    ),
    "work --agents many": (
        2,
        (
            "genlock: Invalid value for '--agents': 'many' is not a whole number. To see how: genlock "
            "work --help"
        ),
    ),
    "session end nope": (3, "genlock: there is no session 'nope' in project 'default'"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    run("init", cwd=folder)
    (folder / "bad.yaml").write_text("tasks:\n- id: C-001-a\n- id: C-002-b\n  dependson: C-001-a\n")
    return folder


@pytest.fixture(scope="module")
def fleet(project: Path) -> Iterator[Coordinator]:
    url = f"sqlite://{project}/.genlock/genlock.db"
    with genlock.connect(url, session_id="me", agent_id="me") as fleet:
        fleet.add_tasks(tasks=TASKS)
        fleet.claim_task(task_id="A-002-done")
        fleet.submit_result(task_id="A-002-done", generation=1, result_data={})
        fleet.claim_task(task_id="A-001-core", lease_duration_seconds=3600)
        yield fleet


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_named_with_what_to_type_and_changes_nothing(
    fleet: Coordinator, project: Path, typed: str
) -> None:
    code, line = MISTAKES[typed]
    before = fleet.read_events(tail=True).cursor
    ran = run(*typed.split(), cwd=project, env={"GENLOCK_SESSION": "me", "GENLOCK_OUTPUT": "text"})
    told = ran.out if code == 5 or "NOTHING_READY" in line else ran.err
    assert ran.code == code
    assert told.splitlines()[0].startswith(line)
    assert fleet.read_events(tail=True).cursor == before


def test_there_are_thirty_of_them() -> None:
    assert len(MISTAKES) >= 30
