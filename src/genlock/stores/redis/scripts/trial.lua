#!lua
-- A script that meets a command which its user may not run ends there, half done. So each is tried here first, where it does no harm.
-- KEYS: the store.
local trial = KEYS[1] .. ':trial'
redis.call('HSET', trial, 'a', '1')
redis.call('HSETNX', trial, 'a', '1')
redis.call('HINCRBY', trial, 'a', 1)
redis.call('HMGET', trial, 'a')
redis.call('DEL', trial)
redis.call('ZADD', trial, 0, 'a')
redis.call('ZREM', trial, 'a')
redis.call('ZREMRANGEBYSCORE', trial, 0, 0)
redis.call('XADD', trial, '1-0', 'a', '1')
redis.call('XDEL', trial, '1-0')
redis.call('DEL', trial)
redis.call('PUBLISH', KEYS[1] .. ':moves', '')
redis.call('TIME')
redis.call('INFO', 'replication')
