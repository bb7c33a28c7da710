#!lua
-- Begins an epoch on a server that has another replication id than the one that was kept. Of several who have noticed it one does, and the
-- others find it done. The number comes from the client: one function makes it for all stores.
-- KEYS: the store. ARGV: the store's birth, the id that was kept, the one that was found, the epoch.
local kept = redis.call('HMGET', KEYS[1], 'birth', 'replid', 'epoch')
if kept[1] ~= ARGV[1] then
  return 'gone'
end
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if kept[2] ~= ARGV[2] or id ~= ARGV[3] or tonumber(ARGV[4]) <= tonumber(kept[3]) then
  return 'late'
end
local why = redis.call('TIME')[1] .. ' replication id ' .. kept[2] .. ' became ' .. id
redis.call('HSET', KEYS[1], 'epoch', ARGV[4], 'replid', id, 'epoch:' .. ARGV[4], why)
redis.call('PUBLISH', KEYS[1] .. ':moves', '')
return 'done'
