"""Chromium from Debian's packages, which the tests of the dashboard drive.

The program is started directly: Debian's wrapper script looks in /usr/lib alone, and reads
settings of the machine.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.servers import debian

_PACKAGE = "chromium"
_WITHIN = Path("usr/lib/chromium/chromium")

ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
"""With these it looks for nothing outside of the machine."""


def executable() -> Path | None:
    """The program, unpacked by us or installed on the machine."""
    for place in (debian.FOLDER / _PACKAGE / _WITHIN, Path("/") / _WITHIN):
        if place.exists():
            return place
    found = shutil.which("google-chrome") or shutil.which("chrome")
    return Path(found) if found else None


def arguments() -> list[str]:
    """How it is started. Root's Chromium has no sandbox."""
    return [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]


def environment() -> dict[str, str]:
    """The environment in which an unpacked Chromium finds its libraries."""
    found = debian.environment(_PACKAGE)
    libraries = sorted((debian.FOLDER / _PACKAGE / "usr" / "lib").glob("*-linux-gnu*/pulseaudio"))
    paths = [*map(str, libraries), found["LD_LIBRARY_PATH"]]
    return found | {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}


def ready() -> str:
    """Where it is; unpacks it first if need be."""
    found = executable()
    if found is None:
        debian.unpack(_PACKAGE)
        found = executable()
    if found is None:
        raise debian.NotToBeHad("the package chromium has no usr/lib/chromium/chromium")
    return str(found)
