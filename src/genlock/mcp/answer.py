"""What a tool, a resource or the prompt answers, before a protocol puts it in its own form."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from genlock.wire.operations import Call

LONGEST: Final = 8000
"""Characters of an answer: 2,000 tokens at four characters each."""


class Answer(Struct, frozen=True):
    """A text for a model. `facts` are for programs: clients do not show them to models."""

    text: str
    is_error: bool = False
    facts: dict[str, Any] = {}


class Caller(Struct, frozen=True, kw_only=True):
    """For whom a tool is called."""

    session: str | None
    """None: the client has not said it, which only a service can meet."""
    agent: str
    project: str
    renewed: bool
    """Does the server renew the claims of this session while it lives?"""
    named: bool = True
    """Did somebody give the agent its name? One that was made up yields to the project's policy."""
    role: str = ""
    """The role that it claims in."""
    agents: dict[tuple[str, int], str] = {}
    """The agent of each claim that this server was granted, by task and generation."""


Script: TypeAlias = "Generator[Call[Any], Any, Answer]"
"""A tool at work: it yields the operations that it needs and is sent their results. Whoever runs it
throws an operation's GenlockError into it."""
