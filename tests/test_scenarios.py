"""Every scenario script, on every store and through a service; on the embedded ones by the
synchronous and by the asynchronous API."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import genlock
from genlock.core.commands import Caller, EndSession
from genlock.core.keys import SESSION, Key
from genlock.core.reasons import ClaimReason, ReleaseAnswer, RenewReason, SubmitReason
from genlock.engine.processes import identify
from genlock.engine.replay_check import Fault, check
from genlock.store import Store
from genlock.stores.memory import MemoryStore
from genlock.testing.clock import ManualClock
from genlock.testing.player import Player
from genlock.testing.scenario import Run, play
from genlock.testing.script_words import Arguments, ScriptError, Verb
from tests.servers import stores
from tests.servers.service import serving

FOLDER = Path(__file__).parent / "scenarios"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.txt"))
CORE = {
    "dependencies", "gc-4.1-happy-path", "gc-4.2-lease-expiration", "gc-4.3-rapid-failover", "gc-4.4-subtasks", "limits-retention",
    "operations", "order-track", "reset", "rule-1-epoch", "rule-4-submit", "rule-6-no-work-is-lost", "rule-7-takeover", "spawn-fan-in",
}  # fmt: skip
APIS = ("sync", "async")
# What the two APIs do differently they do above the store: on a server one of them will do.
STAGES = [
    (store, api)
    for store in (*stores.ALL, "http")
    for api in APIS
    if store not in stores.SERVERS or api == "sync"
]


def _marks(name: str, store: str, api: str) -> list[pytest.MarkDecorator]:
    """What differs between the two APIs by HTTP is only who waits for the answer: the core will do
    for every change."""
    if name in CORE:
        return [pytest.mark.core]
    return [pytest.mark.slow] if (store, api) == ("http", "async") else []


PLAYED = [
    pytest.param(name, store, api, marks=_marks(name, store, api))
    for name in SCRIPTS
    for store, api in STAGES
]


class Performance(NamedTuple):
    """How a script went, and what the replay check says of what it left behind."""

    script: str
    run: Run
    faults: list[Fault]


class Awaited:
    """The asynchronous API for callers that cannot await: each call runs the event loop until it is
    answered."""

    def __init__(self, fleet: genlock.AsyncCoordinator, loop: asyncio.Runner) -> None:
        self._fleet = fleet
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._fleet, name)

        def call(**keywords: Any) -> Any:
            return self._loop.run(method(**keywords))

        return call


class Theatre:
    """Plays each script once for each store and API, however many tests look at it."""

    def __init__(self, folders: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
        self._folders = folders
        self._request = request
        self._played: dict[tuple[str, str, str], Performance] = {}

    def performance(self, name: str, store: str, api: str) -> Performance:
        if (name, store, api) not in self._played:
            script = (FOLDER / f"{name}.txt").read_text()
            self._played[name, store, api] = self.play(script, store, api)
        return self._played[name, store, api]

    def play(self, script: str, store: str, api: str) -> Performance:
        clock = ManualClock()
        opened, reopen = self._open(store, clock)
        if store == "http":
            run = _play_by_http(script, opened, clock, api)
        else:
            run = (
                _play_async(script, opened, clock)
                if api == "async"
                else _play_sync(script, opened, clock)
            )
        # The coordinator is closed by now: the denials it had not written yet are checked with the
        # rest.
        kept = reopen()
        try:
            return Performance(script, run, check(kept))
        finally:
            kept.close()

    def _open(self, store: str, clock: ManualClock) -> tuple[Store, Callable[[], Store]]:
        if store in ("memory", "http"):
            memory = MemoryStore(clock=clock)
            handle = memory.handle(clock=clock)
            return memory, lambda: handle
        stores.need(self._request, store)
        file = self._folders.mktemp("scenario") / "genlock.db"
        return stores.opened(store, file, clock), lambda: stores.opened(store, file, clock)


def _play_sync(script: str, store: Store, clock: ManualClock) -> Run:
    with genlock.connect(store, clock=clock) as fleet:
        return play(script, fleet, clock, store=store, verbs=_accidents(fleet, fleet.engine))


def _play_async(script: str, store: Store, clock: ManualClock) -> Run:
    with asyncio.Runner() as loop:
        fleet = genlock.aio.connect(store, clock=clock)
        try:
            awaited = Awaited(fleet, loop)
            return play(
                script, awaited, clock, store=store, verbs=_accidents(awaited, fleet.engine)
            )
        finally:
            loop.run(fleet.close())


def _play_by_http(script: str, store: Store, clock: ManualClock, api: str) -> Run:
    """Through a service on the store, which has the clock; the client knows nothing of either."""
    with serving(store, clock) as service, asyncio.Runner() as loop:
        engine = service.coordinator.engine
        if api == "sync":
            with genlock.connect(service.url) as fleet:
                return play(script, fleet, clock, store=store, verbs=_accidents(fleet, engine))
        remote = genlock.aio.connect(service.url)
        try:
            awaited = Awaited(remote, loop)
            return play(script, awaited, clock, store=store, verbs=_accidents(awaited, engine))
        finally:
            loop.run(remote.close())


def _accidents(fleet: Any, engine: Any) -> dict[str, Verb]:
    """What no caller asks for: a process that dies, and an end of a session that is cut short
    before it releases anything."""

    def die(line: Arguments) -> str:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
            process = identify(child.pid)
        fleet.register_session(session_id=line.word("the session"), process=process)
        return "gone"

    def cut_short(line: Arguments) -> str:
        session = line.word("the session")
        engine.submit(
            [EndSession(Key("default", "default", SESSION, session), Caller(session))]
        ).wait().only()
        return "ended"

    return {"die": die, "cut_short": cut_short}


@pytest.fixture(scope="session")
def theatre(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Theatre:
    return Theatre(tmp_path_factory, request)


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    return (
        bool(request.config.getoption("--rewrite-scenarios"))
        or os.environ.get("GENLOCK_REWRITE") == "1"
    )


@pytest.mark.parametrize(("name", "store", "api"), PLAYED)
def test_a_scenario_has_the_outcomes_written_in_it_and_leaves_records_that_replay(
    name: str, store: str, api: str, theatre: Theatre, rewrite: bool
) -> None:
    performance = theatre.performance(name, store, api)
    if rewrite:
        (FOLDER / f"{name}.txt").write_text(performance.run.text)
    elif performance.run.wrong:
        pytest.fail("\n".join((f"{name}.txt", *performance.run.wrong)), pytrace=False)
    else:
        assert performance.run.text == performance.script
    assert performance.faults == []


@pytest.mark.parametrize("store", [*stores.ALL, "http"])
@pytest.mark.parametrize("enum", [ClaimReason, RenewReason, ReleaseAnswer, SubmitReason])
def test_every_reason_occurs_in_some_scenario(
    enum: type[StrEnum], store: str, theatre: Theatre
) -> None:
    occurred = {
        reason
        for name in SCRIPTS
        for reason in theatre.performance(name, store, "sync").run.reasons
    }
    assert {(enum.__name__, reason.name) for reason in enum} - occurred == set()


def test_every_verb_of_the_language_occurs_in_some_scenario(theatre: Theatre) -> None:
    used = {
        verb for name in SCRIPTS for verb in theatre.performance(name, "memory", "sync").run.verbs
    }
    assert used == {*Player(None, ManualClock(), None).verbs(), "die", "cut_short"}


# The runner itself: a comparison that cannot fail would make all of the above worth nothing.

GOOD = """\
# A comment, and a blank line.

