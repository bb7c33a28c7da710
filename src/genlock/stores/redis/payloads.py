"""Payloads are not kept in Redis: its memory is too dear for them."""

from __future__ import annotations

from typing import BinaryIO

from genlock.errors import BadArgument, ResultNotFound
from genlock.store import Key


class NoPayloads:
    """`genlock.store.Payloads` that refuses them."""

    def __init__(self, where: str) -> None:
        self._where = where

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Always `BadArgument`: the result is too large for a record."""
        raise BadArgument(
            f"{self._where} keeps no payloads, and the result of {key.id} has {len(data)} bytes: name a place for them in the URL,"
            " payloads=s3://… or payloads=file://…, or submit a reference"
        )

    def open(self, key: Key, digest: str) -> BinaryIO:
        """There are none."""
        raise ResultNotFound(f"{'/'.join(key)} has no payload {digest}: {self._where} keeps none")

    def drop(self, key: Key, digest: str) -> None:
        """Absent is fine."""
