"""Calls to DynamoDB: the meaning of their errors, and when they are retried."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoAuthTokenError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSOError,
    TokenRetrievalError,
)

from genlock.errors import OutcomeUnknown, StoreError, StoreForeign, StoreUnavailable
from genlock.retry import Backoff, Retry
from genlock.stores.dynamodb.connection import ServerClock

DRIVER_ERRORS = (ClientError, BotoCoreError)

_THROTTLED = frozenset({
    "ProvisionedThroughputExceededException", "ThrottlingException", "Throttling",
    "RequestLimitExceeded", "LimitExceededException",
    "RequestThrottled", "SlowDown", "TransactionConflictException",
    "ReplicatedWriteConflictException",
})  # fmt: skip
_UNDER_WAY = "TransactionInProgressException"
_NO_ENTRY = frozenset({
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException",
    "ExpiredTokenException", "ExpiredToken",
    "MissingAuthenticationToken", "MissingAuthenticationTokenException", "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId", "OptInRequired", "NotAuthorized",
})  # fmt: skip

_UNSENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_NO_CREDENTIALS = (
    NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, NoAuthTokenError,
    SSOError, TokenRetrievalError,
)  # fmt: skip
_UNSENDABLE = (*_NO_CREDENTIALS, ParamValidationError)


class FailureKind(Enum):
    """The consequence of a failed call for the caller."""

    NOT_NOW = auto()
    """Nothing was done; a retry may help."""
    UNSURE = auto()
    """It may or may not have been done; a retry may help."""
    NEVER = auto()
    """Nothing was done, and a retry does not help."""


def trouble_of(error: Exception) -> FailureKind:
    """Returns the kind of this error."""
    if isinstance(error, ClientError):
        if code_of(error) in _THROTTLED:
            return FailureKind.NOT_NOW
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        return (
            FailureKind.UNSURE
            if status >= 500 or code_of(error) == _UNDER_WAY
            else FailureKind.NEVER
        )
    if isinstance(error, _UNSENT):
        return FailureKind.NOT_NOW
    return FailureKind.NEVER if isinstance(error, _UNSENDABLE) else FailureKind.UNSURE


def code_of(error: ClientError) -> str:
    """Returns DynamoDB's name for the error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def fault_of(error: Exception, table: str) -> StoreError:
    """Returns our error for one of the driver's."""
    if isinstance(error, _NO_CREDENTIALS):
        return StoreUnavailable(
            f"there are no AWS credentials for table {table}: set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, or a profile ({error})"
        )
    if not isinstance(error, ClientError):
        return StoreUnavailable(
            f"table {table} cannot be reached ({error}): check region, endpoint_url and the network"
        )
    code = code_of(error)
    if code == "ResourceNotFoundException":
        return StoreForeign(
            f"there is no table {table} here, or it lacks an index: make one with `genlock db "
            f"create dynamodb://{table}?…`"
        )
    if code in _NO_ENTRY:
        return StoreUnavailable(
            f"table {table} does not let us in ({code}): check the credentials and what they allow"
        )
    if trouble_of(error) is FailureKind.NEVER:
        return StoreError(f"table {table} refused a request ({error})")
    return StoreUnavailable(f"table {table} cannot serve us now ({error}); nothing was written")


# Answers rather than faults, for use inside this store


class ConditionFailed(StoreError):
    """The condition of a single write does not hold; nothing was written."""


class TooLarge(StoreError):
    """More bytes than one request or one answer may have."""


