"""Closing, exiting and forking: the batch in flight is finished, every other caller is answered,
and nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import genlock
from genlock.core import events as e
from genlock.core.commands import ClaimTask, SubmitResult
from genlock.core.keys import project_key
from genlock.engine.jobs import NextTask
from genlock.errors import Closed, OutcomeUnknown
from genlock.testing.concurrency import finely_switched
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    Home,
    answered,
    caller,
    claim,
    granted,
    later,
    next_for,
    state,
    task_key,
    writing,
)
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]


# Closing


def test_closing_twice_is_fine(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])

    fleet.close()
    fleet.close()

    with pytest.raises(Closed):
        claim(fleet, "T", "alice")


CALLS: dict[str, Callable[[genlock.Coordinator], object]] = {
    "claim_task": lambda fleet: claim(fleet, "T", "alice"),
    "claim_next": lambda fleet: next_for(fleet, "alice"),
    "claim_next that would wait": lambda fleet: next_for(fleet, "alice", wait=PATIENCE),
    "renew_lease": lambda fleet: fleet.renew_lease(
        task_id="T", expected_generation=1, session_id="s-alice"
    ),
    "release_claim": lambda fleet: fleet.release_claim(
        task_id="T", expected_generation=1, session_id="s-alice"
    ),
    "submit_result": lambda fleet: fleet.submit_result(
        task_id="T", generation=1, session_id="s-alice", result_data="x" * 40_000
    ),
    "add_tasks": lambda fleet: fleet.add_tasks(tasks=["U"]),
    "get_task_state": lambda fleet: fleet.get_task_state(task_id="T"),
    "ready": lambda fleet: fleet.ready(),
    "explain": lambda fleet: fleet.explain(task_id="T"),
    "read_events": lambda fleet: fleet.read_events(),
    "watch": lambda fleet: next(iter(fleet.watch(timeout_seconds=1))),
    "sweep": lambda fleet: fleet.sweep(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_after_closing_is_answered_closed(home: Home, name: str) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    fleet.close()

    with pytest.raises(Closed):
        CALLS[name](fleet)


def test_closing_finishes_the_batch_under_way_and_tells_the_rest(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", "B", "T"])
    granted(fleet, "T", "alice")
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "A"), before=stop)
    under_way = later(lambda: claim(fleet, "A", "bob"))
    stop.wait()
    queued = fleet.engine.submit([ClaimTask(task_key("B"), caller("bob"))])
    urgent = fleet.engine.submit([SubmitResult(task_key("T"), caller("alice"), 1)])
    waiting = fleet.engine.submit(
        [NextTask(project_key(*PLACE), caller("bob"), wait_until=float("inf"))]
    )
    closing = later(fleet.close)
    # Whoever is refused now knows that the lane has been told.
    told = later(lambda: _until_closed(fleet))
    told.result(PATIENCE)
    stop.open()

    assert under_way.result(PATIENCE).success
    assert [type(answered(job)[0]) for job in (queued, urgent, waiting)] == [Closed, Closed, Closed]
    closing.result(PATIENCE)
    again = home.connect()
    assert [state(again, name) for name in ("A", "B", "T")] == [
        "IN_PROGRESS",
        "PENDING",
        "IN_PROGRESS",
    ]


def _until_closed(fleet: genlock.Coordinator) -> None:
    """Goes by the lane's own word: it takes nothing more."""
    lane = fleet.engine._lanes[0]
    eventually(lambda: lane._inbox.is_closed, "the lane to take nothing more")


