"""The DynamoDB store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from genlock.store import Clock, Store
from genlock.testing import StoreContract
from tests.servers import ministack


@pytest.mark.usefixtures("dynamodb")
class TestDynamoDBStore(StoreContract):
    payloads_supported = False

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return ministack.opened(place, clock)
