"""The way into a store on a server: only while it is open, only in the process that opened it, and out of it only errors of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from genlock.errors import BadArgument, Closed, GenlockError, StoreError, StoreReadOnly
from genlock.stores.links import Connected, Links, Unreachable

L = TypeVar("L", bound=Connected)


class Faults(NamedTuple):
    """What a driver says when something goes wrong, and our words for it."""

    kinds: tuple[type[Exception], ...]
    """All that a connection may raise."""
    of: Callable[[Any, str], GenlockError]
    of_commit: Callable[[Any, str], GenlockError]
    """The same for what happened while something was written: then it may have been done."""
    stepped_down: Callable[[Any], bool]
    """Does it say that the server, which was written to before, can only be read by now?"""
    unstorable: tuple[type[Exception], ...] = (UnicodeError,)
    """What is raised for values that the server cannot take."""


class Door(Generic[L]):
    """Of one store."""

    def __init__(self, links: Links[L], where: str, faults: Faults) -> None:
        self._links = links
        self._where = where
        self._faults = faults
        self._pid = os.getpid()
        self.is_shut = False
        self.read_only = ""
        """Why nothing can be written here, if that is so."""
        self.look_again: Callable[[L], object] = lambda link: None
        """Asks the server whether that is still so: a replica may have been promoted. It sets `read_only` anew."""

    @property
    def is_ours(self) -> bool:
        """Is this the process that opened it? A forked child must not touch what it inherited."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """An error unless one may enter."""
        if self.is_shut:
            raise Closed(f"{self._where} is closed")
        if not self.is_ours:
            raise StoreError(f"{self._where} was opened by process {self._pid}; a store does not survive fork: open it anew")

    @contextmanager
    def entered(self, *, writes: bool = False) -> Iterator[L]:
        """A connection for as long as the block lasts."""
        self.check()
        fault_of = self._faults.of
        try:
            with self._links.lent() as link:
                try:
                    if writes:
                        self._refuse_reader(link)
                        fault_of = self._faults.of_commit  # not before: until here nothing was sent that writes
                    yield link
                except self._faults.kinds as error:
                    if self._faults.stepped_down(error):
                        self._links.renew()  # the name in the URL may lead to another server by now
                    raise
        except GenlockError:
            raise
        except self._faults.kinds as error:
            if self.is_shut and isinstance(error, Unreachable):
                raise Closed(f"{self._where} was closed during this call") from error
            raise fault_of(error, self._where) from error
        except self._faults.unstorable as error:
            raise BadArgument(f"there is something that cannot be stored ({error})") from error

    def _refuse_reader(self, link: L) -> None:
        """`StoreReadOnly` where nothing can be written, unless that has changed."""
        if self.read_only:
            self.look_again(link)
        if self.read_only:
            raise StoreReadOnly(f"{self._where} {self.read_only}")
