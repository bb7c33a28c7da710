"""The monitor: sweeps every project now and then. No answer depends on it; it writes down sooner what anyone would find.

What time has brought it finds each time. Holders that are lost it looks for in tours, some of them each time, so that a hundred thousand
claims cost the lane no more than a thousand do. One that is of a single project looks for all of them each time, and so does it seldom.
"""

from __future__ import annotations

import contextlib
import threading

from genlock.core.codec import decode_record
from genlock.core.keys import PROJECT, TENANT, Key, project_key, tenant_key
from genlock.core.model import TenantRecord
from genlock.engine.check import places
from genlock.engine.engine import Engine
from genlock.engine.jobs import Sweep
from genlock.engine.retention import purge_old
from genlock.errors import GenlockError, StoreCorrupt

INTERVAL_SECONDS = 5.0


class Monitor:
    """A thread that ends with its engine."""

    def __init__(self, engine: Engine, interval_seconds: float = INTERVAL_SECONDS, place: tuple[str, str] | None = None) -> None:
        """Of every project, or of the one at this place."""
        self._engine = engine
        self._interval = interval_seconds
        self._place = place
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="genlock-monitor", daemon=True)
        engine.on_close(self._stop.set)

    def start(self) -> None:
        self.thread.start()

    def sweep(self) -> None:
        """Sweeps every project once, as far as a tour goes, and drops what is past its tenant's retention; or all of its own project."""
        if self._place is not None:
            self._engine.submit([Sweep(project_key(*self._place))], patience=120).wait()
            return
        for tenant, project in places(self._engine.store)[1:]:
            # One that is damaged is not to keep the others from being looked after.
            with contextlib.suppress(StoreCorrupt):
                self._look_after(tenant, project)

    def _look_after(self, tenant: str, project: str) -> None:
        store = self._engine.store
        self._engine.submit([Sweep(Key(tenant, project, PROJECT, project), tour=True)], patience=60).wait()
        stored = store.load([tenant_key(tenant)]).records.get(tenant_key(tenant))
        record = decode_record(TENANT, stored.body) if stored is not None else None
        if isinstance(record, TenantRecord):
            purge_old(store, (tenant, project), record.limits)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            with contextlib.suppress(GenlockError):
                self.sweep()
