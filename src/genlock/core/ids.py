"""Task ids: four grammars, one type.

Tried in this order; the first that fits is the id's grammar:

1. track         `B-003-implement-user-dashboard`
2. edge          `AUTH-LOGIN:design_code`
3. hierarchical  `0001`, `0001_t1`, `0001_t1.1`; a bare root with letters (`A000`) only in a project
   with `ids: hierarchical`
4. slug          `implement-feature-x`

Any of them may be followed by `::n`, more than once. An id that only resembles a track or a
hierarchical id (`A-1-x`, `0001_t0`) is a slug if the slug's grammar admits it; `explain_slug` says
why.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, assert_never

import msgspec

from genlock.core.names import check_length, describe_character, shown
from genlock.errors import BadArgument, CounterExhausted

LONGEST_ID: Final = 200
LONGEST_SLUG: Final = 128
LONGEST_DESCRIPTION: Final = 50
SEQUENCE_DIGITS: Final = 3

# Fifteen digits: the largest number of plain nines that 64-bit columns and JavaScript's doubles
# both hold exactly.
LAST_CHILD: Final = 999_999_999_999_999
_NUMBER = r"[1-9][0-9]{0,14}"

# Hybrid base36: a root has four characters; the first 0, 1, 2 or 3 of them are letters.
# FIRST_ROOTS[k] is the value at which the roots with k letters begin; 0000 has the value 0, and
# counting starts after it.
ROOT_WIDTH: Final = 4
FIRST_ROOTS: Final = (0, 10_000, 36_000, 103_600)
LAST_ROOT: Final = 279_359

_ROOT = r"(?!0000)(?:[0-9]{4}|[A-Z][0-9]{3}|[A-Z]{2}[0-9]{2}|[A-Z]{3}[0-9])"

_BARE_ROOT = re.compile(_ROOT)
_TRACK = re.compile(
    rf"([A-Z]+)-(?!000)([0-9]{{{SEQUENCE_DIGITS}}})-([a-zA-Z0-9_-]{{1,{LONGEST_DESCRIPTION}}})"
)
_EDGE = re.compile(r"(?!\.\.?:)([A-Za-z0-9._-]+):(?!\.\.?\Z)([A-Za-z0-9._-]+)")
_HIERARCHICAL = re.compile(rf"({_ROOT})(?:_t({_NUMBER}(?:\.{_NUMBER})*))?")
_SLUG = re.compile(rf"(?!\.\.?\Z)[A-Za-z0-9._-]{{1,{LONGEST_SLUG}}}")
_SUBTASKS = re.compile(rf"{_NUMBER}(?:::{_NUMBER})*")
_LONG_NUMBER = re.compile(r"[0-9]{2,}")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._:-]")

_LIKE_TRACK = re.compile(r"([A-Z]+|[a-z])-([0-9]+)(?:-(.*))?")
_LIKE_HIERARCHICAL = re.compile(rf"{_ROOT}_t[0-9.]+")

_FORMS = (
    "an id is TRACK-001-description, feature:edge, 0001_t1.1 or a slug of at most "
    f"{LONGEST_SLUG} of A-Z a-z 0-9 . _ -, and may be followed by ::1"
)


class Grammar(StrEnum):
    """The four forms of an id."""

    TRACK = "track"
    EDGE = "edge"
    HIERARCHICAL = "hierarchical"
    SLUG = "slug"


class TaskId(msgspec.Struct, frozen=True):
    """A task's id and its parts. `parent` is the text of the id one level up."""

    text: str
    grammar: Grammar
    track: str | None = None
    sequence: int | None = None
    description: str | None = None
    feature: str | None = None
    edge: str | None = None
    parent: str | None = None
    depth: int = 0
    subtask_index: int | None = None

    @property
    def task_id(self) -> str:
        """GC's name for the id without its subtask: `A-001-setup-auth`."""
        return self.text.partition("::")[0]

    @property
    def compound_id(self) -> str:
        """GC's name for the whole id: `A-001-setup-auth::2`."""
        return self.text


def parse_task_id(text: str, *, hierarchical: bool = False) -> TaskId:
    """Reads a task id, or raises BadArgument. `hierarchical` says that the project has `ids:
    hierarchical`."""
    # Checked before the cache lookup: a list cannot be hashed, and a megabyte should not be.
    return _parse(check_length("task id", text, LONGEST_ID), hierarchical)


