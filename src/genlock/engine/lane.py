"""A lane: a thread that takes what is waiting, decides it in order against records it has just loaded, commits once, and answers.

While a batch is under way the next one gathers, so batches grow with load by themselves, and no timer adds latency when it is
quiet. Renewals and submissions go first: whoever has worked is not made to wait by those who would like to.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter

from genlock.core.commands import Command
from genlock.core.decision import Decision
from genlock.core.index import index_of, microseconds
from genlock.core.keys import project_key, tenant_key
from genlock.core.model import TaskRecord
from genlock.core.task.view import claimable
from genlock.engine.activity import Activity
from genlock.engine.answering import answer
from genlock.engine.batch import Round
from genlock.engine.cells import Cell, Memo
from genlock.engine.commits import Answer
from genlock.engine.counts import Counts, claimed
from genlock.engine.doubts import dispel, doubt_all, doubts_of, is_nobodys, is_owed, serve_in_doubt, undecided, was_done
from genlock.engine.flight import Ahead, Flight, Pilot
from genlock.engine.foresight import foresee
from genlock.engine.inbox import Inbox
from genlock.engine.jobs import Item, Job, NextTask, Settle, Sweep, items_of
from genlock.engine.next import NOTHING, Counter, repeated
from genlock.engine.observing import Notes, Observer
from genlock.engine.outages import Outages
from genlock.engine.patience import LONGEST_PAUSE, given_up, patience_of, pause_after
from genlock.engine.upkeep import Upkeep
from genlock.engine.waiting import Place, Waiting
from genlock.engine.watcher import Watcher
from genlock.errors import Busy, Closed, GenlockError, OutcomeUnknown, StoreError, StoreUnavailable
from genlock.store import Store

MOST_COMMANDS = 512
LEAST_AHEAD = 128
"""For fewer commands it is not worth while to ask ahead: what they would share with others in a commit is more than what they wait."""
_UPKEEP_PAUSE = 0.05
_NO_COMMANDS = frozenset({NextTask, Sweep, Settle})
_LONG = frozenset({Sweep, Settle})
_number = attrgetter("number")


def _is_plain(job: Job) -> bool:
    """Does it need nothing but what its commands say? What is no command comes alone."""
    return type(job.requests[0]) not in _NO_COMMANDS


class Lane:
    """One thread and its inbox."""

    def __init__(
        self,
        name: str,
        store: Store,
        watcher: Watcher,
        *,
        coordinator: str,
        profile: str,
        observer: Observer | None = None,
        outages: Outages | None = None,
        activity: Activity | None = None,
    ) -> None:
        self._store = store
        self._outages = outages
        self._watcher = watcher
        self._profile = profile
        self._counts = Counts(store, outages, activity)
        self._memo = Memo()
        self._notes = None if observer is None else Notes(observer, name)
        self._upkeep = Upkeep(store, self._counts, self._memo, profile, coordinator, self._news, watcher.own, self._notes, outages)
        self._inbox = Inbox()
        self._current: list[Item] = []
        self._again: list[Item] = []
        self._waiting = Waiting()
        self._looks = False
        """Are those who wait to look again with this batch?"""
        self._depth = 0
        """Jobs that were waiting when the last batch was gathered."""
        self._flight: Flight | None = None
        """The batch that is being committed while the next one is decided."""
        self._ahead: Ahead | None = None
        """The batch after the one that is decided, if what it needs has been asked for already."""
        self._landing: Flight | None = None
        """The one before it, while its reactions are run; or one that is committed by the lane itself."""
        self._failed: BaseException | None = None
        """A bug of ours that was met by a caller who did the lane's work."""
        self._pilot = Pilot(f"genlock-commit-{name}", self._inbox.ring) if store.limits.shared else None
        self._asks = self._pilot is not None and store.limits.asks
        self.thread = threading.Thread(target=self._run, name=f"genlock-lane-{name}", daemon=True)
        self.thread.start()

    # For callers, in any thread

    @property
    def depth(self) -> int:
        """Jobs that wait to be begun."""
        return self._inbox.depth

    @property
    def waiters(self) -> int:
        """Requests for a next task that wait until there is one."""
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        """Queues a job."""
        self._inbox.put(job)

    def do(self, job: Job) -> bool:
        """Carries a job out in the calling thread, if nobody else has anything for this lane; False if it must be submitted.

        Two changes of threads take longer than all that is decided. What is not done at the first attempt is the lane's to go on with.
        The calling thread must not be broken off in the middle of it: see `uninterrupted`.
        """
        if type(job.requests[0]) in _LONG or not self._inbox.lend(self._is_idle):
            return False
        try:
            self._looks, self._depth = False, 1
            self._current = items_of(job)
            self._process(self._current, self._round())
            self._current = []
        except BaseException as error:  # noqa: BLE001  # it is the lane's thread that has to end by it, and to answer
            self._failed = error
        self._inbox.take_back(self._has_more, self._rest)
        return True

    def _is_idle(self) -> bool:
        """Is nothing under way or set aside?"""
        return self._flight is None and not self._again and not self._waiting and self._failed is None

    def give_back(self, job: Job) -> None:
        """Releases what was granted to a job that nobody waits for."""
        self._inbox.give_back(job)

    def poke(self) -> None:
        """Something may have changed for those who wait."""
        self._inbox.poke()

    def close(self) -> None:
        """Finishes the batch under way and answers the rest `Closed`."""
        self._inbox.close()

    # The thread

    def _run(self) -> None:
        try:
            while True:
                ahead, self._ahead = self._ahead, None
                items = self._gather() if ahead is None else ahead.items
                if items is None:
                    if self._flight is not None:
                        self._land()
                        continue
                    self._dismiss()
                    if self._inbox.has_returns:
                        continue  # of what was granted to some of these, nobody has heard
                    with contextlib.suppress(GenlockError):
                        self._upkeep.leave()
                    break
                self._current = items
                if ahead is not None:
                    self._process_ahead(ahead)
                elif items or self._looks:
                    self._process(items, self._round())
                else:
                    self._land()
                self._current = []
                try:
                    self._tidy_up()
                except StoreError:
                    # It is tried again after a pause; what callers ask for meanwhile says itself what is wrong.
                    time.sleep(_UPKEEP_PAUSE)
        finally:
            # Also if a bug of ours ends the thread: its traceback is printed, and nobody is left waiting for an answer.
            self._end()

    def _gather(self) -> list[Item] | None:
        """Waits for work; None when the lane is to end."""
        is_open = self._inbox.wait(self._has_more, self._rest)
        if self._failed is not None:
            raise self._failed
        if not is_open:
            return self._owed() or None
        if self._inbox.is_closed:
            return [*self._owed(), *(item for job in self._inbox.take(0) for item in items_of(job))]
        woken = self._inbox.heed()
        again, self._again = self._again, []
        # Who is in doubt may hold its task already: it is not to wait for another, and is not forgotten though its call was cancelled.
        items = [item for item in again if item.doubts or not isinstance(item.request, NextTask)]
        self._depth = self._inbox.depth
        for job in self._inbox.take(self._room() - len(items)):
            if not job.cancelled:
                items += items_of(job)
        for item in again:
            if isinstance(item.request, NextTask) and not item.doubts:
                # It lost a race, or was held back, and keeps its place among those who wait.
                self._waiting.add(item)
                woken = True
        items += self._waiting.late(time.monotonic())
        self._looks = bool(self._waiting) and (woken or self._must_look(items))
        if self._looks:
            self._waiting.quiet.clear()
        items.sort(key=_number)
        return items

    def _owed(self) -> list[Item]:
        """While the lane is closing: those for whom nobody waits, and who may hold something all the same."""
        self._looks = False
        owed = [item for item in self._again if is_owed(item)] if self._inbox.may_go_on else []
        self._again = [item for item in self._again if item not in owed]
        return owed

    def _must_look(self, items: list[Item]) -> bool:
        """Are those who wait to look again? They are if somebody else does, who is not to pass them, and when it is time.

        Where there was nothing at the last look, whoever comes to wait does so at once, and whose time is up is told that.
        """
        now = time.monotonic()
        if self._waiting.is_time(now):
            return True
        asking = [item for item in items if isinstance(item.request, NextTask)]
        return any(
            item.request.key.place not in self._waiting.quiet or (item.request.wait_until <= now and not item.waited)  # type: ignore[union-attr]
            for item in asking
        )

    def _has_more(self) -> bool:
        """Is there anything to do at once besides what is in the inbox?"""
        return bool(self._again or self._failed) or (self._flight.has_landed if self._flight is not None else self._upkeep.is_due)

    def _rest(self) -> float | None:
        """How long nothing will happen by itself."""
        settle_at = self._upkeep.settle_at if self._flight is None else None
        ends = [end for end in (self._waiting.next_end, self._upkeep.flush_at, settle_at) if end is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _room(self) -> int:
        """How many commands the next batch may have. Of many half are left for the one after it, which can be asked for meanwhile."""
        waiting = self._inbox.commands if self._asks and not self._waiting else 0
        return MOST_COMMANDS if waiting < 2 * LEAST_AHEAD else min(MOST_COMMANDS, waiting // 2)

    def _look_ahead(self) -> None:
        """Asks for what the next batch will need, so that the server reads that while this one is decided. Only where many wait.

        To be heard of later is as good as to be loaded by another coordinator: it was read after these commands came, and what has
        changed since then conflicts. What is under way just now, and what comes of it, is likely to, and is left for the batch after.
        """
        if not self._asks or self._inbox.commands < LEAST_AHEAD or self._again or self._waiting:
            return
        items = [item for job in self._inbox.take_ahead(self._room(), _is_plain) if not job.cancelled for item in items_of(job)]
        if self._flight is not None:
            items, held = self._flight.parted(items)
            self._again += held
        if items:
            self._ahead = Ahead(items, self._round())
            self._ahead.round.ask(items)

    def _process_ahead(self, ahead: Ahead) -> None:
        """The batch that was asked for. Whatever rests on what was changed since then is loaded anew, after what comes before it."""
        self._looks, self._depth = False, self._inbox.depth
        fresh, stale = ahead.parted()
        self._again += stale
        self._current = fresh
        ahead.round.forget(ahead.changed)
        if fresh:
            self._decide_and_commit(fresh, ahead.round)
        else:
            with contextlib.suppress(StoreError):
                ahead.round.prepare(())  # to have heard it: the connection is somebody else's by then

    def _round(self) -> Round:
        return Round(self._store, self._counts, profile=self._profile, memo=self._memo, outages=self._outages)

    def _process(self, items: list[Item], round: Round) -> None:
        """One batch: decided, committed, and its reactions and answers. If others wait already, they are decided during the commit."""
        if self._flight is not None:
            free, held = self._flight.parted(items)
            # Sweeps would be held for ever where there is always a flight under way.
            if any(isinstance(item.request, (Sweep, Settle)) for item in held) or not (free or self._looks):
                self._land()
            else:
                # Whoever is served joins these, and must be found there should the lane end here.
                self._current = items = free
                self._again += held
        self._decide_and_commit(items, round)

    def _decide_and_commit(self, items: list[Item], round: Round) -> None:
        until = patience_of(items, time.monotonic())
        start = time.perf_counter()
        try:
            decided = self._decide(round, items)
        except StoreError as error:
            if self._ahead is not None:
                self._ahead.changed.update([item.request.key for item in items])  # these come first
            self._land()
            self._fail([*items, *self._left_waiting(error)], error)
            return
        if self._ahead is not None:
            self._ahead.changed.update([cell.key for cell in round.cells.values() if cell.sealed])
        flight = Flight(items, decided, round, until, self._watcher.own)
        flight.depth, flight.seconds = self._depth, time.perf_counter() - start
        if round.draw_up() and self._pilot is not None and (self._flight is not None or self._ahead is not None or self._inbox.depth):
            before = self._flight
            answers = before.answers() if before is not None else []
            self._flight, self._landing = flight, before
            self._pilot.take_off(flight)
            if before is not None:
                self._finish(before, answers)
        else:
            self._land()
            self._landing = flight
            self._finish(flight, flight.answers())

    def _land(self) -> bool:
        """Waits for the batch that is under way, if there is one, and sees to what follows from it. May something be ready by it?"""
        flight = self._flight
        if flight is None:
            return False
        answers = flight.answers()
        self._flight, self._landing = None, flight
        return self._finish(flight, answers)

    def _finish(self, flight: Flight, answers: Sequence[Answer]) -> bool:
        """After the commit: reactions, then answers. May something be ready by it?"""
        round, ready = flight.round, flight.decided
        try:
            committed = round.note(answers)
            if round.troubled:
                ready = self._sort_out(flight.decided, round)
                self._inbox.woken = True  # what was handed out and could not be written is there again
            for place in dispel(ready, round, flight.until):
                self._upkeep.make_up_for(place, flight.until)
            also = [(item, command) for item in ready if type(item.decision) is Decision for command in item.decision.also]
            opened = bool(committed or also) and self._upkeep.react(committed, flight.spans, also, flight.until, round.now)
        except StoreError as error:
            self._fail(flight.items, error)
            return True
        self._landing = None
        self._answer(ready, round, flight)
        return opened or round.troubled

    def _left_waiting(self, error: StoreError) -> list[Item]:
        """Those who wait and could not look: while the store is away they try again soon, otherwise they are told what is wrong."""
        if not self._looks:
            return []
        if isinstance(error, StoreUnavailable):
            self._waiting.wake_by(time.monotonic() + LONGEST_PAUSE)
            return []
        return self._waiting.all()

    def _fail(self, items: list[Item], error: StoreError) -> None:
        """The store did not do its part, and nothing was decided."""
        self._landing = None
        self._put_back(items)
        if isinstance(error, StoreUnavailable):
            if self._outages is not None:
                self._outages.lost()
            self._retry_later(items, error)
            return
        for item in items:
            item.decision = undecided(item, error)
        self._answer(items, None)

    def _put_back(self, items: list[Item]) -> None:
        """Nothing was decided: whoever was set aside on the way is one of these again."""
        taken = set(map(id, items))
        self._again = [item for item in self._again if id(item) not in taken]
        for item in items:
            if isinstance(item.request, NextTask):
                self._waiting.remove(item)

    def _decide(self, round: Round, items: list[Item]) -> list[Item]:
        # By the exact type, here and below: `isinstance` of a struct takes three times as long if it is another.
        asking = [item for item in items if type(item.request) is NextTask]
        waiting = list(self._waiting.places) if self._looks else []
        places = {item.request.key.place for item in asking} | set(waiting)
        known = {key for place in places for key in (project_key(*place), tenant_key(place[0]))}
        busy = frozenset() if self._flight is None else self._flight.tasks
        sessions, queries = foresee(asking, waiting, self._waiting, len(busy)) if self._store.limits.looks else ((), ())
        round.prepare([item for item in items if type(item.request) not in _NO_COMMANDS], (*known, *sessions), queries)
        self._look_ahead()
        if self._flight is not None and any(map(round.is_limited, places.union([item.request.key[:2] for item in items]))):
            # Limits are exact within a lane: what is under way must be counted.
            self._land()
            round.forget_foreseen()
        if round.epoch:
            round.heed_epoch({item.request.key.place for item in items} | places)
        counter = Counter(round, asking, self._waiting, busy if self._flight is not None else frozenset())
        given, decided = list(items), []
        # First those who may hold a task already: were it given to another in this round, they would be given a second one.
        served = [item for item in asking if item.doubts and serve_in_doubt(round, item)]
        decided += served
        for place in waiting:
            decided += self._serve_waiting(counter, place, items)
        for item in [item for item in given if item not in served] if served else given:
            request = item.request
            if type(request) not in _NO_COMMANDS:
                is_decided = (item.doubts and was_done(item, round)) or round.decide(item) is not None
                (decided if is_decided else self._again).append(item)
            elif isinstance(request, NextTask):
                if self._decide_next(counter, item, request):
                    decided.append(item)
            elif isinstance(request, (Sweep, Settle)):
                (decided if self._go_on(item, request) else self._again).append(item)
        self._waiting.quiet.update(place for place in counter.planned if counter.offers[place].is_exhausted)
        return decided

    def _go_on(self, item: Item, request: Sweep | Settle) -> bool:
        """The next piece of a sweep; True if it was the last. After an error it begins anew."""
        course = self._upkeep.sweep(request) if item.course is None else item.course
        item.course = None
        try:
            next(course)
        except StopIteration as end:
            item.decision = Decision(end.value)
            return True
        item.course = course
        return False

    def _serve_waiting(self, counter: Counter, place: Place, items: list[Item]) -> list[Item]:
        """Serves those who wait there, in their order, as long as there is something; who is served joins the batch."""
        served = []
        for item in self._waiting.at(place):
            if self._decide_next(counter, item, item.request):  # type: ignore[arg-type]
                self._waiting.remove(item)
                items.append(item)
                served.append(item)
            elif counter.offers[place].is_empty:
                break
        return served

    def _decide_next(self, counter: Counter, item: Item, request: NextTask) -> bool:
        """Serves one request for a next task; False if it goes on waiting."""
        place, round = request.key.place, counter.round
        waits = request.wait_until > time.monotonic()
        # When it comes; and when it goes: another with the same id, who waited as well, may have been granted something meanwhile.
        if request.operation and not (item.waited and waits) and repeated(round, item):
            return True
        if item.doubts and item.job is not None and item.job.cancelled:
            # What it may have held cannot be had any more, and nobody asks for anything else.
            return self._find_nothing(item, waits=False)
        if place in self._waiting.quiet and (waits or item.waited):
            return self._find_nothing(item, waits)
        if waits and place not in counter.offers:
            # Watched from before we look: what changes after our look wakes us.
            self._watcher.watch(place, self)
        if counter.serve(item, place):
            return True
        if self._flight is not None:
            # What is under way may be what opens the next one.
            counter.landed(self._land())
        if counter.may_have_more(place) and counter.serve(item, place, anew=True):
            return True
        if not waits and counter.offers[place].has_more_due and item.job is not None and time.monotonic() < item.job.deadline:
            # What is due is written down some at a time: behind those that were not for this caller there may be one.
            self._again.append(item)
            return False
        if place not in counter.searched and not (waits and place in counter.served):
            counter.searched.add(place)
            if self._upkeep.look_harder(place, waits) and counter.serve(item, place, anew=True):
                return True
        if waits and place not in counter.planned:
            counter.planned.add(place)
            self._plan_waking(counter, place)
        return self._find_nothing(item, waits)

    def _find_nothing(self, item: Item, waits: bool) -> bool:
        """There is nothing for this request: it goes on waiting, or is told so."""
        if waits:
            item.waited = True
            self._waiting.add(item)
            return False
        item.decision = Decision(NOTHING)
        return True

    def _plan_waking(self, counter: Counter, place: tuple[str, str]) -> None:
        """When those who wait must look again although the feed has not moved."""
        now = time.monotonic()
        self._waiting.wake_by(self._upkeep.look_at(place, now))
        due_at = counter.offers[place].next_due
        if due_at is not None:
            self._waiting.wake_by(now + max(0.0, (due_at - microseconds(counter.round.now)) / 1e6) + 0.0005)

    def _sort_out(self, decided: list[Item], round: Round) -> list[Item]:
        """Parts what can be answered from what must be decided again."""
        ready: list[Item] = []
        now = time.monotonic()
        for item in decided:
            cells = round.cells_of(item) if isinstance(item.command, Command) else []
            if cells:
                error = next((cell.error for cell in cells if cell.error), None)
                conflicted = any(cell.conflicted for cell in cells)
                if conflicted or error is not None:
                    item.doubts += doubts_of(item, round)
                passes = conflicted or isinstance(error, StoreUnavailable) or (isinstance(error, OutcomeUnknown) and is_nobodys(item))
                if passes and self._try_again(item, now):
                    continue
                if error is not None:
                    item.decision = undecided(item, given_up(error) if isinstance(error, StoreUnavailable) else error)
                elif conflicted:
                    item.decision = undecided(item, Busy("the record kept changing until the deadline; nothing was decided, try again"))
            ready.append(item)
        return ready

    def _try_again(self, item: Item, now: float) -> bool:
        if item.job is not None and now > item.job.deadline:
            return False
        item.attempt += 1
        self._again.append(item)
        return True

    def _retry_later(self, items: list[Item], error: StoreUnavailable) -> None:
        now = time.monotonic()
        late = [item for item in items if not self._try_again(item, now)]
        for item in late:
            item.decision = undecided(item, given_up(error))
        self._answer(late, None)

    def _answer(self, items: list[Item], round: Round | None, flight: Flight | None = None) -> None:
        answer(items, None if round is None else round.now, self._upkeep.denials, self.give_back)
        if self._notes is not None and (items or flight is not None):
            self._notes.tell(items, flight)

    def _news(self, cells: Iterable[Cell], now: datetime) -> None:
        """These were written here. Those who wait look again if one of them can be had, and when time will make one so."""
        if self._ahead is not None:
            self._ahead.changed.update([cell.key for cell in cells])
        if not self._waiting:
            return
        places = self._waiting.places
        # There, somebody may wait for a limit's sake: a claim less of any project of the tenant makes room.
        limited = {place[0] for place in places if place not in self._waiting.quiet}
        for cell in cells:
            record = cell.record
            if not isinstance(record, TaskRecord):
                continue
            if cell.key.tenant in limited and claimed(cell.read) > claimed(record):
                self._inbox.woken = True
            if cell.key[:2] in places:
                if claimable(record):
                    self._inbox.woken = True
                due_at = index_of(record).due_at
                if due_at is not None:
                    self._waiting.wake_by(time.monotonic() + max(0.0, (due_at - microseconds(now)) / 1e6) + 0.0005)

    def _tidy_up(self) -> None:
        """Between batches: pause after conflicts, write denials, settle now and then."""
        if self._again:
            attempt = max(item.attempt for item in self._again)
            if attempt:
                time.sleep(pause_after(attempt))
        flush_at = self._upkeep.flush_at
        if flush_at is not None and time.monotonic() >= flush_at:
            self._upkeep.flush_denials()
        self._upkeep.settle_now_and_then(None if self._flight is None else self._land)
        if self._notes:
            self._notes.tell()

    def _end(self) -> None:
        """The last thing a lane does."""
        if self._upkeep.flush_at is not None:
            with contextlib.suppress(GenlockError):
                self._upkeep.flush_denials()
        if self._pilot is not None:
            self._pilot.close()
        flights = [flight for flight in (self._landing, self._flight) if flight is not None]
        for flight in flights:
            # It was handed to the store, and nobody has seen, or will see, what came of it.
            doubt_all(flight.decided, flight.round)
        self._dismiss([*(item for flight in flights for item in flight.items), *self._current, *(self._ahead.items if self._ahead else ())])

    def _dismiss(self, under_way: Iterable[Item] = ()) -> None:
        """Tells everybody who is still here that the lane ends."""
        queued = [item for job in self._inbox.clear() for item in items_of(job)]
        left = list({id(item): item for item in (*under_way, *self._again, *self._waiting.all(), *queued)}.values())
        self._again, self._waiting = [], Waiting()
        for item in left:
            item.decision = undecided(item, Closed("the coordinator was closed before this was carried out"))
        self._answer(left, None)
