#!lua
-- Raises the epoch to a number, if that is higher. KEYS: the store. ARGV: the store's birth, the number.
if redis.call('HGET', KEYS[1], 'birth') ~= ARGV[1] then
  return 'gone'
end
if tonumber(ARGV[2]) <= tonumber(redis.call('HGET', KEYS[1], 'epoch')) then
  return 'low'
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'epoch:' .. ARGV[2], time[1] .. ' set by hand')
redis.call('PUBLISH', KEYS[1] .. ':moves', '')
return 'done'
