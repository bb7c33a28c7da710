"""All exceptions of Genlock, as one tree.

A refusal (a denied claim, a stale result) is an answer and never an exception; see
`genlock.core.reasons`. Exceptions are for the caller's mistakes and for failures of the machine,
the store or the network.

    GenlockError
    ├── BadArgument             the call itself is wrong; nothing was changed
    │   ├── ResultTooLarge      submit a reference to the result instead
    │   ├── PlanInvalid         carries every fault found in a plan
    │   ├── MethodRefused       this path does not take this HTTP method
    │   ├── KindRefused         the body's content type is not JSON
    │   ├── HostRefused         the request is for a host that the service does not answer for
    │   └── OperationMismatch   an operation id was used again with other arguments
    ├── NotFound
    │   ├── TaskNotFound
    │   ├── SessionNotFound
    │   ├── TenantNotFound
    │   ├── KeyNotFound         no such key of this tenant
    │   ├── ResultNotFound      no such refused result, or no such payload
    │   ├── ReviewNotFound      the task has no result that waits for a review
    │   ├── PromotionNotFound   no result with products was accepted there
    │   ├── ProductNotFound     no such asset, or no such draft
    │   ├── RouteNotFound       nothing at this path of the service that this caller may see
    │   └── StoreMissing        there is no store at this URL yet; says how to make one
    ├── NotAllowed              the record's state forbids this call (cancel a completed task, …)
    │   ├── TaskExists
    │   ├── ClaimDenied         a claim was needed and not granted; carries the answer
    │   ├── LiveClaim           the task has a live holder, and the call did not say to take over
    │   ├── LimitReached        one more would exceed a limit of the tenant
    │   └── SessionEnded
    ├── AccessRefused           the service does not let this caller do this
    │   ├── KeyRefused          no key, or one that is wrong, expired or revoked
    │   └── RoleRefused         the key is good, but not for this
    ├── ServiceError            between client and service
    │   ├── ServiceUnreachable  no answer: the call may or may not have been carried out
    │   ├── ServiceMismatch     client and service are of versions that do not understand each other
    │   └── TooManyRequests     over the limit of requests; says when to retry
    ├── CursorLost              the feed cannot be continued from this cursor; start again
    ├── CounterExhausted
    ├── Busy                    others kept changing the record until the deadline; try again
    ├── Closed                  the coordinator is closed
    └── StoreError
        ├── StoreUnavailable    cannot be reached or locked now; nothing was written
        ├── OutcomeUnknown      the connection broke inside a commit; the write may have committed
        ├── StoreFull
        ├── StoreReadOnly
        ├── StoreCorrupt        the bytes are not what was written; names what and where
        ├── StoreForeign        not a Genlock store, or one of a newer format
        ├── StoreOutdated       of an older format; `genlock db migrate` brings it up to date
        └── OverLimit           a change is larger than this store takes; nothing was written
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class GenlockError(Exception):
    """The root of everything Genlock raises on purpose."""

    code = "GENLOCK_ERROR"
    """The stable upper-case name for machines: `TaskNotFound` → `TASK_NOT_FOUND`."""

    _try_next: tuple[tuple[str, ...], ...] = ()

    @property
    def message(self) -> str:
        """The error as a sentence."""
        return str(self)

    @property
    def try_next(self) -> tuple[tuple[str, ...], ...]:
        """Commands to try next, each as a tuple of words. A command at the end of the message comes
        first."""
        ending = _command_at_end(str(self))
        return (*ending, *(words for words in self._try_next if words not in ending))

    def advise(self, commands: Iterable[Sequence[str]]) -> None:
        """Sets the commands to try next."""
        self._try_next = tuple(map(tuple, commands))

    def __init_subclass__(cls) -> None:
        cls.code = "".join(
            "_" + letter if letter.isupper() and at else letter
            for at, letter in enumerate(cls.__name__)
        ).upper()

    def __str__(self) -> str:
        """Returns the message made safe to show: it may contain any text from a service, a database
        or a file, and a traceback prints it on a terminal."""
        from genlock.safe_text import safe_text  # imported late: most programs show no error

        return safe_text(super().__str__())


def _command_at_end(message: str) -> tuple[tuple[str, ...], ...]:
    """Returns the command at the end of a message, as in `to make one, type: genlock init`."""
    _, colon, command = message.rpartition(": genlock ")
    if not colon or any(mark in command for mark in ("\n", ", ", "; ", ". ", " (")):
        return ()
    from shlex import split

    try:
        return (("genlock", *split(command)),)
    except ValueError:  # a quotation mark that belongs to the sentence
        return ()


class BadArgument(GenlockError, ValueError):
    """The call is wrong as written; nothing was changed."""


class ResultTooLarge(BadArgument):
    """The result is over the tenant's limit; the claim is untouched."""


class OperationMismatch(BadArgument):
    """The same operation id came again with other arguments."""


