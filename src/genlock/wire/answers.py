"""Answers as JSON, both ways. In a batch an entry is an answer or `{"error": problem}`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from genlock.core.plan import Plan
from genlock.errors import GenlockError
from genlock.typed_json import decoder
from genlock.wire.calls import Call, answer_type
from genlock.wire.plans import WirePlan, from_wire, to_wire
from genlock.wire.problems import Problem, problem_of, revive


class Failed(Struct):
    """An entry of a batch that is an error."""

    error: Problem


def _hook(value: Any) -> Any:
    if isinstance(value, GenlockError):
        return Failed(problem_of(value))
    raise TypeError(f"{type(value).__name__} is nothing that an answer may hold")


_encoder = msgspec.json.Encoder(enc_hook=_hook, order=None)


def encode_answer(answer: Any) -> bytes:
    """An answer's bytes."""
    return _encoder.encode(to_wire(answer) if type(answer) is Plan else answer)


@functools.cache
def answer_decoder(call: type[Call[Any]]) -> Callable[[bytes], Any]:
    """What makes this call's answer of bytes."""
    kind = answer_type(call)
    if kind is Plan:
        plan = decoder(WirePlan)
        return lambda data: from_wire(plan.decode(data))
    if get_origin(kind) is dict and GenlockError in get_args(get_args(kind)[1]):
        return _decode_each(next(one for one in get_args(get_args(kind)[1]) if one is not GenlockError))
    decode: Callable[[bytes], Any] = decoder(kind).decode
    return decode


def _decode_each(kind: Any) -> Callable[[bytes], Any]:
    entries, good, bad = decoder(dict[str, Raw]), decoder(kind), decoder(Failed)

    def decode(data: bytes) -> dict[str, Any]:
        return {
            name: revive(bad.decode(entry).error) if bytes(entry).startswith(b'{"error":') else good.decode(entry)
            for name, entry in entries.decode(data).items()
        }

    return decode
