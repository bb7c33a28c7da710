"""An area for work products: what agents draft, and the assets that were promoted.

    agents/<agent>/drafts/<task>/gen<N>/<path>   what an agent has put in one generation
    agents/<agent>/scratch/…                     what it keeps to itself; Genlock never looks there
    assets/<path>.asset                          the pointer of an asset: which content, from whom
    assets/.objects/<sha256>                     the content of all assets there have ever been

A generation has drafts of its own, so a stale agent writes only where nobody looks any more. The
content of an asset lies under its digest and is never written with other bytes. What an asset is
changes in one place, its pointer, by compare-and-swap, and only forward: to a later acceptance.

Names of agents, tasks and files are escaped as in URLs, reversibly. A dot at the beginning is
escaped as well, so no product is called `.objects`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from genlock import typed_json
from genlock.core.manifest import check_product_path
from genlock.core.model import Product
from genlock.core.names import check_agent, shown
from genlock.core.products_url import AreaAddress, read_products_url
from genlock.core.records.promotion import order_of
from genlock.errors import BadArgument, ProductNotFound, StoreCorrupt
from genlock.failpoints import hit
from genlock.products.objects import PIECE, Objects, Readable, open_objects

_LONGEST_NAME: Final = 240
"""Of one part, escaped; file names have at most 255 bytes."""
_DRAFT: Final = re.compile(r"agents/([^/]+)/drafts/([^/]+)/gen(0|[1-9][0-9]{0,18})/(.+)")
_IN_MEMORY: Final = 16 * 1024 * 1024
"""Of a draft that is being promoted; a larger one goes through a temporary file."""
_ASSETS: Final = "assets/"
_POINTER: Final = ".asset"
_OBJECTS: Final = "assets/.objects/"
_ATTEMPTS: Final = 100
"""To move a pointer that others keep moving, each time to a later acceptance."""


class DraftMismatch(Exception):
    """A draft is missing, or is not what was accepted. The text says which and why."""


class Draft(NamedTuple):
    """A draft as it is listed."""

    agent: str
    task_id: str
    generation: int
    path: str
    size: int
    modified: datetime
    name: str
    """Of the object."""


class Asset(Struct, frozen=True, forbid_unknown_fields=False):
    """The pointer of an asset: its content, and the acceptance that it comes from."""

    path: str
    sha256: str
    size: int
    task_id: str
    generation: int
    accepted_at: datetime

    @property
    def order(self) -> tuple[int, int, str]:
        """Of two assets of the same path the greater one counts."""
        return order_of(self.accepted_at, self.generation, self.task_id)


class Area:
    """The area at one address."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @classmethod
    def at(cls, url: str) -> Area:
        """The area of a project with this policy `products`."""
        return cls.at_address(read_products_url(url))

    @classmethod
    def at_address(cls, address: AreaAddress) -> Area:
        """The area at an address that has been read."""
        return cls(open_objects(address))

    @property
    def where(self) -> str:
        """Its address, without settings."""
        return self._objects.where

    # Drafts

    def put_draft(
        self, agent: str, task_id: str, generation: int, path: str, source: Readable
    ) -> Product:
        """Writes a draft; it takes the place of an earlier one of the same generation."""
        name = draft_name(agent, task_id, generation, path)
        reader = _Hashing(source)
        self._objects.put(name, reader)
        return Product(path, reader.digest, reader.size)

    def open_draft(self, agent: str, task_id: str, generation: int, path: str) -> BinaryIO:
        """A reader of a draft."""
        found = self._objects.open(draft_name(agent, task_id, generation, path))
        if found is None:
            raise ProductNotFound(
                f"{agent} has no draft {shown(path)} for {task_id} in generation {generation}"
            )
        return found

    def drafts(self, agent: str | None = None, task_id: str | None = None) -> Iterator[Draft]:
        """The drafts, of one agent or of all, for one task or for all."""
        prefix = "agents/" if agent is None else f"agents/{_escaped(agent)}/drafts/"
        if agent is not None and task_id is not None:
            prefix += f"{_escaped(task_id)}/"
        for each in self._objects.list(prefix):
            found = _DRAFT.fullmatch(each.name)
            if found is None or (task_id is not None and unquote(found[2]) != task_id):
                continue
            yield Draft(
                unquote(found[1]),
                unquote(found[2]),
                int(found[3]),
                unquote(found[4]),
                each.size,
                each.modified,
                each.name,
            )

    def products(self, agent: str, task_id: str, generation: int) -> tuple[Product, ...]:
        """What an agent has drafted in one generation, each read for its digest."""
        found = []
        for draft in self.drafts(agent, task_id):
            if draft.generation == generation:
                with self.open_draft(agent, task_id, generation, draft.path) as file:
                    reader = _Hashing(file)
                    reader.exhaust()
                found.append(Product(draft.path, reader.digest, reader.size))
        return tuple(found)

    def drop_draft(self, draft: Draft) -> None:
        """Removes a draft."""
        self._objects.delete(draft.name)

    # Assets

    def store_content(self, agent: str, task_id: str, generation: int, product: Product) -> None:
        """Copies a draft to where its digest says, unless that content is there. `DraftMismatch`
        if the draft is missing, or is not what was accepted.

        The bytes are read once, and only those that have the digest are written; and then what was
        written is read. So an agent that goes on writing to its draft changes nothing here, however
        late it comes."""
        name = _OBJECTS + product.sha256
        if self._has_content(name, product):
            return
        draft = self._objects.open(draft_name(agent, task_id, generation, product.path))
        if draft is None:
            raise DraftMismatch(f"the draft {product.path} is not there")
        with draft, tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
            reader = _Hashing(draft)
            while piece := reader.read(PIECE):
                copy.write(piece)
                if reader.size > product.size:
                    break
            if (reader.digest, reader.size) != (product.sha256, product.size):
                raise DraftMismatch(
                    f"the draft {product.path} is not what was accepted: its digest is "
                    f"{reader.digest[:12]}…, accepted was {product.sha256[:12]}…"
                )
            copy.seek(0)
            hit("products.copying")
            self._objects.put(name, copy)
        hit("products.copied")
        if not self._has_content(name, product):
            raise StoreCorrupt(f"{self.where}/{name} is not what was written there just now")

    def _has_content(self, name: str, product: Product) -> bool:
        found = self._objects.open(name)
        if found is None:
            return False
        with found:
            reader = _Hashing(found)
            reader.exhaust()
        return (reader.digest, reader.size) == (product.sha256, product.size)

    def point(self, asset: Asset) -> bool:
        """Makes this the asset of its path; False if a later acceptance has it already."""
        name = _pointer_name(asset.path)
        data = msgspec.json.encode(asset)
        for _ in range(_ATTEMPTS):
            before = self._objects.read(name)
            known = None if before is None else self._decoded(name, before.data)
            if known is not None and known.order >= asset.order:
                return known.order == asset.order
            hit("products.pointing")
            if self._objects.replace(name, data, before):
                return True
        raise StoreCorrupt(f"{self.where}/{name} cannot be moved: it is another one at every look")

    def asset(self, path: str) -> Asset:
        """The asset of this path."""
        name = _pointer_name(check_product_path(path))
        found = self._objects.read(name)
        if found is None:
            raise ProductNotFound(f"there is no asset {shown(path)}: nothing was promoted there")
        return self._decoded(name, found.data)

    def assets(self) -> Iterator[Asset]:
        """All assets, by path."""
        for each in self._objects.list(_ASSETS):
            if each.name.endswith(_POINTER) and not each.name.startswith(_OBJECTS):
                found = self._objects.read(each.name)
                if found is not None:
                    yield self._decoded(each.name, found.data)

    @contextmanager
    def opened_asset(self, asset: Asset) -> Iterator[Readable]:
        """A reader of an asset's content; `StoreCorrupt` at its end if that is not its digest's."""
        found = self._objects.open(_OBJECTS + asset.sha256)
        if found is None:
            raise StoreCorrupt(f"{self.where} has lost the content of the asset {asset.path}")
        with found:
            reader = _Hashing(found)
            yield reader
            reader.exhaust()
            if reader.digest != asset.sha256:
                raise StoreCorrupt(
                    f"the content of the asset {asset.path} in {self.where} was changed"
                )

    def _decoded(self, name: str, data: bytes) -> Asset:
        try:
            return typed_json.decode(data, Asset)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreCorrupt(f"{self.where}/{name} is no pointer of an asset: {error}") from None


