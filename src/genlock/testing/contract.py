"""The contract of every store, as tests named by sentences.

A store's test file is four lines:

    class TestMyStore(StoreContract):
        def open(self, place: Path, clock: Clock | None = None) -> Store:
            return MyStore(place / "data", clock=clock)

`place` is a folder, empty at first and the same for every handle of one test; a store on a server
uses it as a name. Class attributes declare missing capabilities: `persistent`, `processes`,
`payloads_supported`.
"""

from __future__ import annotations

import pytest

# pytest rewrites no assertions in modules imported before this, and their failures show less.
pytest.register_assert_rewrite(
    "genlock.testing.sample",
    "genlock.testing.contract_base",
    "genlock.testing.contract_feed",
    "genlock.testing.contract_find",
    "genlock.testing.contract_follow",
    "genlock.testing.contract_limits",
    "genlock.testing.contract_maintenance",
    "genlock.testing.contract_pages",
    "genlock.testing.contract_races",
    "genlock.testing.contract_records",
)

from genlock.testing.contract_feed import FeedClauses  # noqa: E402
from genlock.testing.contract_find import FindClauses  # noqa: E402
from genlock.testing.contract_follow import FollowClauses  # noqa: E402
from genlock.testing.contract_limits import (  # noqa: E402
    LimitClauses,
    NameClauses,
    PayloadClauses,
)
from genlock.testing.contract_maintenance import (  # noqa: E402
    CloseClauses,
    EpochClauses,
    PurgeClauses,
    WaitClauses,
)
from genlock.testing.contract_pages import PageClauses  # noqa: E402
from genlock.testing.contract_races import RaceClauses, StartCommitClauses  # noqa: E402
from genlock.testing.contract_records import RecordClauses  # noqa: E402


class StoreContract(
    RecordClauses,
    StartCommitClauses,
    LimitClauses,
    NameClauses,
    RaceClauses,
    FeedClauses,
    FollowClauses,
    FindClauses,
    PageClauses,
    PurgeClauses,
    PayloadClauses,
    EpochClauses,
    WaitClauses,
    CloseClauses,
):
    """The whole contract: subclass it, and define how the store is opened."""
