"""JSON, MessagePack and plain values to types. All that do it come here, as one thread at a time
may make a decoder.

msgspec notes at a struct how it is decoded when it first meets it, and notes it before the note is
whole, so that a type may hold itself. A second thread that meets the struct meanwhile takes the
half-made note, and the process crashes. Once made, a note is never touched again.
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
    """The decoder of a type; the same one for all who ask."""
    found = _made.get(kind)
    if found is None:
        with _making:
            found = _made.get(kind)
            if found is None:
                found = _made[kind] = msgspec.json.Decoder(kind)
    return found


def packed_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of a type from MessagePack."""
    with _making:
        return msgspec.msgpack.Decoder(kind)


@overload
def decode(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode(data: bytes | str, kind: Any) -> Any: ...
def decode(data: bytes | str, kind: Any) -> Any:
    """The value that these bytes are."""
    return decoder(kind).decode(data)


@overload
def convert(value: Any, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """The value that these plain values are; who is not strict takes "5" for 5."""
    decoder(kind)  # what msgspec notes for it is there from here on
    return msgspec.convert(value, kind, strict=strict)
