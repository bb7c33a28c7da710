"""A claim in a keeper, for its holder: is it still ours, and if not, why not?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum

from genlock.core.results import TaskClaim
from genlock.errors import GenlockError
from genlock.worker import schedule


class Loss(StrEnum):
    """Why a claim is lost."""

    OUTAGE = "outage"
    """It could not be renewed in time. Perhaps no other holder has taken over yet."""
    TAKEN = "taken"
    """The coordinator has said that the claim is no longer this session's."""


class ClaimLost(GenlockError):
    """The claim is lost: stop working on the task. `reason` says how it was lost."""

    def __init__(self, task_id: str, generation: int, reason: Loss) -> None:
        self.task_id = task_id
        self.generation = generation
        self.reason = reason
        super().__init__(
            f"the claim of {task_id} at generation {generation} is lost: {_SENTENCES[reason]}"
        )

    def __reduce__(self) -> tuple[type[ClaimLost], tuple[str, int, Loss]]:
        """So that it can be sent between processes."""
        return type(self), (self.task_id, self.generation, self.reason)


_SENTENCES = {
    Loss.OUTAGE: "its lease could not be renewed in time",
    Loss.TAKEN: "it was taken over, taken away or ended",
}


class KeptClaim:
    """One claim in a keeper's care. All members may be used from any thread."""

    def __init__(
        self,
        claim: TaskClaim,
        *,
        sent: float,
        due: float,
        lease_seconds: float | None = None,
        on_lost: Callable[[KeptClaim], object] | None = None,
        on_renewed: Callable[[KeptClaim], object] | None = None,
    ) -> None:
        self.claim = claim
        self.task_id = claim.task_id
        self.generation = claim.generation
        self.session_id = claim.session_id
        self.scope = (claim.tenant_id, claim.project_id)
        self.lease_seconds = claim.lease_seconds
        self.leased = claim.expires_at is not None
        """Does it expire? If not, it is renewed as if it did, so that it gets a lease soon after a
        policy change gives leases to claims."""
        self.wanted_seconds = None if lease_seconds == claim.lease_seconds else lease_seconds
        """The length that the next renewal asks for, if it differs from the present one."""
        self.lost = threading.Event()
        """Set when the claim is lost, and never cleared."""
        self.reason: Loss | None = None
        self.on_lost = on_lost
        self.on_renewed = on_renewed
        self.sent = sent
        """When the request was sent from which the lease is counted."""
        self.due = due
        """When the next renewal is due."""
        self.attempts = 0
        """The number of consecutive failed renewals."""
        self.ending = 0
        """How many submissions or releases are in progress: a renewal overtaken by one of them is
        refused, which is not a loss."""
        self.dropped = False
        """The claim is not in use any more. This is a flag, because a garbage collector sets it,
        which must not take a lock."""

    @property
    def trusted_until(self) -> float:
        """Until when the claim can be relied on without another renewal, by `schedule.now`."""
        return schedule.trusted_until(self.sent, self.lease_seconds, leased=self.leased)

    @property
    def is_lost(self) -> bool:
        """Is it lost? True also before the keeper has detected it, after a stopped process
        continued or a machine woke up."""
        return self.lost.is_set() or (not self.dropped and schedule.now() >= self.trusted_until)

    def check(self) -> None:
        """Raises ClaimLost if the claim is lost."""
        if self.is_lost:
            raise ClaimLost(self.task_id, self.generation, self.reason or Loss.OUTAGE)

    def drop(self) -> None:
        """Marks the claim as unused: it is not renewed from now on."""
        self.dropped = True

    def __repr__(self) -> str:
        state = f"lost: {self.reason}" if self.lost.is_set() else "kept"
        return f"<KeptClaim {self.task_id} generation {self.generation} {state}>"
