"""What may be done without asking: write down what is due, repeat what was cut off, empty the log. Nothing is ever removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from genlock.open import connect
from genlock.stores.sqlite.inspecting import checkpoint, log_bytes


def fix(url: str, path: Path, places: Sequence[tuple[str, str]]) -> list[str]:
    """Does it; what was done, in words."""
    done: list[str] = []
    with connect(url) as fleet:
        for tenant, project in places:
            swept = fleet.sweep(tenant_id=tenant, project_id=project)
            parts = {
                "claims expired": swept.expired,
                "claims orphaned": swept.orphaned,
                "claims marked as stale": swept.stale,
                "events from reactions that were cut off": swept.settled,
                "events past their retention dropped": swept.purged,
            }
            said = ", ".join(f"{number} {what}" for what, number in parts.items() if number)
            if said:
                done.append(f"swept {tenant}/{project}: {said}")
    log = log_bytes(path)
    if log and checkpoint(path):
        done.append(f"emptied the log: {log:,} bytes went into the file")
    return done
