"""The server for agents' clients: mcp."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from genlock.coordinator import Coordinator
    from genlock.mcp.answer import Caller
    from genlock.mcp.connection import Connection


@click.command()
@verb(worker=True)
def mcp(app: App) -> None:
    """Serve the plan to an agent over MCP, on stdin and stdout.

    An agent's client starts it; `genlock setup AGENT` registers it there. It renews the claims of
    its agent while it runs, and releases them when it ends.
    """
    from genlock.mcp.stdio import Server

    def connect() -> Connection:
        from genlock.mcp.connection import Connection

        return Connection(lambda: _open(app))

    Server(connect, identify=lambda meta, client: _caller(app, meta, client)).serve()


def _open(app: App) -> Coordinator:
    """Opens the coordinator for a process that lives as long as its agent: when it ends, its claims
    are overdue."""
    from genlock.cli.open_fleet import by_the_short_way, keys_of
    from genlock.open import connect
    from genlock.settings import login_name

    with by_the_short_way(app):
        return connect(
            app.url,
            tenant_id=app.setting("tenant"),
            project_id=app.setting("project"),
            user_id=app.setting("user") or login_name(),
            api_key=keys_of(app),
        )


def _caller(app: App, meta: Mapping[str, Any], client: str) -> Caller:
    """Returns the caller. A client's own session is the same in its hooks and in the commands that
    its agent types."""
    from genlock.mcp.answer import Caller

    thread = meta.get("threadId")  # sent by Codex, whose servers outlive a thread
    session = (
        app.setting("session")
        or os.environ.get("CLAUDE_CODE_SESSION_ID")
        or (thread if isinstance(thread, str) else None)
        or _own_session()
    )
    named = app.setting("agent")
    return Caller(
        session=session,
        agent=named or _agent_name(client),
        named=bool(named),
        project=app.setting("project"),
        renewed=True,
        role=os.environ.get("GENLOCK_ROLE", ""),
    )


def _own_session() -> str:
    from genlock.identity import identify, session_of

    process = identify()
    return session_of(process) if process is not None else f"mcp-{os.getpid()}"


def _agent_name(client: str) -> str:
    """A name for the agent, from that of its client: `claude-code`."""
    plain = "".join(char if char.isalnum() or char in "._-" else "-" for char in client[:48])
    return plain.strip("-") or "mcp"
