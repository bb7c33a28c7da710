"""The scripts that run inside the server: one file each, some of which are prefixed by a shared
part."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent / "scripts"
_COMMON = (_HERE / "common.lua").read_text("utf-8")


class Script(NamedTuple):
    """A script, and the name by which the server caches it."""

    text: str
    sha: str


def _script(file: Path) -> Script:
    """Reads a script. Its first line declares what the script may do, and must stay the first."""
    first, _, rest = file.read_text("utf-8").partition("\n")
    text = f"{first}\n{_COMMON}\n{rest}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


SCRIPTS = {
    file.stem: _script(file) for file in sorted(_HERE.glob("*.lua")) if file.stem != "common"
}
