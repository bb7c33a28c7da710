"""A store in a PostgreSQL database."""

from genlock.stores.postgres.store import PostgresStore as PostgresStore
