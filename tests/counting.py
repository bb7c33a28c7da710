"""How many tests ran on which store, for the end of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tests.servers import stores

OUTCOMES = ("passed", "failed", "skipped")
OTHERS = "no store of its own"

_WORD = re.compile(r"[a-z]+")


def store_of(nodeid: str) -> str:
    """By a test's parameter, else by its class (`TestMemoryStore`), else by its file
    (`test_postgres.py`)."""
    place, _, parameters = nodeid.partition("[")
    file, *names = place.split("::")
    candidates = [
        *_WORD.findall(parameters.lower()),
        *(
            name.removeprefix("Test").partition("Store")[0].lower()
            for name in names
            if name.startswith("Test") and "Store" in name
        ),
        *file.rpartition("/")[2].removeprefix("test_").removesuffix(".py").split("_"),
    ]
    return next((name for name in candidates if name in known()), OTHERS)


def known() -> tuple[str, ...]:
    """The catalog's stores, and the example's."""
    return (*stores.ALL, "journal")


def table(outcomes: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Lines: for each store how many passed, failed and were skipped."""
    counts = {outcome: Counter(map(store_of, nodeids)) for outcome, nodeids in outcomes.items()}
    shown = [name for name in (*known(), OTHERS) if any(count[name] for count in counts.values())]
    width = max(map(len, ["store", *shown]))
    yield "store".ljust(width) + "".join(outcome.rjust(9) for outcome in OUTCOMES)
    for name in shown:
        yield name.ljust(width) + "".join(
            f"{counts[outcome][name]:,}".rjust(9) for outcome in OUTCOMES
        )
