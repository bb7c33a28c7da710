"""One connection: it sends packets of statements and receives their answers, both with a time
limit."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS

from genlock.stores.connection_pool import ConnectionBroken, Refused, ServerUnreachable
from genlock.stores.mysql.errors import LOST
from genlock.stores.mysql.queries import Statement, Value
from genlock.stores.mysql.settings import Settings
from genlock.stores.round_trips import Steps

SILENCE = 5.0
"""How many seconds beyond its own time limit a server may be silent."""

_NO_LIMIT = 2**64 - 1

Row = tuple[Any, ...]


class Answer(NamedTuple):
    """The answer to one statement."""

    rows: tuple[Row, ...]
    affected: int
    number: int
    """LAST_INSERT_ID, if the statement has set it."""


class MySQLConnection:
    """One connection, used by one thread at a time. Any failure that leaves it unusable closes
    it."""

    def __init__(self, settings: Settings) -> None:
        """Opens it, or raises `ServerUnreachable`."""
        patience = settings.statement_timeout + SILENCE
        try:
            self._connection = pymysql.connect(
                **settings.arguments,
                charset="utf8mb4",
                autocommit=None,
                client_flag=CLIENT.MULTI_STATEMENTS,
                read_timeout=patience,
                write_timeout=patience,
                program_name="genlock",
            )
        except (pymysql.MySQLError, RuntimeError, OSError, ValueError) as error:
            raise ServerUnreachable(_one_line(_message(error))) from None
        self._settings = settings
        self._received: list[Answer] | None = None
        """The answers to the last packet, and the error that ended it."""
        self._trouble: Refused | ConnectionBroken | None = None
        self._owes = False
        """Is an answer of the server still outstanding?"""
        self.mark: bytes | None = None
        """Identifies the server; None until the server has been asked."""
        self._ready = select.poll()
        self._ready.register(self._connection._sock, select.POLLIN)  # type: ignore[attr-defined]

    def prepare(self) -> None:
        """Configures the session, independently of the server's settings."""
        limit = self._settings.statement_timeout
        # The limits apply to locks on rows, and on whole tables, which backups take. The server
        # counts in whole seconds. Half of the time, so that there is time for another attempt.
        wait = max(1, math.floor(self._settings.lock_timeout / 2))
        maria = "mariadb" in self._connection.get_server_info().lower()  # type: ignore[no-untyped-call]
        milliseconds = round(limit * 1000)
        longest = (
            f"max_statement_time = {limit}" if maria else f"max_execution_time = {milliseconds}"
        )
        self.run(
            "SET NAMES binary; SET SESSION autocommit = 1, SESSION sql_mode = "
            "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
            f" SESSION innodb_lock_wait_timeout = {wait}, SESSION lock_wait_timeout = {wait},"
            # An administrator may have set these limits to protect against mistyped statements.
            " SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1, SESSION sql_select_limit "
            f"= {_NO_LIMIT}, SESSION {longest}; "
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".encode()
        )

    @property
    def is_whole(self) -> bool:
        """Is it open, without a transaction and without an unread answer?"""
        status: int = self._connection.server_status  # type: ignore[attr-defined]
        return (
            bool(self._connection.open)
            and not self._owes
            and not status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        )

    @property
    def is_alive(self) -> bool:
        """Is it whole, and not closed by the server, as far as can be told without a round trip?"""
        return self.is_whole and not self._ready.poll(0)

    def run(self, packet: bytes) -> list[Answer]:
        """Runs one packet of statements. Returns their answers. The first refused statement ends
        it."""
        self.send(packet)
        return self.answers()

    def send(self, packet: bytes) -> None:
        """Sends a packet: its first half. The driver's cursors cannot stop between the halves."""
        self._received = self._trouble = None
        self._owes = True
        try:
            self._connection._execute_command(COMMAND.COM_QUERY, packet)  # type: ignore[attr-defined]
        except pymysql.MySQLError as error:
            raise self._fault(error, 0) from None

    def await_answers(self) -> bool:
        """Receives the answers, between the halves. Any thread may call it. `answers` raises any
        error; then this returns True, because a packet that stopped half-way has left its
        transaction open."""
        connection: Any = self._connection
        received: list[Answer] = []
        more = True
        try:
            while more:
                connection.next_result()
                result = connection._result
                received.append(Answer(result.rows or (), result.affected_rows, result.insert_id))
                more = result.has_next
        except pymysql.MySQLError as error:
            self._trouble = self._fault(error, len(received))
        self._received = received
        self._owes = False
        return self._trouble is not None

    def answers(self) -> list[Answer]:
        """Returns the answers: the second half of a packet."""
        if self._received is None:
            self.await_answers()
        if self._trouble is not None:
            raise self._trouble
        assert self._received is not None
        return self._received

    def ask(self, statements: Sequence[bytes]) -> list[Answer]:
        """Runs several statements in one packet."""
        return self.run(b";\n".join(statements))

    def asked(self, statements: Sequence[bytes]) -> Steps[Sequence[Answer]]:
        """The same in two steps."""
        self.send(b";\n".join(statements))
        yield self.await_answers
        return self.answers()

    def rows(self, statement: Statement, **values: Value) -> tuple[Row, ...]:
        """Runs one statement with these values. Returns its rows."""
        return self.run(statement.filled(**values))[0].rows

    def command(self, text: str) -> None:
        """Runs statements without values."""
        self.run(text.encode())

    def _fault(self, error: pymysql.MySQLError, done: int) -> Refused | ConnectionBroken:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        message = _one_line(_message(error))
        if code in LOST or not self._connection.open:
            self.close()
            return ConnectionBroken(
                f"the server was silent for {self._silence:g} s"
                if "timed out" in message
                else message
            )
        return Refused(code, message, done)

    @property
    def _silence(self) -> float:
        return self._settings.statement_timeout + SILENCE

    def close(self) -> None:
        """Closes the connection."""
        if self._connection.open:
            self._connection.close()


def connect(settings: Settings) -> MySQLConnection:
    """Opens a configured connection, or raises `ServerUnreachable`."""
    connection = MySQLConnection(settings)
    try:
        connection.prepare()
    except (ConnectionBroken, Refused) as error:
        connection.close()
        raise ServerUnreachable(str(error)) from None
    return connection


def _message(error: Exception) -> str:
    return str(error.args[1]) if len(error.args) > 1 else str(error)


def _one_line(text: str) -> str:
    return " ".join(text.split())
