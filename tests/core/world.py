"""A fleet's records in memory, driven by decide, evolve and react alone: what the engine does, one
command at a time.

Every event is sealed, decoded and folded as it happens, and the fold is compared with what was
decided, to the byte.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from genlock.core import codec
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.agent_roles import NO_ROLES, AgentRoles
from genlock.core.decision import Decision, Reaction
from genlock.core.facts import Facts, ObservedTask, keys_from_command, keys_from_record
from genlock.core.keys import SESSION, TASK, Key
from genlock.core.model import Record, RefusedRecord, SessionRecord, Task, TaskRecord
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.core.rules import amended, decide, evolve, index_of, react

START = datetime(2026, 1, 4, 6, 0, tzinfo=UTC)
TENANT, PROJECT = "acme", "shop"


def key_of(name: str, kind: str = TASK) -> Key:
    return Key(TENANT, PROJECT, kind, name)


def by(session: str, agent: str = "") -> c.Caller:
    return c.Caller(session, agent)


def content(value: Any) -> c.Content:
    """A result as the coordinator packs it."""
    data = msgspec.json.encode(value, order="sorted")
    return c.Content(
        sha256(data).hexdigest(),
        len(data),
        msgspec.Raw(data),
        empty=data in (b"{}", b"[]", b'""', b"null"),
    )


class Cell:
    """One record, and the same record as its own bytes would have it."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.folded: Record | None = None
        self.events: list[e.Event] = []
        self.digest = b""

    @property
    def version(self) -> int:
        return len(self.events)


class World:
    """The records, the clock, and the news that has not been delivered yet."""

    def __init__(
        self,
        *,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        limits: TenantLimits = PROFILES["local"],
        epoch: int = 0,
        agent_roles: AgentRoles = NO_ROLES,
    ) -> None:
        self.policy = policy
        self.agent_roles = agent_roles
        self.limits = limits
        self.epoch = epoch
        self.now = START
        self.gone: set[str] = set()
        """Sessions whose process has vanished."""
        self.cells: dict[Key, Cell] = {}
        self.undelivered: list[Reaction] = []
        self.followups: list[c.Command] = []
        """Every command to another record that a decision asked for."""
        self._fresh = 0

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def cell(self, key: Key) -> Cell:
        return self.cells.setdefault(key, Cell())

    def task(self, name: str) -> TaskRecord:
        record = self.cell(key_of(name)).record
        assert isinstance(record, TaskRecord)
        return record

    @property
    def tasks(self) -> dict[str, TaskRecord]:
        return {
            key.id: cell.record
            for key, cell in self.cells.items()
            if isinstance(cell.record, TaskRecord)
        }

    # Facts, as the engine gathers them

    def seen(self, name: str) -> ObservedTask | None:
        cell = self.cell(key_of(name))
        if not isinstance(cell.record, TaskRecord):
            return None
        return ObservedTask(
            cell.version, cell.record.state, cell.record.task.parent, cell.record.task
        )

    def facts(self, command: c.Command) -> Facts:
        record = self.cell(command.key).record
        wanted = (*keys_from_command(command), *keys_from_record(record, command))
        sessions = {key.id: self._session(key.id) for key in wanted if key.kind == SESSION}
        others = {
            key.id: seen
            for key in wanted
            if key.kind == TASK and (seen := self.seen(key.id)) is not None
        }
        claim = record.claim if isinstance(record, TaskRecord) else None
        beside = self.cell(wanted[0]).record if wanted else None
        holder = claim.session if claim is not None and claim.session != command.by.session else ""
        self._fresh += 1
        return Facts(
            now=self.now,
            epoch=self.epoch,
            policy=self.policy,
            limits=self.limits,
            agent_roles=self.agent_roles,
            fresh=f"{self._fresh:032x}",
            session=sessions.get(command.by.session),
            holder=sessions.get(holder),
            holder_gone=holder in sessions and holder in self.gone,
            others=others,
            refused=beside if isinstance(beside, RefusedRecord) else None,
            task=beside
            if isinstance(beside, TaskRecord)
            and isinstance(command, (c.KeepRefused, c.DiscardRefused))
            else None,
        )

    def _session(self, name: str) -> SessionRecord | None:
        record = self.cell(key_of(name, SESSION)).record
        return record if isinstance(record, SessionRecord) else None

    # Deciding

    def decide(self, command: c.Command, facts: Facts | None = None) -> Decision:
        """What the command would bring; nothing is kept."""
        return decide(self.cell(command.key).record, command, facts or self.facts(command))

    def ask(self, command: c.Command) -> Decision:
        """Decides and keeps; news to others waits in `undelivered`."""
        decision = self.decide(command)
        cell = self.cell(command.key)
        for event in decision.events:
            self._append(command.key, cell, event)
        if decision.events:
            assert decision.record is not None
            cell.record = decision.record
            assert cell.folded is not None
            assert codec.encode_record(cell.folded) == codec.encode_record(decision.record)
        self.followups += decision.followups
        for followups in decision.followups:
            decision = amended(decision, self.ask(followups))
        return decision

    def _append(self, key: Key, cell: Cell, event: e.Event) -> None:
        assert not cell.events or event.timestamp >= cell.events[-1].timestamp, (
            "event times run back"
        )
        sealed = codec.encode_event(event, cell.version + 1, cell.digest)
        cell.folded = evolve(key.kind, cell.folded, codec.decode_event(sealed.body).event)
        cell.digest = sealed.digest
        cell.events.append(event)
        assert cell.folded is not None
        self.undelivered += react(key, cell.folded, event, cell.version)

    def reload(self) -> None:
        """From now on every record is what its bytes say, as after a restart."""
        for key, cell in self.cells.items():
            if cell.record is not None:
                body = codec.encode_record(cell.record)
                cell.record = codec.decode_record(key.kind, body)
                assert codec.encode_record(cell.record) == body

    # News

    def addressed(self, reaction: Reaction) -> list[c.Command]:
        """The commands that a reaction stands for: to one record, or to every task that has it in
        its index."""
        if reaction.waits_on is None:
            return [reaction.command]
        assert isinstance(reaction.command, c.CheckRelated)
        waiting = [
            name
            for name, record in self.tasks.items()
            if reaction.waits_on in index_of(record).waits_on
        ]
        return [replace(reaction.command, key=key_of(name)) for name in waiting]

    def deliver(self, at: int = 0) -> None:
        """One piece of news arrives."""
        for command in self.addressed(self.undelivered.pop(at)):
            self.ask(command)

    def settle(self) -> None:
        """All news arrives, and what follows from it."""
        while self.undelivered:
            self.deliver()

    # Short cuts

    def add(self, name: str, **fields: Any) -> Decision:
        backlog = fields.pop("backlog", False)
        return self.ask(c.AddTask(key_of(name), task=Task(id=name, **fields), backlog=backlog))

    def claim(
        self, name: str, session: str = "s1", agent: str = "alice", lease: float = 60.0
    ) -> Decision:
        return self.ask(c.ClaimTask(key_of(name), by(session, agent), lease_seconds=lease))

    def submit(self, name: str, session: str, generation: int, value: Any = "done") -> Decision:
        return self.ask(
            c.SubmitResult(key_of(name), by(session), generation=generation, content=content(value))
        )

    def finish(self, name: str, session: str = "s9") -> None:
        """Claims and completes a task."""
        assert self.claim(name, session, "finisher").outcome.success
        assert self.submit(name, session, self.task(name).generation).outcome.accepted
