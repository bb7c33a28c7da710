"""The official client and our dispatcher, joined in memory: no process, no socket, but every
message as bytes."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from genlock.coordinator import Coordinator
from genlock.mcp import protocol
from genlock.mcp.answer import Caller
from genlock.mcp.connection import Connection

_CALLER = Caller(session="memory", agent="memory", project="default", renewed=True)


def memory_transport(fleet: Coordinator) -> AbstractAsyncContextManager[TransportStreams]:
    """A transport for the official client, to a server on this coordinator."""
    return _transport(Connection(lambda: fleet))


@asynccontextmanager
async def _transport(connection: Connection) -> AsyncIterator[TransportStreams]:
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](100)
    try:
        async with anyio.create_task_group() as group, to_client, from_server:
            group.start_soon(_serve, connection, from_client, to_client)
            yield from_server, to_server
            group.cancel_scope.cancel()
    finally:
        connection.close(1)


async def _serve(
    connection: Connection,
    messages: MemoryObjectReceiveStream[SessionMessage],
    replies: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    async with messages:
        async for message in messages:
            sent = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            reply = await anyio.to_thread.run_sync(_reply, connection, sent.encode())
            if reply is not None:
                await replies.send(SessionMessage(jsonrpc_message_adapter.validate_json(reply)))


def _reply(connection: Connection, data: bytes) -> bytes | None:
    match protocol.handle(data):
        case protocol.Reply(body=body) | protocol.Initialized(reply=protocol.Reply(body=body)):
            return body
        case protocol.Work() as work:
            answer, _ = connection.answer(work.asked, _CALLER, threading.Event())
            return work.reply(answer).body
        case _:
            return None
