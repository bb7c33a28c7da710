"""One connection: it sends commands and receives their answers, both with a time limit.

The driver connects, logs in and speaks the protocol. Its client is not used, because it retries
failed commands, and a commit must not be sent twice.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis import exceptions as driver

from genlock.stores.connection_pool import ConnectionBroken, Refused, ServerUnreachable
from genlock.stores.redis.errors import refusal_of
from genlock.stores.redis.scripts import SCRIPTS
from genlock.stores.redis.settings import Settings
from genlock.stores.round_trips import Steps, run

Argument = str | bytes | int
Command = tuple[Argument, ...]


class Run(NamedTuple):
    """A script with its keys and arguments."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[Argument]


class RedisConnection:
    """One connection, used by one thread at a time. Any failure that leaves it unusable closes
    it."""

    def __init__(self, settings: Settings) -> None:
        """Opens it. Raises `ServerUnreachable` if that fails, and `Refused` if the server denies
        access."""
        try:
            self._connection = settings.connection()
        except OSError as error:  # the driver reads a file to find its own version
            raise ServerUnreachable(" ".join(str(error).split())) from None
        self._silence: float = settings.arguments["socket_timeout"]
        self._silent = False
        self._open = False
        try:
            self._connection.connect()
        except (driver.RedisError, OSError) as error:
            self._connection.disconnect()
            raise refusal_of(error) or ServerUnreachable(" ".join(str(error).split())) from None
        self._open = True

    @property
    def is_whole(self) -> bool:
        """Is it open?"""
        return self._open

    @property
    def is_alive(self) -> bool:
        """Is it open, and not closed by the server, as far as can be told without a round trip?"""
        if not self._open:
            return False
        try:
            return not self._connection.can_read(timeout=0)
        except (driver.RedisError, OSError):
            return False

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Runs several commands in one round trip. Returns an answer for each; a refused command's
        is a `Refused`."""
        return run(self.exchanged(commands))

    def exchanged(self, commands: Sequence[Command]) -> Steps[list[Any]]:
        """The same in two steps."""
        connection = self._connection
        packed: list[bytes] = []
        for command in commands:
            packed += connection.pack_command(*command)
        try:
            connection.send_packed_command(packed, check_health=False)
            yield self._await_answer
            if self._silent:
                raise TimeoutError(f"the server was silent for {self._silence:g} s")
            return [self._answer() for _ in commands]
        except (driver.RedisError, OSError) as error:
            self.close()
            raise ConnectionBroken(" ".join(str(error).split())) from None
        except BaseException:  # an interrupt: the answers would stay unread
            self.close()
            raise

    def _await_answer(self) -> None:
        """Waits until an answer begins to arrive. Any thread may call it."""
        readable = select.poll()
        readable.register(self._connection._sock, select.POLLIN)
        self._silent = not readable.poll(self._silence * 1000)

    def call(self, *command: Argument) -> Any:
        """Runs one command. Raises `Refused` if the server refuses it."""
        (answer,) = self.exchange([command])
        if isinstance(answer, Refused):
            raise answer
        return answer

    def run(self, script: str, keys: Sequence[str], *arguments: Argument) -> Any:
        """Runs one script."""
        (answer,) = self.run_all([(script, keys, arguments)])
        if isinstance(answer, Refused):
            raise answer
        return answer

    def ask(self, requests: Sequence[Run | Command]) -> list[Any]:
        """Runs several read-only scripts and commands in one round trip. Raises `Refused` if the
        server refuses one of them."""
        return run(self.asked(requests))

    def asked(self, requests: Sequence[Run | Command]) -> Steps[list[Any]]:
        """The same in two steps."""
        runs = [request for request in requests if isinstance(request, Run)]
        commands = [request for request in requests if not isinstance(request, Run)]
        answers = yield from self.ran_all(runs, *commands)
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        of_runs, of_commands = iter(answers[: len(runs)]), iter(answers[len(runs) :])
        return [next(of_runs if isinstance(each, Run) else of_commands) for each in requests]

    def run_all(
        self, runs: Sequence[tuple[str, Sequence[str], Sequence[Argument]]], *more: Command
    ) -> list[Any]:
        """Runs several scripts, and some commands after them, in one round trip. A script missing
        in the server's cache is sent again with its text."""
        return run(self.ran_all(runs, *more))

    def ran_all(
        self, runs: Sequence[tuple[str, Sequence[str], Sequence[Argument]]], *more: Command
    ) -> Steps[list[Any]]:
        """The same in two steps."""
        commands: list[Command] = [
            ("EVALSHA", SCRIPTS[name].sha, len(keys), *keys, *given) for name, keys, given in runs
        ]
        answers = yield from self.exchanged([*commands, *more])
        unknown = [
            at
            for at, answer in enumerate(answers)
            if isinstance(answer, Refused) and answer.code == "NOSCRIPT"
        ]
        if unknown:
            taught = [("EVAL", SCRIPTS[runs[at][0]].text, *commands[at][2:]) for at in unknown]
            again = self.exchange([*taught, *more])
            for at, answer in zip(unknown, again, strict=False):
                answers[at] = answer
            answers[len(runs) :] = again[len(unknown) :]
        return answers

    def listen(self, channel: str) -> None:
        """Subscribes to a channel. Afterwards only `heard` may be called."""
        self.call("SUBSCRIBE", channel)

    def heard(self, seconds: float) -> bytes | None:
        """Returns the next message; None if none arrives within `seconds`."""
        try:
            if not self._connection.can_read(timeout=seconds):
                return None
            answer: Any = self._answer()
        except (driver.RedisError, OSError) as error:
            self.close()
            raise ConnectionBroken(" ".join(str(error).split())) from None
        return bytes(answer[2]) if isinstance(answer, list) and answer[0] == b"message" else None

    def _answer(self) -> Any:
        try:
            # The driver treats some refusals as connection failures. They are answers, and more may
            # follow.
            return self._connection.read_response(disconnect_on_error=False)
        except (driver.RedisError, OSError) as error:
            refused = refusal_of(error)
            if refused is None:
                raise
            return refused

    def close(self) -> None:
        """Closes the connection. Calling it again has no effect."""
        self._open = False
        with suppress(driver.RedisError, OSError):
            self._connection.disconnect()
