"""The promoter of a service: a thread that promotes what was accepted in any project.

A tenant's operators set the policy `products`, and the service opens the area with credentials of
its own. So it opens only what its administrator has given it: below `<root>/<tenant>/`. What lies
elsewhere is left to promoters that run with other credentials (`genlock product promote`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from genlock.core.codec import decode_record
from genlock.core.keys import NOWHERE, PROJECT, PROMOTION, TENANT
from genlock.core.model import ProjectRecord
from genlock.core.products_url import AreaAddress, read_products_url
from genlock.core.reasons import PromotionState
from genlock.engine.scan import records_of
from genlock.errors import BadArgument, GenlockError
from genlock.products.area import Area
from genlock.products.promoter import Promoted, Promoter

INTERVAL_SECONDS: Final = 2.0
COLLECT_SECONDS: Final = 3600.0


class PromotionMonitor:
    """Promotes for all projects of a store whose areas lie below a root."""

    def __init__(
        self,
        fleet: Any,
        root: str,
        tell: Callable[[str, str, Promoted], object],
        *,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        """`tell` is told of what was done: tenant, project, and what."""
        self._fleet = fleet
        self._root = read_products_url(root)
        self._tell = tell
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._areas: dict[AreaAddress, Area] = {}
        self._collect_at = time.monotonic() + interval_seconds
        self.thread = threading.Thread(target=self._run, name="genlock-promoter", daemon=True)

    def start(self) -> None:
        """Begins."""
        self.thread.start()

    def stop(self) -> None:
        """Ends after the promotion under way."""
        self._stop.set()
        self.thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            with suppress(GenlockError):
                self.look()

    def look(self) -> None:
        """Promotes once what waits, and now and then collects dead drafts."""
        for place in self._waiting():
            self._do(place, lambda promoter, settings: promoter.run())
        if time.monotonic() >= self._collect_at:
            self._collect_at = time.monotonic() + COLLECT_SECONDS
            for place in self._with_area():
                self._do(place, _collect)

    def _do(
        self, place: tuple[str, str], act: Callable[[Promoter, Mapping[str, Any]], Promoted]
    ) -> None:
        if self._stop.is_set():
            return
        try:
            policy = self._fleet.get_policy(tenant_id=place[0], project_id=place[1]).policy
            if not policy.get("products"):
                return
            area = self._area(policy["products"], place[0])
            done = act(Promoter(self._fleet, area, place), policy)
        except GenlockError as error:
            done = Promoted(errors=(str(error),))
        except Exception as error:  # noqa: BLE001 - the other projects are not to suffer by it
            done = Promoted(errors=(f"{type(error).__name__}: {error}",))
        if done != Promoted():
            self._tell(*place, done)

    def _waiting(self) -> list[tuple[str, str]]:
        """The projects in which something is pending."""
        store = self._fleet.engine.store
        found: dict[tuple[str, str], None] = {}
        for tenant in records_of(store, NOWHERE, None, TENANT):
            pending = records_of(
                store, tenant.key.id, None, PROMOTION, state=PromotionState.PENDING
            )
            found |= dict.fromkeys(stored.key.place for stored in pending)
        return list(found)

    def _with_area(self) -> list[tuple[str, str]]:
        """The projects that have an area."""
        store = self._fleet.engine.store
        found = []
        for tenant in records_of(store, NOWHERE, None, TENANT):
            for stored in records_of(store, tenant.key.id, None, PROJECT):
                record = decode_record(PROJECT, stored.body)
                if isinstance(record, ProjectRecord) and record.policy.products:
                    found.append(stored.key.place)
        return found

    def _area(self, url: str, tenant: str) -> Area:
        address = read_products_url(url)
        if not is_below(address, self._root, tenant):
            raise BadArgument(
                f"the area is not below {self._root.scheme}://{self._root.bucket}"
                f"{self._root.path}/{tenant}/, so this service does not open it"
            )
        if address.scheme == "file" and not self._stays_inside(address.path, tenant):
            raise BadArgument(
                f"the area leads out of {self._root.path}/{tenant} by a symbolic link, so this "
                "service does not open it"
            )
        if address not in self._areas:
            self._areas[address] = Area.at_address(address)
        return self._areas[address]

    def _stays_inside(self, path: str, tenant: str) -> bool:
        """Who can write in a tenant's folder could have put a link there."""
        inside = Path(os.path.realpath(self._root.path), tenant)
        return Path(os.path.realpath(path)).is_relative_to(inside)


def _collect(promoter: Promoter, policy: Mapping[str, Any]) -> Promoted:
    retention = timedelta(days=policy["draft_retention_days"])
    return Promoted(dropped=promoter.collect(datetime.now(UTC), retention))


def is_below(address: AreaAddress, root: AreaAddress, tenant: str) -> bool:
    """Is this an area that a tenant may have under the service's root? The settings of the address
    must be the root's, too: another endpoint is another store."""
    same = (address.scheme, address.bucket, sorted(address.settings)) == (
        root.scheme,
        root.bucket,
        sorted(root.settings),
    )
    start = f"{root.path.rstrip('/')}/{tenant}".lstrip("/").split("/")
    return same and address.path.strip("/").split("/")[: len(start)] == start
