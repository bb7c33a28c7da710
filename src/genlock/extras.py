"""Extras: packages that only some users of Genlock need, and the command that installs one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from genlock.errors import GenlockError


@contextmanager
def needs_extra(
    extra: str, *packages: str, purpose: str, error: type[GenlockError] = GenlockError
) -> Iterator[None]:
    """Guards imports of optional packages: if one is missing, the error says how to install it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise error(
            f"{purpose}, {package}, is not installed: pip install 'genlock[{extra}]'"
        ) from missing
