"""Copies any store into any other, through the port alone.

1. Compare the target with the source (resume.py). If it is not a prefix of the source, write
   nothing.
2. Copy results that are too large for a record. Then raise the target's epoch above the source's,
   to a number made from the time: from now on they are two histories, and neither may grant a
   generation that the other has granted (ADR 43).
3. Copy the source's feed in order, project by project: each event unchanged, each record folded
   from its events (batches.py). If a record's first events were purged, copy its base first.
4. If the source was written to meanwhile, repeat 2 and 3 until it stops changing.
5. Record in the target how far the source's recovery has come (resume.py).
6. Check the target by replay, and compare it with the source (compare.py).

While one page of the feed is written, the next is read.

If the process is killed at any step, the target holds a prefix of the source, and the same command
continues from there. That holds inside a commit, too, if endpoints.py has opened the target. The
copy also continues by itself after a temporary fault, after a purge of the source, and after the
target's epoch has risen, which means that the server may have lost the last writes.

The target has positions and a birth of its own, so cursors of the source are invalid there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from genlock.core.keys import KINDS, NOWHERE, SETTLED, Key, payload_task
from genlock.engine.scan import pages_of, payloads_of, places, read_whole, records_of
from genlock.errors import (
    BadArgument,
    CursorLost,
    NotAllowed,
    OutcomeUnknown,
    ResultNotFound,
    StoreCorrupt,
    StoreUnavailable,
)
from genlock.failpoints import hit
from genlock.store import (
    Change,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Query,
    RecordedEvent,
    Store,
)
from genlock.stores.epoch_guard import EpochNumber
from genlock.transfer.batches import States, batches, begun_at, state_of
from genlock.transfer.bulk_reader import prefetched
from genlock.transfer.compare import CopyDiffers, compare
from genlock.transfer.endpoints import TransferRetry
from genlock.transfer.resume import Beginning, beginnings, is_purged_since, settle_alike

PAGE = 4000
MOST_STATES = 20_000
"""The number of records whose state is cached. Others are loaded from the target again."""
MOST_ROUNDS = 20

Progress = Callable[[str, int, int | None], None]
"""Called with the step, the amount done, and the total if known."""


class OutOfOrder(NotAllowed):
    """The target's feed would not have the source's order."""


class SourceMoving(NotAllowed):
    """The source is being written to."""


class TargetMoving(NotAllowed):
    """Another process writes to the target."""


class Copied(Struct, frozen=True):
    """The result of a copy."""

    projects: int
    tasks: int
    events: int
    """Events written by this call."""
    found: int
    """Events that the target had already, from an interrupted copy."""
    payloads: int
    epoch: int
    moved: bool
    """Was the source written to during the copy?"""
    verified: bool
    seconds: float
    missing_payloads: tuple[str, ...] = ()
    """Results whose bytes are missing in the source, or differ from what was submitted, by task and
    digest."""


def copy(
    source: Store,
    target: Store,
    *,
    verify: bool = True,
    any_order: bool = False,
    progress: Progress | None = None,
) -> Copied:
    """Copies everything in `source` to `target`, which is empty or holds a prefix of it."""
    began = time.monotonic()
    tally = _Tally()
    while True:
        try:
            _refuse_same(source, target)
            found = beginnings(source, target)
            tally.first(found)
            _refuse_disorder(found, any_order=any_order)
            job = _Copy(source, target, found, tally, progress or (lambda what, done, total: None))
            job.run()
            for place in job.cursors:
                settle_alike(source, target, place)
            hit("copy.settled")
            if verify:
                compare(
                    source,
                    target,
                    sorted(job.cursors),
                    job.progress,
                    ordered=not any_order,
                    moved=job.has_moved,
                )
            if job.has_moved():
                raise _moving()
            return _copied(target, job, verify=verify, seconds=time.monotonic() - began)
        except (StoreUnavailable, OutcomeUnknown) as fault:
            tally.retry.wait(fault)
        except _EpochBegun:
            continue
        except CursorLost as lost:  # the source was purged, or one of the two epochs has risen
            tally.start_again(lost)
        except CopyDiffers as differs:
            if not is_purged_since(source, target):
                raise
            tally.start_again(differs)


def _copied(target: Store, job: _Copy, *, verify: bool, seconds: float) -> Copied:
    tasks = sum(
        sum(target.find(Query(*place), count_by="state").counts.values()) for place in job.cursors
    )
    return Copied(
        projects=sum(place[1] != NOWHERE for place in job.cursors),
        tasks=tasks,
        events=job.events + job.found - job.tally.found,
        found=job.tally.found,
        payloads=job.payloads,
        epoch=target.load([]).epoch,
        moved=job.tally.moved,
        verified=verify,
        seconds=round(seconds, 3),
        missing_payloads=tuple(
            f"{key.tenant}/{key.project} {payload_task(key)} {digest}"
            for key, digest in job.missing
        ),
    )


def _refuse_same(source: Store, target: Store) -> None:
    """Refuses to copy a store into itself. Only the same store accepts its own cursors, whatever
    its URL."""
    cursor = source.read_events(EventQuery(NOWHERE, NOWHERE, tail=True)).cursor
    try:
        target.read_events(EventQuery(NOWHERE, NOWHERE, after=cursor, limit=1))
    except (BadArgument, CursorLost):
        return
    raise BadArgument("the source and the target are the same store; name another target")


def _refuse_disorder(found: Iterable[Beginning], *, any_order: bool) -> None:
    ahead = sum(each.ahead for each in found)
    if ahead and not any_order:
        raise OutOfOrder(
            f"an earlier copy was broken off inside a commit, and {ahead} events stand in the "
            "target before others that come first in "
            "the source; empty the target and copy again, or accept another order among these with "
            "--any-order"
        )


def _moving() -> SourceMoving:
    return SourceMoving(
        "the source is being written to, and its last events are not in the target: end "
        "whatever works on it, and type the same again"
    )


class _EpochBegun(Exception):
    """The target was read in the previous epoch, and refuses commits based on that."""


class _Tally:
    """The work of one call, over all its attempts."""

    def __init__(self) -> None:
        self.retry = TransferRetry()
        self.found = -1
        """Events in the target before the first attempt."""
        self.has_epoch = False
        """Was the target's epoch raised?"""
        self.moved = False
        self.has_unknown_outcome = False
        """Was there a commit with an unknown outcome? It may still be executed after we checked."""
        self._starts = 0

    def start_again(self, why: CursorLost | CopyDiffers) -> None:
        """Starts again from the present state. Raises the error after too many attempts."""
        self.moved = True
        self._starts += 1
        if self._starts > MOST_ROUNDS:
            raise _moving() from why

    def first(self, found: list[Beginning]) -> None:
        """Records the events before the first attempt. Later attempts find its writes."""
        if self.found < 0:
            self.found = sum(each.events + each.beyond for each in found)


