"""The settings of a service, by name, with a check for each value. They come from the same sources
as all settings; their flags omit the `serve`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from genlock.core.names import check_project, check_tenant
from genlock.errors import BadArgument

PREFIX: Final = "serve_"
PORT: Final = 8420

CLAIM_CONFIG: Final = {
    "default_ttl": "defaultTTL",
    "max_ttl": "maxTTL",
    "min_ttl": "minTTL",
    "heartbeat_interval": "heartbeatInterval",
    "cleanup_interval": "cleanupInterval",
    "orphan_threshold": "orphanThreshold",
    "warning_threshold": "warningThreshold",
    "expiring_threshold": "expiringThreshold",
}
"""The settings of claims under /api: our names, and those in the document's `claimConfig`."""

_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]{1,255}")
_LONGEST_MS: Final = 366 * 86_400_000
_METRIC: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
_LEVELS: Final = ("debug", "info", "warning", "error")
_FORMATS: Final = ("json", "text")
_TRUE: Final = ("true", "1", "yes", "on")
_FALSE: Final = ("false", "0", "no", "off")


def check_host(value: object) -> str:
    """Checks the address or name of this machine to listen on."""
    if not isinstance(value, str) or not _HOST.fullmatch(value):
        raise BadArgument(
            f"host is an address to listen at, such as 127.0.0.1, ::1 or 0.0.0.0, not {value!r}"
        )
    return value


def check_names(value: object) -> str:
    """Checks comma-separated host names; `*` is any."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else [""]
    for name in names:
        if name != "*" and (value != "" and not _HOST.fullmatch(name.strip("[]"))):
            raise BadArgument(
                "allow_host is a host's name without port, several with commas, or * for any, not "
                f"{value!r}"
            )
    return ",".join(name.lower() for name in names if name)


def check_addresses(value: object) -> str:
    """Checks comma-separated addresses or networks; `*` is any."""
    import ipaddress  # late: most calls of the command line do not need it

    if not isinstance(value, str):
        raise BadArgument(f"forwarded_allow_ips is a list of addresses with commas, not {value!r}")
    addresses = [one.strip() for one in value.split(",") if one.strip()]
    for one in addresses:
        try:
            if one != "*":
                ipaddress.ip_network(one, strict=False)
        except ValueError:
            raise BadArgument(
                f"forwarded_allow_ips is the proxy's address or network, or * for any, not {one!r}"
            ) from None
    return ",".join(addresses)


def check_switch(value: object) -> bool:
    """Checks a switch; from the environment it is a text."""
    text = str(value).lower()
    if text not in _TRUE + _FALSE:
        raise BadArgument(f"keys is true or false, not {value!r}")
    return text in _TRUE


def check_file(value: object) -> str:
    """Checks a file's path."""
    if not isinstance(value, str) or "\0" in value:
        raise BadArgument(f"sign_in_file is the path of a file, not {value!r}")
    return value


def check_products(value: object) -> str:
    """Checks the address below which the service may open areas for products; empty for none."""
    if not isinstance(value, str):
        raise BadArgument(f"products is an address such as s3://bucket/areas, not {value!r}")
    if value:
        from genlock.core.products_url import read_products_url

        read_products_url(value)
    return value


def check_prefix(value: object) -> str:
    """Checks the prefix of metric names."""
    if not isinstance(value, str) or not _METRIC.fullmatch(value):
        raise BadArgument(
            "metrics_prefix is a word of letters, digits and _, such as genlock or coditect, not "
            f"{value!r}"
        )
    return value


def one_of(name: str, choices: tuple[str, ...]) -> Callable[[object], str]:
    """Returns a check for one of these words."""

    def check(value: object) -> str:
        if value not in choices:
            raise BadArgument(f"{name} is one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return check


def whole(name: str, least: int, most: int) -> Callable[[object], int]:
    """Returns a check for a whole number."""

    def check(value: object) -> int:
        text = str(value)
        if isinstance(value, bool) or not (
            text.isascii() and text.isdigit() and least <= int(text) <= most
        ):
            raise BadArgument(f"{name} is a whole number from {least} to {most}, not {value!r}")
        return int(text)

    return check


def check_claim_config(value: object) -> str:
    """Checks parts of the document's `claimConfig`, as comma-separated NAME=MILLISECONDS."""
    pairs = (
        [pair.strip() for pair in value.split(",") if pair.strip()]
        if isinstance(value, str)
        else ["?"]
    )
    given: dict[str, int] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in CLAIM_CONFIG.values() or name in given:
            raise BadArgument(
                "claim_config is NAME=MILLISECONDS, each name once, of "
                f"{', '.join(CLAIM_CONFIG.values())}; not {value!r}"
            )
        given[name] = whole(f"claim_config {name}", 1, _LONGEST_MS)(text)
    return ",".join(f"{name}={number}" for name, number in given.items())


def check_grace(value: object) -> float:
    """Checks how long a shutdown may take, in seconds."""
    try:
        seconds = (
            float(value)
            if isinstance(value, (str, int, float)) and not isinstance(value, bool)
            else -1.0
        )
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise BadArgument(f"grace_seconds is a number of seconds from 0 to 3600, not {value!r}")
    return int(seconds) if seconds == int(seconds) else seconds


CHECKS: Final[dict[str, Callable[[object], Any]]] = {
    "serve_host": check_host,
    "serve_port": whole("port", 0, 65535),
    "serve_allow_host": check_names,
    "serve_keys": check_switch,
    "serve_forwarded_allow_ips": check_addresses,
    "serve_metrics_prefix": check_prefix,
    "serve_log_level": one_of("log_level", _LEVELS),
    "serve_log_format": one_of("log_format", _FORMATS),
    "serve_grace_seconds": check_grace,
    "serve_connections": whole("connections", 1, 1_000_000),
    "serve_rate": whole("rate", 0, 1_000_000),
    "serve_tenant_operations": whole("tenant_operations", 1, 100_000),
    "serve_streams": whole("streams", 1, 100_000),
    "serve_api_tenant": check_tenant,
    "serve_api_project": check_project,
    "serve_claim_config": check_claim_config,
    "serve_sign_in_file": check_file,
    "serve_products": check_products,
}

DEFAULTS: Final[dict[str, Any]] = {
    "serve_host": "127.0.0.1",
    "serve_port": PORT,
    "serve_allow_host": "",
    "serve_keys": None,
    "serve_forwarded_allow_ips": "",
    "serve_metrics_prefix": "genlock",
    "serve_log_level": "info",
    "serve_log_format": None,
    "serve_grace_seconds": 10,
    "serve_connections": 20_000,
    "serve_rate": None,
    "serve_tenant_operations": 256,
    "serve_streams": 128,
    "serve_api_tenant": "default",
    "serve_api_project": "default",
    "serve_claim_config": "",
    "serve_sign_in_file": "",
    "serve_products": "",
}
"""None means that the default depends on the situation. The service requires keys wherever others
could reach it. The log is readable text on a terminal, else JSON. A key may send 1,000 requests a
second; callers that need no key are not limited."""
