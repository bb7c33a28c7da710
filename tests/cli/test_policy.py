"""`genlock policy`: what a project has chosen, shown and set, on a store and through a service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genlock.core.policy import Policy
from tests.cli.console import Ran, run
from tests.cli.stage import Stage
from tests.cli.terminal import shown
from tests.servers.service import serving

Call = Callable[..., Ran]


@pytest.fixture(params=["store", "service"])
def call(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Call]:
    """The command, on a store of its own or through a service on one."""
    if request.param == "store":
        yield Stage(tmp_path / "project").run
        return
    with serving("memory://") as service:
        yield lambda *words: run(*words, env={"GENLOCK_URL": service.url})


def test_every_key_of_the_policy_is_shown_with_its_default(call: Call) -> None:
    found = call("policy", "show").json()
    assert found["policy"] == {
        "order": "track",
        "ids": "auto",
        "expired": "takeover",
        "grace_seconds": 60.0,
        "claim_ttl_seconds": 3600.0,
        "stale_threshold_seconds": 1800.0,
        "breaker_threshold": 5,
        "cancelled_dependency": "met",
        "spawn_depth": 3,
        "offer_backlog": False,
        "lock_timeout_hours": 4.0,
        "orphan_threshold_seconds": 600.0,
        "tracks": "prefer",
        "agents_per_track": None,
        "agents_on_track": {},
        "track_order": "prefer",
        "overlap": "off",
        "four_eyes": False,
        "worktree_start": "base",
        "products": None,
        "draft_retention_days": 7.0,
        "agents": "fleet",
    }
    assert (found["tracks"]["A"], "max_concurrent_claims" in found["limits"]) == (
        "Core Architecture",
        True,
    )


def test_what_is_set_holds_and_the_rest_stays(call: Call) -> None:
    told = call(
        "policy",
        "set",
        "expired=grace",
        "grace_seconds=120",
        "offer_backlog=true",
        "claim_ttl_seconds=7200.5",
    )
    assert (told.code, told.err) == (0, "")
    changed = {
        "expired": "grace",
        "grace_seconds": 120.0,
        "offer_backlog": True,
        "claim_ttl_seconds": 7200.5,
    }
    assert told.json() == call("policy", "show").json()
    assert {key: told.json()["policy"][key] for key in changed} == changed
    assert told.json()["policy"]["breaker_threshold"] == 5
    assert call("policy", "show", "--project", "other").json()["policy"]["expired"] == "takeover", (
        "another project has another policy"
    )
    assert call("add", "b", "--set", "state=backlog").code == 0
    assert call("next", "-q").out.splitlines()[0] == "b", "what is set is what holds"


def test_what_quiet_prints_can_be_typed_again(call: Call) -> None:
    printed = call(
        "policy", "set", "claim_ttl_seconds=none", "order=leaf-first", "-q"
    ).out.splitlines()
    assert [line.partition("=")[0] for line in printed] == list(Policy.__struct_fields__)
    assert {
        "claim_ttl_seconds=none",
        "order=leaf-first",
        "offer_backlog=false",
        "grace_seconds=60",
    } <= set(printed)
    again = call("policy", "set", *printed, "-q")
    assert (again.code, again.out.splitlines()) == (0, printed)


WRONG = [
    (["set"], "Missing argument 'KEY=VALUE...'"),
    (["set", "order"], "policy 'order': write KEY=VALUE"),
    (
        ["set", "ordr=track"],
        (
            r"there is no policy 'ordr'; did you mean order\? There are: agents, agents_on_track, .*order, "
            ".*stale_threshold_seconds, track_order, tracks"
        ),
    ),
    (
        ["set", "grace=5"],
        r"there is no policy 'grace'; did you mean grace_seconds\? There are: agents, agents_on_track, ",
    ),
    (
        ["set", "order=random"],
        "policy order is one of track, leaf-first, closest-to-done, not 'random'",
    ),
    (
        ["set", "expired=grace", "breaker_threshold=many"],
        "policy breaker_threshold is a whole number, not 'many'",
    ),
    (["set", "claim_ttl_seconds=long"], "policy claim_ttl_seconds is a number or none, not 'long'"),
    (["set", "offer_backlog=yes"], "policy offer_backlog is true or false, not 'yes'"),
    (["set", "grace_seconds=none"], "policy grace_seconds is a number, not None"),
    (["set", "grace_seconds=-1"], "policy grace_seconds: -1.0 is out of range"),
    (["set", "ids=auto", "ids=auto"], "ids is given twice"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    WRONG,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_key_or_value_is_refused_with_the_right_ones_and_changes_nothing(
    stage: Stage, arguments: list[str], message: str
) -> None:
    before = stage.files()
    ran = stage.run("policy", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert re.search(message, ran.error()["message"])
    assert stage.files() == before


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("policy") / "project")


def test_a_service_refuses_a_wrong_value_with_the_right_ones() -> None:
    with serving("memory://") as service:
        ran = run("policy", "set", "order=random", env={"GENLOCK_URL": service.url})
    assert (ran.code, ran.error()["message"]) == (
        2,
        "policy order is one of track, leaf-first, closest-to-done, not 'random'",
    )


def test_on_a_terminal_the_policy_is_a_table_that_says_what_each_key_takes(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "project")
    assert stage.run("policy", "set", "expired=human", "claim_ttl_seconds=7200").code == 0
    code, lines = shown("policy", "show", cwd=stage.folder, columns=100, env={"NO_COLOR": "1"})
    assert (code, lines) == (
        0,
        [
            "policy                    value   default   takes",
            "order                     track   track     one of track, leaf-first, closest-to-done",
            "ids                       auto    auto      one of auto, hierarchical",
            "expired                   human   takeover  one of takeover, grace, human",
            "grace_seconds             60      60        a number",
            "claim_ttl_seconds         7200    3600      a number or none",
            "stale_threshold_seconds   1800    1800      a number",
            "breaker_threshold         5       5         a whole number",
            "cancelled_dependency      met     met       one of met, hold",
            "spawn_depth               3       3         a whole number",
            "offer_backlog             false   false     true or false",
            "lock_timeout_hours        4       4         a number",
            "orphan_threshold_seconds  600     600       a number",
            "tracks                    prefer  prefer    one of prefer, strict",
            "agents_per_track          none    none      a whole number or none",
            'agents_on_track           {}      {}        whole numbers by track, as {"A": 2}',
            "track_order               prefer  prefer    one of prefer, enforce",
            "overlap                   off     off       one of off, warn, avoid, forbid",
            "four_eyes                 false   false     true or false",
            "worktree_start            base    base      one of base, predecessor",
            "products                  none    none      a text or none",
            "draft_retention_days      7       7         a number",
            "agents                    fleet   fleet     one of fleet, single",
        ],
    )
