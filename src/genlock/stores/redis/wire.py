"""How keys, records and index fields are written in Redis.

A project's index is one sorted set of texts, in which every query is a range: a letter for the
field, the kind, the value and the id, with a zero byte between them. Bytes of UTF-8 are in the
order of the letters that they stand for.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

import msgspec

from genlock.errors import StoreCorrupt
from genlock.store import Index, Key

_SIGN = 2**63
_EMPTY = b"\0" * 9

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[str]).decode


class Names:
    """The keys of one store. The part in braces decides the slot on a cluster: everything of one
    project is in one slot."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.store = f"{prefix}:{{store}}"
        self.tenants = f"{self.store}:tenants"
        self.moves = f"{self.store}:moves"
        self.place = lru_cache(maxsize=4096)(self._place)

    def projects(self, tenant: str) -> str:
        """The projects of a tenant."""
        return f"{self._prefix}:{{{_quoted(tenant)}}}:projects"

    def _place(self, tenant: str, project: str) -> str:
        return f"{self._prefix}:{{{_quoted(tenant)}/{_quoted(project)}}}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def field_of(kind: str, id: str) -> str:
    """The hash field of a record within its project."""
    return f"{kind}\0{id}"


def head_of(version: int, digest: bytes) -> bytes:
    """Encodes version and digest for comparison. One head is the prefix of another only if both are
    equal."""
    return b"%c%b%b" % (len(digest), digest, version.to_bytes(8, "big"))


def read_head(version: int, digest: bytes) -> bytes:
    """Returns the head that was read; empty if there was no record."""
    head = head_of(version, digest)
    return b"" if head == _EMPTY else head


def split_head(data: bytes) -> tuple[int, bytes, bytes]:
    """Version, digest, and what follows the head."""
    end = data[0] + 9 if data else 0
    if not data or len(data) < end:
        raise StoreCorrupt("a record or event is cut off")
    return int.from_bytes(data[end - 8 : end], "big"), data[1 : end - 8], data[end:]


def due_text(instant: int) -> str:
    """Encodes an instant as sixteen digits that sort in order of time, even before 1970."""
    if not -_SIGN <= instant < _SIGN:
        raise ValueError(f"{instant} is no instant")
    return f"{instant + _SIGN:016x}"


def packed_entries(kind: str, id: str, index: Index) -> bytes:
    """Returns the entries of a record in the index, with its state first."""
    state, pool, order, due_at, session, parent, waits_on = msgspec.structs.astuple(index)
    entries = [f"t{kind}\0{state}\0{id}", f"a{kind}\0{id}"]
    marks = 3
    if pool is not None:
        entries.append(f"p{kind}\0{pool}\0{'' if order is None else '1' + order}\0{id}")
        marks += 3
    elif order is not None:
        entries.append(f"o{kind}\0{order}\0{id}")
        marks += 2
    if due_at is not None:
        entries.append(f"d{kind}\0{due_text(due_at)}\0{id}")
        marks += 2
    if session is not None:
        entries.append(f"s{kind}\0{session}\0{id}")
        marks += 2
    if parent is not None:
        entries.append(f"c{kind}\0{parent}\0{id}")
        marks += 2
    for dependency in waits_on:
        entries.append(f"w{kind}\0{dependency}\0{id}")
        marks += 2
    packed = _pack(entries)
    # A zero byte in a name would make two records one. The packed entries have extra zero bytes
    # only if a name has one, or if an entry is long.
    if packed.count(0) != marks and sum([entry.count("\0") for entry in entries]) != marks:
        raise ValueError("a name has a zero byte in it")
    return packed


def pool_and_order(packed: bytes) -> tuple[str | None, str | None]:
    """Pool and order in a record's entries."""
    for entry in _unpack(packed):
        if entry[0] == "p":
            _, pool, order, _ = entry.split("\0")
            return pool, order[1:] if order else None
        if entry[0] == "o":
            return None, entry.split("\0")[1]
    return None, None


def index_in(packed: bytes) -> Index:
    """The index fields in a record's entries."""
    found: dict[str, list[str]] = {}
    for entry in _unpack(packed):
        found.setdefault(entry[0], []).append(entry.split("\0")[1])
    due = found.get("d")
    pool, order = pool_and_order(packed)
    return Index(
        state=found["t"][0],
        pool=pool,
        order=order,
        due_at=int(due[0], 16) - _SIGN if due else None,
        session=_first(found, "s"),
        parent=_first(found, "c"),
        waits_on=tuple(found.get("w", ())),
    )


def _first(found: dict[str, list[str]], letter: str) -> str | None:
    return found[letter][0] if letter in found else None


def key_in(field: bytes, tenant: str, project: str) -> Key:
    """The key of the record with this hash field."""
    kind, _, id = field.decode().partition("\0")
    return Key(tenant, project, kind, id)
