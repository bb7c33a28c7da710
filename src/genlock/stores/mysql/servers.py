"""Which server this is: the epoch rises with it (ADR 35).

MySQL has a UUID for each server. MariaDB has none, but servers that replicate from each other must have different numbers. The nodes of
a cluster that commits on most of them, or on none, count as one: Galera's, and those of a replication group.

A connection asks before it first writes. A server may become a replica and a primary again without breaking a connection, and hears in
between which other one was written to: so each commit looks whether what is kept is still this one.

A replica may be promoted at any moment, and keeps its connections; and some users may write to one. So nothing is written after one has
said that it can only be read.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from genlock.stores.links import Unreachable
from genlock.stores.mysql.faults import READ_ONLY, Broken, Refused
from genlock.stores.mysql.link import Link, Row
from genlock.stores.mysql.queries import Queries

_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


class Heeded(NamedTuple):
    """What a server has said."""

    mark: bytes
    epoch: int


def heed(link: Link, queries: Queries) -> Heeded:
    """Asks; `Refused` where nothing can be written. The epoch has been raised if the store was written to on another server before."""
    try:
        variables, cluster, kept = link.run(queries["look_at_server"].filled())
        found = dict(map(_texts, [*variables.rows, *cluster.rows]))
        ((before, epoch),) = kept.rows
        if found["read_only"] != "OFF":
            raise Refused(READ_ONLY, "the server is a replica, or is set to read_only")
        mark = _mark_of(found).encode()
        return Heeded(mark, epoch if before == mark else _move(link, queries, mark))
    except Broken as broken:
        raise Unreachable(str(broken)) from None  # nothing of the commit has been sent yet


def _mark_of(found: dict[str, str]) -> str:
    if found.get("wsrep_on") == "ON" and found.get("wsrep_cluster_state_uuid", _NO_CLUSTER) not in ("", _NO_CLUSTER):
        return f"galera {found['wsrep_cluster_state_uuid']}"
    if found.get("group_replication_group_name"):
        return f"group {found['group_replication_group_name']}"
    return f"server {found.get('server_uuid') or found['server_id']}"


def _move(link: Link, queries: Queries, mark: bytes) -> int:
    """The store is here now; the epoch. Of several who notice it one writes that: the others wait for its row, and find it done."""
    try:
        *_, kept = link.run(queries["lock_server"].filled())
        ((before,),) = kept.rows
        if before != mark:
            link.run(queries["set_server"].filled(mark=mark))
        if before not in (mark, b""):
            link.run(queries["begin_epoch"].filled(digit=secrets.randbelow(16)))
        *_, present = link.run(queries["unlock_server"].filled())
    except Refused:
        link.roll_back()
        raise
    return int(present.rows[0][0])


def _texts(row: Row) -> tuple[str, str]:
    name, value = (part.decode() if isinstance(part, bytes) else str(part) for part in row)
    return name.lower(), value
