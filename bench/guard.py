"""How long the guard's hook takes: a real push's `update` hook, called as git calls it.

python -m bench.guard           against a store in a file, and against a service
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

import genlock
from bench.startup import compile_all

RUNS = 100
GOAL_MS = 300.0
TASK = "A-001-log-in"
_WHO = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "ann"), ("EMAIL", "ann@example.org"))
}


def main() -> None:
    compile_all()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {name: value for name, value in os.environ.items() if not name.startswith("GENLOCK_")}
        env |= _WHO | {"HOME": name, "GIT_CONFIG_GLOBAL": "/dev/null"}
        _run(folder, env, sys.executable, "-m", "genlock.cli", "init")
        url = f"sqlite://{folder}/.genlock/genlock.db"
        with genlock.connect(url) as fleet:
            fleet.add_tasks(tasks=[TASK])
            claim = fleet.claim_task(task_id=TASK, session_id="ann", agent_id="ann").require()
        bare, commit = _repository(folder, env)
        moved = (f"refs/heads/genlock/{TASK}/gen{claim.generation}", "0" * 40, commit)
        print(
            f"{'hook':28} {'p50':>8} {'p95':>8} {'cpu':>8}   of {RUNS} calls; goal: p95 < {GOAL_MS:.0f} ms"
        )
        _measure("python -c pass", bare, env, [sys.executable, "-c", "pass"])
        _install(folder, bare, env, url)
        _measure("store in a file", bare, env, [str(bare / "hooks" / "update"), *moved])
        _measure(
            "branch of no concern", bare, env,
            [str(bare / "hooks" / "update"), "refs/heads/try", "0" * 40, commit],
        )  # fmt: skip
        _through_service(folder, bare, env, moved)


def _through_service(
    folder: Path, bare: Path, env: Mapping[str, str], moved: tuple[str, str, str]
) -> None:
    command = [sys.executable, "-m", "genlock.cli", "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
        try:
            assert service.stdout is not None
            address = json.loads(service.stdout.readline())["url"]
            _install(folder, bare, env, address)
            _measure("service", bare, env, [str(bare / "hooks" / "update"), *moved])
        finally:
            service.terminate()


def _measure(what: str, bare: Path, env: Mapping[str, str], command: list[str]) -> None:
    times, cpu = [], []
    for number in range(RUNS + 5):
        begin, worked = time.perf_counter(), _cpu_seconds()
        _run(bare, env, *command)
        if number >= 5:
            times.append((time.perf_counter() - begin) * 1000)
            cpu.append((_cpu_seconds() - worked) * 1000)
    cuts = quantiles(times, n=20)
    print(f"{what:28} {cuts[9]:5.0f} ms {cuts[18]:5.0f} ms {median(cpu):5.0f} ms", flush=True)


def _cpu_seconds() -> float:
    """Of the processes that have ended. Unlike the time on the clock it hardly depends on what else
    the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _install(folder: Path, bare: Path, env: Mapping[str, str], url: str) -> None:
    words = ("guard", "install", str(bare), "--url", url)
    _run(folder, env, sys.executable, "-m", "genlock.cli", *words)


def _repository(folder: Path, env: Mapping[str, str]) -> tuple[Path, str]:
    bare, work = folder / "shared.git", folder / "work"
    _run(folder, env, "git", "init", "--quiet", "--bare", str(bare))
    _run(folder, env, "git", "clone", "--quiet", str(bare), str(work))
    _run(work, env, "git", "commit", "--quiet", "--allow-empty", "--message", "work")
    _run(work, env, "git", "push", "--quiet", "origin", "HEAD:refs/heads/base")
    return bare, _run(work, env, "git", "rev-parse", "HEAD").strip()


def _run(where: Path, env: Mapping[str, str], *command: str) -> str:
    done = subprocess.run(command, cwd=where, env=env, check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    main()
