"""The rules once more, in their own words: an independent model of a fleet, to compare the product
with.

Written from section 4 of the design and from the rulings; it shares no code with the core and keeps
no events. There is one dictionary of tasks, and what the product learns by news between records the
model simply looks up. Whatever time has brought is written down only when someone meets it, as the
design has it ("what a command finds due it does write"): see `look`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

SLACK = 5.0


class Mistake(Exception):
    """The caller's mistake; `kind` is the name of the error."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass
class Claim:
    session: str
    agent: str
    generation: int
    since: float
    renewed: float
    until: float
    lease: float
    grace: float
    lapsed: bool = False
    operation: str = ""
    renewals: int = 0


@dataclass
class Task:
    id: str
    priority: int
    sequence: int
    depth: int = 0
    needs: list[str] = field(default_factory=list)
    parent: str | None = None
    children: list[str] = field(default_factory=list)
    fan_in: bool = False
    backlog: bool = False
    early_until: float | None = None
    """Not before this instant; None once someone has seen it pass."""
    generation: int = 0
    granted: bool = False
    grants: int = 0
    failures: int = 0
    claim: Claim | None = None
    released: tuple[int, str, str, str] | None = None
    """Generation, session, reason and operation of the last release."""
    owed: bool = False
    """Has the last child of a fan-out finished, and nobody taken up or reset the task since?"""
    end: str | None = None
    """COMPLETED or CANCELLED."""
    result: dict[str, Any] | None = None
    held: str | None = None
    """Why, if it is."""
    held_until: float | None = None
    reserved: tuple[str, float] | None = None
    changed: set[str] = field(default_factory=set)
    """Inputs that were open again after work on this began."""


@dataclass
class Rules:
    """The project's policy and the tenant's limits, as far as the model knows them."""

    expired: str = "takeover"
    grace: float = 60.0
    ttl: float | None = None
    breaker: int = 5
    hold_dependents: bool = False
    most_grants: int | None = None
    shortest_lease: float = 1.0
    spawn_depth: int = 3