task   A-001-x
at 0   claim  A-001-x alice/s1 lease=30    -> granted generation=1
at 30  claim  A-001-x bob/s2               -> granted generation=2
       claim  A-009-no bob/s2              -> error TASK_NOT_FOUND
"""


def test_a_right_script_comes_back_to_the_letter(theatre: Theatre) -> None:
    assert theatre.play(GOOD, "memory", "sync").run.text == GOOD
    assert theatre.play(GOOD, "memory", "sync").run.wrong == ()


def test_a_wrong_outcome_is_named_with_its_line_and_set_right(theatre: Theatre) -> None:
    bad = GOOD.replace("granted generation=2", "granted generation=3").replace(
        "error TASK_NOT_FOUND", "granted generation=1"
    )
    run = theatre.play(bad, "memory", "sync").run
    assert run.text == GOOD
    assert [wrong.splitlines()[0] for wrong in run.wrong] == [
        "line 5: at 30  claim  A-001-x bob/s2",
        "line 6: claim  A-009-no bob/s2",
    ]
    assert run.wrong[0].splitlines()[1:] == [
        "  expected: granted generation=3",
        "  was:      granted generation=2",
    ]


def test_a_line_without_an_outcome_may_not_be_an_error(theatre: Theatre) -> None:
    run = theatre.play("claim A-001-x alice/s1\n", "memory", "sync").run
    assert run.text == "claim A-001-x alice/s1 -> error TASK_NOT_FOUND\n"
    assert len(run.wrong) == 1


def test_an_outcome_that_is_left_open_is_wrong_until_it_is_written(theatre: Theatre) -> None:
    run = theatre.play("task A-001-x -> \n", "memory", "sync").run
    assert run.text == "task A-001-x -> added PENDING\n"
    assert len(run.wrong) == 1


def test_repetitions_are_told_as_one_outcome_by_number_or_by_runs(theatre: Theatre) -> None:
    script = """\
policy breaker_threshold=0
limits max_generations_per_task=3
for 1..2 task A-{n:03}-x                             -> added PENDING
for 1..3 at {n}00 claim A-001-x alice/s1 lease=30    -> granted generation={n}
for 1..4 at {n}000 claim A-002-x alice/s1 lease=30   -> {outcome}
"""
    runs = "1..1 granted generation=1 | 2..2 granted generation=2 | 3..3 granted generation=3"
    held = "4..4 denied DENIED_HELD (granted 3 times (max_generations_per_task = 3))"
    expected = script.replace("{outcome}", f"{runs} | {held}")
    assert theatre.play(expected, "memory", "sync").run.text == expected
    assert theatre.play(expected, "memory", "sync").run.wrong == ()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (
            "task A-001-x\nclaimm A-001-x alice/s1",
            "line 2: there is no verb 'claimm'; there are: adopt",
        ),
        ("claim A-001-x", "line 1: agent/session is missing"),
        ("claim A-001-x alice", "line 1: who acts is written agent/session, not 'alice'"),
        ("task A-001-x\nclaim A-001-x alice/s1 leese=30", "line 2: nobody asked for 'leese'"),
        ("at noon task A-001-x", "line 1: a time is a number of seconds, not 'noon'"),
        ("for ever task A-001-x", "line 1: after `for` comes a range such as 1..9, not 'ever'"),
    ],
)
def test_a_mistake_of_the_script_is_said_with_its_line(
    script: str, complaint: str, theatre: Theatre
) -> None:
    with pytest.raises(ScriptError) as raised:
        theatre.play(script, "memory", "sync")
    assert str(raised.value).startswith(complaint)
