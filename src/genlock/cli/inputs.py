"""What verbs of workers read besides plain options: the claim they act on, leases, JSON and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.cli.app import App

F = TypeVar("F", bound=Callable[..., Any])

_TASK = "GENLOCK_TASK"
_GENERATION = "GENLOCK_GENERATION"
_MOST_DIGITS = 20
_LARGEST_FILE = 256 * 1024 * 1024


def on_a_claim(function: F) -> F:
    """Gives a verb TASK and --generation, which default to what `next --export` exported."""
    function = click.option(
        "--generation", "-g", type=int, metavar="N", help=f"The number that claim or next printed; default: ${_GENERATION}."
    )(function)
    return click.argument("task", required=False)(function)


def claim_meant(task: str | None, generation: int | None) -> tuple[str, int]:
    """The task and generation of a fenced act. The present generation is never looked up: that would defeat the fence."""
    exported = os.environ.get(_TASK) or None
    task = task if task is not None else exported
    if task is None:
        raise BadArgument(f'which task? Name it, or set {_TASK}, as eval "$(genlock next --export)" does')
    if generation is not None:
        return task, generation
    found = os.environ.get(_GENERATION)
    if not found:
        raise BadArgument(f"the generation of {task} is missing: give the number that claim or next printed, with -g or in {_GENERATION}")
    if exported not in (None, task):
        # It came with another claim: on this task the number would mean something else.
        raise BadArgument(f"{_GENERATION} belongs to {exported}, not to {task}: give the number that claim or next printed, with -g")
    if not (found.isascii() and found.isdigit() and len(found) <= _MOST_DIGITS):
        raise BadArgument(f"{_GENERATION} is {found[:60]!r}; it is the number that claim or next printed")
    return task, int(found)


def lease_of(app: App, given: float | None) -> float | None:
    """The lease to ask for: as typed, as set, else None."""
    found: float | None = given if given is not None else app.setting("lease_seconds")
    return found


def lease_or_default(app: App, given: float | None) -> float:
    """The same, with the library's default."""
    from genlock.coordinator.arguments import LEASE_SECONDS

    lease = lease_of(app, given)
    return LEASE_SECONDS if lease is None else lease


def read_text(path: str, what: str) -> str:
    """A file's text; `-` is stdin."""
    import sys

    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LARGEST_FILE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise BadArgument(f"{what}: {path!r} has more than {_LARGEST_FILE:,} bytes; hand in a reference to it with --ref")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadArgument(f"{what}: {path!r} is no UTF-8 text: byte {error.start + 1} is {error.object[error.start]:#04x}") from None
    except OSError as error:
        raise BadArgument(f"{what}: {path!r} cannot be read: {error.strerror}") from None


def parse_json(text: str, what: str, advice: str = "") -> Any:
    """A JSON value, or an error that says where it breaks off."""
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if "\n" in text else f"character {error.pos + 1}"
        raise BadArgument(f"{what} is no JSON: {error.msg} at {place}{advice}") from None
    except RecursionError:
        raise BadArgument(f"{what} is nested too deeply") from None


def read_assignment(text: str, what: str, form: str) -> tuple[str, Any]:
    """NAME=VALUE. The value is JSON if it is JSON, else the text itself, so that a plain word needs no quotes."""
    import json

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadArgument(f"{what} {text!r}: write {form}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def read_assignments(texts: Sequence[str], what: str, form: str) -> dict[str, Any]:
    """Several of them, each name once; `none` and `unlimited` are None."""
    found: dict[str, Any] = {}
    for text in texts:
        name, value = read_assignment(text, what, form)
        if name in found:
            raise BadArgument(f"{name} is given twice")
        found[name] = None if value in ("none", "unlimited") else value
    return found


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_span(text: str, what: str) -> float:
    """A length of time in seconds: a number, or one with a unit."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    if not (number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        raise BadArgument(f"{what} {text!r} is no length of time: write seconds, or 15m, 12h, 90d")
    return float(int(number) * _UNITS[unit])
