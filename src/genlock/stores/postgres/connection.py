"""One connection: it sends statements and receives their answers, both with a time limit.

psycopg opens it, and this module uses psycopg's libpq directly. A cursor needs 100 µs where this
module needs 10, and it would wait for a silent server until the kernel gives up.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from genlock.stores.connection_pool import ConnectionBroken, Refused, ServerUnreachable
from genlock.stores.postgres.queries import Request, Statement, Value, rows_of
from genlock.stores.postgres.settings import Settings
from genlock.stores.round_trips import Steps

SILENCE = 5.0
"""How many seconds beyond its own time limit a server may be silent."""

Values = Sequence[bytes | None]

_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)
_BINARY = 1


class PostgresConnection:
    """One connection, used by one thread at a time. Any failure that leaves it unusable closes
    it."""

    def __init__(self, settings: Settings, conninfo: str | None = None) -> None:
        """Opens it, or raises `ServerUnreachable`."""
        self._settings = settings
        self._silence = settings.statement_timeout + SILENCE
        self._prepared: dict[str, bytes] = {}
        self._until = 0.0
        """The deadline of the answer to the last request."""
        self._trouble: ConnectionBroken | None = None
        """The error that came instead of the answer."""
        self.mark: str | None = None
        """Identifies the server; None until the server has been asked."""
        try:
            self._connection = psycopg.connect(conninfo or settings.conninfo, autocommit=True)
        except (psycopg.Error, OSError) as error:
            raise ServerUnreachable(_one_line(str(error))) from None
        self.pg: PGconn = self._connection.pgconn
        self._reading, self._either = select.poll(), select.poll()
        self._reading.register(self.pg.socket, select.POLLIN)
        self._either.register(self.pg.socket, select.POLLIN | select.POLLOUT)

    def prepare(self) -> None:
        """Configures the session. Behind a pooler the next user of the session is another client,
        so the session stays unchanged."""
        if not self._settings.pooled:
            self.command(
                "SET default_transaction_isolation = 'read committed'; SET client_min_messages = "
                "error;"
                # Our statements follow indexes from row to row. A plan made while a table was
                # small, or before its rows were counted, might read and sort all of it.
                "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET "
                "enable_sort = off;SET enable_hashjoin = off; SET enable_mergejoin = off;SET "
                f"statement_timeout = {round(self._settings.statement_timeout * 1000)};SET "
                f"lock_timeout = {round(self._settings.lock_timeout * 1000)};SET "
                "idle_in_transaction_session_timeout = "
                f"{round(self._settings.statement_timeout * 3000)}"
            )

    @property
    def is_whole(self) -> bool:
        """Is it open, and idle between two statements?"""
        return (
            self.pg.status == ConnStatus.OK and self.pg.transaction_status == TransactionStatus.IDLE
        )

    @property
    def is_alive(self) -> bool:
        """Is it whole, and not closed by the server, as far as can be told without a round trip?"""
        if not self.is_whole:
            return False
        if not self._reading.poll(0):
            return True
        try:
            self.pg.consume_input()
        except psycopg.Error:
            return False
        return self.pg.status == ConnStatus.OK and not self._reading.poll(0)

    def call(self, statement: str, values: Values) -> PGresult:
        """Runs one statement with encoded values. Returns its answer in binary."""
        self.send(statement, values)
        return self.answer()

    def send(self, statement: str, values: Values) -> None:
        """Sends a call: its first half."""
        self._prepare_all([statement])
        self._until = time.monotonic() + self._silence
        self._ask(statement, values)

    def await_answer(self) -> None:
        """Waits, between the halves, until an answer begins to arrive. Any thread may call it.
        `answer` raises any error."""
        try:
            self._flush(self._until)
            self._wait(self._reading, self._until)
        except ConnectionBroken as trouble:
            self._trouble = trouble

    def answer(self) -> PGresult:
        """Returns the answer: the second half of a call."""
        if self._trouble is not None:
            raise self._trouble
        return self._answer(self._until)

    def ask(self, requests: Sequence[Request]) -> list[PGresult]:
        """Runs several read-only statements in one round trip. If one fails, all fail."""
        if len(requests) == 1:
            return [self.call(*requests[0])]
        self._prepare_all([statement for statement, _ in requests])
        pg = self.pg
        self._send(pg.enter_pipeline_mode)
        for statement, values in requests:
            self._ask(statement, values)
        self._send(pg.pipeline_sync)
        answers = self._answers(len(requests))
        self._send(pg.exit_pipeline_mode)
        return answers

    def asked(self, requests: Sequence[Request]) -> Steps[list[PGresult]]:
        """Runs one read-only statement in two steps."""
        ((statement, values),) = requests
        self.send(statement, values)
        yield self.await_answer
        return [self.answer()]

    def _prepare_all(self, statements: Iterable[str]) -> None:
        """Prepares the statements, except behind a pooler, where the next call may use another
        session."""
        for statement in () if self._settings.pooled else statements:
            if statement not in self._prepared:
                name = b"genlock_%d" % len(self._prepared)
                self._send(self.pg.send_prepare, name, statement.encode())
                self._answer()
                self._prepared[statement] = name

    def _ask(self, statement: str, values: Values) -> None:
        formats = [_BINARY] * len(values)
        name = self._prepared.get(statement)
        if name is None:
            self._send(
                self.pg.send_query_params, statement.encode(), values, None, formats, _BINARY
            )
        else:
            self._send(self.pg.send_query_prepared, name, values, formats, _BINARY)

    def rows(self, statement: Statement, **values: Value) -> list[tuple[Any, ...]]:
        """Runs one statement with these values. Returns its rows."""
        return rows_of(self.call(*statement.filled(**values)))

    def command(self, text: str) -> None:
        """Runs statements without values, in one round trip."""
        self._send(self.pg.send_query, text.encode())
        self._answer()

    def _send(self, send: Callable[..., None], *arguments: object) -> None:
        try:
            send(*arguments)
        except psycopg.Error as error:
            raise self._broken(str(error)) from None

    def _answer(self, deadline: float | None = None) -> PGresult:
        """Returns the last answer to the last request. Raises the first error among the answers."""
        deadline = deadline or time.monotonic() + self._silence
        self._flush(deadline)
        results = self._results(deadline)
        refused = next((result for result in results if result.status not in _DONE), None)
        if refused is not None:
            raise self._refusal(refused)
        if not results or self.pg.status != ConnStatus.OK:
            raise self._broken("the connection is gone")
        return results[-1]

    def _answers(self, number: int) -> list[PGresult]:
        """Returns the answers to `number` statements of one round trip, and reads its end. Raises
        the first error among them."""
        deadline = time.monotonic() + self._silence
        self._flush(deadline)
        answers = [result for _ in range(number) for result in self._results(deadline)]
        ends = self._results(deadline, 1)
        refused = next((result for result in answers if result.status not in _DONE), None)
        if refused is not None:
            self._send(self.pg.exit_pipeline_mode)
            raise self._refusal(refused)
        if len(answers) != number or not ends or ends[0].status != ExecStatus.PIPELINE_SYNC:
            raise self._broken("the connection is gone")
        return answers

    def _flush(self, deadline: float) -> None:
        """Sends pending data, and receives meanwhile: a server that cannot send its answers stops
        reading."""
        pg = self.pg
        try:
            while pg.flush():
                self._wait(self._either, deadline)
                pg.consume_input()
        except psycopg.Error as error:
            raise self._broken(str(error)) from None

    def _results(self, deadline: float, most: int = sys.maxsize) -> list[PGresult]:
        """Returns the results of one statement."""
        pg = self.pg
        results: list[PGresult] = []
        try:
            while len(results) < most:
                while pg.is_busy():
                    self._wait(self._reading, deadline)
                    pg.consume_input()
                result = pg.get_result()
                if result is None:
                    break
                results.append(result)
        except psycopg.Error as error:
            raise self._broken(str(error)) from None
        return results

    def _wait(self, ready: select.poll, deadline: float) -> None:
        if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise self._broken(f"the server was silent for {self._silence:g} s")

    def _refusal(self, result: PGresult) -> Refused:
        state = result.error_field(DiagnosticField.SQLSTATE)
        message = result.error_field(DiagnosticField.MESSAGE_PRIMARY)
        if state is None:
            raise self._broken((result.error_message or b"").decode(errors="replace"))
        return Refused(state.decode(), (message or b"").decode(errors="replace"))

    def _broken(self, reason: str) -> ConnectionBroken:
        self.close()
        return ConnectionBroken(_one_line(reason))

    def notified(self) -> list[str]:
        """Returns the payloads of the notifications that have arrived. Raises `ConnectionBroken` if
        the connection is gone."""
        try:
            self.pg.consume_input()
            payloads = []
            while (notify := self.pg.notifies()) is not None:
                payloads.append(notify.extra.decode())
        except psycopg.Error as error:
            raise self._broken(str(error)) from None
        return payloads

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def connect(settings: Settings) -> PostgresConnection:
    """Opens a configured connection, or raises `ServerUnreachable`."""
    connection = PostgresConnection(settings)
    try:
        connection.prepare()
    except (ConnectionBroken, Refused) as error:
        connection.close()
        raise ServerUnreachable(str(error)) from None
    return connection


def _one_line(text: str) -> str:
    return " ".join(text.split())
