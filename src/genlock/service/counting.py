"""Counting a caller's requests: who is over the rate is refused, and waits for it."""

from __future__ import annotations

import asyncio
import contextlib

from genlock.errors import TooManyRequests
from genlock.service.exchange import Gone, Receive
from genlock.service.limits import HOLD_SECONDS, Rates


async def count(rates: Rates | None, who: str, receive: Receive, counts: int = 1) -> None:
    """One request more. Who is over the rate waits for the refusal, and so does whatever else comes on the same connection."""
    if rates is None:
        return
    try:
        rates.take(who, counts)
    except TooManyRequests:
        await _hold(receive)
        raise


async def _hold(receive: Receive) -> None:
    """Keeps the caller waiting, unless it goes. A body that is still to come is left where it is."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HOLD_SECONDS):
            message = await receive()
            if message.get("more_body"):
                await asyncio.sleep(HOLD_SECONDS)
            elif message["type"] == "http.disconnect" or (await receive())["type"] == "http.disconnect":
                raise Gone
