"""Failpoints kill where and when they are told, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

CODE = """if True:
    from genlock.failpoints import hit
    for number in range(5):
        hit("one")
        hit("two")
        print(number, flush=True)
"""


@pytest.mark.parametrize(
    ("setting", "reached", "status"),
    [
        (None, 5, 0),
        ("", 5, 0),
        ("elsewhere", 5, 0),
        ("one", 0, -signal.SIGKILL),
        ("two:1", 0, -signal.SIGKILL),
        ("two:4", 3, -signal.SIGKILL),
        ("one:6", 5, 0),
    ],
)
def test_a_process_is_killed_at_the_named_hit(
    setting: str | None, reached: int, status: int
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GENLOCK_FAILPOINT"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | (
        {} if setting is None else {"GENLOCK_FAILPOINT": setting}
    )
    done = subprocess.run(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True, env=environment, timeout=60
    )
    assert (len(done.stdout.split()), done.returncode) == (reached, status)
