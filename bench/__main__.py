"""`python -m bench [name …]`: all benchmarks, or those named. One alone may have options of its
own."""

from __future__ import annotations

import sys
from importlib import import_module

ENGINE = ("claims", "processes", "scale", "waking")
COMMAND_LINE = ("startup", "ready", "plan_import")
BY_NAME_ONLY = ("race", "copy", "coordinators", "rooms")
"""What takes minutes: a proof, which is no measure of speed (`make race`), a large store copied
around (`make bench-copy`), two coordinators on each server (`make bench-stores`). And how the source
is cut (`rooms`)."""
WITH_OPTIONS = ("snapshot",)
"""Twenty minutes with old transactions open: `python -m bench snapshot --minutes 10`."""


def main() -> None:
    known = (*ENGINE, *COMMAND_LINE, *BY_NAME_ONLY, *WITH_OPTIONS)
    if sys.argv[1:2] and sys.argv[1] in WITH_OPTIONS:
        import_module(f"bench.{sys.argv[1]}").main(sys.argv[2:])
        return
    names = sys.argv[1:] or [*ENGINE, *COMMAND_LINE]
    if names[0] == "copy":  # the others are its arguments
        del names[1:]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(known)}")
    for name in names:
        import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
