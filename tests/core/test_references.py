"""References of results: the caller's own words beside the generated name, and those of stores from
before, where they stood in its place."""

from __future__ import annotations

import msgspec
import pytest

from genlock.core.events import ResultAccepted
from genlock.core.git_push import commit_of
from genlock.core.model import RefusedRecord, Result

COMMIT, OTHER = "1f" * 20, "2e" * 20
OLD = (
    '{"id":"result-1","generation":1,"session":"s1","agent":"ann","work_product_ref":"%s",'
    '"digest":"d","size":2,"submitted_at":"2026-01-04T06:00:00Z"}'
)


@pytest.mark.parametrize(
    ("work_product_ref", "reference", "commit"),
    [
        ("wp-T-gen1-0a1b2c", f"git:{COMMIT}", COMMIT),
        ("wp-T-gen1-0a1b2c", COMMIT, COMMIT),
        (f"git:{COMMIT}", "", COMMIT),
        (f"git:{OTHER}", f"git:{COMMIT}", COMMIT),
        ("wp-T-gen1-0a1b2c", "s3://bucket/T", ""),
        ("wp-T-gen1-0a1b2c", "", ""),
    ],
)
def test_the_commit_of_a_result_is_in_its_reference_or_where_it_stood_before(
    work_product_ref: str, reference: str, commit: str
) -> None:
    result = msgspec.json.decode(OLD % work_product_ref, type=Result)
    assert result.reference == ""
    assert commit_of(msgspec.structs.replace(result, reference=reference)) == commit


def test_results_and_events_from_before_are_read_as_they_were_written() -> None:
    old = OLD % "s3://bucket/T"
    result = msgspec.json.decode(old, type=Result)
    assert (result.work_product_ref, result.reference) == ("s3://bucket/T", "")
    # What was not said is not written either: the same record has the same bytes as ever.
    assert msgspec.json.encode(result).decode() == old
    refused = msgspec.json.decode(
        '{"task":"T","generation":1,"session":"s1","agent":"ann","digest":"d","reason":"EXPIRED",'
        '"current_generation":2,"work_product_ref":"mine","size":2,'
        '"submitted_at":"2026-01-04T06:00:00Z","updated_at":"2026-01-04T06:00:00Z"}',
        type=RefusedRecord,
    )
    assert (refused.work_product_ref, refused.reference) == ("mine", "")
    event = msgspec.json.decode(
        '{"event_type":"RESULT_ACCEPTED","timestamp":"2026-01-04T06:00:00Z","tenant_id":"t",'
        '"project_id":"p","task_id":"T","generation":1,"result_id":"result-1",'
        '"work_product_ref":"mine","digest":"d","size":2}',
        type=ResultAccepted,
    )
    assert (event.work_product_ref, event.reference) == ("mine", "")
