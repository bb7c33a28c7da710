"""Payloads that a store keeps in pieces: none has to be in memory whole on its way out."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import msgspec

from genlock.store import Key

PIECE = 256 * 1024


def reader_of(fetch: Callable[[int], bytes], size: int) -> BinaryIO:
    """A binary reader of a payload of this size; `fetch` brings a piece, counted from 1."""
    return cast(BinaryIO, io.BufferedReader(_Pieces(fetch, size), PIECE))


def payload_name(key: Key, digest: str) -> bytes:
    """A name of one length: no two lists of names read the same."""
    return hashlib.sha256(msgspec.json.encode([*key, digest])).digest()


class _Pieces(io.RawIOBase):
    """Reads a payload piece by piece, each when it is wanted."""

    def __init__(self, fetch: Callable[[int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._at = 0
        self._number = 0
        self._piece = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        number, offset = divmod(self._at, PIECE)
        if self._number != number + 1:
            self._piece = self._fetch(number + 1)
            self._number = number + 1
        part = self._piece[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)
