"""Starting a service and stopping it."""

from __future__ import annotations

import socket

import uvicorn

from genlock.service.app import App


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, since asyncio sends small answers at once (TCP_NODELAY) only where it is: otherwise each took 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(4096)
    return listening


def server(app: App) -> uvicorn.Server:
    """The server around the application."""
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=4096,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )
    return uvicorn.Server(config)
