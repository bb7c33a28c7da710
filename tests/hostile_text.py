"""A text that a stranger might write to have a terminal, a browser or a reader of lines do
something."""

from __future__ import annotations

import re
from typing import Final

HOSTILE: Final = (
    "t\x1b]0;owned\x07 \x1b[31mred\x1b]8;;http://evil.example\x1b\\link \x9b2J\x85 \x7f\x08\rover "
    "\u202eright\u202c \u2066i\u2069 \u200e\u200f\u061c \u2028\u2029 \u200b\ufeff \U000e0041 "
    "[red]markup[/red] :smile: <b>bold</b> "
    "$(id) `id`\nforged: line"
)
"""Every kind: C0, DEL, C1, bidirectional controls, separators, zero-width characters, tags; markup,
HTML, a shell's, a line of its own."""

_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def obeyed(shown: str, *, colours: bool = False) -> list[str]:
    """What of this a terminal would obey; the ends of lines, and with `colours` those, are ours."""
    shown = shown.replace("\r\n", "\n")
    return _OBEYED.findall(_COLOURS.sub("", shown) if colours else shown)
