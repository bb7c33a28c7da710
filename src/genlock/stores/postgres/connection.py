"""One connection: it sends statements and receives their answers, and waits for neither for ever.

psycopg opens it, and this module uses psycopg's libpq directly. A cursor takes 100 µs for what
takes 10 here, and it would wait for a silent server until the kernel gives up.
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
"""Seconds beyond its own time limit that a server may be silent."""

Values = Sequence[bytes | None]

_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)
_BINARY = 1


class PostgresConnection:
    """Used by one thread at a time. Whatever breaks it closes it."""

    def __init__(self, settings: Settings, conninfo: str | None = None) -> None:
        """`ServerUnreachable` if it cannot be opened."""
        self._settings = settings
        self._silence = settings.statement_timeout + SILENCE
        self._prepared: dict[str, bytes] = {}
        self._until = 0.0
        """The deadline of the answer to what was sent last."""
        self._trouble: ConnectionBroken | None = None
        """What came instead of it."""
        self.mark: str | None = None
        """Which server this is; None until it has been asked."""
        try:
            self._connection = psycopg.connect(conninfo or settings.conninfo, autocommit=True)
        except (psycopg.Error, OSError) as error:
            raise ServerUnreachable(_one_line(str(error))) from None
        self.pg: PGconn = self._connection.pgconn
        self._reading, self._either = select.poll(), select.poll()
        self._reading.register(self.pg.socket, select.POLLIN)
        self._either.register(self.pg.socket, select.POLLIN | select.POLLOUT)

    def prepare(self) -> None:
        """Configures the session. Behind a pooler the session is somebody else's next, and stays as
        it is."""
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
        """Is it open, and between two statements?"""
        return (
            self.pg.status == ConnStatus.OK and self.pg.transaction_status == TransactionStatus.IDLE
        )

    @property
    def is_alive(self) -> bool:
        """Is it whole, and has the server not closed it, as far as can be told without asking?"""
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
        """One statement with encoded values; its answer in binary."""
        self.send(statement, values)
        return self.answer()

    def send(self, statement: str, values: Values) -> None:
        """The first half of a call."""
        self._prepare_all([statement])
        self._until = time.monotonic() + self._silence
        self._ask(statement, values)

    def await_answer(self) -> None:
        """Between the halves, in any thread: returns when an answer begins to arrive. `answer`
        raises what went wrong."""
        try:
            self._flush(self._until)
            self._wait(self._reading, self._until)
        except ConnectionBroken as trouble:
            self._trouble = trouble

    def answer(self) -> PGresult:
        """The second half."""
        if self._trouble is not None:
            raise self._trouble
        return self._answer(self._until)

    def ask(self, requests: Sequence[Request]) -> list[PGresult]:
        """Several statements that only read, in one round trip. They stand or fall together."""
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
        """One statement that only reads, in two steps."""
        ((statement, values),) = requests
        self.send(statement, values)
        yield self.await_answer
        return [self.answer()]

    def _prepare_all(self, statements: Iterable[str]) -> None:
        """Prepares them, except behind a pooler, where the next call may have another session."""
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
        """One statement with these values; its rows."""
        return rows_of(self.call(*statement.filled(**values)))

    def command(self, text: str) -> None:
        """Statements without values, in one round trip."""
        self._send(self.pg.send_query, text.encode())
        self._answer()

    def _send(self, send: Callable[..., None], *arguments: object) -> None:
        try:
            send(*arguments)
        except psycopg.Error as error:
            raise self._broken(str(error)) from None

    def _answer(self, deadline: float | None = None) -> PGresult:
        """The last answer to what was sent; the first error among them is raised."""
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
        """The answers to so many statements of one round trip, and its end. The first error among
        them is raised."""
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
        """Sends what has not been sent yet and receives meanwhile: a server that cannot go on
        sending does not read."""
        pg = self.pg
        try:
            while pg.flush():
                self._wait(self._either, deadline)
                pg.consume_input()
        except psycopg.Error as error:
            raise self._broken(str(error)) from None

    def _results(self, deadline: float, most: int = sys.maxsize) -> list[PGresult]:
        """The results of one statement."""
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
        """The payloads of what has arrived. `ConnectionBroken` if the connection is gone."""
        try:
            self.pg.consume_input()
            payloads = []
            while (notify := self.pg.notifies()) is not None:
                payloads.append(notify.extra.decode())
        except psycopg.Error as error:
            raise self._broken(str(error)) from None
        return payloads

    def close(self) -> None:
        """Ends it."""
        self._connection.close()


def connect(settings: Settings) -> PostgresConnection:
    """A configured connection; `ServerUnreachable` if there is none to be had."""
    connection = PostgresConnection(settings)
    try:
        connection.prepare()
    except (ConnectionBroken, Refused) as error:
        connection.close()
        raise ServerUnreachable(str(error)) from None
    return connection


def _one_line(text: str) -> str:
    return " ".join(text.split())
