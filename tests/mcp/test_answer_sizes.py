"""The largest answer of each tool on a plan that is as bad as plans get: 2,000 tasks, 256
dependencies, long titles and ids, hostile text. A model pays for each answer, so none has more than
2,000 tokens at four characters each.

`pytest -s` prints what was measured, with the structured part, which clients keep from models.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import genlock
from genlock.mcp import protocol, scripts
from genlock.mcp.answer import Answer, Caller
from genlock.mcp.protocol import Plan, Task
from genlock.mcp.tools import TOOLS
from genlock.testing.clock import ManualClock
from genlock.wire.operations import BY_CALL
from tests.hostile_text import HOSTILE
from tests.mcp.messages import message

MOST_TOKENS = 2000
LONG = "A-{:03}-" + "x" * 45
TITLE = (HOSTILE + "漢字🔒\\\"'" * 40)[:500]
HUB, WIDE, WORN = "hub", "wide", "worn"


class BadPlan:
    """A coordinator with such a plan, and tools called on it."""

    def __init__(self) -> None:
        self.fleet = genlock.connect("memory://", clock=ManualClock(), process=None)
        leaves = [LONG.format(number) for number in range(256)]
        tasks: list[dict[str, Any]] = [{"id": leaf, "title": TITLE} for leaf in leaves]
        tasks.append({"id": WIDE, "title": TITLE, "depends_on": leaves})
        tasks.append({"id": HUB, "title": TITLE, "description": HOSTILE * 40})
        tasks.append({"id": WORN, "title": TITLE, "description": "word " * 3_000})
        tasks += [
            {"id": f"B-{number:04}-" + "y" * 100, "title": TITLE, "depends_on": leaves[:20]}
            for number in range(2000 - len(tasks))
        ]
        self.fleet.add_tasks(tasks=tasks)
        for number in range(8):
            self._fail(WORN, f"{number}-" + "z" * 100)

    def _fail(self, task: str, agent: str) -> None:
        who: dict[str, Any] = {"session_id": agent, "agent_id": agent}
        claim = self.fleet.claim_task(task_id=task, **who).require()
        fence: dict[str, Any] = {"task_id": task, "generation": claim.generation}
        self.fleet.report_progress(
            **fence, **who, fraction=0.5, note=HOSTILE[:300] + "n" * 190, cost={"usd": 1.5}
        )
        self.fleet.release_claim(
            task_id=task, generation=claim.generation, session_id=agent, note="r" * 500
        )
        self.fleet.submit_result(**fence, **who, result_data={"text": HOSTILE * 100})

    def call(self, asked: Any, who: str = "ada") -> Answer:
        caller = Caller(session=f"{who}-session", agent=who, project="default", renewed=False)
        return scripts.run(asked, caller, self._perform)

    def _perform(self, call: Any) -> Any:
        return getattr(self.fleet, BY_CALL[type(call)].name)(**scripts.keywords(call))


def answers() -> dict[str, list[Answer]]:
    """Of each tool and resource, the answers that have most to say."""
    plan = BadPlan()

    def call(name: str, who: str = "ada", **arguments: Any) -> Answer:
        return plan.call(TOOLS[name](**arguments), who)

    with plan.fleet:
        found: dict[str, list[Answer]] = {
            "list": [
                call("list"),
                call("list", what="blocked"),
                call("list", track="no such " + HOSTILE[:100]),
            ],
            "show": [call("show", task=task) for task in (WIDE, HUB, WORN, "nothing" * 15)],
            "claim": [
                call("claim", task=WIDE),
                call("claim", task="nothing" * 15),
                call("claim", task=WORN),
                call("claim", task=WORN),
                call("claim", task=HUB, who="bob" * 40),
            ],
            "plan resource": [plan.call(Plan())],
            "task resource": [plan.call(Task(HUB)), plan.call(Task(WORN))],
        }
        held = plan.fleet.get_task_state(task_id=WORN).generation
        fence: dict[str, Any] = {"task": WORN, "generation": held}
        for number in range(150):
            plan.fleet.claim_task(
                task_id=LONG.format(number), session_id="many-session", agent_id=f"m{number}"
            )
        found["list"] += [
            call("list", who="many", what="mine"),
            call("list", what="working"),
        ]
        found["plan resource"].append(plan.call(Plan()))
        found["progress"] = [
            call("progress", **fence, note="n" * 500, fraction=0.1),
            call("progress", task=WORN, generation=1),
        ]
        found["add"] = [
            call("add", id="new", title=TITLE, depends_on=[LONG.format(0)] * 256),
            call("add", id=HOSTILE * 100, title=TITLE),
            call("add", id="cyclic", title=TITLE, depends_on=["cyclic"]),
            call(
                "add", id="lost", title=TITLE, depends_on=["m" * 120 + str(n) for n in range(256)]
            ),
        ]
        found["submit"] = [
            call("submit", task=WORN, generation=1, result=HOSTILE * 1000),
            call("submit", task=WORN, generation=held + 7, result="x"),
        ]
        parts = [{"id": f"part-{number:02}-" + "s" * 50, "title": TITLE} for number in range(30)]
        found["spawn"] = [
            call("spawn", **fence, subtasks=[TITLE] * 300),
            call("spawn", **fence, subtasks=parts),
        ]
        found["submit"].append(call("submit", **fence, result="after the split"))
        hub = plan.fleet.get_task_state(task_id=HUB).generation
        large = {"text": HOSTILE * 200}
        found["submit"].append(call("submit", "bob" * 40, task=HUB, generation=hub, result=large))
        leaf = LONG.format(200)
        call("claim", task=leaf)
        found["release"] = [
            call("release", task=WORN, generation=1, note="n" * 500),
            call("release", task=leaf, generation=1, note="n" * 5000),
            call("release", task=leaf, generation=1, failed=True, note=HOSTILE[:200]),
        ]
        # With a result as large as a dependent may find.
        found["show"].append(call("show", task=HUB))
        return found


def shown(answer: Answer) -> str:
    """The whole reply, as a client gets it."""
    work = protocol.handle(message("tools/call", name="list", arguments={}))
    assert isinstance(work, protocol.Work)
    return work.reply(answer).body.decode()


def test_no_tool_answers_with_more_than_two_thousand_tokens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answers()
    assert set(TOOLS) <= set(found)
    reasons = {each.facts.get("reason") for told in found.values() for each in told}
    assert {"GRANTED", "RENEWED", "DONE", "ACCEPTED", "RELEASED"} <= reasons
    worst = {name: max(told, key=lambda each: len(each.text)) for name, told in found.items()}
    for name, answer in worst.items():
        print(
            f"{name:14} {len(answer.text) / 4:6.0f} tokens of text, "
            f"{len(json.dumps(answer.facts, default=str)) / 4:5.0f} beside it, "
            f"{len(shown(answer)) / 4:6.0f} on the wire"
        )
    assert {
        name: len(answer.text) / 4
        for name, answer in worst.items()
        if len(answer.text) / 4 > MOST_TOKENS
    } == {}
    beside = {
        name: max(len(json.dumps(each.facts, default=str)) / 4 for each in told)
        for name, told in found.items()
    }
    assert {name: size for name, size in beside.items() if size > MOST_TOKENS} == {}
