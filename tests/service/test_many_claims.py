"""Very many claims held at once by one tenant: they are claimed, renewed and submitted through the
service, and its memory stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

import genlock
from genlock.engine.replay_check import check
from tests.processes.crew import Member
from tests.service import holding
from tests.service.process import make_store, serve
from tests.service.usage import usage_of

STEPS = ("claimed", "renewed in batches", "renewed one by one", "submitted in batches")


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_claims_of_one_tenant_are_held_renewed_and_submitted(count: int, tmp_path: Path) -> None:
    store = make_store(tmp_path)
    with genlock.connect(store, tenant_id="big") as fleet:
        fleet.set_tenant(profile="enterprise", limits={"max_concurrent_claims": 20_000})
        fleet.add_tasks(tasks=[f"b{number}" for number in range(count)])
        with (
            serve(tmp_path, "--trust-local", "--log-level", "warning", url=store) as service,
            Member(Path(holding.__file__)) as holder,
        ):
            began = usage_of(service.process.pid)
            holder.tell(port=service.port, count=count)
            for step in STEPS:
                answer = holder.expect(fact=step)
                print(
                    f"{count:,} {step}: {count / answer['seconds']:,.0f}/s, p99 "
                    f"{answer['p99']:.0f} ms"
                )
                assert answer["said"] == count
                if step != STEPS[-1]:
                    held = [
                        len(fleet.get_active_claims_for_session(session_id=f"s{number}"))
                        for number in range(count // holding.BATCH)
                    ]
                    assert held == [holding.BATCH] * len(held)
                holder.tell(do="go on")
            used = usage_of(service.process.pid)
            print(
                f"the service used {used.cpu_seconds - began.cpu_seconds:.1f} s; "
                f"{began.megabytes:.0f} MB became {used.megabytes:.0f}"
            )
            assert used.megabytes - began.megabytes < 200
            assert service.end() == 0
        assert sum(track.completed for track in fleet.track_progress().values()) == count
        assert check(fleet.engine.store) == []
