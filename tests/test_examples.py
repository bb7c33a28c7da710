"""The examples run as a newcomer runs them, and show what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
FRAMEWORKS = ROOT / ".servers" / "examples" / "bin" / "python"
"""The environment that `make test` makes for examples that need a framework."""


def lines_of(*command: object, env: dict[str, str]) -> list[str]:
    """What an example prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GENLOCK_")}
    ran = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=100,
        env=clean | env,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_the_first_steps_show_a_takeover_and_a_stale_result(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "GENLOCK_URL"} | {
        "TMPDIR": str(tmp_path)
    }
    command = [sys.executable, str(EXAMPLES / "first_steps.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "ada holds A-001-core-framework at generation 1",
        "ben is told: DENIED_ACTIVE_CLAIM, ada holds it",
        "ben takes over A-001-core-framework at generation 2",
        "ben's result: ACCEPTED",
        "ada's result: STALE_GENERATION (1 < 2), kept: True",
        "ready now: B-001-schema",
    ]


def test_a_fleet_in_python_retries_a_failed_task_with_what_was_learned(tmp_path: Path) -> None:
    told = lines_of(sys.executable, EXAMPLES / "python_fleet.py", env={"TMPDIR": str(tmp_path)})
    assert told == [
        "accepted 4, failed 1",
        "A-002-parse 2 {'learned': 'ValueError: line 7 is not JSON', 'task': 'A-002-parse'}",
        "A-004-report 1 {'learned': '', 'task': 'A-004-report'}",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper and /proc")
def test_a_fleet_of_shell_commands_finishes_the_plan(tmp_path: Path) -> None:
    genlock = tmp_path / "genlock"
    genlock.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m genlock.cli "$@"\n')
    genlock.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    told = lines_of(
        "bash", EXAMPLES / "shell_fleet.sh", env={"PATH": path, "TMPDIR": str(tmp_path)}
    )
    assert told == [
        "A-001-outline: A-001-outline",
        "A-002-chapter: A-002-chapter",
        "A-003-chapter: A-003-chapter",
    ]


def test_a_scripted_agent_finishes_the_plan_over_mcp(tmp_path: Path) -> None:
    told = lines_of(sys.executable, EXAMPLES / "mcp_loop.py", env={"TMPDIR": str(tmp_path)})
    assert told[1:] == [
        "claimed A-001-first at generation 1",
        "ACCEPTED A-001-first",
        "claimed A-002-second at generation 1",
        "ACCEPTED A-002-second",
        "NOTHING_READY finished",
    ]


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (
            "pydantic_ai_worker.py",
            [
                "accepted 2",
                "A-001-first done ['read the task']",
                "A-002-second done ['read the task']",
            ],
        ),
        (
            "langgraph_worker.py",
            [
                "accepted 2",
                "A-001-first {'draft': 'a draft of A-001-first, reviewed'}",
                "A-002-second {'draft': 'a draft of A-002-second, reviewed'}",
            ],
        ),
    ],
)
def test_a_frameworks_agent_works_under_a_claim(
    example: str, expected: list[str], tmp_path: Path
) -> None:
    if not FRAMEWORKS.exists():
        pytest.fail("the frameworks are not here; to get them: make .servers/examples/.ready")
    about = distribution("genlock")._path  # type: ignore[attr-defined]
    (tmp_path / about.name).symlink_to(about)  # what version Genlock is
    env = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}", "TMPDIR": str(tmp_path)}
    assert lines_of(FRAMEWORKS, EXAMPLES / example, env=env) == expected
