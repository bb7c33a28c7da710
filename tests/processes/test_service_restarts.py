"""A service that is killed and started again, as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WORKER = """
import os, sys
from datetime import UTC, datetime, timedelta
import genlock
from genlock.testing.clock import ManualClock

url, ago = sys.argv[1:]
clock = ManualClock(datetime.now(UTC) - timedelta(seconds=float(ago)))
fleet = genlock.connect(url, create=True, clock=clock, service=True, process=None)
if sys.argv[2] != "0":
    fleet.add_tasks(tasks=["T", "U"])
    for task in ("T", "U"):
        assert fleet.claim_task(task_id=task, agent_id="alice", session_id="s-alice", lease_duration_seconds=30).success
    os.kill(os.getpid(), 9)
print(fleet.claim_task(task_id="T", agent_id="bob", session_id="s-bob").reason)
print(fleet.renew_lease(task_id="T", expected_generation=1, session_id="s-alice").reason)
clock.advance(13)
print(fleet.claim_task(task_id="T", agent_id="bob", session_id="s-bob").reason)
print(fleet.claim_task(task_id="U", agent_id="bob", session_id="s-bob").claim.generation)
"""


def test_a_service_that_is_killed_and_started_again_spares_its_fleet(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'killed.db'}"

    def process(ago: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WORKER, url, str(ago)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert process(1000).returncode == -9
    second = process(0)
    assert second.returncode == 0, second.stderr
    assert second.stdout.split() == ["DENIED_ACTIVE_CLAIM", "RENEWED", "DENIED_ACTIVE_CLAIM", "2"]
