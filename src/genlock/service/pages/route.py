"""A path of the service that is no operation. What it does not take is refused like anywhere else."""

from __future__ import annotations

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from genlock.service.exchange import refused_method


class Page(Route):
    """A route of Starlette's, with our refusals."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """MethodRefused instead of a line of text."""
        if self.methods and scope["method"] not in self.methods:
            raise refused_method(scope["method"], self.methods)
        await super().handle(scope, receive, send)
