"""What wraps an agent: it keeps the lease, notices its loss in time, and ends the work then.

It calls the coordinator's operations by name and rests on the core alone, so it works the same on a
store in this process and on a service elsewhere.
"""

# Imported when they are first used: every coordinator has the worker's methods, and most calls of
# the command line use none of them.
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
