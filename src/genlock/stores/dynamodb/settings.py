"""What a URL says: dynamodb://table?region=…&endpoint_url=…&payloads=…"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from genlock.errors import BadArgument

_OWN = ("region", "endpoint_url", "payloads")


class Settings(NamedTuple):
    """Where a table is."""

    table: str
    region: str | None = None
    """None: what the AWS environment says."""
    endpoint_url: str | None = None
    payloads: str | None = None
    """Where large results are kept; None: nowhere."""


def settings_of(url: str) -> Settings:
    """The settings in a URL; `BadArgument` if it cannot be meant."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadArgument(f"{url!r} names no table; write dynamodb://table?region=…") from None
    table = unquote(parts.netloc + parts.path)
    if parts.scheme != "dynamodb" or not table or "/" in table or parts.fragment:
        raise BadArgument(f"{url!r} names no table; write dynamodb://table?region=…")
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadArgument(f"{url!r}: {error}") from error
    settings = dict(given)
    unknown = settings.keys() - set(_OWN)
    if unknown:
        raise BadArgument(f"{url!r}: there is no setting {min(unknown)!r}; there are: {', '.join(_OWN)}")
    if len(settings) < len(given) or not all(settings.values()):
        raise BadArgument(f"{url!r}: a setting is given twice, or has no value")
    return Settings(table, **settings)
