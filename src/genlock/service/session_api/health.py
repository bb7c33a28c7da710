"""The health of a claim in SC's words.

SC's thresholds hold for leases of half an hour and more, and shrink with shorter ones. The first of
these that is true:

expired     the lease is over
orphaned    the session has ended, its process is gone, or it was registered here without a process
            and has been silent for `orphanThreshold`
expiring    at most `expiringThreshold` is left
warning     at most `warningThreshold` is left
stale       five minutes after the renewal that was expected, it has not come; never less than five
            seconds
healthy     else

The expected time of a renewal depends on the holder: holders under /api are asked to send a
heartbeat every `heartbeatInterval`, and all others renew when 40 % of the lease is over. So a
holder that renews on time is never called stale.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from genlock.core.model import Claim
from genlock.core.policy import TenantLimits
from genlock.core.reasons import Cause
from genlock.core.task.view import HEARTBEAT as HEARTBEAT
from genlock.core.task.view import stale_after
from genlock.errors import BadArgument
from genlock.service_settings import CLAIM_CONFIG

# SC's `claimConfig`: eight settings by SC's names, in milliseconds.


class ClaimConfig(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=CLAIM_CONFIG
):
    """The settings of claims under /api: their length and the thresholds of health."""

    default_ttl: int = 1_800_000
    max_ttl: int = 7_200_000
    min_ttl: int = 60_000
    heartbeat_interval: int = 60_000
    """The expected interval of heartbeats."""
    cleanup_interval: int = 300_000
    """The interval at which the service checks all claims. It finds expired leases within seconds
    anyway."""
    orphan_threshold: int = 600_000
    """After this silence the claims of a session that was registered under /api are orphaned. For
    limits the project's policy counts."""
    warning_threshold: int = 300_000
    expiring_threshold: int = 60_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise BadArgument(
                    f"claimConfig {CLAIM_CONFIG[name]} is a number of milliseconds above 0, not "
                    f"{getattr(self, name)}"
                )
        if not self.min_ttl <= self.default_ttl <= self.max_ttl:
            raise BadArgument(
                f"claimConfig: minTTL {self.min_ttl} <= defaultTTL {self.default_ttl} <= maxTTL "
                f"{self.max_ttl} does not hold"
            )

    def lease_seconds(self, ttl_ms: float | None, limits: TenantLimits) -> float:
        """The lease for a requested TTL, clamped to the bounds of /api and of the tenant."""
        ttl = self.default_ttl if ttl_ms is None else ttl_ms
        seconds = max(self.min_ttl, min(ttl, self.max_ttl)) / 1000
        seconds = max(seconds, limits.min_lease_duration_seconds)
        return min(seconds, limits.max_lease_duration_seconds or seconds)


def read_config(text: str) -> ClaimConfig:
    """Parses a setting: NAME=MILLISECONDS, separated by commas."""
    ours = {name: own for own, name in CLAIM_CONFIG.items()}
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return ClaimConfig(**{ours[name]: int(number) for name, _, number in pairs})


_LEASE_SECONDS: Final = 1800.0


class Health(StrEnum):
    """The states of health, from best to worst."""

    HEALTHY = "healthy"
    STALE = "stale"
    WARNING = "warning"
    EXPIRING = "expiring"
    ORPHANED = "orphaned"
    EXPIRED = "expired"


class Thresholds:
    """The thresholds for one claim, in seconds."""

    __slots__ = ("expiring", "stale", "warning")

    def __init__(self, claim: Claim, config: ClaimConfig) -> None:
        scale = min(1.0, claim.lease_seconds / _LEASE_SECONDS)
        self.warning = config.warning_threshold / 1000 * scale
        self.expiring = config.expiring_threshold / 1000 * scale
        self.stale = stale_after(claim)


def health_of(claim: Claim, now: datetime, config: ClaimConfig, *, cause: Cause | None) -> Health:
    """The health of a claim; `cause` says why it is overdue, if it is."""
    if cause is not None:
        return Health.ORPHANED if cause.orphans else Health.EXPIRED
    if claim.expires_at is None:
        return Health.HEALTHY  # without a lease nothing runs out, and nobody need be heard
    limits = Thresholds(claim, config)
    left = (claim.expires_at - now).total_seconds()
    if left <= limits.expiring:
        return Health.EXPIRING
    if left <= limits.warning:
        return Health.WARNING
    return (
        Health.STALE if (now - claim.renewed_at).total_seconds() > limits.stale else Health.HEALTHY
    )
