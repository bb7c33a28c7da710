"""A lane: a thread that takes what is waiting, decides it in order against records it has just loaded, commits once, and answers.

While a batch is under way the next one gathers, so batches grow with load by themselves, and no timer adds latency when it is
quiet. Renewals and submissions go first: whoever has worked is not made to wait by those who would like to.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from genlock.core.commands import CheckDue, ClaimTask, Command, ReleaseClaim, RenewLease, SubmitResult
from genlock.core.decision import Decision
from genlock.core.events import ClaimAcquired
from genlock.core.index import index_of, microseconds
from genlock.core.keys import SESSION, TASK, Key, project_key, tenant_key
from genlock.core.reasons import Status
from genlock.core.results import ClaimResult, SweepResult
from genlock.core.rules import Reaction
from genlock.core.task.relate import SYSTEM
from genlock.engine.batch import Answer, Cell, Memo, Round
from genlock.engine.bell import Bell
from genlock.engine.counts import Counts
from genlock.engine.denials import FLUSH_SECONDS, Denials
from genlock.engine.flight import Flight, Pilot
from genlock.engine.jobs import Doubt, Item, Job, NextTask, Settle, Sweep, plain_item, resolve_all
from genlock.engine.next import NOTHING, Counter, repeated
from genlock.engine.patience import given_up, patiently, pause_after
from genlock.engine.reactions import Reactor, reactions_of
from genlock.engine.settle import Settler
from genlock.engine.spans import spans_of
from genlock.engine.watcher import Watcher
from genlock.errors import Busy, Closed, GenlockError, StoreError, StoreUnavailable
from genlock.store import MAX_DUE, EventQuery, Query, Store

MOST_COMMANDS = 512
MOST_BYTES = 4 * 1024 * 1024
_SETTLE_EVENTS = 1000
_SETTLE_AT_LAST = 5000
_UPKEEP_PAUSE = 0.05
_SETTLE_PAUSE = 0.2
_LOOK_AT_CLAIMS_SECONDS = 2.0
_URGENT = (RenewLease, SubmitResult, ReleaseClaim)


class Lane:
    """One thread and its queue."""

    def __init__(self, name: str, store: Store, watcher: Watcher, *, coordinator: str, profile: str) -> None:
        self._store = store
        self._watcher = watcher
        self._profile = profile
        self._counts = Counts(store)
        self._memo = Memo()
        self._settler = Settler(store, self._counts, profile)
        self._denials = Denials(coordinator)
        self._flushed = time.monotonic()
        self._bell = Bell()
        self._urgent: deque[Job] = deque()
        self._normal: deque[Job] = deque()
        self._current: list[Item] = []
        self._again: list[Item] = []
        self._waiting: list[Item] = []
        self._woken = False
        self._closing = False
        self._returned: deque[Job] = deque()
        """Releases of grants that nobody waits for; carried out also while the lane is closing."""
        self._wake_at: float | None = None
        self._events: dict[tuple[str, str], int] = {}
        self._unsettled: set[tuple[str, str]] = set()
        self._settle_at: dict[tuple[str, str], float] = {}
        self._postponed: dict[tuple[str, str], float] = {}
        """When a settling that was left out for haste is to be made up for."""
        self._looked_at: dict[tuple[str, str], float] = {}
        self._flight: Flight | None = None
        """The batch that is being committed while the next one is decided."""
        self._landing: Flight | None = None
        """The one before it, while its reactions are run."""
        self._pilot = Pilot(f"genlock-commit-{name}", self._has_landed) if store.limits.shared else None
        self.thread = threading.Thread(target=self._run, name=f"genlock-lane-{name}", daemon=True)
        self.thread.start()

    # For callers, in any thread

    def submit(self, job: Job) -> None:
        """Queues a job."""
        queue = self._urgent if isinstance(job.requests[0], _URGENT) else self._normal
        with self._bell.lock:
            if self._closing:
                raise Closed("the coordinator is closed")
            queue.append(job)
            self._bell.ring()

    def give_back(self, job: Job) -> None:
        """Releases what was granted to a job that nobody waits for; `close` lets it through."""
        releases = releases_of(job)
        if releases:
            with self._bell.lock:
                self._returned.append(Job(releases, time.monotonic() + 5))
                self._bell.ring()

    def poke(self) -> None:
        """Something may have changed for those who wait."""
        with self._bell.lock:
            self._woken = True
            self._bell.ring()

    def close(self) -> None:
        """Finishes the batch under way and answers the rest `Closed`."""
        with self._bell.lock:
            self._closing = True
            self._bell.ring()

    # The thread

    def _run(self) -> None:
        try:
            while True:
                items = self._gather()
                if items is None:
                    self._land()
                    with contextlib.suppress(GenlockError):
                        self._settler.leave()
                    break
                self._current = items
                if items:
                    self._process(items)
                else:
                    self._land()
                self._current = []
                try:
                    self._upkeep()
                except StoreError:
                    # It is tried again after a pause; what callers ask for meanwhile says itself what is wrong.
                    time.sleep(_UPKEEP_PAUSE)
        finally:
            # Also if a bug of ours ends the thread: its traceback is printed, and nobody is left waiting for an answer.
            self._end()

    def _gather(self) -> list[Item] | None:
        """Waits for work; None when the lane is to end."""
        with self._bell.lock:
            while not (self._closing or self._returned or self._is_wanted()):
                timeout = self._sleep()
                if timeout is not None and timeout <= 0:
                    break
                self._bell.sleep(timeout)
            if self._closing and not self._returned:
                return None
            self._woken = False
            jobs: list[Job] = list(self._returned)
            self._returned.clear()
            if self._closing:
                return [Item(job, at, request) for job in jobs for at, request in enumerate(job.requests)]
            items, self._again = self._again, []
            room, bytes_left = MOST_COMMANDS - len(items), MOST_BYTES
            for queue in (self._urgent, self._normal):
                while queue and ((room >= len(queue[0].requests) and bytes_left > 0) or not jobs):
                    job = queue.popleft()
                    jobs.append(job)
                    room -= len(job.requests)
                    bytes_left -= job.size
        for job in jobs:
            if not job.cancelled:
                items += [Item(job, at, request) for at, request in enumerate(job.requests)]
        waiting, self._waiting = self._waiting, []
        items += [item for item in waiting if item.job is not None and not item.job.cancelled]
        if waiting:
            items.sort(key=lambda item: item.number)
        return items

    def _is_wanted(self) -> bool:
        """Is there anything to do at once?"""
        if self._urgent or self._normal or self._again or self._woken:
            return True
        return self._flight.has_landed if self._flight is not None else bool(self._unsettled)

    def _has_landed(self) -> None:
        """By the pilot: the lane need not wait any more."""
        with self._bell.lock:
            self._bell.ring()

    def _sleep(self) -> float | None:
        """How long nothing will happen by itself."""
        ends = []
        if self._waiting:
            ends.append(min(item.request.wait_until for item in self._waiting))  # type: ignore[union-attr]
            if self._wake_at is not None:
                ends.append(self._wake_at)
        if self._denials:
            ends.append(self._flushed + FLUSH_SECONDS)
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _process(self, items: list[Item]) -> None:
        """One batch: decided, committed, and its reactions and answers. If others wait already, they are decided during the commit."""
        if self._flight is not None:
            items, held = self._flight.parted(items)
            if not items:
                self._land()
                items = held
            else:
                self._again += held
        until = max((item.job.deadline for item in items if item.job), default=time.monotonic() + 5)
        round = Round(self._store, self._counts, profile=self._profile, memo=self._memo)
        try:
            decided = self._decide(round, items)
        except StoreError as error:
            self._land()
            self._fail(items, error)
            return
        flight = Flight(items, decided, round, until)
        if round.draw_up() and self._pilot is not None and (self._flight is not None or self._urgent or self._normal):
            before = self._flight
            answers = before.answers() if before is not None else []
            self._flight, self._landing = flight, before
            self._pilot.take_off(flight)
            if before is not None:
                self._finish(before, answers)
        else:
            self._land()
            flight.fly()
            self._finish(flight, flight.answers())

    def _land(self) -> None:
        """Waits for the batch that is under way, if there is one, and sees to what follows from it."""
        flight = self._flight
        if flight is not None:
            answers = flight.answers()
            self._flight, self._landing = None, flight
            self._finish(flight, answers)

    def _finish(self, flight: Flight, answers: Sequence[Answer]) -> None:
        """After the commit: reactions, then answers."""
        round, ready = flight.round, flight.decided
        try:
            committed = round.note(answers)
            if round.troubled:
                ready = self._sort_out(flight.decided, round)
            self._look_again(ready, round, flight.until)
            reactions = reactions_of(committed)
            also = [(item, command) for item in ready if type(item.decision) is Decision for command in item.decision.also]
            if committed or also:
                self._react(committed, reactions, also, flight.until)
        except StoreError as error:
            self._fail(flight.items, error)
            return
        self._landing = None
        self._answer(ready, round)

    def _fail(self, items: list[Item], error: StoreError) -> None:
        """The store did not do its part, and nothing was decided."""
        self._landing = None
        self._put_back(items)
        if isinstance(error, StoreUnavailable):
            self._retry_later(items, error)
            return
        for item in items:
            item.decision = error
        self._answer(items, None)

    def _put_back(self, items: list[Item]) -> None:
        """Nothing was decided: whoever was set aside on the way is one of these again."""
        taken = set(map(id, items))
        self._again = [item for item in self._again if id(item) not in taken]
        self._waiting = [item for item in self._waiting if id(item) not in taken]

    def _decide(self, round: Round, items: list[Item]) -> list[Item]:
        round.prepare([item for item in items if isinstance(item.request, Command)])
        requests = [item.request for item in items if isinstance(item.request, NextTask)]
        if requests:
            round.load({key: None for request in requests for key in _known_keys(request)})
        if self._flight is not None and any(round.is_limited(item.request.key) for item in items):
            # Limits are exact within a lane: what is under way must be counted.
            self._land()
        if round.epoch:
            round.heed_epoch({item.request.key.place for item in items})
        decided: list[Item] = []
        counter = Counter(round, len(requests), frozenset() if self._flight is None else self._flight.tasks)
        for item in items:
            request = item.request
            if isinstance(request, NextTask):
                if self._decide_next(counter, item, request):
                    decided.append(item)
            elif isinstance(request, (Sweep, Settle)):
                item.decision = Decision(self._sweep(request))
                decided.append(item)
            elif round.decide(item) is None:
                self._again.append(item)
            else:
                decided.append(item)
        return decided

    def _decide_next(self, counter: Counter, item: Item, request: NextTask) -> bool:
        """Serves one request for a next task; False if it goes on waiting."""
        place, round = request.key.place, counter.round
        if request.operation and repeated(round, item):
            return True
        if item.doubts and self._serve_in_doubt(round, item):
            return True
        waits = request.wait_until > time.monotonic()
        if waits and place not in counter.offers:
            # Watched from before we look: what changes after our look wakes us.
            self._watcher.watch(place, self)
        if counter.serve(item, place):
            return True
        if self._flight is not None:
            # What is under way may be what opens the next one.
            self._land()
            counter.busy = frozenset()
            if counter.serve(item, place, anew=True):
                return True
        if place not in counter.searched:
            counter.searched.add(place)
            if self._look_harder(place, waits) and counter.serve(item, place, anew=True):
                return True
        if waits:
            self._waiting.append(item)
            if place not in counter.planned:
                counter.planned.add(place)
                self._plan_waking(place, round)
            return False
        item.decision = Decision(NOTHING)
        return True

    def _look_harder(self, place: tuple[str, str], waits: bool) -> bool:
        """Nothing was ready: were reactions cut off, or holders lost? True if something came of it."""
        now = time.monotonic()
        if waits and now < self._settle_at.get(place, 0):
            self._postponed[place] = self._settle_at[place]
            return False
        self._postponed.pop(place, None)
        self._settle_at[place] = now + _SETTLE_PAUSE
        found = self._settler.settle(place, now + 5) > 0
        if now >= self._looked_at.get(place, 0):
            self._looked_at[place] = now + _LOOK_AT_CLAIMS_SECONDS
            # Those who hold tasks: lapsed, vanished, silent. The first few do for a look in passing.
            result = self._check(Query(*place, state=Status.IN_PROGRESS, due_before=MAX_DUE), most=64)
            found = found or bool(result.expired or result.orphaned)
        return found

    def _plan_waking(self, place: tuple[str, str], round: Round) -> None:
        """When those who wait must look again although the feed has not moved."""
        now = time.monotonic()
        wake = min(self._postponed.get(place, now + _LOOK_AT_CLAIMS_SECONDS), self._looked_at.get(place, now + _LOOK_AT_CLAIMS_SECONDS))
        wake = max(wake, now + 0.05)
        due = self._store.find(Query(*place, due_before=MAX_DUE, limit=1)).records
        if due:
            record = round.take(due)[0].record
            due_at = index_of(record).due_at if record is not None else None
            if due_at is not None:
                wake = min(wake, now + max(0.0, (due_at - microseconds(round.now)) / 1e6) + 0.0005)
        self._wake_at = wake if self._wake_at is None or self._wake_at <= now else min(self._wake_at, wake)

    def _sort_out(self, decided: list[Item], round: Round) -> list[Item]:
        """Parts what can be answered from what must be decided again."""
        ready: list[Item] = []
        now = time.monotonic()
        for item in decided:
            cells = round.cells_of(item) if isinstance(item.command, Command) else []
            if cells:
                error = next((cell.error for cell in cells if cell.error), None)
                conflicted = any(cell.conflicted for cell in cells)
                if (conflicted or isinstance(error, StoreUnavailable)) and self._try_again(item, now):
                    item.doubts += doubts_of(item, round)
                    continue
                if error is not None:
                    item.decision = given_up(error) if isinstance(error, StoreUnavailable) else error
                elif conflicted:
                    item.decision = Busy("the record kept changing until the deadline; nothing was decided, try again")
            ready.append(item)
        return ready

    def _look_again(self, ready: list[Item], round: Round, until: float) -> None:
        """Whoever is in doubt, and was now answered without a write of his own that would settle it: was his first change done after all?

        Claims are decided anew: what counts is who holds the task now.
        """
        for item in ready:
            if item.doubts and type(item.command) is not ClaimTask and not round.cells[item.command.key].sealed:
                for doubt in item.doubts:
                    if came_true(self._store, doubt, until):
                        item.decision = doubt.decision
                        self._make_up_for(doubt.key.place, until)

    def _make_up_for(self, place: tuple[str, str], until: float) -> None:
        """Something was done whose reactions nobody has run: settling does, at once if that is possible."""
        self._unsettled.add(place)
        with contextlib.suppress(StoreError):
            self._settler.settle(place, until)
            self._unsettled.discard(place)

    def _try_again(self, item: Item, now: float) -> bool:
        if item.job is not None and now > item.job.deadline:
            return False
        item.attempt += 1
        self._again.append(item)
        return True

    def _serve_in_doubt(self, round: Round, item: Item) -> bool:
        """Claims the same task as before, if that can be had: another one would be a second, should the first claim still be done."""
        round.prepare([item])
        decision = round.decide(item)
        return type(decision) is Decision and decision.outcome.success is True

    def _retry_later(self, items: list[Item], error: StoreUnavailable) -> None:
        now = time.monotonic()
        late = [item for item in items if not self._try_again(item, now)]
        for item in late:
            item.decision = given_up(error)
        self._answer(late, None)

    def _react(self, committed: Sequence[Cell], reactions: list[Reaction], also: list[tuple[Item, Command]], until: float) -> None:
        """What was committed is done, whatever becomes of this: reactions are made up for by settling, `also` is owed."""
        reactor = Reactor(self._store, self._counts, self._profile)
        complete = True
        if reactions or also:
            try:
                complete = reactor.run(reactions, also, until)
            except StoreError as error:
                complete = False
                for item, _ in also:
                    item.decision = error
        moved: set[tuple[str, str]] = set()
        for span in (*spans_of(committed), *reactor.written):
            place = span.place
            moved.add(place)
            self._events[place] = self._events.get(place, 0) + span.events
            if self._events[place] >= _SETTLE_EVENTS:
                self._unsettled.add(place)
            if complete:
                self._settler.committed(span)
        if not complete:
            self._unsettled.update(moved)
        if self._waiting and any(item.request.key.place in moved for item in self._waiting):
            self._woken = True

    # Answering

    def _answer(self, items: list[Item], round: Round | None) -> None:
        """Hands the outcomes over: threads one by one, each event loop once."""
        loops: dict[Any, list[Job]] = {}
        for item in items:
            job, decision = item.job, item.decision
            outcome = decision.outcome if type(decision) is Decision else decision
            if type(outcome) is ClaimResult and not outcome.success and type(item.request) is ClaimTask and round is not None:
                by = item.request.by
                self._denials.note(item.request.key, by.session, by.agent, outcome, round.now)
            if job is None:
                continue
            if type(decision) is Decision and decision.events and type(decision.events[-1]) is ClaimAcquired:
                job.granted.append(item.at)
            job.results[item.at] = outcome
            job.left -= 1
            if job.left:
                continue
            if job.cancelled:
                self.give_back(job)
            elif job.loop is None:
                job.finish()
            else:
                loops.setdefault(job.loop, []).append(job)
        for loop, jobs in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed; nobody waits any more
                loop.call_soon_threadsafe(resolve_all, jobs)

    # Upkeep

    def _upkeep(self) -> None:
        """Between batches: pause after conflicts, write denials, settle now and then."""
        now = time.monotonic()
        if self._again:
            attempt = max(item.attempt for item in self._again)
            if attempt:
                time.sleep(pause_after(attempt))
        if self._denials and now - self._flushed >= FLUSH_SECONDS:
            self._flush_denials()
        for place in list(self._unsettled):
            if self._flight is not None and self._events.get(place, 0) < _SETTLE_AT_LAST:
                continue  # its events are not known to be ours yet, and would be read for nothing
            self._land()
            self._events[place] = 0
            _, more = self._settler.settle_page(place, now + 5)
            if not more:
                self._unsettled.discard(place)

    def _flush_denials(self) -> None:
        self._flushed = time.monotonic()
        self._run_own(self._denials.flush())

    def _sweep(self, request: Sweep | Settle) -> SweepResult:
        place, until = request.key.place, time.monotonic() + 60
        if isinstance(request, Settle):
            return SweepResult(settled=self._settler.settle(place, until))
        swept = self._check(Query(*place, due_before=MAX_DUE), None)
        settled = self._settler.settle(place, until)
        return SweepResult(swept.expired, swept.orphaned, swept.stale, settled)

    def _check(self, query: Query, most: int | None) -> SweepResult:
        expired = orphaned = stale = 0
        after = None
        while True:
            page = self._store.find(replace(query, after=after, limit=min(most or MOST_COMMANDS, MOST_COMMANDS)))
            if not page.records:
                break
            committed = self._run_own([CheckDue(stored.key, SYSTEM) for stored in page.records])
            kinds = [type(event).__name__ for cell in committed for event in cell.events]
            expired += kinds.count("ClaimExpired")
            orphaned += kinds.count("ClaimOrphaned")
            stale += kinds.count("ClaimStale")
            if page.next is None or most is not None:
                break
            after = page.next
        return SweepResult(expired, orphaned, stale)

    def _run_own(self, commands: Sequence[Command]) -> list[Cell]:
        """Commands of our own, in as many rounds as one record's events need; what conflicts is left to the next time."""
        written: list[Cell] = []
        items = [plain_item(command) for command in commands]
        while items:
            round = Round(self._store, self._counts, profile=self._profile, memo=self._memo)
            round.prepare(items)
            items = [item for item in items if round.decide(item) is None]
            committed = round.commit(time.monotonic() + 5)
            self._react(committed, reactions_of(committed), [], time.monotonic() + 5)
            written += committed
        return written

    def _end(self) -> None:
        """The last thing a lane does."""
        if self._denials:
            with contextlib.suppress(GenlockError):
                self._flush_denials()
        with self._bell.lock:
            jobs = [*self._urgent, *self._normal]
            self._urgent.clear()
            self._normal.clear()
            self._closing = True
        if self._pilot is not None:
            self._pilot.close()
        flights = [flight for flight in (self._landing, self._flight) if flight is not None]
        under_way = [item for flight in flights for item in flight.items]
        left = list({id(item): item for item in (*under_way, *self._current, *self._again, *self._waiting)}.values())
        for item in left:
            item.decision = Closed("the coordinator was closed before this was carried out")
        self._answer(left, None)
        for job in jobs:
            items = [Item(job, at, request) for at, request in enumerate(job.requests)]
            for item in items:
                item.decision = Closed("the coordinator was closed before this was carried out")
            self._answer(items, None)


