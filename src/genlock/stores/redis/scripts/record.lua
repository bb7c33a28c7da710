#!lua flags=no-writes
-- Events of one record after a version. KEYS: the store, the project. ARGV: the record's field, the version, how many.
local places = redis.call('ZRANGEBYSCORE', KEYS[2] .. ':e:' .. ARGV[1], '(' .. ARGV[2], '+inf', 'LIMIT', 0, ARGV[3])
local events = {}
for at, place in ipairs(places) do
  events[at] = redis.call('XRANGE', KEYS[2] .. ':f', place .. '-0', place .. '-0')[1] or place
end
return {
  redis.call('HMGET', KEYS[1], 'birth', 'epoch'),
  redis.call('HMGET', KEYS[2] .. ':m', 'head', 'purged_to', 'purges'),
  events,
  redis.call('HGET', KEYS[2] .. ':o', ARGV[1]),
}
