"""A reader of bytes that lie elsewhere in pieces, each of which is fetched when it is wanted."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import msgspec

from genlock.store import Key


def payload_name(key: Key, digest: str) -> bytes:
    """A name of one length: no two lists of names read the same."""
    return hashlib.sha256(msgspec.json.encode([*key, digest])).digest()


def reader_of(fetch: Callable[[int], bytes], size: int, piece: int) -> BinaryIO:
    """Reads `size` bytes; `fetch` gives the piece of that number, from 0 on, all but the last of `piece` bytes."""
    return cast(BinaryIO, io.BufferedReader(_Pieces(fetch, size, piece), piece))


class _Pieces(io.RawIOBase):
    def __init__(self, fetch: Callable[[int], bytes], size: int, piece: int) -> None:
        self._fetch = fetch
        self._size = size
        self._length = piece
        self._at = 0
        self._number = -1
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
        number, offset = divmod(self._at, self._length)
        if self._number != number:
            self._piece = self._fetch(number)
            self._number = number
        part = self._piece[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)
