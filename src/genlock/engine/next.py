"""claim_next: which task a worker is offered.

The head of each pool that suits the caller is sought, and what is due; the lowest is taken. The cost does not grow with the
plan. After a conflict the choice is made at random among the first 2, 4, … 64, so that many coordinators do not run after the
same task.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable, Sequence, Set
from itertools import chain, islice

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.commands import CheckDue, ClaimTask
from genlock.core.facts import Mercy, told
from genlock.core.index import index_of, microseconds
from genlock.core.keys import SESSION, Key
from genlock.core.model import TaskRecord
from genlock.core.policy import Order
from genlock.core.reasons import ClaimReason
from genlock.core.results import ClaimResult
from genlock.core.routing import Pool, order_of, parse_pool, pool_of
from genlock.core.task.relate import SYSTEM
from genlock.core.task.view import claimable, overdue, spared_until
from genlock.engine.batch import Round
from genlock.engine.cells import Cell
from genlock.engine.jobs import Item, NextTask, plain_item
from genlock.engine.waiting import Twins, Waiting, twins_of
from genlock.errors import GenlockError
from genlock.store import MAX_DUE, Query, Stored

MOST_DUE = 64
MOST_HEADS = 512
_WIDEST = 64
_EVERYBODYS_LIMIT = "max_concurrent_claims"
"""Who is denied by this one, is so in the place of all; the others are the caller's own: his lease, his being new."""
_PAGES_OF_SPARED = 4
"""After an outage most of what is due is spared, and what is not may lie behind it."""


class Offer:
    """The tasks of one project that a round may hand out."""

    def __init__(self, round: Round, place: tuple[str, str], wanted: int, attempt: int, busy: Set[Key] = frozenset()) -> None:
        """Those that are `busy` are being committed just now, and are not offered."""
        self._round = round
        self._place = place
        self._spread = _spread_of(attempt)
        self.policy = round.settings(place)[0]
        self._taken_tracks: set[str] = set()
        tenant, project = place
        heads = heads_for(wanted, attempt, len(busy))
        self._pools: dict[str, list[tuple[str, Stored]]] = {}
        self.next_due: int | None = None
        """When time will change something here next, or should have."""
        self.has_more_due = False
        """Is there more that is due than was looked at, and less of it once this round is written?"""
        due = self._add_due(tenant, project, busy)
        found = round.find(Query(tenant, project, heads=heads)).records
        self._has_all = heads not in Tally(stored.pool for stored in found).values()
        self._in_vain = 0
        """So many were tried and granted to nobody."""
        for stored in found:
            if stored.key not in due and stored.key not in busy and not self._is_taken(stored.key):
                self._add(stored.pool or "", stored.order or "", stored)
        if due:
            for ready in self._pools.values():
                ready.sort(key=lambda entry: entry[0])
        self._parsed = {pool: parse_pool(pool) for pool in self._pools}

    @property
    def is_empty(self) -> bool:
        """Is there nothing for anybody?"""
        return not any(self._pools.values())

    @property
    def is_exhausted(self) -> bool:
        """Is there nothing left of all that was ready? Unless what was handed out cannot be written, only news changes that."""
        return self._has_all and not self._in_vain and self.is_empty

    @property
    def size(self) -> int:
        """For how many there is something."""
        return sum(map(len, self._pools.values()))

    def _is_taken(self, key: Key) -> bool:
        """Was it handed out in this round? The store does not know yet, and to the same session and agent it would be given once more."""
        cell = self._round.cells.get(key)
        return cell is not None and bool(cell.sealed) and not (isinstance(cell.record, TaskRecord) and claimable(cell.record))

    def _add(self, pool: str, order: str, stored: Stored) -> None:
        self._pools.setdefault(pool, []).append((order, stored))

    def _add_due(self, tenant: str, project: str, busy: Set[Key]) -> set[Key]:
        """What time has opened is written down as it is met, and offered with the rest."""
        now = microseconds(self._round.now)
        first = self._round.find(first_due(tenant, project)).records
        self.next_due = _due_at(first[0]) if first else None
        if self.next_due is None or self.next_due > now:
            return set()
        mercy = self._round.mercy(self._place)
        found, more = self._due(now, 1 if mercy is None else _PAGES_OF_SPARED)
        due = [stored for stored in found if stored.key not in busy]
        self.has_more_due = more and len(due) < len(found)
        if not due:
            return set()
        cells = self._round.take(due)
        checks = [plain_item(CheckDue(cell.key, SYSTEM)) for cell in cells]
        self._round.prepare_others(checks)
        for cell, check, stored in zip(cells, checks, due, strict=True):
            self._round.decide(check)
            if isinstance(cell.record, TaskRecord) and claimable(cell.record):
                self._add(pool_of(cell.record), order_of(cell.record), stored)
        self.has_more_due = more and (self.has_more_due or any(cell.sealed for cell in cells))
        if mercy is not None:
            self.next_due = _next_due_of(cells, mercy, self.next_due)
        return {cell.key for cell in cells}

    def _due(self, now: int, pages: int) -> tuple[list[Stored], bool]:
        """What is due, as far as these pages go, and whether there is more."""
        query = Query(*self._place, due_before=now, limit=MOST_DUE)
        found: list[Stored] = []
        for _ in range(pages):
            page = self._round.find(query)
            found += page.records
            if page.next is None:
                return found, False
            query = replace(query, after=page.next)
        return found, True

    def choose(self, request: NextTask) -> Iterable[Cell]:
        """Candidates for this caller, best first; each is gone from the offer once it has been yielded."""
        tried = 0
        while tried < _WIDEST:
            pool = self._best_pool(request)
            if pool is None:
                return
            ready = self._pools[pool]
            at = _any_of(min(self._spread, len(ready))) if self._spread > 1 else 0
            self._tried = ready, at, ready.pop(at)
            self._in_vain += 1
            yield self._round.take([self._tried[2][1]])[0]
            tried += 1

    def put_back(self) -> None:
        """The task yielded last was not for this caller; the next one may have it."""
        ready, at, entry = self._tried
        ready.insert(at, entry)
        self._in_vain -= 1

    def took(self, cell: Cell) -> None:
        """The task was granted: its track is no longer free for the next caller of this round."""
        self._in_vain -= 1
        if isinstance(cell.record, TaskRecord) and cell.record.task.track:
            self._taken_tracks.add(cell.record.task.track)

    def _best_pool(self, request: NextTask) -> str | None:
        suiting = [pool for pool, ready in self._pools.items() if ready and self._suits(self._parsed[pool], request)]
        if not suiting:
            return None
        # Leaf-first is an order of all tasks, whoever is on which track.
        spreads = self.policy.order is Order.TRACK
        if not spreads or len(suiting) == 1 or len({self._parsed[pool].track for pool in suiting}) == 1:
            return min(suiting, key=lambda pool: self._pools[pool][0][0])
        busy = self._round.counts.busy_tracks(*self._place) | self._taken_tracks
        return min(suiting, key=lambda pool: (self._parsed[pool].track in busy, self._pools[pool][0][0]))

    def _suits(self, pool: Pool, request: NextTask) -> bool:
        return pool.suits(agent=request.by.agent, tracks=request.tracks, backlog=self.policy.offer_backlog)


