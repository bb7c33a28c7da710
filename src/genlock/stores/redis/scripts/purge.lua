#!lua
-- Drops a record's events below a version and puts the base in their place. KEYS: the store, the project.
-- ARGV: the store's birth, the record's field, the version, the base.
if redis.call('HGET', KEYS[1], 'birth') ~= ARGV[1] then
  return 'gone'
end
local places = redis.call('ZRANGEBYSCORE', KEYS[2] .. ':e:' .. ARGV[2], '-inf', '(' .. ARGV[3])
if #places == 0 then
  return 'done'
end
local last = tonumber(redis.call('HGET', KEYS[2] .. ':m', 'purged_to'))
local dropped = {}
for at, place in ipairs(places) do
  dropped[at] = place .. '-0'
  last = math.max(last, tonumber(place))
end
many('XDEL', KEYS[2] .. ':f', dropped)
redis.call('ZREMRANGEBYSCORE', KEYS[2] .. ':e:' .. ARGV[2], '-inf', '(' .. ARGV[3])
redis.call('HSET', KEYS[2] .. ':o', ARGV[2], ARGV[4])
redis.call('HSET', KEYS[2] .. ':m', 'purged_to', string.format('%.0f', last))
redis.call('HINCRBY', KEYS[2] .. ':m', 'purges', 1)
return 'done'
