"""What a Python programmer sees: signatures in `help()`, and types that a checker accepts."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.wire.operations import ROUTES

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("face", [Coordinator, AsyncCoordinator])
def test_signatures_show_the_answer_that_a_caller_gets(face: type[object]) -> None:
    shown = {
        route.name: str(inspect.signature(getattr(face, route.name)).return_annotation)
        for route in ROUTES
    }
    assert shown["claim_task"] == "ClaimResult"
    assert shown["list_agents"] == "tuple[AgentInfo, ...]"
    assert not [name for name, answer in shown.items() if "Script" in answer]


@pytest.mark.slow
def test_the_code_of_the_readme_passes_mypy_strict(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    code = tmp_path / "readme.py"
    code.write_text("\n".join(blocks))
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
