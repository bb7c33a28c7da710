"""SC's `claimConfig`: eight settings by its names, in milliseconds."""

from __future__ import annotations

from msgspec import Struct

from genlock.core.policy import TenantLimits
from genlock.errors import BadArgument
from genlock.service_settings import CLAIM_CONFIG


class ClaimConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=CLAIM_CONFIG):
    """How long claims last under /api, and when they give cause for concern."""

    default_ttl: int = 1_800_000
    max_ttl: int = 7_200_000
    min_ttl: int = 60_000
    heartbeat_interval: int = 60_000
    """How often a holder is expected to be heard."""
    cleanup_interval: int = 300_000
    """How often all claims are looked at by the service itself; what time alone ends, it finds within seconds anyway."""
    orphan_threshold: int = 600_000
    """Silence of a session after which its claims count as orphaned, under /api; what counts for limits is the project's policy."""
    warning_threshold: int = 300_000
    expiring_threshold: int = 60_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise BadArgument(f"claimConfig {CLAIM_CONFIG[name]} is a number of milliseconds above 0, not {getattr(self, name)}")
        if not self.min_ttl <= self.default_ttl <= self.max_ttl:
            raise BadArgument(f"claimConfig: minTTL {self.min_ttl} <= defaultTTL {self.default_ttl} <= maxTTL {self.max_ttl} does not hold")

    def lease_seconds(self, ttl_ms: float | None, limits: TenantLimits) -> float:
        """The lease that is granted for a TTL: within our own bounds, and then within the tenant's."""
        ttl = self.default_ttl if ttl_ms is None else ttl_ms
        seconds = max(self.min_ttl, min(ttl, self.max_ttl)) / 1000
        seconds = max(seconds, limits.min_lease_duration_seconds)
        return min(seconds, limits.max_lease_duration_seconds or seconds)


def read_config(text: str) -> ClaimConfig:
    """From a setting: NAME=MILLISECONDS, with commas between them."""
    ours = {name: own for own, name in CLAIM_CONFIG.items()}
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return ClaimConfig(**{ours[name]: int(number) for name, _, number in pairs})
