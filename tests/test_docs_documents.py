"""The audit of the five documents names tests and pages that exist, and leaves no row bare."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from docs import generate

ROOT = Path(__file__).parent.parent
AUDIT = generate.requirements()
ROWS = [(name, *row) for name, rows in AUDIT.items() for row in rows]


@cache
def names_in(path: str) -> frozenset[str]:
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(module)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def exists(where: str) -> bool:
    path, _, test = where.partition("::")
    return (ROOT / path).is_file() and (not test or test in names_in(path))


def test_the_audit_has_all_five_documents_and_all_their_requirements() -> None:
    assert list(AUDIT) == ["GC", "DDB", "SC", "ID", "TD"]
    assert len(ROWS) >= 440


@pytest.mark.parametrize("document", AUDIT)
def test_every_requirement_names_tests_or_pages_that_exist(document: str) -> None:
    missing = [
        where for _, _, _, _, *found in AUDIT[document] for where in found if not exists(where)
    ]
    assert missing == []


@pytest.mark.parametrize("document", AUDIT)
def test_every_requirement_has_a_state_and_what_shows_it(document: str) -> None:
    rows = AUDIT[document]
    assert {row[2] for row in rows} <= set(generate.STANDS)
    bare = [row[:2] for row in rows if row[2] in ("works", "ruling", "part") and not row[4:]]
    unexplained = [row[:2] for row in rows if row[2] != "works" and not row[3]]
    assert (bare, unexplained) == ([], [])


def test_no_requirement_stands_there_twice() -> None:
    texts = [(document, section, text) for document, section, text, *_ in ROWS]
    assert [text for text in set(texts) if texts.count(text) > 1] == []


def test_a_test_that_does_not_exist_is_found_out() -> None:
    assert exists("tests/test_docs_documents.py::test_a_test_that_does_not_exist_is_found_out")
    assert not exists("tests/test_docs_documents.py::test_of_nothing")
    assert not exists("tests/test_nothing.py")
