"""Who a connection speaks for."""

from __future__ import annotations

from msgspec import Struct

from genlock.core.model import Process


class Identity(Struct, frozen=True, kw_only=True):
    """Who a connection speaks for where a call does not say."""

    tenant_id: str = "default"
    project_id: str = "default"
    session_id: str | None = None
    agent_id: str | None = None
    user_id: str = ""
    client_ip: str = ""
    host: str = ""
    role: str = ""
    process: Process | None = None
    own_process: bool = True
    """Is it the process that made the connection? Then a forked child is another."""


NO_SESSION = "session_id is missing: pass it, or give one to connect(); over HTTP also by the header genlock-session"
NO_AGENT = "agent_id is missing: pass it, or give one to connect(); over HTTP also by the header genlock-agent"
