"""A call pays for itself alone: what each imports. How long it takes is measured by
bench/startup.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.console import environment, run

PROGRAM = """
import atexit, sys
from genlock.cli.main import main

atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main(sys.argv[1:])
"""

NEVER_TO_READ = {
    "asyncio", "concurrent.futures", "dataclasses", "hashlib", "json", "logging", "random", "rich", "ruamel", "secrets", "socket", "ssl",
    "subprocess", "tempfile", "tomllib",
}  # fmt: skip


def imported(folder: Path, *arguments: str) -> set[str]:
    """The modules that are there when the command ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def test_version_needs_next_to_nothing(tmp_path: Path) -> None:
    found = imported(tmp_path, "version")
    assert {name for name in found if name.startswith("genlock")} == {
        "genlock",
        "genlock.cli",
        "genlock.cli.main",
    }
    assert not found & {"click", "msgspec", "typing", "re", "enum", "pathlib"}


def test_ready_imports_nothing_heavy_that_it_does_not_use(tmp_path: Path) -> None:
    run("init", cwd=tmp_path)
    run("add", "task", cwd=tmp_path)
    found = imported(tmp_path, "ready", "--json")
    assert {"click", "msgspec", "apsw"} <= found
    assert not found & NEVER_TO_READ


def test_the_library_imports_no_event_loop_before_one_is_used(tmp_path: Path) -> None:
    program = f"""
import sys
import genlock
assert "genlock.coordinator" not in sys.modules
with genlock.connect("sqlite://{tmp_path}/x.db", create=True, session_id="s", agent_id="a") as fleet:
    fleet.add_tasks(tasks=["task"])
    assert fleet.claim_task(task_id="task").success
assert "asyncio" not in sys.modules
assert genlock.aio.connect
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_package_offers_is_found_by_name_and_nothing_else_is() -> None:
    import genlock

    assert set(genlock.__all__) <= set(dir(genlock))
    for name in genlock.__all__:
        assert getattr(genlock, name) is not None
    with pytest.raises(AttributeError, match="module 'genlock' has no attribute 'nonsense'"):
        genlock.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["version", "-q"], "0.1.0\n"),
        (["--version", "--quiet"], "0.1.0\n"),
        (["version", "--json"], None),
        (["version"], None),
    ],
)
def test_the_version_is_told_in_every_style(arguments: list[str], answer: str | None) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.err) == (0, "")
    if answer is None:
        assert ran.json() == {
            "version": "0.1.0",
            "python": ".".join(map(str, sys.version_info[:3])),
        }
    else:
        assert ran.out == answer


def test_a_call_that_is_answered_early_is_answered_like_any_other() -> None:
    ran = run("version", "--nonsense")
    assert (ran.code, ran.out) == (2, "")
    assert run("version", "--help").out.startswith(
        "Usage: genlock version [OPTIONS]\n\n  Print the version.\n"
    )
