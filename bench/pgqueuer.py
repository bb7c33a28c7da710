"""Claim and complete, beside pgqueuer on the same server with the same settings: one process, then
two.

pgqueuer is the fastest queue on PostgreSQL that we know. It takes jobs in batches and fences
nothing; both make every step durable. It runs in an environment of its own (`make bench-stores`
makes it).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.plans import ids_of
from bench.postgres import PostgresDatabases, postgres_databases
from bench.report import Line, at_least, show
from bench.stores import prepare

TASKS = 20_480
ROUNDS = 3
HERE = Path(__file__).parent
PEER = HERE.parent / ".servers" / "pgqueuer" / "bin" / "python"
_PEERS_WORKER = str(HERE / "peers" / "pgqueuer_worker.py")


def rate_of(commands: Sequence[Sequence[str]]) -> float:
    """Starts workers, lets them go together, and adds up what they have done; by the slowest's
    time."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    workers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=HERE.parent,
        )
        for command in commands
    ]
    said = []
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == "ready"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout is not None
        done, seconds = worker.stdout.readline().split()
        said.append((int(done), float(seconds)))
        worker.communicate()
        assert worker.returncode == 0
    assert sum(done for done, _ in said) == TASKS, said
    return TASKS / max(seconds for _, seconds in said)


def ours(databases: PostgresDatabases, processes: int) -> float:
    with databases.copy("tasks") as url:
        program = [sys.executable, "-m", "bench.peers.genlock_worker", url]
        return rate_of(
            [[*program, str(share), str(processes), str(TASKS)] for share in range(processes)]
        )


def theirs(databases: PostgresDatabases, processes: int) -> float:
    with databases.copy("jobs") as url:
        return rate_of([[str(PEER), _PEERS_WORKER, "drain", url]] * processes)


def main() -> None:
    if not PEER.exists():
        raise SystemExit(
            "pgqueuer is not there: run `make bench-stores`, which makes its environment"
        )
    with postgres_databases() as databases:
        prepare(databases, databases.create("tasks"), ids_of(TASKS))
        jobs = databases.create("jobs")
        for step in (["install", jobs], ["fill", jobs, str(TASKS)]):
            subprocess.run([str(PEER), _PEERS_WORKER, *step], check=True)
        lines = []
        for processes in (1, 2):
            rates = [
                (ours(databases, processes), theirs(databases, processes)) for _ in range(ROUNDS)
            ]
            best, peer = max(rate for rate, _ in rates), max(rate for _, rate in rates)
            name = "one process" if processes == 1 else "two processes"
            lines += [
                Line(f"{name}: Genlock, cycles/s", f"{best:,.0f}"),
                Line(f"{name}: pgqueuer, cycles/s", f"{peer:,.0f}"),
                at_least(f"{name}: of pgqueuer", best / peer, 1.0),
            ]
        show("PostgreSQL: claim and complete, beside pgqueuer", lines)


if __name__ == "__main__":
    main()
