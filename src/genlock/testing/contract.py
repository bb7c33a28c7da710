"""What every store owes, in sentences.

A store's test file is four lines:

    class TestMyStore(StoreContract):
        def open(self, place: Path, clock: Clock | None = None) -> Store:
            return MyStore(place / "data", clock=clock)

`place` is a folder, empty at first and the same for every handle of one test; a store that lives elsewhere takes it as a name. What a
store does not claim to do is said by class attributes: `persistent`, `processes`, `payloads_supported`.
"""

from __future__ import annotations

from genlock.testing.contract_feed import FeedClauses
from genlock.testing.contract_find import FindClauses
from genlock.testing.contract_follow import FollowClauses
from genlock.testing.contract_limits import LimitClauses, NameClauses
from genlock.testing.contract_payloads import PayloadClauses
from genlock.testing.contract_races import RaceClauses
from genlock.testing.contract_records import RecordClauses
from genlock.testing.contract_upkeep import CloseClauses, EpochClauses, PurgeClauses, WaitClauses


class StoreContract(
    RecordClauses,
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
