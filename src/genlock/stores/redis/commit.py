"""A commit: one script for each project, all of them sent at once, and the server's answers.

This is the hot path. Its loop runs once for every change, so it unpacks tuples instead of naming
fields, and makes hardly any calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from genlock.errors import OutcomeUnknown, StoreForeign, StoreUnavailable
from genlock.store import Change, Committed, Conflict
from genlock.stores.connection_pool import Refused
from genlock.stores.cursors import feed_mark
from genlock.stores.epoch_guard import EpochNumber
from genlock.stores.redis.connection import Argument, Command, RedisConnection
from genlock.stores.redis.settings import Settings
from genlock.stores.redis.wire import Names, field_of, head_of, packed_entries, read_head
from genlock.stores.round_trips import Steps

_CONFLICT = Conflict()

Answers = list[Committed | Conflict]
Place = tuple[str, str]
Run = tuple[str, Sequence[str], Sequence[Argument]]


class Context(NamedTuple):
    """The context that all commits of one store share."""

    settings: Settings
    names: Names
    birth: bytes


def arguments_of(changes: Sequence[Change]) -> list[Argument]:
    """Returns the script's arguments for the changes of one project."""
    told: list[Argument] = []
    for (
        _,
        _,
        kind,
        id,
    ), read_version, read_digest, version, digest, body, index, events, _ in changes:
        told += (
            field_of(kind, id),
            read_head(read_version, read_digest),
            head_of(version, digest),
            packed_entries(kind, id, index),
            body,
            events[0][0] if events else version,
            len(events),
        )
        told += [head_of(number, seal) + event for number, seal, event in events]
    return told


def runs_of(context: Context, places: dict[Place, list[Change]], epoch: int | None) -> list[Run]:
    """Returns a script for each project. The scripts write nothing if the epoch has changed."""
    settings, names, birth = context
    first: list[Argument] = [
        birth,
        0 if settings.alone else 1,
        settings.wait,
        "" if epoch is None else epoch,
    ]
    return [
        (
            "commit",
            (names.store, names.place(*place)),
            [*first, feed_mark(*place), *arguments_of(changes)],
        )
        for place, changes in places.items()
    ]


def commit(
    connection: RedisConnection,
    context: Context,
    changes: Sequence[Change],
    epoch: int | None = None,
) -> Steps[Answers]:
    """Writes each change that still fits, unless it was decided in another epoch than the present
    one."""
    places: dict[Place, list[Change]] = {}
    for change in changes:
        places.setdefault(change[0][:2], []).append(change)
    if epoch is None and len(places) > 1:
        # A change based on no earlier read was decided in the present epoch. If the epoch rises at
        # the first project, the others must not proceed.
        epoch = int(connection.call("HGET", context.names.store, "epoch") or 0)
    said = yield from _run(connection, context, places, epoch)
    new = [place for place, answer in said.items() if answer[0] == b"new"]
    if new:
        said |= yield from _run_new(
            connection,
            context,
            {place: places[place] for place in new},
            epoch,
            done=_any_done(said),
        )
    answers = {place: iter(_answers(said[place], mine)) for place, mine in places.items()}
    return [next(answers[change[0][:2]]) for change in changes]


def _run(
    connection: RedisConnection,
    context: Context,
    places: dict[Place, list[Change]],
    epoch: int | None,
    *,
    done: bool = False,
) -> Steps[dict[Place, list[Any]]]:
    """Returns the server's answer for each project. Raises an error if it refused. `done` tells
    whether an earlier script has written something."""
    wait = context.settings.wait
    more: list[Command] = (
        [("WAIT", wait, round(context.settings.wait_seconds * 1000))] if wait else []
    )
    answers = yield from connection.ran_all(runs_of(context, places, epoch), *more)
    said = dict(zip(places, answers, strict=False))
    done = done or _any_done(said)
    for answer in said.values():
        _check(answer, context, done=done)
    moved = next((answer for answer in said.values() if answer[0] == b"moved"), None)
    if moved is not None:
        _begin_epoch(connection, context, *moved[1:])
    if wait and done and (isinstance(answers[-1], Refused) or answers[-1] < wait):
        raise OutcomeUnknown(
            f"{context.settings.where}: the commit is on {answers[-1]} of {wait} replicas, and may "
            "not outlive a failover"
        )
    return said


def _begin_epoch(
    connection: RedisConnection,
    context: Context,
    kept: bytes,
    found: bytes,
    last: bytes,
    seconds: bytes,
    microseconds: bytes,
) -> None:
    """Handles a server whose replication id differs from the recorded one. Does nothing if another
    process began the epoch, or if the id changes again."""
    number = EpochNumber(int(seconds) + int(microseconds) / 1_000_000).above(int(last))
    if (
        connection.run("begin_epoch", [context.names.store], context.birth, kept, found, number)
        == b"gone"
    ):
        raise gone(context.settings.where)


def _any_done(said: dict[Place, Any]) -> bool:
    return any(type(answer) is list and answer[0] == b"done" for answer in said.values())


def _run_new(
    connection: RedisConnection,
    context: Context,
    places: dict[Place, list[Change]],
    epoch: int | None,
    *,
    done: bool,
) -> Steps[dict[Place, list[Any]]]:
    """The same for new projects, which are listed first."""
    try:
        _register(connection, context.names, places)
    except Refused as refused:
        _check(refused, context, done=done)
    return (yield from _run(connection, context, places, epoch, done=done))


def _check(answer: list[Any] | Refused, context: Context, *, done: bool) -> None:
    """Raises an error if one project's script was refused. If another's was executed, something was
    written."""
    where = context.settings.where
    if isinstance(answer, Refused):
        if done:
            raise OutcomeUnknown(
                f"{where}: a part of the commit was refused ({answer}), and another was done"
            )
        raise answer
    if answer[0] == b"gone":
        raise gone(where)
    if answer[0] == b"few":
        message = f"{where}: wait={context.settings.wait}, and only {answer[1]} replicas are there"
        raise (
            OutcomeUnknown(message) if done else StoreUnavailable(f"{message}; nothing was written")
        )


def gone(where: str) -> StoreForeign:
    """Returns our error for a server that now has another store, or none."""
    return StoreForeign(
        f"{where}: the store that was opened is not there any more: see whether this is the right "
        "server, and open it again"
    )


def _register(connection: RedisConnection, names: Names, places: Iterable[Place]) -> None:
    """Lists the projects before any data is in them. A listed project may be empty; an unlisted one
    would not be found."""
    commands: list[Command] = []
    for tenant, project in places:
        commands += [("ZADD", names.projects(tenant), 0, project), ("SADD", names.tenants, tenant)]
    for answer in connection.exchange(commands):
        if isinstance(answer, Refused):
            raise answer
    for answer in connection.run_all([("place", (names.place(*place),), ()) for place in places]):
        if isinstance(answer, Refused):
            raise answer


def _answers(said: list[Any], changes: list[Change]) -> Answers:
    """Returns the answer to each change. If the epoch rose, all changes were decided in the old one
    and conflict."""
    if said[0] in (b"raised", b"moved"):
        return [_CONFLICT] * len(changes)
    position, lost = said[1], set(said[2:])
    answers: Answers = []
    for number, change in enumerate(changes, 1):
        if number in lost:
            answers.append(_CONFLICT)
        else:
            position += len(change[7])
            answers.append(Committed(position))
    return answers
