"""Calls to DynamoDB: repeated with growing, random pauses as long as there is hope, and told apart by what a failure means."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any

from genlock.errors import OutcomeUnknown
from genlock.stores.dynamodb.clock import ServerClock
from genlock.stores.dynamodb.faults import DRIVER_ERRORS, Trouble, cancelled_by, fault_of, raise_answer, trouble_of

PATIENCE_SECONDS = 4.0
"""How long a call is repeated."""
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.4


class Pauses:
    """How long to wait before the next try: a random part of a time that doubles. Until the deadline has passed, or `stop` is set."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._deadline = time.monotonic() + PATIENCE_SECONDS
        self._longest = FIRST_PAUSE

    def pause(self) -> bool:
        """Waits; False if there is no time left."""
        seconds = random.uniform(0, self._longest)
        self._longest = min(self._longest * 2, LONGEST_PAUSE)
        if time.monotonic() + seconds > self._deadline:
            return False
        return not self._stop.wait(seconds)


class Calls:
    """The calls of one store. Any thread may use it."""

    def __init__(self, client: Any, table: str, clock: ServerClock, stop: threading.Event) -> None:
        self._client = client
        self._clock = clock
        self.table = table
        self.stop = stop

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """An answer to something that may be done twice; `ConditionFailed`, `Cancelled` or `TooLarge` if that is the answer."""
        pauses = Pauses(self.stop)
        while True:
            try:
                return self._once(operation, parameters)
            except DRIVER_ERRORS as error:
                raise_answer(error)
                if trouble_of(error) is Trouble.NEVER or not pauses.pause():
                    raise fault_of(error, self.table) from error

    def call_once(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """An answer to something that must not be done twice; `OutcomeUnknown` if it may have been done."""
        pauses = Pauses(self.stop)
        while True:
            try:
                return self._once(operation, parameters)
            except DRIVER_ERRORS as error:
                raise_answer(error)
                if trouble_of(error) is Trouble.UNSURE:
                    raise self.unknown(error) from error
                if trouble_of(error) is Trouble.NEVER or not pauses.pause():
                    raise fault_of(error, self.table) from error

    def transact(self, actions: Sequence[dict[str, Any]], *, insist: bool = True) -> None:
        """All the actions or none; `Cancelled` if a condition does not hold, or, to who does not insist, if others were at the same items.

        After an answer that was lost the same is asked again under the same token, which DynamoDB answers as it did the first time.
        """
        pauses, token, unsure = Pauses(self.stop), secrets.token_hex(16), False
        while True:
            try:
                self._once("transact_write_items", {"TransactItems": actions, "ClientRequestToken": token})
                return
            except DRIVER_ERRORS as error:
                cancelled = cancelled_by(error)
                if cancelled is not None and unsure:
                    # By the first try, whose effect it sees, or by others: only the events themselves can tell.
                    raise self.unknown(error) from error
                if cancelled is not None and not (insist and cancelled.is_passing):
                    raise cancelled from error
                if cancelled is not None:
                    token = secrets.token_hex(16)  # what was cancelled is not repeated but asked anew
                unsure = unsure or trouble_of(error) is Trouble.UNSURE
                hopeless = cancelled is None and trouble_of(error) is Trouble.NEVER
                if hopeless or not pauses.pause():
                    raise (self.unknown(error) if unsure else fault_of(error, self.table)) from error

    def unknown(self, error: Exception) -> OutcomeUnknown:
        """What to say when the last word of the server was lost."""
        return OutcomeUnknown(f"table {self.table}: the connection broke off inside a commit ({error}); it may have been done or not")

    def _once(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        asked = time.monotonic()
        answer: dict[str, Any] = getattr(self._client, operation)(**parameters)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is not None:
            self._clock.heard(date, asked, time.monotonic())
        return answer
