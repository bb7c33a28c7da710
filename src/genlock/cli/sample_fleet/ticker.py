"""The output of `genlock dev`: one line for each grant, crash, takeover and refusal.

Most lines come from the feed. Killed and stopped agents are in no feed: the director reports them.
A line without a reader is dropped, because the service must not wait for its own output.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from genlock.cli.answers import Style
from genlock.cli.sample_fleet.screen import BAD, GOOD, WARNING

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.cli.answers import Answers
    from genlock.core.results import FeedEvent

_COLOURS: Final = {
    "grant": "",
    "result": GOOD,
    "review": WARNING,
    "takeover": WARNING,
    "lost": WARNING,
    "hold": WARNING,
    "reopen": "",
    "failure": WARNING,
    "crash": BAD,
    "pause": BAD,
    "resume": WARNING,
    "refusal": BAD,
}
"""The kinds of lines, and their colours on a terminal."""


class TickerLine(Struct, frozen=True):
    """One line, also in its JSON form."""

    kind: str
    text: str
    agent_id: str = ""
    task_id: str = ""
    generation: int | None = None
    at: datetime | None = None


class Ticker:
    """Prints lines, and knows which claims were lost: the next grant of such a task is a
    takeover."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._began = time.monotonic()
        self._lost: dict[str, str] = {}
        """Tasks whose holder was lost, by task."""

    async def follow(self, events: AsyncIterator[FeedEvent]) -> None:
        """Prints the lines for a feed's events, until the feed ends."""
        async for happened in events:
            line = self.line_of(happened)
            if line is not None:
                self.tell(line)

    def tell(self, line: TickerLine) -> None:
        """Prints a line; nothing with --quiet, and nothing if there is no reader."""
        if self._answers.style is Style.BARE or not _is_read():
            return
        line = TickerLine(
            line.kind, line.text, line.agent_id, line.task_id, line.generation, datetime.now(UTC)
        )
        seconds = time.monotonic() - self._began

        def text(console: Console) -> None:
            from rich.text import Text

            console.print(
                Text.assemble((f"{seconds:6.1f} s  ", "bright_black"), (line.text, _colour(line))),
                soft_wrap=True,
            )

        self._answers.give(line, text=text)

    def line_of(self, happened: FeedEvent) -> TickerLine | None:
        """Returns the line that explains an event to a person who watches; None for events that are
        left out."""
        event = happened.event
        task = event.get("task_id", "")
        agent = event.get("author_agent_id") or event.get("agent_id", "")
        generation = event.get("generation")
        told = self._told(happened.event_type, event, task, agent)
        return None if told is None else TickerLine(*told, agent, task, generation)

    def _told(
        self, kind: str, event: Mapping[str, Any], task: str, agent: str
    ) -> tuple[str, str] | None:
        generation = event.get("generation")
        match kind:
            case "CLAIM_ACQUIRED" if task in self._lost:
                before = self._lost.pop(task)
                return (
                    "takeover",
                    f"{agent} takes {task} over from {before}, generation {generation}",
                )
            case "CLAIM_ACQUIRED":
                return "grant", f"{agent} is granted {task}, generation {generation}"
            case "CLAIM_EXPIRED" | "CLAIM_ORPHANED":
                holder = event["holder_agent_id"]
                self._lost[task] = holder
                why = "ran out" if kind == "CLAIM_EXPIRED" else "ended: its process is gone"
                return "lost", f"the lease of {holder} on {task} {why}"
            case "RESULT_ACCEPTED" if author := event.get("author_agent_id"):
                return (
                    "result",
                    f"the result of {author} for {task} is approved, generation {generation}",
                )
            case "RESULT_ACCEPTED":
                self._lost.pop(task, None)
                return "result", f"{agent} completes {task}, generation {generation}"
            case "CONVERGENCE_ESCALATED":
                self._lost.pop(task, None)
                return (
                    "review",
                    f"{agent} hands in {task}, generation {generation}: it waits for a review",
                )
            case "RESULT_REJECTED":
                shown, now = event["submitted_generation"], event["current_generation"]
                return "refusal", (
                    f"{agent} is refused: its result is of generation {shown}, {task} is at {now}. "
                    "The result is kept"
                )
            case "CLAIM_RELEASED" if event["release_reason"] == "ERROR":
                return "failure", f"{agent} fails at {task} and gives it back"
            case "TASK_HELD":
                return "hold", f"{task} is held: {event['reason']}"
            case "TASK_REOPENED":
                return "reopen", f"{task} is reopened"
            case _:
                return None


def _colour(line: TickerLine) -> str:
    return _COLOURS[line.kind]


def _is_read() -> bool:
    """Can a line be written now? A full pipe would make the service wait for its reader."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(
            found & select.POLLOUT and not found & (select.POLLERR | select.POLLHUP)
            for _, found in poll.poll(0)
        )
    except (OSError, ValueError, AttributeError):
        return True
