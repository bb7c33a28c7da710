"""A store in one SQLite file."""

from genlock.stores.sqlite.store import SQLiteStore as SQLiteStore
