"""Clauses about finding records by their index fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from genlock.errors import BadArgument
from genlock.store import MAX_DUE, MOST_WAITED_ON, Change, Index, Key, Query, Store, Stored
from genlock.testing.contract_base import ContractBase, commit
from genlock.testing.sample import keys_of, make_change, make_key

APOLLO = Query("acme", "apollo")


def put(store: Store, key: Key, index: Index) -> Change:
    """Writes a new record with this index."""
    change = make_change(key, index=index)
    commit(store, change)
    return change


def put_all(store: Store, indexes: dict[str, Index]) -> dict[str, Change]:
    """Writes new records of the usual project in one commit."""
    changes = {id: make_change(make_key(id), index=index) for id, index in indexes.items()}
    commit(store, *changes.values())
    return changes


def move(store: Store, change: Change, index: Index) -> Change:
    """Writes the record again with another index."""
    moved = make_change(change.key, change, index=index)
    commit(store, moved)
    return moved


def ids(store: Store, query: Query) -> list[str]:
    """The ids on one page."""
    return [key.id for key in keys_of(store.find(query))]


def pages(
    store: Store, query: Query, between: Callable[[int], None] = lambda number: None
) -> list[list[Stored]]:
    """Reads all pages of a query. `between` is called after each with its number."""
    found: list[list[Stored]] = []
    for number in range(1000):
        page = store.find(query)
        assert len(page.records) <= query.limit, (
            f"a page of {query.limit} has {len(page.records)} records"
        )
        found.append(list(page.records))
        if page.next is None:
            return found
        between(number)
        query = replace(query, after=page.next)
    raise AssertionError("the pages never end")


def paged(store: Store, query: Query) -> list[str]:
    """The ids on all pages."""
    return [record.key.id for page in pages(store, query) for record in page]


class FindClauses(ContractBase):
    """Each index field by itself, together with paging."""

    def test_found_records_are_whole(self, store: Store) -> None:
        change = put(
            store,
            make_key(),
            Index(
                state="PENDING",
                pool="p",
                order="7",
                due_at=5,
                session="s",
                parent="t",
                waits_on=("d",),
            ),
        )
        for query in (
            APOLLO,
            Query("acme"),
            replace(APOLLO, pool="p"),
            replace(APOLLO, heads=1),
            replace(APOLLO, due_before=5),
            replace(APOLLO, session="s"),
            replace(APOLLO, parent="t"),
            replace(APOLLO, waits_on=("d",)),
        ):
            (found,) = store.find(query).records
            assert found[:4] == (change.key, change.version, change.digest, change.body), (
                f"by {query}"
            )
        for query in (replace(APOLLO, pool="p"), replace(APOLLO, heads=1)):
            (found,) = store.find(query).records
            assert (found.pool, found.order) == ("p", "7")

    def test_load_answers_each_query_as_find_does_in_their_order(self, store: Store) -> None:
        changes = put_all(
            store,
            {
                f"A-{n}": Index(state="PENDING", pool="p", order=str(n), due_at=n, session="s")
                for n in range(1, 6)
            },
        )
        keys = [make_key("A-4"), make_key("nowhere"), make_key("A-2")]
        queries = [
            replace(APOLLO, heads=2),
            replace(APOLLO, due_before=MAX_DUE, limit=1),
            replace(APOLLO, parent="nobody's"),
            replace(APOLLO, session="s", limit=3),
            Query("acme"),
        ]
        snapshot = store.load(keys, queries)
        pages = snapshot.pages
        assert dict(snapshot.records) == dict(store.load(keys).records)
        assert snapshot.records[keys[0]].body == changes["A-4"].body
        assert snapshot.epoch == 0
        assert [(list(page.records), page.next) for page in pages] == [
            (list(page.records), page.next) for page in map(store.find, queries)
        ]
        assert [len(page.records) for page in pages] == [2, 1, 0, 3, 5]

    def test_load_refuses_a_query_that_cannot_be_meant_and_answers_the_next_one(
        self, store: Store
    ) -> None:
        change = put(store, make_key(), Index(state="PENDING"))
        with pytest.raises(BadArgument):
            store.load([change.key], [APOLLO, replace(APOLLO, limit=0)])
        snapshot = store.load([change.key], [APOLLO])
        (page,) = snapshot.pages
        assert list(snapshot.records) == keys_of(page) == [change.key]

    def test_what_is_not_there_is_an_empty_last_page(self, store: Store) -> None:
        put(store, make_key(), Index(state="PENDING"))
        for query in (
            Query("nobody"),
            Query("acme", "nothing"),
            replace(APOLLO, kind="session"),
            replace(APOLLO, state="BLOCKED"),
            replace(APOLLO, pool="p"),
            replace(APOLLO, heads=3),
            replace(APOLLO, due_before=MAX_DUE),
            replace(APOLLO, session="s"),
            replace(APOLLO, parent="t"),
            replace(APOLLO, waits_on=("d",)),
        ):
            page = store.find(query)
            assert (list(page.records), page.next) == ([], None), f"by {query}"

    def test_all_records_of_a_project_come_by_id_with_stable_pages(self, store: Store) -> None:
        names = [f"{letter}-{number}" for number in range(5) for letter in "Bac"] + [
            "é",
            "z",
            "Z",
            "~",
        ]
        put_all(store, dict.fromkeys(names, Index(state="PENDING")))
        put(store, make_key("A-other", project="gemini"), Index())
        for limit in (1, 3, 19, 20, 1000):
            assert paged(store, replace(APOLLO, limit=limit)) == sorted(names)

    def test_all_records_of_a_tenant_come_by_project_and_id(self, store: Store) -> None:
        keys = [
            make_key(id, project=project)
            for id in ("b", "a", "c")
            for project in ("p", "o", "p2", "P")
        ]
        commit(store, *(make_change(key) for key in keys))
        put(store, make_key("a", tenant="acme2", project="p"), Index())
        for limit in (1, 4, 100):
            found = pages(store, Query("acme", limit=limit))
            assert [record.key for page in found for record in page] == sorted(keys)

    def test_state_narrows_every_query(self, store: Store) -> None:
        for id, state in (
            ("a", "PENDING"),
            ("b", "BLOCKED"),
            ("c", "PENDING"),
            ("d", "BLOCKED"),
            ("e", "HELD"),
        ):
            put(
                store,
                make_key(id),
                Index(
                    state=state,
                    pool="p",
                    order=id,
                    due_at=1,
                    session="s",
                    parent="t",
                    waits_on=("d",),
                ),
            )
        for query in (
            APOLLO,
            Query("acme"),
            Query("acme", session="s"),
            replace(APOLLO, pool="p"),
            replace(APOLLO, due_before=1),
            replace(APOLLO, session="s"),
            replace(APOLLO, parent="t"),
            replace(APOLLO, waits_on=("d",)),
        ):
            for state, expected in (
                ("PENDING", ["a", "c"]),
                ("BLOCKED", ["b", "d"]),
                ("HELD", ["e"]),
                ("DONE", []),
            ):
                assert ids(store, replace(query, state=state)) == expected, f"{state} by {query}"
                assert paged(store, replace(query, state=state, limit=1)) == expected, (
                    f"{state} by {query}, page by page"
                )

    def test_a_pool_comes_in_its_order_as_bytes(self, store: Store) -> None:
        orders = [
            "",
            "0",
            "00",
            "1",
            "10",
            "2",
            "9",
            "A",
            "B",
            "Z",
            "_",
            "a",
            "aa",
            "b",
            "~",
            " ",
            "-",
            "a-b",
            "a_b",
            "ab",
        ]
        put_all(
            store,
            {
                f"{len(orders) - at:02}": Index(pool="p", order=order)
                for at, order in enumerate(orders)
            },
        )
        put(store, make_key("other"), Index(pool="p2", order="0"))
        for limit in (1, 7, 100):
            found = pages(store, replace(APOLLO, pool="p", limit=limit))
            assert [record.order for page in found for record in page] == sorted(orders)

    def test_equal_orders_are_all_found(self, store: Store) -> None:
        names = [f"A-{number:03}" for number in range(10)]
        put_all(store, {id: Index(pool="p", order="same", due_at=7) for id in names})
        for limit in (1, 3, 10):
            assert sorted(paged(store, replace(APOLLO, pool="p", limit=limit))) == names
            assert sorted(paged(store, replace(APOLLO, due_before=7, limit=limit))) == names

    def test_records_without_order_come_first_in_their_pool(self, store: Store) -> None:
        without = ["c", "a", "z", "b"]
        orders = {"late": "1", **dict.fromkeys(without, None), "early": "", "middle": "0"}
        for id, order in orders.items():
            put(store, make_key(id), Index(pool="p", order=order))
        for limit in (1, 3, 4, 100):
            found = paged(store, replace(APOLLO, pool="p", limit=limit))
            assert (sorted(found[:4]), found[4:]) == (
                sorted(without),
                ["early", "middle", "late"],
            ), f"in pages of {limit}"
        assert set(ids(store, replace(APOLLO, heads=4))) == set(without)

    def test_pools_belong_to_their_project_and_kind(self, store: Store) -> None:
        put(store, make_key("mine"), Index(pool="p", order="2"))
        put(store, make_key("theirs", project="gemini"), Index(pool="p", order="1"))
        put(store, make_key("another", kind="other"), Index(pool="p", order="1"))
        put(store, make_key("a third", tenant="acme2"), Index(pool="p", order="1"))
        assert ids(store, replace(APOLLO, pool="p")) == ["mine"]
        assert ids(store, replace(APOLLO, heads=5)) == ["mine"]

    def test_heads_are_the_first_of_every_pool_in_order(self, store: Store) -> None:
        indexes = {
            f"{pool}{order}": Index(pool=pool, order=str(order))
            for pool in ("x", "y", "Y", "z%")
            for order in (5, 3, 4, 1, 2)
        }
        put_all(
            store,
            indexes | {"w9": Index(pool="w", order="9"), "none": Index(state="BLOCKED", order="0")},
        )
        for count in (1, 2, 4, 5, 64):
            page = store.find(replace(APOLLO, heads=count))
            assert page.next is None
            by_pool: dict[str | None, list[str | None]] = {}
            for record in page.records:
                by_pool.setdefault(record.pool, []).append(record.order)
            full = ["1", "2", "3", "4", "5"][:count]
            assert by_pool == {"x": full, "y": full, "Y": full, "z%": full, "w": ["9"]}

    def test_a_pool_that_is_named_after_its_kind_is_found_by_that_kind_alone(
        self, store: Store
    ) -> None:
        """So a store may skip the pool when it returns the heads of another kind."""
        put(store, make_key("mine"), Index(pool="p", order="2"))
        put(store, make_key("tilde"), Index(pool="~", order="3"))
        put(store, make_key("own"), Index(pool="~task", order="4"))
        for n in range(3):
            put(store, make_key(f"f{n}", kind="feature"), Index(pool="~feature", order=str(n)))
        features = replace(APOLLO, kind="feature")
        assert ids(store, replace(APOLLO, heads=5)) == ["mine", "tilde", "own"]
        assert ids(store, replace(features, heads=2)) == ["f0", "f1"]
        assert paged(store, replace(features, pool="~feature", limit=2)) == ["f0", "f1", "f2"]

    def test_heads_follow_every_change_of_a_pool(self, store: Store) -> None:
        first = put(store, make_key("a"), Index(pool="p", order="1"))
        second = put(store, make_key("b"), Index(pool="p", order="2"))
        one = replace(APOLLO, heads=1)
        assert ids(store, one) == ["a"]
        first = move(store, first, Index(pool="q", order="1"))
        assert sorted(ids(store, one)) == ["a", "b"]
        first = move(store, first, Index(state="IN_PROGRESS"))
        assert ids(store, one) == ["b"]
        move(store, second, Index(state="IN_PROGRESS"))
        assert ids(store, one) == []
        move(store, first, Index(pool="p", order="0"))
        assert ids(store, one) == ["a"]

    def test_due_records_come_in_order_of_time_and_the_instant_is_included(
        self, store: Store
    ) -> None:
        due = {"f": 50, "e": 10, "d": 30, "c": 20, "b": 40, "a": MAX_DUE, "old": -5, "zero": 0}
        put_all(
            store,
            {id: Index(due_at=at) for id, at in due.items()} | {"never": Index(state="PENDING")},
        )
        put(store, make_key("other", project="gemini"), Index(due_at=1))
        for before in (-6, -5, 0, 9, 10, 11, 39, 40, 41, 1000, MAX_DUE):
            expected = sorted((id for id, at in due.items() if at <= before), key=due.__getitem__)
            for limit in (1, 3, 100):
                assert paged(store, replace(APOLLO, due_before=before, limit=limit)) == expected
        assert ids(store, replace(APOLLO, due_before=MAX_DUE, limit=1)) == ["old"]

    def test_due_times_have_microseconds(self, store: Store) -> None:
        instant = 1_763_000_000_123_456
        put_all(
            store,
            {
                "a": Index(due_at=instant),
                "b": Index(due_at=instant + 1),
                "c": Index(due_at=instant - 1),
            },
        )
        assert ids(store, replace(APOLLO, due_before=instant)) == ["c", "a"]

    def test_a_session_is_found_throughout_its_tenant(self, store: Store) -> None:
        keys = [
            make_key(id, project=project) for project in ("p", "o", "q") for id in ("b", "a", "c")
        ]
        commit(store, *(make_change(key, index=Index(session="s1")) for key in keys))
        put(store, make_key("other session", project="p"), Index(session="s2"))
        put(store, make_key("other tenant", tenant="acme2", project="p"), Index(session="s1"))
        put(store, make_key("other kind", kind="session", project="p"), Index(session="s1"))
        for limit in (1, 4, 100):
            found = pages(store, Query("acme", session="s1", limit=limit))
            assert [record.key for page in found for record in page] == sorted(keys)
        assert keys_of(store.find(Query("acme", "p", session="s1"))) == [
            make_key(id, project="p") for id in "abc"
        ]

    def test_children_are_found_by_their_parent(self, store: Store) -> None:
        put_all(
            store,
            {
                "A-1.2": Index(parent="A-1"),
                "A-1.1": Index(parent="A-1"),
                "A-1.1.1": Index(parent="A-1.1"),
                "A-1": Index(),
            },
        )
        put(store, make_key("A-1.3", project="gemini"), Index(parent="A-1"))
        assert paged(store, replace(APOLLO, parent="A-1", limit=1)) == ["A-1.1", "A-1.2"]
        assert ids(store, replace(APOLLO, parent="A-1.1")) == ["A-1.1.1"]

    def test_who_waits_on_a_record_is_found_exactly_and_at_once(self, store: Store) -> None:
        change = put(store, make_key("x"), Index(waits_on=("a", "b", "c")))
        put(store, make_key("y"), Index(waits_on=("b",)))
        put(store, make_key("z", project="gemini"), Index(waits_on=("b",)))
        put(store, make_key("other", kind="other"), Index(waits_on=("b",)))

        def waiting() -> list[list[str]]:
            return [ids(store, replace(APOLLO, waits_on=(id,))) for id in "abcd"]

        assert waiting() == [["x"], ["x", "y"], ["x"], []]
        for left, expected in (
            (("b", "c"), [[], ["x", "y"], ["x"], []]),
            (("c", "d"), [[], ["y"], ["x"], ["x"]]),
            ((), [[], ["y"], [], []]),
            (("d", "a"), [["x"], ["y"], [], ["x"]]),
        ):
            change = move(store, change, Index(waits_on=left))
            assert waiting() == expected

    def test_who_waits_on_one_twice_is_found_once_and_no_longer_when_he_does_not(
        self, store: Store
    ) -> None:
        change = put(store, make_key("x"), Index(waits_on=("a", "b", "a")))
        for waits_on in (("a", "b", "a"), ("b", "c", "c", "b"), ("c", "c"), ()):
            change = move(store, change, Index(waits_on=waits_on))
            for name in "abc":
                asked = replace(APOLLO, waits_on=(name,))
                assert ids(store, asked) == (["x"] if name in waits_on else [])
                assert store.find(asked, count_by="project").counts == (
                    {"apollo": 1} if name in waits_on else {}
                )

    def test_many_who_wait_on_one_and_one_who_waits_on_many(self, store: Store) -> None:
        names = [f"A-{number:03}" for number in range(50)]
        put_all(
            store,
            {id: Index(waits_on=("hub",)) for id in names} | {"all": Index(waits_on=tuple(names))},
        )
        assert paged(store, replace(APOLLO, waits_on=("hub",), limit=7)) == names
        assert all(ids(store, replace(APOLLO, waits_on=(id,))) == ["all"] for id in names)

    def test_who_waits_on_any_of_several_is_found_once(self, store: Store) -> None:
        put_all(
            store,
            {
                "x": Index(waits_on=("a", "b", "c")),
                "y": Index(waits_on=("b",)),
                "z": Index(waits_on=("d",)),
                "w": Index(),
            },
        )
        put(store, make_key("far", project="gemini"), Index(waits_on=("a", "d")))
        for limit in (1, 2, 100):
            assert paged(
                store, replace(APOLLO, waits_on=("c", "b", "b", "nobody"), limit=limit)
            ) == ["x", "y"]
            assert paged(store, replace(APOLLO, waits_on=("d", "a"), limit=limit)) == ["x", "z"]
        assert store.find(replace(APOLLO, waits_on=("a", "b", "d")), count_by="project").counts == {
            "apollo": 3
        }
        many = tuple(f"n{number}" for number in range(MOST_WAITED_ON - 1))
        assert ids(store, replace(APOLLO, waits_on=(*many, "d"))) == ["z"]
        with pytest.raises(BadArgument):
            store.find(replace(APOLLO, waits_on=(*many, "d", "a")))

    def test_a_record_leaves_an_index_when_its_field_is_none(self, store: Store) -> None:
        full = Index(
            state="PENDING", pool="p", order="1", due_at=1, session="s", parent="t", waits_on=("d",)
        )
        queries = (
            replace(APOLLO, pool="p"),
            replace(APOLLO, heads=1),
            replace(APOLLO, due_before=MAX_DUE),
            replace(APOLLO, session="s"),
            Query("acme", session="s"),
            replace(APOLLO, parent="t"),
            replace(APOLLO, waits_on=("d",)),
        )
        change = put(store, make_key("a"), full)
        for index in (Index(state="COMPLETED"), full, Index(state="COMPLETED", order="1")):
            assert [ids(store, query) for query in queries] == (
                [["a"]] * 7 if change.index.pool else [[]] * 7
            )
            change = move(store, change, index)
        assert [ids(store, query) for query in queries] == [[]] * 7
        assert ids(store, replace(APOLLO, state="COMPLETED")) == ["a"]
