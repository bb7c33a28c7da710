"""Modules and classes are named by the words of docs/glossary.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "genlock"

_WITH_THE_REDESIGN = "renamed with the port, the records and the operations"

ALLOWED = {
    "core/commands.py:MoveSettled": _WITH_THE_REDESIGN,
    "core/events.py:ChildNews": _WITH_THE_REDESIGN,
    "core/events.py:Occurrence": _WITH_THE_REDESIGN,
}
"""Names that break a rule, each with the reason why it may."""

ING = {"testing", "routing"}
"""The nouns of the field that end in -ing; other modules are named by a thing, not by an action."""


def glossary() -> dict[str, str]:
    """Each word that is not used, and the word to use instead."""
    instead = {}
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| word ")):
            word, _, unused = (cell.strip() for cell in line.strip("|").split("|"))
            instead.update(dict.fromkeys(filter(None, unused.split(", ")), word))
    return instead


INSTEAD = glossary()
PHRASES = ("in flight",)
"""Glossary entries that contain a word which is not used on its own."""


def words_of(name: str) -> list[str]:
    """The words of a name in snake case or camel case, in lower case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", name).lower()
    for phrase in PHRASES:
        spaced = re.sub(rf"\b{phrase}\b", "", spaced)
    return spaced.split()


def faults_of(name: str, *, is_module: bool) -> Iterator[str]:
    """Why a module or class may not have this name."""
    words = words_of(name)
    for word in words:
        for unused in (word, word.removesuffix("s")):
            if unused in INSTEAD:
                yield f"'{word}': the glossary's word is '{INSTEAD[unused]}'"
                break
    if is_module and words and words[-1].endswith("ing") and name not in ING:
        yield "a module is named by a noun that does not end in -ing"


def found() -> dict[str, list[str]]:
    """All names that break a rule, by the file (and class) that has them."""
    faults = {}
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE)
        module = file.parent.name if file.stem == "__init__" else file.stem
        faults[str(file)] = list(faults_of(module, is_module=True))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                faults[f"{file}:{node.name}"] = list(faults_of(node.name, is_module=False))
    return {name: why for name, why in faults.items() if why}


def test_glossary_says_what_it_is_tested_for() -> None:
    assert len(INSTEAD) >= 35
    assert INSTEAD["fence"] == "generation"
    assert INSTEAD["gate"] == "write lock"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("bell", 1),
        ("door_bell", 2),
        ("FlightLog", 1),
        ("InFlightLog", 0),
        ("Moves", 1),
        ("moveable", 0),
        ("HTTPDoor", 1),
        ("waiting", 1),
        ("routing", 0),
    ],
)
def test_glossary_check_finds_unused_words_and_gerunds(name: str, number: int) -> None:
    assert len(list(faults_of(name, is_module=True))) == number


def test_modules_and_classes_have_names_from_the_glossary() -> None:
    faults = found()
    assert {name: why for name, why in faults.items() if name not in ALLOWED} == {}


def test_glossary_exceptions_are_all_needed() -> None:
    faults = found()
    unneeded = {name for name in ALLOWED if name not in faults}
    # Those go one by one, while the folders that hold them are redesigned.
    assert {name for name in unneeded if ALLOWED[name] != _WITH_THE_REDESIGN} == set()
