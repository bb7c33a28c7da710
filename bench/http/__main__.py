"""`python -m bench.http [rates|waiting|history …]`: the service measured from outside."""

from __future__ import annotations

import sys
from importlib import import_module

from bench.http.serving import CLIENT_CORE, pin

PARTS = ("rates", "waiting", "history")


def main() -> None:
    names = sys.argv[1:] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    pin(CLIENT_CORE)
    for name in names:
        import_module(f"bench.http.{name}").main()


if __name__ == "__main__":
    main()
