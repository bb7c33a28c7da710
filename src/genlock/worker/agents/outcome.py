"""The outcome of an agent's work on a task, judged by its output and its exit.

An agent's exit code alone means little: some exit with 0 after an error, some hang after their
result.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

from genlock.worker.agents.catalog import AgentClient
from genlock.worker.agents.transcript import TAIL_BYTES, Transcript, Trouble, trouble_of
from genlock.worker.warded import Ended

_LONGEST_DETAIL: Final = 300


class Outcome(StrEnum):
    """How the work of one generation ended."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """The result came too late, and was kept."""
    FAILED = "failed"
    LIMIT_REACHED = "limit_reached"
    """The model's service accepts no more requests for now."""
    NOT_ALLOWED = "not_allowed"
    """The agent is not signed in, or its account is not paid."""
    CUT_OFF = "cut_off"
    """It had used up its turns, its budget or its time."""
    HUNG = "hung"
    """It wrote nothing for too long."""
    LOST = "lost"
    """The claim was lost, and the agent was ended."""
    INTERRUPTED = "interrupted"
    """The pool was stopped."""
    NOT_STARTED = "not_started"
    UNREACHABLE = "unreachable"
    """The result could not be submitted; it is in a file."""


class Stop(StrEnum):
    """Why the pool ended an agent."""

    LINGERED = "lingered"
    IDLE = "idle"
    TIMEOUT = "timeout"
    TURNS = "turns"
    COST = "cost"
    SIGNAL = "signal"


class Verdict(NamedTuple):
    """Is there a result to submit, and if not, why?"""

    outcome: Outcome | None
    """None: the work is done."""
    detail: str = ""


DONE: Final = Verdict(None)

_STOPPED: Final = {
    Stop.LINGERED: Verdict(Outcome.HUNG, "it did not end after its result"),
    Stop.IDLE: Verdict(Outcome.HUNG, "it wrote nothing for too long"),
    Stop.TIMEOUT: Verdict(Outcome.CUT_OFF, "its time was up"),
    Stop.TURNS: Verdict(Outcome.CUT_OFF, "it had used up its turns"),
    Stop.COST: Verdict(Outcome.CUT_OFF, "the fleet had used up its budget"),
    Stop.SIGNAL: Verdict(Outcome.INTERRUPTED, "the fleet was stopped"),
}
_TROUBLES: Final = {
    Trouble.LIMIT: Outcome.LIMIT_REACHED,
    Trouble.NOT_ALLOWED: Outcome.NOT_ALLOWED,
    Trouble.CUT_OFF: Outcome.CUT_OFF,
}


def judge(
    client: AgentClient, seen: Transcript, ended: Ended, stop: Stop | None, *, has_result: bool
) -> Verdict:
    """Returns the verdict on an agent that has ended and whose claim is not lost. `has_result`
    tells whether it has written a result file."""
    if stop is Stop.SIGNAL:
        return _STOPPED[stop]
    if stop is not None:
        if seen.finished:  # it hung after its result, which counts
            return _failed(client, seen, ended) if seen.failed else DONE
        return _STOPPED[stop]
    if ended.code == 0 and not seen.failed:
        if client.says_its_end and not (seen.finished or has_result):
            return Verdict(Outcome.FAILED, "it ended without a result")
        return DONE
    return _failed(client, seen, ended)


def _failed(client: AgentClient, seen: Transcript, ended: Ended) -> Verdict:
    trouble = seen.trouble or client.exit_codes.get(ended.code)
    trouble = trouble or trouble_of(seen.error or seen.last_words())
    last = seen.errors[-_LONGEST_DETAIL:].decode(errors="replace")
    told = " ".join((seen.error or last or seen.activity).split())[-_LONGEST_DETAIL:]
    detail = f"{told} ({ended.told})" if told else ended.told
    return Verdict(Outcome.FAILED if trouble is None else _TROUBLES[trouble], detail)


def result_of(seen: Transcript) -> Any:
    """Returns the result of an agent that wrote no result file: its reported answer, otherwise its
    last JSON line, otherwise the last 4 KB of its output."""
    if seen.answer is not None:
        return seen.answer
    if seen.last_json is not None:
        return seen.last_json
    return seen.output[-TAIL_BYTES:].decode(errors="replace").strip()
