"""Decodes JSON, MessagePack and plain values into types. All such code goes through here, because
only one thread at a time may build a decoder.

msgspec caches on each struct class how to decode it, and sets this cache entry before it is
complete, so that a type may contain itself. A second thread that decodes the struct meanwhile uses
the incomplete entry, and the process crashes. A complete entry never changes.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_made: dict[Any, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()


@overload
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Returns the shared JSON decoder of a type."""
    found = _made.get(kind)
    if found is None:
        with _making:
            found = _made.get(kind)
            if found is None:
                found = _made[kind] = msgspec.json.Decoder(kind)
    return found


def packed_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Returns a new MessagePack decoder of a type."""
    with _making:
        return msgspec.msgpack.Decoder(kind)


@overload
def decode(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode(data: bytes | str, kind: Any) -> Any: ...
def decode(data: bytes | str, kind: Any) -> Any:
    """Decodes JSON into a value of this type."""
    return decoder(kind).decode(data)


@overload
def convert(value: Any, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Converts plain values into a value of this type. Without `strict`, "5" is taken for 5."""
    decoder(kind)  # fills msgspec's cache for the type
    return msgspec.convert(value, kind, strict=strict)
