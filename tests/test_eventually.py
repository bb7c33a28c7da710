"""The loop that polls, and that no other test sleeps."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually, eventually_in_loop

TESTS = Path(__file__).parent

MAY_SLEEP = {
    "eventually.py": "the helper",
    "browser/busy.py": "a fleet at an even pace, in a process of its own",
    "engine/test_limits_across_lanes.py": "a store that answers slowly",
    "processes/coordinator.py": "a worker that takes too long, in a process without this package",
    "servers/proxy.py": "a network that is slow",
    "stores/test_contract_catches.py": "stores that answer slowly, and one that sleeps too long",
    "folder/test_spool.py": "a script that works for so long",
    "worker/fake_agent.py": "an agent that works for so long, in a process of its own",
    "worker/test_agent_fleet.py": "two starts that are to be so far apart",
    "worker/test_complaints.py": "workers and outages that last for so long",
    "worker/test_run.py": "a coordinator that is away for longer than one call tries",
    "worker/test_work.py": "a body that blocks the loop, or waits until it is cancelled",
    "stores/test_outages.py": "a server is away for exactly so long",
}
"""Files that call time.sleep or asyncio.sleep for longer than one turn of the loop, and why."""


def test_eventually_returns_the_first_true_answer() -> None:
    answers = iter([0, "", None, 7, 8])
    assert eventually(lambda: next(answers), "a seven") == 7


def test_eventually_fails_with_what_it_waited_for_and_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"waited 0.02 s for: the end; the last answer was 0"):
        eventually(lambda: 0, "the end", seconds=0.02)


def test_eventually_retries_after_the_errors_it_is_given_and_no_others() -> None:
    answers = iter([KeyError("no"), ValueError("yes")])

    def look() -> bool:
        raise next(answers)

    with pytest.raises(ValueError, match="yes"):
        eventually(look, "an answer", retry_on=(KeyError,))


def test_eventually_lets_the_event_loop_go_on() -> None:
    async def main() -> bool:
        done: list[bool] = []
        asyncio.get_running_loop().call_later(0.01, done.append, True)
        await eventually_in_loop(lambda: done, "a callback")
        return done == [True]

    assert asyncio.run(main())


def sleeps(tree: ast.AST) -> Iterator[int]:
    """The lines of calls of time.sleep and asyncio.sleep, but for asyncio.sleep(0)."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"),
                args=[ast.Constant(value=0)],
            ):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep")):
                yield node.lineno
            case ast.ImportFrom(module="time" | "asyncio", names=names) if any(
                alias.name == "sleep" for alias in names
            ):
                yield node.lineno


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("time.sleep(0)", [1]),
        ("async def f():\n    await asyncio.sleep(0.1)", [2]),
        ("async def f():\n    await asyncio.sleep(0)", []),
        ("from time import sleep", [1]),
    ],
)
def test_sleeps_are_found(text: str, lines: list[int]) -> None:
    assert list(sleeps(ast.parse(text))) == lines


def test_tests_do_not_sleep_but_wait_with_eventually() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in sorted(TESTS.rglob("*.py"))
        if (lines := list(sleeps(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert {file: lines for file, lines in found.items() if file not in MAY_SLEEP} == {}
    assert sorted(MAY_SLEEP.keys() - found) == [], "no longer needed"
