"""The command line against a service, by its URL alone: the same verbs, the same answers; what
needs the store says so."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock.service.compose import Choices
from tests.cli.console import SESSION, Ran, run
from tests.servers.service import Service, serving


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving("memory://") as service:
        yield service


class Line:
    """Calls with the service's URL, in a project of their own."""

    def __init__(self, url: str, project: str) -> None:
        self.url, self.project = url, project

    def __call__(self, *words: object, **more: str) -> Ran:
        return run(
            *words, "--json", env={"GENLOCK_URL": self.url, "GENLOCK_PROJECT": self.project, **more}
        )


@pytest.fixture
def line(service: Service, request: pytest.FixtureRequest) -> Line:
    return Line(service.url, f"p{abs(hash(request.node.name)) % 10**12}")


def test_a_worker_works_through_a_service(line: Line, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("tasks:\n  - id: A-001-x\n  - id: A-002-y\n    depends_on: [A-001-x]\n")
    assert line("plan", "import", plan).json()["added"] == ["A-001-x", "A-002-y"]
    assert [task["id"] for task in line("ready").json()["ready_tasks"]] == ["A-001-x"]
    claimed = line("next").json()
    assert (claimed["task_id"], claimed["claim"]["generation"], claimed["claim"]["session_id"]) == (
        "A-001-x",
        1,
        SESSION,
    )
    assert line("renew", "A-001-x", "--generation", 1).json()["reason"] == "RENEWED"
    denied = line("claim", "A-001-x", "--session", "other", "--agent", "bob")
    assert (denied.code, denied.json()["holder"]["session"]) == (5, SESSION)
    assert (
        line("submit", "A-001-x", "--generation", 1, "--result", '{"n": 1}').json()["accepted"]
        is True
    )
    assert line("claim", "A-002-y").code == 0
    assert line("release", "A-002-y", "--generation", 1).json()["reason"] == "RELEASED"


def test_a_task_that_is_not_there_is_told_with_those_that_were_perhaps_meant(line: Line) -> None:
    assert line("add", "A-001-core-framework").code == 0
    ran = line("claim", "A-0")
    assert (ran.code, ran.error()["message"].rpartition("; ")[2]) == (
        3,
        "did you mean A-001-core-framework?",
    )


def test_a_plan_meets_a_service_as_it_meets_a_store(line: Line, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("project: shop\ntasks: [{id: mine}]\n")
    (tmp_path / "any.yaml").write_text("tasks: [{id: mine}]\n")
    assert line("add", "T").code == 0
    wrong = line("plan", "import", tmp_path / "shop.yaml")
    assert (wrong.code, wrong.error()["faults"][0]["line"]) == (2, 1)
    assert (
        f"the plan is of project 'shop', but '{line.project}' was asked for"
        in wrong.error()["message"]
    )
    asked = line("plan", "import", "--prune", tmp_path / "any.yaml")
    assert (asked.code, asked.out) == (2, "")
    assert asked.error()["message"].startswith(
        f"1 task of project '{line.project}' not in the plan would be cancelled:\n  T\n"
    )
    assert line("show", "mine").code == 3, "something was written"
    assert line("plan", "diff", "--prune", tmp_path / "any.yaml").json()["cancelled"] == ["T"]
    assert line("plan", "import", "--prune", "--yes", tmp_path / "any.yaml").json()[
        "cancelled"
    ] == ["T"]


def test_looking_and_operating_go_through_a_service(line: Line) -> None:
    assert line("add", "T", "--title", "a task").code == 0
    assert line("claim", "T").code == 0
    assert line("unlock", "T", "--force").json()["generation"] == 2
    refused = line("submit", "T", "--generation", 1, "--result", '"late"')
    assert (refused.code, refused.json()["reason"]) == (5, "STALE_GENERATION")
    assert line("refused", "--after", refused.json()["refused_id"]).json() == {"refused": []}
    for words in (
        ["show", "T"],
        ["history", "T"],
        ["explain", "T"],
        ["sessions"],
        ["agents"],
        ["refused"],
        ["graph"],
        ["events"],
    ):
        assert line(*words).code == 0, words
    assert line("hold", "T").json()["state"] == "HELD"
    assert line("reopen", "T").json()["state"] == "PENDING"
    assert line("edit", "T", "--title", "another").code == 0
    assert line("assign", "T", "bob").code == 0
    assert line("reset", "T").code == 0
    assert line("sweep").code == 0
    assert line("cancel", "T").json()["state"] == "CANCELLED"
    assert line("show", "nope").error()["code"] == "TASK_NOT_FOUND"
    assert line("show", "nope").code == 3


def test_the_url_may_be_a_flag_or_stand_in_the_settings(service: Service, tmp_path: Path) -> None:
    assert run("ready", "--url", service.url, "--json").json()["ready_tasks"] == []
    own = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert run("config", "set", "--user", "url", service.url, env=own).code == 0
    assert run("ready", "--json", env=own).json()["ready_tasks"] == []


def test_events_are_followed_through_a_service(line: Line) -> None:
    line("add", "T")
    with genlock.connect(line.url, create=True, project_id=line.project) as fleet:
        before = fleet.read_events().cursor
        told: list[Ran] = []
        follower = threading.Thread(
            target=lambda: told.append(line("events", "--follow", "--after", before, "--limit", 2))
        )
        follower.start()
        fleet.add_tasks(tasks=["U"])
        fleet.hold_task(task_id="U")
        follower.join(60)
    assert [json.loads(event)["event_type"] for event in told[0].out.splitlines()] == [
        "TASK_ADDED",
        "TASK_HELD",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["doctor"], ["db", "status"], ["db", "check"], ["db", "migrate"], ["db", "create"], ["init"], ["export"], ["backup", "x.db"],
        ["restore", "x.db"], ["serve"], ["dev"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_needs_the_store_itself_says_so(line: Line, words: list[str], tmp_path: Path) -> None:
    refused = line(*words)
    assert refused.code == 2
    assert (
        "needs the store itself: type it where the store can be reached, with its own URL"
        in refused.error()["message"]
    )
    assert refused.error()["message"].startswith(f"GENLOCK_URL names a service, {line.url},")
    assert refused.error()["message"].endswith("or unset GENLOCK_URL")


def test_what_needs_the_store_says_which_flag_or_file_names_a_service(
    service: Service, tmp_path: Path
) -> None:
    assert (
        run("init", "--url", service.url, "--json")
        .error()["message"]
        .startswith("--url names a service")
    )
    own = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert run("config", "set", "--user", "url", service.url, env=own).code == 0
    assert (
        run("doctor", env=own)
        .error()["message"]
        .startswith(f"{tmp_path}/genlock/config.toml:1 names a service")
    )


def test_what_a_key_does_not_allow_ends_with_4(tmp_path: Path) -> None:
    store = f"sqlite://{tmp_path}/genlock.db"
    assert run("init", "--url", store).code == 0
    observer = run(
        "keys", "create", "r", "--role", "observer", "--url", store, "--quiet"
    ).out.strip()
    with serving(store, choices=Choices(keys=True)) as service:
        for key, code in (
            (observer, "ROLE_REFUSED"),
            (None, "KEY_REFUSED"),
            (observer[:-1], "KEY_REFUSED"),
        ):
            refused = run(
                "add", "T", "--json", env={"GENLOCK_URL": service.url, "GENLOCK_API_KEY": key}
            )
            assert (refused.code, refused.error()["code"]) == (4, code)


@pytest.mark.parametrize(
    "words",
    [
        ["tenant", "list"],
        ["keys", "list", "--all-tenants"],
        ["keys", "create", "x", "--role", "admin", "--all-tenants"],
    ],
    ids=" ".join,
)
def test_what_is_about_all_tenants_needs_a_key_of_all_tenants_and_says_so(
    words: list[str], tmp_path: Path
) -> None:
    store = f"sqlite://{tmp_path}/genlock.db"
    assert run("init", "--url", store).code == 0
    admin = run("keys", "create", "a", "--role", "admin", "--url", store, "--quiet").out.strip()
    with serving(store, choices=Choices(keys=True)) as service:
        refused = run(*words, "--json", env={"GENLOCK_URL": service.url, "GENLOCK_API_KEY": admin})
    assert (refused.code, refused.error()["code"]) == (4, "ROLE_REFUSED")
    assert "needs a key of all tenants" in refused.error()["message"]


def test_copy_takes_no_service(line: Line, tmp_path: Path) -> None:
    refused = run("copy", line.url, f"sqlite://{tmp_path}/x.db", "--json")
    assert refused.code == 2
    assert "needs the store itself" in refused.error()["message"]


def test_a_service_that_is_not_there_is_an_error_that_says_what_to_check() -> None:
    with serving("memory://") as service:
        url = service.url
    refused = run("ready", "--url", url, "--json")
    assert (refused.code, refused.error()["code"]) == (1, "SERVICE_UNREACHABLE")
    assert "No service listens there. Is this its address?" in refused.error()["message"]


def test_tasks_are_completed_from_a_service(line: Line) -> None:
    line("add", "alpha")
    line("add", "beta")
    asked = {
        "_GENLOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": "genlock claim al",
        "COMP_CWORD": "2",
    }
    assert run(
        env={"GENLOCK_URL": line.url, "GENLOCK_PROJECT": line.project, **asked}
    ).out.split() == ["plain,alpha"]
