"""`python -m bench [name …]`: all benchmarks, or those named."""

from __future__ import annotations

import sys

from bench import claims, processes, scale, waking

BENCHES = {"claims": claims.main, "processes": processes.main, "scale": scale.main, "waking": waking.main}


def main() -> None:
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        raise SystemExit(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHES)}")
    for name in names:
        BENCHES[name]()


if __name__ == "__main__":
    main()
