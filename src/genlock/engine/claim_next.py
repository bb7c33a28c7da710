"""claim_next: requests for the next task, and the waiters among them.

A request that finds no task waits until its time is up. Waiters are served in order of arrival, and
no later request overtakes them. Often a thousand agents wait for one task. So no work is done per
waiter when a batch is gathered, when a new request comes, or when one waiter is served.

Waiters try again when a record that this lane wrote made a task ready, when the feed watcher pokes
the lane, when a due time comes, and every few seconds to see whether a holder is lost.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from datetime import datetime
from itertools import chain, islice
from typing import Protocol

from genlock.core.decision import Decision
from genlock.core.facts import keys_from_command
from genlock.core.index import microseconds
from genlock.core.keys import SESSION, Key
from genlock.core.model import TaskRecord
from genlock.core.reasons import ClaimReason, Status
from genlock.core.results import ClaimResult
from genlock.core.rules import index_of
from genlock.core.task.view import claimable
from genlock.engine.batch import BatchRound
from genlock.engine.commit import LoadedRecord
from genlock.engine.feed_watch import FeedWatch, Subscriber
from genlock.engine.jobs import Item, NextTask
from genlock.engine.limits import claimed
from genlock.engine.maintenance import Maintenance
from genlock.engine.offers import (
    WIDEST,
    Offer,
    as_claim,
    claims_of_session,
    first_due,
    heads_for,
    list_held,
    nothing_apart,
    repeat_claim,
)
from genlock.engine.retry import LONGEST_PAUSE
from genlock.engine.unknown_outcomes import serve_possible_claim
from genlock.errors import GenlockError, StoreError, StoreUnavailable
from genlock.store import Query

Place = tuple[str, str]
RequestId = tuple[Place, str, str]

NOTHING = ClaimResult(
    False, ClaimReason.NOTHING_READY, detail="no task is ready that suits this agent"
)
_MOST_SESSIONS = 16
"""How many sessions to load in advance for each project, because a thousand may wait for one
task."""
_TENANT_LIMIT = "max_concurrent_claims"
"""A denial by this limit holds for all callers. Other limits concern the caller alone, such as the
length of the lease."""
_DUE_MARGIN = 0.0005
"""Seconds between a due time and the next try, so that the store's clock has passed it."""


def id_of_request(request: NextTask) -> RequestId:
    """Returns project, session and operation id: requests with the same three are retries of one
    another."""
    return request.key.place, request.by.session, request.operation


def _session_key(item: Item) -> Key:
    return item.request.key.beside(SESSION, item.request.by.session)  # type: ignore[union-attr]


