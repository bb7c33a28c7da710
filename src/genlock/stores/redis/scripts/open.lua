#!lua
-- The store, made if it is missing. KEYS: the store. ARGV: format, birth for a new one, version of Genlock.
if redis.call('EXISTS', KEYS[1]) == 0 then
  local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  redis.call(
    'HSET', KEYS[1], 'format', ARGV[1], 'birth', ARGV[2], 'born', redis.call('TIME')[1], 'made_by', ARGV[3], 'epoch', '0', 'replid', id
  )
end
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  return {false, false, false}
end
return redis.call('HMGET', KEYS[1], 'format', 'birth', 'made_by')