def _spread_of(attempt: int) -> int:
    return min(2**attempt, _WIDEST) if attempt else 1


def heads_for(wanted: int, attempt: int, busy: int) -> int:
    """How many tasks of each pool are looked at for so many callers, the first of whom tries for so many times."""
    return min(max(wanted, _spread_of(attempt)) + busy, MOST_HEADS)


def first_due(tenant: str, project: str) -> Query:
    """What time changes next in a project."""
    return Query(tenant, project, due_before=MAX_DUE, limit=1)


def held_by(request: NextTask) -> Query:
    """What the caller's session has claimed already."""
    return Query(request.key.tenant, request.key.project, session=request.by.session, limit=1000)


def session_of(item: Item) -> Key:
    """The caller's session."""
    return item.request.key.beside(SESSION, item.request.by.session)  # type: ignore[union-attr]


class Counter:
    """Where requests for a next task are served, in order of arrival, during one round."""

    def __init__(self, round: Round, asking: Sequence[Item], waiting: Waiting, busy: Set[Key]) -> None:
        """`asking` are those who have come just now, behind those who wait."""
        self.round = round
        self._asking, self._waiting = asking, waiting
        self._prepared: set[tuple[str, str]] = set()
        self._busy = busy
        self._beside: set[tuple[str, str]] = set()
        """Where what is under way was left out of the offer."""
        self.offers: dict[tuple[str, str], Offer] = {}
        self.searched: set[tuple[str, str]] = set()
        """The projects in which nothing was ready and a closer look was taken."""
        self.planned: set[tuple[str, str]] = set()
        self.served: set[tuple[str, str]] = set()
        """Those where there was something for somebody."""
        self._granted: set[Twins] = set()
        """Under which operation ids something was."""
        self._wanted = len(asking) + len(waiting)

    def serve(self, item: Item, place: tuple[str, str], *, anew: bool = False) -> bool:
        """Claims the best task for this request; False if nothing suits."""
        request = item.request
        assert isinstance(request, NextTask)
        if anew or place not in self.offers:
            self.offers[place] = Offer(self.round, place, self._wanted, item.attempt, self._busy)
            (self._beside.add if self._busy else self._beside.discard)(place)
        if request.operation and twins_of(request) in self._granted and repeated(self.round, item):
            return True
        if self.offers[place].is_empty:
            return False
        self._load_sessions(place)
        if item.waited and request.operation and repeated(self.round, item):
            return True
        self.served.add(place)
        refused = self._serve(item, request, self.offers[place])
        if refused:
            # The first ones turned out to be nobody's (held there and then, say): look further down.
            self.offers[place] = Offer(self.round, place, _WIDEST, item.attempt, self._busy)
            refused = self._serve(item, request, self.offers[place])
        return refused is None

    def landed(self, opened: bool) -> None:
        """What was under way no longer is: where it was left out, one may have to look once more."""
        self._busy = frozenset()
        if not opened:
            self._beside.clear()

    def may_have_more(self, place: tuple[str, str]) -> bool:
        """Was something left out of the offer that is no longer under way?"""
        return not self._busy and place in self._beside

    def _load_sessions(self, place: tuple[str, str]) -> None:
        """Those of so many callers as there is something for, at once: often a thousand wait for one task."""
        if place not in self._prepared:
            self._prepared.add(place)
            here = (item for item in self._asking if item.request.key.place == place)
            first = islice(chain(self._waiting.at(place), here), self.offers[place].size)
            missing = [key for key in dict.fromkeys(map(session_of, first)) if key not in self.round.cells]
            if missing:
                self.round.load(missing)

    def _serve(self, item: Item, request: NextTask, offer: Offer) -> int | None:
        """None if the request is answered, else how many tasks were tried in vain."""
        tried = 0
        for cell in offer.choose(request):
            item.command = as_claim(request, cell, self.round)
            item.wanted = told(item.command)
            self.round.prepare_others([item])
            decision = self.round.decide(item)
            if isinstance(decision, GenlockError):
                offer.put_back()
                return None
            if decision is not None and decision.outcome.success:
                offer.took(cell)
                if request.operation:
                    self._granted.add(twins_of(request))
                return None
            if decision is not None and decision.outcome.reason is ClaimReason.DENIED_LIMIT:
                # Those who wait are spared the same answer; who does not is not to hear that nothing is ready.
                if decision.outcome.limit != _EVERYBODYS_LIMIT or request.wait_until <= time.monotonic():
                    offer.put_back()
                return None
            tried += 1
        return tried


