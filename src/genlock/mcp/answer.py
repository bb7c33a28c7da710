"""The answer of a tool, a resource or the prompt, before a protocol puts it in its own form."""

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
    """The caller of a tool."""

    session: str | None
    """None: the client has not named one, which only happens in a service."""
    agent: str
    project: str
    renewed: bool
    """Does the server renew the claims of this session during its lifetime?"""
    named: bool = True
    """Was the agent's name given? A generated one yields to the project's policy."""
    role: str = ""
    """The role in which it claims."""
    agents: dict[tuple[str, int], str] = {}
    """The agent of each claim granted through this server, by task and generation."""


Script: TypeAlias = "Generator[Call[Any], Any, Answer]"
"""A running tool: it yields the operations that it needs and is sent their results. Its runner
throws an operation's GenlockError into it."""
