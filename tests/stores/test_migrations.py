"""From one format to the next, on every store that has formats."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import genlock
from genlock.engine.replay_check import check
from genlock.errors import StoreForeign, StoreMissing, StoreOutdated
from genlock.open import about_store, create_store, migrate_store
from genlock.stores import mysql, postgres, sqlite
from genlock.stores.migrations import Migrated, read_migrations
from genlock.testing.concurrency import overlapped, together
from tests.servers import stores
from tests.servers.formats import DIALECTS, Dialect

TITLES = ("0002_migrations", "0003_servers", "0004_numbers", "0005_large_plans", "0006_epochs")
"""What leads from format 1 to the present one."""
NEWEST = 6


class Kind(NamedTuple):
    """One kind of store, and where the test's are."""

    name: str
    dialect: Dialect
    url: Callable[[str], str]


@pytest.fixture(name="kind", params=DIALECTS)
def _kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    name = stores.asked_for(request)
    return Kind(
        name, DIALECTS[name], lambda which: stores.LASTING[name].url(tmp_path / f"{which}.db")
    )


@pytest.fixture(name="shared", params=[name for name in DIALECTS if name in stores.SERVERS])
def _shared(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    name = stores.asked_for(request)
    return Kind(name, DIALECTS[name], lambda which: stores.LASTING[name].url(tmp_path / which))


def fill(url: str) -> None:
    """A claim, a result that counts, one that does not, and a task that waits."""
    with genlock.connect(url, create=True, session_id="s1", agent_id="ada") as fleet:
        fleet.add_tasks(tasks=["A-001-x", {"id": "A-002-y", "depends_on": ["A-001-x"]}, "A-003-z"])
        claim = fleet.claim_task(task_id="A-001-x").claim
        assert claim is not None
        fleet.submit_result(task_id="A-001-x", generation=claim.generation, result_data={"done": 1})
        fleet.claim_task(task_id="A-002-y")


def work(url: str) -> None:
    """Goes on with what `fill` has begun."""
    with genlock.connect(url, session_id="s1", agent_id="ada", create=False) as fleet:
        assert fleet.submit_result(task_id="A-002-y", generation=1).accepted
        claim = fleet.claim_task(task_id="A-003-z").claim
        assert claim is not None
        assert fleet.get_task_state(task_id="A-001-x").generation == 1


def faults(url: str) -> list[object]:
    with closing(genlock.open_store(url)) as store:
        return [*check(store)]


def test_the_sql_stores_have_the_same_migrations() -> None:
    for module in (sqlite, postgres, mysql):
        (folder,) = module.__path__
        assert [migration.title for migration in read_migrations(Path(folder) / "migrations")] == [
            "0001_initial",
            *TITLES,
        ]


def test_fresh_equals_migrated(kind: Kind) -> None:
    fresh, old = kind.url("fresh"), kind.url("old")
    create_store(fresh)
    kind.dialect.make_first(old)
    assert kind.dialect.structure(old) != kind.dialect.structure(fresh)
    assert migrate_store(old) == Migrated(1, NEWEST, TITLES)
    assert kind.dialect.structure(old) == kind.dialect.structure(fresh)


def test_a_store_with_work_in_it_goes_on_after_migration(kind: Kind) -> None:
    fresh, url = kind.url("fresh"), kind.url("old")
    create_store(fresh)
    fill(url)
    kind.dialect.make_old(url)
    assert migrate_store(url) == Migrated(1, NEWEST, TITLES)
    assert faults(url) == []
    work(url)
    assert faults(url) == []
    assert kind.dialect.structure(url) == kind.dialect.structure(fresh)


def test_what_was_applied_is_written_down_with_time_and_version(kind: Kind) -> None:
    url = kind.url("old")
    kind.dialect.make_first(url)
    before = about_store(url)
    assert before is not None
    assert (before.format, before.newest, before.migrations) == (1, NEWEST, ())
    migrate_store(url)
    about = about_store(url)
    assert about is not None
    assert [(each.number, each.name, each.applied_by) for each in about.migrations] == [
        (1, "initial", genlock.__version__),
        (2, "migrations", genlock.__version__),
        (3, "servers", genlock.__version__),
        (4, "numbers", genlock.__version__),
        (5, "large_plans", genlock.__version__),
        (6, "epochs", genlock.__version__),
    ]
    assert about.migrations[0].applied_at.year >= 2026


def test_migrating_what_is_up_to_date_does_nothing(kind: Kind) -> None:
    url = kind.url("new")
    create_store(url)
    before = about_store(url)
    assert migrate_store(url) == Migrated(NEWEST, NEWEST)
    assert about_store(url) == before


def test_a_store_that_is_not_there_is_not_migrated(kind: Kind) -> None:
    with pytest.raises(StoreMissing, match="there is no store at"):
        migrate_store(kind.url("none"))
    with pytest.raises(StoreMissing):
        about_store(kind.url("none"))


def test_a_newer_format_is_refused_with_the_version_to_install(kind: Kind) -> None:
    url = kind.url("newer")
    create_store(url)
    kind.dialect.make_newer(url, "7.8.9")
    before = kind.dialect.structure(url)
    for attempt in (genlock.open_store, migrate_store, about_store):
        with pytest.raises(
            StoreForeign, match=r"format 99.*up to 6: install genlock 7\.8\.9 or later"
        ):
            attempt(url)
    assert kind.dialect.structure(url) == before


def test_of_several_who_migrate_at_once_one_does_it(kind: Kind) -> None:
    url = kind.url("old")
    fill(url)
    kind.dialect.make_old(url)
    runs = together([partial(migrate_store, url) for _ in range(4)])
    assert sorted(run.answer.applied for run in runs) == [(), (), (), TITLES]
    (winner,) = [run for run in runs if run.answer.applied]
    assert overlapped(winner, [run for run in runs if run is not winner]) > 0
    assert faults(url) == []


KILLED = """if True:
    import sys
    from genlock.open import migrate_store
    migrate_store(sys.argv[1])
"""


@pytest.mark.parametrize(("moment", "after"), [("before", 1), ("after", NEWEST)])
def test_a_migration_that_is_killed_is_done_or_not_done(
    moment: str, after: int, kind: Kind
) -> None:
    url = kind.url("old")
    fill(url)
    kind.dialect.make_old(url)
    before = kind.dialect.structure(url)
    environment = {
        "GENLOCK_FAILPOINT": f"{kind.name}.open.{moment}_commit",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, url], env=os.environ | environment, timeout=60, check=False
    )
    assert ended.returncode == -9
    if after == 1:
        assert kind.dialect.structure(url) == before
    about = about_store(url)
    assert about is not None
    assert about.format == after
    assert migrate_store(url).before == after
    work(url)
    assert faults(url) == []


