"""Who is alone with a store of this machine does his work in his own thread; the lane's thread does what more than one have for it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import genlock
from genlock.core import events as e
from genlock.engine import uninterrupted as module
from genlock.engine.uninterrupted import uninterrupted
from genlock.errors import Busy
from tests.engine.gates import PATIENCE, GatedStore, Home, claim, granted, later, next_for, told, writing

LANE = "genlock-lane-0"


def names_of_committers(store: GatedStore) -> list[str]:
    """The names of the threads that come to commit from now on."""
    names: list[str] = []
    store.on("commit", before=lambda: names.append(threading.current_thread().name), times=float("inf"))
    return names


def own(store: GatedStore) -> str:
    """Who does the work of somebody who is alone: on a server the lane, since there Ctrl-C would have to wait for the server."""
    return LANE if store.limits.shared else threading.current_thread().name


def test_who_is_alone_does_it_himself_on_a_store_of_this_machine(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    names = names_of_committers(store)

    fleet.add_tasks(tasks=["T", "U"])
    generation = granted(fleet, "T", "alice")
    fleet.submit_result(task_id="T", generation=generation, session_id="s-alice")
    assert next_for(fleet, "alice").success

    assert len(names) >= 4
    assert set(names) == {own(store)}


def let_three_come(home: Home) -> tuple[genlock.Coordinator, GatedStore, list[str]]:
    """One is committing while two others come; who has committed what these asked for."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T", "U", "V"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=stop)
    first = later(lambda: claim(fleet, "T", "alice"))
    stop.wait()
    names = names_of_committers(store)
    others = [later(lambda task=task: claim(fleet, task, task)) for task in ("U", "V")]  # type: ignore[misc]
    while sum(depth for depth, _ in fleet.engine.depths().values()) < 2:
        assert not any(other.done() for other in others)
    store.commits.clear()
    stop.open()
    assert all(call.result(PATIENCE).success for call in (first, *others))
    return fleet, store, names


def test_what_comes_meanwhile_is_gathered_by_the_lane_and_done_in_one_commit(home: Home) -> None:
    _, store, names = let_three_come(home)
    assert [sorted(commit.tasks) for commit in store.commits] == [["T"], ["U", "V"]]
    assert names == [LANE]


def test_where_several_have_come_at_once_the_lane_gathers_the_next_too(home: Home) -> None:
    fleet, store, names = let_three_come(home)
    names.clear()
    fleet.add_tasks(tasks=["W"])
    fleet.add_tasks(tasks=["X"])
    assert names == [LANE, own(store)], "the lane sees that it was one alone, and leaves the next to him"


def test_what_is_not_done_at_the_first_attempt_is_gone_on_with_by_the_lane(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    names: list[str] = []

    def slip_in() -> None:
        names.append(threading.current_thread().name)
        granted(rival, "T", "bob")

    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=slip_in)

    assert claim(fleet, "T", "alice").reason == "DENIED_ACTIVE_CLAIM"
    assert names == [own(store)]


def test_who_waits_for_a_task_is_woken_though_he_looked_for_it_himself(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=[{"id": "T", "depends_on": []}])
    granted(rival, "T", "bob", lease=300)
    waiting = later(lambda: next_for(fleet, "alice", wait=PATIENCE))
    while not any(waiters for _, waiters in fleet.engine.depths().values()):
        assert not waiting.done()

    rival.add_tasks(tasks=["U"])

    claim_ = waiting.result(PATIENCE).claim
    assert claim_ is not None
    assert claim_.task_id == "U"


# Interrupts


@pytest.fixture(params=["memory", "sqlite"])
def near(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A store of this machine."""
    place = Home(request.param, tmp_path)
    yield place
    place.close()


@pytest.fixture
def alarm_unheeded() -> Iterator[None]:
    """As it is outside of tests: every handler counts."""
    known = module.OTHERS
    module.OTHERS = (*known, signal.SIGALRM)
    yield
    module.OTHERS = known


def test_ctrl_c_in_the_midst_comes_when_it_is_done_and_what_was_granted_is_given_back(near: Home) -> None:
    store = near.gated()
    fleet = near.connect(store)
    fleet.add_tasks(tasks=["T"])
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=lambda: signal.raise_signal(signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        claim(fleet, "T", "alice")

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert granted(fleet, "T", "bob") == 2
    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_RELEASED", "CLAIM_ACQUIRED"]


def test_a_handler_that_only_takes_note_is_called_once_and_after_the_work(near: Home) -> None:
    store = near.gated()
    fleet = near.connect(store)
    fleet.add_tasks(tasks=["T"])
    seen: list[list[str]] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(told(fleet, "T"))

    before = signal.signal(signal.SIGINT, handler)
    try:
        store.on("commit", when=writing(e.ClaimAcquired, "T"), before=lambda: signal.raise_signal(signal.SIGINT))
        result = claim(fleet, "T", "alice")
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)

    assert result.success
    assert seen == [["TASK_ADDED", "CLAIM_ACQUIRED"]]


@pytest.mark.usefixtures("alarm_unheeded")
def test_where_another_signal_has_a_handler_the_lane_does_it() -> None:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        assert not uninterrupted(lambda: True)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_in_other_threads_no_handler_is_run_and_none_is_asked_for() -> None:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        assert later(lambda: uninterrupted(lambda: True)).result(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_who_has_called_so_deeply_that_there_may_be_no_room_leaves_it_to_the_lane(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    names = names_of_committers(store)

    def dive(frames: int) -> None:
        if frames:
            dive(frames - 1)
        else:
            fleet.add_tasks(tasks=["T"])

    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    dive(sys.getrecursionlimit() - depth - 100)
    assert set(names) == {LANE}


def test_a_finalizer_that_asks_from_within_a_call_is_told_so_and_nobody_waits_for_himself(near: Home) -> None:
    store = near.gated()
    fleet = near.connect(store)
    fleet.add_tasks(tasks=["T", "U"])
    met: list[genlock.GenlockError] = []

    def finalize() -> None:
        with pytest.raises(Busy) as raised:
            claim(fleet, "U", "bob")
        met.append(raised.value)

    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=finalize)

    assert claim(fleet, "T", "alice").success
    assert len(met) == 1
    assert claim(fleet, "U", "bob").success
