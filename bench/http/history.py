"""The history of one task among a million events, over HTTP."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from bench.http.load import request, send_all
from bench.http.serving import started
from bench.plans import ids_of, open_plan
from bench.report import Line, at_most, percentile, show
from genlock import Coordinator

TASKS = 20_000
RENEWALS = 48
"""Added, claimed, so often renewed: fifty events a task."""
ASKED = 200
_AT_ONCE = 500


def _build(path: Path) -> list[str]:
    """A store of a million events."""
    ids = ids_of(TASKS)
    fleet = open_plan(path, ids)
    for start in range(0, TASKS, _AT_ONCE):
        _renew(fleet, ids[start : start + _AT_ONCE])
    fleet.close()
    return ids


def _renew(fleet: Coordinator, ids: list[str]) -> None:
    fleet.batch_claim(task_ids=ids, agent_id="a", session_id="s")
    generations = dict.fromkeys(ids, 1)
    for _ in range(RENEWALS):
        fleet.batch_renew(generations=generations, session_id="s")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "plan.db"
        ids = _build(path)
        with started("service", f"sqlite://{path}") as server:
            wanted = ids[:: TASKS // ASKED]
            asked = [
                [request("GET", f"/v1/default/default/tasks/{task}/history") for task in wanted]
            ]
            measured = asyncio.run(send_all(server.port, asked, keep=True))
    renewals = {json.loads(body)[0]["renewals"] for body in measured.bodies}
    assert renewals == {RENEWALS}, renewals
    show(
        f"History of one task among {TASKS * (RENEWALS + 2):,} events",
        [
            at_most("p99", percentile(measured.latencies, 0.99) * 1000, 200, " ms"),
            Line("median", f"{percentile(measured.latencies, 0.5) * 1000:.2f} ms"),
        ],
    )
