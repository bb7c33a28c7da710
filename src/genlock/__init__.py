"""Genlock: one plan, many agents, one authoritative result."""

# A name is imported when it is first used: `genlock version` and a program that only wants an
# exception pay for nothing else. `typing` itself would be a tenth of what `import genlock` may
# cost, hence no import of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from genlock import aio as aio
    from genlock import errors as errors
    from genlock.coordinator import AsyncCoordinator, Coordinator
    from genlock.core.ids import TaskId as TaskIdentifier
    from genlock.core.ids import parse_task_id
    from genlock.core.results import (
        ClaimResult,
        ReleaseResult,
        RenewalResult,
        SubmissionResult,
        TaskClaim,
        TaskState,
    )
    from genlock.errors import GenlockError
    from genlock.open import connect, open_store
del TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "AsyncCoordinator",
    "ClaimResult",
    "Coordinator",
    "GenlockError",
    "ReleaseResult",
    "RenewalResult",
    "SubmissionResult",
    "TaskClaim",
    "TaskIdentifier",
    "TaskState",
    "__version__",
    "aio",
    "connect",
    "errors",
    "open_store",
    "parse_task_id",
]

_HOMES = {
    "AsyncCoordinator": "coordinator",
    "ClaimResult": "core.results",
    "Coordinator": "coordinator",
    "GenlockError": "errors",
    "ReleaseResult": "core.results",
    "RenewalResult": "core.results",
    "SubmissionResult": "core.results",
    "TaskClaim": "core.results",
    "TaskIdentifier": "core.ids",
    "TaskState": "core.results",
    "connect": "open",
    "open_store": "open",
    "parse_task_id": "core.ids",
}
"""The module that defines each exported name. Two exports are modules themselves and not listed."""


_NAMES_THERE = {"TaskIdentifier": "TaskId"}
"""GC's name first."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _HOMES.get(name)
    value = (
        import_module(f"genlock.{name}")
        if home is None
        else getattr(import_module(f"genlock.{home}"), _NAMES_THERE.get(name, name))
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
