"""The keeper renews the claims of this process, and reports when one is lost.

    keeper = Keeper(fleet)
    asked = schedule.now()
    answer = fleet.claim_task(task_id="A-001")
    kept = keeper.add(answer.claim, asked=asked)       # kept.lost, kept.check()
    …
    keeper.remove(kept)                                # submitted or released
    keeper.close(release=True, within=0.25)            # the process ends

It has two threads. The *keeper* only watches the clock. It hands due renewals to the *sender*, and
declares a claim lost when its time is up, even while the sender still waits for an answer. The
sender renews all claims of a session in one round trip.

Its safeguards:

- Any exception of a renewal is a failed attempt, and never ends the thread.
- It cannot deadlock with its caller's locks: `on_lost` is called in a thread of its own, and no
  callback and no call of the fleet happens under the keeper's lock.
- It ends with its owner. The threads are daemons, a dropped `KeptClaim` is not renewed, and the
  threads end when there are no claims. They start again with the next claim, also in a forked
  child, which has its own claims and not its parent's.
- A submission may overtake a renewal. Then the renewal is refused, which does not count as a loss.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Protocol

from genlock.core.reasons import RenewReason
from genlock.core.results import ReleaseResult, RenewalResult, TaskClaim
from genlock.errors import Closed, GenlockError, TaskNotFound
from genlock.threads import started
from genlock.worker import schedule
from genlock.worker.kept_claim import KeptClaim, Loss

LONGEST_SLEEP_SECONDS: Final = 1.0
"""Waits in Python do not count the time during which a machine sleeps. So every wait is short."""
_IDLE_SECONDS: Final = 5.0
"""After this long without a claim the threads end."""
_SOON_SHARE: Final = 0.15
"""A renewal includes the session's other claims that have used this share of their lease."""
_SLOW_ANSWER_SHARE: Final = 0.1
"""If the answer to a claim took longer than this share of the lease, for instance because it waited
for a task, the claim is renewed before it is handed out: it is unknown when the lease began."""

_TAKEN: Final = frozenset(
    {RenewReason.GENERATION_MISMATCH, RenewReason.NO_CLAIM, RenewReason.SESSION_MISMATCH}
)

Answer = RenewalResult | GenlockError


