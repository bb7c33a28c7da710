"""The pipeline: decides batches, commits them, and finishes them while the next one is decided.

With a server, a commit is mostly waiting, and a lane that waited too would decide nothing in that
time. So only the waiting is handed to a second thread. Everything else stays with the lane's
thread, in order: it sends, reads the answers, runs the reactions and answers the callers. Nothing
is decided on a record that a batch in flight changes before that batch is finished. Under load, the
records of the next batch are loaded while this one is decided (prefetch).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue

from genlock.core.commands import Command
from genlock.core.decision import Decision
from genlock.core.facts import keys_from_command
from genlock.core.keys import SESSION, TASK, Key, project_key, tenant_key
from genlock.engine.batch import BatchRound
from genlock.engine.claim_next import ClaimNext
from genlock.engine.commit import Answer, LoadedRecord
from genlock.engine.feed_watch import FeedRange, FeedWatch
from genlock.engine.inbox import Inbox
from genlock.engine.jobs import Item, Job, NextTask, Recover, Sweep, batch_deadline, items_of
from genlock.engine.maintenance import Maintenance
from genlock.engine.outage_grace import OutageTracker
from genlock.engine.retry import deadline_passed
from genlock.engine.unknown_outcomes import (
    is_abandoned,
    mark_all_unknown,
    must_be_resolved,
    possible_writes_of,
    resolve_outcomes,
    undecided,
    was_written,
)
from genlock.errors import Busy, OutcomeUnknown, StoreError, StoreUnavailable
from genlock.store import Store
from genlock.threads import started

MOST_COMMANDS = 512
LEAST_PREFETCHED = 128
"""Fewer commands are not prefetched: they gain more by sharing a commit with later ones."""
_NO_COMMANDS = frozenset({NextTask, Sweep, Recover})


def _is_plain(job: Job) -> bool:
    """Does the job need only the records that its commands name? A request that is not a command
    comes alone."""
    return type(job.requests[0]) not in _NO_COMMANDS


class InFlightBatch:
    """A batch that is decided and whose commit has started."""

    def __init__(
        self,
        items: list[Item],
        decided: list[Item],
        round: BatchRound,
        until: float,
        written: Callable[[list[FeedRange]], None],
    ) -> None:
        """`written` is called with the feed ranges as soon as the commit is done."""
        self.items = items
        self.decided = decided
        self.round = round
        self.until = until
        self._written = written
        self.depth = 0
        """The number of jobs that were waiting when the batch was gathered; for observers."""
        self.seconds = 0.0
        """The seconds it took to load and decide; for observers."""
        self.tasks: set[Key] = set()
        """The tasks that the batch changes. They are not offered to any request."""
        self._others: set[Key] = set()
        self._asking: set[str] = set()
        """The sessions that have requested a next task under an operation id."""
        self.feed_ranges: list[FeedRange] = []
        """The positions of the batch's events in the feeds."""
        self._is_sent = False
        self._failed: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()
        self.is_done = False

    def send(self) -> None:
        """Notes the records that are busy from now on, and sends the commit."""
        self._is_sent = True
        for key in [loaded.key for loaded in self.round.loaded_records.values() if loaded.sealed]:
            (self.tasks if key.kind == TASK else self._others).add(key)
        for item in self.items:
            request = item.request
            if type(request) is NextTask and request.operation:
                self._asking.add(request.by.session)
        self.round.batch_commit.send()

    def wait(self) -> None:
        """Waits, in the commit thread, until the answers can be read."""
        try:
            self.round.batch_commit.wait()
        except BaseException as error:  # the lane's thread has to end by it  # noqa: BLE001
            self._failed = error
        self.is_done = True
        self._done.release()

    def answers(self) -> list[Answer]:
        """Returns the outcome of each change. Commits first if the batch was not sent."""
        if self._is_sent:
            self._done.acquire()
        if self._failed is not None:
            raise self._failed
        answers = self.round.batch_commit.write(self.until)
        self.feed_ranges = self.round.feed_ranges(answers)
        self._written(self.feed_ranges)
        return answers

    def split(self, items: Iterable[Item]) -> tuple[list[Item], list[Item]]:
        """Returns items that can be decided while this batch is in flight, and items that must
        wait."""
        free: list[Item] = []
        held: list[Item] = []
        for item in items:
            (held if self._concerns(item) else free).append(item)
        return free, held

    def _concerns(self, item: Item) -> bool:
        # The exact type is compared: `isinstance` of a struct takes three times as long when it
        # does not match.
        request = item.request
        if type(request) is NextTask:
            # A retry must find the claim granted to the first request.
            session = request.by.session
            return session in self._asking or request.key.beside(SESSION, session) in self._others
        if type(request) is Sweep or type(request) is Recover or request.key in self.tasks:
            return True
        return bool(self._others) and not self._others.isdisjoint(
            (request.key, *keys_from_command(request))  # type: ignore[arg-type]
        )