class _Hashing:
    """A reader that notes the digest and size of what was read."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._digest = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        piece = self._source.read(size)
        self._digest.update(piece)
        self.size += len(piece)
        return piece

    def exhaust(self) -> None:
        """Reads the rest."""
        while self.read(PIECE):
            pass

    @property
    def digest(self) -> str:
        """Of what was read so far."""
        return self._digest.hexdigest()


def draft_name(agent: str, task_id: str, generation: int, path: str) -> str:
    """The object of a draft."""
    parts = "/".join(map(_escaped, check_product_path(path).split("/")))
    start = f"agents/{_escaped(check_agent(agent))}/drafts/{_escaped(task_id)}"
    return f"{start}/gen{generation}/{parts}"


def scratch_of(agent: str) -> str:
    """The prefix of what an agent keeps to itself."""
    return f"agents/{_escaped(check_agent(agent))}/scratch/"


def _pointer_name(path: str) -> str:
    return _ASSETS + "/".join(_plain_folder(part) for part in path.split("/")) + _POINTER


def _plain_folder(part: str) -> str:
    """A part of an asset's path. A folder is never called as a pointer is."""
    escaped = _escaped(part)
    cut = len(_POINTER)
    return f"{escaped[:-cut]}%2Easset" if escaped.endswith(_POINTER) else escaped


def _escaped(part: str) -> str:
    """A part of a name in plain characters. Two parts never become the same."""
    text = quote(part, safe="+=@,")
    text = f"%2E{text[1:]}" if text.startswith(".") else text
    if len(text) > _LONGEST_NAME:
        raise BadArgument(f"{shown(part)} is too long for a name in an area of products")
    return text


def open_local(path: str | os.PathLike[str]) -> BinaryIO:
    """A file that is to be put; `BadArgument` if it is none."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise BadArgument(f"{os.fspath(path)} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadArgument(f"{os.fspath(path)} is no regular file; put the files in it one by one")
    return file
