"""A store on a Redis or Valkey server."""

from genlock.stores.redis.store import RedisStore as RedisStore
