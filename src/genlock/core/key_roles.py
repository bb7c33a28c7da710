"""Permissions: roles, the projects that a pattern names, and the text of a key.

    glk_<id>_<secret>_<sum>      glk_k3v7…_…_9f0c11ab

The id names the record, the secret is what its holder knows, the sum distinguishes a typing error
from an unknown key. Only the SHA-256 of the secret is stored: 160 random bits need no slow hash. No
message here repeats any part of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple
from zlib import crc32

from genlock.core.names import LONGEST_NAME, LONGEST_SCOPE, check_length, describe_character, shown
from genlock.errors import BadArgument

EVERYWHERE: Final = "*"
"""As a tenant: all tenants, for admins of the whole store. As a pattern: all projects."""

PREFIX: Final = "glk"
ID_CHARACTERS: Final = 12
SECRET_CHARACTERS: Final = 32
FRESH_BYTES: Final = 28
"""The random bytes of an id (8) and a secret (20)."""
MOST_OVERLAP_SECONDS: Final = 86_400.0
"""The longest time for which the previous text may still be accepted after a rotation."""

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_SHAPE: Final = re.compile(
    rf"{PREFIX}_([a-z2-7]{{{ID_CHARACTERS}}})_([a-z2-7]{{{SECRET_CHARACTERS}}})_([0-9a-f]{{8}})"
)
_ID: Final = re.compile(rf"[a-z2-7]{{{ID_CHARACTERS}}}")
_NOT_PATTERN: Final = re.compile(r"[^A-Za-z0-9._*-]")
_LOOKS: Final = (
    f"a key looks like {PREFIX}_ID_SECRET_SUM, {ID_CHARACTERS} and "
    f"{SECRET_CHARACTERS} characters of a-z2-7 and 8 of 0-9a-f"
)


class Role(StrEnum):
    """The role of a key. Each has the permissions of the one before it, and more."""

    OBSERVER = "observer"
    AGENT = "agent"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: str) -> bool:
        """Does this role have all permissions of the role `needed`?"""
        return _RANKS[self] >= _RANKS[needed]


_RANKS: Final[dict[str, int]] = {role: rank for rank, role in enumerate(Role)}


class KeyText(NamedTuple):
    """The two parts of a key's text that mean something."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyText(id={self.id!r})"


# Texts


def compose(fresh: bytes, id: str | None = None) -> KeyText:
    """Makes a new key from `FRESH_BYTES` random bytes; with an id, a new secret for that key."""
    if len(fresh) != FRESH_BYTES:
        raise ValueError(f"a key is made of {FRESH_BYTES} random bytes, not of {len(fresh)}")
    digits = [
        _ALPHABET[int.from_bytes(fresh) >> 5 * at & 31]
        for at in range(ID_CHARACTERS + SECRET_CHARACTERS)
    ]
    return KeyText(id or "".join(digits[SECRET_CHARACTERS:]), "".join(digits[:SECRET_CHARACTERS]))


def write_key(key: KeyText) -> str:
    """Returns the text that its holder is given."""
    start = f"{PREFIX}_{key[0]}_{key[1]}"
    return f"{start}_{crc32(start.encode()):08x}"


def parse_key(text: object) -> KeyText:
    """Returns the parts of a key's text. Raises BadArgument that names the fault and never shows
    the text."""
    if not isinstance(text, str):
        raise BadArgument(f"a key is a text, not {type(text).__name__}")
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise BadArgument(f"this is no key: {_fault(text)}; {_LOOKS}")
    key = KeyText(found[1], found[2])
    if int(found[3], 16) != crc32(text[: -len("_12345678")].encode()):
        raise BadArgument(
            "this key is not as it was given: its last part does not fit the rest; copy it again, "
            "whole"
        )
    return key


