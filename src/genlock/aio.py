"""Genlock in an event loop: `fleet = genlock.aio.connect(…)`, then `await fleet.claim_task(…)`."""

from genlock.coordinator import AsyncCoordinator as AsyncCoordinator
from genlock.open import connect_async as connect

__all__ = ["AsyncCoordinator", "connect"]
