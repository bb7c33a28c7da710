"""The demo's scene with a repository: real worktrees, real pushes, a real guard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.console import Ran, run

PROMISES = [
    "all that was scripted has happened",
    "the zombie's push was refused: STALE_GENERATION",
    "every commit on main is of an accepted result",
    "each generation worked in a worktree of its own",
    "no worktree is left, and none had uncommitted work",
    "every task is completed",
    "each completed task has one accepted result, of its highest generation",
    "no generation was granted twice",
    "generations only rise",
    "nothing refused was lost",
    "replaying the events gives the records",
    "every worker ended in order",
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One hurried run, which the tests below look at from several sides."""
    folder = tmp_path_factory.mktemp("demo")
    ran = run("demo", "--isolation", "--quick", env={"TMPDIR": str(folder)}, timeout=100)
    assert list(Path(folder).iterdir()) == [], "nothing is left behind"
    return ran


def test_every_promise_held(ran: Ran) -> None:
    assert ran.code == 0, ran.err
    assert ran.json()["invariants"] == [{"promise": promise, "faults": []} for promise in PROMISES]


def test_the_zombie_s_push_was_refused(ran: Ran) -> None:
    stopped = re.search(r"kill -STOP (\w+), in the middle of B-002", ran.err)
    assert stopped is not None
    [refused] = [each for each in ran.json()["refused_pushes"] if each["task"].startswith("B-002")]
    assert (refused["agent"], refused["generation"], refused["reason"]) == (
        stopped[1],
        1,
        "STALE_GENERATION",
    )


def test_main_took_what_a_person_had_approved_and_not_before(ran: Ran) -> None:
    told = ran.err
    early = told.index("olga pushes D-001 to main, not approved: refused, NOT_ACCEPTED")
    assert early < told.index("olga approves D-001") < told.index("olga merges D-001 into main")
    assert sorted(line.split()[2] for line in ran.json()["main"]) == [
        "A-001-core-framework,",
        "A-002-event-bus,",
        "B-001-schema-design,",
        "B-002-entity-models,",
        "C-001-log-in-page,",
        "C-002-checkout-page,",
        "D-001-payments,",
    ]
