"""Manifests: the lists of work products that belong to results.

A manifest names each product by its path and the SHA-256 of its bytes, and gives the agent and the
generation of the drafts. Its size is limited, because it is kept in records.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from genlock.core import codec
from genlock.core.model import Manifest, Product
from genlock.core.names import shown
from genlock.errors import BadArgument

MOST_PRODUCTS: Final = 256
LONGEST_PATH: Final = 512
MOST_MANIFEST_BYTES: Final = 32 * 1024
_LONGEST_PART: Final = 80
"""The longest part of a path, in bytes. Escaped, it is at most three times as long and still a
valid file name."""
MOST_BYTES: Final = 2**50
"""The size limit of one product, more than any store takes."""
_DIGITS: Final = frozenset("0123456789abcdef")


class _Listed(Struct, frozen=True):
    files: tuple[Product, ...]


def manifest_of(agent: str, generation: int, files: Iterable[Product]) -> Manifest:
    """Returns the manifest of these products, sorted by path. Raises `BadArgument` if one of them
    is invalid, or if there are too many."""
    products = tuple(sorted((_checked(each) for each in files), key=lambda each: each.path))
    if len(products) > MOST_PRODUCTS:
        raise BadArgument(
            f"products has {len(products)} files, at most {MOST_PRODUCTS} belong to one result; "
            "pack them into one file"
        )
    for one, other in pairwise(products):
        if one.path == other.path:
            raise BadArgument(f"products names {shown(one.path)} twice")
    manifest = Manifest(agent, generation, products)
    size = len(codec.encode_json(manifest))
    if size > MOST_MANIFEST_BYTES:
        raise BadArgument(
            f"the list of products has {size:,} bytes, at most {MOST_MANIFEST_BYTES:,}; use "
            "shorter paths, or pack the files into one"
        )
    return manifest


def digest_of(manifest: Manifest) -> str:
    """Returns the digest of a manifest's content: its paths, digests and sizes."""
    return codec.digest_of(codec.encode_json(_Listed(manifest.files))).hex()


def digest_with(data: bytes, manifest: Manifest) -> str:
    """Returns the digest of a result with products. A reviewer who names it has reviewed the data
    and the products."""
    return codec.digest_of(codec.digest_of(data) + bytes.fromhex(digest_of(manifest))).hex()


def _checked(product: Product) -> Product:
    path, size = check_product_path(product.path), product.size
    if len(product.sha256) != 64 or not _DIGITS.issuperset(product.sha256):
        raise BadArgument(
            f"sha256 of product {shown(path)} is 64 digits of 0-9a-f, not {shown(product.sha256)}"
        )
    if not 0 <= size <= MOST_BYTES:
        raise BadArgument(f"size of product {shown(path)} is a number of bytes, not {size}")
    return product


def check_product_path(path: Any) -> str:
    """Returns a path within the products of a task: relative, with `/` between its parts."""
    if not isinstance(path, str) or not path:
        raise BadArgument("the path of a product is a text such as reports/summary.md")
    parts = path.split("/")
    if len(path) > LONGEST_PATH or not path.isprintable() or "\\" in path:
        raise BadArgument(
            f"the path {shown(path)} is no path of a product: it has at most {LONGEST_PATH} "
            "printable characters and no backslash"
        )
    if any(part in ("", ".", "..") for part in parts):
        raise BadArgument(
            f"the path {shown(path)} is no path of a product: write it relative, without '..', '.' "
            "and '//', such as reports/summary.md"
        )
    try:
        long = [part for part in parts if len(part.encode()) > _LONGEST_PART]
    except UnicodeEncodeError:
        raise BadArgument(f"the path {shown(path)} of a product is no UTF-8") from None
    if long:
        raise BadArgument(
            f"the path {shown(path)} of a product: {shown(long[0])} is longer than {_LONGEST_PART} "
            "bytes"
        )
    return path
