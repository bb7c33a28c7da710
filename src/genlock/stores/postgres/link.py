"""One connection: a statement goes out, its answer comes back, and neither waits for ever.

psycopg opens it; the exchange is ours, on psycopg's libpq. A cursor takes 100 µs for what these few lines take 10, and it would wait
for a server that has fallen silent until the kernel gives up.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterable, Sequence

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from genlock.stores.links import Unreachable
from genlock.stores.postgres.faults import Broken, Refused
from genlock.stores.postgres.settings import Settings
from genlock.stores.postgres.wire import Value, encode, rows_of
from genlock.stores.sending import Course

SILENCE = 5.0
"""Seconds after its own time limit that a server may be silent before it is given up."""

Values = Sequence[bytes | None]

_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)
_BINARY = 1


class Link:
    """Used by one thread at a time. Whatever breaks it closes it."""

    def __init__(self, settings: Settings, conninfo: str | None = None) -> None:
        """`Unreachable` if it cannot be opened."""
        self._settings = settings
        self._patience = settings.statement_timeout + SILENCE
        self._prepared: dict[str, bytes] = {}
        self._until = 0.0
        """When one gives up on the answer to what was sent last."""
        self._trouble: Broken | None = None
        """What has come instead of it."""
        self.heeded = False
        """Has the server been asked which one it is? See servers.py."""
        try:
            self._connection = psycopg.connect(conninfo or settings.conninfo, autocommit=True)
        except (psycopg.Error, OSError) as error:  # the driver lets out what the system says while it waits
            raise Unreachable(_one_line(str(error))) from None
        self.pg: PGconn = self._connection.pgconn
        self._reading, self._either = select.poll(), select.poll()
        self._reading.register(self.pg.socket, select.POLLIN)
        self._either.register(self.pg.socket, select.POLLIN | select.POLLOUT)

    def prepare(self) -> None:
        """Settles what this connection is to be like. Behind a pooler it is another's tomorrow, and stays as it is."""
        if not self._settings.pooled:
            self.script(
                "SET default_transaction_isolation = 'read committed'; SET client_min_messages = error;"
                # Our statements go along indexes, in their order, from row to row. A plan that was made while a table was small, or
                # before anybody has counted its rows, would as soon read all of it, and sort that.
                "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;"
                "SET enable_hashjoin = off; SET enable_mergejoin = off;"
                f"SET statement_timeout = {round(self._settings.statement_timeout * 1000)};"
                f"SET lock_timeout = {round(self._settings.lock_timeout * 1000)};"
                f"SET idle_in_transaction_session_timeout = {round(self._settings.statement_timeout * 3000)}"
            )

    @property
    def is_whole(self) -> bool:
        """Is it open, and between two statements?"""
        return self.pg.status == ConnStatus.OK and self.pg.transaction_status == TransactionStatus.IDLE

    @property
    def is_alive(self) -> bool:
        """And has the server said nothing, such as farewell, as far as can be told without asking it?"""
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
        """One statement with values that are encoded already; its answer in binary."""
        self.send(statement, values)
        return self.answer()

    def send(self, statement: str, values: Values) -> None:
        """The first half of a call: the server has it, or as much of it as it has room for."""
        self._prepare_all([statement])
        self._until = time.monotonic() + self._patience
        self._ask(statement, values)

    def await_answer(self) -> None:
        """Between the halves, in any thread: returns when there is something to be heard. What is wrong is told with the answer."""
        try:
            self._flush(self._until)
            self._wait(self._reading, self._until)
        except Broken as trouble:
            self._trouble = trouble

    def answer(self) -> PGresult:
        """The second half."""
        if self._trouble is not None:
            raise self._trouble
        return self._answer(self._until)

    def calls(self, asked: Sequence[tuple[str, Values]]) -> list[PGresult]:
        """Several statements in one trip; they stand or fall together, so they are for reading."""
        if len(asked) == 1:
            return [self.call(*asked[0])]
        self._prepare_all([statement for statement, _ in asked])
        pg = self.pg
        self._send(pg.enter_pipeline_mode)
        for statement, values in asked:
            self._ask(statement, values)
        self._send(pg.pipeline_sync)
        answers = self._answers(len(asked))
        self._send(pg.exit_pipeline_mode)
        return answers

    def called(self, asked: Sequence[tuple[str, Values]]) -> Course[list[PGresult]]:
        """One statement that only reads, in two steps."""
        ((statement, values),) = asked
        self.send(statement, values)
        yield self.await_answer
        return [self.answer()]

    def _prepare_all(self, statements: Iterable[str]) -> None:
        """Makes them known to the server; behind a pooler it is another one tomorrow."""
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
            self._send(self.pg.send_query_params, statement.encode(), values, None, formats, _BINARY)
        else:
            self._send(self.pg.send_query_prepared, name, values, formats, _BINARY)

    def rows(self, statement: str, *values: Value) -> list[tuple[object, ...]]:
        """One statement with plain values; its rows."""
        return rows_of(self.call(statement, [encode(value) for value in values]))

    def script(self, text: str) -> None:
        """Several statements without values, in one round trip."""
        self._send(self.pg.send_query, text.encode())
        self._answer()

    def _send(self, send: Callable[..., None], *arguments: object) -> None:
        try:
            send(*arguments)
        except psycopg.Error as error:
            raise self._broken(str(error)) from None

    def _answer(self, deadline: float | None = None) -> PGresult:
        """The last answer to what was sent; the first error among them is raised."""
        deadline = deadline or time.monotonic() + self._patience
        self._flush(deadline)
        results = self._results(deadline)
        refused = next((result for result in results if result.status not in _DONE), None)
        if refused is not None:
            raise self._refusal(refused)
        if not results or self.pg.status != ConnStatus.OK:
            raise self._broken("the connection is gone")
        return results[-1]

    def _answers(self, number: int) -> list[PGresult]:
        """The answers to so many statements of one trip, and the end of the trip. The first error among them is raised."""
        deadline = time.monotonic() + self._patience
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
        """Sends what has not been sent yet. What comes back meanwhile is taken in: a server that cannot go on talking does not listen."""
        pg = self.pg
        try:
            while pg.flush():
                self._wait(self._either, deadline)
                pg.consume_input()
        except psycopg.Error as error:
            raise self._broken(str(error)) from None

    def _results(self, deadline: float, most: int = sys.maxsize) -> list[PGresult]:
        """What the server says to one thing that it was asked."""
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
            raise self._broken(f"the server was silent for {self._patience:g} s")

    def _refusal(self, result: PGresult) -> Refused:
        state = result.error_field(DiagnosticField.SQLSTATE)
        message = result.error_field(DiagnosticField.MESSAGE_PRIMARY)
        if state is None:
            raise self._broken((result.error_message or b"").decode(errors="replace"))
        return Refused(state.decode(), (message or b"").decode(errors="replace"))

    def _broken(self, reason: str) -> Broken:
        self.close()
        return Broken(_one_line(reason))

    def notified(self) -> list[str]:
        """The payloads of what has arrived. `Broken` if the connection is gone."""
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


def prepared_link(settings: Settings) -> Link:
    """A connection as it is to be; `Unreachable` if there is none to be had."""
    link = Link(settings)
    try:
        link.prepare()
    except (Broken, Refused) as error:
        link.close()
        raise Unreachable(str(error)) from None
    return link


def _one_line(text: str) -> str:
    return " ".join(text.split())
