"""What runs without the packages of an extra, and what to type where one is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from genlock.errors import StoreError
from genlock.extras import needs_extra

SERVER = ("httptools", "prometheus_client", "starlette", "structlog", "uvicorn", "uvloop")
WITHOUT_SERVER = f"""
import sys
for package in {SERVER!r}:
    sys.modules[package] = None
from genlock.cli.main import main
main()
"""


def genlock(folder: Path, *words: str) -> tuple[int, Any]:
    """Run a command where the packages of the server extra cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVER, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or done.stderr)


def test_the_command_line_works_without_the_packages_of_the_server_extra(tmp_path: Path) -> None:
    assert genlock(tmp_path, "init")[0] == 0
    assert genlock(tmp_path, "add", "A-001-first")[0] == 0
    code, granted = genlock(tmp_path, "next", "--agent", "ada", "--session", "s")
    assert (code, granted["task_id"]) == (0, "A-001-first")
    code, _ = genlock(tmp_path, "submit", "A-001-first", "-g", "1", "--session", "s", "--text", "x")
    assert code == 0


@pytest.mark.parametrize("words", [("serve", "--port", "0"), ("dev", "--port", "0", "--fresh")])
def test_a_service_without_its_packages_says_what_to_install(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    genlock(tmp_path, "init")
    code, answer = genlock(tmp_path, *words)
    assert code == 1
    assert "is not installed: pip install 'genlock[server]'" in answer["error"]["message"]


def test_an_import_error_of_another_package_is_not_taken_for_a_missing_extra() -> None:
    with (
        pytest.raises(ModuleNotFoundError, match="no_such_package"),
        needs_extra("redis", "redis", purpose="the driver", error=StoreError),
    ):
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401
