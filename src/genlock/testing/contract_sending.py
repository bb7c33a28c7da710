"""Clauses about commits and loads in two steps. A store that has no such thing does them in one, and keeps all of these too."""

from __future__ import annotations

import gc
import threading

import pytest

from genlock.errors import Closed, GenlockError, OverLimit
from genlock.store import Asked, Change, Committed, Conflict, Key, Sent, Store, ask, send
from genlock.testing.concurrency import PATIENCE
from genlock.testing.contract_base import Another, ContractBase, commit
from genlock.testing.sample import facts_of, make_change, make_key, read_feed, read_record, recorded_of, stored_of


def _sent(store: Store, *changes: Change) -> Sent:
    """What was sent without a word, whatever is wrong with it."""
    try:
        return send(store, changes)
    except GenlockError as error:
        raise AssertionError(f"told before anybody asked: {error}") from error


def _asked(store: Store, *keys: Key) -> Asked:
    try:
        return ask(store, keys)
    except GenlockError as error:
        raise AssertionError(f"told before anybody asked: {error}") from error


class SendingClauses(ContractBase):
    """What is sent, and what is heard of it."""

    def test_what_was_sent_is_answered_change_by_change_whichever_thread_waits(self, store: Store) -> None:
        old = make_change(make_key("A-001"))
        commit(store, old)
        new, late = make_change(make_key("A-002"), events=2), make_change(old.key, mark="late")
        sent = send(store, [late, new])
        waiting = threading.Thread(target=sent.wait)
        waiting.start()
        waiting.join(PATIENCE)
        assert not waiting.is_alive(), "nothing is to be heard of a commit that was sent"
        assert [type(answer) for answer in sent.answers()] == [Conflict, Committed]
        assert store.load([old.key, new.key]).records == {change.key: stored_of(change) for change in (old, new)}
        assert facts_of(read_record(store, new.key)) == recorded_of([new])

    def test_a_commit_that_was_sent_need_not_be_waited_for(self, store: Store) -> None:
        change = make_change(make_key())
        assert [type(answer) for answer in send(store, [change]).answers()] == [Committed]
        assert facts_of(read_record(store, change.key)) == recorded_of([change])
        assert send(store, []).answers() == []

    def test_others_are_served_while_commits_are_under_way(self, store: Store) -> None:
        old, first, second, third = (make_change(make_key(f"A-{number:03}")) for number in range(4))
        commit(store, old)
        one, other = send(store, [first]), send(store, [second, make_change(old.key, mark="late")])
        assert old.key in store.load([old.key]).records
        commit(store, third)
        # In another order than they were sent in: each is answered for its own.
        assert [type(answer) for answer in other.answers()] == [Committed, Conflict]
        assert [type(answer) for answer in one.answers()] == [Committed]
        assert sorted(facts_of(read_feed(store))) == sorted(recorded_of([old, first, second, third]))

    def test_what_cannot_be_written_is_told_with_the_answers(self, store: Store, another: Another) -> None:
        large = make_change(make_key("A-002"), body=bytes(store.limits.body_bytes + 1))
        sent = _sent(store, make_change(make_key("A-001")), large)
        sent.wait()
        with pytest.raises(OverLimit):
            sent.answers()
        assert read_feed(store) == []
        closed = another()
        closed.close()
        late = _sent(closed, make_change(make_key("A-001")))
        late.wait()
        with pytest.raises(Closed):
            late.answers()
        assert read_feed(store) == []

    def test_an_answer_that_nobody_wants_to_hear_is_not_taken_for_anothers(self, store: Store) -> None:
        for number in range(6):
            old = make_change(make_key(f"A-{number:03}"))
            commit(store, old)
            unheard = send(store, [make_change(make_key(f"unheard-{number}"))])
            if number % 2:
                unheard.wait()
            del unheard
            gc.collect()
            if number % 3:
                assert store.load([old.key]).records[old.key].digest == old.digest
            late = make_change(old.key, mark="late")
            assert [type(answer) for answer in store.commit([late])] == [Conflict]

    def test_what_was_asked_for_is_loaded_while_others_are_served(self, store: Store, another: Another) -> None:
        old, other = make_change(make_key("A-001")), make_change(make_key("A-002"))
        commit(store, old, other)
        first, second = ask(store, [old.key, make_key("absent")]), ask(store, [other.key])
        third = make_change(make_key("A-003"))
        commit(store, third)
        assert store.load([third.key]).records == {third.key: stored_of(third)}
        # In another order than they were asked in: each is told its own.
        found, now, epoch = second.answers()
        assert (found, epoch) == ({other.key: stored_of(other)}, 0)
        assert first.answers().records == {old.key: stored_of(old)}
        assert abs((store.load([]).now - now).total_seconds()) < PATIENCE
        assert ask(store, []).answers().records == {}

    def test_what_was_asked_for_was_read_after_it_was_asked_for(self, store: Store) -> None:
        for number in range(5):
            change = make_change(make_key(f"A-{number:03}"))
            commit(store, change)
            asked = ask(store, [change.key])
            late = make_change(change.key, change, mark="later")
            commit(store, late)
            assert asked.answers().records.get(change.key) in (stored_of(change), stored_of(late))

    def test_what_cannot_be_read_is_told_with_the_answers(self, another: Another) -> None:
        closed = another()
        closed.close()
        asked = _asked(closed, make_key())
        with pytest.raises(Closed):
            asked.answers()

    def test_what_nobody_wants_to_hear_any_more_is_not_taken_for_anothers(self, store: Store) -> None:
        old, other = make_change(make_key("A-001")), make_change(make_key("A-002"))
        commit(store, old, other)
        for _ in range(4):
            unheard = ask(store, [old.key])
            del unheard
            gc.collect()
            assert store.load([other.key]).records == {other.key: stored_of(other)}
