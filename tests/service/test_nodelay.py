"""Answers leave at once."""

from __future__ import annotations

import asyncio
import socket

import pytest

from genlock.service.server import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_is_accepted_does_not_wait_for_more_to_send(host: str) -> None:
    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(
                writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            )
            writer.close()

        listening = listen(host, 0)
        async with await asyncio.start_server(meet, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            switched = await found
            writer.close()
            await writer.wait_closed()
            return switched

    assert asyncio.run(accepted()) != 0
