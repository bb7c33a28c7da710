"""Scenario scripts: a timeline of acts on tasks, one per line, each with its literal outcome.

    # GC 4.2: an expired lease hands the task on; the late result is refused and kept.
    task   A-001-core-framework
    at 0   claim  A-001-core-framework alice/s1 lease=30     -> granted generation=1
    at 31  claim  A-001-core-framework bob/s2                -> granted generation=2
    at 35  submit A-001-core-framework bob/s2 generation=2   -> accepted
    at 40  submit A-001-core-framework alice/s1 generation=1 -> refused STALE_GENERATION current=2
           kept
    history A-001-core-framework                             -> 1:EXPIRED,result_rejected
                                                             2:COMPLETED,result_accepted

A line is `[for 1..9] [at SECONDS] verb words … key=value … [-> outcome]`. The actor is
`agent/session`; times are seconds since the script began, and a line without `at` follows at once.
`for` repeats the line with {n} (or {n:03}) in it. A line without an outcome may answer anything but
an error. `play` continues after a wrong outcome, so that all differences are reported together
(`Run.wrong`). It also returns the script with its actual outcomes (`Run.text`); to update a script,
write that text back.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

from genlock.errors import GenlockError
from genlock.store import Store
from genlock.testing.clock import ManualClock
from genlock.testing.player import Player
from genlock.testing.script_words import Arguments, ScriptError, Verb

_ARROW = " -> "
_REPEAT = re.compile(r"(\d+)\.\.(\d+)")
_NUMBER = re.compile(r"\{n(?::0(\d+))?\}")


class Run(NamedTuple):
    """The result of a script."""

    text: str
    """The script with its actual outcomes."""
    wrong: tuple[str, ...]
    """The lines whose outcome differs from the expected one, with both."""
    reasons: frozenset[tuple[str, str]]
    """The answers to claims, renewals, releases and submissions, each as the name of its enum and
    its own name."""
    verbs: frozenset[str]


def play(
    text: str,
    coordinator: Any,
    clock: ManualClock,
    *,
    store: Store | None = None,
    verbs: Mapping[str, Verb] | None = None,
) -> Run:
    """Plays a script against any object that has the coordinator's methods and uses this clock.

    `store` is for acts that a coordinator does not offer (`epoch`); `verbs` adds acts to the
    language, or replaces them.
    """
    player = Player(coordinator, clock, store)
    acts = player.verbs() | dict(verbs or {})
    written: list[str] = []
    wrong: list[str] = []
    used: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            written.append(line)
            continue
        left, arrow, expected = line.partition(_ARROW)
        try:
            verb, outcome = _perform(left, player, acts)
        except ScriptError as error:
            raise ScriptError(f"line {number}: {error}") from None
        used.add(verb)
        if arrow or outcome.startswith("error "):
            written.append(f"{left}{_ARROW}{outcome}")
            if expected.strip() != outcome:
                wrong.append(
                    f"line {number}: {left.strip()}\n  expected: {expected.strip()}\n  was:      "
                    f"{outcome}"
                )
        else:
            written.append(line)
    return Run("\n".join(written) + "\n", tuple(wrong), frozenset(player.reasons), frozenset(used))


def _perform(left: str, player: Player, acts: Mapping[str, Verb]) -> tuple[str, str]:
    """Performs one line. Returns its verb, and its outcome or those of its repetitions."""
    words = shlex.split(left)
    first, last = 0, 0
    if words[0] == "for":
        repeat = _REPEAT.fullmatch(words[1]) if len(words) > 1 else None
        if repeat is None:
            raise ScriptError(
                f"after `for` comes a range such as 1..9, not {' '.join(words[1:2])!r}"
            )
        first, last = int(repeat[1]), int(repeat[2])
        words = words[2:]
    outcomes = []
    verb = ""
    for n in range(first, last + 1):
        verb, outcome = _act([_numbered(word, n) for word in words], player, acts)
        outcomes.append((n, outcome))
    return verb, _summary(outcomes)


def _act(words: list[str], player: Player, acts: Mapping[str, Verb]) -> tuple[str, str]:
    if words[:1] == ["at"]:
        player.move_to(_seconds(words[1] if len(words) > 1 else ""))
        words = words[2:]
    act = acts.get(words[0]) if words else None
    if act is None:
        raise ScriptError(
            f"there is no verb {' '.join(words[:1])!r}; there are: {', '.join(sorted(acts))}"
        )
    arguments = Arguments(words[1:])
    try:
        outcome = act(arguments)
    except GenlockError as error:
        outcome = f"error {error.code}"
    arguments.check_all_used()
    return words[0], player.plain(outcome)


def _numbered(word: str, n: int) -> str:
    return _NUMBER.sub(lambda found: f"{n:0{found[1] or 1}d}", word)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ScriptError(f"a time is a number of seconds, not {text!r}") from None


def _summary(outcomes: list[tuple[int, str]]) -> str:
    """Returns one outcome if all are alike, or differ only by the number of the repetition;
    otherwise runs of equal outcomes."""
    for texts in (
        {text for _, text in outcomes},
        {re.sub(rf"(?<==){n}\b", "{n}", text) for n, text in outcomes},
    ):
        if len(texts) == 1:
            return texts.pop()
    runs = [(list(run), text) for text, run in groupby(outcomes, key=lambda entry: entry[1])]
    return " | ".join(f"{run[0][0]}..{run[-1][0]} {text}" for run, text in runs)
