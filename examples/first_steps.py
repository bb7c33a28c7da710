"""First steps with Genlock: one task, two agents, and a late result that does not overwrite the
good one."""

from __future__ import annotations

import tempfile
import time

import genlock

with (
    tempfile.TemporaryDirectory() as folder,
    genlock.connect(f"sqlite://{folder}/genlock.db", create=True) as fleet,
):
    fleet.add_tasks(
        tasks=[
            {"id": "A-001-core-framework"},
            {"id": "B-001-schema", "depends_on": ["A-001-core-framework"]},
        ]
    )

    # Alice's agent claims the task for one second, and then says nothing more.
    alice = fleet.claim_next(session_id="alice-1", agent_id="ada", lease_duration_seconds=1).claim
    assert alice is not None
    print(f"{alice.agent_id} holds {alice.task_id} at generation {alice.generation}")

    denied = fleet.claim_task(task_id=alice.task_id, session_id="bob-1", agent_id="ben")
    print(f"ben is told: {denied.reason}, {denied.current_holder} holds it")

    time.sleep(1.1)  # the lease runs out: whoever asks next takes over, at a higher generation
    bob = fleet.claim_next(session_id="bob-1", agent_id="ben").claim
    assert bob is not None
    print(f"{bob.agent_id} takes over {bob.task_id} at generation {bob.generation}")

    good = fleet.submit_result(
        task_id=bob.task_id,
        generation=bob.generation,
        session_id="bob-1",
        result_data={"by": "ben"},
    )
    late = fleet.submit_result(
        task_id=alice.task_id,
        generation=alice.generation,
        session_id="alice-1",
        result_data={"by": "ada"},
    )
    print(f"ben's result: {good.reason}")
    print(
        f"ada's result: {late.reason} ({alice.generation} < {late.current_generation}), kept: "
        f"{late.kept}"
    )

    print("ready now:", *(ready.task.id for ready in fleet.ready()))
