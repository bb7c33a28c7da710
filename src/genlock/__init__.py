"""Genlock: one plan, many agents, one authoritative result."""

from genlock import aio as aio
from genlock import errors as errors
from genlock.coordinator import AsyncCoordinator, Coordinator
from genlock.core.results import ClaimResult, ReleaseResult, RenewalResult, SubmissionResult, TaskClaim, TaskState
from genlock.errors import GenlockError
from genlock.open import connect, open_store

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
    "TaskState",
    "__version__",
    "aio",
    "connect",
    "errors",
    "open_store",
]
