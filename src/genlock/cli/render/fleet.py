"""The display of `genlock work`: a live table on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from genlock.cli.answers import Answers, Style, forget_stdout
from genlock.cli.render.text import tell
from genlock.safe_text import safe_line
from genlock.worker.agents.agent_run import Report
from genlock.worker.agents.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from genlock.worker.agents.agent_pool import AgentPool

_STYLES: Final = {
    Outcome.ACCEPTED: "green",
    Outcome.LIMIT_REACHED: "yellow",
    Outcome.CUT_OFF: "yellow",
    Outcome.INTERRUPTED: "yellow",
}
_ENDINGS: Final = {
    "done": "Nothing is left to do",
    "max_tasks": "As many tasks as asked for were taken",
    "max_failures": "Too many tasks failed",
    "max_cost": "The budget is used up",
    "signal": "Stopping: the agents at work come to their end; Ctrl-C again ends them now",
    "not_allowed": "The agents are not allowed to work",
    "not_started": "An agent could not be started",
    "unreachable": "No coordinator was reached",
    "unread": "Nobody reads the output any more",
    "error": "Something went wrong",
}


_AS_ASKED: Final = ("done", "max_tasks", "max_cost", "signal", "unread")


class Viewer(Protocol):
    """A display of a pool."""

    def tell(self, event: str, told: dict[str, Any]) -> None:
        """Reports an event. May be called in any thread."""

    def show(self, pool: AgentPool) -> AbstractContextManager[object]:
        """Shows the agents while the block lasts."""

    def refresh(self) -> None:
        """Updates displayed times."""

    def finish(self, pool: AgentPool) -> None:
        """Reports the end of the pool."""


def viewer(answers: Answers, agents: Sequence[str]) -> Viewer:
    """Returns the display that suits the reader of stdout."""
    if answers.style is Style.TEXT:
        return _Table(answers.console(), agents)
    return _Lines(answers)


def totals(pool: AgentPool) -> dict[str, Any]:
    """Returns the totals of a pool."""
    return {
        "outcomes": {str(outcome): count for outcome, count in sorted(pool.outcomes.items())},
        "turns": pool.turns,
        "cost_usd": round(pool.cost_usd, 4),
        "reason": pool.ending.reason if pool.ending else "",
        "detail": pool.ending.detail if pool.ending else "",
    }


class _Lines:
    """One JSON object for each event; with --quiet only the ids of tasks that were done."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._lock = threading.RLock()
        self._began = time.monotonic()
        self._unread = False
        self._pool: AgentPool | None = None

    def tell(self, event: str, told: dict[str, Any]) -> None:
        report = told.get("report")
        if self._answers.style is Style.BARE:
            if isinstance(report, Report) and report.outcome is Outcome.ACCEPTED:
                self._write(lambda: self._answers.write_text(f"{report.task_id}\n"))
            return
        if isinstance(report, Report):
            told = msgspec.to_builtins(report)
        if "until" in told:
            told = {**told, "until": _instant(told["until"])}
        line = msgspec.json.encode({"event": event, "at": _instant(time.time()), **told})
        self._write(lambda: self._answers.write_json(line + b"\n"))

    def _write(self, write: Callable[[], None]) -> None:
        """Writes a line. A failure must not stop agents at work: if the reader has gone, they
        finish and no more are started."""
        with self._lock:
            if self._unread:
                return
            try:
                write()
            except OSError:
                self._unread = True
                forget_stdout()
                if self._pool is not None:
                    self._pool.stop("unread")

    def show(self, pool: AgentPool) -> AbstractContextManager[object]:
        self._pool = pool
        return nullcontext()

    def refresh(self) -> None:
        pass

    def finish(self, pool: AgentPool) -> None:
        if self._answers.style is Style.BARE:
            if pool.ending is not None and pool.ending.reason not in _AS_ASKED:
                tell(f"genlock: {_ENDINGS[pool.ending.reason]}: {pool.ending.detail}")
            return
        seconds = round(time.monotonic() - self._began, 1)
        self.tell("totals", {"seconds": seconds, **totals(pool)})