def test_closing_finishes_the_second_commit_too(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    granted(fleet, "A", "alice")
    stop = home.stop()
    store.on("commit", when=writing(e.DependencyMet, "B"), before=stop)
    answer = later(
        lambda: fleet.submit_result(
            task_id="A", generation=1, session_id="s-alice", result_data="done"
        )
    )
    stop.wait()
    closing = later(fleet.close)
    _until_closed(fleet)
    stop.open()

    assert answer.result(PATIENCE).accepted
    closing.result(PATIENCE)
    assert state(home.connect(), "B") == "PENDING"


def test_who_waits_is_told_when_the_coordinator_closes(home: Home) -> None:
    fleet = home.connect()
    jobs = [
        fleet.engine.submit(
            [NextTask(project_key(*PLACE), caller(f"a-{n}"), wait_until=float("inf"))],
            patience=3600,
        )
        for n in range(3)
    ]
    # They sleep: this call was behind them.
    assert next_for(fleet, "bob").reason == "NOTHING_READY"

    fleet.close()

    assert [type(answered(job)[0]) for job in jobs] == [Closed] * 3


def test_many_threads_close_while_many_call_and_nobody_hangs(home: Home) -> None:
    fleet = home.connect()
    names = [f"t-{n}" for n in range(8)]
    fleet.add_tasks(tasks=names)
    busy = threading.Barrier(len(names) + 1)

    def work(name: str) -> int:
        """Claims and gives back until the coordinator is closed; how often."""
        rounds = 0
        try:
            while True:
                generation = granted(fleet, name, name)
                assert fleet.release_claim(
                    task_id=name, expected_generation=generation, session_id=f"s-{name}"
                ).success
                assert fleet.get_task_state(task_id=name).state == "PENDING"
                rounds += 1
                if rounds == 3:
                    busy.wait(PATIENCE)
        except Closed:
            return rounds

    with finely_switched():
        workers = [later(lambda name=name: work(name)) for name in names]  # type: ignore[misc]
        busy.wait(PATIENCE)
        closers = [later(fleet.close) for _ in range(4)]
        assert all(worker.result(PATIENCE) >= 3 for worker in workers)
        for closer in closers:
            closer.result(PATIENCE)


def test_a_lane_that_a_bug_ends_leaves_nobody_waiting(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", "B"])
    stop = home.stop()
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    def bug() -> None:
        stop()
        raise ZeroDivisionError

    store.on("commit", when=writing(e.ClaimAcquired, "A"), before=bug)
    first = fleet.engine.submit([ClaimTask(task_key("A"), caller("alice"))])
    stop.wait()
    second = fleet.engine.submit([ClaimTask(task_key("B"), caller("alice"))])
    stop.open()

    # Of what was being committed nobody knows what came of it.
    assert [type(answered(job)[0]) for job in (first, second)] == [OutcomeUnknown, Closed]
    with pytest.raises(Closed):
        claim(fleet, "A", "alice")
    fleet.engine._lanes[0].thread.join(PATIENCE)
    assert len(raised) == 1, "the bug is shown"


# Exiting and forking, in processes of their own


def run_script(script: str, *arguments: str) -> list[str]:
    """What a Python process printed; it must end by itself and well."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            textwrap.dedent(script),
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


EXITING = """
    import atexit, sys, threading, time

    results = {}
    threads = []

    @atexit.register  # before genlock's own, so it runs after that
    def show():
        for thread in threads:
            thread.join(10)
        for name in sorted(results):
            print(name, results[name])

    import genlock
    from genlock.core import events as e
    from genlock.core.commands import ClaimTask
    from tests.engine.gated_store import GatedStore, Stop, answered, caller, claim, next_for, task_key, writing
    from genlock.open import open_store

    store = GatedStore(open_store(sys.argv[1], create=True))
    fleet = genlock.connect(store)
    fleet.add_tasks(tasks=["A", "B"])
    arrived = threading.Event()

    def until_told_to_end():
        arrived.set()
        while not fleet.engine._lanes[0]._inbox.is_closed:
            time.sleep(0.001)

    store.on("commit", when=writing(e.ClaimAcquired, "A"), before=until_told_to_end)

    def note(name, call):
        def run():
            try:
                results[name] = call().reason.value
            except genlock.GenlockError as error:
                results[name] = error.code
        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()

    note("under way", lambda: claim(fleet, "A", "alice"))
    arrived.wait()
    jobs = [fleet.engine.submit([ClaimTask(task_key("B"), caller("bob"))])]
    note("queued", lambda: jobs[0].wait().only())
    note("waiting", lambda: next_for(fleet, "carol", wait=600))
    # And here the program ends, without closing anything.
"""


@pytest.mark.core
def test_an_exit_in_mid_batch_finishes_the_batch_and_tells_the_rest(home: Home) -> None:
    shown = run_script(EXITING, home.url)

    assert shown == ["queued CLOSED", "under way GRANTED", "waiting CLOSED"]
    if home.kind != "memory":
        with genlock.connect(home.url, create=True) as fleet:
            assert (state(fleet, "A"), state(fleet, "B")) == ("IN_PROGRESS", "PENDING")


def test_a_program_that_forgets_to_close_ends_at_once(lasting: str) -> None:
    script = """
        import sys, genlock
        fleet = genlock.connect(sys.argv[1], create=True, session_id="s", agent_id="a", monitor=True)
        fleet.add_tasks(tasks=["T"])
        print(fleet.claim_next().task_id, fleet.claim_next(wait_seconds=0.01).reason.value)
    """
    assert run_script(script, lasting) == ["T NOTHING_READY"]


FORKING = """
    import os, sys, genlock
    fleet = genlock.connect(sys.argv[1], create=True, agent_id="a")
    fleet.add_tasks(tasks=["A", "B", "C"])
    print("parent", fleet.claim_task(task_id="A", session_id="s-parent").reason.value, flush=True)
    before = fleet.engine
    child = os.fork()
    if child == 0:
        print("child", fleet.claim_task(task_id="A", session_id="s-child").reason.value, flush=True)
        print("child", fleet.claim_task(task_id="B", session_id="s-child").reason.value, flush=True)
        info = {session.session_id: session for session in fleet.list_sessions()}
        print("child is itself", fleet.engine is not before, info["s-child"].pid == os.getpid(), flush=True)
        fleet.close()
        sys.exit(0)  # with all that Python does at its end
    assert os.waitpid(child, 0)[1] == 0
    print("parent", fleet.engine is before, fleet.claim_task(task_id="C", session_id="s-parent").reason.value, flush=True)
    print("parent", fleet.get_task_state(task_id="B").holder.session, flush=True)
"""


@pytest.mark.core
def test_a_coordinator_that_is_used_after_a_fork_opens_anew_in_the_child(lasting: str) -> None:
    shown = run_script(FORKING, lasting)

    assert shown == [
        "parent GRANTED",
        "child DENIED_ACTIVE_CLAIM",
        "child GRANTED",
        "child is itself True True",
        "parent True GRANTED",
        "parent s-child",
    ]


def test_threads_whose_first_calls_after_a_fork_come_together_share_one_engine(
    lasting: str,
) -> None:
    script = """
        import os, sys, threading, genlock
        fleet = genlock.connect(sys.argv[1], create=True, agent_id="a")
        fleet.add_tasks(tasks=["A"])
        child = os.fork()
        if child == 0:
            really, opened, engines = fleet._open_engine, [], []
            looked, go_on = threading.Semaphore(0), threading.Event()

            def open_engine():
                opened.append(1)
                go_on.wait(20)  # until all have found that there is none yet
                return really()

            class Seen(int):
                def __ne__(self, other):
                    looked.release()
                    return int(self) != other

            fleet._open_engine = open_engine
            fleet._live.engine.pid = Seen(fleet._live.engine.pid)
            threads = [threading.Thread(target=lambda: engines.append(fleet.engine)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for _ in threads:
                looked.acquire()
            go_on.set()
            for thread in threads:
                thread.join()
            print(len(opened), len(engines), len(set(engines)), flush=True)
            fleet.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    assert run_script(script, lasting) == ["1 4 1"]


def test_a_coordinator_that_is_closed_while_it_is_opened_in_a_child_is_closed_there(
    lasting: str,
) -> None:
    script = """
        import os, sys, genlock
        fleet = genlock.connect(sys.argv[1], create=True, agent_id="a")
        child = os.fork()
        if child == 0:
            really = fleet._open_engine

            def open_engine():
                engine = really()
                fleet.close()
                return engine

            fleet._open_engine = open_engine
            try:
                fleet.ready()
            except genlock.errors.GenlockError as error:
                print(error.code, flush=True)
            print([lane.thread.is_alive() for lane in fleet._live.engine._lanes], flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    assert run_script(script, lasting) == ["CLOSED", "[False]"]


def test_a_child_that_leaves_the_coordinator_alone_does_it_no_harm(lasting: str) -> None:
    script = """
        import os, sys, genlock
        fleet = genlock.connect(sys.argv[1], create=True, agent_id="a", session_id="s")
        fleet.add_tasks(tasks=["A"])
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(fleet.claim_task(task_id="A").reason.value)
    """
    assert run_script(script, lasting) == ["GRANTED"]


@pytest.mark.parametrize(
    "opened",
    ['genlock.connect("memory://", agent_id="a")', 'genlock.connect(MemoryStore(), agent_id="a")'],
)
def test_memory_that_is_used_after_a_fork_is_a_clear_error(opened: str) -> None:
    script = f"""
        import os, sys, genlock
        from genlock.stores.memory import MemoryStore
        fleet = {opened}
        fleet.add_tasks(tasks=["A"])
        child = os.fork()
        if child == 0:
            try:
                fleet.claim_task(task_id="A", session_id="s-child")
            except genlock.errors.StoreError as error:
                print("child", "fork" in str(error), flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("parent", fleet.claim_task(task_id="A", session_id="s-parent").reason.value)
    """
    assert run_script(script) == ["child True", "parent GRANTED"]


def test_a_coordinator_that_was_closed_before_a_fork_is_closed_in_the_child(lasting: str) -> None:
    script = """
        import os, sys, genlock
        fleet = genlock.connect(sys.argv[1], create=True, agent_id="a")
        fleet.close()
        child = os.fork()
        if child == 0:
            try:
                fleet.ready()
            except genlock.errors.Closed:
                print("closed", flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    assert run_script(script, lasting) == ["closed"]
