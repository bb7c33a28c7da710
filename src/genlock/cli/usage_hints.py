"""Guesses what a wrongly typed call was meant to be, and says how to type that."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import click

from genlock.cli.main import SECTIONS

_EXTRA = re.compile(r"Got unexpected extra argument \((\w+)\)")
_WHERE_FROM = {"refused_id": "genlock refused lists them"}
"""For arguments that users must look up: the command that shows them."""


def explain_usage(wrong: click.ClickException, arguments: Sequence[str]) -> str:
    """Describes what is wrong with a call and, if known, how to type what was probably meant."""
    message = wrong.format_message().replace(
        "is not a valid integer range", "is not a whole number"
    )
    if isinstance(wrong, click.MissingParameter) and wrong.param is not None:
        if isinstance(wrong.param, click.Option) and wrong.param.help:
            return f"{message.rstrip('.')}: {wrong.param.help}"
        if isinstance(wrong.param.type, click.Choice):
            return f"Missing argument: one of {', '.join(wrong.param.type.choices)}"
        found = _WHERE_FROM.get(wrong.param.name or "")
        return f"{message.rstrip('.')}; {found}" if found else message
    if isinstance(wrong, click.NoSuchOption) and wrong.ctx is not None and not wrong.ctx.parent:
        return _option_first(arguments) or message
    if (extra := _EXTRA.match(message)) and isinstance(wrong, click.UsageError):
        return _generation_meant(wrong, extra[1], arguments) or message
    return message


def _option_first(arguments: Sequence[str]) -> str | None:
    """Explains `genlock --json status`: options come after the command."""
    verbs = {verb for section in SECTIONS.values() for verb in section}
    at = next((place for place, word in enumerate(arguments) if word in verbs), None)
    if at is None:
        return None
    meant = shlex.join(["genlock", *arguments[at:], *arguments[:at]])
    return f"options stand after the command, type: {meant}"


def _generation_meant(wrong: click.UsageError, extra: str, arguments: Sequence[str]) -> str | None:
    """Explains `genlock submit TASK 3`: the generation is an option."""
    command = wrong.ctx.command if wrong.ctx is not None else None
    if not extra.isdigit() or "-g" in arguments or command is None:
        return None
    if not any("-g" in parameter.opts for parameter in command.params):
        return None
    words = [word for word in arguments if word != extra]
    return f"a generation is given with -g, type: {shlex.join(['genlock', *words, '-g', extra])}"
