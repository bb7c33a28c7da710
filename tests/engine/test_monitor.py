"""The monitor writes down sooner what anyone would find. No answer depends on it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import genlock
from genlock.core import events as e
from genlock.core.commands import ClaimTask, Content, SubmitResult
from genlock.engine.engine import Monitor
from genlock.engine.processes import identify
from genlock.engine.replay_check import check
from genlock.errors import OutcomeUnknown, StoreCorrupt
from tests.engine.gated_store import (
    PATIENCE,
    Home,
    caller,
    claim,
    complete,
    die,
    feed,
    granted,
    later,
    next_for,
    raising,
    state,
    submit,
    task_key,
    told,
    until,
    writing,
)

DAY = 86_400.0

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


# Sweeping


def test_a_sweep_writes_down_leases_that_are_over(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A", "B"])
    granted(fleet, "A", "alice", lease=30)
    granted(fleet, "B", "alice", lease=300)
    home.clock.advance(31)

    assert fleet.sweep().expired == 1

    assert (state(fleet, "A"), state(fleet, "B")) == ("PENDING", "IN_PROGRESS")
    assert told(fleet, "A")[-1] == "CLAIM_EXPIRED"
    before = feed(fleet)
    assert fleet.sweep().expired == 0
    assert feed(fleet) == before
    # The claim is still the claim at its generation until someone takes over.
    assert submit(fleet, "A", "alice", 1).accepted


def test_a_sweep_marks_a_silent_holder_stale_once_and_takes_nothing_from_it(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    fleet.set_policy(policy={"stale_threshold_seconds": 600})
    granted(fleet, "T", "alice", lease=3600)
    home.clock.advance(600)
    assert fleet.sweep().stale == 0
    home.clock.advance(1)

    assert (fleet.sweep().stale, fleet.sweep().stale) == (1, 0)

    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_STALE"]
    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    # Who is heard of again may fall silent again.
    assert fleet.renew_lease(task_id="T", expected_generation=1, session_id="s-alice").success
    home.clock.advance(601)
    assert fleet.sweep().stale == 1


@pytest.mark.large
def test_a_sweep_of_many_claims_reaches_them_all(home: Home) -> None:
    fleet = home.connect()
    names = [f"t-{n:04d}" for n in range(1100)]
    fleet.add_tasks(tasks=names)
    for start in range(0, len(names), 500):
        fleet.batch_claim(
            task_ids=names[start : start + 500],
            agent_id="alice",
            session_id="s-alice",
            lease_duration_seconds=30,
        )
    home.clock.advance(31)

    assert fleet.sweep().expired == 1100

    assert len(fleet.ready(limit=2000)) == 1100


def test_a_sweep_ends_holds_and_reservations_whose_time_is_over(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["held", "reserved"])
    fleet.set_policy(policy={"expired": "human", "claim_ttl_seconds": 100})
    granted(fleet, "held", "alice", lease=30)
    fleet.assign_task(task_id="reserved", agent_id="dave", hours=0.01)
    home.clock.advance(31)
    fleet.sweep()
    assert (state(fleet, "held"), claim(fleet, "reserved", "bob").reason) == (
        "HELD",
        "DENIED_ASSIGNED",
    )
    home.clock.advance(100)

    fleet.sweep()

    assert state(fleet, "held") == "PENDING"
    assert told(fleet, "reserved")[-1] == "ASSIGNMENT_LAPSED"


# Retention


def with_old_events(home: Home) -> genlock.Coordinator:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}, "C"])
    fleet.set_policy(limits={"claim_history_retention_days": 30})
    granted(fleet, "A", "alice", lease=30)
    home.clock.advance(31)
    granted(fleet, "A", "bob")
    assert submit(fleet, "A", "alice", 1, {"work": "late"}).kept
    assert submit(fleet, "A", "bob", 2).accepted
    home.clock.advance(31 * DAY)
    granted(fleet, "B", "carol")
    return fleet


@pytest.mark.core
def test_a_sweep_drops_events_that_are_past_their_retention_and_the_rest_replays(
    home: Home,
) -> None:
    fleet = with_old_events(home)
    before = len(feed(fleet))

    swept = fleet.sweep()

    assert swept.purged > 0
    assert len(feed(fleet)) == before - swept.purged
    assert check(home.store()) == []
    # The last event of a record stays, and so do its generation, its result and what was refused.
    assert told(fleet, "A") == ["RESULT_ACCEPTED"]
    after = fleet.get_task_state(task_id="A")
    assert (after.state, after.generation, after.refused_results) == ("COMPLETED", 2, 1)
    assert told(fleet, "B")[-1] == "CLAIM_ACQUIRED"
    assert fleet.sweep().purged == 0


def test_work_goes_on_after_a_purge(home: Home) -> None:
    fleet = with_old_events(home)
    fleet.sweep()

    fleet.reset_task(task_id="A")
    assert granted(fleet, "A", "dave") == 3
    assert submit(fleet, "A", "bob", 2).reason == "STALE_GENERATION"
    assert submit(fleet, "B", "carol", 1).accepted
    assert submit(fleet, "A", "dave", 3).accepted
    assert home.connect().sweep().settled == 0
    assert check(home.store()) == []


def test_events_of_a_tenant_without_a_retention_are_kept(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A"])
    complete(fleet, "A")
    home.clock.advance(10_000 * DAY)

    assert fleet.sweep().purged == 0
    assert told(fleet, "A") == ["TASK_ADDED", "CLAIM_ACQUIRED", "RESULT_ACCEPTED"]


# The monitor


def test_a_monitor_does_by_itself_what_a_sweep_does(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A"])
    fleet.add_tasks(tasks=["B"], project_id="elsewhere")
    granted(fleet, "A", "alice", lease=30)
    fleet.claim_task(
        task_id="B",
        agent_id="alice",
        session_id="s-alice",
        lease_duration_seconds=30,
        project_id="elsewhere",
    )
    home.clock.advance(31)

    Monitor(fleet.engine, interval_seconds=0.01).start()

    until(fleet, lambda: state(fleet, "A") == "PENDING")
    for event in fleet.watch(
        after=fleet.read_events(limit=1, project_id="elsewhere").cursor,
        timeout_seconds=PATIENCE,
        project_id="elsewhere",
    ):
        if event.event_type == "CLAIM_EXPIRED":
            break
    assert fleet.get_task_state(task_id="B", project_id="elsewhere").state == "PENDING"


def test_a_monitor_keeps_the_retention(home: Home) -> None:
    fleet = with_old_events(home)

    Monitor(fleet.engine).sweep()

    assert told(fleet, "A") == ["RESULT_ACCEPTED"]


def test_a_project_that_is_damaged_does_not_keep_a_monitor_from_the_others(home: Home) -> None:
    fleet = with_old_events(home)
    store = home.gated()
    other = home.connect(store)
    fleet.add_tasks(tasks=["X"], project_id="and-before")
    store.on(
        "read_events",
        when=lambda query: query.project == "and-before" and query.record,
        before=raising(StoreCorrupt("no event")),
    )

    Monitor(other.engine).sweep()

    assert told(fleet, "A") == ["RESULT_ACCEPTED"]


def test_a_monitor_settles_what_a_crash_cut_off(home: Home) -> None:
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    granted(doomed, "A", "alice")
    store.on("commit", when=writing(e.DependencyMet, "B"), before=home.stop())
    doomed.engine.submit([SubmitResult(task_key("A"), caller("alice"), 1, Content("00", 2))])
    fleet = home.connect()
    until(fleet, lambda: state(fleet, "A") == "COMPLETED")
    assert state(fleet, "B") == "BLOCKED"

    Monitor(fleet.engine).sweep()

    assert state(fleet, "B") == "PENDING"


def test_a_monitor_ends_with_its_coordinator(home: Home) -> None:
    fleet = home.connect()
    monitor = Monitor(fleet.engine, interval_seconds=0.01)
    monitor.start()

    fleet.close()

    monitor.thread.join(PATIENCE)
    assert not monitor.thread.is_alive()


def test_a_sweep_of_many_lets_callers_pass_between_any_two_of_its_pieces(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, lanes=1)
    tasks = [f"t-{number:03}" for number in range(300)]
    fleet.add_tasks(tasks=[*tasks, "T"])
    fleet.batch_claim(
        task_ids=tasks, session_id="s-alice", agent_id="alice", lease_duration_seconds=30
    )
    home.clock.advance(31)
    gate = home.stop()
    store.on("find", when=lambda query: query.due_before is not None, before=gate)

    swept = later(fleet.sweep)
    gate.wait()
    claimed = fleet.engine.submit([ClaimTask(task_key("T"), caller("bob"))])
    gate.open()

    assert claimed.wait().only().success
    assert swept.result(PATIENCE).expired == 300
    order = [commit.tasks for commit in store.commits if commit.tasks and commit.tasks != tasks]
    assert ["T"] in order[:-1], "it was made to wait for the whole sweep"
    assert order.index(["T"]) > 0, "the sweep had not begun"


def test_the_monitor_finds_at_once_what_is_due_and_lost_holders_tour_by_tour(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genlock.engine.maintenance._PAGE", 5)
    monkeypatch.setattr("genlock.engine.maintenance._TOURED", 10)
    fleet = home.connect()
    mine = identify()
    assert mine is not None
    fleet.register_session(session_id="s-dave", process=replace(mine, started=mine.started + 1))
    tasks = [f"t-{number:02}" for number in range(28)]
    fleet.add_tasks(tasks=[*tasks, "T"])
    granted(fleet, "T", "alice", lease=7200)
    fleet.batch_claim(
        task_ids=tasks, session_id="s-dave", agent_id="dave", lease_duration_seconds=3600
    )
    monitor, orphaned = Monitor(fleet.engine), []

    for _ in range(4):
        monitor.sweep()
        orphaned.append(sum(state(fleet, task) == "PENDING" for task in tasks))

    assert orphaned == [10, 20, 28, 28]
    home.clock.advance(7201)
    monitor.sweep()
    assert told(fleet, "T")[-1] == "CLAIM_EXPIRED"


def test_a_monitor_of_one_project_finds_all_lost_holders_there_each_time_and_leaves_the_others_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genlock.engine.maintenance._PAGE", 5)
    monkeypatch.setattr("genlock.engine.maintenance._TOURED", 10)
    fleet = home.connect()
    mine = identify()
    assert mine is not None
    tasks = [f"t-{number:02}" for number in range(28)]
    for project in ("default", "elsewhere"):
        fleet.register_session(
            session_id="s-dave", process=replace(mine, started=mine.started + 1), project_id=project
        )
        fleet.add_tasks(tasks=tasks, project_id=project)
        fleet.batch_claim(
            task_ids=tasks,
            session_id="s-dave",
            agent_id="dave",
            lease_duration_seconds=3600,
            project_id=project,
        )

    Monitor(fleet.engine, place=("default", "default")).sweep()

    found = [fleet.read_events(project_id=project).events for project in ("default", "elsewhere")]
    assert [sum(event.event_type == "CLAIM_ORPHANED" for event in events) for events in found] == [
        28,
        0,
    ]


def test_a_monitor_of_a_project_that_is_not_there_makes_none(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    before = home.store().audit().places

    Monitor(fleet.engine, place=("default", "nothing")).sweep()

    assert home.store().audit().places == before


def test_a_coordinator_may_be_opened_with_a_monitor(home: Home) -> None:
    fleet = home.connect(monitor=True)
    fleet.add_tasks(tasks=["T"])

    assert claim(fleet, "T", "alice").success

    fleet.close()


# Killing every monitor changes no outcome


def story(home: Home, *, swept: bool) -> list[object]:
    """What callers are told while leases run out, holders die, reactions are cut off and results
    come late."""
    store = home.gated()
    doomed = home.connect(store)
    fleet = home.connect()
    answers: list[object] = []
    mine = identify()
    assert mine is not None

    def sweep() -> None:
        if swept:
            Monitor(fleet.engine).sweep()

    def note(answer: Any) -> None:
        answers.append(
            (
                answer.reason.value,
                getattr(answer, "task_id", None),
                answer.claim.generation if getattr(answer, "claim", None) else None,
            )
        )
        sweep()

    fleet.add_tasks(
        tasks=["A", {"id": "B", "depends_on": ["A"]}, "C", {"id": "D", "depends_on": ["C"]}, "E"]
    )
    # A lease runs out, twice, and the first holder comes back.
    note(claim(fleet, "A", "alice", lease=30))
    home.clock.advance(31)
    sweep()
    note(claim(fleet, "A", "bob", lease=30))
    home.clock.advance(31)
    sweep()
    note(next_for(fleet, "carol"))
    note(submit(fleet, "A", "alice", 1))
    # A holder dies.
    fleet.register_session(session_id="s-dave", process=replace(mine, started=mine.started + 1))
    note(claim(fleet, "C", "dave", lease=3600))
    note(claim(fleet, "C", "erin"))
    note(claim(fleet, "E", "heidi", lease=50_000))
    # Two completions; each time the coordinator dies before it tells the dependent.
    store.on("commit", when=writing(e.DependencyMet, "B"), before=die)
    with pytest.raises(OutcomeUnknown):
        submit(doomed, "A", "carol", 3)
    sweep()
    note(claim(fleet, "B", "frank"))
    second = home.gated()
    second.on("commit", when=writing(e.DependencyMet, "D"), before=die)
    with pytest.raises(OutcomeUnknown):
        submit(home.connect(second), "C", "erin", 2)
    sweep()
    note(next_for(fleet, "grace"))
    note(next_for(fleet, "grace"))
    # An overdue holder submits before anyone has taken over, another one after that.
    home.clock.advance(100_000)
    sweep()
    note(submit(fleet, "B", "frank", 1))
    note(claim(fleet, "E", "ivan"))
    note(submit(fleet, "E", "heidi", 1))
    answers.append({name: fleet.get_task_state(task_id=name).generation for name in "ABCDE"})
    return answers


@dies
def test_killing_every_monitor_changes_no_outcome(
    tmp_path_factory: pytest.TempPathFactory, home: Home
) -> None:
    other = Home(home.kind, tmp_path_factory.mktemp("other"))
    try:
        with_monitor = story(other, swept=True)
    finally:
        other.close()

    assert story(home, swept=False) == with_monitor
    assert with_monitor == [
        ("GRANTED", "A", 1),
        ("GRANTED", "A", 2),
        ("GRANTED", "A", 3),
        ("STALE_GENERATION", None, None),
        ("GRANTED", "C", 1),
        ("GRANTED", "C", 2),
        ("GRANTED", "E", 1),
        ("GRANTED", "B", 1),
        ("GRANTED", "D", 1),
        ("NOTHING_READY", None, None),
        ("ACCEPTED", None, None),
        ("GRANTED", "E", 2),
        ("STALE_GENERATION", None, None),
        {"A": 3, "B": 1, "C": 2, "D": 1, "E": 2},
    ]