def test_a_coordinator_that_is_open_while_another_migrates_goes_on(kind: Kind) -> None:
    url = kind.url("old")
    # By one connection: before it first writes, a new one asks for what only the newer format has.
    # One of an older version would not ask.
    alone = url if kind.name == "sqlite" else f"{url}{'&' if '?' in url else '?'}pool=1"
    with genlock.connect(alone, create=True, session_id="s1", agent_id="ada") as fleet:
        fleet.add_tasks(tasks=["A-001-x", "A-002-y"])
        kind.dialect.make_old(url)
        assert fleet.claim_task(task_id="A-001-x").claim is not None
        assert migrate_store(url).applied == TITLES
        assert fleet.submit_result(task_id="A-001-x", generation=1).accepted
        assert fleet.claim_task(task_id="A-002-y").claim is not None
    assert faults(url) == []


def test_a_shared_store_of_an_older_format_is_refused_and_left_as_it_is(shared: Kind) -> None:
    url = shared.url("old")
    shared.dialect.make_first(url)
    before = shared.dialect.structure(url)
    for create in (True, False):
        with pytest.raises(
            StoreOutdated, match=r"is of format 1, .* format 6; .* type: genlock db migrate URL"
        ):
            genlock.open_store(url, create=create)
    assert shared.dialect.structure(url) == before


def test_a_file_of_an_older_format_is_brought_up_to_date_by_whoever_opens_it_to_write(
    tmp_path: Path,
) -> None:
    url, dialect = f"sqlite://{tmp_path}/old.db", DIALECTS["sqlite"]
    fill(url)
    dialect.make_old(url)
    with pytest.raises(StoreOutdated, match=f"type: genlock db migrate sqlite://{tmp_path}/old.db"):
        sqlite.SQLiteStore(tmp_path / "old.db", read_only=True)
    work(url)
    about = about_store(url)
    assert about is not None
    assert about.format == NEWEST


@pytest.mark.parametrize("empty", [False, True])
def test_without_create_a_missing_store_is_not_made(
    empty: bool, kind: Kind, tmp_path: Path
) -> None:
    url = kind.url("none")
    if empty and kind.name == "sqlite":
        (tmp_path / "none.db").touch()
    for attempt in (genlock.open_store, genlock.connect):
        with pytest.raises(
            StoreMissing,
            match=r"there is no store (at|in) .* type: genlock (init --url sqlite|db create URL)",
        ):
            attempt(url)
    assert create_store(url)
    assert not create_store(url)
    genlock.open_store(url).close()
