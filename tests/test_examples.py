"""The examples run as a newcomer runs them, and show what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_first_steps_show_a_takeover_and_a_stale_result(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "GENLOCK_URL"} | {"TMPDIR": str(tmp_path)}
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