class Cancelled(StoreError):
    """A transaction was cancelled; `reasons` has a code for each of its actions."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__(
            f"a transaction was cancelled: {', '.join(sorted(set(reasons) - {NO_REASON}))}"
        )

    @property
    def is_passing(self) -> bool:
        """Was the only reason contention or too much traffic?"""
        return CONDITION not in self.reasons and bool(_PASSING.intersection(self.reasons))


NO_REASON = "None"
CONDITION = "ConditionalCheckFailed"
_PASSING = {
    "TransactionConflict",
    "ThrottlingError",
    "ProvisionedThroughputExceeded",
    "RequestLimitExceeded",
}


def raise_answer(error: Exception) -> None:
    """Raises an error that is an answer rather than a fault."""
    cancelled = cancelled_by(error)
    if cancelled is not None:
        raise cancelled from error
    if isinstance(error, ClientError) and code_of(error) == "ConditionalCheckFailedException":
        raise ConditionFailed from error
    if (
        isinstance(error, ClientError)
        and code_of(error) == "ValidationException"
        and "size" in str(error)
    ):
        raise TooLarge from error


def cancelled_by(error: Exception) -> Cancelled | None:
    """Returns the reasons, if the error says that a transaction was cancelled."""
    if not isinstance(error, ClientError) or code_of(error) != "TransactionCanceledException":
        return None
    found: list[dict[str, Any]] = error.response.get("CancellationReasons") or []
    return Cancelled([str(reason.get("Code", NO_REASON)) for reason in found])


PATIENCE_SECONDS = 4.0
"""For how long a call is retried."""
BACKOFF = Backoff(first=0.005, longest=0.4)


class Pauses:
    """The attempts of one call, until the deadline has passed or `stop` is set."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._retry = Retry(BACKOFF, time.monotonic() + PATIENCE_SECONDS)

    def pause(self) -> bool:
        """Waits. Returns False if there is no time left."""
        seconds = self._retry.failed(time.monotonic())
        return seconds is not None and not self._stop.wait(seconds)


class Calls:
    """The calls of one store. Any thread may use it."""

    def __init__(self, client: Any, table: str, clock: ServerClock, stop: threading.Event) -> None:
        self._client = client
        self._clock = clock
        self.table = table
        self.stop = stop

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Returns the answer of a call that may be executed twice. Raises `ConditionFailed`,
        `Cancelled` or `TooLarge`."""
        pauses = Pauses(self.stop)
        while True:
            try:
                return self._once(operation, parameters)
            except DRIVER_ERRORS as error:
                raise_answer(error)
                if trouble_of(error) is FailureKind.NEVER or not pauses.pause():
                    raise fault_of(error, self.table) from error

    def call_once(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Returns the answer of a call that must not be executed twice. Raises `OutcomeUnknown` if
        it may have been executed."""
        pauses = Pauses(self.stop)
        while True:
            try:
                return self._once(operation, parameters)
            except DRIVER_ERRORS as error:
                raise_answer(error)
                if trouble_of(error) is FailureKind.UNSURE:
                    raise self.unknown(error) from error
                if trouble_of(error) is FailureKind.NEVER or not pauses.pause():
                    raise fault_of(error, self.table) from error

    def transact(self, actions: Sequence[dict[str, Any]], *, insist: bool = True) -> None:
        """Does all the actions or none. Raises `Cancelled` if a condition does not hold, or,
        without `insist`, if there was contention.

        After a lost answer it sends the same transaction again under the same token, and DynamoDB
        gives its first answer again.
        """
        pauses, token, unsure = Pauses(self.stop), secrets.token_hex(16), False
        while True:
            try:
                self._once(
                    "transact_write_items", {"TransactItems": actions, "ClientRequestToken": token}
                )
                return
            except DRIVER_ERRORS as error:
                cancelled = cancelled_by(error)
                if cancelled is not None and unsure:
                    # Cancelled by the effect of the first attempt, or by other writers: only the
                    # events tell.
                    raise self.unknown(error) from error
                if cancelled is not None and not (insist and cancelled.is_passing):
                    raise cancelled from error
                if cancelled is not None:
                    token = secrets.token_hex(16)  # a cancelled transaction is sent as a new one
                unsure = unsure or trouble_of(error) is FailureKind.UNSURE
                hopeless = cancelled is None and trouble_of(error) is FailureKind.NEVER
                if hopeless or not pauses.pause():
                    raise (
                        self.unknown(error) if unsure else fault_of(error, self.table)
                    ) from error

    def unknown(self, error: Exception) -> OutcomeUnknown:
        """Returns the error for an answer that was lost."""
        return OutcomeUnknown(
            f"table {self.table}: the connection broke off inside a commit ({error}); it may have "
            "been done or not"
        )

    def _once(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        asked = time.monotonic()
        answer: dict[str, Any] = getattr(self._client, operation)(**parameters)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is not None:
            self._clock.observe(date, asked, time.monotonic())
        return answer
