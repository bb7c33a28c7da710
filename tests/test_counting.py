"""The table at the end of a run counts each test with its store."""

from __future__ import annotations

import pytest

from tests.counting import OTHERS, store_of, table


@pytest.mark.parametrize(
    ("nodeid", "store"),
    [
        ("tests/engine/test_clock.py::test_a_thing[postgres]", "postgres"),
        ("tests/test_scenarios.py::test_a_scenario[adopt-sqlite-async]", "sqlite"),
        ("tests/stores/test_contract.py::TestMemoryStore::test_a_clause", "memory"),
        ("tests/stores/test_contract.py::TestSQLiteStore::test_a_clause[3]", "sqlite"),
        ("tests/stores/test_store_plugins.py::TestJournalStore::test_a_clause", "journal"),
        ("tests/stores/test_sqlite_files.py::test_a_file[memory-like]", "memory"),
        ("tests/stores/test_sqlite_files.py::test_a_file", "sqlite"),
        ("tests/core/test_ids.py::test_an_id[A-001]", OTHERS),
    ],
)
def test_a_test_belongs_to_the_store_of_its_parameter_its_class_or_its_file(
    nodeid: str, store: str
) -> None:
    assert store_of(nodeid) == store


def test_the_table_has_a_line_for_every_store_that_was_tested() -> None:
    lines = list(
        table(
            {
                "passed": [
                    "tests/a.py::test_a[sqlite]",
                    "tests/a.py::test_b[sqlite]",
                    "tests/a.py::test_c",
                ],
                "failed": ["tests/a.py::test_a[postgres]"],
                "skipped": [],
            }
        )
    )
    assert [line.split() for line in lines] == [
        ["store", "passed", "failed", "skipped"],
        ["sqlite", "2", "0", "0"],
        ["postgres", "0", "1", "0"],
        [*OTHERS.split(), "1", "0", "0"],
    ]
