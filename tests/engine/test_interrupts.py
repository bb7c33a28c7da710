"""Signals and finalizers that come while a call waits for its lane."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

import genlock
from genlock.core import events as e
from genlock.errors import Busy
from tests.engine.gated_store import Home, claim, granted, raising, told, writing
from tests.eventually import eventually

LANE = "genlock-lane-0"


def test_a_lone_caller_leaves_its_commits_to_the_lane(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    names: list[str] = []
    store.on(
        "commit", before=lambda: names.append(threading.current_thread().name), times=float("inf")
    )

    fleet.add_tasks(tasks=["T", "U"])
    generation = granted(fleet, "T", "alice")
    fleet.submit_result(task_id="T", generation=generation, session_id="s-alice")

    assert len(names) >= 3
    assert set(names) == {LANE}


class Interrupts:
    """A handler of SIGINT that acts once, and an act that sends the signal until it has been
    handled: a thread that is just about to sleep on a lock does not notice one."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.handled = threading.Event()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.handled.is_set():
            self.handled.set()
            self._act()

    def send(self) -> None:
        for _ in range(400):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if self.handled.wait(0.05):
                return
        raise AssertionError("the signal was not handled")


@pytest.fixture
def handle() -> Iterator[Callable[[Callable[[], None]], Interrupts]]:
    """Installs a handler that acts as said."""
    before = signal.getsignal(signal.SIGINT)

    def install(act: Callable[[], None]) -> Interrupts:
        interrupts = Interrupts(act)
        signal.signal(signal.SIGINT, interrupts)
        return interrupts

    yield install
    signal.signal(signal.SIGINT, before)


Handle = Callable[[Callable[[], None]], Interrupts]


def test_ctrl_c_during_a_commit_interrupts_the_caller_and_the_grant_is_released(
    home: Home, handle: Handle
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    ctrl_c = handle(raising(KeyboardInterrupt()))
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=ctrl_c.send)

    with pytest.raises(KeyboardInterrupt):
        claim(fleet, "T", "alice")

    eventually(lambda: told(fleet, "T")[-1] == "CLAIM_RELEASED", "the release of the grant")
    assert granted(fleet, "T", "bob") == 2
    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_RELEASED", "CLAIM_ACQUIRED"]


def test_a_signal_handler_that_returns_does_not_disturb_the_call(
    home: Home, handle: Handle
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    noted = handle(lambda: None)
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=noted.send)

    assert claim(fleet, "T", "alice").success
    assert signal.getsignal(signal.SIGINT) is noted


def test_a_finalizer_in_the_lane_that_calls_the_coordinator_gets_an_error_and_no_deadlock(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
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
