"""Offers: the tasks of a project that a batch may grant to requests for a next task.

An offer takes the heads of all pools and the tasks that are due, and yields the best task of the
pools that suit the caller. The cost does not grow with the plan. After a conflict it chooses at
random among the first 2, 4, … 64 tasks, so that many coordinators do not compete for the same one.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Set
from itertools import islice

from msgspec.structs import replace

from genlock.core.agent_roles import roles_in_force
from genlock.core.codec import decode_record
from genlock.core.commands import DEFAULT_LEASE_SECONDS, CheckDue, ClaimTask
from genlock.core.decision import Decision
from genlock.core.facts import OutageGrace, inputs_of, keys_from_command
from genlock.core.ids import parse_task_id
from genlock.core.index import microseconds
from genlock.core.keys import Key
from genlock.core.model import TaskRecord
from genlock.core.policy import Order, Overlapping, TrackOrder, Tracks
from genlock.core.reasons import ClaimReason
from genlock.core.results import ClaimRef, ClaimResult
from genlock.core.routing import Pool, order_of, parse_pool, pool_of
from genlock.core.rules import index_of
from genlock.core.task.relate import SYSTEM
from genlock.core.task.view import claimable, overdue, spared_until
from genlock.engine.batch import BatchRound
from genlock.engine.commit import LoadedRecord
from genlock.engine.features import FeatureCount, NearestFeatures
from genlock.engine.jobs import Item, NextTask, plain_item
from genlock.engine.overlap import weight_of
from genlock.engine.tracks import TrackView
from genlock.store import MAX_DUE, Query, Stored

Entry = tuple[str, Stored]
"""The order of a task, and the task."""
Shelf = list[Entry]
"""A list of tasks in their order."""

WIDEST = 64
_MOST_DUE = 64
_MOST_HEADS = 512
_MOST_LOOKED_AT = 512
"""The limit of tasks, in all pools together, whose modules are compared with those of work in
flight."""
_PAGES_IN_GRACE = 4
"""After an outage most of the due claims are spared, and a task that can be claimed may be behind
them."""


class Offer:
    """The tasks of one project that a round may grant."""

    def __init__(
        self,
        round: BatchRound,
        place: tuple[str, str],
        wanted: int,
        attempt: int,
        busy: Set[Key] = frozenset(),
    ) -> None:
        """`wanted` is the number of requests, and `busy` are tasks that are being committed. Those
        are not offered."""
        self._round = round
        self._place = place
        self._wanted = wanted
        self._spread = _spread_of(attempt)
        self.policy = round.settings(place)[0]
        self._agent_roles = roles_in_force(round.agent_roles(place), self.policy)
        self._taken_tracks: set[str] = set()
        tenant, project = place
        heads = heads_for(wanted, attempt, len(busy))
        self._avoids_overlap = self.policy.overlap in (Overlapping.AVOID, Overlapping.FORBID)
        if self._avoids_overlap:
            heads = max(heads, WIDEST)
        self.overlapping = 0
        """The number of ready tasks that were examined in vain for one that shares no modules."""
        self._pools: dict[str, Shelf] = {}
        self._nearest: NearestFeatures | None = None
        """Set with the order closest-to-done, if a task of a feature is ready."""
        self._due_of: dict[str, list[tuple[str, Entry]]] = {}
        """By feature: the pools and tasks of it that became ready because they were due."""
        self._workers: dict[str, set[str]] | None = None
        """By feature: the agents that work on it; read at the first use."""
        self._handed_out: set[Key] = set()
        self.next_due: int | None = None
        """The time at which time itself changes something here next, or should have."""
        self.has_more_due = False
        """Are more tasks due than were checked, and will there be fewer of them once this round is
        written?"""
        self._busy = busy
        self._due: Set[Key] = frozenset()
        self._due = due = self._add_due(busy)
        found = round.find(Query(tenant, project, heads=heads)).records
        self._has_all = heads not in Tally(stored.pool for stored in found).values()
        self._tried_in_vain = 0
        """The number of tasks that were tried and not granted."""
        for stored in found:
            if self._is_free(stored.key):
                self._add(stored.pool or "", stored.order or "", stored)
        if self.policy.order is Order.CLOSEST_TO_DONE and (
            self._due_of or any((stored.order or "").startswith("0") for stored in found)
        ):
            self._nearest = NearestFeatures(
                round.counts.nearest_features(place), round.find, place, max(heads, WIDEST)
            )
        self._firsts: Set[Key] | None = None
        """With `track_order: enforce`: the first unfinished tasks of each track."""
        self._tracks = round.tracks(place)
        if self._tracks is not None and self.policy.track_order is TrackOrder.ENFORCE:
            self._keep_first_in_tracks(self._tracks, busy)
        if due or self._tracks is not None:
            for ready in self._pools.values():
                ready.sort(key=lambda entry: entry[0])
        self._parsed = {pool: parse_pool(pool) for pool in self._pools}

    @property
    def is_empty(self) -> bool:
        """Is there no task for any caller?"""
        return not any(self._pools.values())

    @property
    def is_exhausted(self) -> bool:
        """Were all ready tasks granted? Then only a change makes another task ready, unless a grant
        cannot be written."""
        return self._has_all and not self._tried_in_vain and self.is_empty

    @property
    def size(self) -> int:
        """Returns the number of tasks on offer."""
        return sum(map(len, self._pools.values()))

    def feature_count(self, feature: str) -> FeatureCount | None:
        """Returns the remaining work of a feature that was checked."""
        return self._nearest.count(feature) if self._nearest is not None else None

    def _is_free(self, key: Key) -> bool:
        """Is a task that the store has as ready still free, and not handled elsewhere?"""
        return key not in self._due and key not in self._busy and not self._is_taken(key)

    def _is_taken(self, key: Key) -> bool:
        """Was the task granted earlier in this round? The store does not know yet."""
        loaded = self._round.loaded_records.get(key)
        return (
            loaded is not None
            and bool(loaded.sealed)
            and not (isinstance(loaded.record, TaskRecord) and claimable(loaded.record))
        )

    def _add(self, pool: str, order: str, stored: Stored) -> None:
        self._pools.setdefault(pool, []).append((order, stored))

    def _add_opened(self, record: TaskRecord, stored: Stored) -> None:
        """Adds a task that time has made ready and that is not in an index as ready yet."""
        pool, order = pool_of(record), order_of(record)
        self._add(pool, order, stored)
        feature = record.task.feature
        if feature is not None and self.policy.order is Order.CLOSEST_TO_DONE:
            self._due_of.setdefault(feature, []).append((pool, (order, stored)))

    def _keep_first_in_tracks(self, tracks: TrackView, busy: Set[Key]) -> None:
        """Offers, of each track, only the unfinished tasks with its lowest number, which may be
        behind the heads of their pools."""
        first = {stored.key: stored for found in tracks.first.values() for stored in found}
        self._firsts = first.keys()
        offered: set[Key] = set()
        for pool, ready in self._pools.items():
            kept = [
                (order, stored)
                for order, stored in ready
                if self._is_first_in_track(pool, stored.key, self._firsts)
            ]
            offered.update(stored.key for _, stored in kept)
            self._pools[pool] = kept
        for loaded in self._round.add_found(
            stored for key, stored in first.items() if key not in offered and key not in busy
        ):
            record = loaded.record
            if isinstance(record, TaskRecord) and claimable(record):
                self._add(pool_of(record), order_of(record), first[loaded.key])

    def _is_first_in_track(self, pool: str, key: Key, firsts: Set[Key]) -> bool:
        """Does no unfinished task of its track come before this one?"""
        return key in firsts or not parse_pool(pool).track or parse_task_id(key.id).sequence is None

    def _add_due(self, busy: Set[Key]) -> Set[Key]:
        """Records the changes that time has made, and offers the tasks that became ready by
        them."""
        now = microseconds(self._round.now)
        first = self._round.find(first_due(*self._place)).records
        self.next_due = _due_at(first[0]) if first else None
        if self.next_due is None or self.next_due > now:
            return set()
        outage_grace = self._round.outage_grace(self._place)
        found, more = self._find_due(now, 1 if outage_grace is None else _PAGES_IN_GRACE)
        due = [stored for stored in found if stored.key not in busy]
        self.has_more_due = more and len(due) < len(found)
        if not due:
            return set()
        loaded_records = self._round.add_found(due)
        checks = [plain_item(CheckDue(loaded.key, SYSTEM)) for loaded in loaded_records]
        self._round.load_related(checks)
        for loaded, check, stored in zip(loaded_records, checks, due, strict=True):
            self._round.decide(check)
            if isinstance(loaded.record, TaskRecord) and claimable(loaded.record):
                self._add_opened(loaded.record, stored)
        self.has_more_due = more and (
            self.has_more_due or any(loaded.sealed for loaded in loaded_records)
        )
        if outage_grace is not None:
            self.next_due = _end_of_grace(loaded_records, outage_grace, self.next_due)
        return {loaded.key for loaded in loaded_records}

    def _find_due(self, now: int, pages: int) -> tuple[list[Stored], bool]:
        """Returns due tasks, from at most `pages` pages, and whether there are more."""
        query = Query(*self._place, due_before=now, limit=_MOST_DUE)
        found: list[Stored] = []
        for _ in range(pages):
            page = self._round.find(query)
            found += page.records
            if page.next is None:
                return found, False
            query = replace(query, after=page.next)
        return found, True

    def choose(self, request: NextTask) -> Iterable[LoadedRecord]:
        """Yields candidates for this caller, best first. A task that was yielded is no longer on
        offer."""
        for _ in range(WIDEST):
            place = self._least_overlap(request) if self._avoids_overlap else self._first(request)
            if place is None:
                return
            ready, at = place
            entry = ready.pop(at)
            self._last = ready, at, entry
            if self._nearest is not None:
                self._hand_out(entry)
            self._tried_in_vain += 1
            loaded = self._round.add_found([entry[1]])[0]
            if self._lacks_inputs(loaded):
                self._load_inputs(loaded)
            yield loaded

    def _hand_out(self, entry: Entry) -> None:
        """Removes a task from the offer. A task of a feature may also be the head of a pool; it is
        offered once."""
        key = entry[1].key
        self._handed_out.add(key)
        pool = entry[1].pool or ""
        for ready in self._pools.values() if key in self._due else (self._pools.get(pool, []),):
            for at, other in enumerate(ready):
                if other[1].key == key:
                    # If it is put back, it returns to the pool.
                    self._last = ready, at, ready.pop(at)
                    return

    def _first(self, request: NextTask) -> tuple[Shelf, int] | None:
        """Returns the position of the best task for this caller; after a conflict, of one of the
        first few."""
        if self._nearest is not None:
            few = [(ready, at) for ready, at in islice(self._each_place(request), self._spread)]
            return few[_any_of(len(few)) if len(few) > 1 else 0] if few else None
        pools = self._pools_for(request)
        if not pools:
            return None
        ready = self._pools[pools[0]]
        return ready, _any_of(min(self._spread, len(ready))) if self._spread > 1 else 0

    def _each_place(self, request: NextTask) -> Iterator[tuple[Shelf, int]]:
        """Yields the position of each task that suits this caller, the best first."""
        for ready in self._shelves(request):
            for at in range(min(len(ready), WIDEST)):
                yield ready, at

    def _shelves(self, request: NextTask) -> Iterator[Shelf]:
        """Yields the tasks that suit this caller, the best first: those of the nearest features, if
        the order is by features, and then the pools."""
        if self._nearest is not None:
            yield from self._feature_shelves(self._nearest, request)
        for pool in self._pools_for(request):
            yield self._pools[pool]

    def _feature_shelves(self, nearest: NearestFeatures, request: NextTask) -> Iterator[Shelf]:
        """Yields the tasks of each feature. Features on which other agents work come last."""
        if self._workers is None:
            in_flight = self._round.counts.features_in_flight(self._place)
            self._workers = in_flight.agents(self._round.now)
        workers, alone = self._workers, {request.by.agent}
        for name, found in nearest.each_ready(lambda name: not workers.get(name, alone) <= alone):
            of_feature = [
                (stored.pool or "", (stored.order or "", stored))
                for stored in found
                if self._is_free(stored.key)
            ]
            of_feature += self._due_of.get(name, ())
            shelf = [entry for pool, entry in of_feature if self._offers(pool, entry, request)]
            if shelf:
                yield sorted(shelf, key=lambda entry: entry[0])

    def _offers(self, pool: str, entry: Entry, request: NextTask) -> bool:
        """Is this task of a feature still on offer, and does it suit the caller?"""
        key = entry[1].key
        if key in self._handed_out:
            return False
        if pool not in self._parsed:
            self._parsed[pool] = parse_pool(pool)
        return self._suits(self._parsed[pool], request) and (
            self._firsts is None or self._is_first_in_track(pool, key, self._firsts)
        )

    def _least_overlap(self, request: NextTask) -> tuple[Shelf, int] | None:
        """Returns the same as `_first`, but among the first tasks of each pool that share no
        modules with work in flight. If all share some, it returns the one that shares least, or
        none if the policy forbids that."""
        view = self._round.modules_in_flight(self._place)
        assert view is not None
        free: list[tuple[Shelf, int]] = []
        least: tuple[int, Shelf, int] | None = None
        looked_at: set[Key] = set()
        self.overlapping = 0
        for ready, at in self._each_place(request):
            stored = ready[at][1]
            if stored.key in looked_at:
                continue  # the head of a pool that also belongs to a feature
            if len(looked_at) == _MOST_LOOKED_AT:
                break
            looked_at.add(stored.key)
            record = self._round.add_found([stored])[0].record
            if not isinstance(record, TaskRecord):
                continue
            weight = weight_of(view.overlaps(record.task, request.by))
            if not weight:
                free.append((ready, at))
                if len(free) == self._spread:
                    return free[_any_of(len(free))] if self._spread > 1 else free[0]
            elif least is None or weight < least[0]:
                least = weight, ready, at
        if free:
            return free[_any_of(len(free))]
        if least is None or self.policy.overlap is Overlapping.AVOID:
            return None if least is None else (least[1], least[2])
        self.overlapping = len(looked_at)
        return None

    def _lacks_inputs(self, loaded: LoadedRecord) -> bool:
        known = self._round.loaded_records
        return isinstance(loaded.record, TaskRecord) and any(
            key not in known for key in inputs_of(loaded.key, loaded.record)
        )

    def _load_inputs(self, first: LoadedRecord) -> None:
        """Loads the dependencies and children of all tasks that this round is likely to grant, in
        one load."""
        pools = [ready for ready in self._pools.values() if ready]
        share = -(-self._wanted // max(1, len(pools)))
        heads = (stored for ready in pools for _, stored in ready[:share])
        nearest = self._nearest.found if self._nearest is not None else ()
        likely = self._round.add_found([*islice(nearest, self._wanted), *heads])
        records = [
            (loaded.key, loaded.record)
            for loaded in (first, *likely)
            if isinstance(loaded.record, TaskRecord)
        ]
        self._round.load(
            dict.fromkeys(key for at, record in records for key in inputs_of(at, record))
        )

    def put_back(self) -> None:
        """Offers the last yielded task again: it was denied for a reason that concerns only this
        caller."""
        ready, at, entry = self._last
        ready.insert(at, entry)
        self._handed_out.discard(entry[1].key)
        self._tried_in_vain -= 1

    def granted(self, loaded: LoadedRecord) -> None:
        """Notes a grant: the task's track and feature are no longer free for the next caller of
        this round."""
        self._tried_in_vain -= 1
        record = loaded.record
        if not isinstance(record, TaskRecord):
            return
        if record.task.track:
            self._taken_tracks.add(record.task.track)
        feature, claim = record.task.feature, record.claim
        if feature is not None and claim is not None and self._workers is not None:
            self._workers.setdefault(feature, set()).add(claim.agent)

    def _pools_for(self, request: NextTask) -> list[str]:
        """Returns the pools that suit this caller, the best first."""
        suiting = [
            pool
            for pool, ready in self._pools.items()
            if ready and self._suits(self._parsed[pool], request)
        ]
        # The other strategies order all tasks, whatever their tracks.
        spreads = self.policy.order is Order.TRACK
        if (
            not spreads
            or len(suiting) <= 1
            or len({self._parsed[pool].track for pool in suiting}) == 1
        ):
            return sorted(suiting, key=lambda pool: self._pools[pool][0][0])
        busy = self._round.counts.busy_tracks(*self._place) | self._taken_tracks
        return sorted(
            suiting, key=lambda pool: (self._parsed[pool].track in busy, self._pools[pool][0][0])
        )

    def _suits(self, pool: Pool, request: NextTask) -> bool:
        if not pool.suits(
            agent=request.by.agent,
            tracks=request.tracks,
            backlog=self.policy.offer_backlog,
            role=self.policy.role_of(request.role),
            table=self._agent_roles,
        ):
            return False
        return (
            self._tracks is None
            or self.policy.tracks is not Tracks.STRICT
            or not pool.track
            or not self._tracks.is_full(pool.track, request.by.agent)
        )


def nothing_apart(examined: int) -> ClaimResult:
    """Returns the answer when every ready task shares modules with work in flight, which the policy
    forbids."""
    detail = (
        f"{examined} ready {'task was' if examined == 1 else 'tasks were'} examined, and each "
        "shares modules with work in flight (policy overlap = forbid)"
    )
    return ClaimResult(False, ClaimReason.NOTHING_READY, limit="overlap", detail=detail)


def _spread_of(attempt: int) -> int:
    return min(2**attempt, WIDEST) if attempt else 1


def heads_for(wanted: int, attempt: int, busy: int) -> int:
    """Returns how many tasks of each pool to read for `wanted` requests, the first of which is at
    this attempt."""
    return min(max(wanted, _spread_of(attempt)) + busy, _MOST_HEADS)


def first_due(tenant: str, project: str) -> Query:
    """Returns a query for the task that time changes next in a project."""
    return Query(tenant, project, due_before=MAX_DUE, limit=1)


def claims_of_session(request: NextTask) -> Query:
    """Returns a query for the claims of the caller's session."""
    return Query(request.key.tenant, request.key.project, session=request.by.session, limit=1000)


