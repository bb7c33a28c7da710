"""A round: loads the records of a batch, decides in order, commits once, and reports the outcome of
each item.

Here time, ids, records and the processes of this machine become facts. Nothing is remembered from
one round to the next except how unchanged bytes were decoded.

An item is answered only if every record that it was decided on is committed or was read in this
round. Items that conflict are handed back, to be decided again. Reactions are not decided in the
round whose changes cause them: a second round runs them when the first is known to be done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime

from genlock.core.agent_roles import NO_ROLES, AgentRoles
from genlock.core.commands import (
    AdoptResult,
    ClaimTask,
    Command,
    DiscardRefused,
    KeepRefused,
    NoteEpoch,
    ObserveTask,
    RegisterSession,
    RenewLease,
    ReportProgress,
    SubmitResult,
)
from genlock.core.decision import Decision
from genlock.core.events import ClaimExpired
from genlock.core.facts import Facts, ObservedTask, OutageGrace, keys_from_command, keys_from_record
from genlock.core.keys import FEATURE, PROJECT, SESSION, TASK, TENANT, Key, project_key, tenant_key
from genlock.core.model import (
    Overlap,
    Process,
    ProjectRecord,
    Record,
    SessionRecord,
    TaskRecord,
    TenantRecord,
)
from genlock.core.observation import Observation
from genlock.core.policy import PROFILES, Overlapping, Policy, TenantLimits
from genlock.core.reasons import Cause
from genlock.core.rules import decide
from genlock.core.task.relate import SYSTEM
from genlock.core.task.view import seems_silent
from genlock.engine.commit import (
    NOT_YET,
    Answer,
    BatchCommit,
    DecodeCache,
    LoadedRecord,
    loaded_record,
)
from genlock.engine.feed_watch import FeedRange, feed_ranges_by_project
from genlock.engine.jobs import Item, plain_item
from genlock.engine.limits import Counts, claimed
from genlock.engine.outage_grace import OutageTracker
from genlock.engine.overlap import ModulesInFlight
from genlock.engine.processes import gone
from genlock.engine.tracks import TrackView, needs_view
from genlock.errors import BadArgument, GenlockError, NotAllowed, OverLimit
from genlock.store import (
    Committed,
    Observed,
    Page,
    PendingLoad,
    Query,
    Store,
    Stored,
    start_load,
)

_FRESH_DIGITS = 32
_NOT_READ = 2**63
_OBSERVED_TIMES = 4
"""How many times a round rereads records whose files keep changing."""
_STALE_SECONDS = 0.5
"""A load that is older than this is repeated."""


class BatchRound:
    """One load-decide-commit on one store."""

    def __init__(
        self,
        store: Store,
        counts: Counts,
        *,
        profile: str = "local",
        memo: DecodeCache | None = None,
        outages: OutageTracker | None = None,
        observe: Callable[[list[Key], datetime], None] | None = None,
    ) -> None:
        """With `outages`, claims that fell due during an outage may be spared. `observe` turns the
        edits of other tools into events before any decision on the records. Without it, the caller
        must do that."""
        self.store = store
        self.counts = counts
        self.profile = profile
        self.memo = memo or DecodeCache()
        self.now: datetime
        self.epoch = _NOT_READ
        """The lowest epoch that this round has read. Everything is decided in it. If the epoch
        rises before the commit, the commit conflicts."""
        self.loaded_records: dict[Key, LoadedRecord] = {}
        self._observe = observe
        self.observed: dict[Key, Observed] = {}
        """Records whose files other tools have edited, without an event so far."""
        self._unreadable: dict[Key, str] = {}
        """Tasks whose files cannot be read, with the reasons."""
        self._prefetched_pages: dict[Query, Page] = {}
        self._found_claims: dict[Query, list[LoadedRecord]] = {}
        self._outages = outages
        self._graces: dict[tuple[str, str], OutageGrace | None] = {}
        self._settings: dict[tuple[str, str], tuple[Policy, TenantLimits]] = {}
        self._agent_roles: dict[tuple[str, str], AgentRoles] = {}
        self._claims: dict[str, int] = {}
        """The number of claims by tenant, if they are limited."""
        self._added: dict[str, int] = {}
        """The number of claims by tenant that this round adds."""
        self._overdue: dict[str, int] = {}
        """The number of counted claims by tenant whose lease is over."""
        self._noted_overdue: dict[str, int] = {}
        """The number of overdue claims by tenant that this round has ended."""
        self._tracks: dict[tuple[str, str], TrackView] = {}
        self._in_flight: dict[tuple[str, str], ModulesInFlight] = {}
        self._new_sessions: set[Key] = set()
        """Sessions that this round registers, by a command or by a grant."""
        self._gone: dict[Process | None, bool] = {}
        self._heard: dict[Key, datetime | None] = {}
        """The processes that are gone. Each is checked once in a round, because one process may
        hold many claims."""
        self._fresh = ""
        self._fresh_at = 0
        self._most_events = store.limits.events
        self.batch_commit = BatchCommit(store, outages)
        """The changes that this round writes."""
        self._sent: list[LoadedRecord] = []
        """The records of these changes."""
        self.troubled = False
        """Did any record conflict or fail?"""
        self.load_seconds = 0.0
        self._pending_load: tuple[list[Key], PendingLoad, float] | None = None
        """The keys, the pending answer and the start time of a load."""
        self._outdated: Set[Key] = frozenset()

    # Loading

    def start_load(self, items: Sequence[Item]) -> None:
        """Starts to load the records that these commands name. `prepare` for some or all of them
        takes the answer."""
        keys = list(self._keys_of(items))
        self._pending_load = keys, start_load(self.store, keys), time.monotonic()

    def discard_prefetched(self, keys: Set[Key]) -> None:
        """Discards prefetched records that have changed since their load was started."""
        self._outdated = keys

    def load(self, keys: Iterable[Key], prefetched_queries: Sequence[Query] = ()) -> None:
        """Reads the records that this round has not read yet, and the pages that it is likely to
        `find`."""
        loaded_records = self.loaded_records
        unread = [key for key in keys if key not in loaded_records]
        start = time.perf_counter()
        records, pages, self.now, epoch = self._read(unread, prefetched_queries)
        self.epoch = min(self.epoch, epoch)
        self.load_seconds += time.perf_counter() - start
        self._prefetched_pages.update(zip(prefetched_queries, pages, strict=True))
        self._add_loaded(unread, records)

    def _read(
        self, keys: Sequence[Key], queries: Sequence[Query]
    ) -> tuple[Mapping[Key, Stored], Sequence[Page], datetime, int]:
        """Reads the records. If other tools have edited their files, turns the edits into events
        and reads again."""
        records, pages, now, epoch, observed = self.store.load(keys, queries)
        for _ in range(_OBSERVED_TIMES):
            edited = [each for each in observed if not each.what.now.fault]
            if self._observe is None or not edited:
                break
            self._observe([each.key for each in edited], now)
            records, pages, now, epoch, observed = self.store.load(keys, queries)
        for each in observed:
            if each.what.now.fault:
                self._unreadable[each.key] = each.what.now.fault
            else:
                self.observed[each.key] = each
        return records, pages, now, epoch

    def _add_loaded(self, keys: Iterable[Key], records: Mapping[Key, Stored]) -> None:
        """Adds what was read. Records that do not exist are added without content."""
        if self._outages is not None:
            self._outages.found(self.now)
        loaded_records, decode = self.loaded_records, self.memo.decode
        for key in keys:
            stored = records.get(key)
            loaded_records[key] = loaded_record(
                key, stored, None if stored is None else decode(stored)
            )

    def find(self, query: Query) -> Page:
        """Returns the page that was prefetched for this query, only once; otherwise queries the
        store."""
        page = self._prefetched_pages.pop(query, None)
        return self.store.find(query) if page is None else page

    def find_claims(self, query: Query, *, cached: bool = False) -> list[LoadedRecord]:
        """Finds the claims of a session; with `cached`, returns those found earlier in this
        round."""
        known = self._found_claims.get(query) if cached else None
        if known is None:
            known = self._found_claims[query] = self.add_found(self.find(query).records)
        return known

    def discard_pages(self) -> None:
        """Discards prefetched pages: records were written since they were read."""
        self._prefetched_pages.clear()

    def add_found(self, found: Iterable[Stored]) -> list[LoadedRecord]:
        """Adds records that `find` has just read. They replace what this round had loaded, unless
        it has changed that already."""
        loaded_records = []
        if self.store.limits.observes:
            found = list(found)
            unread = [stored.key for stored in found if stored.key not in self.loaded_records]
            if unread:
                self.load(unread)
            return [self.loaded_records[stored.key] for stored in found]
        for stored in found:
            loaded = self.loaded_records.get(stored.key)
            if loaded is None or (not loaded.sealed and loaded.read_digest != stored.digest):
                loaded = self.loaded_records[stored.key] = loaded_record(
                    stored.key, stored, self.memo.decode(stored)
                )
            loaded_records.append(loaded)
        return loaded_records

    def add_decoded(self, found: Iterable[tuple[Stored, Record]]) -> None:
        """Adds records that have just been found and decoded."""
        for stored, record in found:
            if stored.key not in self.loaded_records:
                self.loaded_records[stored.key] = loaded_record(stored.key, stored, record)

    def settings(self, place: tuple[str, str]) -> tuple[Policy, TenantLimits]:
        """Returns the policy of a project and the limits of its tenant, as loaded in this round."""
        known = self._settings.get(place)
        if known is not None:
            return known
        project_record = self.loaded_records.get(project_key(*place))
        tenant_record = self.loaded_records.get(tenant_key(place[0]))
        project = project_record.record if project_record else None
        tenant = tenant_record.record if tenant_record else None
        policy = project.policy if isinstance(project, ProjectRecord) else self.store.limits.policy
        limits = tenant.limits if isinstance(tenant, TenantRecord) else PROFILES[self.profile]
        self._settings[place] = policy, limits
        roles = project.agent_roles if isinstance(project, ProjectRecord) else None
        self._agent_roles[place] = roles or NO_ROLES
        return policy, limits

    def agent_roles(self, place: tuple[str, str]) -> AgentRoles:
        """Returns the table of roles of a project, as loaded in this round."""
        self.settings(place)
        return self._agent_roles[place]

    def outage_grace(self, place: tuple[str, str]) -> OutageGrace | None:
        """Returns the grace after an outage for this project, if there is one. Looked up once in a
        round."""
        if self._outages is None or not self._outages.found(self.now):
            return None
        if place not in self._graces:
            self._graces[place] = self._outages.outage_grace(place, self.now)
        return self._graces[place]

    def is_limited(self, place: tuple[str, str]) -> bool:
        """Does the project, or its tenant, have a limit that needs counting?"""
        policy, limits = self.settings(place)
        return (
            limits.max_concurrent_claims is not None
            or limits.max_active_sessions is not None
            or counts_neighbours(policy)
        )

    def tracks(self, place: tuple[str, str]) -> TrackView | None:
        """Returns the agents on the project's tracks, if its policy depends on them."""
        policy = self.settings(place)[0]
        if not needs_view(policy):
            return None
        if place not in self._tracks:
            self._tracks[place] = TrackView(self.store, place, policy)
        return self._tracks[place]

    def modules_in_flight(self, place: tuple[str, str]) -> ModulesInFlight | None:
        """Returns the modules of the project's work in flight, if its policy depends on them."""
        if self.settings(place)[0].overlap is Overlapping.OFF:
            return None
        if place not in self._in_flight:
            self._in_flight[place] = self.counts.modules_in_flight(place)
        return self._in_flight[place]

    def note_epoch(self, places: Iterable[tuple[str, str]]) -> None:
        """Adds the store's epoch to the records of projects that do not know it yet."""
        for place in places:
            loaded = self.loaded_records.get(project_key(*place))
            if (
                loaded is not None
                and isinstance(loaded.record, ProjectRecord)
                and loaded.record.epoch < self.epoch
            ):
                self.decide(plain_item(NoteEpoch(loaded.key, SYSTEM)))

    # Deciding

    def prepare(
        self,
        items: Sequence[Item],
        besides: Iterable[Key] = (),
        prefetched_queries: Sequence[Query] = (),
    ) -> None:
        """Loads all records for the decisions on these commands: first those that the commands
        name, then those that the records name."""
        if self._pending_load is not None:
            self._take_load(*self._pending_load)
        else:
            self.load(dict.fromkeys(besides) | self._keys_of(items), prefetched_queries)
        if self._outages is not None:
            for place in {item.command.key[:2] for item in items}:
                self.outage_grace(place)
        self.load_related(items)

    def _take_load(self, keys: list[Key], pending: PendingLoad, at: float) -> None:
        """Takes the answer of the load that was started. If that was long ago, the store may have
        been unavailable since, so everything is loaded again."""
        self._pending_load = None
        start = time.perf_counter()
        records, _, self.now, epoch, _ = pending.answers()
        self.load_seconds += time.perf_counter() - start
        if time.monotonic() - at > _STALE_SECONDS:
            self.load(keys)
            return
        self.epoch = min(self.epoch, epoch)
        self._add_loaded([key for key in keys if key not in self._outdated], records)
        settings = [key for key in keys if key in self._outdated and key.kind in (PROJECT, TENANT)]
        if settings:
            self.load(settings)

    def _keys_of(self, items: Sequence[Item]) -> dict[Key, None]:
        """Returns the keys that the commands name, and notes them in the items."""
        keys: dict[Key, None] = {}
        places: set[tuple[str, str]] = set()
        for item in items:
            command = item.command
            key = command.key
            keys[key] = None
            places.add(key[:2])
            item.wanted = keys_from_command(command)
            for wanted in item.wanted:
                keys[wanted] = None
        for tenant, project in places:
            keys[project_key(tenant, project)] = None
            keys[tenant_key(tenant)] = None
        return keys

    def load_related(self, items: Iterable[Item]) -> None:
        """Loads the records that the commands need according to the records loaded so far."""
        missing: dict[Key, None] = {}
        for item in items:
            command = item.command
            wanted = keys_from_record(self.loaded_records[command.key].record, command)
            if wanted:
                item.wanted += wanted
            for key in item.wanted:
                if key not in self.loaded_records:
                    missing[key] = None
        if missing:
            self.load(missing)

    def facts(self, item: Item, record: Record | None) -> Facts:
        """Returns the facts for this command, besides its record."""
        command, loaded_records, wanted = item.command, self.loaded_records, item.wanted
        key, by, kind = command.key, command.by, type(command)
        place = key[:2]
        policy, limits = self.settings(place)
        agent_roles = self._agent_roles[place]
        outage_grace = self._graces.get(place) if self._graces else None
        if not wanted and kind is SubmitResult:
            # By far the most common cases, here and below: they need no other facts.
            return Facts(
                now=self.now,
                epoch=self.epoch,
                policy=policy,
                limits=limits,
                fresh=self._fresh_id(),
                outage_grace=outage_grace,
                agent_roles=agent_roles,
            )
        session = holder = None
        holder_gone = False
        holder_heard = None
        others: Mapping[str, ObservedTask] = {}
        claims = sessions = None
        if kind is ClaimTask or kind is RenewLease or kind is ReportProgress:
            session = loaded_records[wanted[0]].record
            if (
                session is not None
                and len(wanted) == 1
                and limits.max_concurrent_claims is None
                and not counts_neighbours(policy)
            ):
                return Facts(
                    now=self.now,
                    epoch=self.epoch,
                    policy=policy,
                    limits=limits,
                    fresh=self._fresh_id(),
                    session=session,  # type: ignore[arg-type]
                    outage_grace=outage_grace,
                    agent_roles=agent_roles,
                )
        refused = task = None
        if kind is AdoptResult:
            refused = loaded_records[item.wanted[0]].record
        elif (kind is DiscardRefused or kind is KeepRefused) and item.wanted:
            task = loaded_records[item.wanted[0]].record
            if kind is KeepRefused:
                session = loaded_records[item.wanted[1]].record
        if len(wanted) > 1 or (wanted and session is None):
            others = self._others(wanted)
            if (
                isinstance(record, TaskRecord)
                and record.claim is not None
                and record.claim.session != by.session
            ):
                loaded = loaded_records.get(key.beside(SESSION, record.claim.session))
                holder = loaded.record if loaded else None
                if isinstance(holder, SessionRecord):
                    holder_gone = self._is_gone(holder.process)
                    if seems_silent(holder, record.claim, self.now):
                        holder_heard = self._last_heard(key.beside(SESSION, holder.id))
        if kind is RegisterSession and isinstance(record, SessionRecord):
            holder_gone = self._is_gone(record.process)
        if kind is ClaimTask and limits.max_concurrent_claims is not None:
            claims = self._claims_of(key.tenant, limits.max_concurrent_claims)
        on_track, earlier = self._of_track(command, record)
        new_session = _new_session(item, session, record)
        if (
            new_session is not None
            and limits.max_active_sessions is not None
            and new_session not in self._new_sessions
        ):
            added = sum(other.tenant == key.tenant for other in self._new_sessions)
            sessions = added + self.counts.sessions(
                key.tenant, self.now, limits.max_active_sessions - added
            )
        return Facts(
            now=self.now,
            epoch=self.epoch,
            policy=policy,
            limits=limits,
            fresh=self._fresh_id(),
            session=session,  # type: ignore[arg-type]
            holder=holder,  # type: ignore[arg-type]
            holder_gone=holder_gone,
            holder_heard=holder_heard,
            others=others,
            refused=refused,  # type: ignore[arg-type]
            task=task,  # type: ignore[arg-type]
            observation=self._observation(command),
            outage_grace=outage_grace,
            agent_roles=agent_roles,
            claims=claims,
            sessions=sessions,
            on_track=on_track,
            overlaps=self._overlaps(command, record),
            earlier_in_track=earlier,
        )

    def _observation(self, command: Command) -> Observation | None:
        """Returns the pending observation of the task's files, unless this round has already
        recorded it."""
        if type(command) is not ObserveTask or self.loaded_records[command.key].seen is not None:
            return None
        observed = self.observed.get(command.key)
        return None if observed is None else observed.what

    def _is_gone(self, process: Process | None) -> bool:
        known = self._gone.get(process)
        if known is None:
            known = self._gone[process] = gone(process, shared=self.store.limits.shared)
        return known

    def _last_heard(self, session: Key) -> datetime | None:
        if session not in self._heard:
            self._heard[session] = self.counts.last_heard(session)
        return self._heard[session]

    def _claims_of(self, tenant: str, limit: int) -> int:
        """Returns the number of the tenant's live claims: counted once in a round, plus the claims
        that this round adds.

        Overdue claims are searched only if they would make a difference.
        """
        if tenant not in self._claims:
            self._claims[tenant] = self.counts.claims(tenant)
        claims = self._claims[tenant] + self._added.get(tenant, 0)
        if claims < limit:
            return claims
        if tenant not in self._overdue:
            self._overdue[tenant] = self.counts.overdue_claims(
                tenant, self.now, self._claims[tenant]
            )
        return claims - self._overdue[tenant] + self._noted_overdue.get(tenant, 0)

    def _of_track(
        self, command: Command, record: Record | None
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """For a claim, returns the other agents on the task's track, and the tasks that come before
        it there."""
        if type(command) is not ClaimTask or not isinstance(record, TaskRecord):
            return (), ()
        view = self.tracks(command.key[:2])
        if view is None:
            return (), ()
        return view.others(record.task.track, command.by.agent), view.before(record.task)

    def _overlaps(self, command: Command, record: Record | None) -> tuple[Overlap, ...]:
        """For a claim, returns the work in flight that shares modules with the task."""
        if type(command) is not ClaimTask or not isinstance(record, TaskRecord):
            return ()
        view = self.modules_in_flight(command.key[:2])
        return () if view is None else view.overlaps(record.task, command.by)

    def _others(self, wanted: Iterable[Key]) -> Mapping[str, ObservedTask]:
        seen = {}
        for key in wanted:
            # As it was read: no decision may depend on an uncommitted change.
            other = self.loaded_records[key]
            if isinstance(other.read, TaskRecord):
                seen[key.id] = ObservedTask(
                    other.read_version, other.read.state, other.read.task.parent, other.read.task
                )
        return seen

    def _fresh_id(self) -> str:
        at = self._fresh_at
        if at >= len(self._fresh):
            # Few at first: most rounds have one or two commands.
            self._fresh = os.urandom(_FRESH_DIGITS // 2 * (128 if self._fresh else 4)).hex()
            at = 0
        self._fresh_at = at + _FRESH_DIGITS
        return self._fresh[at : self._fresh_at]

    def decide(self, item: Item) -> Decision | GenlockError | None:
        """Decides one command on the present records. Returns None if the record already has the
        most events for one change."""
        command = item.command
        loaded = self.loaded_records[command.key]
        if loaded.sealed and len(loaded.sealed) + _MOST_EVENTS_A_DECISION > self._most_events:
            return None
        try:
            if self._unreadable and type(command) is ClaimTask:
                self._check_readable(command.key)
            decision = decide(loaded.record, command, self.facts(item, loaded.record))
        except GenlockError as error:
            item.decision = error
            return error
        except _UNWRITABLE as error:
            # An edge accepted a value that it should have refused. The caller gets an error, and
            # the lane continues.
            item.decision = BadArgument(f"{command.key.id}: cannot be decided ({error})")
            return item.decision  # type: ignore[no-any-return]
        if decision.events:
            if len(loaded.sealed) + len(decision.events) > self._most_events:
                if loaded.sealed:
                    return None
                item.decision = OverLimit(
                    f"{command.key.id}: {len(decision.events)} events in one change"
                )
                return item.decision  # type: ignore[no-any-return]
            try:
                before = loaded.record
                loaded.apply(decision)
            except _UNWRITABLE as error:
                item.decision = BadArgument(f"{command.key.id}: cannot be written ({error})")
                return item.decision  # type: ignore[no-any-return]
            if type(command) is ObserveTask:
                # From here on the record includes the edit; the write is based on these files.
                loaded.seen = self.observed[command.key].seen
            if self._claims or (item.wanted and decision.followups):
                self._count(item, before, decision)
            if self._tracks and command.key[:2] in self._tracks:
                self._tracks[command.key[:2]].count(before, decision.record)
            if self._in_flight and command.key[:2] in self._in_flight:
                self._in_flight[command.key[:2]].note(decision.record)
            if before is None and type(command) is RegisterSession:
                self._new_sessions.add(command.key)
        item.decision = decision
        if decision.followups:
            item.decision = decision = self._register(decision)
        return decision

    def is_unreadable(self, key: Key) -> bool:
        """Can the task's file not be read?"""
        return key in self._unreadable

    def _check_readable(self, key: Key) -> None:
        """Raises NotAllowed for a task whose file cannot be interpreted."""
        fault = self._unreadable.get(key)
        if fault is not None:
            raise NotAllowed(f"{fault}; repair the file, then claim the task")

    def _register(self, decision: Decision) -> Decision:
        """A granted claim registers its session in the same commit, so that a holder that is killed
        right afterwards is known to be gone.

        No decision depends on it: the session may be registered even if the claim conflicts.
        """
        rest = []
        for command in decision.followups:
            if type(command) is RegisterSession and command.key in self.loaded_records:
                item = plain_item(command)
                loaded = self.loaded_records[command.key]
                loaded.apply(decide(loaded.record, command, self.facts(item, loaded.record)))
            else:
                rest.append(command)
        return Decision(decision.outcome, decision.events, decision.record, tuple(rest))

    def _count(self, item: Item, before: Record | None, decision: Decision) -> None:
        """Counts what this decision adds or removes, for the next one."""
        if self._claims:
            tenant = item.command.key.tenant
            self._added[tenant] = (
                self._added.get(tenant, 0) + claimed(decision.record) - claimed(before)
            )
            found = sum(
                type(event) is ClaimExpired and event.cause is Cause.LEASE_OVER
                for event in decision.events
            )
            self._noted_overdue[tenant] = self._noted_overdue.get(tenant, 0) + found
        if (
            item.wanted
            and decision.followups
            and self.loaded_records[item.wanted[0]].record is None
        ):
            self._new_sessions.add(item.wanted[0])

    def changed_records(self, item: Item) -> list[LoadedRecord]:
        """Returns the records on which the item's decision depends and that this round changes."""
        keys = (item.command.key, *item.wanted)
        return [
            loaded
            for loaded in map(self.loaded_records.get, keys)
            if loaded is not None and loaded.sealed
        ]

    # Committing

    def commit(self, until: float) -> list[LoadedRecord]:
        """Writes all changes. Marks conflicting records and returns the committed ones."""
        self.seal()
        return self.take_answers(self.batch_commit.write(until))

    def seal(self) -> bool:
        """Builds the changes to write, and returns whether there are any. Nothing may be decided in
        this round afterwards."""
        self.batch_commit.epoch = self.epoch
        most = self.store.limits.body_bytes
        for loaded in self.loaded_records.values():
            if not loaded.sealed:
                continue
            change = loaded.change()
            largest = len(change[5])
            for _, _, body in loaded.sealed:
                if len(body) > largest:
                    largest = len(body)
            if largest > most:
                loaded.error = OverLimit(
                    f"{loaded.key.kind} {loaded.key.id}: {len(change.body):,} bytes, this store "
                    f"takes {most:,}"
                )
                self.troubled = True
                continue
            self.batch_commit.changes.append(change)
            self._sent.append(loaded)
        return bool(self._sent)

    def feed_ranges(self, answers: Sequence[Answer]) -> list[FeedRange]:
        """Returns the positions of the committed events in the feeds, by project."""
        return feed_ranges_by_project(
            [
                (change[0][:2], answer[0], len(change[7]))
                for change, answer in zip(self.batch_commit.changes, answers, strict=True)
                if type(answer) is Committed
            ]
        )

    def take_answers(self, answers: Sequence[Answer]) -> list[LoadedRecord]:
        """Marks records that conflicted or failed, and returns the committed ones."""
        committed = []
        counted = self.counts.is_kept
        for loaded, answer in zip(self._sent, answers, strict=True):
            if type(answer) is Committed:
                loaded.position = answer.position
                committed.append(loaded)
                if counted and loaded.key.kind in (TASK, FEATURE):
                    self.counts.changed(loaded.key, loaded.read, loaded.record)
            elif isinstance(answer, GenlockError):
                loaded.error = answer
            else:
                loaded.conflicted = True
                loaded.unsure = answer is NOT_YET
        if len(committed) < len(self._sent) or self.troubled:
            self.troubled = True
            self.counts.forget()
        return committed


_MOST_EVENTS_A_DECISION = 8
_UNWRITABLE = (OverflowError, RecursionError, TypeError, ValueError)


def counts_neighbours(policy: Policy) -> bool:
    """Does a claim depend on other claims in the project?"""
    return needs_view(policy) or policy.overlap is not Overlapping.OFF


def _new_session(item: Item, session: Record | None, record: Record | None) -> Key | None:
    """Returns the session that this command would register, if any."""
    command = item.command
    if type(command) is ClaimTask:
        return item.wanted[0] if session is None else None
    return (
        command.key
        if type(command) is RegisterSession and not command.implied and record is None
        else None
    )
