"""Payloads: an item holds 400 KB, so they cannot be kept in the table. Where nobody said where else, they are refused."""

from __future__ import annotations

from typing import BinaryIO

from genlock.errors import OverLimit, ResultNotFound
from genlock.store import Key


class NoPayloads:
    """`genlock.store.Payloads` that refuses."""

    def __init__(self, table: str) -> None:
        self._table = table

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Always refused."""
        raise OverLimit(
            f"{len(data)} bytes for {'/'.join(key)} are too many for an item of table {self._table}, and its URL names no place for "
            "payloads (payloads=s3://bucket/prefix): submit a reference to the result instead"
        )

    def open(self, key: Key, digest: str) -> BinaryIO:
        """There is none."""
        raise ResultNotFound(f"{'/'.join(key)} has no payload {digest}: table {self._table} keeps none")

    def drop(self, key: Key, digest: str) -> None:
        """There is nothing to remove."""
