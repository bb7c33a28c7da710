"""The scan of all logs at the end of a run: that it finds what no log may have, and that no service
escapes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize(
    ("leak", "says", "workers"),
    [
        ("key", "has a key", 2),
        pytest.param("header", "has an authorization", 0, marks=pytest.mark.slow),
        pytest.param("body", "has the planted", 0, marks=pytest.mark.slow),
        pytest.param("nothing", None, 2, marks=pytest.mark.slow),
    ],
)
def test_a_run_in_which_a_service_logs_a_secret_fails_although_all_its_tests_pass(
    leak: str, says: str | None, workers: int
) -> None:
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        str(workers),
        *plugins,
        "tests/service/leaking.py",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment |= {
        "LEAK": leak,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # the others take longer to start than all else does
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "2 passed" in ended.stdout, ended.stdout
    told = [
        line
        for line in ended.stdout.splitlines()
        if "a service has logged what no log may have" in line
    ]
    assert (ended.returncode, bool(told)) == ((0, False) if says is None else (1, True)), (
        ended.stdout
    )
    assert says is None or any(says in line for line in told)


def test_no_test_starts_a_service_whose_log_is_not_kept() -> None:
    allowed = {ROOT / "tests" / "logs.py", Path(__file__)}
    for path in (path for path in TESTS if path not in allowed):
        text = path.read_text(encoding="utf-8")
        builds = re.findall(
            r"^\s*from genlock\.service\.building import .*\bbuild\b", text, re.MULTILINE
        )
        assert not builds, f"{path}: take build from tests.logs, which keeps the log"
        for made in re.findall(r"\bApp\(Running.*|\bApp\(running,.*", text):
            assert "watch)" in made, f"{path}: give the App tests.logs.watch"
