"""Feed ranges: where in the feeds the events of a commit are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from genlock.engine.feed_watch import FeedRange, feed_ranges_by_project

A, B = ("t", "a"), ("t", "b")


def test_a_span_goes_from_the_first_to_the_last_of_a_project_s_events_in_whatever_order_they_are_told() -> (
    None
):
    assert feed_ranges_by_project([(A, 7, 2), (B, 1, 1), (A, 5, 1), (A, 12, 3)]) == [
        FeedRange(A, 5, 12, 6),
        FeedRange(B, 1, 1, 1),
    ]


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 50), st.integers(1, 9))))
def test_a_span_has_all_its_events_and_ends_where_they_end(
    written: list[tuple[tuple[str, str], int, int]],
) -> None:
    spans = {span.place: span for span in feed_ranges_by_project(written)}
    assert spans.keys() == {place for place, _, _ in written}
    for place, span in spans.items():
        own = [(last, events) for other, last, events in written if other == place]
        assert span.first == min(last - events + 1 for last, events in own)
        assert span.last == max(last for last, _ in own)
        assert span.events == sum(events for _, events in own)
