"""Single claims beside a bare echo of the same bodies; batches beside the same batches in process;
submissions in batches."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from bench.claims import CALLERS, _prepare
from bench.floor import copy_of
from bench.http.load import Measured, request, send_all
from bench.http.serving import Server, started
from bench.plans import ids_of
from bench.report import Line, at_least, at_most, percentile, show

CONNECTIONS, FEWER = CALLERS, 64
"""As many as call at once in process; and half as many, whose commits are half as large."""
TASKS = 12_800
BATCH, BATCH_CONNECTIONS, SUBMIT_CONNECTIONS = 256, 8, 2
ROUNDS = 5
BASE = "/v1/default/default"


def _claims(ids: list[str], connections: int) -> list[list[bytes]]:
    return [
        [
            request(
                "POST",
                f"{BASE}/tasks/{name}/claim",
                json.dumps({"agent_id": f"agent-{n}", "session_id": f"session-{n}"}).encode(),
            )
            for name in ids[n::connections]
        ]
        for n in range(connections)
    ]


def _in_batches(
    ids: list[str], verb: str, body: object, connections: int = BATCH_CONNECTIONS
) -> list[list[bytes]]:
    chunks = [
        (ids[at : at + BATCH], at // BATCH % BATCH_CONNECTIONS) for at in range(0, len(ids), BATCH)
    ]
    return [
        [
            request("POST", f"{BASE}/batch/{verb}", json.dumps(body(chunk, session)).encode())  # type: ignore[operator]
            for chunk, session in chunks[n::connections]
        ]
        for n in range(connections)
    ]


def _claim_body(chunk: list[str], n: int) -> dict[str, object]:
    return {"task_ids": chunk, "agent_id": f"agent-{n}", "session_id": f"session-{n}"}


def _submit_body(chunk: list[str], n: int) -> dict[str, object]:
    data = {"summary": "done, with tests", "files": ["src/a.py", "tests/test_a.py"]}
    return {
        "results": [{"task_id": name, "generation": 1, "result_data": data} for name in chunk],
        "session_id": f"session-{n}",
    }


def _run(server: Server, requests: list[list[bytes]]) -> tuple[Measured, dict[str, float]]:
    before = server.usage()
    measured = asyncio.run(send_all(server.port, requests))
    after = server.usage()
    return measured, {name: after[name] - before.get(name, 0.0) for name in after}


def _shares(used: dict[str, float], claims: int) -> list[Line]:
    """Where the server's time went: by thread."""
    shown = {"cpu MainThread": "event loop", "cpu": "in all"}
    return [
        Line(
            f"  CPU a claim, {shown.get(name, name.removeprefix('cpu '))}",
            f"{seconds / claims * 1e6:.1f} µs",
        )
        for name, seconds in sorted(used.items(), key=lambda entry: -entry[1])
        if name.startswith("cpu") and seconds / claims > 5e-7
    ]


def singles(
    before: Path, folder: Path, ids: list[str], connections: int, target: float | None
) -> list[Line]:
    """Rounds of the echo and of the service in turn."""
    echoes, claims, latencies = [], [], []
    used: dict[str, float] = {}
    answer = folder / "answer.json"
    for at in range(ROUNDS):
        with started(
            "service", f"sqlite://{copy_of(before, folder / f'single-{connections}-{at}.db')}"
        ) as server:
            if not answer.exists():
                one = asyncio.run(
                    send_all(
                        server.port,
                        [
                            [
                                request(
                                    "POST",
                                    f"{BASE}/tasks/{ids[-1]}/claim",
                                    b'{"agent_id":"agent-0","session_id":"session-0"}',
                                )
                            ]
                        ],
                        keep=True,
                    )
                )
                answer.write_bytes(one.bodies[0])
            measured, used = _run(server, _claims(ids[:TASKS], connections))
            claims.append(measured.rate())
            latencies += measured.latencies
        with started("echo", str(answer)) as server:
            echoes.append(_run(server, _claims(ids[:TASKS], connections))[0].rate())
    ratio = max(claims) / max(echoes)
    return [
        Line("single claims/s", f"{max(claims):,.0f}"),
        Line("bare echo of the same bodies, requests/s", f"{max(echoes):,.0f}"),
        Line("single: of the echo", f"{ratio:.2f}")
        if target is None
        else at_least("single: of the echo", ratio, target),
        at_most("single: p99", percentile(latencies, 0.99) * 1000, 50, " ms"),
        *_shares(used, TASKS),
    ]


def batches(before: Path, folder: Path, ids: list[str]) -> list[Line]:
    """The same batches in process and over HTTP, then submissions."""
    inside, outside, submitted, latencies = [], [], [], []
    used: dict[str, float] = {}
    for at in range(ROUNDS):
        inside.append(in_process(copy_of(before, folder / f"inside-{at}.db"), TASKS))
        with started("service", f"sqlite://{copy_of(before, folder / f'batch-{at}.db')}") as server:
            measured, used = _run(server, _in_batches(ids[:TASKS], "claim", _claim_body))
            outside.append(measured.rate(BATCH))
            measured, _ = _run(
                server, _in_batches(ids[:TASKS], "submit", _submit_body, SUBMIT_CONNECTIONS)
            )
            submitted.append(measured.rate(BATCH))
            latencies += measured.latencies
    return [
        Line(f"batches of {BATCH}: claims/s (goal 50,000)", f"{max(outside):,.0f}"),
        Line(f"batches of {BATCH} in process, claims/s", f"{max(inside):,.0f}"),
        at_least("batches: of the same in process", max(outside) / max(inside), 0.7),
        *_shares(used, TASKS),
        Line(
            f"submissions in batches of {BATCH}, a second",
            f"{max(submitted):,.0f}",
            "≥ 10,000",
            max(submitted) >= 10_000,
        ),
        at_most("submissions: p99 of a batch", percentile(latencies, 0.99) * 1000, 100, " ms"),
    ]


def in_process(path: Path, tasks: int) -> float:
    """The rate of the same batches without HTTP, in a process on the server's core."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "bench.http.inside", str(path), str(tasks)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    ids = ids_of(TASKS + 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = _prepare(folder / "before.db", ids)
        for connections, target in ((CONNECTIONS, 0.5), (FEWER, None)):
            show(
                f"Single claims over HTTP, {connections} connections",
                singles(before, folder, ids, connections, target),
            )
        show(f"Batches over HTTP, {BATCH_CONNECTIONS} connections", batches(before, folder, ids))