class Model:
    """All that a fleet knows, and what it answers. Times are seconds since the start."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.now = 0.0
        self.tasks: dict[str, Task] = {}
        self.sessions: dict[str, bool] = {}
        """Those that are known, and whether they have ended."""
        self.refused: dict[tuple[str, int, str, str], str] = {}
        """(task, generation, session, content): KEPT, ADOPTED or DISCARDED."""

    # What is so

    def unmet(self, task: Task) -> list[str]:
        return [name for name in task.needs if self.tasks[name].end is None]

    def unfinished(self, task: Task) -> list[str]:
        return [name for name in task.children if self.tasks[name].end is None]

    def blocked(self, task: Task) -> bool:
        return task.early_until is not None or bool(self.unmet(task)) or bool(self.unfinished(task))

    def working(self, task: Task) -> bool:
        """Is there a claim that nobody has found overdue yet?"""
        return task.claim is not None and not task.claim.lapsed

    def state(self, task: Task) -> str:
        if task.end is not None:
            return task.end
        if task.held is not None:
            return "HELD"
        if self.working(task):
            return "IN_PROGRESS"
        if self.blocked(task):
            return "BLOCKED"
        return "BACKLOG" if task.backlog else "PENDING"

    def overdue(self, claim: Claim) -> bool:
        left = claim.until - self.now
        return (
            claim.lapsed
            or left + claim.grace <= 0
            or left > claim.lease + max(claim.lease / 10, SLACK)
            or self.ended(claim.session)
        )

    def ended(self, session: str) -> bool:
        return self.sessions.get(session, False)

    def raise_generation(self, task: Task) -> None:
        """To the lowest number that was never granted."""
        if task.granted or task.generation == 0:
            task.generation += 1
            task.granted = False

    # What time brings

    def look(self, task: Task) -> None:
        """Someone meets the task: what has fallen due is so from now on."""
        if task.end is not None:
            return
        before = self.state(task)
        if task.early_until is not None and self.now >= task.early_until:
            task.early_until = None
        if task.claim is not None and not task.claim.lapsed and self.overdue(task.claim):
            self._lapse(task, task.claim)
        if not self.working(task) and task.reserved is not None and self.now >= task.reserved[1]:
            task.reserved = None
        if task.held is not None and task.held_until is not None and self.now >= task.held_until:
            task.held = task.held_until = None
        if before in ("BLOCKED", "HELD"):
            self._late_fan_in(task)

    def _lapse(self, task: Task, claim: Claim) -> None:
        claim.lapsed = True
        task.failures += 1
        if self._breaks(task):
            return
        if self.rules.expired == "human":
            lapsed = min(self.now, claim.until)
            until = None if self.rules.ttl is None else lapsed + self.rules.ttl
            if until is None or self.now < until:
                # Time does not lift what a person holds besides.
                task.held_until = until if task.held is None else None
                task.held = "a person decides"

    def _breaks(self, task: Task) -> bool:
        if not self.rules.breaker or task.failures < self.rules.breaker:
            return False
        task.held, task.held_until = "too many failures", None
        return True

    def look_at_all(self) -> None:
        for task in list(self.tasks.values()):
            self.look(task)

    # What one task's change means to others

    def _tell(self, name: str, *, over: bool, cancelled: bool = False) -> None:
        """A task has come to its end, or is open again: dependents first, then its parent."""
        for other in list(self.tasks.values()):
            concerned = name in other.needs or name in other.children
            if not concerned:
                continue
            if not over and (other.end == "COMPLETED" or self.working(other)):
                other.changed.add(name)
            idle = other.end is None and not self.working(other)
            if cancelled and idle and name in other.needs and self.rules.hold_dependents:
                other.held, other.held_until = "a dependency was cancelled", None
            if name in other.children:
                done = all(self.tasks[child].end is not None for child in other.children)
                other.owed = other.fan_in and idle and done
                self._fan_in(other)
            else:
                self._late_fan_in(other)

    def _fan_in(self, task: Task) -> None:
        """The last child of a fan-out completes its parent, in the coordinator's own name."""
        if task.fan_in and self.state(task) in ("PENDING", "BACKLOG"):
            self._grant(task, "genlock", "genlock", 0.0)
            self._complete(
                task, {"session": "genlock", "generation": task.generation, "content": None}
            )

    def _late_fan_in(self, task: Task) -> None:
        """For one that was held back by something else when its last child finished, and that
        nobody has taken up since."""
        if task.owed or (
            task.released is not None
            and task.released[2] == "SPAWNED"
            and task.released[0] == task.generation
        ):
            self._fan_in(task)

    def _grant(
        self, task: Task, session: str, agent: str, lease: float, operation: str = ""
    ) -> None:
        if task.granted or task.generation == 0:
            task.generation += 1
        task.granted = True
        task.owed = False
        task.grants += 1
        task.backlog = False
        task.held = task.held_until = None
        if lease:  # an act of the coordinator's or an operator's own begins no work
            task.changed = set()
        grace = self.rules.grace if self.rules.expired == "grace" and lease else 0.0
        task.claim = Claim(
            session,
            agent,
            task.generation,
            self.now,
            self.now,
            self.now + lease,
            lease,
            grace,
            operation=operation,
        )

    def _complete(self, task: Task, result: dict[str, Any]) -> None:
        task.end = "COMPLETED"
        task.result = result
        task.released = (task.generation, result["session"], "COMPLETED", "")
        task.claim = None
        task.held = task.held_until = None
        task.failures = 0
        self._tell(task.id, over=True)

    # What planners ask

    def add(self, task: Task) -> None:
        if task.early_until is not None and self.now >= task.early_until:
            task.early_until = None
        self.tasks[task.id] = task
        if task.parent is not None:
            parent = self.tasks[task.parent]
            if task.id not in parent.children:
                parent.children.append(task.id)

    def depend(self, name: str, needs: list[str]) -> str:
        task = self.tasks[name]
        if name in needs or any(self._reaches(other, name, set()) for other in needs):
            raise Mistake("BadArgument")
        if task.needs == needs:
            return "UNCHANGED"
        new = [other for other in needs if other not in task.needs]
        task.needs = needs
        # Those that are done already are news to the task.
        if any(self.tasks[other].end is not None for other in new):
            idle = task.end is None and not self.working(task)
            if (
                idle
                and self.rules.hold_dependents
                and any(self.tasks[other].end == "CANCELLED" for other in new)
            ):
                task.held, task.held_until = "a dependency was cancelled", None
            self._late_fan_in(task)
        return "DONE"

    def _reaches(self, start: str, goal: str, seen: set[str]) -> bool:
        if start == goal:
            return True
        if start in seen:
            return False
        seen.add(start)
        task = self.tasks[start]
        return any(self._reaches(other, goal, seen) for other in (*task.needs, *task.children))

    # What workers ask

    def claim(self, name: str, session: str, agent: str, lease: float, operation: str = "") -> str:
        """Rule 3: the reason."""
        task = self.tasks[name]
        if self.ended(session):
            raise Mistake("SessionEnded")
        claim = task.claim
        if (
            operation
            and claim is not None
            and (claim.operation, claim.session) == (operation, session)
        ):
            if claim.agent != agent or (not claim.renewals and claim.lease != lease):
                raise Mistake("OperationMismatch")
            if not self.overdue(claim):
                return "GRANTED"
        self.look(task)
        if task.end is not None:
            return "DENIED_COMPLETED"
        if task.held is not None:
            return "DENIED_HELD"
        if task.reserved is not None and task.reserved[0] != agent and self.now < task.reserved[1]:
            return "DENIED_ASSIGNED"
        claim = task.claim if self.working(task) else None
        if claim is not None and (claim.session, claim.agent) != (session, agent):
            return "DENIED_ACTIVE_CLAIM"
        if claim is None and self.blocked(task):
            return "DENIED_BLOCKED"
        if lease < self.rules.shortest_lease:
            return "DENIED_LIMIT"
        if claim is not None:
            self._extend(claim, lease)
            return "GRANTED, already held"
        if self.rules.most_grants is not None and task.grants >= self.rules.most_grants:
            task.held, task.held_until = "granted too often", None
            return "DENIED_HELD"
        self._grant(task, session, agent, lease, operation)
        self.sessions.setdefault(session, False)
        return "GRANTED"

    def _extend(self, claim: Claim, lease: float) -> None:
        claim.renewed, claim.until, claim.lease = self.now, self.now + lease, lease
        claim.renewals += 1

    def claim_next(self, session: str, agent: str, lease: float) -> str | None:
        """The task that is granted, or None if nothing is ready."""
        self.look_at_all()
        for task in self.ready():
            if task.reserved is None or task.reserved[0] == agent:
                reason = self.claim(task.id, session, agent, lease)
                if reason == "GRANTED":
                    return task.id
                assert reason == "DENIED_HELD", reason
        return None

    def ready(self) -> list[Task]:
        """What could be claimed, first things first, as things were last seen."""
        waiting = [task for task in self.tasks.values() if self.state(task) == "PENDING"]
        return sorted(
            waiting, key=lambda task: (task.priority, task.sequence, _by_numbers(task.id))
        )

    def renew(self, name: str, session: str, generation: int, lease: float | None = None) -> str:
        """Rule 5."""
        task = self.tasks[name]
        if generation != task.generation:
            return "GENERATION_MISMATCH"
        if task.claim is None:
            return "NO_CLAIM"
        if task.claim.session != session:
            return "SESSION_MISMATCH"
        if self.overdue(task.claim):
            return "ALREADY_EXPIRED"
        self._extend(
            task.claim,
            max(lease if lease is not None else task.claim.lease, self.rules.shortest_lease),
        )
        return "RENEWED"

    def release(
        self, name: str, session: str, generation: int, reason: str, operation: str = ""
    ) -> str:
        """Rule 5."""
        task = self.tasks[name]
        last = task.released
        if (
            operation
            and last is not None
            and (last[0], last[1], last[3]) == (generation, session, operation)
        ):
            if last[2] != reason:
                raise Mistake("OperationMismatch")
            return "RELEASED"
        if generation != task.generation:
            return "GENERATION_MISMATCH"
        if task.claim is None:
            return "NO_CLAIM"
        if task.claim.session != session:
            return "SESSION_MISMATCH"
        if not task.claim.lapsed:
            task.failures = task.failures + 1 if reason == "ERROR" else 0
        task.claim, task.released = None, (generation, session, reason, operation)
        if reason == "ERROR" and task.held is None:
            self._breaks(task)
        return "RELEASED"

    def fence(self, task: Task, session: str, generation: int) -> str | None:
        """Rule 4, up to the children."""
        if generation < task.generation:
            return "STALE_GENERATION"
        if generation > task.generation:
            return "FUTURE_GENERATION"
        if task.end is not None:
            return "TASK_ALREADY_COMPLETED"
        if task.claim is None:
            return "NO_CLAIM"
        return "SESSION_MISMATCH" if task.claim.session != session else None

    def submit(self, name: str, session: str, generation: int, content: str) -> str:
        """Rules 4 and 6; content "" has nothing to keep."""
        task = self.tasks[name]
        same = {"session": session, "generation": generation, "content": content}
        if task.end == "COMPLETED" and generation == task.generation and task.result is not None:
            known = {key: task.result[key] for key in same}
            if known == same:
                return "ACCEPTED"
        reason = self.fence(task, session, generation)
        if reason is None and self.unfinished(task):
            reason = "CHILDREN_UNFINISHED"
        if reason is not None:
            if content:
                key = (name, generation, session, content)
                if not self._is_result(key):
                    self.refused[key] = "KEPT"
            return reason
        self._complete(task, same)
        return "ACCEPTED"

    def spawn(
        self, name: str, session: str, generation: int, children: list[Task], mode: str, keep: bool
    ) -> str:
        task = self.tasks[name]
        if keep and mode == "fan-out-fan-in":
            raise Mistake("BadArgument")
        if task.depth + 1 > self.rules.spawn_depth:
            raise Mistake("NotAllowed")
        reason = self.fence(task, session, generation)
        if reason is not None:
            return reason
        task.fan_in = mode == "fan-out-fan-in"
        if not keep:
            task.claim, task.released, task.failures = None, (generation, session, "SPAWNED", ""), 0
        for before, child in zip([None, *children], children, strict=False):
            if mode == "sequential" and before is not None:
                child.needs = [before.id]
            self.add(child)
        return "ACCEPTED"

    def adopt(
        self,
        key: tuple[str, int, str, str],
        session: str,
        generation: int | None,
        take_over: bool = False,
    ) -> str:
        """By the holder with its generation, or by an operator without one."""
        if take_over and generation is not None:
            raise Mistake("BadArgument")
        name, _, from_session, content = key
        task = self.tasks[name]
        if self.refused[key] == "DISCARDED":
            raise Mistake("NotAllowed")
        done = task.result
        if (
            task.end == "COMPLETED"
            and done is not None
            and (done["content"], done.get("adopted")) == (content, from_session)
        ):
            return "ACCEPTED"
        if generation is None:
            if task.end is not None or session == from_session:
                raise Mistake("NotAllowed")
            self._check_override(task, take_over)
            reason = None
        else:
            reason = self.fence(task, session, generation)
        if reason is None and self.unfinished(task):
            reason = "CHILDREN_UNFINISHED"
        if reason is not None:
            return reason
        if generation is None:
            if task.claim is not None:
                self._take_away(task)
            self._grant(task, session, "", 0.0)
        self._complete(
            task,
            {
                "session": session,
                "generation": task.generation,
                "content": content,
                "adopted": from_session,
                "from": key[1],
            },
        )
        self.refused[key] = "ADOPTED"
        return "ACCEPTED"

    def discard(self, key: tuple[str, int, str, str]) -> None:
        if self._is_result(key):
            raise Mistake("NotAllowed")
        self.refused[key] = "DISCARDED"

    def _is_result(self, key: tuple[str, int, str, str]) -> bool:
        """Was it adopted, and is it still what the task came to?"""
        name, generation, session, content = key
        done = self.tasks[name].result
        return done is not None and (done.get("from"), done.get("adopted"), done["content"]) == (
            generation,
            session,
            content,
        )

    # What operators ask

    def _take_away(self, task: Task) -> None:
        if task.claim is not None:
            task.released = (task.claim.generation, task.claim.session, "SUPERSEDED", "")
            if not task.claim.lapsed:
                task.failures = 0
        task.claim = None
        self.raise_generation(task)

    def _check_override(self, task: Task, take_over: bool) -> None:
        if task.claim is not None and not self.overdue(task.claim) and not take_over:
            raise Mistake("LiveClaim")

    def unlock(self, name: str, take_over: bool) -> str:
        task = self.tasks[name]
        if task.claim is None:
            return "UNCHANGED"
        self._check_override(task, take_over)
        self._take_away(task)
        return "DONE"

    def assign(self, name: str, agent: str, hours: float, take_over: bool) -> str:
        task = self.tasks[name]
        if task.end is not None:
            raise Mistake("NotAllowed")
        self._check_override(task, take_over)
        if task.claim is not None:
            self._take_away(task)
        task.reserved = (agent, self.now + hours * 3600)
        return "DONE"

    def reset(self, name: str, take_over: bool) -> str:
        task = self.tasks[name]
        self._check_override(task, take_over)
        was_over = task.end is not None
        self._take_away(task)
        task.end = task.result = task.held = task.held_until = None
        task.owed = False
        task.failures = task.grants = 0
        task.changed = set()
        if was_over:
            self._tell(name, over=False)
        return "DONE"

    def cancel(self, name: str, take_over: bool) -> str:
        task = self.tasks[name]
        if task.end == "COMPLETED":
            raise Mistake("NotAllowed")
        if task.end == "CANCELLED":
            return "UNCHANGED"
        self._check_override(task, take_over)
        failures = task.failures
        self._take_away(task)
        task.failures = failures
        task.end, task.held, task.held_until = "CANCELLED", None, None
        task.owed = False
        self._tell(name, over=True, cancelled=True)
        return "DONE"

    def hold(self, name: str) -> str:
        task = self.tasks[name]
        if task.end is not None:
            raise Mistake("NotAllowed")
        if task.held is not None and task.held_until is None:
            return "UNCHANGED"
        task.held, task.held_until = "an operator", None
        return "DONE"

    def reopen(self, name: str) -> str:
        task = self.tasks[name]
        if task.end is not None:
            raise Mistake("NotAllowed")
        if task.held is None and not task.backlog:
            return "UNCHANGED"
        task.backlog = task.backlog and task.held is not None
        task.held = task.held_until = None
        task.failures = task.grants = 0
        self._late_fan_in(task)
        return "DONE"

    # Sessions

    def end_session(self, session: str) -> list[str]:
        if session not in self.sessions:
            raise Mistake("SessionNotFound")
        self.sessions[session] = True
        mine = [
            task
            for task in self.tasks.values()
            if task.claim is not None and self.working(task) and task.claim.session == session
        ]
        for task in mine:
            assert self.release(task.id, session, task.generation, "VOLUNTARY") == "RELEASED"
        return sorted(task.id for task in mine)

    def copy(self) -> Model:
        return copy.deepcopy(self)


def _by_numbers(name: str) -> tuple[str, *tuple[int, ...]]:
    """Subtasks come by their numbers, not as texts."""
    first, *numbers = name.split("::")
    return first, *map(int, numbers)
