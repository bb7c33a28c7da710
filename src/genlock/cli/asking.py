"""Asking before something is done that cannot be undone; off a terminal there is nobody to ask."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from genlock.cli import exits
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.cli.app import App


def confirm(app: App, what: str, question: str, *unasked: str) -> None:
    """Says what would be done, and asks; whoever does not agree leaves. `unasked` is the verb, with its words, that does it unasked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadArgument(f"{what}\nThere is no terminal to ask on; if you mean it, type: {app.command(*unasked)}")
    app.answers.say(what)
    if not _yes(question):
        app.answers.say("nothing was changed")
        app.leave(exits.ERROR)


def _yes(question: str) -> bool:
    """Asks. (Not by click: `input` forgets a Ctrl-C that comes while the question is being written.)"""
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
