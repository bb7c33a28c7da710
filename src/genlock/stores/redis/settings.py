"""The settings in a URL: Genlock's own options, and those of the driver."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from redis import connection as driver
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from genlock.errors import BadArgument
from genlock.stores.options import Options, positive, seconds, switch

_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")

DURABILITIES = ("none", "everysec", "always")

_parse_url: Callable[[str], dict[str, Any]] = driver.parse_url


class Settings(NamedTuple):
    """The settings that all connections of one store share."""

    arguments: dict[str, Any]
    """The driver's arguments."""
    secure: bool
    where: str
    """The URL for messages, without the password."""
    prefix: str = "genlock"
    pool: int = 8
    """The most connections, besides the one that listens."""
    durability: str = "everysec"
    """How durable the server must make a write before it answers; see open.py."""
    wait: int = 0
    """How many replicas must have a commit before it is answered."""
    wait_seconds: float = 1.0
    payloads: str | None = None
    """The place of large results; see stores/objects.py."""
    alone: bool = False
    """Does the server have no replica, now and in future? Then a restart loses nothing, if every
    write is synced."""

    def connection(self) -> Any:
        """Returns a connection that is not open yet. The driver's methods have no types."""
        return (SSLConnection if self.secure else Connection)(**self.arguments)


def settings_of(url: str) -> Settings:
    """Returns the settings in a URL. Raises `BadArgument` if the URL is invalid."""
    options = Options(url, "Redis", _OWN)
    scheme = url.partition("://")[0]
    secure = scheme == "rediss"
    arguments = _arguments(options.rest, secure=secure)
    prefix = options.read("prefix", _prefix, "genlock")
    server = f"{arguments.get('host', 'localhost')}:{arguments.get('port', 6379)}"
    where = f"{scheme}://{server}/{arguments.get('db', 0)}"
    return _checked(
        Settings(
            arguments,
            secure,
            f"{where} (prefix {prefix})",
            prefix,
            options.read("pool", positive, 8),
            options.read("durability", _durability, "everysec"),
            options.read("wait", _replicas, 0),
            options.read("wait_timeout", seconds, 1.0),
            options.get("payloads"),
            options.read("alone", switch, False),
        )
    )


_OWN = ("prefix", "pool", "durability", "wait", "wait_timeout", "payloads", "alone")


def _checked(settings: Settings) -> Settings:
    if settings.alone and settings.durability != "always":
        raise BadArgument(
            "alone=on needs durability=always: a server that does not sync every write loses some "
            "when it crashes"
        )
    if settings.alone and settings.wait:
        raise BadArgument(
            f"alone=on says that there are no replicas, and wait={settings.wait} waits for them: "
            "leave one of them out"
        )
    if settings.wait and settings.wait_seconds >= settings.arguments["socket_timeout"]:
        raise BadArgument(
            "wait_timeout must be shorter than socket_timeout, or an answer that is late is taken "
            "for none"
        )
    return settings


def _prefix(text: str) -> str:
    """1 to 64 letters, digits, dots, underscores and hyphens"""
    if not _PREFIX.fullmatch(text):
        raise ValueError
    return text


def _durability(text: str) -> str:
    """none, everysec or always"""
    if text not in DURABILITIES:
        raise ValueError
    return text


def _replicas(text: str) -> int:
    """a number of replicas, from 0 to 16"""
    if not 0 <= int(text) <= 16:
        raise ValueError
    return int(text)


def _arguments(url: str, *, secure: bool) -> dict[str, Any]:
    """Returns the driver's arguments, checked by the driver. The driver must not retry anything: a
    commit that was executed would conflict with itself."""
    hint = f"; of our own options there are: {', '.join(_OWN)}"
    try:
        given = dict(_parse_url(url))
        given.pop("connection_class", None)
        defaults: dict[str, Any] = {
            "socket_timeout": 10.0,
            "socket_connect_timeout": 5.0,
            "socket_keepalive": True,
        }
        fixed = {
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": False,
            "health_check_interval": 0,
        }
        arguments = {**defaults, **given, **fixed}
        (SSLConnection if secure else Connection)(**arguments)
    except (ValueError, TypeError) as error:
        # The driver's message quotes a bad port, which may be a part of a password.
        why = "" if "Port" in str(error) else f" ({error})"
        raise BadArgument(f"this is no Redis URL{why}{hint}") from None
    if urlsplit(url).path.strip("/") and not urlsplit(url).path.strip("/").isdecimal():
        raise BadArgument(
            f"{urlsplit(url).path!r} names no database of a Redis server: they have numbers, as in "
            f"redis://host:6379/0{hint}"
        )
    return arguments
