"""A store opened for one instant sees that instant, whatever is written meanwhile."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import genlock
from genlock.engine.replay_check import check
from genlock.errors import Closed, StoreReadOnly
from genlock.store import EventQuery, Query
from genlock.stores.sqlite import SQLiteStore
from genlock.testing.sample import make_change, make_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def test_what_is_written_later_is_not_seen_by_any_way_of_reading(path: Path) -> None:
    with genlock.connect(f"sqlite://{path}", create=True, session_id="s", agent_id="a") as fleet:
        fleet.add_tasks(tasks=["one"])
        with closing(SQLiteStore(path, instant=True)) as instant:
            fleet.add_tasks(tasks=["two"])
            fleet.claim_task(task_id="one")
            key = make_key("one", tenant="default", project="default")
            assert [
                stored.key.id for stored in instant.find(Query("default", "default")).records
            ] == ["one"]
            assert instant.find(Query("default", "default"), count_by="state").counts == {
                "PENDING": 1
            }
            assert instant.load([key]).records[key].version == 1
            assert instant.load([key, key._replace(id="two")]).records.keys() == {key}
            assert instant.read_events(EventQuery("default", "default", tail=True)).position == 2
            assert check(instant) == []
        with closing(SQLiteStore(path, instant=True)) as instant:
            assert [
                stored.key.id for stored in instant.find(Query("default", "default")).records
            ] == ["one", "two"]


def test_it_cannot_be_written_and_once_closed_not_be_read(path: Path) -> None:
    SQLiteStore(path).close()
    instant = SQLiteStore(path, instant=True)
    assert instant.limits.read_only
    with pytest.raises(StoreReadOnly):
        instant.commit([make_change(make_key("one"))])
    instant.close()
    with pytest.raises(Closed):
        instant.load([])


def test_when_it_is_closed_the_log_can_be_emptied_again(path: Path) -> None:
    with closing(SQLiteStore(path)) as store:
        instant = SQLiteStore(path, instant=True)
        store.commit([make_change(make_key("one"))])
        instant.close()
        assert store._writer is not None
        assert store._writer.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
        assert Path(f"{path}-wal").stat().st_size == 0
