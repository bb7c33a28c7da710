"""`on_complete`: the user's command that runs once a result is accepted, such as `gh pr create`.

The command is split into words like in a shell, but no shell runs it. Its inputs are in its
environment, never in its command line: names of tasks and branches are untrusted text. It runs
outside of any container, and therefore not in the worktree, where an agent may have written files
that git and other programs use as settings. Its outcome does not affect the acceptance.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

LONGEST_SECONDS: Final = 600.0
_LONGEST_TEXT: Final = 300


class Hooked(NamedTuple):
    """The outcome of the command."""

    ok: bool
    text: str
    """The end of its output, or why it failed."""


def run_on_complete(command: str, env: Mapping[str, str]) -> Hooked:
    """Runs the command, and waits for its end."""
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
