"""Keys for services: which key is sent to which address.

A key belongs to one origin (scheme, host and port) and is sent nowhere else. `genlock login
ADDRESS` stores it in `credentials.toml` beside the user's settings, readable by the user alone:

    "https://genlock.example.com" = "glk_…"

Two keys come without an address of their own. `GENLOCK_API_KEY` goes only to an address that the
user or the program chose, never to one that a project's file names, whether trusted or not, nor to
a service on loopback that left us a token (token_files.py). `api_key` in the user's settings file,
from before keys had addresses, goes only to the `url` in that same file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from genlock import token_files
from genlock.errors import BadArgument
from genlock.private_files import write_private
from genlock.settings import (
    BadSetting,
    Setting,
    check,
    check_key,
    line_of,
    read,
    text_of,
    user_file,
    variable,
)

FILE: Final = "credentials.toml"

Keys: TypeAlias = Callable[[str], str | None]
"""A function from a service's address to the key to send there, if any."""

_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def origin_of(address: str) -> str:
    """Returns scheme, host and port, normalized; the scheme's default port is left out."""
    try:
        parts = urlsplit(address.strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError as error:
        raise BadArgument(
            f"this is no address of a service ({error}); one is http://host:8420"
        ) from None
    if scheme not in _PORTS or not host:
        raise BadArgument(
            "a key belongs to the address of a service, such as https://host or http://host:8420"
        )
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}" if port in (None, _PORTS[scheme]) else f"{scheme}://{host}:{port}"


def credentials_file() -> Path:
    """Returns the path of the file with the user's keys."""
    return user_file().with_name(FILE)


def stored_keys() -> dict[str, str]:
    """The stored keys by origin."""
    import tomllib

    path = credentials_file()
    text = text_of(path)
    try:
        values = tomllib.loads(text) if text else {}
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path}: this is no TOML: {error}") from None
    found = {}
    for address, key in values.items():
        try:
            found[origin_of(address)] = check_key(key)
        except BadArgument as error:
            raise BadSetting(f"{path}:{line_of(text, address)}: {error}") from None
    return found


def store_key(address: str, key: str) -> str:
    """Stores the key for this address, replacing an earlier one. Returns its origin."""
    origin = origin_of(address)
    _write(stored_keys() | {origin: check_key(key)})
    return origin


def forget_key(address: str) -> bool:
    """Removes the stored key of this address; False if there was none."""
    keys = stored_keys()
    if keys.pop(origin_of(address), None) is None:
        return False
    _write(keys)
    return True


def keys_for(url: Setting, token_folders: Sequence[Path] = ()) -> Keys:
    """Returns the keys to use for the addresses in `url`, depending on who chose it. The
    environment's key comes before a stored one.

    The environment's key is not sent to a service on loopback that left a token for us: it is not
    needed there, and was hardly meant for that service.
    """
    name = variable("api_key")
    given = os.environ.get(name) if url.source != "project" else None
    if given:
        check("api_key", given, f"environment {name}")

    def key_for(address: str) -> str | None:
        if given and token_files.find(address, token_folders) is None:
            return given
        origin = origin_of(address)
        stored = stored_keys().get(origin)
        return stored if stored is not None else _legacy_key(origin)

    return key_for


def _legacy_key(origin: str) -> str | None:
    """Returns `api_key` of the user's settings file if the `url` in that file has this origin."""
    settings = read(user_file())
    key, url = settings.get("api_key"), settings.get("url")
    if key is None:
        return None
    own = (
        url.value.split(",")
        if url is not None and url.value.lower().startswith(("http://", "https://"))
        else []
    )
    if origin in map(origin_of, own):
        return str(key.value)
    if urlsplit(origin).hostname in _LOOPBACK:
        return None  # it may need no key, and must not get this one
    raise BadSetting(
        f"{key.origin}: api_key is not sent to {origin}, since nothing says that it belongs there; "
        f"store it with its address, type: genlock login {origin}; and then: genlock config unset "
        "--user api_key"
    )


def _write(keys: Mapping[str, str]) -> None:
    import json

    # For printable ASCII, a JSON string is also a TOML string.
    write_private(
        credentials_file(),
        "".join(
            f"{json.dumps(origin)} = {json.dumps(key)}\n" for origin, key in sorted(keys.items())
        ),
    )
