"""What the official client of the protocol sees, in both eras: in memory, over stdio, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent, TextResourceContents

import genlock
from genlock.mcp.answer import LONGEST
from tests.cli.console import COMMAND, environment
from tests.mcp.memory import memory_transport
from tests.mcp.server import fleet, make_project
from tests.servers.service import Service, serving

Mode: TypeAlias = Literal["legacy", "auto"]
Connect: TypeAlias = Callable[[], Client]

TASKS: list[dict[str, Any]] = [
    {"id": "A-001-first", "title": "First", "description": "Write it."},
    {"id": "A-002-second", "title": "Second", "depends_on": ["A-001-first"]},
]


def over_memory(folder: Path, mode: Mode) -> Iterator[Connect]:
    with genlock.connect("memory://") as opened:
        opened.add_tasks(tasks=TASKS)
        yield lambda: Client(memory_transport(opened), mode=mode)


def over_stdio(folder: Path, mode: Mode) -> Iterator[Connect]:
    make_project(folder)
    with fleet(folder) as opened:
        opened.add_tasks(tasks=TASKS)
    server = StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], "mcp"],
        env=environment({"GENLOCK_SESSION": None}),
        cwd=folder,
    )
    yield lambda: Client(server, mode=mode)


def over_http(folder: Path, mode: Mode) -> Iterator[Connect]:
    with serving() as service:
        service.do(service.coordinator.add_tasks(tasks=TASKS))
        yield lambda: Client(http_transport(service, {"genlock-session": "http"}), mode=mode)


@asynccontextmanager
async def http_transport(
    service: Service, headers: dict[str, str]
) -> AsyncIterator[TransportStreams]:
    """The official client's own way over HTTP, without reading the machine's certificates."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, verify=False) as client,
        streamable_http_client(f"{service.url}/mcp", http_client=client) as streams,
    ):
        yield streams


TRANSPORTS: dict[str, Callable[[Path, Mode], Iterator[Connect]]] = {
    "memory": over_memory,
    "stdio": over_stdio,
    "http": over_http,
}


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """How the client begins: by the handshake, or by discovery."""
    chosen: Mode = request.param
    return chosen


@pytest.fixture(params=TRANSPORTS)
def connect(request: pytest.FixtureRequest, mode: Mode, tmp_path: Path) -> Iterator[Connect]:
    """Connects the official client to a server of a project with two tasks."""
    yield from TRANSPORTS[request.param](tmp_path, mode)


