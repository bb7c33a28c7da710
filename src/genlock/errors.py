"""What can go wrong, as one tree.

A refusal (a denied claim, a stale result) is an answer and never an exception; see `genlock.core.reasons`.
Exceptions are for the caller's mistakes and for what the machine below us does.

    GenlockError
    ├── BadArgument             the call itself is wrong; nothing was changed
    │   ├── ResultTooLarge      submit a reference to the result instead
    │   ├── PlanInvalid         carries every fault found in a plan
    │   ├── MethodRefused       this path does not take this HTTP method
    │   ├── KindRefused         the body is not said to be JSON
    │   ├── HostRefused         the request is for a host that the service does not answer for
    │   └── OperationMismatch   an operation id was used again with other arguments
    ├── NotFound
    │   ├── TaskNotFound
    │   ├── SessionNotFound
    │   ├── TenantNotFound
    │   ├── KeyNotFound         no such key of this tenant
    │   ├── ResultNotFound      no such refused result, or no such payload
    │   ├── RouteNotFound       nothing is at this path of the service, or nothing that this caller sees
    │   └── StoreMissing        there is no store at this URL yet; says how to make one
    ├── NotAllowed              the state of the record does not admit this call (cancel a completed task, …)
    │   ├── TaskExists
    │   ├── LimitReached        the tenant has as many of them as it may have
    │   └── SessionEnded
    ├── AccessRefused           the service does not let this caller do this
    │   ├── KeyRefused          no key, or one that is wrong, expired or revoked
    │   └── RoleRefused         the key is good, but not for this
    ├── ServiceError            between client and service
    │   ├── ServiceUnreachable  no answer, and what was asked may or may not have been done; safe to repeat where it says so
    │   ├── ServiceMismatch     client and service are of versions that do not understand each other
    │   └── TooManyRequests     slower, please; says when to come again
    ├── CursorLost              the feed cannot be continued from this cursor; start anew
    ├── CounterExhausted
    ├── Busy                    the deadline passed while others kept changing the same record; try again
    ├── Closed                  the coordinator is closed
    └── StoreError
        ├── StoreUnavailable    cannot be reached or locked now; nothing was written
        ├── OutcomeUnknown      the connection broke inside a commit; the engine finds out what happened
        ├── StoreFull
        ├── StoreReadOnly
        ├── StoreCorrupt        the bytes are not what was written; names what and where
        ├── StoreForeign        not a Genlock store, or one of a newer format
        ├── StoreOutdated       of an older format; `genlock db migrate` brings it up to date
        └── OverLimit           a change is larger than this store takes; refused before anything was written
"""

from __future__ import annotations

from collections.abc import Sequence


class GenlockError(Exception):
    """The root of everything Genlock raises on purpose."""

    code = "GENLOCK_ERROR"
    """The stable upper-case name for machines: `TaskNotFound` → `TASK_NOT_FOUND`."""

    def __init_subclass__(cls) -> None:
        cls.code = "".join("_" + letter if letter.isupper() and at else letter for at, letter in enumerate(cls.__name__)).upper()


class BadArgument(GenlockError, ValueError):
    """The call is wrong as written; nothing was changed."""


class ResultTooLarge(BadArgument):
    """The result is over the tenant's limit; the claim is untouched."""


class OperationMismatch(BadArgument):
    """The same operation id came again with other arguments."""


class PlanInvalid(BadArgument):
    """A plan with faults; `faults` has them all, in the order of the plan.

    `notes` has what is no fault, but perhaps not meant.
    """

    def __init__(self, faults: Sequence[object], notes: Sequence[object] = ()) -> None:
        self.faults = faults
        self.notes = notes
        super().__init__("the plan was refused and nothing was written:\n" + "\n".join(f"  - {fault}" for fault in faults))

    def __reduce__(self) -> tuple[type[PlanInvalid], tuple[Sequence[object], Sequence[object]]]:
        """For a way to another process: it is made anew of its faults, not of its message."""
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


class SessionNotFound(NotFound):
    """There is no such session in this project."""


class TenantNotFound(NotFound):
    """There is no such tenant in this store."""


class KeyNotFound(NotFound):
    """There is no such key, or it is another tenant's."""


class ResultNotFound(NotFound):
    """There is no such refused result, or its bytes are gone."""


class RouteNotFound(NotFound):
    """There is nothing at this path of the service, or nothing that this caller may see."""


class StoreMissing(NotFound):
    """There is no store here yet, and none was to be created."""


class NotAllowed(GenlockError):
    """The record is not in a state that admits this call."""


class TaskExists(NotAllowed):
    """A task of this id exists already, with another definition."""


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
    """The service gave no answer in time, however often it was asked. The message says whether something may have been done."""


class ServiceMismatch(ServiceError):
    """Client and service do not speak the same language; the message says which of them to renew."""


class TooManyRequests(ServiceError):
    """More requests than allowed; the message names the limit and when to come again."""


class CursorLost(GenlockError):
    """The feed cannot be continued from this cursor: events may be missing. Read from the start, or from the tail."""


class CounterExhausted(GenlockError):
    """A counter has given out its last id."""


class Busy(GenlockError):
    """The deadline passed before the command could be carried out. Nothing was decided; try again."""


class Closed(GenlockError):
    """The coordinator is closed, or was closed before this call was carried out."""


class StoreError(GenlockError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or locked now; nothing was written."""


class OutcomeUnknown(StoreError):
    """The store broke off inside a commit: it may have been done or not."""


class StoreFull(StoreError):
    """No room is left; nothing was written."""


class StoreReadOnly(StoreError):
    """The store can only be read."""


class StoreCorrupt(StoreError):
    """The store's content is damaged; the message names what and where."""


class StoreForeign(StoreError):
    """The file or server is not a Genlock store, or a newer one than this version knows."""


class StoreOutdated(StoreError):
    """The store is of an older format than this version works with, and is not brought up to date by whoever opens it."""


class OverLimit(StoreError):
    """A change exceeds what this store takes; nothing of the commit was written."""
