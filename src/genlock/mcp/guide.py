"""The instructions for a model about working with Genlock: sent once, when it connects, and as a
prompt."""

from __future__ import annotations

from typing import Final

INSTRUCTIONS: Final = """\
Genlock coordinates several agents that work on one plan of tasks. Only one agent at a time has \
the right to a task, and only its result counts.

1. claim (task="next") gives you a task, its instructions and a generation, which is your fencing \
token. Do not work on a task that you have not claimed.
2. Do what the instructions say. progress renews your claim and checks that it is still yours; the \
answer of claim says whether you need it.
3. submit with task, generation and result completes the task. If you cannot finish it, release it.
4. claim the next one, until claim says that the plan is finished.

An answer that begins with a word in capitals, such as DENIED_BLOCKED or STALE_GENERATION, says \
why something was refused and what to do. Never invent a generation and never look one up: it \
comes from your own claim. If a claim is lost, stop working on that task. Calls may be repeated."""
"""At most 2,000 characters: clients truncate longer texts."""

_WORK: Final = """\
Work on the plan with the tools of genlock, one task at a time:

1. Call claim with task="next"{track} and wait_seconds=45.
2. Read the instructions in the answer and do the work. Keep to this one task.
3. Call submit with the task, the generation that claim answered, and a result: what you did, and \
what an agent that builds on it must know. If you cannot do it, call release with failed=true. If \
it is too large, call spawn with its parts.
4. Go on with 1. Stop when claim says that the plan is finished or that a person is needed.

If an answer says that the claim is lost, drop the task: another agent has it. If claim says that \
you hold a task already, finish that one first."""


def work_prompt(track: str = "") -> str:
    """Returns the prompt `work`."""
    return _WORK.format(track=f", track={track!r}" if track else "")
