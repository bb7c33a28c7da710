"""`on_complete`: the user's command that runs once a result is accepted, such as `gh pr create`.

It is split into words as a shell would do it, and no shell reads it. What it should know stands in
its environment, never in its line: names of tasks and branches are foreign text. It runs outside of
any container, so not in the worktree either, where an agent has written what git and other programs
take for settings. What it does changes nothing about the acceptance.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

LONGEST_SECONDS: Final = 600.0
_LONGEST_TEXT: Final = 300


class Hooked(NamedTuple):
    """What became of it."""

    ok: bool
    text: str
    """The end of what it wrote, or why it failed."""


def run_on_complete(command: str, env: Mapping[str, str]) -> Hooked:
    """Runs it, and waits for its end."""
    argv = shlex.split(command)
    if not argv:
        return Hooked(True, "")
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except OSError as error:
        return Hooked(False, f"{argv[0]} could not be started: {error.strerror or error}")
    except subprocess.TimeoutExpired:
        return Hooked(False, f"{argv[0]} was ended after {LONGEST_SECONDS:.0f} s")
    said = done.stdout.decode(errors="replace").strip()[-_LONGEST_TEXT:]
    if done.returncode == 0:
        return Hooked(True, said)
    return Hooked(False, f"{argv[0]} failed, exit status {done.returncode}: {said}".rstrip(": "))
