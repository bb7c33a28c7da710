"""Live events: server-sent events with replay, for any number of clients.

    hub = Hub(engine)
    await serve_stream(hub, scope, receive, send, places=[("default", "default")], after=None)
    await hub.close("the service restarts", retry_ms=1000)

`hub.subscribe(Wish(places=…))` is the same without HTTP, as an asynchronous iterator.
"""

from genlock.service.streams.cursors import START as START
from genlock.service.streams.filters import Filters as Filters
from genlock.service.streams.filters import check_filters as check_filters
from genlock.service.streams.hub import Hub as Hub
from genlock.service.streams.hub import StreamEvent as StreamEvent
from genlock.service.streams.hub import TooSlow as TooSlow
from genlock.service.streams.hub import Wish as Wish
from genlock.service.streams.settings import ServiceFull as ServiceFull
from genlock.service.streams.settings import StreamSettings as StreamSettings
from genlock.service.streams.settings import TooManyStreams as TooManyStreams
from genlock.service.streams.stream import note_transport as note_transport
from genlock.service.streams.stream import serve_stream as serve_stream
