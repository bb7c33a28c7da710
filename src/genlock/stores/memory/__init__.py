"""A store in memory, for tests and for work that need not last."""

from genlock.stores.memory.store import MemoryStore as MemoryStore
