"""One connection: commands go out, their answers come back, and neither waits for ever.

The driver connects, logs in and speaks the protocol. Its client is not used: it repeats what failed, which a commit must not be.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis import exceptions as driver

from genlock.stores.links import Unreachable
from genlock.stores.redis.faults import Broken, Refused, refusal_of
from genlock.stores.redis.scripts import SCRIPTS
from genlock.stores.redis.settings import Settings
from genlock.stores.sending import Course, run

Argument = str | bytes | int
Command = tuple[Argument, ...]


class Run(NamedTuple):
    """A script with its keys and arguments."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[Argument]


class Link:
    """Used by one thread at a time. Whatever breaks it closes it."""

    def __init__(self, settings: Settings) -> None:
        """`Unreachable` if it cannot be opened, `Refused` if the server does not want us."""
        try:
            self._connection = settings.connection()
        except OSError as error:  # it looks into a file for its own version
            raise Unreachable(" ".join(str(error).split())) from None
        self._patience: float = settings.arguments["socket_timeout"]
        self._silent = False
        self._open = False
        try:
            self._connection.connect()
        except (driver.RedisError, OSError) as error:
            self._connection.disconnect()
            raise refusal_of(error) or Unreachable(" ".join(str(error).split())) from None
        self._open = True

    @property
    def is_whole(self) -> bool:
        """Is it open?"""
        return self._open

    @property
    def is_alive(self) -> bool:
        """And has the server said nothing, such as farewell, as far as can be told without asking it?"""
        if not self._open:
            return False
        try:
            return not self._connection.can_read(timeout=0)
        except (driver.RedisError, OSError):
            return False

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Several commands in one journey; an answer each, which is a `Refused` where the server did not do it."""
        return run(self.exchanged(commands))

    def exchanged(self, commands: Sequence[Command]) -> Course[list[Any]]:
        """The same in two steps."""
        connection = self._connection
        packed: list[bytes] = []
        for command in commands:
            packed += connection.pack_command(*command)
        try:
            connection.send_packed_command(packed, check_health=False)
            yield self._await_answer
            if self._silent:
                raise TimeoutError(f"the server was silent for {self._patience:g} s")
            return [self._answer() for _ in commands]
        except (driver.RedisError, OSError) as error:
            self.close()
            raise Broken(" ".join(str(error).split())) from None
        except BaseException:  # an interrupt: there may be answers on the way that nobody would read
            self.close()
            raise

    def _await_answer(self) -> None:
        """Returns when there is something to be heard, by any thread."""
        readable = select.poll()
        readable.register(self._connection._sock, select.POLLIN)
        self._silent = not readable.poll(self._patience * 1000)

    def call(self, *command: Argument) -> Any:
        """One command; `Refused` if the server did not do it."""
        (answer,) = self.exchange([command])
        if isinstance(answer, Refused):
            raise answer
        return answer

    def run(self, script: str, keys: Sequence[str], *arguments: Argument) -> Any:
        """One script."""
        (answer,) = self.run_all([(script, keys, arguments)])
        if isinstance(answer, Refused):
            raise answer
        return answer

    def ask(self, questions: Sequence[Run | Command]) -> list[Any]:
        """Several scripts and commands that only read, in one journey; `Refused` if the server did not do one of them."""
        return run(self.asked(questions))

    def asked(self, questions: Sequence[Run | Command]) -> Course[list[Any]]:
        """The same in two steps."""
        runs = [question for question in questions if isinstance(question, Run)]
        commands = [question for question in questions if not isinstance(question, Run)]
        said = yield from self.ran_all(runs, *commands)
        for answer in said:
            if isinstance(answer, Refused):
                raise answer
        of_runs, of_commands = iter(said[: len(runs)]), iter(said[len(runs) :])
        return [next(of_runs if isinstance(question, Run) else of_commands) for question in questions]

    def run_all(self, runs: Sequence[tuple[str, Sequence[str], Sequence[Argument]]], *more: Command) -> list[Any]:
        """Several scripts, and some commands after them, in one journey. What the server does not know any more is taught again."""
        return run(self.ran_all(runs, *more))

    def ran_all(self, runs: Sequence[tuple[str, Sequence[str], Sequence[Argument]]], *more: Command) -> Course[list[Any]]:
        """The same in two steps."""
        commands: list[Command] = [("EVALSHA", SCRIPTS[name].sha, len(keys), *keys, *given) for name, keys, given in runs]
        answers = yield from self.exchanged([*commands, *more])
        unknown = [at for at, answer in enumerate(answers) if isinstance(answer, Refused) and answer.code == "NOSCRIPT"]
        if unknown:
            taught = [("EVAL", SCRIPTS[runs[at][0]].text, *commands[at][2:]) for at in unknown]
            again = self.exchange([*taught, *more])
            for at, answer in zip(unknown, again, strict=False):
                answers[at] = answer
            answers[len(runs) :] = again[len(unknown) :]
        return answers

    def listen(self, channel: str) -> None:
        """Subscribes; from now on only `heard` may be called."""
        self.call("SUBSCRIBE", channel)

    def heard(self, seconds: float) -> bytes | None:
        """The next message, if one comes within so many seconds."""
        try:
            if not self._connection.can_read(timeout=seconds):
                return None
            answer: Any = self._answer()
        except (driver.RedisError, OSError) as error:
            self.close()
            raise Broken(" ".join(str(error).split())) from None
        return bytes(answer[2]) if isinstance(answer, list) and answer[0] == b"message" else None

    def _answer(self) -> Any:
        try:
            # To the driver some refusals are failures of the connection. They are not, and more answers may follow.
            return self._connection.read_response(disconnect_on_error=False)
        except (driver.RedisError, OSError) as error:
            refused = refusal_of(error)
            if refused is None:
                raise
            return refused

    def close(self) -> None:
        """Ends the connection; calling it again is fine."""
        self._open = False
        with suppress(driver.RedisError, OSError):
            self._connection.disconnect()
