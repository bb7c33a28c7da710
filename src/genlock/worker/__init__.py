"""The wrapper around an agent: it renews the lease, detects its loss in time, and then ends the
work.

It calls the coordinator's operations by name and depends only on the core, so it works the same
with a store in this process and with a remote service.
"""

# Imported on first use: every coordinator has the worker's methods, and most commands of the
# command line use none of them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from genlock.worker.grant import NotGranted, NothingReady, Previous
    from genlock.worker.kept_claim import ClaimLost, Loss
    from genlock.worker.pool import AsyncWorker, Totals, Worker
    from genlock.worker.work import AsyncWork, Work
del TYPE_CHECKING

__all__ = [
    "AsyncWork",
    "AsyncWorker",
    "ClaimLost",
    "Loss",
    "NotGranted",
    "NothingReady",
    "Previous",
    "Totals",
    "Work",
    "Worker",
]

_HOMES = {
    "AsyncWork": "work",
    "AsyncWorker": "pool",
    "ClaimLost": "kept_claim",
    "Loss": "kept_claim",
    "NotGranted": "grant",
    "NothingReady": "grant",
    "Previous": "grant",
    "Totals": "pool",
    "Work": "work",
    "Worker": "pool",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"genlock.worker.{home}"), name)
