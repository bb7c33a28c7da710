"""What DynamoDB and its driver say when something goes wrong, in our words. The only place that knows both."""

from __future__ import annotations

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

from genlock.errors import StoreError, StoreForeign, StoreUnavailable

DRIVER_ERRORS = (ClientError, BotoCoreError)

_THROTTLED = frozenset({
    "ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "RequestLimitExceeded", "LimitExceededException",
    "RequestThrottled", "SlowDown", "TransactionConflictException", "ReplicatedWriteConflictException",
})  # fmt: skip
_UNDER_WAY = "TransactionInProgressException"
_NO_ENTRY = frozenset({
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException", "ExpiredToken",
    "MissingAuthenticationToken", "MissingAuthenticationTokenException", "IncompleteSignature", "IncompleteSignatureException",
    "InvalidClientTokenId", "OptInRequired", "NotAuthorized",
})  # fmt: skip

_UNSENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_NO_CREDENTIALS = (
    NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, NoAuthTokenError, SSOError, TokenRetrievalError,
)  # fmt: skip
_UNSENDABLE = (*_NO_CREDENTIALS, ParamValidationError)


class Trouble(Enum):
    """What a failed call means for whoever made it."""

    NOT_NOW = auto()
    """Nothing was done; it may be repeated."""
    UNSURE = auto()
    """It may have been done or not; repeating it may help."""
    NEVER = auto()
    """Nothing was done, and repeating it does not help."""


def trouble_of(error: Exception) -> Trouble:
    """What this error means."""
    if isinstance(error, ClientError):
        if code_of(error) in _THROTTLED:
            return Trouble.NOT_NOW
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        return Trouble.UNSURE if status >= 500 or code_of(error) == _UNDER_WAY else Trouble.NEVER
    if isinstance(error, _UNSENT):
        return Trouble.NOT_NOW
    return Trouble.NEVER if isinstance(error, _UNSENDABLE) else Trouble.UNSURE


def code_of(error: ClientError) -> str:
    """The name that DynamoDB gives the error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def fault_of(error: Exception, table: str) -> StoreError:
    """Our error for one of the driver's."""
    if isinstance(error, _NO_CREDENTIALS):
        return StoreUnavailable(
            f"there are no AWS credentials for table {table}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile ({error})"
        )
    if not isinstance(error, ClientError):
        return StoreUnavailable(f"table {table} cannot be reached ({error}): check region, endpoint_url and the network")
    code = code_of(error)
    if code == "ResourceNotFoundException":
        return StoreForeign(f"there is no table {table} here, or it lacks an index: make one with `genlock db create dynamodb://{table}?…`")
    if code in _NO_ENTRY:
        return StoreUnavailable(f"table {table} does not let us in ({code}): check the credentials and what they allow")
    if trouble_of(error) is Trouble.NEVER:
        return StoreError(f"table {table} refused a request ({error})")
    return StoreUnavailable(f"table {table} cannot serve us now ({error}); nothing was written")


# Answers rather than faults, for our own use. Should one get out after all, it is an error of ours.


class ConditionFailed(StoreError):
    """The condition of a single write does not hold; nothing was written."""


class TooLarge(StoreError):
    """More bytes than one request may have, or one answer."""


class Cancelled(StoreError):
    """A transaction was cancelled; `reasons` has a code for each of its actions."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__(f"a transaction was cancelled: {', '.join(sorted(set(reasons) - {NO_REASON}))}")

    @property
    def is_passing(self) -> bool:
        """Was it only that others were at the same items, or that there was too much traffic?"""
        return CONDITION not in self.reasons and bool(_PASSING.intersection(self.reasons))


NO_REASON = "None"
CONDITION = "ConditionalCheckFailed"
_PASSING = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded"}


def raise_answer(error: Exception) -> None:
    """Raises what is an answer rather than a fault."""
    cancelled = cancelled_by(error)
    if cancelled is not None:
        raise cancelled from error
    if isinstance(error, ClientError) and code_of(error) == "ConditionalCheckFailedException":
        raise ConditionFailed from error
    if isinstance(error, ClientError) and code_of(error) == "ValidationException" and "size" in str(error):
        raise TooLarge from error


def cancelled_by(error: Exception) -> Cancelled | None:
    """What it says of a transaction that was cancelled, if that is what it says."""
    if not isinstance(error, ClientError) or code_of(error) != "TransactionCanceledException":
        return None
    found: list[dict[str, Any]] = error.response.get("CancellationReasons") or []
    return Cancelled([str(reason.get("Code", NO_REASON)) for reason in found])
