"""How a claim is doing, at the edges of SC's thresholds: they hold for half an hour and more, and
shrink with shorter leases."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from genlock.core.facts import OutageGrace
from genlock.core.model import Claim, Process, SessionRecord
from genlock.core.task.view import overdue
from genlock.engine.processes import boot, gone, host, namespace
from genlock.errors import BadArgument
from genlock.service.session_api.health import HEARTBEAT, ClaimConfig, health_of
from tests.service.session_api.served import NOON

SC: dict[str, object] = {HEARTBEAT: 60_000}
"""Of a claim that was made under /api."""


def health(
    lease: float,
    silent: float,
    *,
    metadata: dict[str, object] = SC,
    heard: float | None = None,
    session: SessionRecord | None = None,
    config: ClaimConfig | None = None,
    grace: float = 0,
) -> str:
    renewed = NOON - timedelta(seconds=silent)
    claim = Claim(
        "c",
        "s",
        "a",
        1,
        renewed,
        renewed,
        renewed + timedelta(seconds=lease),
        lease,
        grace,
        metadata=metadata,
    )
    cause = overdue(
        claim,
        NOON,
        session,
        session is not None and gone(session.process, shared=False),
        heard=None if heard is None else NOON - timedelta(seconds=heard),
    )
    return health_of(claim, NOON, config or ClaimConfig(), cause=cause).value


@pytest.mark.parametrize(
    ("lease", "silent", "expected"),
    [
        # Half an hour: five minutes left, one minute left, six minutes after the last heartbeat.
        (1800, 0, "healthy"),
        (1800, 360, "healthy"),
        (1800, 360.001, "stale"),
        (1800, 1499.999, "stale"),
        (1800, 1500, "warning"),
        (1800, 1739.999, "warning"),
        (1800, 1740, "expiring"),
        (1800, 1799.999, "expiring"),
        (1800, 1800, "expired"),
        # Longer ones have the same thresholds.
        (7200, 360, "healthy"),
        (7200, 361, "stale"),
        (7200, 6899, "stale"),
        (7200, 6900, "warning"),
        (7200, 7140, "expiring"),
        (7200, 7200, "expired"),
        # Shorter ones have shorter ones: a sixth, a thirtieth, a sixth after what was expected.
        (300, 110, "healthy"),
        (300, 110.001, "stale"),
        (300, 249.999, "stale"),
        (300, 250, "warning"),
        (300, 289.999, "warning"),
        (300, 290, "expiring"),
        (300, 300, "expired"),
        # Never under five seconds: a sixth of six would be one, and 40 % of six is expected before
        # that.
        (6, 2.4 + 2.5, "healthy"),
        (6, 5, "warning"),
        (6, 5.8, "expiring"),
    ],
)
def test_a_claim_s_health_at_the_edges(lease: float, silent: float, expected: str) -> None:
    assert health(lease, silent) == expected


@pytest.mark.parametrize(
    ("lease", "silent", "expected"),
    [(300, 120, "healthy"), (300, 170, "healthy"), (300, 170.001, "stale")],
)
def test_whoever_claimed_elsewhere_is_expected_at_two_fifths_of_the_lease(
    lease: float, silent: float, expected: str
) -> None:
    assert health(lease, silent, metadata={}) == expected


@pytest.mark.parametrize("nonsense", ["often", None, -5, [], {}])
def test_metadata_that_is_no_interval_is_passed_over(nonsense: object) -> None:
    assert health(300, 170, metadata={HEARTBEAT: nonsense}) == "healthy"


@pytest.mark.parametrize(("silence", "expected"), [(600, "stale"), (600.001, "orphaned")])
def test_a_session_that_is_silent_for_ten_minutes_leaves_orphans(
    silence: float, expected: str
) -> None:
    assert health(1800, silence, session=registered_here(silence), heard=silence) == expected


def test_a_session_that_is_heard_of_otherwise_leaves_none() -> None:
    assert health(1800, 1000, session=registered_here(1000), heard=1) == "stale"


def test_a_silent_session_that_was_registered_elsewhere_leaves_none() -> None:
    elsewhere = replace(registered_here(1000), orphan_seconds=None)
    assert health(1800, 1000, session=elsewhere, heard=1000) == "stale"


def test_a_silent_session_whose_process_is_known_leaves_none_while_that_is_not_gone() -> None:
    process = Process("another-host", "boot", 1, 1, "namespace")
    session = replace(registered_here(1000), process=process)
    assert health(1800, 1000, session=session, heard=1000) == "stale"


def test_silence_counts_from_the_end_of_an_outage_in_which_nobody_could_be_heard() -> None:
    session, now = registered_here(1000), NOON
    claim = Claim("c", "s", "a", 1, NOON, NOON - timedelta(seconds=1000), NOON, 1800)
    claim = replace(claim, expires_at=NOON + timedelta(seconds=800))
    for away, cause in ((599, None), (601, "SESSION_SILENT")):
        back = OutageGrace(NOON - timedelta(seconds=900), NOON - timedelta(seconds=away))
        assert overdue(claim, now, session, False, back, claim.renewed_at) == cause


def registered_here(silent: float) -> SessionRecord:
    at = NOON - timedelta(seconds=silent)
    return SessionRecord("s", at, at, orphan_seconds=600)


def test_an_ended_session_leaves_orphans_at_once() -> None:
    assert health(1800, 0, session=SessionRecord("s", NOON, NOON, ended_at=NOON)) == "orphaned"


def test_a_vanished_process_leaves_orphans_at_once() -> None:
    process = Process(host(), boot(), 2**22 + 1, 1, namespace())
    assert health(1800, 0, session=SessionRecord("s", NOON, NOON, process=process)) == "orphaned"


def test_an_over_due_claim_of_an_ended_session_is_expired() -> None:
    assert health(1800, 1800, session=SessionRecord("s", NOON, NOON, ended_at=NOON)) == "expired"


def test_within_its_grace_a_claim_is_expiring() -> None:
    assert health(1800, 1830, grace=60) == "expiring"


def test_the_thresholds_are_settings() -> None:
    config = ClaimConfig(warning_threshold=900_000, expiring_threshold=600_000)
    assert [health(1800, silent, config=config) for silent in (899, 900, 1200)] == [
        "stale",
        "warning",
        "expiring",
    ]


def test_the_eight_keys_have_the_document_s_names_and_defaults() -> None:
    assert msgspec.to_builtins(ClaimConfig()) == {
        "defaultTTL": 1800000,
        "maxTTL": 7200000,
        "minTTL": 60000,
        "heartbeatInterval": 60000,
        "cleanupInterval": 300000,
        "orphanThreshold": 600000,
        "warningThreshold": 300000,
        "expiringThreshold": 60000,
    }
    assert msgspec.convert({"defaultTTL": 120000}, ClaimConfig).default_ttl == 120000


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(
        BadArgument, match="warningThreshold is a number of milliseconds above 0, not -1"
    ):
        ClaimConfig(warning_threshold=-1)
    with pytest.raises(
        BadArgument, match="minTTL 60000 <= defaultTTL 5000 <= maxTTL 7200000 does not hold"
    ):
        ClaimConfig(default_ttl=5000)
