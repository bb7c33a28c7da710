"""Which sessions have a key: all keys are read once, and then what has happened to them, whatever
the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from genlock.core.keys import KEY
from genlock.errors import CursorLost
from genlock.reads.keys import SessionKeys
from genlock.reads.reader import StoreReader
from tests.engine.gated_store import Home, raising
from tests.servers import stores


class Stage:
    """The bindings on a store, and an admin elsewhere who makes keys."""

    def __init__(self, home: Home) -> None:
        self.store = home.gated()
        self.admin = home.connect(tenant_id="acme")
        self.bindings = SessionKeys(StoreReader(self.store))

    def key(self, session: str | None = None, **more: Any) -> str:
        return self.admin.create_key(name="ci", role="agent", session_id=session, **more).key.key_id

    def bound(self, ahead_seconds: float = 0) -> list[str]:
        """Which of some sessions have a key, or will have."""
        now = self.bindings.catch_up().now
        assert now is not None
        now += timedelta(seconds=ahead_seconds)
        return [
            session
            for session in ("s1", "s2", "s3")
            if self.bindings.has_key(("acme", session), lambda: now)
        ]

    @property
    def readings(self) -> int:
        """Of all keys."""
        return len(
            [given for method, given in self.store.calls if method == "find" and given.kind == KEY]
        )


@pytest.fixture(params=stores.ALL)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    home = Home(stores.asked_for(request), tmp_path)
    try:
        yield Stage(home)
    finally:
        home.close()


def test_what_happens_to_keys_is_told_and_only_that_is_read(stage: Stage) -> None:
    assert stage.bindings.catch_up().changed is None, "of the first look everything is new"
    assert stage.bindings.catch_up(time=False) == (None, frozenset()), (
        "one query, and nothing to tell"
    )
    one, two, free = stage.key("s1"), stage.key("s2"), stage.key()
    assert stage.bindings.catch_up().changed == frozenset({one, two, free})
    assert stage.bound() == ["s1", "s2"]
    stage.admin.revoke_key(key_id=one)
    stage.admin.rotate_key(key_id=two)
    stage.admin.set_tenant(tenant_id="acme", limits={"max_active_sessions": 7})
    assert stage.bindings.catch_up().changed == frozenset({one, two})
    assert stage.bound() == ["s2"]
    assert stage.readings == 1


def test_what_was_there_at_the_first_look_is_known(stage: Stage) -> None:
    gone = stage.key("s1")
    stage.key("s2")
    stage.admin.revoke_key(key_id=gone)
    assert stage.bound() == ["s2"]


def test_of_several_keys_of_a_session_each_counts_until_its_end(stage: Stage) -> None:
    stage.key("s1", expires_in_seconds=60)
    never = stage.key("s1")
    stage.key("s2", expires_in_seconds=60)
    assert stage.bound() == ["s1", "s2"]
    assert stage.bound(ahead_seconds=61) == ["s1"]
    stage.admin.revoke_key(key_id=never)
    assert stage.bound() == ["s1", "s2"]
    assert stage.bound(ahead_seconds=61) == []


def test_where_the_feed_cannot_be_continued_all_keys_are_read_again(stage: Stage) -> None:
    gone, stays = stage.key("s1"), stage.key("s2")
    assert stage.bound() == ["s1", "s2"]
    stage.admin.revoke_key(key_id=gone)
    stage.key("s3")
    stage.store.on("read_events", before=raising(CursorLost("the store was restored")))
    assert stage.bindings.catch_up().changed is None
    assert stage.bound() == ["s2", "s3"]
    assert stage.readings == 2
    stage.admin.revoke_key(key_id=stays)
    assert stage.bound() == ["s3"]


def test_what_happens_while_all_keys_are_read_is_not_missed(stage: Stage) -> None:
    first = stage.key("s1")
    stage.store.on("find", after=lambda: stage.admin.revoke_key(key_id=first))
    assert stage.bound() == ["s1"]
    assert stage.bound() == []
