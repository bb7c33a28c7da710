"""Large bodies: what is too much for its tenant is refused by its length, before anything is made of it."""

from __future__ import annotations

from typing import Any, Final

from genlock.core.codec import decode_record
from genlock.core.keys import TENANT, tenant_key
from genlock.core.model import TenantRecord
from genlock.core.policy import PROFILES
from genlock.engine.engine import Engine
from genlock.errors import OverLimit, ResultTooLarge
from genlock.service.v1.endpoint import Endpoint

MARGIN_BYTES: Final = 64 * 1024
"""For what stands beside a result."""
_BATCH: Final = 2


def read_large(endpoint: Endpoint, engine: Engine, tenant: str, body: bytes) -> dict[str, Any]:
    """The keywords, for a thread: a body of megabytes takes the better part of a second."""
    if endpoint.has_result:
        _check_size(endpoint, len(body), _largest_result(engine, tenant))
    return endpoint.keywords.of_body(body)


def _check_size(endpoint: Endpoint, size: int, largest: int) -> None:
    """By what was sent: indented or with escapes a result is longer than it is kept, but what it is kept as is known only afterwards."""
    if endpoint.name == "submit_result" and size > largest + MARGIN_BYTES:
        raise ResultTooLarge(
            f"the request has {size:,} bytes, the limit max_result_size_bytes is {largest:,}; send it as plain UTF-8 without indentation, "
            "or store the result elsewhere and submit a reference to it. The claim is untouched"
        )
    if size > _BATCH * largest + MARGIN_BYTES:
        raise OverLimit(
            f"the request has {size:,} bytes, and many results together at most {_BATCH} times the tenant's limit max_result_size_bytes, "
            f"which is {largest:,}; send fewer at once"
        )


def _largest_result(engine: Engine, tenant: str) -> int:
    key = tenant_key(tenant)
    found = engine.read(lambda: engine.store.load([key])).records.get(key)
    record = None if found is None else decode_record(TENANT, found.body)
    limits = record.limits if isinstance(record, TenantRecord) else PROFILES[engine.profile]
    return limits.max_result_size_bytes