def check_task_id(text: str) -> str:
    """Returns the id if it is valid; raises BadArgument if not. Every text that fits the slug's
    grammar is an id, so there is no need to parse it."""
    return text if type(text) is str and _SLUG.fullmatch(text) else parse_task_id(text).text


def parse_root(text: str) -> int:
    """Returns the value of a root: 0001 is 1, A000 is 10000, ZZZ9 is the last."""
    if not _BARE_ROOT.fullmatch(check_length("root", text, ROOT_WIDTH)):
        raise BadArgument(
            f"{text!r} is no root; roots are 0001-9999, A000-Z999, AA00-ZZ99 and AAA0-ZZZ9"
        )
    digits = text.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    letters = text[: ROOT_WIDTH - len(digits)]
    prefix = 0
    for letter in letters:
        prefix = prefix * 26 + ord(letter) - ord("A")
    return FIRST_ROOTS[len(letters)] + prefix * int(10 ** len(digits)) + int(digits)


def sort_path(task_id: TaskId) -> tuple[int, ...]:
    """Returns the numbers of an id from its root down, to compare ids by value: `A000_t2.10` is
    (10000, 2, 10).

    A track id gives its sequence, an edge or slug nothing; the numbers after `::` follow in each
    case.
    """
    base, _, subtasks = task_id.text.partition("::")
    tail = tuple(map(int, subtasks.split("::"))) if subtasks else ()
    match task_id.grammar:
        case Grammar.HIERARCHICAL:
            root, _, children = base.partition("_t")
            path = tuple(map(int, children.split("."))) if children else ()
            return (parse_root(root), *path, *tail)
        case Grammar.TRACK:
            return (task_id.sequence or 0, *tail)
        case Grammar.EDGE | Grammar.SLUG:
            return tail
        case unreachable:
            assert_never(unreachable)


def sort_text(text: str) -> str:
    """Returns the id as a text whose bytes sort like its numbers: `x::2` comes before `x::10`,
    which becomes `x:::10`.

    Each digit of a number beyond the first adds a colon, the character after 9, in front of it. So
    ids with single digits do not change.
    """
    if "::" not in text and "_t" not in text:
        return text
    base, mark, subtasks = text.partition("::")
    root, below, children = base.partition("_t")
    if below and _HIERARCHICAL.fullmatch(base):
        base = root + below + _LONG_NUMBER.sub(_behind_shorter, children)
    return base + mark + _LONG_NUMBER.sub(_behind_shorter, subtasks)


def _behind_shorter(number: re.Match[str]) -> str:
    return ":" * (len(number[0]) - 1) + number[0]


def explain_slug(task_id: TaskId) -> tuple[Grammar, str] | None:
    """Returns the grammar that a slug was perhaps meant to follow, and what that grammar requires.
    A typing error may have cost the task its track or parent."""
    base = task_id.text.partition("::")[0]
    if task_id.grammar is not Grammar.SLUG:
        return None
    if _LIKE_HIERARCHICAL.fullmatch(base):
        return (
            Grammar.HIERARCHICAL,
            "the numbers in a subtask's id begin with 1 and have no leading zeros, as in 0001_t1.1",
        )
    found = _LIKE_TRACK.fullmatch(base)
    if found is None:
        return None
    letters, number, description = found.groups()
    if letters.islower():
        wanted = "its track in capitals"
    elif len(number) != SEQUENCE_DIGITS or not int(number):
        wanted = "a number of three digits, from 001"
    elif not description:
        wanted = "a description behind its number"
    elif len(description) > LONGEST_DESCRIPTION:
        wanted = f"a description of at most {LONGEST_DESCRIPTION} characters"
    else:
        wanted = "a description of A-Z a-z 0-9 _ -"
    return Grammar.TRACK, f"an id that names its track has {wanted}, as in A-001-core-framework"


@lru_cache(maxsize=4096)
def _parse(text: str, hierarchical: bool) -> TaskId:
    base, mark, subtasks = text.partition("::")
    task_id = _parse_base(base, hierarchical)
    if task_id is None or (mark and not _SUBTASKS.fullmatch(subtasks)):
        raise BadArgument(f"task id {shown(text)}: {_complaint(text)}")
    if not mark:
        return task_id
    parent, _, index = text.rpartition("::")
    depth = task_id.depth + subtasks.count("::") + 1
    return msgspec.structs.replace(
        task_id, text=text, parent=parent, depth=depth, subtask_index=int(index)
    )


