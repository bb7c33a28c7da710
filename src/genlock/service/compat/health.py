"""How a claim is doing, in SC's words.

SC's thresholds hold for leases of half an hour and more, and shrink with shorter ones. The first of these that is true:

expired     the lease is over
orphaned    the session has ended, its process is gone, or it has been silent for `orphanThreshold`
expiring    at most `expiringThreshold` is left
warning     at most `warningThreshold` is left
stale       five minutes after the renewal that was expected, it has not come; never less than five seconds
healthy     else

When a renewal is expected depends on who renews: whoever claims under /api is told to be heard every `heartbeatInterval`, everybody else
renews when 40 % of the lease is over. So a holder that does as it should is never called stale.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from genlock.core.model import Claim
from genlock.core.reasons import Cause
from genlock.service.compat.config import ClaimConfig

HEARTBEAT: Final = "heartbeatMs"
"""In a claim's metadata: how often its holder was asked to be heard."""

_LEASE_SECONDS: Final = 1800.0
_STALE_SECONDS: Final = 300.0
_LEAST_STALE_SECONDS: Final = 5.0
_RENEWED_AT: Final = 0.4


class Health(StrEnum):
    """From the best to the worst."""

    HEALTHY = "healthy"
    STALE = "stale"
    WARNING = "warning"
    EXPIRING = "expiring"
    ORPHANED = "orphaned"
    EXPIRED = "expired"


class Thresholds:
    """The thresholds for one claim, in seconds."""

    __slots__ = ("expiring", "orphaned", "stale", "warning")

    def __init__(self, claim: Claim, config: ClaimConfig) -> None:
        scale = min(1.0, claim.lease_seconds / _LEASE_SECONDS)
        self.warning = config.warning_threshold / 1000 * scale
        self.expiring = config.expiring_threshold / 1000 * scale
        self.stale = _expected(claim) + max(_STALE_SECONDS * scale, _LEAST_STALE_SECONDS)
        self.orphaned = max(config.orphan_threshold / 1000 * scale, self.stale)


def _expected(claim: Claim) -> float:
    """After how many seconds the next renewal is expected."""
    usual = claim.lease_seconds * _RENEWED_AT
    asked = claim.metadata.get(HEARTBEAT)
    return min(usual, asked / 1000) if isinstance(asked, (int, float)) and asked > 0 else usual


def health_of(claim: Claim, now: datetime, config: ClaimConfig, *, cause: Cause | None, last_activity: datetime) -> Health:
    """How a claim is doing: `cause` says why it is over-due, if it is; `last_activity` is its session's."""
    if cause is not None:
        return Health.ORPHANED if cause in (Cause.SESSION_ENDED, Cause.PROCESS_GONE) else Health.EXPIRED
    limits = Thresholds(claim, config)
    left = (claim.expires_at - now).total_seconds()
    # Nothing left, and not over-due: it is in its grace, or spared after an outage, and may still be renewed.
    if left > 0 and (now - last_activity).total_seconds() > limits.orphaned:
        return Health.ORPHANED
    if left <= limits.expiring:
        return Health.EXPIRING
    if left <= limits.warning:
        return Health.WARNING
    return Health.STALE if (now - claim.renewed_at).total_seconds() > limits.stale else Health.HEALTHY
