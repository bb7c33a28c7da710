"""The store in memory, for tests and for what need not last."""

from genlock.stores.memory.store import MemoryStore as MemoryStore