class Waiters:
    """Requests that have found no task, by project and in order of arrival."""

    def __init__(self) -> None:
        self._at: dict[Place, dict[int, Item]] = {}
        self._same_id: dict[RequestId, dict[int, Item]] = {}
        """The waiters that have an operation id, by that id."""
        self._size = 0
        self.first_end: float | None = None
        """A time before which no waiter gives up."""
        self.exhausted: set[Place] = set()
        """Projects with waiters in which nothing was ready at the last try, and nothing has changed
        since."""

    def __len__(self) -> int:
        return self._size

    @property
    def places(self) -> Collection[Place]:
        """The projects that have waiters."""
        return self._at.keys()

    def add(self, item: Item) -> None:
        """Adds a waiter. One that has waited before gets its old place in the order."""
        request = item.request
        assert isinstance(request, NextTask)
        group = self._at.setdefault(request.key.place, {})
        if item.number not in group:
            self._size += 1
            if request.operation:
                self._same_id.setdefault(id_of_request(request), {})[item.number] = item
            in_order = not group or item.number > next(reversed(group))
            group[item.number] = item
            if not in_order:
                self._at[request.key.place] = dict(sorted(group.items()))
        if self.first_end is None or request.wait_until < self.first_end:
            self.first_end = request.wait_until

    def remove(self, item: Item) -> None:
        """Removes the item if it waits."""
        place = item.request.key.place
        group = self._at.get(place, {})
        if group.pop(item.number, None) is not None:
            self._size -= 1
            self._remove_id(item)
        if not group and place in self._at:
            del self._at[place]
            self.exhausted.discard(place)  # changes there are no longer noted

    def _remove_id(self, item: Item) -> None:
        request = item.request
        if isinstance(request, NextTask) and request.operation:
            same = self._same_id[id_of_request(request)]
            del same[item.number]
            if not same:
                del self._same_id[id_of_request(request)]

    def at(self, place: Place) -> Iterator[Item]:
        """Yields the waiters of a project in order. Cancelled ones are removed on the way.

        A waiter that was served is followed by those with the same operation id: they get the same
        answer, even if no other task is left.
        """
        for item in list(self._at.get(place, {}).values()):
            if self._still_waits(item):
                yield item
                for same in self._same_request(item):
                    if self._still_waits(same):
                        yield same

    def _still_waits(self, item: Item) -> bool:
        if item.number not in self._at.get(item.request.key.place, {}):
            return False
        if item.job is None or item.job.cancelled:
            self.remove(item)
            return False
        return True

    def _same_request(self, item: Item) -> list[Item]:
        """Returns the waiters with the operation id of this item, if it was served."""
        request = item.request
        if (
            not isinstance(request, NextTask)
            or not request.operation
            or item.number in self._at.get(request.key.place, {})
        ):
            return []
        return list(self._same_id.get(id_of_request(request), {}).values())

    def take_expired(self, now: float) -> list[Item]:
        """Removes and returns the waiters whose time is up."""
        if self.first_end is None or self.first_end > now:
            return []
        ends = [
            (item.request.wait_until, item)  # type: ignore[union-attr]
            for group in self._at.values()
            for item in group.values()
        ]
        expired = [item for end, item in ends if end <= now]
        for item in expired:
            self.remove(item)
        self.first_end = min((end for end, _ in ends if end > now), default=None)
        return expired

    def all(self) -> list[Item]:
        """Returns every waiter."""
        return [item for group in self._at.values() for item in group.values()]


def _left_review(loaded: LoadedRecord) -> bool:
    """Did a task leave the review, so that its work is no longer in flight? Tasks that share its
    modules may be granted now."""
    before, after = loaded.read, loaded.record
    return (
        isinstance(before, TaskRecord)
        and isinstance(after, TaskRecord)
        and before.state is Status.IN_REVIEW
        and after.state is not Status.IN_REVIEW
    )


class Batches(Protocol):
    """The part of the pipeline that serving uses."""

    def finish_in_flight(self) -> bool | None:
        """Finishes the batch in flight. None if there is none, True if it may have made a task
        ready."""

    def decide_again(self, item: Item) -> None:
        """Puts an item into the next batch."""