class PrefetchedBatch:
    """A batch that was gathered, and whose load has started, while the batch before it is
    decided."""

    def __init__(self, items: list[Item], round: BatchRound) -> None:
        self.items = items
        self.round = round
        self.changed: set[Key] = set()
        """Records that the lane has changed, or is about to change, since the load began."""

    def split(self) -> tuple[list[Item], list[Item]]:
        """Returns items whose prefetched records are current, and items whose records must be
        loaded again."""
        fresh: list[Item] = []
        stale: list[Item] = []
        for item in self.items:
            is_fresh = self.changed.isdisjoint((item.command.key, *item.wanted))
            (fresh if is_fresh else stale).append(item)
        return fresh, stale


class CommitThread:
    """The thread that waits for the server in the lane's place. It starts with its first batch."""

    def __init__(self, name: str, finished: Callable[[], None]) -> None:
        """`finished` is called after each batch."""
        self._name = name
        self._finished = finished
        self._batches: SimpleQueue[InFlightBatch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, batch: InFlightBatch) -> None:
        """Sends the batch's commit and waits for it in the background."""
        batch.send()
        if self._thread is None:
            self._thread = started(self._run, self._name)
        if self._thread is not None:
            self._batches.put(batch)
        else:
            batch.wait()  # no thread can be started

    def close(self) -> None:
        """Ends the thread after the batches that it was given."""
        self._batches.put(None)

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            batch.wait()
            self._finished()