class Fleet(Protocol):
    """The operations that a keeper calls: of a coordinator, or the client of a service."""

    def renew_lease(
        self,
        *,
        task_id: str,
        generation: int | None = None,
        session_id: str | None = None,
        lease_duration_seconds: float | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> RenewalResult: ...

    def batch_renew(
        self,
        *,
        generations: Mapping[str, int],
        session_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Mapping[str, Answer]: ...

    def release_claim(
        self,
        *,
        task_id: str,
        generation: int | None = None,
        session_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> ReleaseResult: ...


class Keeper:
    """Renews any number of claims, of one session or of several."""

    _kind = KeptClaim

    def __init__(self, fleet: Fleet, *, random: Random | None = None) -> None:
        self._fleet = fleet
        self._random = random or Random()
        self._begin()

    def _begin(self) -> None:
        """Sets up the state of a new process, without its parent's claims, threads and locks."""
        self._changed = threading.Condition(threading.RLock())
        self._claims: list[KeptClaim] = []
        self._batch: list[KeptClaim] = []
        """The claims that the sender is to renew, or is renewing."""
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._pid = os.getpid()

    def _lock(self) -> threading.Condition:
        """The keeper's lock, for its callers. A forked child gets a new one: another thread may
        have held the parent's at the fork."""
        if self._pid != os.getpid():
            self._begin()
        return self._changed

    @property
    def claims(self) -> tuple[KeptClaim, ...]:
        """The claims that are renewed now."""
        with self._lock():
            return tuple(self._claims)

    def add(
        self,
        claim: TaskClaim,
        *,
        asked: float,
        lease_seconds: float | None = None,
        on_lost: Callable[[KeptClaim], object] | None = None,
        on_renewed: Callable[[KeptClaim], object] | None = None,
        known: bool = False,
    ) -> KeptClaim:
        """Renews a claim from now on. `asked` is `schedule.now()` from before the claim was
        requested.

        `lease_seconds` is the length that renewals ask for, if not the claim's own. `on_lost` is
        called once, in a thread of its own; `on_renewed` after every renewal, in the sender's
        thread, where it must not block. If the answer was slow, this renews the claim at once; then
        it may be lost already. `known` means that the caller has done that.
        """
        due = schedule.first_renewal(asked, claim.lease_seconds, self._random)
        kept = self._kind(
            claim,
            sent=asked,
            due=due,
            lease_seconds=lease_seconds,
            on_lost=on_lost,
            on_renewed=on_renewed,
        )
        if not known and schedule.now() - asked > claim.lease_seconds * _SLOW_ANSWER_SHARE:
            self._renew([kept])
            if kept.lost.is_set():
                return kept
        with self._lock():
            if self._closed:
                raise Closed("the keeper is closed")
            self._claims.append(kept)
            try:
                self._start()
            except BaseException:
                self._claims.remove(kept)
                raise
            self._changed.notify_all()
        return kept

    def remove(self, kept: KeptClaim) -> None:
        """Stops renewing a claim that was submitted or released. It cannot be lost any more."""
        kept.drop()
        with self._lock():
            if kept in self._claims:
                self._claims.remove(kept)

    @contextmanager
    def ending(self, kept: KeptClaim) -> Iterator[None]:
        """Wraps a submission or release, so that the resulting end of the claim does not count as a
        loss. Until the answer arrives the claim is renewed as usual."""
        with self._lock():
            kept.ending += 1
        try:
            yield
        finally:
            with self._lock():
                kept.ending -= 1

    def lose(self, kept: KeptClaim, reason: Loss) -> None:
        """Declares the claim lost, unless it was released meanwhile."""
        with self._lock():
            if kept in self._claims:
                self._claims.remove(kept)
            if kept.dropped or kept.lost.is_set():
                return
            kept.reason = reason
        kept.lost.set()
        call: Callable[[KeptClaim], Any] | None = kept.on_lost
        if call is not None and started(lambda: call(kept), f"genlock-lost-{kept.task_id}") is None:
            call(kept)

    def close(self, *, release: bool = False, within: float = 5.0) -> bool:
        """Ends the renewals. With `release`, releases all claims within at most `within` seconds.
        Returns True if all were released. May be called in a signal handler."""
        with self._lock():
            self._closed = True
            left = [kept for kept in self._claims if not kept.dropped]
            self._claims.clear()
            self._changed.notify_all()
        for kept in left:
            kept.drop()
        if not release or not left:
            return not left
        given_back: list[KeptClaim] = []
        thread = started(lambda: self._release(left, given_back), "genlock-release")
        if thread is not None:
            thread.join(within)
        return len(given_back) == len(left)

    def _release(self, claims: Sequence[KeptClaim], given_back: list[KeptClaim]) -> None:
        for kept in claims:
            tenant, project = kept.scope
            try:
                self._fleet.release_claim(
                    task_id=kept.task_id,
                    generation=kept.generation,
                    session_id=kept.session_id,
                    tenant_id=tenant,
                    project_id=project,
                )
            except (GenlockError, OSError):
                continue
            given_back.append(kept)

    # The two threads

    def _start(self) -> None:
        """Starts the threads that are not running. Called under the lock."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        running = {thread.name for thread in self._threads}
        for run, name in ((self._keep, "genlock-keeper"), (self._send, "genlock-sender")):
            if name not in running:
                thread = started(run, name)
                if thread is None:
                    raise Closed(
                        "no thread can be started to keep the claim: the machine has too many, or "
                        "the program is ending"
                    )
                self._threads.append(thread)

    def _is_idle(self) -> bool:
        """Are there no claims, present or announced? Called under the lock."""
        self._claims = [kept for kept in self._claims if not kept.dropped]
        if not self._closed and not self._claims:
            self._changed.wait(_IDLE_SECONDS)
        idle = self._closed or not self._claims
        if idle:
            me = threading.current_thread()
            self._threads = [thread for thread in self._threads if thread is not me]
        return idle

    def _keep(self) -> None:
        """Runs the keeper, which only watches the clock."""
        while True:
            with self._changed:
                if self._is_idle():
                    self._changed.notify_all()
                    return
                lost = self._overdue(schedule.now())
                self._hand_over(schedule.now())
                if not lost:
                    self._changed.wait(self._seconds_to_sleep(schedule.now()))
            for kept in lost:
                self.lose(kept, Loss.OUTAGE)

    def _overdue(self, now: float) -> list[KeptClaim]:
        return [kept for kept in self._claims if now >= kept.trusted_until]

    def _hand_over(self, now: float) -> None:
        """Gives the sender the due renewals, and others that fit in the same round trip."""
        if self._batch:
            return
        sessions = {
            (kept.scope, kept.session_id)
            for kept in self._claims
            if kept.due <= now < kept.trusted_until
        }
        self._batch = [
            kept
            for kept in self._claims
            if (kept.scope, kept.session_id) in sessions
            and now < kept.trusted_until
            and (kept.due <= now or now - kept.sent >= kept.lease_seconds * _SOON_SHARE)
        ]
        if self._batch:
            self._changed.notify_all()

    def _seconds_to_sleep(self, now: float) -> float:
        # While the sender is busy, due renewals wait. The sender notifies when it is done.
        times = [kept.trusted_until for kept in self._claims]
        if not self._batch:
            times += [kept.due for kept in self._claims]
        return min(max(min(times, default=now) - now, 0.0), LONGEST_SLEEP_SECONDS)

    def _send(self) -> None:
        """Runs the sender, which renews the given claims and may block for any time."""
        while True:
            with self._changed:
                while not self._batch:
                    if self._is_idle():
                        return
                    self._changed.wait(LONGEST_SLEEP_SECONDS)
                batch = list(self._batch)
            try:
                self._renew(batch)
            finally:
                with self._changed:
                    self._batch = []
                    self._changed.notify_all()

    def _renew(self, batch: Sequence[KeptClaim]) -> None:
        groups: dict[tuple[tuple[str, str], str], list[KeptClaim]] = {}
        for kept in batch:
            if not kept.dropped:
                groups.setdefault((kept.scope, kept.session_id), []).append(kept)
        for group in groups.values():
            sent = schedule.now()
            try:
                answers = self._ask(group)
            # Any exception means that there was no answer. The next attempt may succeed, and if
            # none does the lease ends.
            except Exception:  # noqa: BLE001
                answers = {}
            for kept in group:
                self._answered(kept, answers.get(kept.task_id), sent)

    def _ask(self, group: Sequence[KeptClaim]) -> dict[str, Answer]:
        """Renews all claims in one round trip, except for a claim whose lease length changes."""
        (tenant, project), session = group[0].scope, group[0].session_id
        where: Any = {"session_id": session, "tenant_id": tenant, "project_id": project}
        alone = [kept for kept in group if kept.wanted_seconds is not None or len(group) == 1]
        rest = {kept.task_id: kept.generation for kept in group if kept not in alone}
        answers = dict(self._fleet.batch_renew(generations=rest, **where)) if rest else {}
        for kept in alone:
            try:
                answers[kept.task_id] = self._fleet.renew_lease(
                    task_id=kept.task_id,
                    generation=kept.generation,
                    lease_duration_seconds=kept.wanted_seconds,
                    **where,
                )
            except GenlockError as error:
                answers[kept.task_id] = error
        return answers

    def _answered(self, kept: KeptClaim, answer: object, sent: float) -> None:
        """Applies the answer to a renewal to the claim."""
        if isinstance(answer, RenewalResult) and answer.success:
            with self._changed:
                # The tenant's limits may have shortened the lease. A service of an older version
                # does not report that.
                granted = answer.lease_seconds
                kept.lease_seconds = kept.lease_seconds if granted is None else granted
                kept.leased = answer.new_expiry is not None
                kept.sent, kept.attempts, kept.wanted_seconds = sent, 0, None
                kept.due = schedule.later_renewal(sent, kept.lease_seconds, self._random)
            if kept.on_renewed is not None and not kept.lost.is_set():
                kept.on_renewed(kept)
            return
        if isinstance(answer, TaskNotFound) or (
            isinstance(answer, RenewalResult) and answer.reason in _TAKEN
        ):
            loss: Loss | None = Loss.TAKEN
        else:
            loss = Loss.OUTAGE if isinstance(answer, RenewalResult) else None
        with self._changed:
            if loss is None or kept.ending:
                kept.attempts += 1
                kept.due = schedule.retry(
                    schedule.now(), kept.attempts, kept.lease_seconds, self._random
                )
                return
        self.lose(kept, loss)