class ClaimNext:
    """The requests for a next task of one lane. Only the lane's own thread uses it, except for
    `len`."""

    def __init__(self, lane: Subscriber, watcher: FeedWatch, maintenance: Maintenance) -> None:
        self.lane = lane
        self.watcher = watcher
        self.maintenance = maintenance
        self.waiters = Waiters()
        self.waiters_look = False
        """Do the waiters try to get a task in the present batch?"""
        self._look_at: float | None = None
        """When the waiters try again even if nothing happens."""

    def __len__(self) -> int:
        return len(self.waiters)

    # Between batches

    def gather(self, items: Iterable[Item], returned: Sequence[Item], poked: bool) -> list[Item]:
        """Returns the batch with the waiters whose time is up. The items in `returned` have lost a
        race for a task and wait again. If the lane was `poked`, the waiters try again."""
        for item in returned:
            self.waiters.add(item)
        now = time.monotonic()
        batch = [*items, *self.waiters.take_expired(now)]
        self.waiters_look = bool(self.waiters) and (
            poked or bool(returned) or self._must_look(batch, now)
        )
        if self.waiters_look:
            self.waiters.exhausted.clear()
        return batch

    def _must_look(self, items: list[Item], now: float) -> bool:
        """Must the waiters try now? Yes if it is time, or if a new request is about to try, which
        must not overtake them.

        In an exhausted project no request tries: new ones wait at once, and those whose time is up
        get the answer that nothing is ready.
        """
        if self._look_at is not None and self._look_at <= now:
            return True
        requests = [item for item in items if isinstance(item.request, NextTask)]
        return any(
            item.request.key.place not in self.waiters.exhausted
            or (item.request.wait_until <= now and not item.waited)  # type: ignore[union-attr]
            for item in requests
        )

    def look_by(self, instant: float) -> None:
        """Makes the waiters try again at this time at the latest."""
        passed = self._look_at is None or self._look_at <= time.monotonic()
        self._look_at = instant if passed or self._look_at is None else min(self._look_at, instant)

    @property
    def next_event(self) -> float | None:
        """Returns the time at which a waiter needs attention even if nothing happens before."""
        ends = [end for end in (self.waiters.first_end, self._look_at) if end is not None]
        return min(ends) if self.waiters and ends else None

    def changed(self, loaded_records: Iterable[LoadedRecord], now: datetime) -> bool:
        """Notes records written by this lane. Is there now a task that a waiter may get?"""
        if not self.waiters:
            return False
        places = self.waiters.places
        # A waiter may have been denied for the tenant's limit. Then the end of a claim in any
        # project of the tenant makes room.
        limited = {place[0] for place in places if place not in self.waiters.exhausted}
        found = False
        for loaded in loaded_records:
            record = loaded.record
            if not isinstance(record, TaskRecord):
                continue
            if loaded.key.tenant in limited and claimed(loaded.read) > claimed(record):
                found = True
            if loaded.key[:2] in places:
                found = found or claimable(record) or _left_review(loaded)
                due_at = index_of(record).due_at
                if due_at is not None:
                    self.look_when_due(due_at, now)
        return found

    def look_when_due(self, due_at: int, now: datetime) -> None:
        """Makes the waiters try again when this is due. `now` is the time of the store."""
        delay = max(0.0, (due_at - microseconds(now)) / 1e6)
        self.look_by(time.monotonic() + delay + _DUE_MARGIN)

    def load_failed(self, error: StoreError) -> list[Item]:
        """Handles a failed load for the waiters of the present batch. While the store is
        unavailable they try again soon. After any other error they are returned, to be answered
        with it."""
        if not self.waiters_look:
            return []
        if isinstance(error, StoreUnavailable):
            self.look_by(time.monotonic() + LONGEST_PAUSE)
            return []
        return self.waiters.all()

    def remove(self, items: Iterable[Item]) -> None:
        """Removes items that are decided again or answered."""
        for item in items:
            if isinstance(item.request, NextTask):
                self.waiters.remove(item)

    def clear(self) -> list[Item]:
        """Removes and returns all waiters."""
        waiting = self.waiters.all()
        self.waiters = Waiters()
        return waiting

    # During a batch

    def places(self, requests: Iterable[Item]) -> set[Place]:
        """Returns the projects in which this batch has requests or waiters that try to get a
        task."""
        places = {item.request.key.place for item in requests}
        return places.union(self.waiters.places) if self.waiters_look else places

    def reads(self, requests: Sequence[Item], busy: int) -> tuple[list[Key], list[Query]]:
        """Returns the keys and queries that serving is likely to need, so that one load fetches
        them all. `busy` tasks are in flight.

        This is only a guess: missing records are loaded when they are needed.
        """
        now = time.monotonic()
        looking = [item for item in requests if self._looks(item, now)]
        places = self.places(looking)
        keys: dict[Key, None] = {}
        queries: dict[Query, None] = {}
        for place in places:
            here = chain(
                self.waiters.at(place) if self.waiters_look else (),
                (item for item in looking if item.request.key.place == place),
            )
            first = list(islice(here, _MOST_SESSIONS))
            if not first:
                continue
            keys.update(dict.fromkeys(map(_session_key, first)))
            queries[first_due(*place)] = None
            heads = heads_for(len(requests) + len(self.waiters), first[0].attempt, busy)
            queries[Query(*place, heads=heads)] = None
        for item in looking:
            request = item.request
            if isinstance(request, NextTask) and request.operation and not item.waited:
                queries[claims_of_session(request)] = None
        return list(keys), list(queries)

    def _looks(self, item: Item, now: float) -> bool:
        request = item.request
        return isinstance(request, NextTask) and (
            request.key.place not in self.waiters.exhausted
            or not (request.wait_until > now or item.waited)
        )

    def begin(
        self, round: BatchRound, requests: Sequence[Item], busy: Set[Key], batches: Batches
    ) -> Serving:
        """Starts to serve the requests of a batch. Tasks that are `busy` are in flight and are not
        offered."""
        return Serving(self, round, requests, busy, batches)


