"""Cursors of several projects, and filters: the words of a stream, without one."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core.results import FeedEvent
from genlock.errors import BadArgument
from genlock.service.events.batches import EVENT_TYPES, Filters, subject_of
from genlock.service.events.cursors import Cursors, decode_several, encode_several, starts
from genlock.service.events.formats import DDB_TYPES, SC_TYPES
from genlock.stores.cursors import FeedState, encode_cursor, feed_mark

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=64)
CURSORS = st.none() | st.text("abcXYZ019_-=äß\U0001f600 ", min_size=1, max_size=60)


@given(st.dictionaries(NAMES, CURSORS, max_size=20))
def test_a_cursor_of_several_gives_back_each(cursors: dict[str, str | None]) -> None:
    assert decode_several(encode_several(cursors)) == cursors


def real(count: int) -> dict[str, str | None]:
    """Cursors as a store gives them."""
    states = {
        f"project-{n:03}": FeedState(
            b"birthday", 0, feed_mark("t", f"project-{n:03}"), head=n * 1000
        )
        for n in range(count)
    }
    return {project: encode_cursor(state, state.head) for project, state in states.items()}


def test_a_cursor_of_a_hundred_projects_fits_into_a_header() -> None:
    assert len(encode_several(real(100))) < 4000


@given(st.data())
def test_a_piece_of_a_cursor_is_none(data: st.DataObject) -> None:
    whole = encode_several(real(3))
    with pytest.raises(BadArgument, match="no cursor of a stream over several projects"):
        decode_several(whole[: data.draw(st.integers(0, len(whole) - 3))])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "~",
        "~~",
        "~ä",
        "start",
        real(1)["project-000"],
        "~" + base64.urlsafe_b64encode(b"{}").decode(),
    ],
)
def test_what_is_no_cursor_of_several_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="no cursor of a stream over several projects"):
        decode_several(text)


def test_a_cursor_that_would_unpack_to_a_mountain_is_refused() -> None:
    mountain = zlib.compress(b'["' + b"x" * 50_000_000 + b'", {}]')
    with pytest.raises(BadArgument, match="no cursor"):
        decode_several("~" + base64.urlsafe_b64encode(mountain).decode())


def test_a_project_that_the_cursor_does_not_know_is_new_from_its_first_event_on() -> None:
    cursors = Cursors(several=True)
    cursors.set(("t", "one"), "here")
    at = starts(cursors.id(), [("t", "one"), ("t", "two")], several=True)
    assert at == {("t", "one"): "here", ("t", "two"): None}


def test_every_alias_is_of_an_event_that_there_is() -> None:
    assert set(SC_TYPES) < EVENT_TYPES
    assert set(DDB_TYPES) < EVENT_TYPES


def event(
    kind: str = "task", id: str = "A-001", event_type: str = "CLAIM_EXPIRED", **fields: str
) -> FeedEvent:
    return FeedEvent(1, "c", kind, id, event_type, fields)


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        (Filters(), True),
        (Filters(tasks=frozenset({"A-001"})), True),
        (Filters(tasks=frozenset({"A-002"})), False),
        (Filters(sessions=frozenset({"s1"})), True),
        (Filters(sessions=frozenset({"s9"})), True),
        (Filters(sessions=frozenset({"s2"})), False),
        (Filters(types=frozenset({"CLAIM_EXPIRED"})), True),
        (Filters(types=frozenset({"task:claim-expired"})), True),
        (Filters(types=frozenset({"claim_expired"})), True),
        (Filters(types=frozenset({"task:claimed", "TASK_HELD"})), False),
        (Filters(tasks=frozenset({"A-001"}), sessions=frozenset({"s2"})), False),
    ],
)
def test_an_event_passes_if_it_suits_each_that_is_given_by_its_doer_or_its_holder(
    filters: Filters, passes: bool
) -> None:
    assert (
        filters.pass_on(subject_of(event(task_id="A-001", session_id="s1", holder_session_id="s9")))
        is passes
    )


def test_a_refused_result_belongs_to_its_task() -> None:
    refused = event(
        "refused", "A-001/1/s1/abc", "RESULT_REJECTED", task_id="A-001", session_id="s1"
    )
    assert Filters(tasks=frozenset({"A-001"})).pass_on(subject_of(refused))
