"""Sending answers: nearly all at once, and some that are not like the others, too long to be one piece or the last of a connection.

What is long is sent as it was written, and no faster than it is taken.
"""

from __future__ import annotations

import msgspec

from genlock.service.exchange import Answer, Exchange, Send, headers_of, send_answer


class LongAnswer(Answer, frozen=True):
    """An answer whose body is in pieces."""

    pieces: list[bytes] = msgspec.field(default_factory=list)


class LastAnswer(Answer, frozen=True):
    """An answer after which the connection is closed: what else has come on it is not looked at."""


async def send_any(send: Send, answer: Answer, exchange: Exchange) -> None:
    """Sends an answer of any kind."""
    if isinstance(answer, LongAnswer):
        await _send_pieces(send, answer, answer.pieces, exchange)
    elif isinstance(answer, LastAnswer):
        await _send_pieces(send, answer, [answer.body], exchange)
    else:
        await send_answer(send, answer, exchange)


async def _send_pieces(send: Send, answer: Answer, pieces: list[bytes], exchange: Exchange) -> None:
    headers = headers_of(answer, sum(map(len, pieces)), exchange)
    if isinstance(answer, LastAnswer):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    pieces.reverse()  # so that each can go when it is sent
    while pieces:
        piece = pieces.pop()
        await send({"type": "http.response.body", "body": piece, "more_body": bool(pieces)})
