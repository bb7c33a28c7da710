"""Reading ahead: the next page is fetched while the last one is at work, one at a time and in order.

To write what is ready beside that was tried too, and gained nothing: on the way to a server it is the server that takes the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

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
