"""`python -m bench [name …]`: all benchmarks, or those named."""

from __future__ import annotations

import sys
from importlib import import_module

ENGINE = ("claims", "processes", "scale", "waking")
COMMAND_LINE = ("startup", "ready", "plan_import")
BY_NAME_ONLY = ("race",)
"""A proof that takes minutes, and no measure of speed: `make race`."""


def main() -> None:
    known = (*ENGINE, *COMMAND_LINE, *BY_NAME_ONLY)
    names = sys.argv[1:] or [*ENGINE, *COMMAND_LINE]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(known)}")
    for name in names:
        import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
