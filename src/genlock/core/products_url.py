"""Addresses of an area for work products: the valid forms, and the forbidden parts.

    file:///folder                       a folder that all agents can access
    s3://bucket/prefix?region=…          S3 and compatible services; also endpoint_url=…
    gs://bucket/prefix                   Google Cloud Storage
    az://container/prefix                Azure Blob Storage

Credentials come from the environment of each process that opens the area. Many users read records,
so an address with a password or a key is refused.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from genlock.core.names import shown
from genlock.errors import BadArgument

SCHEMES: Final = ("file", "s3", "gs", "az")
_SETTINGS: Final = {"s3": ("region", "endpoint_url")}
LONGEST_URL: Final = 1000
_MAYBE_LOGIN: Final = re.compile(":.*@", re.DOTALL)
"""What a complaint does not repeat: it goes to logs as well."""


class AreaAddress(NamedTuple):
    """An address in its parts."""

    scheme: str
    bucket: str
    """Empty for a folder."""
    path: str
    """The absolute path of the folder; or the prefix, without slashes at its ends."""
    settings: tuple[tuple[str, str], ...] = ()


def read_products_url(url: str) -> AreaAddress:
    """Returns the parts of an address. Raises `BadArgument` if it is invalid."""
    try:
        parts = urlsplit(url)
        settings = parse_qsl(parts.query, strict_parsing=bool(parts.query))
        login = parts.username is not None or parts.password is not None
    except ValueError:
        raise _complaint(url, "is no address") from None
    if len(url) > LONGEST_URL or not url.isprintable():
        raise _complaint(url, f"has more than {LONGEST_URL} characters, or some that do not print")
    if parts.scheme not in SCHEMES:
        raise _complaint(url, f"begins with none of {', '.join(f'{each}://' for each in SCHEMES)}")
    if login:
        raise BadArgument(
            "policy products: the address has a name or a password in it, and records are read by "
            "many; credentials come from the environment"
        )
    path = unquote(parts.path)
    if parts.fragment or any(part in ("..", ".") for part in path.split("/")) or "\0" in path:
        raise _complaint(url, "has '..', '.' or '#' in it")
    allowed = _SETTINGS.get(parts.scheme, ())
    for name, value in settings:
        if name not in allowed:
            raise BadArgument(
                f"policy products: an address of {parts.scheme}:// takes no {shown(name)}; it "
                f"takes {', '.join(allowed) or 'no settings'}, and credentials come from the "
                "environment"
            )
        if name == "endpoint_url" and (
            not value.startswith(("http://", "https://")) or "@" in value
        ):
            raise _complaint(url, "has an endpoint_url that is not as https://host")
    if parts.scheme == "file":
        if parts.netloc or not path.startswith("/") or not path.strip("/"):
            raise _complaint(url, "names no folder")
        return AreaAddress("file", "", "/" + path.strip("/"))
    if not parts.netloc:
        raise _complaint(url, "names no bucket")
    return AreaAddress(parts.scheme, parts.netloc, path.strip("/"), tuple(settings))


def _complaint(url: str, why: str) -> BadArgument:
    plain = _MAYBE_LOGIN.sub(":…@", url).partition("?")[0]
    return BadArgument(
        f"policy products: {shown(plain)} {why}; write file:///absolute/folder or s3://bucket/prefix"
    )
