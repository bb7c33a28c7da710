"""What a store's author needs: the contract, for pytest."""

import pytest

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
    "genlock.testing.contract_upkeep",
)

from genlock.testing.contract import StoreContract as StoreContract  # noqa: E402 - what is imported before is not rewritten