def _known_keys(request: NextTask) -> list[Key]:
    key = request.key
    return [project_key(key.tenant, key.project), tenant_key(key.tenant), key.beside(SESSION, request.by.session)]


def doubts_of(item: Item, round: Round) -> tuple[Doubt, ...]:
    """The change of this item's own record, if it was done although another was not, or if nobody knows whether it will be."""
    cell = round.cells[item.command.key]
    if not cell.sealed or cell.error or (cell.conflicted and not cell.unsure):
        return ()
    return (Doubt(cell.key, cell.sealed[0].version, cell.sealed[0].digest, item.decision),)


def came_true(store: Store, doubt: Doubt, until: float) -> bool:
    """Is the change there now? What cannot be found out before the deadline is left as it was decided."""
    query = EventQuery(*doubt.key.place, record=doubt.key, after_version=doubt.version - 1, limit=1)
    try:
        events = patiently(lambda: store.read_events(query).events, until)
    except StoreError:
        return False
    return bool(events) and events[0].digest == doubt.digest


def releases_of(job: Job) -> list[ReleaseClaim]:
    """The releases of all that a job was granted anew; a claim that its session had before is not given up."""
    releases = []
    for at in job.granted:
        request, outcome = job.requests[at], job.results[at]
        if isinstance(outcome, ClaimResult) and outcome.claim is not None and isinstance(request, (ClaimTask, NextTask)):
            key = request.key.beside(TASK, outcome.claim.task_id)
            releases.append(ReleaseClaim(key, request.by, generation=outcome.claim.generation))
    return releases
