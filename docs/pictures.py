"""Makes the pictures in docs/images from real runs of the real command, in a terminal of its own.

    python docs/pictures.py               all of them
    python docs/pictures.py ready graph   these

Needs tmux. The times in the sample project are fixed, so that pictures change only when what they
show does; the demo is as it happens.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

import genlock
from genlock.testing.clock import ManualClock

IMAGES = Path(__file__).parent / "images"
PATIENCE_SECONDS = 90

PLAN = """
project: shop-rebuild
tracks:
  A:
    - {id: A-001-core-framework, description: Initialize core application framework}
    - {id: A-002-di-container, description: Setup dependency injection container, depends_on: [A-001-core-framework]}
    - {id: A-003-event-bus, description: Implement event bus for async communication, depends_on: [A-002-di-container]}
  B:
    - {id: B-001-schema-design, description: Design database schema}
    - {id: B-002-entity-models, description: Create entity models from schema, depends_on: [B-001-schema-design, A-001-core-framework]}
    - {id: B-003-repositories, description: Implement repository pattern, depends_on: [B-002-entity-models, A-002-di-container]}
  F:
    - {id: F-001-test-suite, description: Test it all, depends_on: [A-003-event-bus, B-003-repositories]}
"""


_DARK = [
    (30, 33, 39),
    (224, 108, 117),
    (126, 192, 120),
    (229, 192, 106),
    (97, 155, 229),
    (198, 120, 221),
    (86, 182, 194),
    (214, 216, 222),
]
_BRIGHT = [(126, 133, 146), *_DARK[1:7], (255, 255, 255)]
THEME = TerminalTheme((22, 24, 29), (214, 216, 222), _DARK, _BRIGHT)
"""Dark, and every colour legible on it."""


class Screen:
    """A terminal of a given size, in which one command runs."""

    def __init__(self, command: str, folder: Path, columns: int, rows: int) -> None:
        self._socket = (
            Path(tempfile.mkdtemp(dir=folder)) / "tmux"
        )  # one each: a server that was told to end takes a moment
        self._columns = columns
        done = folder / "done"
        done.unlink(missing_ok=True)
        self._done = done
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "TMPDIR": str(folder),
            "PS1": "$ ",
        }
        script = (
            f"cd {shlex.quote(str(folder / 'shop'))}; clear; printf '$ %s\\n' "
            f"{shlex.quote(command)}; {command}; touch {done}; exec cat"
        )
        size = ["-x", str(columns), "-y", str(rows)]
        subprocess.run(
            [*self._tmux(), "-f", "/dev/null", "new-session", "-d", *size, "sh", "-c", script],
            check=True,
            env=environment,
        )
        subprocess.run([*self._tmux(), "set", "-g", "status", "off"], check=True)

    def _tmux(self) -> list[str]:
        return ["tmux", "-u", "-S", str(self._socket)]

    def shown(self) -> str:
        """What the screen shows now, with its colours."""
        return subprocess.run(
            [*self._tmux(), "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True
        ).stdout

    def until(self, enough: Callable[[str], bool]) -> str:
        """The screen as soon as it shows enough."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            shown = self.shown()
            if enough(shown):
                return shown
            time.sleep(0.05)
        raise TimeoutError(f"never shown, but:\n{self.shown()}")

    def ended(self) -> str:
        """The screen when the command has ended."""
        return self.until(lambda _: self._done.exists())

    def close(self) -> None:
        subprocess.run([*self._tmux(), "kill-server"], check=False)


@contextmanager
def screen(command: str, folder: Path, columns: int = 100, rows: int = 40) -> Iterator[Screen]:
    """A terminal for as long as the block lasts."""
    opened = Screen(command, folder, columns, rows)
    try:
        yield opened
    finally:
        opened.close()


def draw(name: str, shown: str, title: str, columns: int) -> None:
    """The screen as an image."""
    console = Console(
        record=True,
        width=columns,
        file=open(os.devnull, "w", encoding="utf-8"),  # noqa: SIM115
        force_terminal=True,
    )
    console.print(Text.from_ansi(shown.rstrip()), soft_wrap=True)
    image = console.export_svg(title=title, theme=THEME, unique_id=f"genlock-{name}")
    # Whoever looks at a picture need not fetch a font for it from anywhere.
    (IMAGES / f"{name}.svg").write_text(
        re.sub(r"@font-face \{[^}]*\}\s*", "", image), encoding="utf-8"
    )


def make_project(folder: Path) -> None:
    """A project with a past: a takeover, a zombie whose result was refused, and work in all
    states."""
    shop = folder / "shop" / ".genlock"
    shop.mkdir(parents=True)
    clock = ManualClock(datetime(2026, 1, 4, 10, 15, 30, tzinfo=UTC))
    with genlock.connect(
        f"sqlite://{shop / 'genlock.db'}", create=True, clock=clock, user_id="olga"
    ) as fleet:
        fleet.import_plan(source=PLAN)
        for task, session, agent in (
            ("A-001-core-framework", "sess-001", "ada"),
            ("B-001-schema-design", "sess-002", "bob"),
        ):
            fleet.claim_task(task_id=task, session_id=session, agent_id=agent)
            clock.advance(95)
            fleet.submit_result(
                task_id=task,
                generation=1,
                session_id=session,
                result_data={"files": [f"{task}.py"]},
            )
        fleet.claim_task(
            task_id="B-002-entity-models",
            session_id="sess-002",
            agent_id="bob",
            lease_duration_seconds=300,
        )
        clock.advance(310)
        fleet.claim_task(
            task_id="B-002-entity-models",
            session_id="sess-003",
            agent_id="cleo",
            lease_duration_seconds=300,
        )
        clock.advance(120)
        fleet.submit_result(
            task_id="B-002-entity-models",
            generation=1,
            session_id="sess-002",
            result_data={"models": 7},
        )
        clock.advance(45)
        fleet.submit_result(
            task_id="B-002-entity-models",
            generation=2,
            session_id="sess-003",
            result_data={"models": 8},
        )


