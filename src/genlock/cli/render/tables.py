"""Tables, lists of fields and times, for terminals.

A table never wraps: on a narrow terminal the least important columns are left out, then texts are
truncated; --json has everything. Foreign text is always shown as text: no markup, and no control
character reaches the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from genlock import messages
from genlock.core.model import NO_LEASE
from genlock.safe_text import safe_line, safe_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_GAP = 2


class Column(NamedTuple):
    """A column: the higher `weight`, the later it is left out; the ones of weight 0 stay. `least`
    is how far it may be cut."""

    heading: str
    weight: int = 0
    least: int = 6
    style: str = ""
    right: bool = False


def print_table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[object]]
) -> None:
    """Prints a table that fits the terminal. An empty column is left out."""
    from rich.cells import cell_len
    from rich.text import Text

    cells = [[safe_line(cell) for cell in row] for row in rows]
    natural = [max([cell_len(line[at]) for line in cells] or [0]) for at in range(len(columns))]
    shown = [at for at in range(len(columns)) if natural[at] or not columns[at].weight]
    widths = {at: max(natural[at], cell_len(columns[at].heading)) for at in shown}
    widths = _fitted(columns, widths, console.width)
    headings = [column.heading for column in columns]
    for number, line in enumerate([headings, *cells]):
        text = Text(no_wrap=True, overflow="crop")
        for at, width in widths.items():
            cell = _cut(line[at], width)
            blanks = " " * (width - cell_len(cell))
            text.append(" " * (_GAP if text else 0))
            text.append(
                blanks + cell if columns[at].right else cell + blanks,
                style=columns[at].style if number else "dim",
            )
        text.rstrip()
        console.print(text)


def print_fields(console: Console, fields: Iterable[tuple[str, object]]) -> None:
    """Prints names and values, one per line; a long value continues below itself. Empty values are
    left out."""
    from rich.text import Text

    filled = [
        (name, safe_line(value)) for name, value in fields if value not in (None, "", (), [], {})
    ]
    width = max((len(name) for name, _ in filled), default=0) + _GAP
    for name, value in filled:
        for at, line in enumerate(_folded(value, max(console.width - width, 10))):
            text = Text(no_wrap=True, overflow="crop")
            text.append((name if at == 0 else "").ljust(width), style="dim")
            text.append(line)
            console.print(text)


def print_lines(console: Console, *lines: str, style: str = "") -> None:
    """Prints plain lines; long ones continue on the next line with the same indentation."""
    from rich.text import Text

    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        for at, part in enumerate(
            _folded(safe_line(line.strip()), max(console.width - len(indent) - _GAP, 10))
        ):
            console.print(
                Text(
                    indent + ("  " if at else "") + part, style=style, no_wrap=True, overflow="crop"
                )
            )


def print_beside(console: Console, left: Text, *texts: Text) -> None:
    """Prints texts one below the other, to the right of `left`. A text with a word that is too long
    for this, such as an id, begins further left.

    A text that is still too long, or must not be broken, stays one line: the terminal may wrap it,
    but a copy of it has no line break.
    """
    from rich.text import Text

    before = left
    for text in texts:
        longest = text.cell_len if text.no_wrap else _longest(text.plain)
        indent = left.cell_len if longest <= console.width - left.cell_len else _GAP
        if indent == _GAP and before is left:
            console.print(left)
            before = Text()
        whole = text.no_wrap or longest > console.width - indent
        for part in [text.plain] if whole else _folded(text.plain, console.width - indent):
            lead = before if before is left else Text(" " * indent)
            console.print(Text.assemble(lead, Text(part, text.style)), soft_wrap=True)
            before = Text()


def print_commands(console: Console, *commands: str, indent: str = "  ") -> None:
    """Prints commands to type, each on one line however long: the terminal may wrap it, but a copy
    of it has no line break."""
    from rich.text import Text

    for command in commands:
        console.print(Text(indent + safe_line(command), style="cyan"), soft_wrap=True)


def count(number: int, noun: str) -> str:
    """Returns a count with its noun: `1 task`, `2 tasks`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


# Times


def from_now(when: datetime | None) -> str:
    """Formats a time relative to now: `in 4m 30s`, or `12s ago`."""
    if when is None:
        return ""
    return messages.from_now(when, datetime.now(UTC))


def lease_end(when: datetime | None) -> str:
    """Formats the end of a claim's lease like `from_now`."""
    return from_now(when) or NO_LEASE


def stamp(when: datetime | None, beside: datetime | None = None) -> str:
    """Formats a time as `2026-01-04 06:05:00` in UTC; without the date if `beside` is on the same
    day."""
    if when is None:
        return ""
    return (
        f"{when:%H:%M:%S}"
        if beside is not None and beside.date() == when.date()
        else f"{when:%Y-%m-%d %H:%M:%S}"
    )


def _fitted(columns: Sequence[Column], widths: dict[int, int], room: int) -> dict[int, int]:
    """Drops columns, lightest first, until the rest can be truncated to fit; then truncates the
    widest."""
    widths = dict(widths)

    def over(sizes: Iterable[int]) -> int:
        listed = list(sizes)
        return sum(listed) + _GAP * (len(listed) - 1) - room

    def least(at: int) -> int:
        return min(widths[at], columns[at].least)

    while over(map(least, widths)) > 0:
        light = [at for at in widths if columns[at].weight]
        if not light:
            break
        del widths[min(light, key=lambda at: columns[at].weight)]
    while (excess := over(widths.values())) > 0:
        widest = max(widths, key=lambda at: widths[at] - least(at))
        spare = widths[widest] - least(widest)
        if spare <= 0:
            break
        widths[widest] -= min(excess, max(1, spare // 2))
    return widths


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "…"


def _longest(text: str) -> int:
    """Returns the length of the longest word; a leading dash counts with the first."""
    from rich.cells import cell_len

    words = text.split(" ")
    return max(map(cell_len, [" ".join(words[:2]), *words[2:]] if words[0] == "-" else words))


def _folded(text: str, width: int) -> list[str]:
    """Splits the text into lines of at most this width, at blanks where possible."""
    from rich.cells import cell_len, chop_cells

    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        *full, line = chop_cells(word, width) or [""]
        lines += full
    return [*lines, line]


# Rich's console, on which foreign text is only ever text: no markup, no emoji codes, and no
# character that the terminal would obey.


class SafeConsole(Console):
    """A console on which the terminal obeys only rich's own control sequences, never those in
    printed text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Makes every renderable safe: all of them pass through here on the way to the terminal."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(safe_text(text), style)


def console(*, stderr: bool) -> SafeConsole:
    """Returns a console on stdout or stderr."""
    # Without colours there are no styles at all: the user wants text without escape codes.
    colors = None if os.environ.get("NO_COLOR") else "auto"
    return SafeConsole(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        color_system=colors,  # type: ignore[arg-type]
    )