class _Copy:
    """One attempt."""

    def __init__(
        self,
        source: Store,
        target: Store,
        found: list[Beginning],
        tally: _Tally,
        progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._found = found
        self._epoch = target.load([]).epoch
        self.tally = tally
        self.progress = progress
        self.cursors: dict[tuple[str, str], str | None] = {
            each.place: each.cursor for each in found
        }
        """The position up to which each feed of the source was copied."""
        self._fresh = {each.place for each in found if each.is_empty}
        self._noted = {each.place for each in found if each.own_note}
        self._all = 0
        """The sum of the last positions of the source's feeds, for the progress."""
        self.events = self.payloads = 0
        self.found = sum(each.events for each in found)
        self.missing: list[tuple[Key, str]] = []

    def run(self) -> None:
        """Copies until the source stops changing."""
        for number in range(1, MOST_ROUNDS + 1):
            self._copy_payloads()
            if number == 1:
                self._begin()
            here = sorted({*places(self._source), *self.cursors})
            self._all = sum(
                self._source.read_events(EventQuery(*place, tail=True)).position for place in here
            )
            for place in here:
                self._copy_place(place)
            if not self.has_moved():
                return
            self.tally.moved = True
        raise _moving()

    def has_moved(self) -> bool:
        """Does the source have events that were not copied?"""
        if set(places(self._source)) - set(self.cursors):
            return True
        return any(
            self._source.read_events(EventQuery(*place, after=after, limit=1)).events
            for place, after in self.cursors.items()
        )

    def _begin(self) -> None:
        source, began = self._source.load([]).epoch, any(not each.is_empty for each in self._found)
        # An earlier run or attempt began an epoch. Another one is needed if the source's is above
        # it.
        if self._epoch <= source or not (began or self.tally.has_epoch):
            self._epoch = EpochNumber().above(max(source, self._epoch))
            self._target.set_epoch(self._epoch)
            self.tally.has_epoch = True
            hit("copy.epoch")
            if began:
                raise _EpochBegun
        for each in self._found:
            for key, version, base in each.bases:
                self._swap_in(key, version, base)

    def _copy_payloads(self) -> None:
        """Copies the payloads. A target without payloads refuses the first one before anything is
        written."""
        self.payloads, self.missing = 0, []
        ours, theirs = self._source.payloads(), self._target.payloads()
        for key, digest in dict.fromkeys(
            payloads_of(self._source, sorted({*places(self._source), *self.cursors}))
        ):
            try:
                theirs.open(key, digest).close()
            except ResultNotFound:
                try:
                    data = read_whole(ours, key, digest)
                except ResultNotFound:
                    self.missing.append((key, digest))
                    continue
                theirs.put(key, digest, data)
                hit("copy.payload")
            self.payloads += 1
            self.progress("results", self.payloads, None)

    def _copy_place(self, place: tuple[str, str]) -> None:
        after = self.cursors.setdefault(place, None)
        states: States = {}
        for page in prefetched(pages_of(self._source, place, after, PAGE)):
            if len(states) > MOST_STATES:
                states.clear()
            events = [
                recorded
                for recorded in page.events
                if place not in self._noted or recorded.key.kind != SETTLED
            ]
            self._look_up(events, states, fresh=after is None and place in self._fresh)
            before = self.events
            for changes in batches(events, states, self._target.limits):
                self._commit(changes)
                self.events += sum([len(change.events) for change in changes])
                hit("copy.batch")
            self.found += len(events) - (self.events - before)
            self.cursors[place] = page.cursor
            self.progress("events", self.events + self.found, self._all)
        self._bring_silent(place)

    def _look_up(self, events: Iterable[RecordedEvent], states: States, *, fresh: bool) -> None:
        """Loads the states of these events' records in the target. Records that should exist but
        are missing begin with their base."""
        first: dict[Key, int] = {}
        for recorded in events:
            if recorded.key not in states:
                first.setdefault(recorded.key, recorded.version)
        wanted = [key for key, version in first.items() if version > 1 or not fresh]
        states.update(
            {key: state_of(stored) for key, stored in self._target.load(wanted).records.items()}
            if wanted
            else {}
        )
        self._bring_bases(
            [key for key, version in first.items() if version > 1 and key not in states], states
        )

    def _bring_bases(self, keys: list[Key], states: States) -> None:
        """Creates records whose first events were purged at their base, and swaps the base in."""
        for start in range(0, len(keys), self._target.limits.batch):
            bases = {
                key: self._base_of(key) for key in keys[start : start + self._target.limits.batch]
            }
            begun = {key: begun_at(key, base) for key, base in bases.items()}
            self._commit([change for _, change in begun.values()])
            hit("copy.begun")
            for key, (state, _) in begun.items():
                self._swap_in(key, state.version, bases[key])
                states[key] = state

    def _swap_in(self, key: Key, version: int, base: bytes) -> None:
        self._target.purge(key, version + 1, base)
        hit("copy.base")

    def _kept(self, key: Key) -> EventPage:
        return self._source.read_events(EventQuery(*key.place, record=key, limit=1))

    def _base_of(self, key: Key) -> bytes:
        base = self._kept(key).base
        if base is None:
            raise StoreCorrupt(
                f"{'/'.join(key)}: its first events are missing in the source; type: genlock doctor"
            )
        return base

    def _bring_silent(self, place: tuple[str, str]) -> None:
        """Copies records without kept events, which the feed does not show. There are some if the
        target has fewer records."""
        for kind in KINDS:
            query = Query(*place, kind=kind)
            ours, theirs = (
                sum(store.find(query, count_by="state").counts.values())
                for store in (self._source, self._target)
            )
            if theirs < ours:
                keys = [stored.key for stored in records_of(self._source, *place, kind)]
                there: set[Key] = set()
                for start in range(0, len(keys), PAGE):
                    there.update(self._target.load(keys[start : start + PAGE]).records)
                # A record with events was written after its feed was read, and is copied with them.
                self._bring_bases(
                    [key for key in keys if key not in there and not self._kept(key).events], {}
                )

    def _commit(self, changes: list[Change]) -> None:
        for change, answer in zip(changes, self._answers(changes), strict=True):
            if not isinstance(answer, Committed):
                if self.tally.has_unknown_outcome or self._target.load([]).epoch > self._epoch:
                    raise StoreUnavailable(
                        "the target was restarted during the copy, or did a commit late that had "
                        "been given up"
                    )
                raise TargetMoving(
                    f"somebody else has written {change.key.kind} {change.key.id} of "
                    f"{'/'.join(change.key.place)} to the target: let one "
                    "copy at a time, and no agents, work on it"
                )

    def _answers(self, changes: list[Change]) -> Sequence[Committed | Conflict]:
        """Commits the changes and returns the answers. Retries while the target is unavailable and
        nothing is written."""
        while True:
            try:
                answers = self._target.commit(changes)
            except StoreUnavailable as fault:
                self.tally.retry.wait(fault)
            except OutcomeUnknown:
                self.tally.has_unknown_outcome = True
                raise
            else:
                if any(isinstance(answer, Committed) for answer in answers):
                    self.tally.retry.renew()
                return answers