AGENT = """#!/usr/bin/env python3
import json, os, random, sys, time
prompt, dice = sys.stdin.read(), random.Random(os.environ["GENLOCK_TASK"])
def say(**event):
    print(json.dumps({"session_id": "s", **event}), flush=True)
steps = ["Read: src/shop/app.py", "Grep: def test_", "Edit: src/shop/app.py", "Bash: make test",
         "Edit: tests/test_app.py", "Bash: git commit -m 'Add it'"]
for number in range(dice.randint(9, 14)):
    name, _, told = steps[number % len(steps)].partition(": ")
    call = {"type": "tool_use", "name": name, "input": {"path" if name != "Bash" else "command": told}}
    say(type="assistant", message={"id": str(number), "content": [call]})
    time.sleep(dice.uniform(0.2, 0.5))
if prompt.startswith("# Set up the dependency") and os.environ["GENLOCK_GENERATION"] == "1":
    say(type="result", subtype="error_max_turns", is_error=True, num_turns=30, total_cost_usd=0.94)
    sys.exit(1)
say(type="result", subtype="success", is_error=False, result="done", num_turns=number + 1,
    total_cost_usd=round(dice.uniform(0.2, 0.9), 2))
"""
"""Stands in for Claude Code: it writes the same lines, and does nothing."""


def make_agents(folder: Path) -> None:
    """A project for `genlock work`, with the stand-in as `claude`."""
    shop = folder / "shop" / ".genlock"
    shutil.rmtree(shop, ignore_errors=True)
    shop.mkdir(parents=True)
    tasks = [
        ("A-001-core", "Initialize the core application framework", []),
        ("A-002-container", "Set up the dependency injection container", []),
        ("B-001-schema", "Design the database schema", []),
        ("B-002-models", "Create the entity models", ["B-001-schema"]),
        ("F-001-tests", "Test it all", ["A-001-core", "B-002-models"]),
    ]
    with genlock.connect(f"sqlite://{shop / 'genlock.db'}", create=True) as fleet:
        fleet.add_tasks(
            tasks=[
                {"id": id, "title": title, "depends_on": needs, "parallelizable": True}
                for id, title, needs in tasks
            ]
        )
    agent = folder / "claude"
    agent.write_text(AGENT, encoding="utf-8")
    agent.chmod(0o755)


def draw_work(folder: Path) -> None:
    """`genlock work` in the middle, and at its end."""
    make_agents(folder)
    command = "genlock work --agents 3 --agent claude --until-done"
    with screen(f"PATH={folder}:$PATH {command}", folder, columns=100, rows=24) as terminal:
        shown = terminal.until(lambda shown: shown.count("accepted") >= 2 and "Bash" in shown)
        prompt = f"$ {command}\n"
        draw("work", prompt + shown.partition("\n")[2], command, 100)
        terminal.ended()
        draw("work-end", prompt + terminal.shown().partition("\n")[2], command, 100)


def main(wanted: list[str]) -> None:
    if shutil.which("tmux") is None:
        sys.exit("tmux is needed for a terminal to take pictures of")
    IMAGES.mkdir(exist_ok=True)
    simple = {
        "ready": "genlock ready",
        "explain": "genlock explain B-003-repositories",
        "history": "genlock history B-002-entity-models",
        "graph": "genlock graph",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_project(folder)
        for picture, command in simple.items():
            if not wanted or picture in wanted:
                with screen(command, folder, columns=90) as terminal:
                    draw(picture, terminal.ended(), command, 90)
        if not wanted or "work" in wanted:
            draw_work(folder)
        if not wanted or "demo" in wanted:
            with screen("genlock demo", folder, columns=80, rows=24) as terminal:
                # Both refused, one adopted, and the zombie's task taken over: the most that is ever
                # on the screen at once.
                draw(
                    "demo",
                    terminal.until(lambda shown: "submits B-002" in shown),
                    "genlock demo",
                    80,
                )
                terminal.ended()
        if not wanted or "demo-isolation" in wanted:
            with screen("genlock demo --isolation", folder, columns=80, rows=24) as terminal:
                # The zombie is refused, and what waits for a person is not on main.
                shown = terminal.until(lambda shown: "refused, STALE_GENERATION" in shown)
                draw("demo-isolation", shown, "genlock demo --isolation", 80)
                terminal.ended()
        if not wanted or "demo-report" in wanted:
            with screen("genlock demo --quick", folder, columns=80, rows=60) as terminal:
                shown = terminal.ended()
                draw(
                    "demo-report",
                    shown[shown.index("Lineage of") - 20 :].partition("\n")[2],
                    "genlock demo",
                    80,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
