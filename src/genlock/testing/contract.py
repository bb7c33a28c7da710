"""What every store owes, in sentences.

A store's test file is four lines:

    class TestMyStore(StoreContract):
        def open(self, place: Path, clock: Clock | None = None) -> Store:
            return MyStore(place / "data", clock=clock)

`place` is a folder, empty at first and the same for every handle of one test; a store that lives elsewhere takes it as a name. What a
store does not claim to do is said by class attributes: `persistent`, `processes`, `payloads_supported`.
"""

from __future__ import annotations

import pytest

# What is imported before this is not rewritten, and its failures say less.
pytest.register_assert_rewrite(
    "genlock.testing.sample",
    "genlock.testing.contract_base",
    "genlock.testing.contract_feed",
    "genlock.testing.contract_find",
    "genlock.testing.contract_follow",
    "genlock.testing.contract_limits",
    "genlock.testing.contract_payloads",
    "genlock.testing.contract_races",
    "genlock.testing.contract_records",
    "genlock.testing.contract_sending",
    "genlock.testing.contract_upkeep",
)

from genlock.testing.contract_feed import FeedClauses  # noqa: E402
from genlock.testing.contract_find import FindClauses  # noqa: E402
from genlock.testing.contract_follow import FollowClauses  # noqa: E402
from genlock.testing.contract_limits import LimitClauses, NameClauses  # noqa: E402
from genlock.testing.contract_payloads import PayloadClauses  # noqa: E402
from genlock.testing.contract_races import RaceClauses  # noqa: E402
from genlock.testing.contract_records import RecordClauses  # noqa: E402
from genlock.testing.contract_sending import SendingClauses  # noqa: E402
from genlock.testing.contract_upkeep import CloseClauses, EpochClauses, PurgeClauses, WaitClauses  # noqa: E402


class StoreContract(
    RecordClauses,
    SendingClauses,
    LimitClauses,
    NameClauses,
    RaceClauses,
    FeedClauses,
    FollowClauses,
    FindClauses,
    PurgeClauses,
    PayloadClauses,
    EpochClauses,
    WaitClauses,
    CloseClauses,
):
    """The whole contract: subclass it, and say how the store is opened."""
