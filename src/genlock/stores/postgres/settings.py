"""The settings in a URL: Genlock's own options, and those of the driver."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from genlock.errors import BadArgument
from genlock.stores.options import Options, positive, seconds, switch

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


class Settings(NamedTuple):
    """The settings that all connections of one store share."""

    conninfo: str
    where: str
    """The URL for messages, without the password."""
    schema: str = "genlock"
    pool: int = 8
    """The most connections, besides the one that listens and the one that notifies."""
    pooled: bool = False
    """Is there a transaction pooler between us and the server? Then no state outlives a
    transaction: no settings, no LISTEN."""
    listen: str | None = None
    """The URL to listen on; None: no listener, so the feeds are polled."""
    statement_timeout: float = 10.0
    lock_timeout: float = 4.0


def settings_of(url: str) -> Settings:
    """Returns the settings in a URL. Raises `BadArgument` if the URL is invalid."""
    options = Options(url, "PostgreSQL", _OWN)
    conninfo = _conninfo(options.rest)
    schema = options.read("schema", _schema, "genlock")
    pooled = options.read("pooled", switch, False)
    listen_url = options.get("listen_url")
    direct = _conninfo(listen_url) if listen_url is not None else None if pooled else conninfo
    return Settings(
        conninfo,
        _where(conninfo, schema),
        schema,
        options.read("pool", positive, 8),
        pooled,
        direct if options.read("listen", switch, True) else None,
        options.read("statement_timeout", seconds, 10.0),
        options.read("lock_timeout", seconds, 4.0),
    )


_OWN = ("schema", "listen_url", "listen", "pool", "pooled", "statement_timeout", "lock_timeout")


def _schema(text: str) -> str:
    """a name of small letters, digits and underscores, 48 at most"""
    if not _SCHEMA.fullmatch(text) or text.startswith("pg_"):
        raise ValueError
    return text


def _conninfo(url: str) -> str:
    """Returns the driver's connection text for a URL, checked by the driver."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        # The driver's message quotes the unreadable part, which may be a password.
        reason = (
            str(error).strip()
            if "@" not in url or "query parameter" in str(error)
            else "its address cannot be read"
        )
        raise BadArgument(
            f"this is no PostgreSQL URL ({reason}); of our own options there are: {', '.join(_OWN)}"
        ) from None
    _check(given)
    defaults: dict[str, str | int] = {
        "application_name": "genlock",
        "client_encoding": "UTF8",
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15000,
    }
    if "," in str(given.get("host") or ""):
        defaults["target_session_attrs"] = "read-write"
    return psycopg.conninfo.make_conninfo(
        url, **{name: value for name, value in defaults.items() if name not in given}
    )


def _check(given: dict[str, Any]) -> None:
    """Checks values that the driver would check only when it connects, and would report as an
    unreachable server. The message does not quote a port, which may be a part of a password."""
    escape = "a password or name with / @ : # or % has these written %2F %40 %3A %23 %25"
    if "@" in str(given.get("host") or ""):
        raise BadArgument(f"there are two @ in a PostgreSQL URL: {escape}")
    for port in str(given.get("port") or 5432).split(","):
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise BadArgument(f"the port in a PostgreSQL URL is a number from 1 to 65535; {escape}")
    for name in (
        "connect_timeout",
        "tcp_user_timeout",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
    ):
        if not str(given.get(name) or 0).isdecimal():
            raise BadArgument(
                f"{given[name]!r} is no {name} in a PostgreSQL URL: it is a whole number"
            )
    if str(given.get("sslmode") or "prefer") not in _SSL_MODES:
        raise BadArgument(
            f"{given['sslmode']!r} is no sslmode in a PostgreSQL URL: it is one of "
            f"{', '.join(_SSL_MODES)}"
        )


def _where(conninfo: str, schema: str) -> str:
    given = conninfo_to_dict(conninfo)
    host, port = (
        given.get("host") or given.get("hostaddr") or "localhost",
        given.get("port") or "5432",
    )
    return (
        f"postgresql://{host}:{port}/{given.get('dbname') or given.get('user') or ''} (schema "
        f"{schema})"
    )
