"""Two things at once where one waits for the other's store: the next page is fetched while the last one is at work, and what is ready is
written while the next is made ready.

One thing of each, in its order: nothing is fetched or written beside another of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_END: Any = object()


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same; while one is at work on an item, the next is fetched."""
    each = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="genlock-ahead") as thread:
        coming: Future[T] = thread.submit(next, each, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, each, _END)
            yield item


class Behind(Generic[T]):
    """Does something with one thing after the other, while whoever gives them goes on. A fault is raised to him at the next one, or at the
    end; after it nothing more is done."""

    def __init__(self, act: Callable[[T], None]) -> None:
        self._act = act
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="genlock-behind")
        self._last: Future[None] | None = None
        self.is_left = False
        """Has whoever gives things gone, with a fault of his own? Then there is nobody to be patient for."""

    def __enter__(self) -> Behind[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.is_left = error is not None
        try:
            if error is None:
                self.finish()
        except BaseException:
            self.is_left = True
            raise
        finally:
            self._thread.shutdown()

    def give(self, thing: T) -> None:
        """Returns when it is begun."""
        self.finish()
        self._last = self._thread.submit(self._act, thing)

    def finish(self) -> None:
        """Returns when all is done that was given."""
        last, self._last = self._last, None
        if last is not None:
            last.result()
