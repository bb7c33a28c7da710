"""The settings in a URL: where the server is, and Genlock's own options."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from genlock.errors import BadArgument
from genlock.stores.options import Options, positive, seconds, switch

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")
_PORT = 3306
_HERE = ("localhost", "127.0.0.1", "::1")

_OWN = ("prefix", "pool", "statement_timeout", "lock_timeout", "connect_timeout")
_DRIVER = ("unix_socket", "ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity")


class Settings(NamedTuple):
    """The settings that all connections of one store share."""

    arguments: Mapping[str, Any]
    """The driver's arguments."""
    where: str
    """The URL for messages, without the password."""
    prefix: str = "genlock_"
    pool: int = 8
    """The most connections."""
    statement_timeout: float = 10.0
    lock_timeout: float = 4.0


def settings_of(url: str) -> Settings:
    """Returns the settings in a URL. Raises `BadArgument` if the URL is invalid."""
    options = Options(url, "MySQL", (*_OWN, *_DRIVER))
    strangers = [
        name for name, _ in parse_qsl(options.rest.partition("?")[2], keep_blank_values=True)
    ]
    if strangers:
        raise BadArgument(
            f"there is no option {strangers[0]!r} in a MySQL URL; there are: "
            f"{', '.join((*_OWN, *_DRIVER))}"
        )
    prefix = options.read("prefix", _prefix, "genlock_")
    arguments = {
        **_address(options.rest),
        **_security(options),
        "connect_timeout": options.read("connect_timeout", seconds, 5.0),
    }
    if not options.read("ssl", switch, _leaves_the_machine(arguments)):
        arguments["ssl_disabled"] = True
    place = arguments.get("unix_socket") or f"{arguments['host']}:{arguments['port']}"
    return Settings(
        arguments,
        f"mysql://{place}/{arguments['database']} (tables {prefix}…)",
        prefix,
        options.read("pool", positive, 8),
        options.read("statement_timeout", seconds, 10.0),
        options.read("lock_timeout", seconds, 4.0),
    )


def _address(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The unreadable part may be a part of a password.
        raise BadArgument(
            "this is no MySQL URL, its address cannot be read: write "
            f"mysql://user:password@host:{_PORT}/database"
        ) from None
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise BadArgument(
            f"a MySQL URL names one database: write mysql://user:password@host:{_PORT}/database"
        )
    user = unquote(parts.username) if parts.username is not None else os.environ.get("USER", "root")
    password = unquote(parts.password) if parts.password is not None else ""
    return {
        "host": host or "localhost",
        "port": port or _PORT,
        "user": user,
        "password": password,
        "database": database,
    }


def _security(options: Options) -> dict[str, Any]:
    named = {name: options.get(name) for name in ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")}
    files: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if "ssl_ca" in files:
        files["ssl_verify_cert"] = True
    if options.read("ssl_verify_identity", switch, False):
        files["ssl_verify_identity"] = True
    return files


def _leaves_the_machine(arguments: Mapping[str, Any]) -> bool:
    """Does the connection leave the machine? Then it is encrypted, if the server supports it. Not
    always, because setting that up takes the driver longer than connecting."""
    return ("unix_socket" not in arguments and arguments["host"] not in _HERE) or any(
        name.startswith("ssl_") for name in arguments
    )


def _prefix(text: str) -> str:
    """a name of small letters, digits and underscores that begins with a letter, 32 at most"""
    if not _PREFIX.fullmatch(text):
        raise ValueError
    return text
