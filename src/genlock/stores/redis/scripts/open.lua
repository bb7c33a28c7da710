#!lua
-- The store, made if it is missing. KEYS: the store. ARGV: format, birth for a new one, version of Genlock.

-- A script that meets a command which its user may not run ends there, half done. So each is tried here first, where it does no harm.
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
local time, info = redis.call('TIME'), redis.call('INFO', 'replication')

if redis.call('EXISTS', KEYS[1]) == 0 then
  local id = string.match(info, 'master_replid:(%x+)')
  redis.call(
    'HSET', KEYS[1], 'format', ARGV[1], 'birth', ARGV[2], 'born', time[1], 'made_by', ARGV[3], 'epoch', '0', 'replid', id
  )
end
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  return {false, false, false}
end
return redis.call('HMGET', KEYS[1], 'format', 'birth', 'made_by')
