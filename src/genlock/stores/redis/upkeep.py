"""Purging, the epoch, and looking after the whole."""

from __future__ import annotations

from typing import Any

from genlock.store import Audit, Key
from genlock.stores.redis.link import Link
from genlock.stores.redis.wire import Names, field_of
from genlock.stores.redis.writing import gone


def purge(link: Link, names: Names, birth: bytes, key: Key, before_version: int, base: bytes, where: str) -> None:
    """Drops the record's events below a version and swaps the base in."""
    said = link.run("purge", [names.store, names.place(*key[:2])], birth, field_of(key.kind, key.id), before_version, base)
    if said == b"gone":
        raise gone(where)


def raise_epoch(link: Link, names: Names, birth: bytes, epoch: int, where: str) -> bool:
    """Was the epoch lower?"""
    said = link.run("raise", [names.store], birth, epoch)
    if said == b"gone":
        raise gone(where)
    return bool(said == b"done")


def audit(link: Link, names: Names) -> Audit:
    """Every place with anything in it, and those whose parts do not fit together."""
    places: list[tuple[str, str]] = []
    faults: list[str] = []
    for tenant in sorted(name.decode() for name in link.call("SMEMBERS", names.tenants)):
        for project in (name.decode() for name in link.call("ZRANGE", names.projects(tenant), 0, -1)):
            fault = _look(link, names.place(tenant, project))
            if fault is None:
                continue
            places.append((tenant, project))
            faults += [f"{tenant}/{project}: {fault}"] if fault else []
    return Audit(places, faults)


def _look(link: Link, place: str) -> str | None:
    """What is wrong with a project, nothing if all is well; None if there is nothing in it."""
    answers: list[Any] = link.exchange(
        [("HGET", f"{place}:m", "head"), ("HLEN", f"{place}:h"), ("HLEN", f"{place}:b"), ("XINFO", "STREAM", f"{place}:f")]
    )
    head, records, bodies, stream = answers
    if not records and not bodies:
        return None
    if records != bodies:
        return f"there are {records} records and {bodies} bodies"
    about = dict(zip(stream[::2], stream[1::2], strict=True)) if isinstance(stream, list) else {}
    last = int(about.get(b"last-generated-id", b"0-0").partition(b"-")[0])
    return "" if last == int(head or 0) else f"the feed ends at {last}, and {int(head or 0)} positions were given"
