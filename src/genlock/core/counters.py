"""The next id from a counter: roots in hybrid base36, children as plain numbers.

A root stays four characters wide by trading digits for letters, so text order is not value order (`AA00` comes after
`Z999`): compare with `genlock.core.ids.sort_path`. Reading roots belongs to `genlock.core.ids`; this module writes them.
"""

from genlock.core.ids import FIRST_ROOTS, LAST_CHILD, LAST_ROOT, ROOT_WIDTH, Grammar, parse_root, parse_task_id
from genlock.errors import BadArgument, CounterExhausted

__all__ = ["LAST_CHILD", "LAST_ROOT", "child_id", "format_root", "parse_root"]


def format_root(value: int) -> str:
    """The root with this value, from 1: 0001-9999, A000-Z999, AA00-ZZ99, AAA0-ZZZ9."""
    _check_value("root", value)
    if value > LAST_ROOT:
        raise CounterExhausted(f"no root is left: four characters end at ZZZ9, which is number {LAST_ROOT}")
    letters = sum(value >= first for first in FIRST_ROOTS[1:])
    digits = ROOT_WIDTH - letters
    prefix, number = divmod(value - FIRST_ROOTS[letters], 10**digits)
    text = f"{number:0{digits}d}"
    for _ in range(letters):
        prefix, letter = divmod(prefix, 26)
        text = chr(ord("A") + letter) + text
    return text


def child_id(parent: str | None, value: int, *, hierarchical: bool = False) -> str:
    """The id of the parent's child number `value`; without a parent, a root.

    What it returns is an id whose parent is `parent`: a child that would be too long to be one raises BadArgument.
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
    # True is an int to Python, but nobody counts with it on purpose.
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(f"the number of a {what} is an integer, not {type(value).__name__}")
    if value < 1:
        raise BadArgument(f"the number of a {what} starts at 1")
