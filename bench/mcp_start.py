"""What a stdio server costs: `genlock mcp` beside a server of the official package, in one run.

    python -m bench.mcp_start [ROUNDS]

Both have eight tools and are started in turns. Measured are the time from the start to the first
answer, the memory then, and the memory after the first call of a tool.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import genlock

_OFFICIAL = """
from mcp.server import MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations
server = MCPServer("peer", version="1", instructions="x")
HINTS = ToolAnnotations(destructive_hint=False, open_world_hint=False)
for number in range(8):
    def tool(task: str = "next", generation: int = 1, note: str = "") -> CallToolResult:
        "Do something with a task."
        return CallToolResult(content=[TextContent(type="text", text="done")])
    server.tool(name=f"tool{number}", annotations=HINTS)(tool)
server.run("stdio")
"""
_GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Start(NamedTuple):
    """One server's start."""

    seconds: float
    kilobytes: int
    called_kilobytes: int


def main() -> None:
    """Prints the medians."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    servers = {
        "genlock mcp": ([sys.executable, "-m", "genlock.cli", "mcp"], "list"),
        "official package": ([sys.executable, "-c", _OFFICIAL], "tool1"),
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".genlock").mkdir(mode=0o700)
        url = f"sqlite://{folder}/.genlock/genlock.db"
        with genlock.connect(url, create=True) as fleet:
            fleet.add_tasks(tasks=["a"])
        starts: dict[str, list[Start]] = {name: [] for name in servers}
        for _ in range(rounds):
            for name, (command, tool) in servers.items():
                starts[name].append(_start(command, tool, folder))
    for name, found in starts.items():
        seconds = statistics.median(start.seconds for start in found)
        memory = statistics.median(start.kilobytes for start in found) / 1024
        called = statistics.median(start.called_kilobytes for start in found) / 1024
        print(
            f"{name:18} first answer {seconds * 1000:6.0f} ms, {memory:5.1f} MB; "
            f"after a call {called:5.1f} MB"
        )


def _start(command: list[str], tool: str, folder: str) -> Start:
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": folder},
    ) as server:
        _ask(server, 1, "initialize", _GREETING)
        seconds = time.perf_counter() - began
        memory = _kilobytes(server.pid)
        _send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        _ask(server, 2, "tools/call", {"name": tool, "arguments": {}})
        called = _kilobytes(server.pid)
        server.kill()
    return Start(seconds, memory, called)


def _ask(server: subprocess.Popen[bytes], number: int, method: str, params: Any) -> None:
    _send(server, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert server.stdout is not None
    assert "result" in json.loads(server.stdout.readline())


def _send(server: subprocess.Popen[bytes], message: Any) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()


def _kilobytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0])


if __name__ == "__main__":
    main()