class Pipeline:
    """The batches of one lane: the one being decided, the one in flight, the prefetched one, and
    the items that are decided again. Only the lane's own thread uses it."""

    def __init__(
        self,
        name: str,
        store: Store,
        new_round: Callable[[], BatchRound],
        inbox: Inbox,
        claim_next: ClaimNext,
        maintenance: Maintenance,
        watcher: FeedWatch,
        outages: OutageTracker | None,
        answer: Callable[[list[Item], BatchRound | None, InFlightBatch | None], None],
    ) -> None:
        """`answer` hands the items' decisions to the callers."""
        self._store = store
        self._new_round = new_round
        self._inbox = inbox
        self._claim_next = claim_next
        self._maintenance = maintenance
        self._watcher = watcher
        self._outages = outages
        self._answer = answer
        self._commit_thread = (
            CommitThread(f"genlock-commit-{name}", inbox.wake) if store.limits.shared else None
        )
        self._can_prefetch = self._commit_thread is not None and store.limits.starts
        self._deciding: list[Item] = []
        self._again: list[Item] = []
        self._prefetched: PrefetchedBatch | None = None
        self._in_flight: InFlightBatch | None = None
        self._finishing: InFlightBatch | None = None
        """The batch whose reactions are being run, or that the lane itself commits."""

    # Questions of the lane

    @property
    def room(self) -> int:
        """Returns the number of commands that the next batch may have. If many wait, half are left
        for the batch after it, which can then be prefetched."""
        waiting = self._inbox.commands if self._can_prefetch and not self._claim_next else 0
        if waiting < 2 * LEAST_PREFETCHED:
            return MOST_COMMANDS
        return min(MOST_COMMANDS, waiting // 2)

    @property
    def is_busy(self) -> bool:
        """Is a batch in flight?"""
        return self._in_flight is not None

    @property
    def has_more(self) -> bool:
        """Is there anything to do at once?"""
        return bool(self._again) or (self._in_flight is not None and self._in_flight.is_done)

    @property
    def attempts(self) -> int:
        """Returns the largest number of attempts among the items that are decided again."""
        return max((item.attempt for item in self._again), default=0)

    def take_again(self) -> list[Item]:
        """Removes and returns the items that are decided again."""
        again, self._again = self._again, []
        return again

    def decide_again(self, item: Item) -> None:
        """Puts an item into the next batch."""
        self._again.append(item)

    def changed(self, loaded_records: Iterable[LoadedRecord]) -> None:
        """Notes written records: their prefetched copies are stale."""
        if self._prefetched is not None:
            self._prefetched.changed.update([loaded.key for loaded in loaded_records])

    # A batch

    def process(self, items: list[Item], depth: int) -> None:
        """Decides and commits a batch. If more jobs wait already, its commit is left in flight.

        `depth` is the number of jobs that were waiting when it was gathered.
        """
        self._deciding = items
        if not items and not self._claim_next.waiters_look:
            self.finish_in_flight()
        elif self._in_flight is None:
            self._decide_and_commit(items, self._new_round(), depth)
        else:
            free, held = self._in_flight.split(items)
            # A sweep would wait for ever if there were always a batch in flight.
            if any(isinstance(item.request, (Sweep, Recover)) for item in held) or not (
                free or self._claim_next.waiters_look
            ):
                self.finish_in_flight()
            else:
                self._deciding = items = free
                self._again += held
            self._decide_and_commit(items, self._new_round(), depth)
        self._deciding = []

    def process_prefetched(self) -> bool:
        """Decides and commits the prefetched batch. False if there is none.

        Items that depend on records changed since then are loaded again, with the next batch.
        """
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is None:
            return False
        self._deciding = prefetched.items
        self._claim_next.waiters_look = False
        fresh, stale = prefetched.split()
        self._again += stale
        self._deciding = fresh
        prefetched.round.discard_prefetched(prefetched.changed)
        if fresh:
            self._decide_and_commit(fresh, prefetched.round, self._inbox.depth)
        else:
            with contextlib.suppress(StoreError):
                prefetched.round.prepare(())  # reads the answer, to return the connection
        self._deciding = []
        return True

    def _prefetch(self) -> None:
        """Starts to load the records of the next batch, if many commands wait.

        A record that is read now is as good as one that another coordinator reads now: these
        commands have arrived already, and a later change conflicts. Commands on records in flight
        are left for a later batch, because those records are likely to change.
        """
        if (
            not self._can_prefetch
            or self._inbox.commands < LEAST_PREFETCHED
            or self._again
            or self._claim_next
        ):
            return
        items = [
            item
            for job in self._inbox.take_while(self.room, _is_plain)
            if not job.cancelled
            for item in items_of(job)
        ]
        if self._in_flight is not None:
            items, held = self._in_flight.split(items)
            self._again += held
        if items:
            self._prefetched = PrefetchedBatch(items, self._new_round())
            self._prefetched.round.start_load(items)

    def _decide_and_commit(self, items: list[Item], round: BatchRound, depth: int) -> None:
        until = batch_deadline(items, time.monotonic())
        start = time.perf_counter()
        try:
            decided = self._decide(round, items)
        except StoreError as error:
            if self._prefetched is not None:
                # These items are decided before the prefetched ones.
                self._prefetched.changed.update([item.request.key for item in items])
            self.finish_in_flight()
            self._fail([*items, *self._claim_next.load_failed(error)], error)
            return
        self.changed(loaded for loaded in round.loaded_records.values() if loaded.sealed)
        batch = InFlightBatch(items, decided, round, until, self._watcher.own)
        batch.depth, batch.seconds = depth, time.perf_counter() - start
        others_wait = self.is_busy or self._prefetched is not None or self._inbox.depth
        if round.seal() and self._commit_thread is not None and others_wait:
            before = self._in_flight
            answers = before.answers() if before is not None else []
            self._in_flight, self._finishing = batch, before
            self._commit_thread.start(batch)
            if before is not None:
                self._finish(before, answers)
        else:
            self.finish_in_flight()
            self._finishing = batch
            self._finish(batch, batch.answers())

    def _decide(self, round: BatchRound, items: list[Item]) -> list[Item]:
        """Decides the items in order of arrival, after the waiters, and returns those that are
        decided. The others wait or are decided again."""
        requests = [item for item in items if type(item.request) is NextTask]
        places = self._claim_next.places(requests)
        busy = frozenset() if self._in_flight is None else self._in_flight.tasks
        self._load(round, items, requests, places, len(busy))
        self._prefetch()
        all_places = places.union([item.request.key[:2] for item in items])
        if self._in_flight is not None and any(map(round.is_limited, all_places)):
            # Limits are exact within a lane, so the batch in flight must be counted.
            self.finish_in_flight()
            round.discard_pages()
        if round.epoch:
            round.note_epoch(all_places)
        serving = self._claim_next.begin(
            round, requests, busy if self.is_busy else frozenset(), self
        )
        arrived = list(items)
        decided = serving.serve_first(items)
        first = set(map(id, decided))
        for item in arrived:
            if id(item) in first:
                continue
            request = item.request
            if type(request) not in _NO_COMMANDS:
                is_decided = (
                    bool(item.possible_writes) and was_written(item, round)
                ) or round.decide(item) is not None
                (decided if is_decided else self._again).append(item)
            elif type(request) is NextTask:
                if serving.decide(item):
                    decided.append(item)
            else:
                is_decided = self._maintenance.sweep_further(item)
                (decided if is_decided else self._again).append(item)
        serving.end()
        return decided

    def _load(
        self,
        round: BatchRound,
        items: list[Item],
        requests: list[Item],
        places: Iterable[tuple[str, str]],
        busy: int,
    ) -> None:
        settings = [key for place in places for key in (project_key(*place), tenant_key(place[0]))]
        sessions, queries = (
            self._claim_next.reads(requests, busy) if self._store.limits.starts else ([], [])
        )
        commands = [item for item in items if type(item.request) not in _NO_COMMANDS]
        round.prepare(commands, (*settings, *sessions), queries)

    # After the commit

    def finish_in_flight(self) -> bool | None:
        """Waits for the batch in flight and finishes it. None if there is none, True if it may have
        made a task ready."""
        batch = self._in_flight
        if batch is None:
            return None
        answers = batch.answers()
        self._in_flight, self._finishing = None, batch
        return self._finish(batch, answers)

    def _finish(self, batch: InFlightBatch, answers: Sequence[Answer]) -> bool:
        """Runs the reactions, then answers. Returns whether a task may have become ready."""
        round, ready = batch.round, batch.decided
        try:
            committed = round.take_answers(answers)
            if round.troubled:
                ready = self._sort_out(batch.decided, round)
                self._inbox.poked = True  # a task that could not be granted is ready again
            for place in resolve_outcomes(ready, round, batch.until):
                self._maintenance.recover(place, batch.until)
            followups = [
                (item, command)
                for item in ready
                if type(item.decision) is Decision
                for command in item.decision.followups
            ]
            opened = bool(committed or followups) and self._maintenance.react(
                committed, batch.feed_ranges, followups, batch.until, round.now
            )
        except StoreError as error:
            self._fail(batch.items, error)
            return True
        self._finishing = None
        self._answer(ready, round, batch)
        return opened or round.troubled

    def _sort_out(self, decided: list[Item], round: BatchRound) -> list[Item]:
        """Returns the items that can be answered. The others are decided again."""
        ready: list[Item] = []
        now = time.monotonic()
        for item in decided:
            changed = round.changed_records(item) if isinstance(item.command, Command) else []
            if changed:
                error = next((loaded.error for loaded in changed if loaded.error), None)
                conflicted = any(loaded.conflicted for loaded in changed)
                if conflicted or error is not None:
                    item.possible_writes += possible_writes_of(item, round)
                passes = (
                    conflicted
                    or isinstance(error, StoreUnavailable)
                    or (isinstance(error, OutcomeUnknown) and is_abandoned(item))
                )
                if passes and self._try_again(item, now):
                    continue
                if error is not None:
                    if isinstance(error, StoreUnavailable):
                        error = deadline_passed(error)
                    item.decision = undecided(item, error)
                elif conflicted:
                    item.decision = undecided(item, Busy(_KEPT_CHANGING))
            ready.append(item)
        return ready

    def _fail(self, items: list[Item], error: StoreError) -> None:
        """Handles items that were not decided because the store failed. If it is unavailable, they
        are decided again until their deadlines, otherwise they are answered with the error."""
        self._finishing = None
        failed = set(map(id, items))
        self._again = [item for item in self._again if id(item) not in failed]
        self._claim_next.remove(items)
        if isinstance(error, StoreUnavailable):
            if self._outages is not None:
                self._outages.lost()
            now = time.monotonic()
            items = [item for item in items if not self._try_again(item, now)]
            error = deadline_passed(error)
        for item in items:
            item.decision = undecided(item, error)
        self._answer(items, None, None)

    def _try_again(self, item: Item, now: float) -> bool:
        if item.job is not None and now > item.job.deadline:
            return False
        item.attempt += 1
        self._again.append(item)
        return True

    # The end

    def take_unresolved(self) -> list[Item]:
        """Removes and returns, while the lane closes, the items without a caller that may hold a
        claim."""
        self._claim_next.waiters_look = False
        if not self._inbox.may_retry:
            return []
        unresolved = [item for item in self._again if must_be_resolved(item)]
        self._again = [item for item in self._again if not must_be_resolved(item)]
        return unresolved

    def abort(self) -> list[Item]:
        """Removes and returns all items of all batches. The outcome of a batch that was sent stays
        unknown."""
        if self._commit_thread is not None:
            self._commit_thread.close()
        batches = [batch for batch in (self._finishing, self._in_flight) if batch is not None]
        for batch in batches:
            mark_all_unknown(batch.decided, batch.round)
        return [
            *(item for batch in batches for item in batch.items),
            *self._deciding,
            *(self._prefetched.items if self._prefetched else ()),
            *self.take_again(),
        ]


_KEPT_CHANGING = "the record kept changing until the deadline; nothing was decided, try again"
