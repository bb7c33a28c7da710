"""The list of products that a command has put under its claim: a file that `genlock run` and
`genlock work` name in $GENLOCK_PRODUCTS. `genlock product put` adds a line for each product, and
the result is submitted with all of them.

The command may have been confined to fewer files than we are, so the file is read with suspicion,
as its result is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from genlock import typed_json
from genlock.core.model import Product
from genlock.errors import BadArgument
from genlock.private_files import read_regular

VARIABLE: Final = "GENLOCK_PRODUCTS"
MOST_LIST_BYTES: Final = 16 * 1024 * 1024
"""Far more than a manifest may have, since each may be put many times."""


def note_product(path: str | Path, product: Product) -> None:
    """Adds a line for a product. Several commands may do so concurrently."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
        with os.fdopen(fd, "wb", buffering=0) as file:
            file.write(msgspec.json.encode(product) + b"\n")
    except OSError as error:
        raise BadArgument(f"${VARIABLE}, {path}, cannot be written: {error.strerror}") from None


def read_products(path: str | Path) -> list[Product]:
    """Returns the products. The last of several with the same path counts. Empty if there is no
    file."""
    try:
        data = read_regular(Path(path), follow=False, most=MOST_LIST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadArgument(f"${VARIABLE}, {path}, cannot be read: {error.strerror}") from None
    if len(data) > MOST_LIST_BYTES:
        raise BadArgument(f"${VARIABLE}, {path}, has more than {MOST_LIST_BYTES:,} bytes")
    try:
        found = [typed_json.decode(line, Product) for line in data.splitlines() if line.strip()]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadArgument(
            f"${VARIABLE}, {path}, is not as product put writes it: {error}"
        ) from None
    return list({product.path: product for product in found}.values())
