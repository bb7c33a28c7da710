"""What a URL says: our own options, and what is the driver's business."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from genlock.errors import BadArgument
from genlock.stores.options import positive, read_option, seconds, switch

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_WHAT = "PostgreSQL"


class Settings(NamedTuple):
    """All that one store's connections have in common."""

    conninfo: str
    where: str
    """For messages: without the password."""
    schema: str = "genlock"
    pool: int = 8
    """Connections at most, besides the one that listens and the one that notifies."""
    pooled: bool = False
    """Is there a transaction pooler between us and the server? Then nothing outlives a transaction: no settings, no LISTEN."""
    listen: str | None = None
    """Where to listen; None: nowhere, so the feeds are polled."""
    statement_timeout: float = 10.0
    lock_timeout: float = 4.0


def settings_of(url: str) -> Settings:
    """The settings in a URL; `BadArgument` if it cannot be meant."""
    parts = urlsplit(url)
    own: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OWN:
            others.append((name, value))
        elif name in own:
            raise BadArgument(f"{name} is given twice in a PostgreSQL URL")
        else:
            own[name] = value
    conninfo = _conninfo(urlunsplit(parts._replace(query=urlencode(others, quote_via=quote))))
    schema = read_option(own, "schema", _schema, "genlock", _WHAT)
    pooled = read_option(own, "pooled", switch, False, _WHAT)
    direct = _conninfo(own["listen_url"]) if "listen_url" in own else None if pooled else conninfo
    return Settings(
        conninfo,
        _where(conninfo, schema),
        schema,
        read_option(own, "pool", positive, 8, _WHAT),
        pooled,
        direct if read_option(own, "listen", switch, True, _WHAT) else None,
        read_option(own, "statement_timeout", seconds, 10.0, _WHAT),
        read_option(own, "lock_timeout", seconds, 4.0, _WHAT),
    )


_OWN = ("schema", "listen_url", "listen", "pool", "pooled", "statement_timeout", "lock_timeout")


def _schema(text: str) -> str:
    """a name of small letters, digits and underscores, 48 at most"""
    if not _SCHEMA.fullmatch(text) or text.startswith("pg_"):
        raise ValueError
    return text


def _conninfo(url: str) -> str:
    """What the driver takes, checked by it."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        reason = str(error).strip()
        raise BadArgument(f"this is no PostgreSQL URL ({reason}); of our own options there are: {', '.join(_OWN)}") from None
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
    return psycopg.conninfo.make_conninfo(url, **{name: value for name, value in defaults.items() if name not in given})


def _where(conninfo: str, schema: str) -> str:
    given = conninfo_to_dict(conninfo)
    host, port = given.get("host") or given.get("hostaddr") or "localhost", given.get("port") or "5432"
    return f"postgresql://{host}:{port}/{given.get('dbname') or given.get('user') or ''} (schema {schema})"