class PlanInvalid(BadArgument):
    """A plan with faults; `faults` has them all, in the order of the plan.

    `notes` has warnings: parts that are valid but perhaps not intended.
    """

    def __init__(self, faults: Sequence[object], notes: Sequence[object] = ()) -> None:
        self.faults = faults
        self.notes = notes
        super().__init__(
            "the plan was refused and nothing was written:\n"
            + "\n".join(f"  - {fault}" for fault in faults)
        )

    def __reduce__(self) -> tuple[type[PlanInvalid], tuple[Sequence[object], Sequence[object]]]:
        """Makes the error picklable: the copy is built from the faults, not from the message."""
        return type(self), (self.faults, self.notes)


class MethodRefused(BadArgument):
    """This path of the service does not take this HTTP method; the message says which it takes."""

    allowed: tuple[str, ...] = ()


class KindRefused(BadArgument):
    """The request's body is not said to be JSON."""


class HostRefused(BadArgument):
    """The request is for a host that this service does not answer for."""


class NotFound(GenlockError, LookupError):
    """What the call names does not exist."""


class TaskNotFound(NotFound):
    """There is no such task in this project."""

    _try_next = (("genlock", "status"),)


class SessionNotFound(NotFound):
    """There is no such session in this project."""

    _try_next = (("genlock", "sessions"),)


class TenantNotFound(NotFound):
    """There is no such tenant in this store."""

    _try_next = (("genlock", "tenant", "list"),)


class KeyNotFound(NotFound):
    """There is no such key, or it is another tenant's."""

    _try_next = (("genlock", "keys", "list"),)


class ResultNotFound(NotFound):
    """There is no such refused result, or its bytes are gone."""

    _try_next = (("genlock", "refused"),)


class ReviewNotFound(NotFound):
    """The task has no result that waits for a review."""

    _try_next = (("genlock", "review", "list"),)


class PromotionNotFound(NotFound):
    """No result with products was accepted of this task at this generation."""

    _try_next = (("genlock", "product", "list"),)


class ProductNotFound(NotFound):
    """There is no such asset, or no such draft."""

    _try_next = (("genlock", "product", "list"),)


class RouteNotFound(NotFound):
    """There is nothing at this path of the service, or nothing that this caller may see."""


class StoreMissing(NotFound):
    """There is no store here yet, and none was to be created."""


class NotAllowed(GenlockError):
    """The record is not in a state that admits this call."""


class TaskExists(NotAllowed):
    """A task of this id exists already, with another definition."""


class ClaimDenied(NotAllowed):
    """A claim was needed and not granted: `ClaimResult.require` raises it."""

    result: Any = None
    """The answer to the claim."""


class LiveClaim(NotAllowed):
    """Somebody holds the task: only an explicit override takes a live claim away."""


class LimitReached(NotAllowed):
    """One more would be over a limit of the tenant; the message names it."""


class SessionEnded(NotAllowed):
    """The session has ended; register a new one."""


class AccessRefused(GenlockError):
    """The service does not let this caller do this."""


class KeyRefused(AccessRefused):
    """There is no key, or it is wrong, expired or revoked."""


class RoleRefused(AccessRefused):
    """The key is good, but its role or its session does not cover this."""


class ServiceError(GenlockError):
    """Something between client and service."""


class ServiceUnreachable(ServiceError):
    """The service gave no answer in time, however often it was asked. The message says whether
    something may have been done."""


class ServiceMismatch(ServiceError):
    """Client and service do not speak the same language; the message says which of them to
    renew."""


class TooManyRequests(ServiceError):
    """More requests than allowed; the message names the limit and when to come again."""


class CursorLost(GenlockError):
    """The feed cannot be continued from this cursor: events may be missing. Read from the start, or
    from the tail."""

    _try_next = (("genlock", "events"),)


class CounterExhausted(GenlockError):
    """A counter has given out its last id."""


class Busy(GenlockError):
    """The deadline passed before the command could be carried out. Nothing was decided; try
    again."""


class Closed(GenlockError):
    """The coordinator is closed, or was closed before this call was carried out."""


class StoreError(GenlockError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or locked now; nothing was written."""

    _try_next = (("genlock", "doctor"),)


class OutcomeUnknown(StoreError):
    """The store broke off inside a commit: it may have been done or not."""

    _try_next = (("genlock", "doctor"),)


class StoreFull(StoreError):
    """No room is left; nothing was written."""

    _try_next = (("genlock", "doctor"),)


class StoreReadOnly(StoreError):
    """The store can only be read."""


class StoreCorrupt(StoreError):
    """The store's content is damaged; the message names what and where."""

    _try_next = (("genlock", "doctor"),)


class StoreForeign(StoreError):
    """The file or server is not a Genlock store, or a newer one than this version knows."""


class StoreOutdated(StoreError):
    """The store is of an older format than this version works with, and is not brought up to date
    by whoever opens it."""


class OverLimit(StoreError):
    """A change exceeds what this store takes; nothing of the commit was written."""
