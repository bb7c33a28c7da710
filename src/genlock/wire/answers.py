"""Answers as JSON, both ways. In a batch an entry is an answer or `{"error": problem}`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from genlock.core.agent_roles import AgentRoles
from genlock.core.definition import Definition
from genlock.core.model import Task
from genlock.core.plan import Plan
from genlock.core.plan_faults import Fault
from genlock.core.reasons import Status
from genlock.errors import GenlockError
from genlock.safe_text import safe_json
from genlock.typed_json import decoder
from genlock.wire.operations import Call, answer_type
from genlock.wire.problems import Problem, problem_of, revive


class WireDefinition(Struct, omit_defaults=True):
    """A task to be added, and the state it starts in."""

    task: Task
    backlog: bool = False
    finished: Status | None = None


class WirePlan(Struct, omit_defaults=True):
    """A plan that has been read."""

    project: str | None
    tracks: dict[str, str] | None
    tasks: tuple[WireDefinition, ...]
    notes: tuple[Fault, ...] = ()
    agent_roles: AgentRoles | None = None


class Failed(Struct):
    """An entry of a batch that is an error."""

    error: Problem


def _hook(value: Any) -> Any:
    if isinstance(value, GenlockError):
        return Failed(problem_of(value))
    raise TypeError(f"{type(value).__name__} is nothing that an answer may hold")


PIECE: Final = 1000

_encoder = msgspec.json.Encoder(enc_hook=_hook, order=None)


def _encode(value: Any) -> bytes:
    """Encodes without characters that control a terminal, because curl prints the bytes there."""
    return safe_json(_encoder.encode(value))


def encode_answer(answer: Any) -> bytes:
    """Returns an answer as bytes."""
    return _encode(to_wire(answer) if type(answer) is Plan else answer)


def encode_in_pieces(answer: Any) -> list[bytes]:
    """Returns the same bytes in pieces of a thousand entries: while the encoder writes a piece, it
    keeps the interpreter from all other threads. The pieces are not joined, and written entries are
    freed on the way if nothing else refers to them. For very large answers, joining and freeing
    would each take as long as all the rest."""
    held = [to_wire(answer) if type(answer) is Plan else answer]
    del answer
    return list(_pieces(held))


def _pieces(held: list[Any]) -> Iterator[bytes]:
    value = held.pop()  # so that nothing else refers to it
    if isinstance(value, Struct):
        long = {
            name: field
            for name in value.__struct_fields__
            if _is_long(field := getattr(value, name))
        }
        marks = {name: b"\0%d\0" % at for at, name in enumerate(long)}  # no JSON has a NUL in it
        shell = _encode(
            msgspec.structs.replace(value, **{name: Raw(mark) for name, mark in marks.items()})
        )
        del value
        for name, mark in marks.items():
            before, _, shell = shell.partition(mark)
            yield before
            yield from _entries([long.pop(name)])
        yield shell
    elif _is_long(value):
        held.append(value)
        del value
        yield from _entries(held)
    else:
        yield _encode(value)


def _is_long(value: Any) -> bool:
    return isinstance(value, (tuple, list, dict)) and len(value) > PIECE


def _entries(held: list[Any]) -> Iterator[bytes]:
    """Yields the entries of a long value in pieces, each freed when it is written."""
    value = held.pop()
    named = isinstance(value, dict)
    rest = list(value.items() if named else value)
    del value
    rest.reverse()
    yield b"{" if named else b"["
    while rest:
        piece = rest[: -PIECE - 1 : -1]
        del rest[-PIECE:]
        yield _encode(dict(piece) if named else piece)[1:-1]
        if rest:
            yield b","
    yield b"}" if named else b"]"


@functools.cache
def answer_decoder(call: type[Call[Any]]) -> Callable[[bytes], Any]:
    """Returns the decoder for this call's answer."""
    kind = answer_type(call)
    if kind is Plan:
        plan = decoder(WirePlan)
        return lambda data: from_wire(plan.decode(data))
    if get_origin(kind) is dict and GenlockError in get_args(get_args(kind)[1]):
        return _decode_each(
            next(one for one in get_args(get_args(kind)[1]) if one is not GenlockError)
        )
    decode: Callable[[bytes], Any] = decoder(kind).decode
    return decode


def _decode_each(kind: Any) -> Callable[[bytes], Any]:
    entries, good, bad = decoder(dict[str, Raw]), decoder(kind), decoder(Failed)

    def decode(data: bytes) -> dict[str, Any]:
        return {
            name: revive(bad.decode(entry).error)
            if bytes(entry).startswith(b'{"error":')
            else good.decode(entry)
            for name, entry in entries.decode(data).items()
        }

    return decode


def to_wire(plan: Plan) -> WirePlan:
    """Returns the plan in its wire form."""
    return WirePlan(
        plan.project,
        plan.tracks,
        tuple(WireDefinition(*definition) for definition in plan.tasks),
        plan.notes,
        plan.agent_roles,
    )


def from_wire(plan: WirePlan) -> Plan:
    """Returns the plan from its wire form."""
    return Plan(
        plan.project,
        plan.tracks,
        tuple(Definition(each.task, each.backlog, each.finished) for each in plan.tasks),
        plan.notes,
        plan.agent_roles,
    )
