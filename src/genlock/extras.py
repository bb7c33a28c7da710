"""Extras: packages that only some users of Genlock need, and what to type if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from genlock.errors import GenlockError


@contextmanager
def needs_extra(
    extra: str, *packages: str, purpose: str, error: type[GenlockError] = GenlockError
) -> Iterator[None]:
    """The block imports these packages. If one is not installed, the error says how to get it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise error(
            f"{purpose}, {package}, is not installed: pip install 'genlock[{extra}]'"
        ) from missing
