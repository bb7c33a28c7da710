"""One connection: a packet of statements goes out, their answers come back, and neither waits for ever."""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS

from genlock.stores.mysql.faults import LOST, Broken, Refused, Unreachable
from genlock.stores.mysql.settings import Settings
from genlock.stores.mysql.text import Statement, Value

SILENCE = 5.0
"""Seconds after its own time limit that a server may be silent before it is given up."""

_NO_LIMIT = 2**64 - 1

Row = tuple[Any, ...]


class Answer(NamedTuple):
    """What one statement came to."""

    rows: tuple[Row, ...]
    affected: int
    number: int
    """LAST_INSERT_ID, if the statement has set it."""


class Link:
    """Used by one thread at a time. Whatever breaks it closes it."""

    def __init__(self, settings: Settings) -> None:
        """`Unreachable` if it cannot be opened."""
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
            raise Unreachable(_one_line(_message(error))) from None
        self._settings = settings
        self._heard: list[Answer] | None = None
        """What has come of the packet that was sent last, and what it was that ended it."""
        self._trouble: Refused | Broken | None = None
        self._owes = False
        """Is the server still to answer?"""
        self.mark: bytes | None = None
        """Which server this is, if it has been asked. See servers.py."""
        self._ready = select.poll()
        self._ready.register(self._connection._sock, select.POLLIN)  # type: ignore[attr-defined]

    def prepare(self) -> None:
        """Settles what this connection is to be like, whatever the server's settings are."""
        limit = self._settings.statement_timeout
        # For rows, and for whole tables, which backups lock. The server waits in whole seconds. Half of the time, so that there is time to
        # try again.
        wait = max(1, math.floor(self._settings.lock_timeout / 2))
        maria = "mariadb" in self._connection.get_server_info().lower()  # type: ignore[no-untyped-call]
        self.run(
            "SET NAMES binary; SET SESSION autocommit = 1, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
            f" SESSION innodb_lock_wait_timeout = {wait}, SESSION lock_wait_timeout = {wait},"
            # Somebody may have set these for all, against slips of people who type statements.
            f" SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1, SESSION sql_select_limit = {_NO_LIMIT},"
            f" SESSION {f'max_statement_time = {limit}' if maria else f'max_execution_time = {round(limit * 1000)}'};"
            " SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".encode()
        )

    @property
    def is_whole(self) -> bool:
        """Is it open, and neither a transaction left so nor an answer that nobody has read?"""
        status: int = self._connection.server_status  # type: ignore[attr-defined]
        return bool(self._connection.open) and not self._owes and not status & SERVER_STATUS.SERVER_STATUS_IN_TRANS

    @property
    def is_alive(self) -> bool:
        """And has the server said nothing, such as farewell, as far as can be told without asking it?"""
        return self.is_whole and not self._ready.poll(0)

    def run(self, packet: bytes) -> list[Answer]:
        """One packet of statements; what each came to. The first that is refused ends it."""
        self.send(packet)
        return self.answers()

    def send(self, packet: bytes) -> None:
        """The first half of it. The driver's cursors know no halves; what they do besides is not needed."""
        self._heard = self._trouble = None
        self._owes = True
        try:
            self._connection._execute_command(COMMAND.COM_QUERY, packet)  # type: ignore[attr-defined]
        except pymysql.MySQLError as error:
            raise self._fault(error, 0) from None

    def await_answers(self) -> None:
        """Between the halves, in any thread: takes in what comes. What is wrong is told with the answers."""
        connection: Any = self._connection
        heard: list[Answer] = []
        more = True
        try:
            while more:
                connection.next_result()
                result = connection._result
                heard.append(Answer(result.rows or (), result.affected_rows, result.insert_id))
                more = result.has_next
        except pymysql.MySQLError as error:
            self._trouble = self._fault(error, len(heard))
        self._heard = heard
        self._owes = False

    def answers(self) -> list[Answer]:
        """The second half."""
        if self._heard is None:
            self.await_answers()
        if self._trouble is not None:
            raise self._trouble
        assert self._heard is not None
        return self._heard

    def exchange(self, statements: Sequence[bytes]) -> list[Answer]:
        """Several statements in one packet."""
        return self.run(b";\n".join(statements))

    def rows(self, statement: Statement, **values: Value) -> tuple[Row, ...]:
        """One statement with these values; its rows."""
        return self.run(statement.filled(**values))[0].rows

    def roll_back(self) -> None:
        """Ends a transaction that did not get to its end."""
        self.run(b"ROLLBACK")

    def _fault(self, error: pymysql.MySQLError, done: int) -> Refused | Broken:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        message = _one_line(_message(error))
        if code in LOST or not self._connection.open:
            self.close()
            return Broken(f"the server was silent for {self._patience:g} s" if "timed out" in message else message)
        return Refused(code, message, done)

    @property
    def _patience(self) -> float:
        return self._settings.statement_timeout + SILENCE

    def close(self) -> None:
        """Ends it."""
        if self._connection.open:
            self._connection.close()


def open_link(settings: Settings) -> Link:
    """One that is ready for use; `Unreachable` if there is none to be had."""
    link = Link(settings)
    try:
        link.prepare()
    except (Broken, Refused) as error:
        link.close()
        raise Unreachable(str(error)) from None
    return link


def _message(error: Exception) -> str:
    return str(error.args[1]) if len(error.args) > 1 else str(error)


def _one_line(text: str) -> str:
    return " ".join(text.split())
