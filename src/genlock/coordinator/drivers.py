"""Scripts: each operation is written once, as a generator that asks the engine and reads the store;
two drivers run it.

    def claim_task(self, *, …) -> Script[ClaimResult]:
        job = yield Ask([command])
        return job.only()

`synchronous` makes a plain method of it, `asynchronous` a coroutine method. There is no second
implementation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct

from genlock.engine.engine import Engine
from genlock.engine.jobs import Job, Request
from genlock.errors import Busy, Closed, GenlockError, OutcomeUnknown, StoreUnavailable
from genlock.shortages import shortage_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

UNDONE = (Busy, Closed, StoreUnavailable)
"""Errors that say that nothing was done. In an operation of several steps that is wrong once a step
has been carried out."""


class Ask(Struct, frozen=True):
    """Requests for the engine, answered together; `patience` is how much longer than usual the
    answer may take."""

    requests: Sequence[Request]
    patience: float = 0
    prepares: bool = False
    """Does the step only prepare the project for the request, and not count as part of it?"""


class Read(Struct, frozen=True):
    """A blocking read of the store, or another repeatable call. The driver repeats it while the
    store is unavailable, and raises its error inside the script."""

    function: Callable[[], Any]


Script: TypeAlias = Generator[Ask | Read, Any, R]


def run(engine: Engine, script: Script[R]) -> R:
    """Runs a script in the calling thread."""
    jobs: list[Job] = []
    try:
        step = next(script)
        while True:
            if type(step) is Ask:
                answer: Any = engine.ask(step.requests, patience=step.patience)
                if not step.prepares:
                    jobs.append(answer)
            else:
                try:
                    answer = engine.read(step.function)  # type: ignore[union-attr]
                except GenlockError as error:
                    step = script.throw(error)  # the script may handle it
                    continue
            step = script.send(answer)
    except StopIteration as done:
        result: R = done.value
        return result
    except UNDONE as error:
        if not _was_begun(jobs):
            raise
        raise _half_done(error) from error
    except OSError as error:
        raise _short(error, jobs) from error


def _was_begun(jobs: Sequence[Job]) -> bool:
    """Has an earlier step of the operation, or another command of the failed step, been carried
    out?"""
    return not all(isinstance(outcome, GenlockError) for job in jobs for outcome in job.results)


def _half_done(error: GenlockError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{error}. That was not all of it, and the rest was done: look, or ask again"
    )


def _short(error: OSError, jobs: Sequence[Job]) -> Exception:
    """Returns the exception for an OS error in the script itself, for example in a late import."""
    shortage = shortage_of(error)
    if shortage is None:
        return error
    return _half_done(shortage) if _was_begun(jobs) else shortage


def synchronous(
    operation: Callable[Concatenate[S, P], Script[R]],
) -> Callable[Concatenate[Any, P], R]:
    """Makes the operation a plain method of `Coordinator`."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        operations = self._operations()
        return run(operations.engine, operation(operations, *args, **kwargs))

    return _named(method, operation)


def asynchronous(
    operation: Callable[Concatenate[S, P], Script[R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Makes the operation a coroutine method of `AsyncCoordinator`; only reads need a thread.

    The driver is inlined in the method: a second coroutine would add a tenth to the cost of a call
    in the event loop.
    """

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        operations = self._operations()
        engine = operations.engine
        script = operation(operations, *args, **kwargs)
        loop = _running_loop()()
        jobs: list[Job] = []
        try:
            step = next(script)
            while True:
                if type(step) is Ask:
                    job = engine.submit(step.requests, loop=loop, patience=step.patience)
                    try:
                        await job.future
                    except BaseException:  # the call was cancelled
                        engine.abandon(job)
                        raise
                    answer: Any = job
                    if not step.prepares:
                        jobs.append(job)
                else:
                    try:
                        answer = await loop.run_in_executor(None, engine.read, step.function)  # type: ignore[union-attr]
                    except GenlockError as error:
                        step = script.throw(error)
                        continue
                step = script.send(answer)
        except StopIteration as done:
            result: R = done.value
            return result
        except UNDONE as error:
            if not _was_begun(jobs):
                raise
            raise _half_done(error) from error
        except OSError as error:
            raise _short(error, jobs) from error

    return _named(method, operation)


@functools.cache
def _running_loop() -> Callable[[], AbstractEventLoop]:
    """Returns asyncio's `get_running_loop`. Imported late: programs without an event loop need not
    load asyncio."""
    from asyncio import get_running_loop

    return get_running_loop


F = TypeVar("F", bound=Callable[..., Any])
_SCRIPT = "Script["


def _named(method: F, operation: Callable[..., Any]) -> F:
    """Copies the operation's name, docstring and signature for `help()` and tracebacks;
    `functools.wraps` would change the type.

    `help()` shows the result type of the call, not the script that computes it."""
    answer = operation.__annotations__.get("return", "")
    if isinstance(answer, str) and answer.startswith(_SCRIPT):
        operation.__annotations__["return"] = answer.removeprefix(_SCRIPT)[:-1]
    functools.update_wrapper(method, operation)
    return method