def _fault(text: str) -> str:
    """Returns the name of the wrong part, never its text: that may be a secret, of Genlock or of
    another system."""
    if text != text.strip():
        return "there are blanks around it"
    parts = text.split("_")
    if parts[0] != PREFIX:
        return f"it does not start with {PREFIX}_"
    if len(parts) != 4:
        return f"it has {len(parts)} parts, not 4"
    for part, name, length in zip(
        parts[1:], ("id", "secret", "sum"), (ID_CHARACTERS, SECRET_CHARACTERS, 8), strict=True
    ):
        if len(part) != length:
            return f"its {name} has {len(part)} characters, not {length}"
    return "there is a character in it that no key has"


def digest_of(secret: str) -> str:
    """Returns the digest of a secret, the only part of it that is stored."""
    hexdigest: str = _hashing()[0](secret.encode()).hexdigest()
    return hexdigest


def same_digest(one: str, other: str) -> bool:
    """Are the two equal? The comparison takes constant time."""
    return _hashing()[1](one, other)


@cache
def _hashing() -> tuple[Callable[[bytes], Any], Callable[[str, str], bool]]:
    """Imported at the first use: a caller that makes or checks no key need not load OpenSSL."""
    from hashlib import sha256
    from hmac import compare_digest

    return sha256, compare_digest


# Scopes


def matches(pattern: str, project: str) -> bool:
    """Does the pattern name this project? `*` stands for any run of characters; case matters.

    With two patterns: does the first name all projects that the second names?
    """
    if pattern in (EVERYWHERE, project):
        return True
    first, *rest = pattern.split("*")
    if not rest:
        return False
    *between, last = rest
    at, end = len(first), len(project) - len(last)
    if at > end or not project.startswith(first) or not project.endswith(last):
        return False
    # The earliest match of each piece leaves the most room for the next: no need to try others.
    for piece in between:
        found = project.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def check_role(value: object) -> Role:
    """Returns the role if it is known."""
    if not isinstance(value, str) or value not in list(Role):
        raise BadArgument(
            f"there is no role {shown(value) if isinstance(value, str) else repr(value)}; there "
            f"are: {', '.join(Role)}"
        )
    return Role(value)


def check_pattern(value: object) -> str:
    """Returns a project's name, in which `*` may stand for any run of characters."""
    text = check_length("projects", value, LONGEST_SCOPE)
    if found := _NOT_PATTERN.search(text):
        raise BadArgument(
            f"projects {shown(text)}: {describe_character(text, found.start())}; it is a project's "
            "name, in which * stands for anything"
        )
    return text


def check_key_id(value: object) -> str:
    """Returns the id of a key. If the whole text is given instead, the error says so and does not
    show it."""
    text = check_length("key", value, LONGEST_NAME)
    if _ID.fullmatch(text):
        return text
    if text.startswith(f"{PREFIX}_"):
        raise BadArgument(
            "this is a key's text; its id is the part between the first two underscores, "
            f"{ID_CHARACTERS} characters"
        )
    raise BadArgument(
        f"key {shown(text)} is no id of a key: it has {ID_CHARACTERS} characters of a-z2-7, as the "
        "list of keys shows them"
    )


def check_scope(
    role: Role,
    tenant: str,
    projects: str,
    session: str | None,
    agent_roles: tuple[str, ...] = (),
) -> None:
    """Refuses combinations that would permit less, or more, than they say."""
    if agent_roles and role is not Role.AGENT:
        raise BadArgument(
            f"agent_roles are for an agent's key; an {role} "
            + ("may state any role" if role.covers(Role.OPERATOR) else "claims nothing")
        )
    if tenant == EVERYWHERE and role not in (Role.ADMIN, Role.OBSERVER):
        raise BadArgument(
            f"a key of role {role} is of one tenant, not of '*'; only an admin or an observer (of "
            "metrics) sees them all"
        )
    if role is Role.ADMIN and projects != EVERYWHERE:
        raise BadArgument(
            f"an admin has the keys of a whole tenant in hand: projects is '*', not {projects!r}"
        )
    if session is not None and role is not Role.AGENT:
        raise BadArgument(f"only an agent's key is of one session; the role is {role}")
