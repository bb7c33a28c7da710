"""Eight claimers and one task, five hundred times over: how many win, and did they truly race?

Each claimer has a session of its own. A round overlapped if at least two claimers were inside their
claim call at the same time, by the system's monotonic clock, which all processes share. By library
a claimer is a process that stays; by command line every claim is a fresh process that runs the verb
`claim` from its first argument to its exit code. Such processes are forked from one that has
imported the command line and opened nothing: they start at the same time, where the importing would
have spread them.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import genlock
from bench.plans import ids_of, open_plan
from bench.report import Line, show
from bench.startup import call, compile_all

CLAIMERS = 8
ROUNDS = 500
COMMAND_ROUNDS = 25
"""Rounds of whole commands, ours and gptodo's: each takes eight starts of an interpreter."""

_TRY = struct.Struct("qq?")


class Try(NamedTuple):
    """One claim: when it began and ended, and whether it was granted."""

    begin: int
    end: int
    won: bool


def overlapped(round: list[Try]) -> bool:
    """Did a second one begin before the first had ended?"""
    ordered = sorted(round)
    return any(
        later.begin < earlier.end
        for at, earlier in enumerate(ordered)
        for later in ordered[at + 1 :]
    )


class Claimer:
    """A forked process that waits for a sign for each try."""

    def __init__(self, work: Callable[[int, int], None]) -> None:
        sign, self.sign = os.pipe()
        self.told, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.sign)
                os.close(self.told)
                work(sign, told)
            finally:
                os._exit(0)
        os.close(sign)
        os.close(told)

    def go(self) -> None:
        os.write(self.sign, b"!")

    def hear(self) -> Try:
        return Try(*_TRY.unpack(os.read(self.told, _TRY.size)))

    def end(self) -> None:
        os.close(self.sign)
        os.close(self.told)
        os.waitpid(self.pid, 0)


def by_library(path: Path, tasks: list[str]) -> Iterator[list[Try]]:
    """Eight processes that stay, each with its own coordinator."""

    def work(number: int) -> Callable[[int, int], None]:
        def claim_all(sign: int, told: int) -> None:
            fleet = genlock.connect(
                f"sqlite://{path}",
                create=True,
                session_id=f"session-{number}",
                agent_id=f"agent-{number}",
                deadline_seconds=60,
            )
            os.write(told, _TRY.pack(0, 0, True))
            for task in tasks:
                os.read(sign, 1)
                begin = time.monotonic_ns()
                won = fleet.claim_task(task_id=task).success
                os.write(told, _TRY.pack(begin, time.monotonic_ns(), won))
            os.read(sign, 1)  # until all have tried: a claim whose process is gone is anybody's
            fleet.close()

        return claim_all

    crew = [Claimer(work(number)) for number in range(CLAIMERS)]
    for claimer in crew:
        claimer.hear()  # it is connected
    for _ in tasks:
        for claimer in crew:
            claimer.go()
        yield [claimer.hear() for claimer in crew]
    for claimer in crew:
        claimer.go()
        claimer.end()


def by_command_line(path: Path, tasks: list[str]) -> Iterator[list[Try]]:
    """Eight fresh processes a round, each with the arguments of a command."""
    import_module("genlock.cli.open_fleet")
    import_module("genlock.cli.commands.claims")
    import_module("genlock.stores.sqlite")
    from genlock.cli.group import run

    def work(task: str, number: int) -> Callable[[int, int], None]:
        names = ["--session", f"session-{number}", "--agent", f"agent-{number}"]

        def claim(sign: int, told: int) -> None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            os.read(sign, 1)
            begin = time.monotonic_ns()
            code = run(["claim", task, "--url", f"sqlite://{path}", "--json", *names])
            os.write(told, _TRY.pack(begin, time.monotonic_ns(), code == 0))
            assert code in (0, 5)

        return claim

    for task in tasks:
        crew = [Claimer(work(task, number)) for number in range(CLAIMERS)]
        for claimer in crew:
            claimer.go()
        yield [claimer.hear() for claimer in crew]
        for claimer in crew:
            claimer.end()


def by_commands(
    commands: Callable[[str, int], list[str]], folder: Path, tasks: list[str]
) -> Iterator[int]:
    """Whole commands, started together; how many said that they had won."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("GENLOCK_")
    } | {"TASKS_REPO_ROOT": str(folder)}
    for task in tasks:
        crew = [
            subprocess.Popen(
                commands(task, number),
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for number in range(CLAIMERS)
        ]
        yield sum(bool(json.loads(process.communicate()[0])["success"]) for process in crew)


@contextmanager
def plan(tasks: list[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "plan.db"
        open_plan(path, tasks).close()
        yield path


def lines_of(what: str, rounds: list[list[Try]]) -> list[Line]:
    winners = Counter(sum(one.won for one in round) for round in rounds)
    together = sum(map(overlapped, rounds)) / len(rounds)
    return [
        exactly_one(f"{what}: {len(rounds)} rounds, winners a round", winners),
        Line(f"{what}: rounds that truly overlapped", f"{together:.1%}", "≥ 90 %", together >= 0.9),
    ]


def exactly_one(what: str, winners: Counter[int]) -> Line:
    shown = ", ".join(f"{number} in {rounds}" for number, rounds in sorted(winners.items()))
    return Line(what, shown if set(winners) != {1} else "1", "1", set(winners) == {1})


def main() -> None:
    compile_all()
    tasks = ids_of(ROUNDS)
    with plan(tasks) as path:
        lines = lines_of("library", list(by_library(path, tasks)))
    with plan(tasks) as path:
        lines += lines_of("command line", list(by_command_line(path, tasks)))
    tasks = tasks[:COMMAND_ROUNDS]
    with plan(tasks) as path:

        def ours(task: str, number: int) -> list[str]:
            return call(
                "claim",
                task,
                "--url",
                f"sqlite://{path}",
                "--session",
                f"session-{number}",
                "--json",
            )

        winners = Counter(by_commands(ours, path.parent, tasks))
        lines.append(
            exactly_one(
                f"genlock claim, started whole: {len(tasks)} rounds, winners a round", winners
            )
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tasks").mkdir()
        for task in tasks:
            (folder / "tasks" / f"{task}.md").write_text(
                "---\nstate: backlog\ncreated: 2026-01-01T00:00:00+00:00\n---\n", encoding="utf-8"
            )
        gptodo = str(Path(sys.executable).with_name("gptodo"))
        winners = Counter(
            by_commands(
                lambda task, number: [gptodo, "lock", task, "-w", f"w{number}", "--json"],
                folder,
                tasks,
            )
        )
        lines.append(
            exactly_one(
                f"gptodo lock, started whole: {len(tasks)} rounds, winners a round", winners
            )
        )
    show(f"{CLAIMERS} claimers, one task, again and again", lines)
    if not all(line.met for line in lines if not line.what.startswith("gptodo")):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
