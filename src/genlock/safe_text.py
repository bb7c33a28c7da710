"""Foreign text made safe to show: titles, reasons, names of files, a server's error messages.

Some characters are obeyed instead of shown: they can make a terminal move its cursor, change its
title or send input back, and a bidirectional control reverses the rest of a line. They are escaped,
as `\\x1b` or `\\u202e`. In JSON they become JSON's own escapes, so that a program reads the same
value.

The zero-width joiners U+200C and U+200D stay: Persian and emoji need them, and they neither move
nor hide anything else.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    # Soft hyphen, Arabic letter mark, vowel separator, zero-width space, direction marks
    "\xad\u061c\u180e\u200b\u200e\u200f"
    # Separators of lines and paragraphs, bidirectional embeddings, isolates, invisible operators
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # byte order mark, annotations
    "\U000e0000-\U000e007f"  # tags: a whole ASCII text that nobody sees
    "\ud800-\udfff"  # halves of characters: bytes of a file's name that are no text
    "]"
)

_UNSAFE_UTF8: Final = re.compile(
    rb"\x7f|\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe1\xa0\x8e|\xe2(?:\x80[\x8b\x8e\x8f\xa8-\xae]|\x81[\xa0-\xaf])|\xef(?:\xbb\xbf|\xbf[\xb9-\xbb])"
    rb"|\xf3\xa0[\x80\x81][\x80-\xbf]"
)
"""The same characters in UTF-8, except those that JSON escapes anyway."""


def safe_text(value: object) -> str:
    """Returns the text with all characters escaped that a terminal or browser would obey. Tabs and
    line breaks stay."""
    text = str(value)
    return text if text.isprintable() else _UNSAFE.sub(_spelled, text)


def safe_line(value: object) -> str:
    """Returns safe text on one line: line breaks, tabs and other white space become blanks. None
    becomes an empty string."""
    text = "" if value is None else str(value)
    return text if text.isprintable() else safe_text(" ".join(text.split()))


def is_safe_line(text: str) -> bool:
    """Would `safe_line` return the text unchanged?"""
    return safe_line(text) == text


def safe_json(data: bytes) -> bytes:
    """Returns the JSON document, in UTF-8, with the same meaning and safe to show."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _UNSAFE_UTF8.sub(_escaped, data)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _escaped(found: re.Match[bytes]) -> bytes:
    units = found[0].decode().encode("utf-16-be")
    return b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))


# URLs made safe to show: without passwords, and with every host that would be connected to.
#
# A password often has characters that a URL wants percent-encoded. A parser then does not see it as
# a password, but the user wrote it as one, so it is hidden all the same. A host is never hidden:
# people consent to the URL that they see.


_LOCAL: Final = ("sqlite", "memory")
_SERVICES: Final = ("http", "https")
_PARTS: Final = re.compile(r"([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_PORTS: Final = re.compile(r":[^:,\[\]]*(?=,|$)")
_INNER: Final = re.compile(r"://[^/@]*@")
_SECRET: Final = re.compile("pass|pwd|secret|token|key|credential|listen_url")


def without_password(url: str) -> str:
    """Returns the URL with its passwords hidden."""
    scheme, separator, rest = url.partition("://")
    service = scheme.lower() in _SERVICES
    if scheme.lower() in _LOCAL:
        return url  # a file may have any name
    if not separator:
        return f"…{url[url.rindex('@') :]}" if "@" in url else url
    if service and "," in url:
        return ",".join(map(without_password, url.split(",")))  # several services
    found = _PARTS.fullmatch(rest)
    assert found is not None
    authority, path, query, fragment = found.groups("")
    who, at, hosts = authority.rpartition("@")
    user, colon, _ = who.partition(":")
    if service and not colon:
        user = user and "…"
    if not at and (
        "@" in path
        or "@" in fragment
        or any("@" in each and "=" not in each for each in query.split("&"))
    ):
        hosts = _PORTS.sub(":…", hosts)  # a password up to its first / or ? or #
    path = f"/…{path[path.rindex('@') :]}" if "@" in path else path
    if service:
        query = query and "?…"
    elif query:
        query = "?" + "&".join(map(_shown, query[1:].split("&")))
    fragment = (
        "#…"
        if service and fragment
        else f"#…{fragment[fragment.rindex('@') :]}"
        if "@" in fragment
        else fragment
    )
    return f"{scheme}://{user}{':…' if colon else ''}{at}{hosts}{path}{query}{fragment}"


def _shown(setting: str) -> str:
    """Returns one setting of a query, without a secret value."""
    name, equals, value = setting.partition("=")
    if not equals:
        return f"…{setting[setting.rindex('@') :]}" if "@" in setting else setting
    return (
        f"{name}=…"
        if _SECRET.search(unquote(name).lower())
        else f"{name}={_INNER.sub('://…@', value)}"
    )
