"""The metrics of one service: fed by its engine and its HTTP layer, served at /metrics."""

from __future__ import annotations

import asyncio
import platform
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

import genlock
from genlock.engine.observer import Batch
from genlock.errors import BadArgument
from genlock.reads.reader import Reader
from genlock.service.metrics import table
from genlock.service.metrics.collector import Census, Rows, families_of
from genlock.service.metrics.tallies import MOST_PLACES, Histogram, Requests, Tallies

PREFIX = "genlock"
_OPENMETRICS = "application/openmetrics-text"
_PAGE_SECONDS = 1.0
_A_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class Metrics(Collector):
    """The metrics of a service. Pass it to the engine as `observer`, `attach` its reader, and call
    `count_request` for each request."""

    def __init__(self, *, prefix: str = PREFIX, most_places: int = MOST_PLACES) -> None:
        """`prefix` begins every name; `coditect` gives the names of the document."""
        if not _A_PREFIX.fullmatch(prefix):
            raise BadArgument(
                "the prefix of metrics is a letter and up to 63 letters, digits or _, for example "
                f"genlock; not {prefix!r}"
            )
        self._prefix = prefix
        self._tallies = Tallies(most_places)
        self._requests = Requests()
        self._reader: Reader | None = None
        self._census: Census | None = None
        self._build = {
            "version": genlock.__version__,
            "python": platform.python_version(),
            "store": "",
        }
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._pages: dict[bool, tuple[float, tuple[bytes, str]]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="genlock-metrics")
        self.sse_clients: Callable[[], int] = int
        """Returns the number of event streams. The part that has the streams sets it."""
        self.count_request = self._requests.count
        """Counts an HTTP request: (route, status, seconds). Costs less than a microsecond."""
        self.batch_done: Callable[[Batch], None] = self._tallies.batch_done
        """The engine's observer."""

    def attach(self, reader: Reader, store: str = "") -> None:
        """Adds the depths of the reader's lanes and the counts of its store. `store` is the kind of
        store, for `build_info`."""
        self._reader = reader
        self._census = Census(reader, self._tallies)
        self._build["store"] = store or type(reader.store).__name__

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics with their content type: OpenMetrics if the client accepts it, else the text
        format 0.0.4."""
        if self._census is not None:
            self._census.refresh()
        # The library's own negotiation echoes the client's version, and fails on some values.
        if _OPENMETRICS in accept:
            return openmetrics.generate_latest(self._registry), openmetrics.CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]
        return exposition.generate_latest(self._registry), exposition.CONTENT_TYPE_PLAIN_0_0_4

    async def page_soon(self, accept: str) -> tuple[bytes, str]:
        """All metrics, made in a thread. A page made within the last second is reused."""
        return await asyncio.get_running_loop().run_in_executor(
            self._writer, self._recent_page, accept
        )

    def _recent_page(self, accept: str) -> tuple[bytes, str]:
        """The last page. With a thousand projects a page has five megabytes and takes a second, so
        it is made at most once in that time."""
        known = self._pages.get(_OPENMETRICS in accept)
        if known is None or time.monotonic() - known[0] >= _PAGE_SECONDS:
            page = self.page(accept)
            known = self._pages[_OPENMETRICS in accept] = time.monotonic(), page
        return known[1]

    def close(self) -> None:
        """Ends the thread."""
        self._writer.shutdown(wait=False, cancel_futures=True)

    def collect(self) -> Iterable[Metric]:
        """For prometheus_client."""
        counts = self._census.counts() if self._census is not None else {}
        return families_of(self._prefix, self._tallies, counts, self._plain())

    def _plain(self) -> dict[table.Metric, Rows]:
        """The metrics that belong to no project."""
        tallies, depths = (
            self._tallies,
            self._reader.lane_depths() if self._reader is not None else {},
        )
        with tallies.lock:
            of_lanes: dict[table.Metric, Rows] = {
                table.GATHERED_DEPTH: [((), tallies.gathered_depth.copy())],
                table.BATCH_SIZE: [((), tallies.batch_size.copy())],
                table.LOAD: [((), tallies.load.copy())],
                table.DECIDE: [((), tallies.decide.copy())],
                table.COMMIT: [((), tallies.commit.copy())],
                table.CONFLICTS: [((), tallies.conflicts)],
                table.SECOND_COMMITS: [((), tallies.second_commits)],
            }
        return {
            table.LANE_DEPTH: [((lane,), depth) for lane, (depth, _) in depths.items()],
            table.LANE_WAITERS: [((lane,), waiters) for lane, (_, waiters) in depths.items()],
            **of_lanes,
            table.SSE_CLIENTS: [((), self.sse_clients())],
            **self._of_requests(),
            table.BUILD: [(tuple(self._build[label] for label in table.BUILD.labels), 1)],
        }

    def _of_requests(self) -> dict[table.Metric, Rows]:
        seen = self._requests.seen()
        by_route: dict[str, Histogram] = {}
        for route, _, histogram in seen:
            if route in by_route:
                by_route[route].add(histogram)
            else:
                by_route[route] = histogram.copy()
        return {
            table.REQUESTS: [
                ((route, str(status)), sum(histogram.counts)) for route, status, histogram in seen
            ],
            table.REQUEST_DURATION: [
                ((route,), histogram) for route, histogram in by_route.items()
            ],
        }


def metrics_endpoint(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint at /metrics."""

    async def endpoint(request: Request) -> Response:
        page, content_type = await metrics.page_soon(request.headers.get("accept", ""))
        return Response(page, headers={"content-type": content_type})

    return endpoint
