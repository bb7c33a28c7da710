"""Processes of a fleet as a test sees them: started, given orders, listened to, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tests.servers import ministack

PROGRAM = Path(__file__).with_name("worker.py")

PATIENCE = 110.0
"""Seconds after which a process that should end by itself is called stuck; less than pytest's own
limit."""

Fact = dict[str, Any]


class Member:
    """One process; leaving the context ends it."""

    def __init__(self, program: Path = PROGRAM) -> None:
        # It may be started before the server whose table it will be sent to.
        environment = (
            os.environ
            | ministack.ENVIRONMENT
            | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"}
        )
        self.process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdin
        assert self.process.stdout
        self.orders, self.answers = self.process.stdin, self.process.stdout
        self.watchdog = self._watched()

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.orders.close()
        self.answers.close()

    def _watched(self) -> threading.Timer:
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        return watchdog

    def take_time(self) -> None:
        """From now on it has all its time again."""
        self.watchdog.cancel()
        self.watchdog = self._watched()

    def tell(self, **order: Any) -> None:
        """Gives an order without waiting for what comes of it."""
        self.orders.write(json.dumps(order).encode() + b"\n")
        self.orders.flush()

    def hear(self) -> Fact | None:
        """The next fact; None when the process has ended."""
        line = self.answers.readline()
        if not line.endswith(b"\n"):
            return None
        fact: Fact = json.loads(line)
        return fact

    def expect(self, **wanted: Any) -> Fact:
        """The next fact, which has at least this."""
        fact = self.hear()
        assert fact is not None, (
            f"the process ended with {self.process.wait(PATIENCE)}; its words are above"
        )
        assert fact.items() >= wanted.items(), fact
        return fact

    def abort(self) -> None:
        """Ends it; on stderr it says what its threads were at."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL, wherever it is. What it had said can still be heard."""
        self.process.kill()


class Hearing:
    """Hears several processes out, each in a thread, while a test looks on and does its
    mischief."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._heard: list[list[Fact]] = [[] for _ in members]
        self._more = threading.Condition()
        self._ended = 0
        self._threads = [
            threading.Thread(target=self._listen, args=(number,), daemon=True)
            for number in range(len(members))
        ]
        for thread in self._threads:
            thread.start()

    def of(self, member: Member) -> list[Fact]:
        """What this one has said so far."""
        return self._heard[self._members.index(member)]

    @property
    def facts(self) -> list[Fact]:
        """What all have said so far."""
        return [fact for facts in self._heard for fact in facts]

    def until(self, so_far: Callable[[], bool]) -> None:
        """Returns as soon as what was heard is so; fails when it cannot be so any more, or takes
        too long."""
        with self._more:
            self._more.wait_for(lambda: so_far() or self._ended == len(self._members), PATIENCE)
            if not so_far():
                self._give_up()

    def _give_up(self) -> NoReturn:
        for member in self._members:
            member.abort()
        last = "\n".join(f"{len(facts)} facts, the last ones {facts[-3:]}" for facts in self._heard)
        raise AssertionError(
            f"it never came to it; {self._ended} of {len(self._members)} had come to their "
            f"end\n{last}"
        )

    def end(self) -> list[Fact]:
        """All that was said, when all have come to an end."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a process does not come to an end"
        return self.facts

    def _listen(self, number: int) -> None:
        while (fact := self._members[number].hear()) is not None:
            with self._more:
                self._heard[number].append(fact)
                self._more.notify_all()
            if fact["fact"] == "finished":
                break
        with self._more:
            self._ended += 1
            self._more.notify_all()


def all_go(members: Sequence[Member], orders: Sequence[Fact]) -> None:
    """Gives each its order, waits until all have opened the store, and lets them begin together."""
    for member, order in zip(members, orders, strict=True):
        member.tell(**order)
    for member in members:
        member.expect(fact="ready")
    for member in members:
        member.take_time()
        member.tell(do="go")


def all_at_once(answers: Sequence[Fact]) -> bool:
    """Had every process its first answer before any had its last? `times` are those of the start,
    the first answer and the end."""
    return bool(
        max(answer["times"][1] for answer in answers)
        < min(answer["times"][-1] for answer in answers)
    )