def as_claim(request: NextTask, cell: Cell, round: Round) -> ClaimTask:
    """The claim that a request for the next task becomes. A lease that the caller has not asked for is kept within the tenant's bounds."""
    lease = request.lease_seconds
    if lease is None:
        lease = (cell.record.task.lease_seconds if isinstance(cell.record, TaskRecord) else None) or 300.0
        limits = round.settings(cell.key.place)[1]
        lease = min(max(lease, limits.min_lease_duration_seconds), limits.max_lease_duration_seconds or lease)
    return ClaimTask(cell.key, request.by, lease_seconds=lease, operation=request.operation, role=request.role)


def repeated(round: Round, item: Item) -> bool:
    """Was an earlier request of this id granted something, and its answer lost? Then that claim, if it is live, is the answer."""
    request = item.request
    assert isinstance(request, NextTask)
    round.take(round.find(held_by(request)).records)
    for cell in list(round.cells.values()):
        claim = cell.record.claim if isinstance(cell.record, TaskRecord) else None
        if claim is None or (claim.operation, claim.session) != (request.operation, request.by.session):
            continue
        if overdue(claim, round.now, mercy=round.mercy(request.key.place)) is None:
            again = as_claim(request, cell, round)
            # Who did not ask for a length was given the task's, or the limit's; they may be others by now.
            item.command = again if request.lease_seconds is not None else replace(again, lease_seconds=claim.lease_seconds)
            item.wanted = told(item.command)
            round.prepare_others([item])
            return round.decide(item) is not None
    return False


def _due_at(stored: Stored) -> int | None:
    return index_of(decode_record(stored.key.kind, stored.body)).due_at


def _next_due_of(cells: Iterable[Cell], mercy: Mercy, first: int | None) -> int | None:
    """When the first of those who are spared is no longer: until then their having been due for long is no reason to look again."""
    claims = [cell.record.claim for cell in cells if isinstance(cell.record, TaskRecord) and cell.record.claim is not None]
    ends = [end for claim in claims if (end := spared_until(claim, mercy)) is not None]
    return microseconds(min(ends)) if ends else first


NOTHING = ClaimResult(False, ClaimReason.NOTHING_READY, detail="no task is ready that suits this agent")


def _any_of(count: int) -> int:
    import random

    return random.randrange(count)
