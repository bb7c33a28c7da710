"""Answers that are too long to be one piece: they are sent as they were written, and no faster than they are taken."""

from __future__ import annotations

from typing import Final

import msgspec

from genlock import __version__
from genlock.service.exchange import Answer, Exchange, Send, send_answer
from genlock.wire.headers import PROTOCOL, PROTOCOL_HEADER, REQUEST_HEADER

_OURS: Final = (PROTOCOL_HEADER.encode(), f"{PROTOCOL} genlock/{__version__}".encode())


class LongAnswer(Answer, frozen=True):
    """An answer whose body is in pieces."""

    pieces: list[bytes] = msgspec.field(default_factory=list)


async def send_any(send: Send, answer: Answer, exchange: Exchange) -> None:
    """Sends an answer, be it long or not."""
    if not isinstance(answer, LongAnswer):
        await send_answer(send, answer, exchange)
        return
    size = sum(map(len, answer.pieces))
    headers = [
        (b"content-type", answer.kind),
        (b"content-length", b"%d" % size),
        (REQUEST_HEADER.encode(), exchange.request.encode()),
        _OURS,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    answer.pieces.reverse()  # so that each can go when it is sent
    while answer.pieces:
        piece = answer.pieces.pop()
        await send({"type": "http.response.body", "body": piece, "more_body": bool(answer.pieces)})
