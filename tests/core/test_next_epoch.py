"""The number of an epoch: two histories never begin the same one, and generations stay below what
JSON can hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core.epochs import GENERATIONS_PER_EPOCH, MAX_EPOCH, EpochsExhausted, next_epoch

FIRST_SECOND = 1_767_225_600  # 2026-01-01 00:00:00 UTC
LAST_SECOND = 2_330_175_553  # 2043-11-03 14:59:13 UTC: 17 years and 10 months later

TABLE = [
    # last, second, digit, next
    (0, FIRST_SECOND, 0, 1),
    (0, FIRST_SECOND, 7, 7),
    (0, FIRST_SECOND + 1, 0, 16),
    (16, FIRST_SECOND + 1, 0, 17),
    (5, FIRST_SECOND + 1, 15, 31),
    (31, FIRST_SECOND + 1, 15, 32),
    (0, 1_795_032_000, 3, 444_902_403),
    (444_902_410, 1_795_032_000, 3, 444_902_411),
    (3, FIRST_SECOND - 1, 9, 4),
    (3, 0, 0, 4),
    (3, LAST_SECOND, 5, 9_007_199_253),
    (3, LAST_SECOND, 6, 4),
    (3, 4_102_444_800, 0, 4),
]


@pytest.mark.parametrize(("last", "second", "digit", "following"), TABLE)
def test_next_epoch_is_made_of_the_time_and_above_the_last(
    last: int, second: int, digit: int, following: int
) -> None:
    assert next_epoch(last, second, digit) == following


@pytest.mark.parametrize("second", [0, 1_795_032_000, LAST_SECOND, 4_102_444_800])
def test_there_is_no_epoch_above_the_last(second: int) -> None:
    assert next_epoch(9_007_199_252, second, 0) == 9_007_199_253
    with pytest.raises(EpochsExhausted, match="epoch 9,007,199,254 is above 9,007,199,253"):
        next_epoch(9_007_199_253, second, 0)


def test_generations_of_the_last_epoch_are_numbers_in_json_everywhere() -> None:
    assert MAX_EPOCH == 9_007_199_253
    highest = (MAX_EPOCH + 1) * GENERATIONS_PER_EPOCH
    assert highest < 2**53
    assert int(float(json.dumps(highest))) == highest


seconds = st.integers(FIRST_SECOND + 1, LAST_SECOND - 1)
digits = st.integers(0, 15)


@given(
    rises=st.lists(
        st.tuples(seconds, digits, st.integers(0, 4)), unique_by=lambda rise: rise[0], max_size=12
    )
)
def test_epoch_never_repeats_in_any_history_that_parted_from_another(
    rises: list[tuple[int, int, int]],
) -> None:
    """Histories part at will (a rise names the one it goes on with), and each rise has a second of
    its own."""
    histories = [0]
    begun = []
    for second, digit, history in sorted(rises):
        epoch = next_epoch(histories[history % len(histories)], second, digit)
        begun.append(epoch)
        histories.append(epoch)
    assert len(set(begun)) == len(begun)
    assert begun == sorted(begun)
