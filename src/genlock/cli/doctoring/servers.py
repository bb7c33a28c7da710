"""A store that is no file of this machine: what it runs on, what it promises, and whose clock it has."""

from __future__ import annotations

from collections.abc import Iterator

from genlock.cli.doctoring.finding import Finding, note, ok
from genlock.open import about_store
from genlock.store import Store
from genlock.stores.clock import SystemClock

_APART_SECONDS = 5.0


def check_server(url: str) -> Iterator[Finding]:
    """What can be said before it is opened."""
    about = about_store(url)
    if about is not None:
        yield ok("server", about.server)
        if about.format == about.newest:
            yield ok("format", f"{about.format}")


def check_promises(store: Store) -> Iterator[Finding]:
    """What it says of itself."""
    limits = store.limits
    if limits.durable:
        yield ok("durable", "an acknowledged commit survives a crash")
    else:
        means = "what was acknowledged may be lost when the machine fails; if so, raise the epoch"
        yield note("durable", "an acknowledged commit may be lost in a crash", means, ["genlock db status"])
    if limits.read_only:
        yield note("writing", "cannot be written", "states can be looked at, nothing can be claimed", ["name the primary with --url"])


def check_clocks(store: Store) -> Iterator[Finding]:
    """How far the server's clock and this machine's are apart, as far as one exchange can tell."""
    if not store.limits.server_clock:
        return
    clock = SystemClock()
    sent = clock.now()
    now = store.load([]).now
    received = clock.now()
    apart = max((sent - now).total_seconds(), (now - received).total_seconds(), 0.0)
    if apart > _APART_SECONDS:
        means = "the server's counts for all, so nothing is wrong; but what this machine says of times is"
        yield note("server clock", f"{apart:,.0f} s apart from this machine's", means, ["timedatectl"])
    else:
        yield ok("server clock", f"{now:%Y-%m-%dT%H:%M:%SZ}, as this machine's")
