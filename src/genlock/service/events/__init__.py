"""Live events: server-sent events with replay, for any number of clients.

    broker = EventBroker(coordinator.reader)
    await serve_stream(broker, scope, receive, send, places=[("default", "default")], after=None)
    await broker.close("the service restarts", retry_ms=1000)

`broker.subscribe(StreamRequest(places=…))` gives the same events without HTTP, as an asynchronous
iterator.
"""

from genlock.service.events.batches import Filters as Filters
from genlock.service.events.batches import check_filters as check_filters
from genlock.service.events.broker import EventBroker as EventBroker
from genlock.service.events.broker import StreamEvent as StreamEvent
from genlock.service.events.broker import StreamRequest as StreamRequest
from genlock.service.events.broker import TooSlow as TooSlow
from genlock.service.events.cursors import START as START
from genlock.service.events.settings import ServiceFull as ServiceFull
from genlock.service.events.settings import StreamSettings as StreamSettings
from genlock.service.events.settings import TooManyStreams as TooManyStreams
from genlock.service.events.stream import note_transport as note_transport
from genlock.service.events.stream import serve_stream as serve_stream
