"""A dictionary that reads its values on demand."""

from __future__ import annotations

from _collections_abc import dict_items, dict_keys, dict_values
from collections.abc import Callable, Iterator
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LazyDict(dict[K, V]):
    """A dictionary that fetches a missing value on demand and keeps it. Iteration first reads all
    remaining values."""

    def __init__(self, find: Callable[[K], V | None], read_rest: Callable[[], None]) -> None:
        super().__init__()
        self._find = find
        self._read_rest = read_rest

    def has_read(self, key: K) -> bool:
        """Has this value been read already?"""
        return super().__contains__(key)

    def __missing__(self, key: K) -> V:
        value = self._find(key)
        if value is None:
            raise KeyError(key)
        self[key] = value
        return value

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        """The value, or the default."""
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self.get(key) is not None  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        self._read_rest()
        return super().__iter__()

    def __len__(self) -> int:
        self._read_rest()
        return super().__len__()

    def keys(self) -> dict_keys[K, V]:
        """All of them."""
        self._read_rest()
        return super().keys()

    def values(self) -> dict_values[K, V]:
        """All of them."""
        self._read_rest()
        return super().values()

    def items(self) -> dict_items[K, V]:
        """All of them."""
        self._read_rest()
        return super().items()
