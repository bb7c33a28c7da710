"""How the callers of one connection reach their project's area.

`genlock.connect` gives one to each coordinator and client, so that `work.put` and the command line
open the same area under the same rules: the address is the project's, from the policy `products`;
the credentials are the process's own; and a store that may have come with a clone needs its user's
consent before it leads out of the project (see `genlock.trust`).
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from genlock.core.model import Product
from genlock.core.results import TaskClaim
from genlock.errors import BadArgument, GenlockError
from genlock.products.area import Area, open_local
from genlock.products.promoter import Promoter
from genlock.trust import check_area


class ProductAccess:
    """The way to the areas of one connection's projects."""

    def __init__(self, url: object, *, promotes: bool) -> None:
        """`url` is the connection's. Does it promote at once what its callers have accepted? A
        service has a promoter of its own."""
        self._url = url
        self.promotes = promotes
        self._areas: dict[str, Area] = {}

    def area(self, fleet: Any, place: tuple[str, str]) -> Area:
        """The project's area; `BadArgument` if it has none. It asks the coordinator each time: the
        policy may have changed."""
        settings = fleet.get_policy(tenant_id=place[0], project_id=place[1])
        url = settings.policy.get("products")
        if not url:
            raise BadArgument(
                f"project {place[1]!r} has no area for products; name one, type: genlock policy "
                "set products=file:///folder"
            )
        if url not in self._areas:
            check_area(self._url, url)
            self._areas[url] = Area.at(url)
        return self._areas[url]

    def put(
        self,
        fleet: Any,
        claim: TaskClaim,
        path: str | os.PathLike[str],
        name: str | None = None,
        data: bytes | None = None,
    ) -> Product:
        """Writes a file, or data, as a draft of a claim's own generation."""
        product = product_name(path) if name is None else name
        area = self.area(fleet, (claim.tenant_id, claim.project_id))
        with io.BytesIO(data) if data is not None else open_local(path) as source:
            return area.put_draft(claim.agent_id, claim.task_id, claim.generation, product, source)

    def get(self, fleet: Any, place: tuple[str, str], path: str) -> bytes:
        """The content of an asset."""
        area = self.area(fleet, place)
        with area.opened_asset(area.asset(path)) as file:
            return file.read()

    def promote(self, fleet: Any, place: tuple[str, str], task_id: str) -> None:
        """After an acceptance: promotes the task's products now, if that is this process's to do.
        What cannot be done now stays pending."""
        if not self.promotes:
            return
        with suppress(GenlockError):
            Promoter(fleet, self.area(fleet, place), place).run(task_id=task_id)


def product_name(path: str | os.PathLike[str]) -> str:
    """A file's path below the working folder, which is what its product is called."""
    relative = Path(os.path.relpath(os.fspath(path)))
    if ".." in relative.parts:
        raise BadArgument(
            f"{os.fspath(path)} is outside of the working folder; say what to call it, with a name"
        )
    return relative.as_posix()
