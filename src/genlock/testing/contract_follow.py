"""Clauses about following a feed while others commit, and about commits that are cut off."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from genlock.store import Change, Committed, EventQuery, Key, Query, RecordedEvent, Store
from genlock.testing.concurrency import (
    Acknowledged,
    Meeting,
    Stream,
    Timed,
    Worker,
    overlapped,
    stream_changes,
    together,
)
from genlock.testing.contract_base import Another, ContractBase, commit
from genlock.testing.sample import (
    facts_of,
    fold,
    make_change,
    make_key,
    read_feed,
    read_record,
    recorded_of,
)


class Reader:
    """Follows some feeds by cursor with small pages of changing size."""

    def __init__(self, store: Store, projects: list[str], seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.cursors: dict[str, str | None] = dict.fromkeys(projects)
        self.events: dict[str, list[RecordedEvent]] = {project: [] for project in projects}

    def step(self) -> bool:
        """Reads a page of each feed. Returns whether there were any events."""
        moved = False
        for project, cursor in self.cursors.items():
            page = self.store.read_events(
                EventQuery("acme", project, after=cursor, limit=self.random.randint(1, 9))
            )
            self.cursors[project] = page.cursor
            self.events[project] += page.events
            moved = moved or bool(page.events) or page.more
        return moved

    def to_the_end(self) -> None:
        """Reads the rest."""
        while self.step():
            pass

    def compare(self, committed: list[Change]) -> None:
        """Checks that every event was read exactly once, in an order that agrees with positions and
        versions."""
        for project, events in self.events.items():
            expected = recorded_of(change for change in committed if change.key.project == project)
            read = facts_of(events)
            assert len(set(read)) == len(read), f"the feed of {project} doubled events"
            missed = set(expected) - set(read)
            assert not missed, (
                f"the feed of {project} missed {len(missed)} of {len(expected)} events"
            )
            assert len(read) == len(expected), f"the feed of {project} has events nobody committed"
            positions = [event.position for event in events]
            assert positions == sorted(positions), f"the feed of {project} came out of order"
            versions: dict[Key, int] = {}
            for event in events:
                assert event.version == versions.get(event.key, 0) + 1, (
                    f"{event.key} came out of version order"
                )
                versions[event.key] = event.version


class FollowClauses(ContractBase):
    """A reader by cursor never misses an event, even under concurrent commits."""

    def write(self, store: Store, name: int, projects: list[str], meeting: Meeting) -> list[Change]:
        """Commits batches of own and shared records, some of them outdated. Returns the changes
        that were done."""
        dice, done = random.Random(name), []
        own: dict[Key, Change] = {}
        shared = [
            make_key(f"shared-{number}", project=project)
            for project in projects
            for number in range(2)
        ]
        for number in meeting.steps():
            keys = {
                make_key(f"own-{name}-{dice.randrange(12)}", project=dice.choice(projects))
                for _ in range(dice.randint(0, 4))
            }
            batch = [
                make_change(key, own.get(key), events=dice.randint(1, 3), mark=f"{name}")
                for key in keys
            ]
            wanted = dice.choice(shared)
            batch.append(
                make_change(
                    wanted,
                    store.load([wanted]).records.get(wanted),
                    events=2,
                    mark=f"{name} {number}",
                )
            )
            for change, answer in zip(batch, store.commit(batch), strict=True):
                if isinstance(answer, Committed):
                    done.append(change)
                    own[change.key] = change
                else:
                    assert change.key == wanted, f"{change.key} has one writer and yet conflicted"
            meeting.step_done(name)
        return done

    def test_a_reader_by_cursor_misses_and_doubles_nothing_while_threads_commit(
        self, another: Another
    ) -> None:
        projects, meeting = ["apollo", "gemini"], Meeting(parties=6, share=15)
        readers = [Reader(another(), projects, seed) for seed in range(2)]

        def follow(reader: Reader, party: int) -> list[Change]:
            for _ in meeting.steps():
                if reader.step():
                    meeting.step_done(party)
            return []

        calls = [partial(self.write, another(), name, projects, meeting) for name in range(4)]
        runs = together(
            [*calls, *(partial(follow, reader, 4 + at) for at, reader in enumerate(readers))],
            meeting,
        )
        for reader in readers:
            reader.to_the_end()
            reader.compare([change for run in runs for change in run.answer])

    def test_a_reader_by_cursor_misses_and_doubles_nothing_while_processes_commit(
        self, tmp_path: Path
    ) -> None:
        self.needs("processes")
        projects, committed = ["apollo", "gemini"], list[Change]()
        with self.handles(tmp_path) as another, ExitStack() as stack:
            reader = Reader(another(), projects, 3)
            workers = [stack.enter_context(Worker(self, tmp_path / "here")) for _ in range(3)]
            for worker in workers:
                worker.ready()
            for turn in range(10):
                orders = [
                    Stream(f"w{number}-{turn}", projects, commits=40, changes=3, events=2)
                    for number in range(3)
                ]
                met = self.follow(reader, workers, orders)
                committed += [
                    change
                    for order in orders
                    for number in range(order.commits)
                    for change in stream_changes(order, number)
                ]
                if met:
                    break
            else:
                raise AssertionError(
                    "the processes ran one after the other, or the reader came too late: nothing "
                    "is proved"
                )
            reader.to_the_end()
            reader.compare(committed)

    def follow(self, reader: Reader, workers: list[Worker], orders: list[Stream]) -> bool:
        """Reads while the workers write. Returns whether they all wrote at the same time."""
        for worker, order in zip(workers, orders, strict=True):
            worker.order(order)
        acknowledged: list[list[Acknowledged]] = []
        answers = threading.Thread(
            target=lambda: acknowledged.extend(answers_of(workers, orders)), daemon=True
        )
        answers.start()
        pages = 0
        while answers.is_alive():
            pages += reader.step()
        runs = [
            Timed(number, acks[0].began, acks[-1].ended) for number, acks in enumerate(acknowledged)
        ]
        assert len(runs) == len(workers), "a worker ended before its time; its words are above"
        return overlapped(runs[0], runs[1:]) == len(runs) - 1 and pages >= 5

    def test_of_a_killed_process_every_commit_is_done_or_not_done(self, tmp_path: Path) -> None:
        self.needs("processes")
        with self.handles(tmp_path) as another, ExitStack() as stack:
            store = another()
            workers = [stack.enter_context(Worker(self, tmp_path / "here")) for _ in range(4)]
            for turn, worker in enumerate(workers):
                worker.ready()
                order = Stream(
                    f"turn{turn}", ["apollo", "gemini"], commits=100_000, changes=4, events=3
                )
                worker.order(order)
                acknowledged = [worker.answer(Acknowledged) for _ in range(5 + turn)]
                acknowledged += worker.kill()
                last = acknowledged[-1].commit
                assert last + 1 < order.commits, "the worker had ended by itself: nothing is proved"
                assert [each.commit for each in acknowledged] == list(range(last + 1))
                changes = [
                    change for number in range(last + 2) for change in stream_changes(order, number)
                ]
                self.done_or_not_done(store, changes, acknowledged=(last + 1) * order.changes)
                commit(store, make_change(make_key(f"after-{turn}")))

    def done_or_not_done(self, store: Store, changes: list[Change], *, acknowledged: int) -> None:
        """Checks that each change is complete or absent, and that the acknowledged ones are
        complete."""
        records = store.load([change.key for change in changes]).records
        feeds = set(facts_of([*read_feed(store), *read_feed(store, project="gemini")]))
        for number, change in enumerate(changes):
            events = facts_of(read_record(store, change.key))
            if change.key in records:
                assert records[change.key].digest == change.digest
                assert events == recorded_of([change])
                assert feeds.issuperset(events)
            else:
                assert number >= acknowledged, f"{change.key} was acknowledged and is lost"
                assert events == []
                assert feeds.isdisjoint(recorded_of([change]))

    def test_replaying_all_events_gives_exactly_the_records(
        self, store: Store, another: Another
    ) -> None:
        projects = ["apollo", "gemini"]
        handles, meeting = [store, another(), another()], Meeting(parties=3, share=15)
        together(
            [
                partial(self.write, each, name, projects, meeting)
                for name, each in enumerate(handles)
            ],
            meeting,
        )
        replayed: dict[Key, tuple[int, bytes, bytes]] = {}
        for event in [
            event for project in projects for event in read_feed(store, project=project, limit=17)
        ]:
            version, _, body = replayed.get(event.key, (0, b"", b""))
            assert event.version == version + 1
            replayed[event.key] = (event.version, event.digest, fold(body, [event.body]))
        found = [
            record
            for project in projects
            for record in store.find(Query("acme", project, limit=1000)).records
        ]
        assert {
            record.key: (record.version, record.digest, record.body) for record in found
        } == replayed


def answers_of(workers: list[Worker], orders: list[Stream]) -> list[list[Acknowledged]]:
    """All acknowledgements of streams that run to their end."""
    return [
        [worker.answer(Acknowledged) for _ in range(order.commits)]
        for worker, order in zip(workers, orders, strict=True)
    ]