def as_claim(request: NextTask, loaded: LoadedRecord, round: BatchRound) -> ClaimTask:
    """Returns the claim for a request for a next task. If the caller requested no lease length, the
    default is kept within the tenant's limits."""
    lease = request.lease_seconds
    if lease is None:
        lease = (
            loaded.record.task.lease_seconds if isinstance(loaded.record, TaskRecord) else None
        ) or DEFAULT_LEASE_SECONDS
        limits = round.settings(loaded.key.place)[1]
        lease = min(
            max(lease, limits.min_lease_duration_seconds),
            limits.max_lease_duration_seconds or lease,
        )
    return ClaimTask(
        loaded.key,
        request.by,
        lease_seconds=lease,
        operation=request.operation,
        role=round.settings(loaded.key.place)[0].role_of(request.role),
        next=True,
    )


def repeat_claim(round: BatchRound, item: Item) -> bool:
    """Answers a retry with the live claim that an earlier request under the same operation id was
    granted. False if there is none."""
    request = item.request
    assert isinstance(request, NextTask)
    round.find_claims(claims_of_session(request))
    for loaded in list(round.loaded_records.values()):
        claim = loaded.record.claim if isinstance(loaded.record, TaskRecord) else None
        if claim is None or (claim.operation, claim.session) != (
            request.operation,
            request.by.session,
        ):
            continue
        if overdue(claim, round.now, outage_grace=round.outage_grace(request.key.place)) is None:
            again = as_claim(request, loaded, round)
            # If the caller requested no lease length, it followed from the task and the limits,
            # which may have changed since.
            item.command = (
                again
                if request.lease_seconds is not None
                else replace(again, lease_seconds=claim.lease_seconds)
            )
            item.wanted = keys_from_command(item.command)
            round.load_related([item])
            return round.decide(item) is not None
    return False