class _Table:
    """A table with a row for each agent, and above it the events."""

    def __init__(self, console: Console, agents: Sequence[str]) -> None:
        self._console = console
        self._agents = agents
        self._began = time.monotonic()
        self._live: Live | None = None
        self._pool: AgentPool | None = None

    def tell(self, event: str, told: dict[str, Any]) -> None:
        from rich.text import Text

        found = _line(event, told)
        if found is not None:
            text, style = found
            self._console.print(Text(safe_line(text), style=style))

    @contextmanager
    def show(self, pool: AgentPool) -> Iterator[None]:
        from rich.live import Live

        self._pool = pool
        with Live(
            self._picture(), console=self._console, auto_refresh=False, transient=True
        ) as self._live:
            yield
        self._live = None

    def refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def finish(self, pool: AgentPool) -> None:
        self._console.print(self._footer(pool))

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        pool = self._pool
        assert pool is not None
        table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="dim")
        for heading, options in _COLUMNS:
            table.add_column(heading, no_wrap=True, **options)
        running = dict(pool.running())
        for slot, agent in enumerate(self._agents):
            run = running.get(slot)
            if run is None:
                table.add_row(safe_line(agent), "", "", "", "", "", Text(self._idle(), "dim"))
                continue
            claim, seen = run.grant.claim, run.seen
            table.add_row(
                safe_line(agent),
                Text(safe_line(claim.task_id), "bold"),
                str(claim.generation),
                span(time.monotonic() - run.began),
                str(seen.turns or ""),
                _usd(seen.cost_usd),
                Text(safe_line(seen.activity or "starts")),
            )
        return Group(table, self._footer(pool))

    def _idle(self) -> str:
        pool = self._pool
        assert pool is not None
        left = pool.paused_until - time.time()
        if pool.ending is not None:
            return "ended"
        return f"waits {span(left)} for a limit to end" if left > 0 else "waits for a task"

    def _footer(self, pool: AgentPool) -> RenderableType:
        from rich.text import Text

        parts = [
            f"{count} {outcome.replace('_', ' ')}"
            for outcome, count in sorted(pool.outcomes.items())
        ]
        parts += [f"{pool.turns} turns"] * bool(pool.turns) + [_usd(pool.cost_usd)] * bool(
            pool.cost_usd
        )
        return Text(" · ".join([*parts, span(time.monotonic() - self._began)]), style="dim")


_COLUMNS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("agent", {}),
    ("task", {"max_width": 32, "overflow": "ellipsis"}),
    ("gen", {"justify": "right"}),
    ("time", {"justify": "right"}),
    ("turns", {"justify": "right"}),
    ("cost", {"justify": "right"}),
    ("doing", {"ratio": 1, "overflow": "ellipsis"}),
)


def _line(event: str, told: dict[str, Any]) -> tuple[str, str] | None:
    """Returns the text of an event for a terminal, and its colour."""
    report = told.get("report")
    if isinstance(report, Report):
        return _report_line(report), _STYLES.get(report.outcome, "red")
    if event == "paused":
        return f"Paused for {span(told['until'] - time.time())}: {told['detail']}", "yellow"
    if event == "stopping":
        detail = f": {told['detail']}" if told["detail"] and told["reason"] != "signal" else ""
        return f"{_ENDINGS[told['reason']]}{detail}", "bold"
    if event in ("away", "error"):
        return str(told["detail"]), "red"
    return None


def _report_line(report: Report) -> str:
    parts = [
        f"{report.outcome.replace('_', ' ')}  {report.task_id}",
        f"generation {report.generation}",
        span(report.seconds),
        f"{report.turns} turns" if report.turns else "",
        _usd(report.cost_usd),
        report.detail,
        f"kept as {report.refused_id}" if report.refused_id else "",
        f"kept: {report.kept}" if report.kept else "",
        f"the result is in {report.result_file}" if report.result_file else "",
    ]
    return ", ".join(part for part in parts if part)


def span(seconds: float) -> str:
    """Formats a duration: 1:05, 2:03:04."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _usd(amount: float | None) -> str:
    return "" if amount is None else f"${amount:.2f}"


def _instant(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
