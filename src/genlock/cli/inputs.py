"""Inputs of workers' commands besides plain options: the claim they act on, leases, JSON and
files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.cli.app import App
    from genlock.coordinator import Coordinator


F = TypeVar("F", bound=Callable[..., Any])

_MOST_DIGITS = 20
_LARGEST_FILE = 256 * 1024 * 1024


def on_a_claim(function: F) -> F:
    """Adds TASK and --generation to a command, which default to the claim that `next --export`
    exported."""
    function = click.option(
        "--generation",
        "-g",
        type=int,
        metavar="N",
        help=f"The number that claim or next printed; default: ${GENERATION}.",
    )(function)
    return click.argument("task", required=False)(function)


def claim_meant(task: str | None, generation: int | None) -> tuple[str, int]:
    """Returns the task and generation of a fenced act. The current generation is never read from
    the store: that would defeat the fence."""
    exported = os.environ.get(TASK) or None
    task = task if task is not None else exported
    if task is None:
        raise BadArgument(
            f'which task? Name it, or set {TASK}, as eval "$(genlock next --export)" does'
        )
    if generation is not None:
        return task, generation
    found = os.environ.get(GENERATION)
    if not found:
        raise BadArgument(
            f"the generation of {task} is missing: give the number that claim or next printed, "
            f"with -g or in {GENERATION}"
        )
    if exported not in (None, task):
        # The exported generation belongs to another claim: for this task the number is meaningless.
        raise BadArgument(
            f"{GENERATION} belongs to {exported}, not to {task}: give the number that claim or "
            "next printed, with -g"
        )
    if not (found.isascii() and found.isdigit() and len(found) <= _MOST_DIGITS):
        raise BadArgument(
            f"{GENERATION} is {found[:60]!r}; it is the number that claim or next printed"
        )
    return task, int(found)


def claim_or_task(task: str | None, generation: int | None) -> tuple[str, int | None]:
    """Returns the task and generation of an act that an operator may also do on an unclaimed task:
    without a generation it is the operator's act."""
    if task is not None and generation is None and not os.environ.get(GENERATION):
        return task, None
    if task is not None and generation is None and os.environ.get(TASK) not in (None, "", task):
        return task, None
    return claim_meant(task, generation)


def place_of(fleet: Coordinator) -> tuple[str, str]:
    """Returns the tenant and project that a command acts on."""
    return fleet.identity.tenant_id, fleet.identity.project_id


def promote_accepted(app: App, task: str) -> None:
    """Promotes the products of a result, if any, right after its acceptance. A service has a
    promoter of its own."""
    from genlock.schemes import is_service

    fleet = app.fleet
    if not is_service(app.url) and fleet.list_promotions(task_id=task, state="PENDING", limit=1):
        fleet.product_access.promote(fleet, place_of(fleet), task)


def lease_of(app: App, given: float | None) -> float | None:
    """Returns the lease to request: as typed, else from the settings, else None."""
    found: float | None = given if given is not None else app.setting("lease_seconds")
    return found


def lease_or_default(app: App, given: float | None) -> float:
    """Returns the lease to request, with the library's default."""
    from genlock.coordinator.arguments import LEASE_SECONDS

    lease = lease_of(app, given)
    return LEASE_SECONDS if lease is None else lease


def read_text(path: str, what: str) -> str:
    """Reads a file's text; `-` is stdin."""
    import sys

    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LARGEST_FILE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise BadArgument(
                f"{what}: {path!r} has more than {_LARGEST_FILE:,} bytes; hand in a reference to "
                "it with --ref"
            )
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadArgument(
            f"{what}: {path!r} is no UTF-8 text: byte {error.start + 1} is "
            f"{error.object[error.start]:#04x}"
        ) from None
    except OSError as error:
        raise BadArgument(f"{what}: {path!r} cannot be read: {error.strerror}") from None


def parse_json(text: str, what: str, advice: str = "") -> Any:
    """Parses a JSON value; the error says where parsing failed."""
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = (
            f"line {error.lineno}, column {error.colno}"
            if "\n" in text
            else f"character {error.pos + 1}"
        )
        raise BadArgument(f"{what} is no JSON: {error.msg} at {place}{advice}") from None
    except RecursionError:
        raise BadArgument(f"{what} is nested too deeply") from None


def read_assignment(text: str, what: str, form: str) -> tuple[str, Any]:
    """Parses NAME=VALUE. A value that is not valid JSON is taken as text, so that a plain word
    needs no quotes."""
    import json

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadArgument(f"{what} {text!r}: write {form}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def read_assignments(texts: Sequence[str], what: str, form: str) -> dict[str, Any]:
    """Parses several assignments, each name once; `none` and `unlimited` are None."""
    found: dict[str, Any] = {}
    for at, text in enumerate(texts):
        if "=" not in text and len(texts) > at + 1 and "=" not in texts[at + 1]:
            raise BadArgument(f"{what} {text!r} has no '=': write {text}={texts[at + 1]}")
        name, value = read_assignment(text, what, form)
        if name in found:
            raise BadArgument(f"{name} is given twice")
        found[name] = None if value in ("none", "unlimited") else value
    return found


class Duration(click.ParamType):  # type: ignore[type-arg]  # older releases of click
    """A duration: a number of seconds, or with units, such as 90s, 5m or 1h30m."""

    name = "duration"

    def __init__(self, unit_seconds: int = 1) -> None:
        self._unit_seconds = unit_seconds

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from genlock.core.durations import read_duration

        if isinstance(value, (int, float)):
            return value
        try:
            seconds = read_duration(value, unit_seconds=self._unit_seconds)
        except BadArgument as error:
            self.fail(f"{error}.", param, ctx)
        return seconds / self._unit_seconds


SECONDS: Final = Duration()
HOURS: Final = Duration(3600)


# What `--export` prints: a claim as variables of a shell, or statements that unset them and fail. A
# shell's `eval ""` succeeds. So a call that grants nothing, for whatever reason, must still print
# something: a loop such as `while eval "$(genlock next --export)" && work && genlock submit` would
# otherwise continue with the last claim for ever.


TASK: Final = "GENLOCK_TASK"
GENERATION: Final = "GENLOCK_GENERATION"
_VERBS: Final = frozenset({"next", "claim"})


def export_claim(task: str, generation: int) -> str:
    """Returns shell statements that set the variables."""
    from shlex import quote

    return f"export {TASK}={quote(task)}\nexport {GENERATION}={generation}\n"


def fail_export(arguments: Sequence[str], code: int) -> None:
    """Prints, for a failed call whose answer a shell evaluates, statements that unset the variables
    and end with the exit code."""
    if code == 0 or not arguments or arguments[0] not in _VERBS or "--export" not in arguments:
        return
    from genlock.cli.answers import Answers

    # The reader may have gone.
    with suppress(OSError, ValueError):
        Answers().write_text(f"unset {TASK} {GENERATION}\n(exit {code})\n")


# A command of the user's own, after `--`.


_COMMAND: Final = "genlock.command"


class WithCommand(click.Command):
    """A click command that takes everything after the first `--` as the user's command, without
    options of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "COMMAND..."]


def command_after_dashes() -> list[str]:
    """Returns the words after `--` of the running call."""
    found: list[str] = click.get_current_context().meta.get(_COMMAND, [])
    return found