async def say(client: Client, tool: str, **arguments: Any) -> tuple[bool, str, Any]:
    """Whether a tool's answer is an error, its text, and its reason."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert len(content.text) <= LONGEST
    facts = (result.meta or {}).get("genlock/facts", {})
    return result.is_error, content.text, facts.get("reason")


def test_the_client_and_the_server_agree_on_the_newest_version_of_the_era(
    connect: Connect, mode: Mode
) -> None:
    async def use() -> None:
        async with connect() as client:
            assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
            assert client.server_info is not None
            assert client.server_info.name == "genlock"
            assert "one plan of tasks" in (client.instructions or "")

    asyncio.run(use())


def test_what_the_server_lists_is_valid_for_the_client(connect: Connect) -> None:
    async def use() -> None:
        async with connect() as client:
            tools = (await client.list_tools()).tools
            assert len(tools) == 8
            assert all(
                tool.annotations is not None and tool.annotations.destructive_hint is False
                for tool in tools
            )
            assert len((await client.list_resources()).resources) == 1
            assert len((await client.list_resource_templates()).resource_templates) == 1
            assert len((await client.list_prompts()).prompts) == 1

    asyncio.run(use())


def test_the_loop_that_the_prompt_teaches_finishes_the_plan(connect: Connect) -> None:
    async def use() -> None:
        async with connect() as client:
            (taught,) = (await client.get_prompt("work", {"track": "A"})).messages
            assert isinstance(taught.content, TextContent)
            done = []
            while True:
                result = await client.call_tool("claim", {"task": "next", "track": "A"})
                facts = (result.meta or {})["genlock/facts"]
                if facts["reason"] != "GRANTED":
                    break
                claim = {"task": facts["task"], "generation": facts["generation"]}
                done.append(facts["task"])
                assert (await say(client, "progress", **claim, note="begun"))[2] == "RENEWED"
                assert (await say(client, "submit", **claim, result="done"))[2] == "ACCEPTED"
            assert done == ["A-001-first", "A-002-second"]
            assert facts == {"reason": "NOTHING_READY", "standing": "finished"}

    asyncio.run(use())


def test_every_tool_succeeds(connect: Connect) -> None:
    async def use() -> None:
        first = {"task": "A-001-first", "generation": 1}
        async with connect() as client:
            assert (await say(client, "add", id="A-003-third", title="Third"))[2] == "DONE"
            assert (await say(client, "list"))[1].startswith("Ready to be claimed")
            assert (await say(client, "claim"))[2] == "GRANTED"
            assert (await say(client, "progress", **first, fraction=0.5))[2] == "RENEWED"
            assert "50% done" in (await say(client, "show", task="A-001-first"))[1]
            assert (await say(client, "release", **first))[2] == "RELEASED"
            assert (await say(client, "claim", task="A-003-third"))[2] == "GRANTED"
            third = {"task": "A-003-third", "generation": 1}
            assert (await say(client, "spawn", **third, subtasks=["a part"]))[2] == "ACCEPTED"
            assert (await say(client, "claim", task="A-001-first"))[2] == "GRANTED"
            first["generation"] = 2
            assert (await say(client, "submit", **first, result={"x": [1]}))[2] == "ACCEPTED"

    asyncio.run(use())


def test_every_tool_refuses_as_an_error_with_its_reason(connect: Connect) -> None:
    async def use() -> None:
        nothing = {"task": "A-001-first", "generation": 1}
        refusals: dict[str, tuple[dict[str, Any], str]] = {
            "claim": ({"task": "A-002-second"}, "DENIED_BLOCKED"),
            "submit": (nothing, "FUTURE_GENERATION"),
            "release": (nothing, "GENERATION_MISMATCH"),
            "progress": (nothing, "GENERATION_MISMATCH"),
            "spawn": ({**nothing, "subtasks": ["x"]}, "FUTURE_GENERATION"),
            "add": ({"id": "A-001-first", "title": "Other"}, "TASK_EXISTS"),
            "show": ({"task": "A-009-none"}, "TASK_NOT_FOUND"),
            "list": ({"what": "nonsense"}, "BAD_ARGUMENT"),
        }
        async with connect() as client:
            for tool, (arguments, reason) in refusals.items():
                is_error, text, told = await say(client, tool, **arguments)
                assert (tool, is_error, told) == (tool, True, reason)
                assert text.startswith(f"{reason}: ")

    asyncio.run(use())


def test_what_is_claimed_already_is_an_error(connect: Connect) -> None:
    async def use() -> None:
        async with connect() as client:
            await say(client, "claim")
            named: list[dict[str, str]] = [{}, {"task": "A-001-first"}]
            for arguments in named:
                is_error, text, reason = await say(client, "claim", **arguments)
                assert (is_error, reason) == (True, "ALREADY_HELD")
                assert "at generation 1" in text

    asyncio.run(use())


def test_resources_show_the_plan_and_a_task(connect: Connect) -> None:
    async def use() -> None:
        async with connect() as client:
            (plan,) = (await client.read_resource("genlock://plan")).contents
            (task,) = (await client.read_resource("genlock://task/A-001-first")).contents
            assert isinstance(plan, TextResourceContents)
            assert isinstance(task, TextResourceContents)
            assert "A: 0 done, 0 at work, 1 ready, 1 blocked" in plan.text
            assert "Write it." in task.text
            for unknown in ("genlock://nothing", "genlock://task/A-009-none"):
                with pytest.raises(MCPError) as raised:
                    await client.read_resource(unknown)
                assert raised.value.code == -32602

    asyncio.run(use())


def test_an_unknown_tool_is_an_error_of_the_protocol_that_names_the_tools(connect: Connect) -> None:
    async def use() -> None:
        async with connect() as client:
            with pytest.raises(MCPError, match="claim, submit, release"):
                await client.call_tool("nope", {})

    asyncio.run(use())
