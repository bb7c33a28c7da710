"""Names of tenants, projects, sessions, agents, users and tracks.

Each check returns the name it was given, or raises BadArgument with a message that says what is
wrong with it. The parameters are `object` because the edges pass on whatever a request's JSON held.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from genlock.errors import BadArgument

LONGEST_SCOPE: Final = 64
LONGEST_NAME: Final = 128
LONGEST_TRACK: Final = 200
"""As long as an id may be that begins with it."""

_NOT_SCOPE = re.compile(r"[^A-Za-z0-9._-]")
_NOT_TRACK = re.compile(r"[^A-Z]")
_NOT_FEATURE = re.compile(r"[^A-Za-z0-9._-]")

# `.` and `..` would walk through a folder store; tenant `_` is where the tenants themselves are
# listed.
RESERVED = frozenset({".", "..", "_"})

DEFAULT_PROJECT: Final = "default"
"""The default."""


def check_tenant(value: object) -> str:
    """Return the tenant's name if it is one."""
    return _check_scope("tenant", value)


def check_project(value: object) -> str:
    """Return the project's name if it is one."""
    return _check_scope("project", value)


def check_session(value: object) -> str:
    """Return the session's id if it is one."""
    return _check_name("session", value)


def check_agent(value: object) -> str:
    """Return the agent's id if it is one."""
    return _check_name("agent", value)


def check_user(value: object) -> str:
    """Return the user's id if it is one."""
    return _check_name("user", value)


def check_key_name(value: object) -> str:
    """Return the name of a key, which events have as the user, if it is one."""
    return _check_name("name", value)


def check_track(value: object) -> str:
    """Return the track's letters, in capitals, if they are a track."""
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
    """Return the feature's name, if it is one that an id could begin with."""
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
    """Return `value` if it is a string of 1 to `longest` characters."""
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
    """The names there are, for an error about one that there is not; first those that were perhaps
    meant: what begins with it, else what looks like it."""
    from difflib import get_close_matches

    known = sorted(names)
    longer = [name for name in known if wrong and name.startswith(wrong)]
    near = longer[:3] or get_close_matches(wrong, known, 3)
    meant = f"did you mean {' or '.join(near)}? There are: " if near else "there are: "
    return meant + ", ".join(known)


def as_plain(text: str) -> str:
    """The text itself: YAML readers and others hand out subclasses of str, which msgspec does not
    encode."""
    return text if type(text) is str else str.__str__(text)


def describe_character(text: str, index: int) -> str:
    """Point at one refused character of `text`: where it stands (counted from 1), its repr, and
    what it is called."""
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
    """Quote `text` for a message, cut short so that a huge argument does not become a huge
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