def list_held(round: BatchRound, item: Item) -> None:
    """Adds the session's other claims to the answer. An agent that requests a task may have
    forgotten one, and claim_next never grants it again.

    It is looked up only if nothing is granted, or if the operation id made a look-up necessary
    anyway: for every grant it would cost a quarter of a cycle.
    """
    request, decision = item.request, item.decision
    if (
        not isinstance(request, NextTask)
        or type(decision) is not Decision
        or (decision.outcome.success and not request.operation)
    ):
        return
    outage_grace = round.outage_grace(request.key.place)
    held = []
    for loaded in round.find_claims(claims_of_session(request), cached=True):
        claim = loaded.read.claim if isinstance(loaded.read, TaskRecord) else None
        if (
            claim is None
            or claim.session != request.by.session
            or loaded.key.id == decision.outcome.task_id
        ):
            continue
        if overdue(claim, round.now, outage_grace=outage_grace) is None:
            held.append(ClaimRef(loaded.key.id, claim.generation, claim.expires_at))
    if held:
        outcome = replace(decision.outcome, held=tuple(sorted(held, key=lambda ref: ref.task_id)))
        item.decision = Decision(outcome, decision.events, decision.record, decision.followups)


def _due_at(stored: Stored) -> int | None:
    return index_of(decode_record(stored.key.kind, stored.body)).due_at


def _end_of_grace(
    loaded_records: Iterable[LoadedRecord], outage_grace: OutageGrace, first: int | None
) -> int | None:
    """Returns the time at which the first of the spared claims is no longer spared. There is no
    need to check them earlier, although they have been due for long."""
    claims = [
        loaded.record.claim
        for loaded in loaded_records
        if isinstance(loaded.record, TaskRecord) and loaded.record.claim is not None
    ]
    ends = [end for claim in claims if (end := spared_until(claim, outage_grace)) is not None]
    return microseconds(min(ends)) if ends else first


def _any_of(count: int) -> int:
    import random

    return random.randrange(count)
