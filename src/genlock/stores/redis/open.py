"""Opens a server: identifies it, checks that it is as durable as the URL promises, and checks the
owner of the store. Also audits a store."""

from __future__ import annotations

import secrets
from importlib.metadata import version
from typing import Any, NamedTuple

from genlock.errors import StoreError, StoreForeign, StoreMissing, StoreReadOnly
from genlock.store import Audit
from genlock.stores.connection_pool import Refused
from genlock.stores.redis.connection import RedisConnection
from genlock.stores.redis.settings import Settings
from genlock.stores.redis.wire import Names

FORMAT = 1
OLDEST_SERVER = (7, 0)


class Opened(NamedTuple):
    """The results of opening a store."""

    birth: bytes
    read_only: bool


def open_store(
    connection: RedisConnection, settings: Settings, names: Names, *, create: bool
) -> Opened:
    """Opens the store, and creates it if needed and allowed. Two processes may open it at the same
    time."""
    info, config, found = connection.exchange(
        [
            ("INFO",),
            ("CONFIG", "GET", "*fsync*"),
            ("HMGET", names.store, "format", "birth", "made_by"),
        ],
    )
    said = _said(info)
    _check_server(settings, said)
    if said["role"] != "master":
        if isinstance(found, Refused):
            raise found
        if found[0] is None:
            raise StoreReadOnly(
                f"{settings.where} is a replica without a store: open its master once"
            )
        return Opened(_birth(found, settings), read_only=True)
    _check_durability(settings, said, config)
    if settings.alone and int(said["connected_slaves"]):
        raise StoreError(
            f"{settings.where}: alone=on, and the server has {said['connected_slaves']} replicas: "
            "leave alone=on out"
        )
    if settings.arguments.get("username"):
        connection.run("trial", [names.store])
    if isinstance(found, Refused) or found[0] is None:
        if not create:
            raise StoreMissing(
                f"{settings.where}: there is no store yet; to make one, type: genlock db create URL"
            )
        found = connection.run(
            "open", [names.store], FORMAT, secrets.token_bytes(8), version("genlock")
        )
    return Opened(_birth(found, settings), read_only=False)


def _birth(found: list[Any], settings: Settings) -> bytes:
    form, birth, made_by = found
    if form is None or birth is None:
        raise StoreForeign(
            f"{settings.where}: the keys belong to another program: name another prefix (?prefix=…)"
        )
    if int(form) > FORMAT:
        raise StoreForeign(
            f"{settings.where} is of format {int(form)}, and this version of Genlock knows formats "
            f"up to {FORMAT}: install genlock {made_by.decode()} or later"
        )
    return bytes(birth)


def _said(info: bytes | Refused) -> dict[str, str]:
    """Returns the server's answer to INFO, by name."""
    if isinstance(info, Refused):
        raise info
    return dict(
        line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line
    )


def _check_server(settings: Settings, said: dict[str, str]) -> None:
    number = said.get("valkey_version") or said["redis_version"]
    if tuple(int(part) for part in number.split(".")[:2]) < OLDEST_SERVER:
        raise StoreForeign(
            f"{settings.where}: the server is of version {number}, and Genlock needs 7.0 or later"
        )
    if said.get("cluster_enabled") == "1":
        raise StoreForeign(
            f"{settings.where}: the server is part of a cluster, and Genlock cannot use one yet: "
            "name a server of its own"
        )
    policy = said.get("maxmemory_policy", "noeviction")
    if int(said.get("maxmemory", "0")) and policy.startswith("allkeys"):
        raise StoreError(
            f"{settings.where}: with maxmemory-policy {policy} the server drops records when "
            "memory is short: set it to noeviction"
        )


def _check_durability(
    settings: Settings, said: dict[str, str], found: list[bytes] | Refused
) -> None:
    """Checks that the server is as durable as the URL promises. Where CONFIG is not allowed, INFO
    only shows whether there is an append-only file."""
    if settings.durability == "none":
        return
    if said.get("aof_enabled") != "1":
        raise StoreError(
            f"{settings.where}: the server has no append-only file, so a restart would lose "
            "everything: set appendonly yes,"
            " or write durability=none in the URL if nothing need last"
        )
    if isinstance(found, Refused):
        return
    config = {
        str(name, "ascii"): str(value, "ascii")
        for name, value in zip(found[::2], found[1::2], strict=True)
    }
    syncs = config.get("appendfsync", settings.durability)
    wanted = settings.durability
    if syncs == "no" or (wanted == "always" and syncs != "always"):
        raise StoreError(
            f"{settings.where}: durability={wanted}, and the server has appendfsync {syncs}: set "
            f"it, or say durability={_weaker(syncs)}"
        )
    if wanted == "always" and config.get("no-appendfsync-on-rewrite") == "yes":
        raise StoreError(
            f"{settings.where}: durability=always, and the server has no-appendfsync-on-rewrite "
            "yes: set it to no"
        )


def _weaker(syncs: str) -> str:
    return "none" if syncs == "no" else syncs


def audit(connection: RedisConnection, names: Names) -> Audit:
    """Returns every project with data, and the inconsistent projects."""
    projects: list[tuple[str, str]] = []
    faults: list[str] = []
    for tenant in sorted(name.decode() for name in connection.call("SMEMBERS", names.tenants)):
        for project in (
            name.decode() for name in connection.call("ZRANGE", names.projects(tenant), 0, -1)
        ):
            fault = _look(connection, names.place(tenant, project))
            if fault is None:
                continue
            projects.append((tenant, project))
            faults += [f"{tenant}/{project}: {fault}"] if fault else []
    return Audit(projects, faults)


def _look(connection: RedisConnection, place: str) -> str | None:
    """Returns what is wrong with a project; "" if nothing is, and None if the project is empty."""
    answers: list[Any] = connection.exchange(
        [
            ("HGET", f"{place}:m", "head"),
            ("HLEN", f"{place}:h"),
            ("HLEN", f"{place}:b"),
            ("XINFO", "STREAM", f"{place}:f"),
        ]
    )
    head, records, bodies, stream = answers
    if not records and not bodies:
        return None
    if records != bodies:
        return f"there are {records} records and {bodies} bodies"
    about = dict(zip(stream[::2], stream[1::2], strict=True)) if isinstance(stream, list) else {}
    last = int(about.get(b"last-generated-id", b"0-0").partition(b"-")[0])
    return (
        ""
        if last == int(head or 0)
        else f"the feed ends at {last}, and {int(head or 0)} positions were given"
    )
