"""Names of tenants, projects, sessions, agents, users and tracks.

Each check returns the given name, or raises BadArgument with a message about the fault. The
parameters are `object` because the edges pass on any value of a request's JSON.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from genlock.errors import BadArgument

LONGEST_SCOPE: Final = 64
LONGEST_NAME: Final = 128
LONGEST_TRACK: Final = 200
"""The limit of an id that begins with it."""

_NOT_SCOPE = re.compile(r"[^A-Za-z0-9._-]")
_NOT_TRACK = re.compile(r"[^A-Z]")
_NOT_FEATURE = re.compile(r"[^A-Za-z0-9._-]")

# `.` and `..` would lead out of a folder store's directory; the tenant `_` lists the tenants
# themselves.
RESERVED = frozenset({".", "..", "_"})

DEFAULT_PROJECT: Final = "default"
"""The project of calls that name none."""


def check_tenant(value: object) -> str:
    """Returns the tenant's name if it is one."""
    return _check_scope("tenant", value)


def check_project(value: object) -> str:
    """Returns the project's name if it is one."""
    return _check_scope("project", value)


def check_session(value: object) -> str:
    """Returns the session's id if it is one."""
    return _check_name("session", value)


def check_agent(value: object) -> str:
    """Returns the agent's id if it is one."""
    return _check_name("agent", value)


def check_user(value: object) -> str:
    """Returns the user's id if it is one."""
    return _check_name("user", value)


def check_key_name(value: object) -> str:
    """Returns the name of a key if it is one. Events have it as the user."""
    return _check_name("name", value)


def check_track(value: object) -> str:
    """Returns the track's letters, in capitals, if they are a track."""
    text = check_length("track", value, LONGEST_TRACK)
    if text.isascii():
        text = text.upper()
    if found := _NOT_TRACK.search(text):
        raise BadArgument(
            f"track {shown(text)}: {describe_character(text, found.start())}; allowed are the "
            "letters A-Z"
        )
    return text


def check_feature(value: object) -> str:
    """Returns the feature's name, if it is one that an id could begin with."""
    text = check_length("feature", value, LONGEST_NAME)
    if found := _NOT_FEATURE.search(text):
        raise BadArgument(
            f"feature {shown(text)}: {describe_character(text, found.start())}; allowed are A-Z "
            "a-z 0-9 . _ -"
        )
    if text in (".", ".."):
        raise BadArgument(f"feature {shown(text)} is a folder's name for itself or its parent")
    return text


def check_length(what: str, value: object, longest: int) -> str:
    """Returns `value` if it is a string of 1 to `longest` characters."""
    if not isinstance(value, str):
        raise BadArgument(f"{what} must be a string, not {type(value).__name__}")
    if not value:
        raise BadArgument(f"{what} is empty; it has 1 to {longest} characters")
    if len(value) > longest:
        raise BadArgument(
            f"{what} {shown(value)} is too long: {len(value)} characters, at most {longest} are "
            "allowed"
        )
    return as_plain(value)


def listed_with_nearest(wrong: str, names: Iterable[str]) -> str:
    """Lists the known names, for an error about an unknown one. The likely intended names come
    first: those that begin with it, or else similar ones."""
    from difflib import get_close_matches

    known = sorted(names)
    longer = [name for name in known if wrong and name.startswith(wrong)]
    near = longer[:3] or get_close_matches(wrong, known, 3)
    meant = f"did you mean {' or '.join(near)}? There are: " if near else "there are: "
    return meant + ", ".join(known)


def as_plain(text: str) -> str:
    """Returns the text as a plain str: YAML readers and others return subclasses of str, which
    msgspec does not encode."""
    return text if type(text) is str else str.__str__(text)


def describe_character(text: str, index: int) -> str:
    """Describes one refused character of `text`: its position (counted from 1), its repr and its
    name."""
    char = text[index]
    match char:
        case "\0":
            called = "NUL"
        case "/":
            called = "a slash"
        case "\\":
            called = "a backslash"
        case _ if char.isspace():
            called = "whitespace"
        case _ if unicodedata.category(char) == "Cc":
            called = "a control character"
        case _ if char.isascii():
            called = ""
        case _:
            called = f"not ASCII: {unicodedata.name(char, 'unnamed')}"
    return f"character {index + 1} is {char!r}" + (f" ({called})" if called else "")


def shown(text: str) -> str:
    """Quotes `text` for a message, shortened so that a huge argument does not make a huge
    message."""
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."


def _check_scope(what: str, value: object) -> str:
    text = check_length(what, value, LONGEST_SCOPE)
    if found := _NOT_SCOPE.search(text):
        raise BadArgument(
            f"{what} {shown(text)}: {describe_character(text, found.start())}; allowed are A-Z a-z "
            "0-9 . _ -"
        )
    if text in RESERVED:
        raise BadArgument(f"{what} {text!r} is reserved; '.', '..' and '_' are no names")
    return text


def _check_name(what: str, value: object) -> str:
    text = check_length(what, value, LONGEST_NAME)
    # isprintable is one pass in C and also refuses what regular expressions have no class for: lone
    # surrogates, bidi marks.
    if text.isprintable() and "/" not in text:
        return text
    index = next(i for i, char in enumerate(text) if char == "/" or not char.isprintable())
    raise BadArgument(
        f"{what} {shown(text)}: {describe_character(text, index)}; allowed are printable "
        "characters other than '/'"
    )