class Serving:
    """Serves requests for a next task during one batch: first the waiters, then newer requests."""

    def __init__(
        self,
        queue: ClaimNext,
        round: BatchRound,
        requests: Sequence[Item],
        busy: Set[Key],
        batches: Batches,
    ) -> None:
        self._queue, self._waiters = queue, queue.waiters
        self._round, self._requests = round, requests
        self._busy, self._batches = busy, batches
        self._wanted = len(requests) + len(self._waiters)
        self._offers: dict[Place, Offer] = {}
        self._sessions_loaded: set[Place] = set()
        self._without_busy: set[Place] = set()
        """Projects whose offer leaves out tasks that were in flight."""
        self._searched: set[Place] = set()
        """Projects in which nothing was ready, so that lost work was searched for."""
        self._planned: set[Place] = set()
        """Projects in which the next try of the waiters is planned."""
        self._served: set[Place] = set()
        """Projects that had a task for at least one request."""
        self._granted: set[RequestId] = set()

    def serve_first(self, items: list[Item]) -> list[Item]:
        """Serves the requests that come before the batch, and returns the decided ones: requests
        that may hold a task already because of an unknown outcome, and waiters.

        If another request got the task of an unknown outcome in this round, this one would be
        granted a second task. Waiters that are served join `items`, the batch.
        """
        decided = [
            item
            for item in self._requests
            if item.possible_writes and serve_possible_claim(self._round, item)
        ]
        if self._queue.waiters_look:
            for place in list(self._waiters.places):
                for item in self._waiters.at(place):
                    if self.decide(item):
                        self._waiters.remove(item)
                        items.append(item)
                        decided.append(item)
                    elif self._offers[place].is_empty:
                        break
        return decided

    def decide(self, item: Item) -> bool:
        """Serves one request. False if it is not decided: it waits, or comes again with the next
        batch."""
        request = item.request
        assert isinstance(request, NextTask)
        decided = self._decide(item, request)
        if decided:
            list_held(self._round, item)
        return decided

    def end(self) -> None:
        """Notes the projects in which nothing is left, so that no request tries there until
        something changes."""
        self._waiters.exhausted.update(
            place for place in self._planned if self._offers[place].is_exhausted
        )

    def _decide(self, item: Item, request: NextTask) -> bool:
        place = request.key.place
        waits = request.wait_until > time.monotonic()
        # A retry is answered when it comes. It is looked up again when it gives up: another waiter
        # with the same id may have been granted a task by then.
        if request.operation and not (item.waited and waits) and repeat_claim(self._round, item):
            return True
        if item.possible_writes and item.job is not None and item.job.cancelled:
            # The task it may have held is out of reach, and no caller waits for another one.
            return self._find_nothing(item, waits=False)
        if place in self._waiters.exhausted and (waits or item.waited):
            return self._find_nothing(item, waits)
        if waits and place not in self._offers:
            # Watch before the query, so that a change after it wakes the lane.
            self._queue.watcher.watch(place, self._queue.lane)
        if self._offer_to(item, request):
            return True
        if self._offer_after_flight(item, request):
            return True
        if self._may_find_more_due(item, waits):
            self._batches.decide_again(item)
            return False
        if self._offer_after_search(item, request, waits):
            return True
        if waits and place not in self._planned:
            self._planned.add(place)
            self._plan_next_look(place)
        return self._find_nothing(item, waits)

    def _offer_after_flight(self, item: Item, request: NextTask) -> bool:
        """Offers again after the batch in flight is finished: it may make a task ready, or have
        kept one out of the offer."""
        place = request.key.place
        opened = self._batches.finish_in_flight()
        if opened is not None:
            self._busy = frozenset()
            if not opened:
                self._without_busy.clear()
        return (
            not self._busy
            and place in self._without_busy
            and self._offer_to(item, request, renew=True)
        )

    def _may_find_more_due(self, item: Item, waits: bool) -> bool:
        """May another page of due tasks have one that suits this caller? Due tasks are recorded a
        few at a time."""
        return (
            not waits
            and self._offers[item.request.key.place].has_more_due
            and item.job is not None
            and time.monotonic() < item.job.deadline
        )

    def _offer_after_search(self, item: Item, request: NextTask, waits: bool) -> bool:
        """Offers again after a search for lost work: reactions that were cut off, or lost holders,
        may keep a task from being ready."""
        place = request.key.place
        if place in self._searched or (waits and place in self._served):
            return False
        self._searched.add(place)
        return self._queue.maintenance.search_lost_work(place, waits) and self._offer_to(
            item, request, renew=True
        )

    def _find_nothing(self, item: Item, waits: bool) -> bool:
        if waits:
            item.waited = True
            self._waiters.add(item)
            return False
        offer = self._offers.get(item.request.key.place)
        overlapping = offer.overlapping if offer is not None else 0
        item.decision = Decision(nothing_apart(overlapping) if overlapping else NOTHING)
        return True

    def _plan_next_look(self, place: Place) -> None:
        """Plans when the waiters must try again although the feed has not moved."""
        now = time.monotonic()
        self._queue.look_by(self._queue.maintenance.next_search(place, now))
        due_at = self._offers[place].next_due
        if due_at is not None:
            self._queue.look_when_due(due_at, self._round.now)

    def _offer_to(self, item: Item, request: NextTask, *, renew: bool = False) -> bool:
        """Claims the best task for this request; False if none suits. `renew` makes a new offer."""
        place = request.key.place
        if renew or place not in self._offers:
            self._make_offer(place, self._wanted, item)
            (self._without_busy.add if self._busy else self._without_busy.discard)(place)
        if (
            request.operation
            and id_of_request(request) in self._granted
            and repeat_claim(self._round, item)
        ):
            return True
        if self._offers[place].is_empty:
            return False
        self._load_sessions(place)
        if item.waited and request.operation and repeat_claim(self._round, item):
            return True
        self._served.add(place)
        in_vain = self._claim_one(item, request)
        if in_vain:
            # The first tasks could not be granted to any caller, for example because they were on
            # hold.
            self._make_offer(place, WIDEST, item)
            in_vain = self._claim_one(item, request)
        return in_vain is None

    def _make_offer(self, place: Place, wanted: int, item: Item) -> None:
        self._offers[place] = Offer(self._round, place, wanted, item.attempt, self._busy)

    def _claim_one(self, item: Item, request: NextTask) -> int | None:
        """Tries to claim one task. Returns None if the request is answered, otherwise the number of
        tasks tried in vain."""
        offer = self._offers[request.key.place]
        tried = 0
        for loaded in offer.choose(request):
            if self._round.is_unreadable(loaded.key):
                tried += 1  # the caller did not ask for this task
                continue
            item.command = as_claim(request, loaded, self._round)
            item.wanted = keys_from_command(item.command)
            self._round.load_related([item])
            decision = self._round.decide(item)
            if isinstance(decision, GenlockError):
                offer.put_back()
                return None
            if decision is not None and decision.outcome.success:
                offer.granted(loaded)
                if request.operation:
                    self._granted.add(id_of_request(request))
                return None
            if decision is not None and decision.outcome.reason is ClaimReason.DENIED_LIMIT:
                # Other waiters would get the same answer. A request that does not wait must not
                # make the next one believe that nothing is ready.
                if (
                    decision.outcome.limit != _TENANT_LIMIT
                    or request.wait_until <= time.monotonic()
                ):
                    offer.put_back()
                return None
            tried += 1
        return tried

    def _load_sessions(self, place: Place) -> None:
        """Loads at once the sessions of as many callers as there are tasks on offer."""
        if place in self._sessions_loaded:
            return
        self._sessions_loaded.add(place)
        here = (item for item in self._requests if item.request.key.place == place)
        first = islice(chain(self._waiters.at(place), here), self._offers[place].size)
        missing = [
            key
            for key in dict.fromkeys(map(_session_key, first))
            if key not in self._round.loaded_records
        ]
        if missing:
            self._round.load(missing)
