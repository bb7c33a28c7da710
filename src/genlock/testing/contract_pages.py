"""Clauses about pages and counts of a query, and about queries that are refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from genlock.errors import BadArgument
from genlock.store import MAX_DUE, Change, Index, Query, Store
from genlock.testing.contract_base import ContractBase, commit
from genlock.testing.contract_find import APOLLO, move, pages, put, put_all
from genlock.testing.sample import make_change, make_key


class PageClauses(ContractBase):
    """Pages, counts, and queries that are refused."""

    def test_pages_skip_and_double_nothing_that_stays_while_others_come_and_go(
        self, store: Store
    ) -> None:
        def index(number: int) -> Index:
            return Index(
                state="S",
                pool="p",
                order=f"{number:03}",
                due_at=number,
                session="s",
                parent="t",
                waits_on=("d",),
            )

        for at, query in enumerate(
            (
                Query("acme", "apollo"),
                Query("acme"),
                replace(APOLLO, state="S"),
                replace(APOLLO, pool="p"),
                replace(APOLLO, due_before=MAX_DUE),
                replace(APOLLO, session="s"),
                Query("acme", session="s"),
                replace(APOLLO, parent="t"),
                replace(APOLLO, waits_on=("d",)),
            )
        ):
            kind = f"kind{at}"
            kept = {
                number: make_change(make_key(f"{number:03}", kind=kind), index=index(number))
                for number in range(0, 120, 4)
            }
            commit(store, *kept.values())
            staying = {number for number in kept if number % 20 != 16}

            def shuffle(page: int, kept: dict[int, Change] = kept, kind: str = kind) -> None:
                """Removes the page's last record and a later one, adds new ones before and after,
                and changes one that stays."""
                last = page * 20 + 16
                for gone in (last, last + 20):
                    if gone in kept and kept[gone].index.pool:
                        kept[gone] = move(store, kept[gone], Index())
                for new in (last - 1, last + 1, last + 2):
                    put(store, make_key(f"{new:03}", kind=kind), index(new))
                if last + 4 in kept:
                    kept[last + 4] = move(store, kept[last + 4], index(last + 4))

            found = [
                record.key.id
                for page in pages(store, replace(query, kind=kind, limit=5), shuffle)
                for record in page
            ]
            assert sorted(set(found)) == sorted(found), f"doubled by {query}"
            assert not {f"{number:03}" for number in staying} - set(found), f"skipped by {query}"

    def test_counts_are_by_the_value_of_a_field(self, store: Store) -> None:
        rows = [
            ("apollo", "PENDING", "p", None),
            ("apollo", "PENDING", "p", None),
            ("apollo", "PENDING", "q", None),
            ("apollo", "IN_PROGRESS", None, "s1"),
            ("apollo", "IN_PROGRESS", None, "s2"),
            ("gemini", "IN_PROGRESS", None, "s1"),
            ("gemini", "COMPLETED", None, None),
        ]
        for number, (project, state, pool, session) in enumerate(rows):
            put(
                store,
                make_key(f"A-{number}", project=project),
                Index(state=state, pool=pool, order=pool and "1", session=session),
            )
        put(store, make_key("s1", kind="session"), Index(state="ACTIVE", session="s1"))
        put(
            store,
            make_key("A-1", tenant="acme2"),
            Index(state="PENDING", pool="p", order="1", session="s1"),
        )
        everything = Query("acme")
        assert store.find(APOLLO, count_by="state").counts == {"PENDING": 3, "IN_PROGRESS": 2}
        assert store.find(everything, count_by="state").counts == {
            "PENDING": 3,
            "IN_PROGRESS": 3,
            "COMPLETED": 1,
        }
        assert store.find(APOLLO, count_by="pool").counts == {"p": 2, "q": 1}
        assert store.find(APOLLO, count_by="session").counts == {"s1": 1, "s2": 1}
        assert store.find(everything, count_by="session").counts == {"s1": 2, "s2": 1}
        assert store.find(everything, count_by="project").counts == {"apollo": 5, "gemini": 2}
        assert store.find(replace(everything, state="IN_PROGRESS"), count_by="project").counts == {
            "apollo": 2,
            "gemini": 1,
        }
        assert store.find(replace(everything, session="s1"), count_by="state").counts == {
            "IN_PROGRESS": 2
        }
        assert store.find(Query("nobody"), count_by="state").counts == {}

    def test_counts_do_not_end_at_a_page(self, store: Store) -> None:
        put_all(
            store,
            {
                f"A-{number:03}": Index(state="PENDING" if number % 3 else "BLOCKED")
                for number in range(150)
            },
        )
        assert store.find(replace(APOLLO, limit=1), count_by="state").counts == {
            "PENDING": 100,
            "BLOCKED": 50,
        }

    def test_counts_follow_every_change(self, store: Store) -> None:
        change = put(store, make_key(), Index(state="PENDING", pool="p", order="1"))
        move(store, change, Index(state="IN_PROGRESS", session="s"))
        assert store.find(APOLLO, count_by="state").counts == {"IN_PROGRESS": 1}
        assert store.find(APOLLO, count_by="pool").counts == {}
        assert store.find(APOLLO, count_by="session").counts == {"s": 1}

    def test_a_query_that_cannot_be_meant_is_refused(self, store: Store) -> None:
        put(store, make_key(), Index(pool="p", order="1", session="s", parent="t"))
        for query in (
            replace(APOLLO, pool="p", session="s"),
            replace(APOLLO, heads=1, parent="t"),
            replace(APOLLO, due_before=1, waits_on=("d",)),
            Query("acme", pool="p"),
            Query("acme", heads=1),
            Query("acme", due_before=1),
            Query("acme", parent="t"),
            Query("acme", waits_on=("d",)),
        ):
            with pytest.raises(BadArgument):
                store.find(query)
        with pytest.raises(BadArgument):
            store.find(APOLLO, count_by="color")

    def test_what_is_no_pages_end_is_refused(self, store: Store) -> None:
        put_all(
            store,
            {
                id: Index(
                    state="PENDING",
                    pool="p",
                    order=id,
                    due_at=1,
                    session="s",
                    parent="t",
                    waits_on=("d",),
                )
                for id in "abc"
            },
        )
        queries = (
            APOLLO,
            Query("acme"),
            replace(APOLLO, pool="p"),
            replace(APOLLO, due_before=1),
            replace(APOLLO, session="s"),
            replace(APOLLO, parent="t"),
            replace(APOLLO, waits_on=("d",)),
        )
        ends = [store.find(replace(query, limit=1)).next for query in queries]
        for query in queries:
            for text in ("garbage", "ä", "0", "x" * 10_000):
                with pytest.raises(BadArgument):
                    store.find(replace(query, after=text))
            for end in ends:
                with suppress(
                    BadArgument
                    # The token of another query may happen to be valid; either result is fine: an
                    # answer or one of our errors
                ):
                    store.find(replace(query, after=end))
