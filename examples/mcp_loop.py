"""The loop of a coding agent over MCP, with a script in the place of the model.

    pip install mcp && python examples/mcp_loop.py

It starts `genlock mcp` as an agent's client does, asks for the prompt that teaches the loop, and
then claims, reports and submits until the plan is finished.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import TextContent

import genlock


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The facts of an answer. A model reads its text: `result.content`."""
    result = await client.call_tool(tool, arguments)
    facts: dict[str, Any] = (result.meta or {})["genlock/facts"]
    return facts


async def work(folder: Path) -> None:
    """One agent."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "genlock.cli", "mcp"], cwd=folder
    )
    async with Client(server) as client:
        (taught,) = (await client.get_prompt("work", {})).messages
        assert isinstance(taught.content, TextContent)
        print("taught:", taught.content.text.splitlines()[0])
        while True:
            facts = await call(client, "claim")
            if facts["reason"] != "GRANTED":
                print(facts["reason"], facts.get("standing", ""))
                return
            print("claimed", facts["task"], "at generation", facts["generation"])
            claim = {"task": facts["task"], "generation": facts["generation"]}
            await call(client, "progress", **claim, fraction=0.5, note="half of it")
            facts = await call(client, "submit", **claim, result="done")
            print(facts["reason"], claim["task"])


def main() -> None:
    """A plan of two tasks, and one agent."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".genlock").mkdir(mode=0o700)
        url = f"sqlite://{folder}/.genlock/genlock.db"
        with genlock.connect(url, create=True) as fleet:
            fleet.add_tasks(
                tasks=["A-001-first", {"id": "A-002-second", "depends_on": ["A-001-first"]}]
            )
        asyncio.run(work(folder))


if __name__ == "__main__":
    main()
