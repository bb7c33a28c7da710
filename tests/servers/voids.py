"""The replay check for stores whose positions rise, but not by one.

On DynamoDB positions are given before the commit, so those of a change that conflicts are void. The replay check takes every position
that is not there for a lost event, unless it was purged. Here void positions are counted, and what they explain to the last
one is no fault.
"""

from __future__ import annotations

import re

from genlock.engine.check import Fault, check
from genlock.store import Store
from genlock.stores.dynamodb import DynamoDBStore, keys
from genlock.stores.dynamodb.items import is_event

_MISSING = re.compile(r"(\d+) positions up to \d+ are missing, (\d+) of them purged")
_GAP = re.compile(r"position \d+ is missing: ")


def faults_of(store: Store) -> list[Fault]:
    """All that the replay check finds and void positions do not explain."""
    faults = check(store)
    if not isinstance(store, DynamoDBStore):
        return faults
    explained = {fault.where for fault in faults if _is_explained(store, fault)}
    return [fault for fault in faults if fault.where not in explained or not (_MISSING.match(fault.what) or _GAP.match(fault.what))]


def _is_explained(store: DynamoDBStore, fault: Fault) -> bool:
    missing = _MISSING.match(fault.what)
    if missing is None:
        return False
    tenant, _, project = fault.where.removesuffix(" feed").partition("/")
    return int(missing[1]) - int(missing[2]) == void_positions(store, tenant, project)


def void_positions(store: DynamoDBStore, tenant: str, project: str) -> int:
    """How many positions of a feed hold nothing, and never will."""
    return sum(not is_event(item) for item in store._table.query(keys.feed_of(tenant, project), keys.numbers(0)))
