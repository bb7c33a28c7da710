"""Any store into any other and back: the same records, the same feeds, whatever happens on the
way."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.core.codec import decode_event, decode_record, encode_base
from genlock.core.keys import KINDS, SETTLED, Key
from genlock.core.policy import TenantLimits
from genlock.core.reasons import Status
from genlock.engine.replay_check import check, folded
from genlock.engine.scan import missing_payloads, pages_of, purge_old, records_of
from genlock.errors import (
    BadArgument,
    CursorLost,
    OutcomeUnknown,
    OverLimit,
    StoreCorrupt,
    StoreUnavailable,
)
from genlock.retry import Backoff
from genlock.store import Change, Committed, Conflict, EventPage, EventQuery, Limits, Store, Stored
from genlock.stores.memory import MemoryStore
from genlock.testing.clock import ManualClock
from genlock.testing.sample import make_change, make_key
from genlock.transfer import copy as copying
from genlock.transfer import endpoints
from genlock.transfer.batches import batches
from genlock.transfer.compare import CopyDiffers
from genlock.transfer.copy import OutOfOrder, SourceMoving, TargetMoving, copy
from genlock.transfer.resume import TargetTaken
from tests.cli.console import Ran, home, run
from tests.servers import redis, stores
from tests.servers.proxy import between
from tests.stores.server_suite import through
from tests.test_replay_check import DAY, write_a_fleet

APOLLO = "acme", "apollo"
SILENT = Key(*APOLLO, "session", "s3")
"""A record of which no event is kept."""


def facts_of(store: Store) -> dict[str, Any]:
    """All that a copy keeps: records, feeds in their order. Its epoch, and how far it is settled,
    are its own."""
    found: dict[str, Any] = {}
    for place in sorted(store.audit().places):
        for kind in KINDS:
            if kind != SETTLED:
                found[f"{place} {kind}"] = [
                    stored[:4] for stored in records_of(store, *place, kind)
                ]
        events = [recorded for page in pages_of(store, place, limit=50) for recorded in page.events]
        found[f"{place} feed"] = [
            recorded[:4] for recorded in events if recorded.key.kind != SETTLED
        ]
    return found


def make_source(url: str, *, large: int = 40_000) -> None:
    """Records of every kind in three projects of two tenants, a purged history, an epoch that was
    raised."""
    clock = ManualClock()
    write_a_fleet(url, clock, large)
    store = genlock.open_store(url, create=True, clock=clock)
    clock.advance(10 * DAY)
    assert purge_old(store, APOLLO, TenantLimits(claim_history_retention_days=5)) > 20
    stored = store.load([SILENT]).records[SILENT]
    store.purge(
        SILENT,
        stored.version + 1,
        encode_base(stored.version, stored.digest, decode_record("session", stored.body)),
    )
    store.set_epoch(2)
    store.close()
    who: dict[str, Any] = {"session_id": "sitzung-ä 🐙", "agent_id": "Ωmega"}
    with genlock.connect(
        url, create=True, clock=clock, tenant_id="acme", project_id="Gemini", **who
    ) as fleet:
        fleet.add_tasks(
            tasks=[
                {"id": f"A-{number:03}-task", "title": f"Aufgabe {number} ☂"}
                for number in range(30)
            ]
        )
        for number in range(0, 30, 2):
            assert fleet.claim_task(task_id=f"A-{number:03}-task").success
        for number in range(0, 30, 4):
            fleet.submit_result(
                task_id=f"A-{number:03}-task",
                generation=2_000_001,
                result_data={"text": "ü" * (large // 2)},
            )


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite://{tmp_path_factory.mktemp('full') / 's.db'}"
    make_source(url)
    return url


@pytest.fixture(scope="module")
def without_payloads(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite://{tmp_path_factory.mktemp('small') / 's.db'}"
    make_source(url, large=400)
    return url


@pytest.fixture
def opened() -> Iterator[Callable[[str], Store]]:
    """Opens stores that are closed in the end."""
    handles: list[Store] = []

    def open_it(url: str) -> Store:
        handles.append(genlock.open_store(url, create=True))
        return handles[-1]

    yield open_it
    for handle in handles:
        handle.close()


@pytest.fixture
def small() -> Iterator[MemoryStore]:
    """A store with a few tasks in one project, all of whose changes were made one by one."""
    store = MemoryStore()
    fleet = genlock.connect(store.handle(), session_id="s1", agent_id="ada")
    for number in range(6):
        fleet.add_tasks(tasks=[{"id": f"A-{number:03}-task"}])
    fleet.claim_task(task_id="A-001-task")
    fleet.submit_result(task_id="A-001-task", generation=1, result_data={"text": "x" * 40_000})
    yield store
    fleet.close()
    store.close()


def keeps_payloads(store: Store) -> bool:
    try:
        store.payloads().put(make_key("nobody"), "0" * 64, b"?")
    except OverLimit:
        return False
    return True


@pytest.mark.parametrize("name", stores.LASTING)
def test_a_store_copied_to_another_kind_and_back_is_the_same(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, opened: Callable[[str], Store]
) -> None:
    stores.need(request, name)
    between = opened(stores.LASTING[name].url(tmp_path / "between"))
    source = opened(
        request.getfixturevalue("full" if keeps_payloads(between) else "without_payloads")
    )
    back = opened(f"sqlite://{tmp_path / 'back.db'}")
    there = copy(source, between)
    assert there.verified
    assert facts_of(between) == facts_of(source)
    copy(between, back)
    assert facts_of(back) == facts_of(source)
    for store in (between, back):
        assert check(store) == []
        assert missing_payloads(store) == []
    assert copy(source, between).events == 0


@pytest.mark.parametrize("page", [1, 2, 7])
@pytest.mark.parametrize(
    "limits",
    [Limits(batch=1), Limits(batch=3, events=1), Limits(events=2)],
    ids=["one", "three", "many"],
)
def test_the_copy_is_the_same_whatever_is_read_and_written_at_a_time(
    full: str,
    page: int,
    limits: Limits,
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[[str], Store],
) -> None:
    monkeypatch.setattr(copying, "PAGE", page)
    monkeypatch.setattr(copying, "MOST_STATES", 3)
    source, target = opened(full), MemoryStore()
    target.limits = limits
    copy(source, target)
    assert facts_of(target) == facts_of(source)


def test_work_goes_on_in_the_copy_where_it_was_in_the_source(
    full: str, tmp_path: Path, opened: Callable[[str], Store]
) -> None:
    url = f"sqlite://{tmp_path / 'copy.db'}"
    epoch = copy(opened(full), opened(url)).epoch
    clock = ManualClock()
    clock.advance(10 * DAY + 100)
    with genlock.connect(
        url,
        create=True,
        clock=clock,
        tenant_id="acme",
        project_id="Gemini",
        session_id="sitzung-ä 🐙",
        agent_id="Ωmega",
    ) as fleet:
        assert fleet.renew_lease(task_id="A-002-task", expected_generation=2_000_001).success
        assert fleet.read_result(task_id="A-004-task") == {"text": "ü" * 20_000}
        claimed = fleet.claim_task(task_id="A-001-task").claim
        assert claimed is not None
        assert claimed.generation == epoch * 1_000_000 + 1
        assert fleet.get_task_state(task_id="A-000-task").state is Status.COMPLETED


def test_old_cursors_are_told_that_they_are_lost(
    full: str, tmp_path: Path, opened: Callable[[str], Store]
) -> None:
    source, target = opened(full), opened(f"sqlite://{tmp_path / 'copy.db'}")
    copy(source, target)
    cursor = source.read_events(EventQuery(*APOLLO, tail=True)).cursor
    with pytest.raises(CursorLost):
        target.read_events(EventQuery(*APOLLO, after=cursor))


def unsettled(store: Store, note: Stored) -> list[tuple[Key, int]]:
    """What whoever settles would have to read: all that follows the note's cursor, but for other
    notes."""
    cursor = decode_record(SETTLED, note.body).cursor  # type: ignore[union-attr]
    events = store.read_events(EventQuery(*note.key.place, after=cursor)).events
    return [recorded[:2] for recorded in events if recorded.key.kind != SETTLED]


def test_the_copy_is_settled_as_far_as_its_source(small: MemoryStore) -> None:
    fleet = genlock.connect(small.handle(), session_id="s1", agent_id="ada")
    fleet.add_tasks(tasks=[{"id": f"B-{number:03}-task"} for number in range(600)])
    fleet.close()
    key = Key("default", "default", SETTLED, SETTLED)
    target = MemoryStore()
    for _ in range(2):
        copy(small, target)
        theirs, ours = target.load([key]).records[key], small.load([key]).records[key]
        assert theirs.version == ours.version + 1
        assert unsettled(target, theirs) == unsettled(small, ours)


STEPS = (
    "copy.payload:2",
    "copy.epoch",
    "copy.begun",
    "copy.base:3",
    "copy.batch",
    "copy.batch:3",
    "copy.settled",
)
INSIDE = {
    "sqlite": (
        "sqlite.purge.dropped:5",
        "sqlite.commit.before_commit:4",
        "sqlite.commit.after_commit:3",
    ),
    "postgres": ("postgres.commit.after:1", "postgres.commit.after:2"),
    "dynamodb": ("dynamodb.commit.group", "dynamodb.commit.group:2", "dynamodb.commit.positions:2"),
}
"""Where a commit is all or nothing, or leaves a beginning, it may also be cut off inside."""


WORKED_ON = Key("default", "default", "task", "A-001-task")


def purge(store: Store, key: Key, before: int) -> None:
    """Drops the events of a record below a version."""
    record: Any = None
    version, digest = 0, b""
    for recorded in store.read_events(EventQuery(*key.place, record=key)).events:
        if recorded.version < before:
            record = folded(key, record, recorded, decode_event(recorded.body).event)
            version, digest = recorded.version, recorded.digest
    if version:
        store.purge(key, before, encode_base(version, digest, record))


class Interrupted(MemoryStore):
    """Something happens before the commit of this number."""

    def __init__(self, number: int, happens: Callable[[], object]) -> None:
        super().__init__()
        self._left = number
        self._happens = happens

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        self._left -= 1
        if self._left == 0:
            self._happens()
        return super().commit(changes, epoch=epoch)


class TestBrokenOff:
    """kill -9 at every step, and the same command again."""

    def finish(self, source: str, url: str, steps: tuple[str, ...]) -> None:
        given = {
            name: value for name, value in os.environ.items() if name.startswith("AWS_")
        }  # as a server's fixture has set them
        for step in steps:
            killed = run("copy", source, url, env={**given, "GENLOCK_FAILPOINT": step})
            assert killed.code == -signal.SIGKILL, f"{step} was passed unharmed: {killed.err}"
        done = run("copy", source, url, env=given)
        assert done.code == 0, done.err
        stores = genlock.open_store(source), genlock.open_store(url, create=True)
        assert facts_of(stores[1]) == facts_of(stores[0])
        assert missing_payloads(stores[1]) == []
        for store in stores:
            store.close()

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[pytest.mark.slow] if kind.slowness > 1 else [])
            for name, kind in stores.LASTING.items()
        ],
    )
    def test_a_copy_killed_between_its_steps_is_finished_by_the_last(
        self,
        name: str,
        request: pytest.FixtureRequest,
        tmp_path: Path,
        opened: Callable[[str], Store],
    ) -> None:
        stores.need(request, name)
        url = stores.LASTING[name].url(tmp_path / "copy.db")
        payloads = keeps_payloads(opened(url))
        self.finish(
            request.getfixturevalue("full" if payloads else "without_payloads"),
            url,
            STEPS[0 if payloads else 1 :],
        )

    @pytest.mark.parametrize("name", INSIDE)
    def test_a_copy_killed_inside_its_commits_is_finished_by_the_last(
        self,
        name: str,
        request: pytest.FixtureRequest,
        tmp_path: Path,
        opened: Callable[[str], Store],
    ) -> None:
        stores.need(request, name)
        url = stores.LASTING[name].url(tmp_path / "copy.db")
        source = request.getfixturevalue(
            "full" if keeps_payloads(opened(url)) else "without_payloads"
        )
        self.finish(source, url, INSIDE[name])

    def test_what_is_there_is_not_written_again(self, small: MemoryStore) -> None:
        target = MemoryStore()
        first = copy(small, target)
        with genlock.connect(small.handle(), session_id="s1", agent_id="ada") as fleet:
            fleet.add_tasks(tasks=[{"id": "A-007-more"}])
        second = copy(small, target)
        assert (second.events, second.found) == (1, first.events)
        assert facts_of(target) == facts_of(small)

    def test_a_commit_that_was_done_in_part_mixes_the_order_up_and_is_refused_unless_that_is_accepted(
        self, small: MemoryStore
    ) -> None:
        target = MemoryStore()
        place = "default", "default"
        events = [recorded for page in pages_of(small, place) for recorded in page.events]
        changes = next(batches(events, {}, Limits()))
        target.commit(changes[2:4])
        before = facts_of(target)
        with pytest.raises(
            OutOfOrder, match=r"2 events stand in the target before others.*--any-order"
        ):
            copy(small, target)
        assert facts_of(target) == before
        copy(small, target, any_order=True)
        assert facts_of(target) != facts_of(small)
        assert sorted(facts_of(target)[f"{place} feed"]) == sorted(facts_of(small)[f"{place} feed"])


class Trouble(MemoryStore):
    """A target that has something happen to it, once each, at the commits with these numbers."""

    def __init__(self, **troubles: int) -> None:
        super().__init__()
        self.troubles = {number: what for what, number in troubles.items()}
        self.commits = 0
        self.late: Sequence[Change] = ()

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        self.commits += 1
        match self.troubles.get(self.commits):
            case "away":
                raise StoreUnavailable("the server is away; nothing was written")
            case "undone":
                raise OutcomeUnknown("the commit broke off")
            case "done":
                super().commit(changes, epoch=epoch)
                raise OutcomeUnknown("the commit broke off")
            case "late":
                self.late = changes
                raise OutcomeUnknown("the commit broke off")
            case "risen":
                self.set_epoch(self.load([]).epoch + 7)
                return [Conflict()] * len(changes)
            case _:
                pass
        super().commit(self.late)
        self.late = ()
        return super().commit(changes, epoch=epoch)


class TestTrouble:
    """Faults that pass, and for which nobody need type the same again."""

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(copying, "PAGE", 2)
        monkeypatch.setattr(endpoints, "BACKOFF", Backoff(0.001, 0.1))

    @pytest.mark.parametrize("what", ["away", "undone", "done", "late", "risen"])
    @pytest.mark.parametrize("number", [1, 2, 4])
    def test_a_copy_goes_on_by_itself(self, small: MemoryStore, what: str, number: int) -> None:
        plain = copy(small, MemoryStore())
        target = Trouble(**{what: number})
        copied = copy(small, target)
        assert target.commits > number
        assert (copied.events, copied.found) == (plain.events, 0)
        assert facts_of(target) == facts_of(small)
        assert target.load([]).epoch == copied.epoch > 444_000_000

    def test_what_lasts_is_told_in_the_end_and_the_same_again_goes_on(
        self, small: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(endpoints, "SECONDS", 0.05)
        target = Trouble()
        target.troubles = dict.fromkeys(range(3, 1000), "away")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="the server is away"):
            copy(small, target)
        assert time.monotonic() - began >= 0.05
        assert target.commits > 4
        target.troubles = {}
        copy(small, target)
        assert facts_of(target) == facts_of(small)

    def test_a_copy_begins_an_epoch_above_its_source_and_what_the_target_was_in(
        self, small: MemoryStore
    ) -> None:
        target = MemoryStore()
        small.set_epoch(9_000_000_000)
        target.set_epoch(9_000_000_004)
        assert copy(small, target).epoch == 9_000_000_005
        assert copy(small, target).epoch == 9_000_000_005, (
            "the same again goes on in the epoch that it began"
        )
        small.set_epoch(9_000_000_005)
        assert copy(small, target).epoch == 9_000_000_006
        assert small.load([]).epoch == 9_000_000_005
        assert facts_of(target) == facts_of(small)

    def test_of_two_copies_of_one_source_each_has_an_epoch_of_its_own(
        self, small: MemoryStore
    ) -> None:
        epochs = [copy(small, MemoryStore()).epoch for _ in range(3)]
        assert 444_000_000 < epochs[0] < epochs[1] < epochs[2]

    def test_one_of_an_earlier_epoch_in_the_end_is_no_copy(self, small: MemoryStore) -> None:
        small.set_epoch(2)

        class Stubborn(MemoryStore):
            def set_epoch(self, epoch: int) -> None:
                """Not here."""

        with pytest.raises(CopyDiffers, match="its epoch is 0, the source's 2"):
            copy(small, Stubborn())

    def test_a_redis_server_that_was_restarted_while_it_was_empty_is_a_target(
        self, small: MemoryStore, tmp_path: Path
    ) -> None:
        with redis.syncing() as server:
            url = server.url("x", durability="always", payloads=f"file://{tmp_path}")
            genlock.open_store(url, create=True).close()
            server.stop()
            server.start()
            with closing(genlock.open_store(url, create=True)) as target:
                copy(small, target)
                ours, theirs = facts_of(small), facts_of(target)
        assert theirs == ours

    @pytest.mark.parametrize("name", ["postgres", "mysql"])
    def test_connections_that_break_now_and_then_do_not_end_it(
        self,
        name: str,
        request: pytest.FixtureRequest,
        full: str,
        tmp_path: Path,
        opened: Callable[[str], Store],
    ) -> None:
        stores.need(request, name)
        url = stores.LASTING[name].url(tmp_path / "copy.db")
        with between(int(re.findall(r":(\d+)/", url)[0])) as way:
            target = opened(through(way, url))
            asked = 0

            def cut(what: str, done: int, total: int | None) -> None:
                nonlocal asked
                if what == "events" and asked == way.lost < 4:
                    asked += 1
                    way.cut_at_the_answer_to(b"A-0")  # to a load of tasks, or to a commit

            copy(opened(full), target, progress=cut)
            assert way.lost == asked == 4
            assert facts_of(target) == facts_of(opened(full))


class TestProgress:
    def test_says_from_the_start_how_much_there_is_in_all_projects_also_when_it_is_resumed(
        self, full: str, opened: Callable[[str], Store]
    ) -> None:
        source, target = opened(full), MemoryStore()
        said: list[tuple[int, int | None]] = []

        def note(what: str, done: int, total: int | None) -> None:
            if what == "events":
                said.append((done, total))
                if len(said) == 2:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy(source, target, progress=note)
        copy(source, target, progress=note)
        there = sum(
            source.read_events(EventQuery(*place, tail=True)).position
            for place in source.audit().places
        )
        assert len(said) > 4
        assert {total for _, total in said} == {there}
        assert [done for done, _ in said] == sorted(done for done, _ in said)
        assert all(done <= there for done, _ in said)


class TestRefused:
    """Whatever cannot be copied is left as it is, and said so."""

    def changed(self, change: Change) -> MemoryStore:
        store = MemoryStore()
        store.commit([change])
        return store

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (
                make_change(make_key("A-001-task")),
                "the target holds project acme/apollo, which is not in the source",
            ),
            (
                make_change(make_key("A-001-task", tenant="default", project="default")),
                (
                    "the target holds task A-001-task of default/default at version 1 with another "
                    "history"
                ),
            ),
            (
                make_change(make_key("A-001-task", tenant="default", project="default"), events=9),
                (
                    "the target holds task A-001-task of default/default at version 9, which is "
                    "not in the source"
                ),
            ),
            (
                make_change(make_key("other", tenant="default", project="default")),
                (
                    "the target holds task other of default/default at version 1, which is not in "
                    "the source"
                ),
            ),
        ],
        ids=["another project", "another history", "a longer history", "another task"],
    )
    def test_a_target_that_holds_something_else(
        self, small: MemoryStore, change: Change, what: str
    ) -> None:
        target = self.changed(change)
        before = facts_of(target)
        with pytest.raises(TargetTaken, match=f"{what}.*nothing was written: name an empty store"):
            copy(small, target)
        assert facts_of(target) == before

    def test_a_copy_that_has_been_worked_on_is_no_target_any_more(self, small: MemoryStore) -> None:
        target = MemoryStore()
        copy(small, target)
        with genlock.connect(target.handle(), session_id="s2", agent_id="bob") as fleet:
            fleet.claim_task(task_id="A-002-task")
        before = facts_of(target)
        with pytest.raises(TargetTaken):
            copy(small, target)
        assert facts_of(target) == before

    def test_a_target_without_payloads_before_anything_is_written(self, small: MemoryStore) -> None:
        class Refusing(MemoryStore):
            def payloads(self) -> Any:
                payloads: Any = super().payloads()

                def put(key: Key, digest: str, data: bytes) -> None:
                    raise OverLimit("no payloads here")

                payloads.put = put
                return payloads

        target = Refusing()
        with pytest.raises(OverLimit, match="no payloads here"):
            copy(small, target)
        assert facts_of(target) == {}

    def test_the_store_itself_by_whatever_name(self, small: MemoryStore) -> None:
        with pytest.raises(BadArgument, match="the same store"):
            copy(small, small.handle())

    def test_a_source_that_is_damaged_and_its_event_is_named(self) -> None:
        source = self.changed(make_change(make_key("A-001-task")))
        with pytest.raises(
            StoreCorrupt,
            match="acme/apollo/task/A-001-task: event 1 of the source cannot be copied: bytes that "
            "are no",
        ):
            copy(source, MemoryStore())

    def test_a_target_to_which_somebody_else_writes(self, small: MemoryStore) -> None:
        target = MemoryStore()

        def write(what: str, done: int, total: int | None) -> None:
            if what == "results":
                target.commit(
                    [make_change(make_key("A-003-task", tenant="default", project="default"))]
                )

        with pytest.raises(
            TargetMoving,
            match="somebody else has written task A-003-task of default/default to the target",
        ):
            copy(small, target, progress=write)

    def test_a_copy_that_is_not_the_same_in_the_end(self, small: MemoryStore) -> None:
        target = MemoryStore()

        def write(what: str, done: int, total: int | None) -> None:
            if what == "events":
                target.commit([make_change(make_key("zzz", tenant="default", project="default"))])

        with pytest.raises(
            CopyDiffers,
            match=r"the target differs from the source; do not use it:\n.*task zzz at version 1 is "
            r"not the same",
        ):
            copy(small, target, progress=write)


class TestMoving:
    """A source that is written to during the copy."""

    def writer(
        self, store: MemoryStore, stage: str, times: int
    ) -> Callable[[str, int, int | None], None]:
        left = times

        def write(what: str, done: int, total: int | None) -> None:
            nonlocal left
            if what == stage and left:
                left -= 1
                with genlock.connect(store.handle(), session_id="s1", agent_id="ada") as fleet:
                    fleet.add_tasks(tasks=[{"id": f"B-{left:03}-late"}])

        return write

    def test_what_is_written_meanwhile_is_copied_too_and_said(self, small: MemoryStore) -> None:
        target = MemoryStore()
        assert copy(small, target, progress=self.writer(small, "events", 3)).moved
        assert facts_of(target) == facts_of(small)

    @pytest.mark.parametrize("kept", [2, 3, 4])
    def test_what_is_purged_between_two_copies_is_purged_in_the_target_too(
        self, small: MemoryStore, kept: int
    ) -> None:
        target = MemoryStore()
        copy(small, target)
        purge(small, WORKED_ON, kept)
        copy(small, target)
        assert facts_of(target) == facts_of(small)
        assert target.read_events(EventQuery(*WORKED_ON.place, record=WORKED_ON)).base is not None

    @pytest.mark.parametrize("commit", range(1, 9))
    def test_what_is_purged_during_a_copy_does_not_end_it(
        self, small: MemoryStore, commit: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(copying, "PAGE", 1)
        target = Interrupted(commit, lambda: purge(small, WORKED_ON, 2))
        assert copy(small, target).verified
        assert facts_of(target) == facts_of(small)

    def test_what_is_purged_before_all_of_it_was_copied_is_said_and_what_to_do(
        self, small: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(copying, "PAGE", 1)
        target = Interrupted(5, lambda: purge(small, WORKED_ON, 3))
        with pytest.raises(
            TargetTaken,
            match=r"at version 1, and the source has kept nothing before version 3.*empty the "
            r"target",
        ):
            copy(small, target)

    def test_one_that_is_purged_all_the_time_is_not_followed_for_ever(
        self, small: MemoryStore
    ) -> None:
        def lose(query: EventQuery) -> EventPage:
            raise CursorLost("purged")

        source = small.handle()
        source.read_events = lose  # type: ignore[method-assign]
        with pytest.raises(SourceMoving):
            copy(source, MemoryStore())

    def test_one_that_never_stands_still_is_not_followed_for_ever(self, small: MemoryStore) -> None:
        with pytest.raises(SourceMoving, match="end whatever works on it, and type the same again"):
            copy(
                small,
                MemoryStore(),
                progress=self.writer(small, "events", 10 * copying.MOST_ROUNDS),
            )

    @pytest.mark.parametrize("stage", ["comparing", "replaying"])
    def test_one_that_moves_while_the_copy_is_verified_is_no_difference_but_not_copied(
        self, small: MemoryStore, stage: str
    ) -> None:
        target = MemoryStore()
        with pytest.raises(SourceMoving):
            copy(small, target, progress=self.writer(small, stage, 1))
        assert not copy(small, target).moved
        assert facts_of(target) == facts_of(small)


class TestCommand:
    """`genlock copy FROM TO`."""

    def copied(self, *arguments: object) -> Ran:
        return run("copy", *arguments)

    def test_it_says_what_was_copied(
        self, full: str, tmp_path: Path, opened: Callable[[str], Store]
    ) -> None:
        done = self.copied(full, f"sqlite://{tmp_path / 'copy.db'}")
        assert done.code == 0, done.err
        said = done.json()
        assert said.pop("seconds") > 0
        assert said.pop("epoch") > 444_000_000
        feeds = [facts for name, facts in facts_of(opened(full)).items() if name.endswith("feed")]
        settled = said.pop("events") - sum(map(len, feeds))
        assert 0 <= settled <= 3
        assert said == {
            "projects": 3,
            "tasks": 62,
            "found": 0,
            "payloads": 9,
            "moved": False,
            "verified": True,
            "missing_payloads": [],
        }
        assert (
            self.copied(full, f"sqlite://{tmp_path / 'copy.db'}", "--quiet", "--no-verify").out
            == "0\n"
        )

    @pytest.mark.parametrize(
        ("source", "target", "code", "name", "message"),
        [
            (
                "{there}",
                "copy.db",
                2,
                "BAD_ARGUMENT",
                "'copy.db' is no URL; for a file write sqlite://{home}/copy.db",
            ),
            (
                "s.db",
                "sqlite://{folder}/t.db",
                2,
                "BAD_ARGUMENT",
                "'s.db' is no URL; for a file write sqlite://{home}/s.db",
            ),
            (
                "sqlite://{folder}/no.db",
                "sqlite://{folder}/t.db",
                3,
                "NOT_FOUND",
                "there is no store at {folder}/no.db to be copied",
            ),
            ("{there}", "memory://", 2, "BAD_ARGUMENT", "memory:// lasts as long as a process"),
            (
                "{there}",
                "{there}",
                2,
                "BAD_ARGUMENT",
                "the source and the target are the same store; name another target",
            ),
            (
                "{there}",
                "sqlite://{folder}/taken.db",
                4,
                "TARGET_TAKEN",
                "the target holds project default/default",
            ),
        ],
        ids=["a path as target", "a path as source", "no source", "memory", "the same", "taken"],
    )
    def test_a_slip_is_named_and_changes_nothing(
        self,
        full: str,
        tmp_path: Path,
        source: str,
        target: str,
        code: int,
        name: str,
        message: str,
    ) -> None:
        with genlock.connect(
            f"sqlite://{tmp_path / 'taken.db'}", create=True, session_id="s", agent_id="a"
        ) as fleet:
            fleet.add_tasks(tasks=[{"id": "A-001-mine"}])
        names = {"there": full, "folder": tmp_path, "home": home()}
        before = sorted(tmp_path.iterdir())
        refused = self.copied(source.format(**names), target.format(**names))
        assert refused.code == code, refused.err
        assert refused.error()["code"] == name
        assert message.format(**names) in refused.error()["message"]
        assert sorted(tmp_path.iterdir()) == before

    def test_a_process_that_has_the_source_open_is_named(self, tmp_path: Path) -> None:
        url = f"sqlite://{tmp_path / 's.db'}"
        with genlock.connect(url, create=True, session_id="s", agent_id="a") as fleet:
            fleet.add_tasks(tasks=[{"id": "A-001-mine"}])
            done = self.copied(url, f"sqlite://{tmp_path / 't.db'}")
        assert done.code == 0
        assert f"process {os.getpid()} has {url} open" in done.err
