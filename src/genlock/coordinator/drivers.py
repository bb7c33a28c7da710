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
"""What these say is that nothing was done. Of an operation of several steps that is not true once
one of them was."""


class Ask(Struct, frozen=True):
    """Requests for the engine, answered together; `patience` is how much longer than usual the
    answer may take."""

    requests: Sequence[Request]
    patience: float = 0
    prepares: bool = False
    """Is it only so that there is a place for what the caller asks for?"""


class Read(Struct, frozen=True):
    """A blocking look at the store, or something else that may be repeated: it is, while the store
    is away. Its error is the script's."""

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
                    step = script.throw(error)  # it may know what to do without
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
    """Has an earlier step of the operation, or one beside the one that failed, been carried out?"""
    return not all(isinstance(outcome, GenlockError) for job in jobs for outcome in job.results)


def _half_done(error: GenlockError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{error}. That was not all of it, and the rest was done: look, or ask again"
    )


def _short(error: OSError, jobs: Sequence[Job]) -> Exception:
    """What to raise for an error of the system in the script itself, which imports what it needs
    when it needs it."""
    shortage = shortage_of(error)
    if shortage is None:
        return error
    return _half_done(shortage) if _was_begun(jobs) else shortage


def synchronous(
    operation: Callable[Concatenate[S, P], Script[R]],
) -> Callable[Concatenate[Any, P], R]:
    """The operation as a plain method of `Coordinator`."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        operations = self._operations()
        return run(operations.engine, operation(operations, *args, **kwargs))

    return _named(method, operation)


def asynchronous(
    operation: Callable[Concatenate[S, P], Script[R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The operation as a coroutine method of `AsyncCoordinator`; only reads take a thread.

    The driver stands in the method itself: a coroutine more would be a tenth of what a call costs
    the loop.
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
    """asyncio's own. Found out here, because whoever has no event loop need not wait for it to be
    imported."""
    from asyncio import get_running_loop

    return get_running_loop


F = TypeVar("F", bound=Callable[..., Any])
_SCRIPT = "Script["


def _named(method: F, operation: Callable[..., Any]) -> F:
    """For `help()` and tracebacks; `functools.wraps` itself would change the type.

    `help()` shows what a caller gets: the answer, and not the script that leads to it."""
    answer = operation.__annotations__.get("return", "")
    if isinstance(answer, str) and answer.startswith(_SCRIPT):
        operation.__annotations__["return"] = answer.removeprefix(_SCRIPT)[:-1]
    functools.update_wrapper(method, operation)
    return method