def _parse_base(text: str, hierarchical: bool) -> TaskId | None:
    if found := _TRACK.fullmatch(text):
        track, sequence, description = found.groups()
        return TaskId(
            text, Grammar.TRACK, track=track, sequence=int(sequence), description=description
        )
    if found := _EDGE.fullmatch(text):
        feature, edge = found.groups()
        return TaskId(text, Grammar.EDGE, feature=feature, edge=edge)
    if found := _HIERARCHICAL.fullmatch(text):
        root, children = found.groups()
        if children is None:
            if hierarchical or root.isdigit():
                return TaskId(text, Grammar.HIERARCHICAL)
        elif "." in children:
            return TaskId(
                text,
                Grammar.HIERARCHICAL,
                parent=text.rpartition(".")[0],
                depth=children.count(".") + 1,
            )
        else:
            return TaskId(text, Grammar.HIERARCHICAL, parent=root, depth=1)
    if _SLUG.fullmatch(text):
        return TaskId(text, Grammar.SLUG)
    return None


def _complaint(text: str) -> str:
    """Returns what is wrong with an id that no grammar admits, and the correct form."""
    if found := _FORBIDDEN.search(text):
        return f"{describe_character(text, found.start())}; {_FORMS}"
    base, mark, subtasks = text.partition("::")
    if not base:
        return f"nothing stands before '::'; {_FORMS}"
    if mark and not _SUBTASKS.fullmatch(subtasks):
        return (
            f"after '::' comes a number from 1 to {LAST_CHILD} without leading zeros, not "
            f"{shown(subtasks)}"
        )
    if base in (".", ".."):
        return f"{base!r} is a folder's name for itself or its parent, not an id; {_FORMS}"
    if ":" in base:
        return (
            "a single ':' stands once, between a feature and an edge, neither of which is "
            "empty, '.' or '..'"
        )
    return (
        f"too long: {len(base)} characters; a slug has at most {LONGEST_SLUG}, the description "
        f"in a track id at most {LONGEST_DESCRIPTION}"
    )


# The next id from a counter: roots in hybrid base36, children as plain numbers.
#
# A root stays four characters wide by trading digits for letters, so text order is not value order
# (`AA00` comes after `Z999`): compare with `genlock.core.ids.sort_path`. Reading roots belongs to
# `genlock.core.ids`; this module writes them.


__all__ = ["LAST_CHILD", "LAST_ROOT", "child_id", "format_root", "parse_root"]


def format_root(value: int) -> str:
    """Returns the root with this value, from 1: 0001-9999, A000-Z999, AA00-ZZ99, AAA0-ZZZ9."""
    _check_value("root", value)
    if value > LAST_ROOT:
        raise CounterExhausted(
            f"no root is left: four characters end at ZZZ9, which is number {LAST_ROOT}"
        )
    letters = sum(value >= first for first in FIRST_ROOTS[1:])
    digits = ROOT_WIDTH - letters
    prefix, number = divmod(value - FIRST_ROOTS[letters], 10**digits)
    text = f"{number:0{digits}d}"
    for _ in range(letters):
        prefix, letter = divmod(prefix, 26)
        text = chr(ord("A") + letter) + text
    return text


def child_id(parent: str | None, value: int, *, hierarchical: bool = False) -> str:
    """Returns the id of the parent's child number `value`; without a parent, a root.

    The parent of the returned id is always `parent`. A child id that would be too long raises
    BadArgument.
    """
    if parent is None:
        return format_root(value)
    _check_value("child", value)
    task_id = parse_task_id(parent, hierarchical=hierarchical)
    if value > LAST_CHILD:
        raise CounterExhausted(f"no child of {parent} is left: children end at number {LAST_CHILD}")
    # Once `::n` has been appended, only `::n` can follow: `0001::2.1` is in no grammar.
    if task_id.grammar is not Grammar.HIERARCHICAL or task_id.subtask_index is not None:
        text = f"{parent}::{value}"
    elif task_id.depth == 0:
        text = f"{parent}_t{value}"
    else:
        text = f"{parent}.{value}"
    return parse_task_id(text, hierarchical=hierarchical).text


def _check_value(what: str, value: object) -> None:
    # True is an int in Python, but never a deliberate number.
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(f"the number of a {what} is an integer, not {type(value).__name__}")
    if value < 1:
        raise BadArgument(f"the number of a {what} starts at 1")
