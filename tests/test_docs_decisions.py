"""The decision records have one form, and their index lists every one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEAD = re.compile(r"# (\d+)\. (.+)\n\n- Status: (Accepted.*)\n- Date: (\d{4}-\d\d-\d\d)\n\n")
PARTS = ["## Situation", "## Decision", "## Consequences"]
ROW = re.compile(
    r"^\| (\[\d+\]\([\w.-]+\)|\d+) \| (.+) \| (\d{4}-\d\d-\d\d) \| (.+) \|$",
    re.MULTILINE,
)
REFERENCE = re.compile(r"\bADR (\d+)|docs/adr/(\d{4})")


def index() -> list[tuple[str, str, str, str]]:
    return ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))


def numbers_in_index() -> list[int]:
    return [int(re.sub(r"\D.*", "", row[0].lstrip("["))) for row in index()]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_decision_record_has_the_parts_of_the_template(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    head = HEAD.match(text)
    assert head, "begin with the number and title, then `- Status:` and `- Date:`"
    assert int(head[1]) == int(record.name[:4])
    assert [part for part in re.findall(r"^## .+$", text, re.MULTILINE) if part in PARTS] == PARTS


def test_the_index_of_decisions_lists_every_record_with_its_title_date_and_status() -> None:
    expected = []
    for record in RECORDS:
        head = HEAD.match(record.read_text(encoding="utf-8"))
        assert head, record.name
        expected.append((f"[{head[1]}]({record.name})", head[2], head[4], head[3]))
    assert [row for row in index() if row[0].startswith("[")] == expected


def test_the_index_of_decisions_has_each_number_once_and_in_order() -> None:
    numbers = numbers_in_index()
    assert numbers == sorted(set(numbers))


def test_a_decision_without_a_page_names_the_one_that_superseded_it() -> None:
    rows = [row for row in index() if not row[0].startswith("[")]
    assert [row[0] for row in rows] == ["11", "19", "34", "36", "37", "39", "40"]
    assert all(re.fullmatch(r"Superseded by \[\d+\]\([\w.-]+\)", row[3]) for row in rows)


def test_every_decision_that_code_or_a_page_refers_to_is_in_the_index() -> None:
    suffixes = {".py", ".md", ".sql", ".lua", ".txt"}
    files = [*ROOT.glob("*.md")]
    for folder in ("src", "tests", "docs", "bench", "examples"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    known = set(numbers_in_index())
    unknown = {
        f"{path.relative_to(ROOT)}: {reference[0]}"
        for path in files
        for reference in REFERENCE.finditer(path.read_text(encoding="utf-8"))
        if int(reference[1] or reference[2]) not in known
    }
    assert not unknown
