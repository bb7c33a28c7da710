"""Keys and tenants, on every store: made, listed, rotated, revoked; another tenant's answer like
missing ones; no secret is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import genlock
from genlock.core import events as e
from genlock.core.codec import decode_event, decode_record
from genlock.core.key_roles import digest_of, parse_key
from genlock.core.keys import KEY, KINDS, NOWHERE, access_key
from genlock.core.model import KeyRecord
from genlock.core.reasons import KeyState
from genlock.core.records.api_key import opens
from genlock.core.results import NewKey
from genlock.engine.scan import pages_of, records_of
from genlock.errors import BadArgument, KeyNotFound, NotAllowed, OutcomeUnknown, TenantNotFound
from genlock.store import Store
from tests.engine.gated_store import PATIENCE, Home, later, raising, writing


def is_good(store: Store, text: str) -> bool:
    """Does this text open its key now?"""
    key = parse_key(text)
    found, _, now, _, _ = store.load([access_key(key.id)])
    stored = found.get(access_key(key.id))
    record = None if stored is None else decode_record(KEY, stored.body)
    return isinstance(record, KeyRecord) and opens(record, digest_of(key.secret), now)


def bytes_of(store: Store) -> Iterator[bytes]:
    """Everything that is kept beside the tenants."""
    for kind in KINDS:
        yield from (stored.body for stored in records_of(store, NOWHERE, NOWHERE, kind))
    for page in pages_of(store, (NOWHERE, NOWHERE)):
        yield from (recorded.body for recorded in page.events)


def test_a_key_is_made_listed_rotated_and_revoked(home: Home) -> None:
    fleet, store = home.connect(tenant_id="acme", user_id="root"), home.store()
    new = fleet.create_key(
        name="ci", role="agent", projects="team-*", session_id="s1", expires_in_seconds=3600
    )
    made = new.key
    assert (made.name, made.tenant_id, made.projects, made.role, made.session_id) == (
        "ci",
        "acme",
        "team-*",
        "agent",
        "s1",
    )
    assert (made.state, made.created_by, made.expires_at) == (
        "ACTIVE",
        "root",
        home.clock.now() + timedelta(hours=1),
    )
    assert fleet.list_keys() == (made,)
    assert is_good(store, new.text)
    home.clock.advance(10)
    rotated = fleet.rotate_key(key_id=made.key_id, overlap_seconds=30)
    assert rotated.key.key_id == made.key_id
    assert rotated.key.previous_until == home.clock.now() + timedelta(seconds=30)
    assert [is_good(store, text) for text in (new.text, rotated.text)] == [True, True]
    home.clock.advance(30)
    assert [is_good(store, text) for text in (new.text, rotated.text)] == [False, True]
    gone = fleet.revoke_key(key_id=made.key_id)
    assert (gone.state, gone.revoked_at) == ("REVOKED", home.clock.now())
    assert not is_good(store, rotated.text)
    assert fleet.list_keys() == ()
    assert fleet.list_keys(include_revoked=True) == (gone,)
    assert fleet.revoke_key(key_id=made.key_id) == gone
    with pytest.raises(NotAllowed, match="is revoked; create another one"):
        fleet.rotate_key(key_id=made.key_id)


def test_nothing_that_is_kept_has_a_secret_in_it(home: Home) -> None:
    fleet, store = home.connect(), home.store()
    first = fleet.create_key(name="ci", role="operator")
    second = fleet.rotate_key(key_id=first.key.key_id, overlap_seconds=60)
    fleet.revoke_key(key_id=first.key.key_id)
    kept = b"\n".join(bytes_of(store))
    for new in (first, second):
        secret = parse_key(new.text).secret
        assert secret.encode() not in kept
        assert digest_of(secret).encode() in kept
        assert secret not in repr(new) + repr(new.__rich_repr__())


def test_what_happened_to_a_key_is_in_its_events_with_who_did_it(home: Home) -> None:
    fleet, store = home.connect(user_id="root"), home.store()
    key = fleet.create_key(name="ci", role="observer").key.key_id
    fleet.rotate_key(key_id=key)
    fleet.revoke_key(key_id=key)
    events = [
        decode_event(recorded.body).event
        for page in pages_of(store, (NOWHERE, NOWHERE))
        for recorded in page.events
    ]
    assert [type(event) for event in events] == [e.KeyCreated, e.KeyRotated, e.KeyRevoked]
    assert {event.actor.user_id for event in events} == {"root"}


def test_another_tenants_key_answers_exactly_like_a_missing_one(home: Home) -> None:
    acme, globex = (home.connect(tenant_id=tenant) for tenant in ("acme", "globex"))
    key, missing = acme.create_key(name="ci", role="agent").key.key_id, "a" * 12
    assert globex.list_keys() == ()
    for act in (globex.rotate_key, globex.revoke_key):
        messages = []
        for id in (key, missing):
            with pytest.raises(KeyNotFound) as refused:
                act(key_id=id)
            messages.append(str(refused.value).replace(id, "KEY"))
        assert messages[0] == messages[1]
    assert acme.list_keys()[0].state is KeyState.ACTIVE


def test_whoever_asks_for_all_tenants_sees_them_all_the_oldest_first(home: Home) -> None:
    acme, globex = (home.connect(tenant_id=tenant) for tenant in ("acme", "globex"))
    made: list[NewKey] = []
    for name, role, tenant in (
        ("1", "agent", "acme"),
        ("2", "admin", "globex"),
        ("3", "admin", "*"),
    ):
        made.append(acme.create_key(name=name, role=role, tenant_id=tenant))
        home.clock.advance(1)
    assert [key.name for key in globex.list_keys(tenant_id="*")] == ["1", "2", "3"]
    assert [key.name for key in acme.list_keys()] == ["1"]
    with pytest.raises(KeyNotFound, match="of tenant 'acme'"):
        acme.revoke_key(key_id=made[2].key.key_id)
    assert acme.revoke_key(key_id=made[1].key.key_id, tenant_id="*").state is KeyState.REVOKED


def test_a_key_expires_by_the_clock_of_the_store_and_a_rotation_may_give_it_more_time(
    home: Home,
) -> None:
    fleet, store = home.connect(), home.store()
    new = fleet.create_key(
        name="ci", role="agent", expires_at=home.clock.now() + timedelta(seconds=60)
    )
    home.clock.advance(60)
    assert not is_good(store, new.text)
    assert fleet.list_keys()[0].state is KeyState.EXPIRED
    with pytest.raises(NotAllowed, match="has expired; say how long"):
        fleet.rotate_key(key_id=new.key.key_id)
    assert is_good(store, fleet.rotate_key(key_id=new.key.key_id, expires_in_seconds=1).text)


class Meanwhile:
    """A key whose rotation has been decided and stands before its commit, while somebody else may
    act."""

    def __init__(self, home: Home) -> None:
        gated = home.gated()
        slow, self.other = home.connect(gated), home.connect()
        self.key = slow.create_key(name="ci", role="agent")
        self._stop = home.stop()
        gated.on("commit", when=writing(e.KeyRotated), before=self._stop)
        self._rotation = later(
            lambda: slow.rotate_key(key_id=self.key.key.key_id, overlap_seconds=60)
        )
        self._stop.wait()

    def go_on(self) -> NewKey:
        """The rotation reaches its commit; what came of it."""
        self._stop.open()
        return self._rotation.result(PATIENCE)


def test_two_rotations_at_once_are_done_one_after_the_other_and_the_last_one_counts(
    home: Home,
) -> None:
    meanwhile = Meanwhile(home)
    second = meanwhile.other.rotate_key(key_id=meanwhile.key.key.key_id)
    third = meanwhile.go_on()
    # The one that conflicted was decided again, on the secret that the other had given.
    assert [is_good(home.store(), new.text) for new in (meanwhile.key, second, third)] == [
        False,
        True,
        True,
    ]


def test_a_revocation_that_meets_a_rotation_wins(home: Home) -> None:
    meanwhile = Meanwhile(home)
    meanwhile.other.revoke_key(key_id=meanwhile.key.key.key_id)
    with pytest.raises(NotAllowed, match="is revoked"):
        meanwhile.go_on()


def test_a_key_whose_commit_was_broken_off_is_made_once_and_is_good(home: Home) -> None:
    gated = home.gated()
    fleet = home.connect(gated)
    gated.on(
        "commit", when=writing(e.KeyCreated), after=raising(OutcomeUnknown("the connection broke"))
    )
    new = fleet.create_key(name="ci", role="agent")
    gated.on(
        "commit", when=writing(e.KeyRotated), after=raising(OutcomeUnknown("the connection broke"))
    )
    rotated = fleet.rotate_key(key_id=new.key.key_id, overlap_seconds=60)
    assert [key.key_id for key in fleet.list_keys()] == [new.key.key_id]
    assert [is_good(home.store(), each.text) for each in (new, rotated)] == [True, True]


def test_keys_and_tenants_in_an_event_loop(home: Home) -> None:
    async def scenario() -> None:
        fleet = home.connect_async(tenant_id="acme")
        new = await fleet.create_key(name="ci", role="agent")
        assert await fleet.list_keys() == (new.key,)
        rotated = await fleet.rotate_key(key_id=new.key.key_id)
        assert (await fleet.revoke_key(key_id=rotated.key.key_id)).state is KeyState.REVOKED
        assert await fleet.list_tenants() == ()
        made = await fleet.set_tenant(profile="default")
        assert await fleet.get_tenant() == made
        await fleet.close()

    asyncio.run(scenario())


# Tenants


def test_a_tenant_is_made_ahead_of_its_projects_and_its_limits_count(home: Home) -> None:
    fleet = home.connect(session_id="s1", agent_id="alice")
    assert fleet.list_tenants() == ()
    made = fleet.set_tenant(
        tenant_id="acme", profile="default", limits={"max_concurrent_claims": 1}
    )
    assert (
        made.tenant_id,
        made.profile,
        made.limits["max_concurrent_claims"],
        made.limits["max_active_sessions"],
    ) == (
        "acme",
        "default",
        1,
        50,
    )
    assert fleet.list_tenants() == (made,)
    acme = home.connect(tenant_id="acme", session_id="s1", agent_id="alice")
    acme.add_tasks(tasks=["A", "B"])
    assert acme.claim_task(task_id="A").success
    assert acme.claim_task(task_id="B").limit == "max_concurrent_claims"
    changed = fleet.set_tenant(tenant_id="acme", limits={"max_concurrent_claims": None})
    assert (changed.profile, changed.limits["max_concurrent_claims"]) == ("default", None)
    assert fleet.get_tenant(tenant_id="acme") == changed


def test_a_tenant_that_nobody_has_made_is_not_found_and_wrong_limits_make_none(home: Home) -> None:
    fleet = home.connect()
    with pytest.raises(TenantNotFound, match="there is no tenant 'acme'"):
        fleet.get_tenant(tenant_id="acme")
    wrong: list[dict[str, Any]] = [
        {"profile": "huge"},
        {"limits": {"max_colours": 1}},
        {"limits": {"max_active_sessions": -1}},
    ]
    for arguments in wrong:
        with pytest.raises(BadArgument):
            fleet.set_tenant(tenant_id="acme", **arguments)
    assert fleet.list_tenants() == ()


def test_the_messages_of_refusals_say_what_to_type(home: Home) -> None:
    fleet: genlock.Coordinator = home.connect()
    with pytest.raises(BadArgument, match="there are: observer, agent, operator, admin"):
        fleet.create_key(name="ci", role="boss")
    with pytest.raises(BadArgument, match="say one of them"):
        fleet.create_key(
            name="ci", role="agent", expires_in_seconds=1, expires_at="2030-01-01T00:00:00Z"
        )
    with pytest.raises(BadArgument, match="has passed; it is 2026-01-04T06:00:00Z now"):
        fleet.create_key(name="ci", role="agent", expires_at="2020-01-01T00:00:00Z")
    with pytest.raises(KeyNotFound, match="the list of keys has those there are"):
        fleet.revoke_key(key_id="a" * 12)
    assert fleet.list_keys(include_revoked=True, tenant_id="*") == ()
