"""The store itself, by the real command: create, migrate, check, status; and the doctor on a
server."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.engine.replay_check import check
from genlock.errors import CursorLost
from genlock.safe_text import without_password
from genlock.stores.postgres import PostgresStore
from genlock.transfer.verification import verify
from tests.cli.console import Ran, run
from tests.cli.terminal import shown
from tests.servers import stores
from tests.servers.formats import DIALECTS, Dialect
from tests.servers.postgres import Postgres


@pytest.fixture(name="kind", params=DIALECTS)
def _kind(request: pytest.FixtureRequest) -> str:
    return stores.asked_for(request)


@pytest.fixture(name="url")
def _url(kind: str, tmp_path: Path) -> str:
    return stores.LASTING[kind].url(tmp_path / "s.db")


@pytest.fixture(name="dialect")
def _dialect(kind: str) -> Dialect:
    return DIALECTS[kind]


@pytest.fixture(name="old")
def _old(url: str, dialect: Dialect) -> str:
    """A store of format 1."""
    dialect.make_first(url)
    return url


@pytest.fixture(name="server")
def _server(postgres: Postgres) -> str:
    return postgres.url()


def fill(url: str) -> None:
    with genlock.connect(url, create=True, session_id="s1", agent_id="ada") as fleet:
        fleet.add_tasks(tasks=["A-001-x", {"id": "A-002-y", "depends_on": ["A-001-x"]}])
        fleet.claim_task(task_id="A-001-x")
        fleet.add_tasks(tasks=["B-001-x"], project_id="other")


class TestCreate:
    def test_a_store_is_made_once(self, url: str) -> None:
        ran = run("db", "create", url)
        assert (ran.code, ran.json()["made"], ran.json()["url"]) == (0, True, without_password(url))
        again = run("db", "create", "--url", url)
        assert (again.code, again.json()["made"]) == (0, False)
        assert run("ready", "--url", url).code == 0

    def test_init_says_whether_it_has_made_one_on_a_server_too(self, server: str) -> None:
        assert run("init", "--url", server).json()["made"] is True
        assert run("init", "--url", server).json()["made"] is False

    def test_without_a_url_it_is_the_project_s_own(self, tmp_path: Path) -> None:
        ran = run("db", "create", cwd=tmp_path)
        assert (ran.code, ran.json()["path"]) == (0, f"{tmp_path}/.genlock/genlock.db")
        assert (tmp_path / ".genlock" / ".gitignore").exists()

    def test_two_different_urls_are_refused_and_nothing_is_made(self, tmp_path: Path) -> None:
        ran = run("db", "create", f"sqlite://{tmp_path}/a.db", "--url", f"sqlite://{tmp_path}/b.db")
        assert (ran.code, ran.error()["code"]) == (2, "BAD_ARGUMENT")
        assert "name one" in ran.error()["message"]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "verb",
        ["ready", "doctor", "export", "db status", "db check", "db migrate", "db raise-epoch"],
    )
    def test_no_other_verb_makes_one(self, verb: str, url: str, tmp_path: Path) -> None:
        ran = run(*verb.split(), "--url", url)
        assert (ran.code, ran.out, ran.error()["code"]) == (3, "", "STORE_MISSING")
        assert (
            "genlock init --url sqlite://" if url.startswith("sqlite") else "genlock db create URL"
        ) in ran.error()["message"]
        assert list(tmp_path.iterdir()) == []
        assert run("db", "create", url).json()["made"] is True


class TestRaiseEpoch:
    def test_what_is_granted_then_is_above_all_that_was_granted_before_and_cursors_are_lost(
        self, url: str
    ) -> None:
        fill(url)
        with genlock.connect(url, create=True, session_id="s1", agent_id="ada") as fleet:
            cursor = fleet.read_events().cursor
        ran = run("db", "raise-epoch", url)
        epoch = ran.json()["after"]
        assert (ran.code, ran.json()) == (
            0,
            {"url": without_password(url), "before": 0, "after": epoch},
        )
        assert epoch > 444_000_000, (
            "made of the time, so that two copies of a store never begin the same one"
        )
        again = run("db", "raise-epoch", "--url", url).json()
        assert again["before"] == epoch < again["after"]
        with genlock.connect(url, create=True, session_id="s2", agent_id="bob") as fleet:
            with pytest.raises(CursorLost):
                fleet.read_events(after=cursor)
            fleet.force_release(task_id="A-001-x", take_over=True)
            claim = fleet.claim_task(task_id="A-001-x").claim
            assert claim is not None
            assert claim.generation == again["after"] * 1_000_000 + 1


class TestMigrate:
    def test_it_says_from_which_format_to_which(self, old: str) -> None:
        ran = run("db", "migrate", old)
        assert (ran.code, ran.json()) == (
            0,
            {
                "url": without_password(old),
                "before": 1,
                "after": 6,
                "applied": [
                    "0002_migrations",
                    "0003_servers",
                    "0004_numbers",
                    "0005_large_plans",
                    "0006_epochs",
                ],
            },
        )
        again = run("db", "migrate", old)
        assert (again.code, again.json()) == (
            0,
            {"url": without_password(old), "before": 6, "after": 6, "applied": []},
        )

    def test_a_server_s_store_of_an_older_format_is_refused_with_what_to_type(
        self, server: str
    ) -> None:
        DIALECTS["postgres"].make_first(server)
        ran = run("ready", "--url", server)
        assert (ran.code, ran.error()["code"]) == (1, "STORE_OUTDATED")
        assert "type: genlock db migrate URL" in ran.error()["message"]
        ill = run("doctor", "--url", server)
        assert ill.code == 1
        assert ill.json()["findings"][-1]["try_next"] == [
            f"genlock db migrate --url {shlex.quote(without_password(server))}"
        ]
        assert run("db", "migrate", server).code == 0
        assert run("ready", "--url", server).code == 0

    def test_the_doctor_fixes_a_file_of_an_older_format_only_when_told_to(
        self, tmp_path: Path
    ) -> None:
        url = f"sqlite://{tmp_path}/old.db"
        fill(url)
        DIALECTS["sqlite"].make_old(url)
        assert not_ok(run("doctor", "--url", url)) == [("format", "trouble")]
        assert run("db", "status", url).json()["format"] == 1
        assert not_ok(run("doctor", "--fix", "--url", url)) == []
        assert run("db", "status", url).json()["format"] == 6

    def test_a_file_of_an_older_format_can_be_backed_up_and_restored(self, tmp_path: Path) -> None:
        url = f"sqlite://{tmp_path}/old.db"
        fill(url)
        DIALECTS["sqlite"].make_old(url)
        assert run("backup", tmp_path / "copy.db", "--url", url).code == 0
        assert run("db", "status", f"sqlite://{tmp_path}/copy.db").json()["format"] == 6
        assert run("db", "status", url).json()["format"] == 1, "a backup changes nothing"
        DIALECTS["sqlite"].make_old(f"sqlite://{tmp_path}/copy.db")
        new = f"sqlite://{tmp_path}/new.db"
        assert run("restore", tmp_path / "copy.db", "--url", new).code == 0
        assert run("db", "check", new).json()["faults"] == []

    def test_what_has_no_format_cannot_be_migrated(self) -> None:
        ran = run("db", "migrate", "memory://")
        assert (ran.code, ran.error()["code"]) == (2, "BAD_ARGUMENT")


class TestCheck:
    def test_a_whole_store_has_no_fault(self, url: str) -> None:
        fill(url)
        ran = run("db", "check", url)
        assert (ran.code, ran.json()["faults"]) == (0, [])
        assert ran.json()["records"] >= 3

    def test_faults_are_named_and_the_exit_code_is_1(self, url: str, dialect: Dialect) -> None:
        fill(url)
        dialect.spoil(url)
        ran = run("db", "check", url)
        assert ran.code == 1
        assert {fault["where"] for fault in ran.json()["faults"]} == {
            "default/default task A-001-x"
        }
        quiet = run("db", "check", url, "-q")
        assert quiet.out.splitlines() == [
            f"{fault['where']}: {fault['what']}" for fault in ran.json()["faults"]
        ]


class TestStatus:
    def test_it_says_what_the_store_is_and_what_is_in_it(self, url: str) -> None:
        fill(url)
        ran = run("db", "status", url)
        answer = ran.json()
        assert ran.code == 0
        assert list(answer) == [
            "contents",
            "format",
            "migrations",
            "newest",
            "scheme",
            "server",
            "url",
        ]
        assert (answer["format"], answer["newest"], answer["scheme"]) == (
            6,
            6,
            url.partition("://")[0],
        )
        assert [
            (each["number"], each["name"], each["applied_by"]) for each in answer["migrations"]
        ] == [
            (1, "initial", genlock.__version__),
            (2, "migrations", genlock.__version__),
            (3, "servers", genlock.__version__),
            (4, "numbers", genlock.__version__),
            (5, "large_plans", genlock.__version__),
            (6, "epochs", genlock.__version__),
        ]
        inside = answer["contents"]
        assert (inside["epoch"], inside["shared"], inside["read_only"]) == (
            0,
            not url.startswith("sqlite"),
            False,
        )
        assert [(each["project"], each["tasks"]) for each in inside["projects"]] == [
            ("default", {"BLOCKED": 1, "IN_PROGRESS": 1}),
            ("other", {"PENDING": 1}),
        ]
        assert all(each["position"] > 0 for each in inside["projects"])

    def test_of_an_older_format_it_says_so_and_what_to_type(self, old: str) -> None:
        ran = run("db", "status", old)
        assert (ran.code, ran.json()["format"], ran.json()["contents"]) == (0, 1, None)
        assert "type: genlock db migrate" in ran.err

    def test_a_newer_format_is_refused(self, url: str, dialect: Dialect) -> None:
        assert run("db", "create", url).code == 0
        dialect.make_newer(url, "7.8.9")
        for verb in ("status", "check", "migrate", "create"):
            ran = run("db", verb, url)
            assert (ran.code, ran.error()["code"]) == (1, "STORE_FOREIGN")
            assert "install genlock 7.8.9 or later" in ran.error()["message"]

    def test_passwords_are_not_shown(self, server: str) -> None:
        secret = server.replace("genlock@", "genlock:hunter2@") + "&password=hunter3"
        for verb in ("create", "status", "check", "migrate"):
            ran = run("db", verb, secret)
            assert ran.code == 0
            assert "er2" not in ran.out + ran.err
            assert "er3" not in ran.out + ran.err

    @pytest.mark.parametrize("columns", [100, 40])
    def test_on_a_terminal_it_fits(self, url: str, tmp_path: Path, columns: int) -> None:
        fill(url)
        code, lines = shown(
            "db", "status", url, cwd=tmp_path, columns=columns, env={"NO_COLOR": "1"}
        )
        assert code == 0
        assert max(map(len, lines)) <= columns
        assert any(line.startswith("0002_migrations") for line in lines)


def not_ok(ran: Ran) -> list[tuple[str, str]]:
    return [
        (finding["check"], finding["level"])
        for finding in ran.json()["findings"]
        if finding["level"] != "ok"
    ]


class TestDoctorOnAServer:
    def test_what_can_be_looked_at_is(self, server: str) -> None:
        fill(server)
        ran = run("doctor", "--url", server)
        answer: dict[str, Any] = ran.json()
        assert [finding["check"] for finding in answer["findings"]] == [
            *("versions", "server", "format", "durable", "server clock", "replay", "payloads"),
            *("claims", "clock", "reactions", "dependencies", "held", "reviews", "refused"),
        ]
        # The tests' server does not sync.
        assert (ran.code, not_ok(ran)) == (0, [("durable", "note")])

    def test_a_fault_is_named(self, server: str) -> None:
        fill(server)
        DIALECTS["postgres"].spoil(server)
        ran = run("doctor", "--url", server)
        assert (ran.code, ("replay", "trouble") in not_ok(ran)) == (1, True)

    def test_fixing_sweeps(self, server: str) -> None:
        fill(server)
        assert run("doctor", "--fix", "--url", server).code == 0

    def test_what_others_write_meanwhile_is_no_fault(self, server: str) -> None:
        fill(server)
        with genlock.connect(server) as fleet, closing(PostgresStore(server)) as store:

            def add_once(task: str) -> Callable[[int], None]:
                calls = count(1)

                def add(done: int) -> None:
                    if (
                        next(calls) == 2
                    ):  # the first record is the tenant's, which is of another feed
                        fleet.add_tasks(tasks=[task])

                return add

            assert [fault.what for fault in check(store, progress=add_once("A-900-x"))] != [], (
                "looking once sees half of it"
            )
            adding = add_once("A-901-x")
            found = verify(store, lambda _, done, __: adding(done), still=False)
        assert (found.faults, found.lost) == ([], [])
