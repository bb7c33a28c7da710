"""The commands in the documents are typed into a real shell on a real terminal, and answer what the
page says.

A block ```console of the pages below is a session: lines that begin with `$ ` are typed (`> ` goes
on), the others are what the terminal shows. `…` in such a line stands for anything, a line that is
only `…` for any lines. All blocks of a page are one session in an empty folder; a ```yaml block
that begins with a comment `# name.yaml` (or .yml) is a file there.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from select import POLLIN, poll
from struct import pack

import pytest

from tests.cli.screen import left_of

ROOT = Path(__file__).parent.parent
NOT_TYPED = {
    "dashboard.md",
    "session-claims.md",
    "use-a-service.md",
    "use-with-python.md",
    "watching-a-service.md",
}
"""Pages about a service that runs: what they show over HTTP is held by the service's own tests. And
one that has snippets of Python only."""
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "plans.md",
    *sorted(page for page in (ROOT / "docs" / "how-to").glob("*.md") if page.name not in NOT_TYPED),
]
BLOCK = re.compile(r"^```(console|yaml|bash)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
END = "-- end of answer --"
SECONDS = 60


class Typed:
    """One command of a page and what the page says that it answers."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.expected: list[str] = []


def session_of(page: Path) -> tuple[list[Typed], dict[str, str]]:
    """What is typed, and the files that lie in the folder."""
    typed: list[Typed] = []
    files: dict[str, str] = {}
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind != "console":
            named = re.match(r"(?:#!.*\n)?# ([\w.-]+\.(?:ya?ml|sh))\n", text)
            if named:
                files[named[1]] = text
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                typed.append(Typed(line[2:]))
            elif line.startswith("> "):
                typed[-1].command += "\n" + line[2:]
            else:
                typed[-1].expected.append(line)
    return typed, files


def answers_of(commands: list[Typed], folder: Path) -> list[list[str]]:
    """Types them into one shell on a terminal of 100 columns; what it showed for each."""
    script = folder / ".session.sh"
    script.write_text(
        "".join(f"{typed.command}\necho '{END}'\n" for typed in commands), encoding="utf-8"
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GENLOCK_")
    }
    environment |= {
        "NO_COLOR": "1",
        "TERM": "xterm",
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    environment.pop("COLUMNS", None)
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, pack("HHHH", 40, 100, 0, 0))
    shell = subprocess.Popen(
        ["bash", str(script)],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        process_group=0,
    )
    os.close(theirs)
    shown = b""
    try:
        ready = poll()
        ready.register(ours, POLLIN)
        while ready.poll(SECONDS * 1000):
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the terminal is gone with the last process on it
                break
            if not piece:
                break
            shown += piece
        assert shell.wait(SECONDS) == 0, shown.decode()
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        os.close(ours)
    return [
        [line.rstrip() for line in answer.splitlines()]
        for answer in left_of(shown.decode()).split(f"{END}\n")[: len(commands)]
    ]


def fits(expected: list[str], shown: list[str]) -> bool:
    """Is this what the page says? Compared as one pattern. A ` …` that ends a line may have been
    wrapped to the next one, where a longer id does not fit."""
    pattern = ""
    for line in expected:
        pattern += (
            "(?:.*\n)*"
            if line.strip() == "…"
            else re.sub(r"\\ …$", r"(?: .*)?", re.escape(line.rstrip())).replace("…", ".*") + "\n"
        )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shown)) is not None


@pytest.fixture
def folder() -> Iterator[Path]:
    """One with a short name: what a page shows of it must fit into a line, as it does for its
    readers."""
    with tempfile.TemporaryDirectory(prefix="docs-") as name:
        yield Path(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_answer_what_it_says(page: Path, folder: Path) -> None:
    commands, files = session_of(page)
    assert commands, "a page without commands need not be listed here"
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    answers = answers_of(commands, folder)
    assert len(answers) == len(commands)
    for typed, shown in zip(commands, answers, strict=True):
        said, expected = "\n".join(shown), "\n".join(typed.expected)
        assert fits(typed.expected, shown), (
            f"$ {typed.command}\nshows:\n{said}\ninstead of:\n{expected}"
        )


def test_a_page_that_says_something_else_is_found_out() -> None:
    assert fits(["made: …/genlock.db"], ["made: /x/genlock.db"])
    assert fits(["a", "…", "z"], ["a", "b", "c", "z"])
    assert fits(["kept as …", "…"], ["kept as", "  A-001/1/x"])
    assert not fits(["kept as …"], ["kept astray"])
    assert not fits(["made: …/genlock.db"], ["there is one: /x/genlock.db"])
    assert not fits([], ["something"])
    assert not fits(["a"], ["a", "b"])
