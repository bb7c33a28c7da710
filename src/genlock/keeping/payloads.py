"""Are the bytes of large results what was submitted? Each is read, piece by piece, and compared with the digest that its record has."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import sha256
from typing import NamedTuple

from genlock.core.keys import Key, payload_task
from genlock.engine.payloads import payloads_of
from genlock.errors import ResultNotFound
from genlock.store import Payloads, Store

_PIECE = 1024 * 1024

Progress = Callable[[int, int], None]
"""Told how many payloads are done, and how many there are."""


class Lost(NamedTuple):
    """A payload that a record refers to and nobody can read any more."""

    key: Key
    digest: str
    damaged: bool
    """There are bytes, but not those that were submitted; else there are none."""

    @property
    def name(self) -> str:
        """Whose it is, and its digest."""
        return f"{self.key.tenant}/{self.key.project} {payload_task(self.key)} {self.digest}"

    @property
    def what(self) -> str:
        """What is wrong with it."""
        return f"its payload {self.digest} is {'not what was submitted' if self.damaged else 'missing'}"


def lost_payloads(store: Store, *, progress: Progress | None = None, among: Collection[Lost] | None = None) -> list[Lost]:
    """What the store refers to and cannot be read; if it is looked for `among` some, the others are not read."""
    referred = [*dict.fromkeys(payloads_of(store))]
    if among is not None:
        wanted = {lost[:2] for lost in among}
        referred = [each for each in referred if each in wanted]
    return lost_of(store.payloads(), referred, progress)


def lost_of(payloads: Payloads, referred: Collection[tuple[Key, str]], progress: Progress | None = None) -> list[Lost]:
    """Those, by key and digest, that are not there as they were put."""
    lost = []
    for count, (key, digest) in enumerate(referred, 1):
        found = _digest(payloads, key, digest)
        if found != digest:
            lost.append(Lost(key, digest, found is not None))
        if progress is not None:
            progress(count, len(referred))
    return lost


def _digest(payloads: Payloads, key: Key, digest: str) -> str | None:
    """That of the bytes that are there; None if there are none."""
    try:
        file = payloads.open(key, digest)
    except ResultNotFound:
        return None
    seen = sha256()
    with file:
        try:
            while piece := file.read(_PIECE):
                seen.update(piece)
        except ResultNotFound:
            return None  # dropped while it was read
        except OSError:
            return ""  # a disk that cannot give them back
    return seen.hexdigest()
