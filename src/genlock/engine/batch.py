"""A round: load what a batch needs, decide in order, commit once, and say what came of each item.

This is the one place where time, ids, the store's content and the processes of this machine become *facts*. Nothing is
remembered from one round to the next but the decoding of bytes that have not changed.

An item is answered only if every record it was decided on is committed or was freshly read. What conflicts is handed back to be
decided again on what is there then. Reactions are *not* decided here with the change that causes them: they are handed out, and
the lane runs them as a second round once this one is known to be done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime

from genlock.core.commands import (
    AdoptResult,
    CheckDue,
    ClaimTask,
    DiscardRefused,
    Hear,
    KeepRefused,
    NoteEpoch,
    RegisterSession,
    RenewLease,
    SpawnSubtasks,
    SubmitResult,
)
from genlock.core.decision import Decision
from genlock.core.events import ClaimExpired
from genlock.core.facts import Facts, Mercy, Seen, told, wants
from genlock.core.keys import PROJECT, SESSION, TASK, TENANT, Key, project_key, tenant_key
from genlock.core.model import Process, ProjectRecord, Record, SessionRecord, TaskRecord, TenantRecord
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.core.reasons import Cause
from genlock.core.rules import decide
from genlock.core.task.relate import SYSTEM
from genlock.engine.cells import Cell, Memo, cell_of
from genlock.engine.commits import NOT_YET, Answer, Commit
from genlock.engine.counts import Counts, claimed
from genlock.engine.jobs import Item, plain_item
from genlock.engine.outages import Outages
from genlock.engine.processes import gone
from genlock.engine.spans import Span, spans_by_place
from genlock.errors import BadArgument, GenlockError, OverLimit
from genlock.store import Asked, Committed, Page, Query, Store, Stored, ask, look

_FRESH_DIGITS = 32
_LONG_AGO = 0.5
"""Seconds after which what was asked for is asked for again."""


class Round:
    """One load-decide-commit on one store."""

    def __init__(
        self, store: Store, counts: Counts, *, profile: str = "local", memo: Memo | None = None, outages: Outages | None = None
    ) -> None:
        """Where `outages` are heeded, what fell due during one may have to be spared."""
        self.store = store
        self.counts = counts
        self.profile = profile
        self.memo = memo or Memo()
        self.now: datetime
        self.epoch = 0
        self.cells: dict[Key, Cell] = {}
        self._foreseen: dict[Query, Page] = {}
        self._outages = outages
        self._mercies: dict[tuple[str, str], Mercy | None] = {}
        self._settings: dict[tuple[str, str], tuple[Policy, TenantLimits]] = {}
        self._claims: dict[str, int] = {}
        """Claims by tenant, where they are limited; what this round adds to them; and how many of them time has ended."""
        self._added: dict[str, int] = {}
        self._lapsed: dict[str, int] = {}
        self._found_lapsed: dict[str, int] = {}
        """Of those, the ones that this round has written down."""
        self._newcomers: set[Key] = set()
        """Sessions that this round makes known, by registering them or by a grant."""
        self._gone: dict[Process | None, bool] = {}
        """Which processes are known to be gone; looked at once a round, as many claims are one process's."""
        self._fresh = ""
        self._fresh_at = 0
        self._most_events = store.limits.events
        self.drawn_up = Commit(store, outages)
        """What is to be written."""
        self._fitting: list[Cell] = []
        """The cells of these changes."""
        self.troubled = False
        """Is there anything that could not be committed?"""
        self.load_seconds = 0.0
        self._asked: tuple[list[Key], Asked, float] | None = None
        """What was asked for ahead and is not heard of yet, and when that was."""
        self._outdated: Set[Key] = frozenset()

    # Loading

    def ask(self, items: Sequence[Item]) -> None:
        """Asks for all that can be told from these commands, to be heard of when the round is prepared for them, or for some of them."""
        keys = list(self._keys_of(items))
        self._asked = keys, ask(self.store, keys), time.monotonic()

    def forget(self, keys: Set[Key]) -> None:
        """What was asked for of these is old, and counts no more."""
        self._outdated = keys

    def load(self, keys: Iterable[Key], foreseen: Sequence[Query] = ()) -> None:
        """Reads the records that this round has not read yet, and with them what it will be asked to `find`."""
        cells = self.cells
        unread = [key for key in keys if key not in cells]
        start = time.perf_counter()
        (records, self.now, self.epoch), pages = look(self.store, unread, foreseen)
        self.load_seconds += time.perf_counter() - start
        self._foreseen.update(zip(foreseen, pages, strict=True))
        self._take_in(unread, records)

    def _take_in(self, keys: Iterable[Key], records: Mapping[Key, Stored]) -> None:
        """Makes cells of what was read, and of what was not there."""
        if self._outages is not None:
            self._outages.found(self.now)
        cells, decode = self.cells, self.memo.decode
        for key in keys:
            stored = records.get(key)
            cells[key] = cell_of(key, stored, None if stored is None else decode(stored))

    def find(self, query: Query) -> Page:
        """What the store finds now, or found when this was foreseen, which counts once."""
        page = self._foreseen.pop(query, None)
        return self.store.find(query) if page is None else page

    def forget_foreseen(self) -> None:
        """What was found before something else was written here is found anew."""
        self._foreseen.clear()

    def take(self, found: Iterable[Stored]) -> list[Cell]:
        """Makes cells of records that `find` has just read. What has changed since it was loaded is known anew, if it is untouched."""
        cells = []
        for stored in found:
            cell = self.cells.get(stored.key)
            if cell is None or (not cell.sealed and cell.read_digest != stored.digest):
                cell = self.cells[stored.key] = cell_of(stored.key, stored, self.memo.decode(stored))
            cells.append(cell)
        return cells

    def know(self, found: Iterable[tuple[Stored, Record]]) -> None:
        """Makes cells of records that have just been found and decoded."""
        for stored, record in found:
            if stored.key not in self.cells:
                self.cells[stored.key] = cell_of(stored.key, stored, record)

    def settings(self, place: tuple[str, str]) -> tuple[Policy, TenantLimits]:
        """The policy of a project and the limits of its tenant, as loaded in this round."""
        known = self._settings.get(place)
        if known is not None:
            return known
        project_cell = self.cells.get(project_key(*place))
        tenant_cell = self.cells.get(tenant_key(place[0]))
        project = project_cell.record if project_cell else None
        tenant = tenant_cell.record if tenant_cell else None
        policy = project.policy if isinstance(project, ProjectRecord) else Policy()
        limits = tenant.limits if isinstance(tenant, TenantRecord) else PROFILES[self.profile]
        self._settings[place] = policy, limits
        return policy, limits

    def mercy(self, place: tuple[str, str]) -> Mercy | None:
        """What an outage is an excuse for in this project, if it is one; found out once a round."""
        if self._outages is None or not self._outages.found(self.now):
            return None
        if place not in self._mercies:
            self._mercies[place] = self._outages.mercy(place, self.now)
        return self._mercies[place]

    def is_limited(self, place: tuple[str, str]) -> bool:
        """Does anything have to be counted for whoever wants something of this project?"""
        limits = self.settings(place)[1]
        return limits.max_concurrent_claims is not None or limits.max_active_sessions is not None

    def heed_epoch(self, places: Iterable[tuple[str, str]]) -> None:
        """Projects that have not heard of the store's epoch write it down, with whatever else is written."""
        for place in places:
            cell = self.cells.get(project_key(*place))
            if cell is not None and isinstance(cell.record, ProjectRecord) and cell.record.epoch < self.epoch:
                self.decide(plain_item(NoteEpoch(cell.key, SYSTEM)))

    # Deciding

    def prepare(self, items: Sequence[Item], besides: Iterable[Key] = (), foreseen: Sequence[Query] = ()) -> None:
        """Loads all that these commands will be decided on: what can be told from the commands, then from the records."""
        if self._asked is not None:
            self._hear(*self._asked)
        else:
            self.load(dict.fromkeys(besides) | self._keys_of(items), foreseen)
        if self._outages is not None:
            for place in {item.command.key[:2] for item in items}:
                self.mercy(place)
        self.prepare_others(items)

    def _hear(self, keys: list[Key], asked: Asked, at: float) -> None:
        """What was asked for. If it is long ago, the store may have been away since, and what it said then says nothing of now."""
        self._asked = None
        start = time.perf_counter()
        records, self.now, self.epoch = asked.answers()
        self.load_seconds += time.perf_counter() - start
        if time.monotonic() - at > _LONG_AGO:
            self.load(keys)
            return
        self._take_in([key for key in keys if key not in self._outdated], records)
        settings = [key for key in keys if key in self._outdated and key.kind in (PROJECT, TENANT)]
        if settings:
            self.load(settings)

    def _keys_of(self, items: Sequence[Item]) -> dict[Key, None]:
        """What can be told from the commands, which say it themselves from now on."""
        keys: dict[Key, None] = {}
        places: set[tuple[str, str]] = set()
        for item in items:
            command = item.command
            key = command.key
            keys[key] = None
            places.add(key[:2])
            item.wanted = told(command)
            for wanted in item.wanted:
                keys[wanted] = None
        for tenant, project in places:
            keys[project_key(tenant, project)] = None
            keys[tenant_key(tenant)] = None
        return keys

    def prepare_others(self, items: Iterable[Item]) -> None:
        """Loads what the records, now known, say that the commands need besides."""
        missing: dict[Key, None] = {}
        for item in items:
            command = item.command
            wanted = wants(self.cells[command.key].record, command)
            if wanted:
                item.wanted += wanted
            for key in item.wanted:
                if key not in self.cells:
                    missing[key] = None
        if missing:
            self.load(missing)

    def facts(self, item: Item, record: Record | None) -> Facts:
        """What is so besides the record, for this command."""
        command, cells, wanted = item.command, self.cells, item.wanted
        key, by, kind = command.key, command.by, type(command)
        place = key[:2]
        policy, limits = self.settings(place)
        mercy = self._mercies.get(place) if self._mercies else None
        if not wanted and kind is SubmitResult:
            # By far the commonest ones, here and below: nothing else is to be known for them.
            return Facts(now=self.now, epoch=self.epoch, policy=policy, limits=limits, fresh=self._fresh_id(), mercy=mercy)
        session = holder = None
        holder_gone = False
        others: Mapping[str, Seen] = {}
        claims = sessions = None
        if kind is ClaimTask or kind is RenewLease:
            session = cells[wanted[0]].record
            if session is not None and len(wanted) == 1 and limits.max_concurrent_claims is None:
                return Facts(
                    now=self.now,
                    epoch=self.epoch,
                    policy=policy,
                    limits=limits,
                    fresh=self._fresh_id(),
                    session=session,  # type: ignore[arg-type]
                    mercy=mercy,
                )
        refused = task = None
        if kind is AdoptResult:
            refused = cells[item.wanted[0]].record
        elif (kind is DiscardRefused or kind is KeepRefused) and item.wanted:
            task = cells[item.wanted[0]].record
        if len(item.wanted) > 1 or kind is Hear or kind is CheckDue or kind is SpawnSubtasks or (item.wanted and kind is SubmitResult):
            others = self._others(item.wanted)
            if isinstance(record, TaskRecord) and record.claim is not None and record.claim.session != by.session:
                cell = cells.get(key.beside(SESSION, record.claim.session))
                holder = cell.record if cell else None
                holder_gone = isinstance(holder, SessionRecord) and self._is_gone(holder.process)
        if kind is RegisterSession and isinstance(record, SessionRecord):
            holder_gone = self._is_gone(record.process)
        if kind is ClaimTask and limits.max_concurrent_claims is not None:
            claims = self._claims_of(key.tenant, limits.max_concurrent_claims)
        newcomer = _newcomer(item, session, record)
        if newcomer is not None and limits.max_active_sessions is not None and newcomer not in self._newcomers:
            added = sum(other.tenant == key.tenant for other in self._newcomers)
            sessions = added + self.counts.sessions(key.tenant, self.now, limits.max_active_sessions - added)
        return Facts(
            now=self.now,
            epoch=self.epoch,
            policy=policy,
            limits=limits,
            fresh=self._fresh_id(),
            session=session,  # type: ignore[arg-type]
            holder=holder,  # type: ignore[arg-type]
            holder_gone=holder_gone,
            others=others,
            refused=refused,  # type: ignore[arg-type]
            task=task,  # type: ignore[arg-type]
            mercy=mercy,
            claims=claims,
            sessions=sessions,
        )

    def _is_gone(self, process: Process | None) -> bool:
        known = self._gone.get(process)
        if known is None:
            known = self._gone[process] = gone(process)
        return known

    def _claims_of(self, tenant: str, limit: int) -> int:
        """Live ones. Counted once a round; what this round adds counts at once.

        Those that time has ended are looked for only where they would make a difference.
        """
        if tenant not in self._claims:
            self._claims[tenant] = self.counts.claims(tenant)
        claims = self._claims[tenant] + self._added.get(tenant, 0)
        if claims < limit:
            return claims
        if tenant not in self._lapsed:
            self._lapsed[tenant] = self.counts.lapsed(tenant, self.now, self._claims[tenant])
        return claims - self._lapsed[tenant] + self._found_lapsed.get(tenant, 0)

    def _others(self, wanted: Iterable[Key]) -> Mapping[str, Seen]:
        seen = {}
        for key in wanted:
            # As it was read: what this round does to it is not known to be done, and nobody may build on it.
            other = self.cells[key]
            if isinstance(other.read, TaskRecord):
                seen[key.id] = Seen(other.read_version, other.read.state, other.read.task.parent, other.read.task)
        return seen

    def _fresh_id(self) -> str:
        at = self._fresh_at
        if at >= len(self._fresh):
            # Few at first: most rounds are of one command or two.
            self._fresh = os.urandom(_FRESH_DIGITS // 2 * (128 if self._fresh else 4)).hex()
            at = 0
        self._fresh_at = at + _FRESH_DIGITS
        return self._fresh[at : self._fresh_at]

    def decide(self, item: Item) -> Decision | GenlockError | None:
        """Decides one command on the records as they stand; None if the record has had enough events for one change."""
        command = item.command
        cell = self.cells[command.key]
        if cell.sealed and len(cell.sealed) + _MOST_EVENTS_A_DECISION > self._most_events:
            return None
        try:
            decision = decide(cell.record, command, self.facts(item, cell.record))
        except GenlockError as error:
            item.decision = error
            return error
        except _UNWRITABLE as error:
            # An edge let something through that it should have refused; its caller is told, and the lane lives on.
            item.decision = BadArgument(f"{command.key.id}: cannot be decided ({error})")
            return item.decision  # type: ignore[no-any-return]
        if decision.events:
            if len(cell.sealed) + len(decision.events) > self._most_events:
                if cell.sealed:
                    return None
                item.decision = OverLimit(f"{command.key.id}: {len(decision.events)} events in one change")
                return item.decision  # type: ignore[no-any-return]
            try:
                before = cell.record
                cell.apply(decision)
            except _UNWRITABLE as error:
                item.decision = BadArgument(f"{command.key.id}: cannot be written ({error})")
                return item.decision  # type: ignore[no-any-return]
            if self._claims or (item.wanted and decision.also):
                self._count(item, before, decision)
            if before is None and type(command) is RegisterSession:
                self._newcomers.add(command.key)
        item.decision = decision
        if decision.also:
            item.decision = decision = self._register(decision)
        return decision

    def _register(self, decision: Decision) -> Decision:
        """A granted claim registers its session in the same commit: who is killed right after it must be known to be gone.

        Nothing rests on it: whether or not the claim goes through, the session is there.
        """
        rest = []
        for command in decision.also:
            if type(command) is RegisterSession and command.key in self.cells:
                item = plain_item(command)
                cell = self.cells[command.key]
                cell.apply(decide(cell.record, command, self.facts(item, cell.record)))
            else:
                rest.append(command)
        return Decision(decision.outcome, decision.events, decision.record, tuple(rest))

    def _count(self, item: Item, before: Record | None, decision: Decision) -> None:
        """What this decision adds or takes away counts for the next one."""
        if self._claims:
            tenant = item.command.key.tenant
            self._added[tenant] = self._added.get(tenant, 0) + claimed(decision.record) - claimed(before)
            found = sum(type(event) is ClaimExpired and event.cause is Cause.LEASE_OVER for event in decision.events)
            self._found_lapsed[tenant] = self._found_lapsed.get(tenant, 0) + found
        if item.wanted and decision.also and self.cells[item.wanted[0]].record is None:
            self._newcomers.add(item.wanted[0])

    def cells_of(self, item: Item) -> list[Cell]:
        """The changed records among those that the item's decision rests on."""
        keys = (item.command.key, *item.wanted)
        return [cell for cell in map(self.cells.get, keys) if cell is not None and cell.sealed]

    # Committing

    def commit(self, until: float) -> list[Cell]:
        """Writes all that has changed. Conflicting cells are marked; the others, committed, are returned."""
        self.draw_up()
        return self.note(self.drawn_up.write(until))

    def draw_up(self) -> bool:
        """Makes the changes that are to be written; is there anything? Nothing may be decided here from now on."""
        most = self.store.limits.body_bytes
        for cell in self.cells.values():
            if not cell.sealed:
                continue
            change = cell.change()
            largest = len(change[5])
            for _, _, body in cell.sealed:
                if len(body) > largest:
                    largest = len(body)
            if largest > most:
                cell.error = OverLimit(f"{cell.key.kind} {cell.key.id}: {len(change.body):,} bytes, this store takes {most:,}")
                self.troubled = True
                continue
            self.drawn_up.changes.append(change)
            self._fitting.append(cell)
        return bool(self._fitting)

    def spans(self, answers: Sequence[Answer]) -> list[Span]:
        """Where the events of what was committed have come to stand, by project."""
        return spans_by_place(
            [
                (change[0][:2], answer[0], len(change[7]))
                for change, answer in zip(self.drawn_up.changes, answers, strict=True)
                if type(answer) is Committed
            ]
        )

    def note(self, answers: Sequence[Answer]) -> list[Cell]:
        """Marks what conflicted or failed; the rest, committed, is returned."""
        committed = []
        counted = self.counts.is_kept
        for cell, answer in zip(self._fitting, answers, strict=True):
            if type(answer) is Committed:
                cell.position = answer.position
                committed.append(cell)
                if counted and cell.key.kind == TASK:
                    self.counts.changed(cell.key, cell.read, cell.record)
            elif isinstance(answer, GenlockError):
                cell.error = answer
            else:
                cell.conflicted = True
                cell.unsure = answer is NOT_YET
        if len(committed) < len(self._fitting) or self.troubled:
            self.troubled = True
            self.counts.forget()
        return committed


_MOST_EVENTS_A_DECISION = 8
_UNWRITABLE = (OverflowError, RecursionError, TypeError, ValueError)


def _newcomer(item: Item, session: Record | None, record: Record | None) -> Key | None:
    """The session that this command would make known, if there is one."""
    command = item.command
    if type(command) is ClaimTask:
        return item.wanted[0] if session is None else None
    return command.key if type(command) is RegisterSession and not command.implied and record is None else None
