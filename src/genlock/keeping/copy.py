"""Any store into any other, through the port alone.

1. What the target has already is compared with the source (beginning.py). Nothing is written if it is not a beginning of it.
2. Results too large for a record, create-only; then the epoch.
3. Project by project the source's feed in its order: each event as it is, each record folded from its events (batches.py). Of a record
   whose first events are no longer kept, the base is brought first.
4. If the source was written to meanwhile, 2 and 3 go on from where they were, until it stands still.
5. The target is settled as far as the source is (settling.py).
6. The target is checked by replay and compared with the source (comparing.py).

While one page of the feed is at work the next is read.

Whoever kills this at any step leaves a beginning, also inside a commit of a target that was opened by ends.py; the same command goes on
from there. So it does by itself after a fault that may pass,
after the target's epoch has risen, by which a server says that it may have lost what was written last, and after the source was purged.

Positions are the target's own, and its birth is another: cursors of the source are told that they are lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from genlock.core.keys import KINDS, NOWHERE, SETTLED, Key, payload_task
from genlock.engine.check import places
from genlock.engine.payloads import payloads_of, read_whole
from genlock.engine.walk import pages_of, records_of
from genlock.errors import BadArgument, CursorLost, NotAllowed, OutcomeUnknown, ResultNotFound, StoreCorrupt, StoreUnavailable
from genlock.failpoints import hit
from genlock.keeping.ahead import ahead
from genlock.keeping.batches import States, batches, begun_at, state_of
from genlock.keeping.beginning import Beginning, beginnings, is_purged_since
from genlock.keeping.comparing import CopyDiffers, compare
from genlock.keeping.patience import Patience
from genlock.keeping.settling import settle_alike
from genlock.store import Change, Committed, Conflict, EventPage, EventQuery, Query, Recorded, Store

PAGE = 4000
MOST_STATES = 20_000
"""So many records are remembered as they were left; the others are loaded from the target when they come again."""
MOST_ROUNDS = 20

Progress = Callable[[str, int, int | None], None]
"""Told what is being done, how much of it is done, and how much there is, if that is known."""


class OutOfOrder(NotAllowed):
    """The target's feed would not have the source's order."""


class SourceMoving(NotAllowed):
    """The source is being written to."""


class TargetMoving(NotAllowed):
    """The target is being written to by somebody else."""


class Copied(Struct, frozen=True):
    """What is in the target now, and what was done for it."""

    projects: int
    tasks: int
    events: int
    """Written by this call."""
    found: int
    """Events that were there already, from a copy that was broken off."""
    payloads: int
    epoch: int
    moved: bool
    """Was the source written to during the copy?"""
    verified: bool
    seconds: float
    missing_payloads: tuple[str, ...] = ()
    """Results whose bytes were not in the source, or not what was submitted, by task and digest."""


def copy(source: Store, target: Store, *, verify: bool = True, any_order: bool = False, progress: Progress | None = None) -> Copied:
    """Brings everything in `source` into `target`, which is empty or a beginning of it."""
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
                compare(source, target, sorted(job.cursors), job.progress, ordered=not any_order, moved=job.has_moved)
            if job.has_moved():
                raise _moving()
            return _copied(target, job, verify=verify, seconds=time.monotonic() - began)
        except (StoreUnavailable, OutcomeUnknown) as fault:
            tally.patience.wait(fault)
        except CursorLost as lost:  # the source was purged meanwhile, or the epoch of one of the two has risen
            tally.start_again(lost)
        except CopyDiffers as differs:
            if not is_purged_since(source, target):
                raise
            tally.start_again(differs)


def _copied(target: Store, job: _Copy, *, verify: bool, seconds: float) -> Copied:
    tasks = sum(sum(target.find(Query(*place), count_by="state").counts.values()) for place in job.cursors)
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
        missing_payloads=tuple(f"{key.tenant}/{key.project} {payload_task(key)} {digest}" for key, digest in job.missing),
    )


def _refuse_same(source: Store, target: Store) -> None:
    """Only a store itself understands its cursors, whatever it is called."""
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
            f"an earlier copy was broken off inside a commit, and {ahead} events stand in the target before others that come first in "
            "the source; empty the target and copy again, or accept another order among these with --any-order"
        )


def _moving() -> SourceMoving:
    return SourceMoving(
        "the source is being written to, and what was written last is not in the target: end whatever works on it, and type the same again"
    )


class _Tally:
    """What one call has done, in all its tries."""

    def __init__(self) -> None:
        self.patience = Patience()
        self.found = -1
        """Events that were in the target before the first."""
        self.moved = False
        self.has_doubts = False
        """Was there a commit of unknown outcome? It may still be done after one has looked for it."""
        self._starts = 0

    def start_again(self, why: CursorLost | CopyDiffers) -> None:
        """From what is there by now, unless that has been tried too often."""
        self.moved = True
        self._starts += 1
        if self._starts > MOST_ROUNDS:
            raise _moving() from why

    def first(self, found: list[Beginning]) -> None:
        """Later ones find what the first has written."""
        if self.found < 0:
            self.found = sum(each.events + each.beyond for each in found)


class _Copy:
    """One try."""

    def __init__(self, source: Store, target: Store, found: list[Beginning], tally: _Tally, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._found = found
        self._epoch = target.load([]).epoch
        self.tally = tally
        self.progress = progress
        self.cursors: dict[tuple[str, str], str | None] = {each.place: each.cursor for each in found}
        """How far each feed of the source has been copied."""
        self._fresh = {each.place for each in found if each.is_empty}
        self._noted = {each.place for each in found if each.own_note}
        self._all = 0
        """The last positions of the source's feeds, added up, to say how much there is."""
        self.events = self.payloads = 0
        self.found = sum(each.events for each in found)
        self.missing: list[tuple[Key, str]] = []

    def run(self) -> None:
        """Copies until the source stands still."""
        for number in range(1, MOST_ROUNDS + 1):
            self._copy_payloads()
            if number == 1:
                self._begin()
            here = sorted({*places(self._source), *self.cursors})
            self._all = sum(self._source.read_events(EventQuery(*place, tail=True)).position for place in here)
            for place in here:
                self._copy_place(place)
            if not self.has_moved():
                return
            self.tally.moved = True
        raise _moving()

    def has_moved(self) -> bool:
        """Is there anything in the source that has not been copied?"""
        if set(places(self._source)) - set(self.cursors):
            return True
        return any(self._source.read_events(EventQuery(*place, after=after, limit=1)).events for place, after in self.cursors.items())

    def _begin(self) -> None:
        epoch = self._source.load([]).epoch
        if epoch > self._epoch:
            self._target.set_epoch(epoch)
            self._epoch = epoch
        hit("copy.epoch")
        for each in self._found:
            for key, version, base in each.bases:
                self._swap_in(key, version, base)

    def _copy_payloads(self) -> None:
        """A target that keeps none refuses the first, and then nothing has been written."""
        self.payloads, self.missing = 0, []
        ours, theirs = self._source.payloads(), self._target.payloads()
        for key, digest in dict.fromkeys(payloads_of(self._source, sorted({*places(self._source), *self.cursors}))):
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
        for page in ahead(pages_of(self._source, place, after, PAGE)):
            if len(states) > MOST_STATES:
                states.clear()
            events = [recorded for recorded in page.events if place not in self._noted or recorded.key.kind != SETTLED]
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

    def _look_up(self, events: Iterable[Recorded], states: States, *, fresh: bool) -> None:
        """Where the records of these events are in the target; of those that are not there and should be, the base is brought."""
        first: dict[Key, int] = {}
        for recorded in events:
            if recorded.key not in states:
                first.setdefault(recorded.key, recorded.version)
        wanted = [key for key, version in first.items() if version > 1 or not fresh]
        states.update({key: state_of(stored) for key, stored in self._target.load(wanted).records.items()} if wanted else {})
        self._bring_bases([key for key, version in first.items() if version > 1 and key not in states], states)

    def _bring_bases(self, keys: list[Key], states: States) -> None:
        """Records whose first events are no longer kept: each is created where its base stands, and gets the base."""
        for start in range(0, len(keys), self._target.limits.batch):
            bases = {key: self._base_of(key) for key in keys[start : start + self._target.limits.batch]}
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
            raise StoreCorrupt(f"{'/'.join(key)}: its first events are missing in the source; type: genlock doctor")
        return base

    def _bring_silent(self, place: tuple[str, str]) -> None:
        """Records of which no event is kept do not occur in the feed; there are some if the target has fewer records."""
        for kind in KINDS:
            query = Query(*place, kind=kind)
            ours, theirs = (sum(store.find(query, count_by="state").counts.values()) for store in (self._source, self._target))
            if theirs < ours:
                keys = [stored.key for stored in records_of(self._source, *place, kind)]
                there: set[Key] = set()
                for start in range(0, len(keys), PAGE):
                    there.update(self._target.load(keys[start : start + PAGE]).records)
                # One that has events was written after its feed was read, and comes with them.
                self._bring_bases([key for key in keys if key not in there and not self._kept(key).events], {})

    def _commit(self, changes: list[Change]) -> None:
        for change, answer in zip(changes, self._answers(changes), strict=True):
            if not isinstance(answer, Committed):
                if self.tally.has_doubts or self._target.load([]).epoch > self._epoch:
                    raise StoreUnavailable("the target was restarted during the copy, or did late what had been given up")
                raise TargetMoving(
                    f"somebody else has written {change.key.kind} {change.key.id} of {'/'.join(change.key.place)} to the target: let one "
                    "copy at a time, and no agents, work on it"
                )

    def _answers(self, changes: list[Change]) -> Sequence[Committed | Conflict]:
        """What became of a commit; while the target is away and nothing is written, it is asked again."""
        while True:
            try:
                answers = self._target.commit(changes)
            except StoreUnavailable as fault:
                self.tally.patience.wait(fault)
            except OutcomeUnknown:
                self.tally.has_doubts = True
                raise
            else:
                if any(isinstance(answer, Committed) for answer in answers):
                    self.tally.patience.renew()
                return answers
