"""The server on stdin and stdout, as a real process: calls, cancellation, wrong input, and how it
ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.mcp.stdio import Lines
from tests.cli.console import COMMAND
from tests.eventually import eventually
from tests.mcp.server import McpServer, fleet, held, make_project, server

GRACE_SECONDS = 0.35
"""A quarter of a second for the release, and something for a busy machine to notice."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path, "A-001-first", "A-002-second")


@pytest.fixture
def mcp(project: Path) -> Iterator[McpServer]:
    with server(project) as running:
        yield running


def test_a_task_is_claimed_and_its_result_submitted(mcp: McpServer, project: Path) -> None:
    assert mcp.ask("initialize", protocolVersion="2025-11-25")["result"]["instructions"]
    mcp.notify("notifications/initialized")
    claimed = mcp.facts("claim")
    assert (claimed["reason"], claimed["task"]) == ("GRANTED", "A-001-first")
    submitted = mcp.facts(
        "submit", task="A-001-first", generation=claimed["generation"], result={"files": []}
    )
    assert submitted["reason"] == "ACCEPTED"
    assert state(project, "A-001-first").state == "COMPLETED"


def test_tools_need_no_handshake(mcp: McpServer) -> None:
    assert mcp.facts("claim")["reason"] == "GRANTED"


def test_a_missing_store_is_an_answer_that_says_what_to_type(tmp_path: Path) -> None:
    with server(tmp_path) as mcp:
        assert mcp.ask("tools/list")["result"]["tools"]
        answer = mcp.call("claim")
        assert answer["isError"] is True
        assert answer["_meta"]["genlock/facts"]["reason"] == "STORE_MISSING"
        assert "genlock init" in answer["content"][0]["text"]
        make_project(tmp_path, "A-001-first")
        assert mcp.facts("claim")["reason"] == "GRANTED"


@pytest.mark.parametrize(
    ("env", "meta", "session"),
    [
        ({"GENLOCK_SESSION": "mine", "CLAUDE_CODE_SESSION_ID": "claudes"}, {}, "mine"),
        ({"CLAUDE_CODE_SESSION_ID": "claudes"}, {"threadId": "codexs"}, "claudes"),
        ({}, {"threadId": "codexs"}, "codexs"),
    ],
)
def test_the_session_is_that_of_the_agents_client(
    project: Path, env: dict[str, str], meta: dict[str, str], session: str
) -> None:
    with server(project, env) as mcp:
        mcp.ask("initialize", clientInfo={"name": "claude code", "version": "1"})
        mcp.ask("tools/call", name="claim", arguments={}, _meta=meta)
        claim = state(project, "A-001-first").claim
        assert claim is not None
        assert (claim.session_id, claim.agent_id) == (session, "claude-code")


def test_without_a_session_of_the_client_each_server_is_one(project: Path) -> None:
    with server(project) as first, server(project) as second:
        assert first.facts("claim")["task"] == "A-001-first"
        assert second.facts("claim")["task"] == "A-002-second"


@pytest.mark.parametrize("how", [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_claims_are_released_within_a_quarter_of_a_second_when_it_ends(
    mcp: McpServer, project: Path, how: signal.Signals | None
) -> None:
    mcp.facts("claim")
    mcp.facts("claim", agent="helper")
    assert held(project) == {"A-001-first": 1, "A-002-second": 1}
    assert mcp.end(how) < GRACE_SECONDS
    assert mcp.process.returncode == 0
    assert held(project) == {}


def test_a_second_signal_does_not_keep_it_from_releasing(mcp: McpServer, project: Path) -> None:
    mcp.facts("claim")
    mcp.process.send_signal(signal.SIGINT)
    mcp.process.send_signal(signal.SIGTERM)
    mcp.process.wait(10)
    assert held(project) == {}


@pytest.mark.parametrize("how", [None, signal.SIGTERM])
def test_it_ends_in_time_while_a_call_waits_for_a_task(
    mcp: McpServer, project: Path, how: signal.Signals | None
) -> None:
    mcp.facts("claim")
    mcp.facts("claim", agent="helper")
    mcp.begin("tools/call", name="claim", arguments={"wait_seconds": 45, "agent": "third"})
    mcp.ask("ping")
    assert mcp.end(how) < GRACE_SECONDS
    assert held(project) == {}


def test_it_ends_in_time_while_nobody_reads_its_answers(mcp: McpServer, project: Path) -> None:
    mcp.facts("claim")
    assert mcp.process.stdin is not None
    os.set_blocking(mcp.process.stdin.fileno(), False)
    asked = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n' * 100

    def is_stuck() -> bool:
        """The server no longer reads, as it cannot write."""
        try:
            os.write(mcp.process.stdin.fileno(), asked)  # type: ignore[union-attr]
        except BlockingIOError:
            return True
        return False

    eventually(is_stuck, "the server's answers fill the pipe")
    assert mcp.end(signal.SIGTERM) < GRACE_SECONDS
    assert held(project) == {}


def test_it_ends_when_its_parent_has_ended_even_if_stdin_stays_open(project: Path) -> None:
    """Servers left behind by their clients are a common complaint."""
    keeper = (
        "import os, subprocess, sys\n"
        "read, write = os.pipe()\n"
        "os.set_inheritable(write, True)\n"
        f"server = subprocess.Popen({[*COMMAND, 'mcp']!r}, stdin=read, pass_fds=[write])\n"
        "os.write(write, sys.stdin.buffer.readline())\n"
        "sys.stdin.buffer.readline()\n"
        "os._exit(0)\n"
    )
    with server(project, command=[sys.executable, "-c", keeper]) as mcp:
        mcp.ask("ping")
        mcp.send(b"end\n")
        mcp.process.wait(10)
        # The server has stdout and both ends of its stdin; it ends them with itself.
        assert mcp.process.stdout is not None
        eventually(lambda: mcp.process.stdout.read() == b"", "the server to end")  # type: ignore[union-attr]


def test_a_cancelled_wait_takes_no_task_along(mcp: McpServer, project: Path) -> None:
    mcp.facts("claim")
    mcp.facts("claim", agent="helper")
    number = mcp.begin("tools/call", name="claim", arguments={"wait_seconds": 45, "agent": "third"})
    mcp.notify("notifications/cancelled", requestId=number)
    mcp.ask("ping")
    with fleet(project) as opened:
        opened.add_tasks(tasks=["A-003-third"])
    # If the cancelled request was granted the task, it gives it back. Nobody answers it.
    granted = eventually(lambda: _granted(mcp, "fourth"), "the task to be free")
    assert granted["task"] == "A-003-third"


def _granted(mcp: McpServer, agent: str) -> Any:
    """The facts of a grant of the next task, if there is one."""
    facts = mcp.facts("claim", agent=agent)
    return facts if facts["reason"] == "GRANTED" else None


def state(project: Path, task: str) -> genlock.TaskState:
    """A task as it is now."""
    with fleet(project) as opened:
        return opened.get_task_state(task_id=task)


def test_calls_run_beside_each_other(mcp: McpServer) -> None:
    mcp.facts("claim")
    mcp.facts("claim", agent="helper")
    waiting = mcp.begin("tools/call", name="claim", arguments={"wait_seconds": 45, "agent": "x"})
    assert mcp.call("list", what="mine")["isError"] is False
    mcp.begin("tools/call", name="release", arguments={"task": "A-001-first", "generation": 1})
    replies = {reply["id"]: reply["result"] for reply in (mcp.read(), mcp.read())}
    assert replies[waiting]["_meta"]["genlock/facts"]["task"] == "A-001-first"


def test_a_lost_claim_is_told_with_the_next_answer(project: Path) -> None:
    with server(project) as mcp, fleet(project) as opened:
        opened.edit_task(task_id="A-001-first", changes={"lease_seconds": 2})
        mcp.facts("claim")
        opened.force_release(task_id="A-001-first", take_over=True)
        opened.claim_task(task_id="A-001-first")

        def told() -> bool:
            text: str = mcp.call("list")["content"][0]["text"]
            return "LOST: your claim of A-001-first at generation 1 (taken)" in text

        eventually(told, "the loss to be noticed at a renewal")
        assert "LOST" not in mcp.call("list")["content"][0]["text"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\n",
        b"\x00\xff\xfe\n",
        b"[]\n",
        b'{"jsonrpc":"2.0","id":1}\n',
        b"[" * 50_000 + b"\n",
    ],
)
def test_garbage_is_answered_with_an_error_and_the_server_goes_on(
    mcp: McpServer, garbage: bytes
) -> None:
    mcp.send(garbage)
    assert mcp.read()["error"]["code"] in (-32700, -32600)
    assert mcp.ask("ping")["result"] == {}


def test_a_message_may_come_in_pieces_and_several_in_one(mcp: McpServer) -> None:
    ping = b'{"jsonrpc":"2.0","id":"%s","method":"ping"}\n'
    for byte in ping % b"slow":
        mcp.send(bytes([byte]))
    assert mcp.read()["id"] == "slow"
    mcp.send(ping % b"a" + b"\n\n" + ping % b"b")
    assert [mcp.read()["id"], mcp.read()["id"]] == ["a", "b"]


def test_half_a_message_at_the_end_is_no_message(mcp: McpServer) -> None:
    mcp.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    mcp.end(None)
    assert mcp.process.stdout is not None
    assert mcp.process.stdout.read() == b""


def test_a_huge_message_is_refused_and_the_server_goes_on(mcp: McpServer) -> None:
    piece = b"x" * (1 << 20)
    for _ in range(17):
        mcp.send(piece)
    mcp.send(b"\n")
    assert mcp.read()["error"]["code"] == -32600
    assert mcp.ask("ping")["result"] == {}


def test_a_line_that_is_too_long_is_not_kept_in_memory() -> None:
    lines = Lines(longest=10)
    assert list(lines.feed(b"0123456789\nabc")) == [b"0123456789"]
    for _ in range(100):
        assert list(lines.feed(b"0123456789")) == []
    assert lines._pieces == []
    assert list(lines.feed(b"\nok\n")) == [None, b"ok"]


def test_a_second_request_of_an_id_that_is_not_answered_yet_is_refused(mcp: McpServer) -> None:
    mcp.facts("claim")
    mcp.facts("claim", agent="helper")
    number = mcp.begin("tools/call", name="claim", arguments={"wait_seconds": 45, "agent": "x"})
    mcp.send(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list"}}\n' % number)
    assert mcp.read()["error"]["code"] == -32600


def test_what_is_printed_does_not_get_between_the_messages(tmp_path: Path) -> None:
    """A library that prints would break the protocol."""
    script = (
        "import os\n"
        "from genlock.mcp.answer import Caller\n"
        "from genlock.mcp.stdio import Server\n"
        "def connect():\n"
        "    print('printed', flush=True)\n"
        "    os.system('echo child')\n"
        "    from genlock.mcp.connection import Connection\n"
        "    import genlock\n"
        "    return Connection(lambda: genlock.connect('memory://'))\n"
        "def identify(meta, client):\n"
        "    return Caller(session='s', agent='a', project='default', renewed=True)\n"
        "Server(connect, identify=identify).serve()\n"
    )
    with server(tmp_path, command=[sys.executable, "-c", script]) as mcp:
        assert mcp.call("list")["isError"] is False
        mcp.end(None)
        assert mcp.errors().split() == ["printed", "child"]


def test_a_call_that_is_under_way_when_stdin_ends_is_answered(mcp: McpServer) -> None:
    mcp.call("list")  # what it imports has been imported
    number = mcp.begin("tools/call", name="list")
    assert mcp.end(None) < GRACE_SECONDS
    assert mcp.read()["id"] == number
